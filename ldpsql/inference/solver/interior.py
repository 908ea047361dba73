"""Maxima found from the inside, also of many small groups at once, and whether they are unique.

A primal-dual interior point method keeps theta and its slack s = 1 - g positive and lets their products fall to zero together.
So if the maximum is not unique, it ends at the centre of all maxima, not in a corner. Source: Nocedal, Wright, "Numerical
Optimization", chapter 19.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.operators import Floats
from ldpsql.inference.operators.base import of_each
from ldpsql.inference.solver.objective import Point

MAX_STEPS = 60
SMALL = 32  # values up to which groups are worth being solved together
CLEAR = 1e-6
_TO_THE_BORDER = 0.995


def interior_maximum(table: Floats, shares: Floats, tolerance: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Return theta, shape (groups, values), and whether it is clear which shares are 0 at the maximum, shape (groups,).

    The gap is below the tolerance unless the steps do not suffice. A share that is smaller than its slack becomes 0, if the gap
    allows it; it is not clear if both are small.

    Args:
        table: P(report | value), shape (values, reports); some value gives each report a positive probability.
        shares: shares of the reports, shape (groups, reports).
        tolerance: the largest gap of each group, shape (groups,).

    """
    size = len(table)
    together = len(shares) > 1 or size <= SMALL
    pairs = (table[:, None] * table).reshape(size * size, -1).T if together else table
    theta, slack = np.full((len(shares), size), 1.0 / size), np.ones((len(shares), size))
    active = np.arange(len(shares))
    centring = np.full(len(shares), 0.2)
    for _ in range(MAX_STEPS):
        at, s, q = theta[active], slack[active], shares[active]
        expected = of_each(at, table)
        ratios = q / expected
        gradient = of_each(ratios, table.T)
        going = gradient.max(axis=1) * at.sum(axis=1) - 1.0 > tolerance[active]
        active, at, s, expected, ratios, gradient = (a[going] for a in (active, at, s, expected, ratios, gradient))
        if not len(active):
            break
        weights = ratios / expected
        curvature = of_each(weights, pairs).reshape(-1, size, size) if together else ((table * weights) @ table.T)[None]
        goal = centring[active, None] * (at * s).mean(axis=1, keepdims=True) / at
        curvature[:, np.arange(size), np.arange(size)] += s / at
        move = np.linalg.solve(curvature, (gradient - 1.0 + goal)[..., None])[..., 0]
        change = goal - s - s / at * move
        length = np.minimum(1.0, _TO_THE_BORDER * np.minimum(_distance(at, move), _distance(s, change)))
        theta[active], slack[active] = at + length[:, None] * move, s + length[:, None] * change
        centring[active] = np.maximum(0.02, (1.0 - length) ** 2)
    cut = np.where(theta > slack, theta, 0.0)
    theta = np.where((_gap(table, shares, cut) <= tolerance)[:, None], _scaled(cut), _scaled(theta))
    return theta, np.minimum(theta, slack).max(axis=1) < CLEAR


def _scaled(theta: Floats) -> Floats:
    return theta / np.maximum(theta.sum(axis=1, keepdims=True), 1e-300)


def _gap(table: Floats, shares: Floats, theta: Floats) -> Floats:
    expected = of_each(_scaled(theta), table)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(shares > 0, shares / expected, 0.0)
        return np.nan_to_num(of_each(ratios, table.T).max(axis=1) - 1.0, nan=np.inf)


def _distance(at: Floats, move: Floats) -> Floats:
    """Return for each group how many of these moves reach the border, at which a number becomes 0."""
    return 1.0 / np.maximum(np.max(-move / at, axis=1), 1e-300)


# At any maximum only the values with g = 1, the optimal face, hold mass, and all maxima give the reports the same
# probabilities. So the maximum is unique if the columns of the face are linearly independent (ElSalamouny, Palamidessi,
# theorem 7, is one case).


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
