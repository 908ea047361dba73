"""Channels between few values that keep metric privacy and cost least, by an interior-point method.

Bordenabe, Chatzikokolakis, Palamidessi, "Optimal geo-indistinguishable mechanisms for location privacy", CCS 2014, state the
linear programme; pairs of values whose ratio follows from those of others, or nearly, are left out, as there.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import Floats
from ldpsql.channels.costs import Cost
from ldpsql.errors import InvalidParameter

_RARE = 2.0**-40  # below it a report is left out
_SLACK = 1e-6  # of the ratios, for the tolerance of the solver
_LARGEST = 16  # the solver's tolerance is 1e-7, about e^-16
_METRIC = Cost(2.6e-8, 0.05)  # for the fourth power of the number of values
_INFORMATION = Cost(4e-5, 120)  # for each report and pair of values
_MINUTES = 600.0  # seconds that a programme of many values may take
_DETOUR = 1.01  # pairs of values that are nearly on the way to each other are left to the others
_START = 0.45  # of epsilon: below 1/2, weights by distance keep epsilon when they are scaled to sum to 1
_ROOM, _GHOST = 1e-5, 1e-9  # of the expected loss, for rounding; a share of reports that are left out
_DAMPED = 1e-13  # of the curvature, which doubles can hardly tell from none in some direction
_STEPS, _GAP = 200, 1e-5  # of the interior-point method: the most steps, and the gap
_SPENT = 1e-9  # of the cost: what is left of the gap is rounding, which more steps do not remove
_NEARLY, _CAREFUL = 0.99, 0.9  # how far to go to the boundary, if the cost is linear or not


def check_values(size: int) -> None:
    """Refuse a number of values that would take longer than some minutes.

    Raises:
        InvalidParameter: if it would.

    """
    (_METRIC * size**4).check("the programme of this mechanism", "use fewer values", _MINUTES)


def _by_way(far: Floats, epsilon: float) -> Floats:
    """Return the distances on the shortest ways over other values, from which the ratios of all pairs follow."""
    from scipy.sparse.csgraph import shortest_path  # noqa: PLC0415  # slow to import

    if epsilon * (shortest := shortest_path(far)).max() > _LARGEST:
        raise InvalidParameter(
            f"optimal_metric takes an epsilon times the largest distance of at most {_LARGEST}", "use truncated_geometric"
        )
    return np.asarray(shortest)


def least_loss(costs: Floats, far: Floats, epsilon: float) -> tuple[Floats, float]:
    """Return the channel with the smallest expected loss, in doubles, and a lower bound of the loss of any.

    Args:
        costs: the loss of each report times the share of the value, shape (values, reports).
        far: the distances of the values.
        epsilon: per unit of distance.

    Raises:
        InvalidParameter: if they are too far from each other.

    """
    far = _by_way(far, epsilon)
    scale, start = float(costs.max()) or 1.0, np.exp(-_START * epsilon * far)
    pairs = Pairs.of(far, epsilon)
    now, bound = interior(Inside.of(costs / scale, pairs, start / start.sum(axis=1, keepdims=True)))
    most = np.exp((1 - _SLACK) * epsilon * far)
    lowered, raised = ([(most * row).min(axis=1) for row in now.table], [(row / most).max(axis=1) for row in now.table])
    near = np.column_stack([*lowered, *raised, 1.0 / most, np.ones(len(most))])  # with the steepest columns
    return private(mixture(near, costs, most), most, costs), scale * bound


@dataclass(frozen=True)
class Pairs:
    """For which pairs of values ``first`` and ``second`` P(y|first) is at most ``most`` times P(y|second), for all reports y.

    Tables of probabilities have a row for each report here, and a column for each value.
    """

    size: int
    first: NDArray[np.int64]
    second: NDArray[np.int64]
    most: Floats

    @classmethod
    def of(cls, far: Floats, epsilon: float, shortest: float = _DETOUR) -> Self:
        """Return the pairs without a way over another value of less than ``shortest`` times their distance.

        With 1, the ratios of all others follow, and nearly so with a little more.
        """
        near = np.zeros(far.shape, dtype=bool)
        for x, own in enumerate(far):
            over = own[:, None] + far
            over[x] = np.inf
            np.fill_diagonal(over, np.inf)
            near[x] = own * shortest <= over.min(axis=0)
            near[x, x] = False
        first, second = np.nonzero(near)
        return cls(len(far), first, second, np.exp(epsilon * far[first, second]))

    def left(self, table: Floats) -> Floats:
        """Return by how much each report and pair keeps the ratio."""
        return np.asarray(self.most * table[:, self.second] - table[:, self.first])

    def priced(self, prices: Floats) -> Floats:
        """Return what the ratios cost each probability, at a price for each report and pair."""
        base = np.arange(len(prices))[:, None] * self.size
        return np.asarray(
            np.bincount((base + self.first).ravel(), prices.ravel(), len(base) * self.size)
            - np.bincount((base + self.second).ravel(), (self.most * prices).ravel(), len(base) * self.size)
        ).reshape(len(base), self.size)

    def curvature(self, weights: Floats) -> Floats:
        """Return the sum over pairs of the weight times the square of what is `left`, as a matrix."""
        matrix = np.zeros((self.size, self.size))
        matrix[self.first, self.second] = -self.most * weights
        matrix += matrix.T
        squares = np.bincount(self.first, weights, self.size) + np.bincount(self.second, self.most**2 * weights, self.size)
        np.fill_diagonal(matrix, squares)
        return matrix


@dataclass(frozen=True)
class Inside:
    """A table of probabilities that keeps the ratios of pairs strictly, one row for each report, on its way to the cheapest.

    ``left`` is by how much it keeps each ratio, ``prices`` are those of the ratios, and ``sums`` those of the sums of rows.
    Mehrotra, "On the implementation of a primal-dual interior point method", SIAM J. Optimization 1992. Only the sums
    connect the reports, so a step inverts one matrix for each report, and then solves one for the sums.
    """

    costs: Floats
    pairs: Pairs
    table: Floats
    left: Floats
    prices: Floats
    sums: Floats

    @classmethod
    def of(cls, costs: Floats, pairs: Pairs, start: Floats, *options: Any) -> Self:
        """Return the channel ``start``, shape (values, reports), before the first step."""
        left = pairs.left(start.T)
        prices = float((costs * start).sum()) / left.size / left
        return cls(costs.T, pairs, start.T, left, prices, np.zeros(len(cls.totals(costs.T, start.T))), *options)

    @property
    def cost(self) -> float:
        """The cost of the table."""
        return float((self.slope() * self.table).sum())

    @property
    def unmet(self) -> Floats:
        """What each sum lacks."""
        return 1.0 - self.totals(self.costs, self.table)

    @property
    def bound(self) -> float:
        """A bound below the cost of any channel that keeps the ratios: each value has at least its cheapest report."""
        return float((self.slope() + self.pairs.priced(self.prices)).min(axis=0).sum())

    def lengths(self, primal: float, dual: float) -> tuple[float, float]:
        """Return how far to go with the table, and with the prices, out of what leaves all of them positive."""
        return _NEARLY * primal, _NEARLY * dual

    def slope(self) -> Floats:
        """Return the derivative of the cost by each probability; the sum of both together is the cost."""
        return self.costs

    def curvature(self, report: int, weights: Floats) -> Floats:  # noqa: ARG002  # a linear cost has the same for all
        """Return the second derivatives of the cost and of the weighted ratios by the probabilities of a report."""
        return self.pairs.curvature(weights)

    @staticmethod
    def totals(costs: Floats, table: Floats) -> Floats:  # noqa: ARG004
        """Return the sums that must be 1."""
        return np.asarray(table.sum(axis=0))

    def paid(self, sums: Floats) -> Floats:
        """Return what each probability pays at prices of the sums."""
        return sums

    def joint(self, inverse: Floats) -> Floats:
        """Return the matrix of the sums from the inverses of the reports."""
        return np.asarray(inverse.sum(axis=0))

    def improved(self) -> Self:
        """Return the next table.

        Raises:
            LinAlgError: if doubles are exhausted.

        """
        table, left, prices, steep = self.table, self.left, self.prices, self.prices / self.left
        steepness = self.slope() + self.pairs.priced(prices) - self.paid(self.sums)
        inverse = np.empty((*table.shape, table.shape[1]))
        for report, weights in enumerate(steep):
            inverse[report] = inverted(self.curvature(report, weights))
        joint = self.joint(inverse)

        def direction(aimed: Floats) -> tuple[Floats, Floats, Floats, Floats]:
            """Return the steps of table, left, prices and sums that change the products of prices and left by so much."""
            moved = times(inverse, -steepness - self.pairs.priced(aimed / left))
            shift = np.asarray(np.linalg.solve(joint, self.unmet - self.totals(self.costs, moved)), dtype=np.float64)
            moved += times(inverse, np.broadcast_to(self.paid(shift), table.shape))
            gained = self.pairs.left(moved)
            return moved, gained, aimed / left - steep * gained, shift

        middle = (prices * left).mean()
        _, gained, dearer, _ = direction(-prices * left)
        primal, dual = self.lengths(reach(left, gained), reach(prices, dearer))
        after = ((prices + dual * dearer) * (left + primal * gained)).mean()
        aimed = (after / middle) ** 3 * middle - prices * left - primal * dual * gained * dearer
        moved, gained, dearer, shift = direction(aimed)
        primal, dual = self.lengths(reach(left, gained), reach(prices, dearer))
        return replace(
            self, table=table + primal * moved, left=left + primal * gained, prices=prices + dual * dearer,
            sums=self.sums + dual * shift,
        )  # fmt: skip


@dataclass(frozen=True)
class Informed(Inside):
    """The same for the mutual information of value and report, at an expected loss: ``costs`` are in units of that loss."""

    shares: Floats

    @property
    def bound(self) -> float:
        """A bound below the information of any channel that keeps the ratios and has at most this loss.

        Any prices give one: the information of a report v is the largest sum of g v over all g with sum of shares e^(g/shares)
        at most 1, and these are what the other prices leave of those of the sums, less the logarithm of the largest such sum.
        """
        from scipy.special import logsumexp  # noqa: PLC0415  # slow to import

        dear = max(-float(self.sums[-1]), 0.0)
        left = self.sums[:-1] - dear * self.costs - self.pairs.priced(self.prices)
        most = float(logsumexp(left / self.shares, b=self.shares, axis=1).max())
        return float(self.sums[:-1].sum()) - most - dear / (1 - _ROOM)

    def lengths(self, primal: float, dual: float) -> tuple[float, float]:
        """Return the same length for all, since the slope of the information changes with the table."""
        both = _CAREFUL * min(primal, dual)
        return both, both

    def slope(self) -> Floats:
        """Return the derivative of the information."""
        return np.asarray(self.shares * np.log(self.table / (self.table @ self.shares)[:, None]))

    def curvature(self, report: int, weights: Floats) -> Floats:
        """Return the second derivatives of the information and of the weighted ratios."""
        own = self.table[report]
        together = np.outer(self.shares, self.shares) / (own @ self.shares)
        return self.pairs.curvature(weights) + np.diag(self.shares / own) - together

    @staticmethod
    def totals(costs: Floats, table: Floats) -> Floats:
        """Return the sums over reports, and the expected loss in its unit."""
        return np.append(table.sum(axis=0), (costs * table).sum())

    def paid(self, sums: Floats) -> Floats:
        """Return what each probability pays at prices of the sums and of the loss."""
        return np.asarray(sums[:-1] + sums[-1] * self.costs)

    def joint(self, inverse: Floats) -> Floats:
        """Return the matrix of the sums and of the loss."""
        lost = times(inverse, self.costs)
        side = lost.sum(axis=0)
        return np.block([[inverse.sum(axis=0), side[:, None]], [side, (self.costs * lost).sum()]])


T = TypeVar("T", bound=Inside)


def interior(now: T, sums: float = np.inf) -> tuple[T, float]:
    """Return the cheapest table that keeps the ratios of pairs, nearly, and a lower bound of the cost of any.

    Args:
        now: where to begin.
        sums: how near to 1 all sums must be; none by default, since a table begins with sums of 1.

    """
    bound = now.bound
    # Where doubles end, the bound says how near the optimum is.
    with suppress(np.linalg.LinAlgError, FloatingPointError), np.errstate(over="raise", divide="raise", invalid="raise"):
        for _ in range(_STEPS):
            if now.cost - bound <= _GAP * now.cost and np.abs(now.unmet).max() <= sums:
                break
            if (now.prices * now.left).sum() <= _SPENT * now.cost:
                break
            now = now.improved()
            bound = max(bound, now.bound)
    return now, bound


def least_information(costs: Floats, shares: Floats, far: Floats, epsilon: float, loss: float) -> tuple[Floats, float]:
    """Return the channel with the least mutual information at this expected loss, in doubles, and a lower bound of it in nats.

    Args:
        costs: the loss of each report times the share of the value, shape (values, reports).
        shares: those of the values.
        far: the distances of the values: 1 for epsilon-LDP.
        epsilon: per unit of distance.
        loss: the expected loss.

    Raises:
        InvalidParameter: if every channel has a larger loss, or one without information has at most this; if the values are too
            far from each other.

    """
    far = _by_way(far, epsilon)
    if loss >= costs.sum(axis=0).min():
        raise InvalidParameter(
            "a channel that gives the same report for every value has at most this loss", "use a smaller one"
        )
    (_INFORMATION * len(far) ** 3).check("the programme of this mechanism", "use fewer values", _MINUTES)
    even, shares = np.full_like(costs, 1.0 / len(costs)), np.maximum(shares, _RARE)
    start = Informed.of(costs / (loss * (1 - _ROOM)), Pairs.of(far, epsilon, 1.0), even, shares)
    now, bound = interior(start, _SLACK * _ROOM)
    if np.abs(now.unmet).max() > _SLACK:
        raise InvalidParameter(
            "no channel with this privacy has so small an expected loss", "without the parameter distortion, it is the smallest"
        )
    table = np.where((now.table @ shares)[:, None] > _GHOST, now.table, 0.0)
    return private(table.T, np.exp((1 - _SLACK) * epsilon * far), costs), bound


def times(matrices: Floats, vectors: Floats) -> Floats:
    """Return the product of each matrix with its vector."""
    return np.asarray(np.matmul(matrices, vectors[:, :, None])[:, :, 0])


def reach(positive: Floats, step: Floats) -> float:
    """Return how much of a step, up to all of it, leaves numbers positive."""
    return min(1.0, 1.0 / max(float((-step / positive).max()), 1e-300))


def inverted(matrix: Floats) -> Floats:
    """Return the inverse of a symmetric matrix.

    Raises:
        LinAlgError: if it is not positive definite.

    """
    from scipy.linalg.lapack import dpotrf, dpotri  # noqa: PLC0415  # slow to import

    scale = 1.0 / np.sqrt(matrix.diagonal())
    scaled = matrix * scale * scale[:, None] + np.diag(np.full(len(scale), _DAMPED))
    root, failed = dpotrf(scaled.T, lower=1, overwrite_a=1)
    if failed:
        raise np.linalg.LinAlgError
    half, _ = dpotri(root, lower=1, overwrite_c=1)
    return np.asarray((half + np.tril(half, -1).T) * scale * scale[:, None])


def mixture(columns: Floats, costs: Floats, most: Floats) -> Floats:
    """Return the cheapest channel, to the solver's tolerance, that is a sum of columns, each for its cheapest report.

    What these leave of 1 goes to the report that is cheapest for all values, and keeps the ratios ``most`` of all pairs: from
    those of neighbours alone the solver's tolerance would grow with each step to the next.
    """
    from scipy.optimize import linprog  # noqa: PLC0415  # slow to import
    from scipy.sparse import coo_array, eye_array, hstack  # noqa: PLC0415

    columns = columns / columns.mean(axis=0)
    each, rest = costs.T @ columns, costs[:, costs.sum(axis=0).argmin()]
    first, second = np.nonzero(~np.eye(len(most), dtype=bool))
    row = np.arange(len(first))
    ratios = coo_array(
        (np.append(np.ones(len(row)), -most[first, second]), (np.tile(row, 2), np.append(first, second))),
        shape=(len(row), len(most)),
    )
    solved = linprog(
        np.append(each.min(axis=0), rest),
        A_ub=hstack([coo_array((len(row), columns.shape[1])), ratios]).tocsr(),
        b_ub=np.zeros(len(row)),
        A_eq=hstack([columns, eye_array(len(most))]).tocsr(),
        b_eq=np.ones(len(most)),
        method="highs-ds",
    )
    if solved.x is None:
        raise InvalidParameter("the linear programme of this mechanism was not solved", "use fewer values, or another epsilon")
    parts, rest_of = np.split(solved.x, [columns.shape[1]])
    table = np.zeros_like(costs)
    np.add.at(table.T, each.argmin(axis=0), (columns * parts).T)
    table[:, costs.sum(axis=0).argmin()] += rest_of
    return table


def private(rough: Floats, most: Floats, costs: Floats) -> Floats:
    """Return a channel next to a table of probabilities that keeps the ratios ``most``, shape (values, values), exactly.

    Each report is lowered where it is too likely. What rows then lack of 1 goes to the cheapest report, with as much for all
    values as makes the ratios of these additions small.
    """
    lowered = np.stack([(most * column).min(axis=1) for column in np.where(rough > _RARE, rough, 0.0).T], axis=1)
    lowered /= lowered.sum(axis=1).max()
    lacking = 1.0 - lowered.sum(axis=1)
    common = lacking.max() / (np.where(most > 1.0, most, np.inf).min() - 1.0)
    lowered[:, costs.sum(axis=0).argmin()] += lacking + common
    return np.asarray(lowered / lowered.sum(axis=1, keepdims=True))
