"""Maxima of the likelihood that are not unique: which values are affected, the range of their shares, and the centre.

At any maximum only the values with g = 1, the optimal face, hold mass, and all maxima give the reports the same probabilities.
So the maximum is unique if the columns of the face are linearly independent (ElSalamouny, Palamidessi, theorem 7, is one case).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.operators import Floats
from ldpsql.inference.solver.interior import interior_maximum
from ldpsql.inference.solver.objective import Point

ON_FACE = 1e-6  # how far g may be below 1
CLEARLY_POSITIVE = 1e-6  # of the largest curvature
MAX_RANK_CELLS = 1 << 24  # of a channel, to compute its rank


def unique(likelihood: Likelihood, theta: Floats) -> bool:
    """Return whether a maximum of one group's likelihood, shape (1, inputs), is the only one; False if that is not computed."""
    if likelihood.operator.large:
        return False
    point = Point(likelihood, theta[0])
    return likelihood.operator.injective or _independent(point, optimal_face(point))


def optimal_face(point: Point) -> NDArray[np.int64]:
    """Return the values with g = 1, the only ones that can hold mass at a maximum."""
    return np.flatnonzero(point.gradient > 1.0 - ON_FACE)


def _independent(point: Point, face: NDArray[np.int64]) -> bool:
    """Return whether the observed columns of the face have full rank; the rank is computed only if the curvature is unclear."""
    curvature = point.curvature(face)
    try:
        np.linalg.cholesky(curvature - CLEARLY_POSITIVE * np.diag(np.full(len(face), curvature.diagonal().max())))
    except np.linalg.LinAlgError:
        table = point.operator.rows(face)[:, point.seen] if len(face) * point.seen.sum() <= MAX_RANK_CELLS else curvature
        return bool(np.linalg.matrix_rank(table) == len(face))
    return True


def centred(point: Point, tolerance: float) -> Point:
    """Return a maximum itself if it is the only one, otherwise the one in the middle of all."""
    face = optimal_face(point)
    if _independent(point, face) or len(face) * point.operator.outputs > MAX_RANK_CELLS:
        return point
    centre = from_inside(point, face, tolerance)
    return centre if centre.gap <= max(tolerance, point.gap) else point


def from_inside(point: Point, among: NDArray[np.int64], tolerance: float) -> Point:
    """Return what the interior point method finds if only the values ``among`` may hold mass."""
    table = point.operator.rows(among)[:, point.seen]
    theta = np.zeros_like(point.theta)
    theta[among] = interior_maximum(table, point.shares[None, point.seen], np.array([tolerance]))[0][0]
    return point.at(theta)


def identified(likelihood: Likelihood, theta: Floats) -> tuple[Floats, Floats]:
    """Return the smallest and the largest share that each value has among all maxima of one group's likelihood.

    For a large map they are not computed: 0 and 1 are bounds.
    """
    from scipy.optimize import linprog  # noqa: PLC0415  # slow to import, needed only if the maximum is not unique

    if likelihood.operator.large:
        return np.zeros_like(theta[0]), np.ones_like(theta[0])
    low, high = theta[0].copy(), theta[0].copy()
    point = Point(likelihood, theta[0])
    face = optimal_face(point)
    table = point.operator.rows(face)[:, point.seen]
    equal = np.vstack([table.T, np.ones(len(face))])
    target = equal @ theta[0, face]
    for place, x in enumerate(face):
        cost = np.zeros(len(face))
        cost[place] = 1.0
        ends = [linprog(sign * cost, A_eq=equal, b_eq=target, bounds=(0, 1)) for sign in (1, -1)]
        if all(end.status == 0 for end in ends):
            low[x], high[x] = ends[0].fun, -ends[1].fun
    return np.minimum(low, theta[0]), np.maximum(high, theta[0])
