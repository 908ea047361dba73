"""Projected gradient steps, for very many values whose curvature is close to a multiple of the identity."""

from __future__ import annotations

import numpy as np

from ldpsql.inference.outcome import simplex_projection
from ldpsql.inference.solver.objective import Point

ROUNDING = 1e-13
HALVINGS = 30


class ProjectedStep:
    """Steps of one solve along the gradient, projected onto the simplex, with the curvature along the step before.

    Source: Birgin, Martinez, Raydan, "Nonmonotone spectral projected gradient methods on convex sets", SIAM J. Optim. 2000.
    """

    def __init__(self) -> None:
        self._before: Point | None = None

    def __call__(self, point: Point, stalled: int) -> Point:
        """Move to the distribution nearest to theta + g / curvature; halve the move until the objective does not grow."""
        curvature = self._curvature(point) * 2.0**stalled
        self._before = point
        ahead = simplex_projection(point.theta + (point.gradient - 1.0) / curvature)
        for halvings in range(HALVINGS):
            moved = point.at(point.theta + (ahead - point.theta) * 0.5**halvings)
            if moved.phi <= point.phi + ROUNDING:
                return moved
        return point.em()

    def _curvature(self, point: Point) -> float:
        """Return how fast the gradient changes along the last move; before the first move, along that move itself."""
        if self._before is None:
            direction = simplex_projection(point.theta + (point.gradient - 1.0)) - point.theta
            change = point.bent(direction)
        else:
            direction, change = point.theta - self._before.theta, self._before.gradient - point.gradient
        return float(direction @ change) / max(float(direction @ direction), 1e-300)


def inverted(point: Point) -> Point:
    """Return the distribution nearest to the inversion of the reports, or the point if one of them has probability 0 there."""
    start = point.at(simplex_projection(point.operator.invert(point.shares[None]))[0])
    return start if np.isfinite(start.phi) else point
