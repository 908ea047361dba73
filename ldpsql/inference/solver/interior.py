"""A primal-dual interior point method for the maximum likelihood of many small groups at once.

It keeps theta and its slack s = 1 - g positive and lets their products fall to zero together. So if the maximum is not unique,
it ends at the centre of all maxima, not in a corner. Source: Nocedal, Wright, "Numerical Optimization", chapter 19.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ldpsql.inference.operators import Floats
from ldpsql.inference.operators.base import of_each

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
