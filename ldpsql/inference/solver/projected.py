"""Projected gradient steps, for many values or many reports whose curvature is close to a multiple of the identity."""

from __future__ import annotations

import numpy as np

from ldpsql.errors import IllConditioned
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
        self._curvature = 1.0

    def __call__(self, point: Point, stalled: int) -> Point:  # noqa: ARG002  # shorter moves would not end the stall
        """Move to the distribution nearest to theta + g / curvature; halve the move until the objective does not grow."""
        self._measure(point)
        self._before = point
        ahead = simplex_projection(point.theta + (point.gradient - 1.0) / self._curvature)
        for halvings in range(HALVINGS):
            moved = point.at(point.theta + (ahead - point.theta) * 0.5**halvings)
            if moved.phi <= point.phi + ROUNDING:
                return moved
        return point.em()

    def _measure(self, point: Point) -> None:
        """Take how fast the gradient changes along the last move, or the first one; rounding may leave no change to measure."""
        if self._before is None:
            direction = simplex_projection(point.theta + (point.gradient - 1.0)) - point.theta
            change = point.bent(direction)
        else:
            direction, change = point.theta - self._before.theta, self._before.gradient - point.gradient
        along = float(direction @ change)
        if along > 0:
            self._curvature = along / float(direction @ direction)


def inverted(point: Point) -> Point:
    """Return the distribution nearest to the inversion of the reports; the point if it is none, or rules a report out."""
    try:
        start = point.at(simplex_projection(point.operator.invert(point.shares[None]))[0])
    except IllConditioned:
        return point
    return start if np.isfinite(start.phi) else point
