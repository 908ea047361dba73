"""Newton steps for maps of which very many cells have shares: conjugate gradients, without a table of the curvature.

Many cells have shares if the noise is small. The curvature is then well conditioned, and dozens of products with it, each by a
few Fourier transforms, make a step. Quasi-Newton steps alone end at a gap of 1e-6: there the objective does not change any more
in double precision, and the gradient still does.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ldpsql.inference.deadline import check
from ldpsql.inference.operators import Floats
from ldpsql.inference.solver.newton import backtracked
from ldpsql.inference.solver.objective import Point

MOST_PRODUCTS = 200  # with the curvature, in one step
ENOUGH = 1e-4  # of the gradient that a step leaves


def conjugate_step(point: Point, _stalled: int) -> Point:
    """Minimise the model of phi along the values that have a share or deserve one, and move there as far as phi falls."""
    free = (point.theta > 0) | (point.gradient > 1.0)
    return backtracked(point, _newton_move(point, free))


def _newton_move(point: Point, free: NDArray[np.bool_]) -> Floats:
    """Return the move that makes the gradient zero for the free values, to first order.

    Each value is measured in roots of the share of its reports. Source: Nocedal, Wright, "Numerical Optimization", 2nd ed.,
    algorithm 5.3.
    """
    scale = point.expected * free
    move, residual = np.zeros_like(point.theta), (point.gradient - 1.0) * free
    scaled = scale * residual
    ahead, left = scaled, float(residual @ scaled)
    enough = ENOUGH**2 * left
    for _ in range(MOST_PRODUCTS):
        if left <= enough:
            break
        check()
        bent = point.bent(ahead) * free
        length = left / float(ahead @ bent)
        move, residual = move + length * ahead, residual - length * bent
        scaled = scale * residual
        before, left = left, float(residual @ scaled)
        ahead = scaled + left / before * ahead
    return move
