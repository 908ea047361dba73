"""Squared extrapolation of IBU: steps that need no curvature.

Source: Varadhan, Roland, "Simple and globally convergent methods for accelerating the convergence of any EM algorithm",
Scandinavian Journal of Statistics 2008, scheme S3.
"""

from __future__ import annotations

import numpy as np

from ldpsql.inference.solver.objective import Point


def squarem_step(point: Point, _stalled: int) -> Point:
    """Take two steps of IBU, or extrapolate them if phi falls further that way."""
    first = point.em()
    second = first.em()
    moved = first.theta - point.theta
    bent = second.theta - first.theta - moved
    length = float(np.linalg.norm(moved)) / max(float(np.linalg.norm(bent)), 1e-150)  # its square must not overflow
    if length <= 1.0:
        return second
    ahead = point.theta + 2.0 * length * moved + length**2 * bent
    # A share that falls to zero could not come back: it keeps a hundredth.
    extrapolated = point.at(np.maximum(ahead, 0.01 * second.theta)).em()
    return extrapolated if extrapolated.phi < second.phi else second
