"""Newton's method on the simplex: the quadratic model of the objective is minimised exactly in each step."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels.hashed import splitmix
from ldpsql.errors import OutOfTime
from ldpsql.inference.operators import Floats
from ldpsql.inference.solver.limits import Limits
from ldpsql.inference.solver.objective import Point
from ldpsql.inference.solver.quadratic import nonnegative_quadratic

MAX_VALUES = 1500  # in a model of all values; with more, the model is of some
MIN_WORKING = 500  # values in a model of some, unless more have shares: then twice as many
FAST_ENOUGH = 3.3  # a sampled curvature is used again while the gap falls by this factor
ROUNDING = 1e-13
HALVINGS = 30
FIRST_VALUES = 400
EM_STEPS, NEAR = 100, 0.5


class NewtonStep:
    """Steps of one solve; a curvature that is a sample of many reports serves several steps."""

    def __init__(self) -> None:
        self._among: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._hessian: Floats = np.empty((0, 0))
        self._gap = np.inf

    def __call__(self, point: Point, stalled: int) -> Point:
        """Minimise the model of phi over theta >= 0, and move towards the minimum as far as phi falls.

        The ridge, relative to the largest curvature, keeps the model strictly convex. After steps without progress it is larger
        and also shortens the step.
        """
        working = _working(point)
        hessian = self._model(point, working)
        diagonal = np.einsum("ii->i", hessian)  # a view
        diagonal += min(1e-10 * 100.0**stalled, 1e-2) * diagonal.max()
        at = point.theta[working]
        move = np.zeros_like(point.theta)
        move[working] = nonnegative_quadratic(hessian, hessian @ at + point.gradient[working] - 1.0, at > 0) - at
        return backtracked(point, move)

    def _model(self, point: Point, working: NDArray[np.int64]) -> Floats:
        """Return the curvature among the working values."""
        if not point.operator.sampled:
            return point.curvature(working)
        fast, self._gap = point.gap < self._gap / FAST_ENOUGH, point.gap
        if not fast or not np.isin(working, self._among).all():
            self._among = np.arange(point.operator.inputs) if point.operator.inputs <= MAX_VALUES else working
            self._hessian = point.curvature(self._among)
        place = np.searchsorted(self._among, working)
        return self._hessian[np.ix_(place, place)]


def _working(point: Point) -> NDArray[np.int64]:
    """Return the values that have a share or nearly deserve one."""
    wanted = (point.theta > 0) | (point.gradient > 1.0 - min(0.05, 10.0 * point.gap))
    size = len(wanted)
    if wanted.sum() > 2 * size / 3 and size <= MAX_VALUES:
        return np.arange(size)
    if size > MAX_VALUES:  # those with shares first
        most = max(MIN_WORKING, 2 * int((point.theta > 0).sum()))
        wanted[np.lexsort((-point.gradient, -point.theta))[most:]] = False
    return np.flatnonzero(wanted)


def backtracked(point: Point, move: Floats) -> Point:
    """Halve the move until phi falls; a full move keeps its exact zeros, a halved one is followed by a step of IBU."""
    for halvings in range(HALVINGS):
        moved = np.maximum(point.theta + move * 0.5**halvings, 0.0)
        ahead = point.at(moved) if moved.any() else point
        if ahead.phi <= point.phi + ROUNDING and moved.any():
            return ahead if halvings == 0 else ahead.em()
    return point.em()


def thinned(point: Point, limits: Limits) -> Point:
    """Return a point with shares for some of very many values, chosen without a pattern; Newton steps add others they need."""
    size = len(point.theta)
    chosen = np.argsort(splitmix(np.arange(size, dtype=np.uint64)))[:FIRST_VALUES]
    theta = np.zeros(size)
    theta[chosen] = point.theta[chosen]
    point = point.at(theta)
    with suppress(OutOfTime):
        for _ in range(EM_STEPS):  # a share that is far too small grows by g in a step of IBU, only twofold in one of Newton's
            if point.gap < NEAR or limits.late:
                break
            point = point.em()
    return point
