"""Channels with the smallest expected loss: of reported values under epsilon-LDP and metric LDP, and of unbiased numbers.

Kairouz, Oh, Viswanath, "Extremal mechanisms for local differential privacy", JMLR 2016: a linear programme finds the channel.
With an expected loss it needs no list of extreme points: reports with the same best answer can be merged into that value.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import exp
from typing import Annotated, Any, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer

from ldpsql.mechanisms import (
    CategoricalMechanism,
    Cost,
    DenseChannel,
    Domain,
    DomainField,
    Epsilon,
    EpsilonField,
    IntervalMechanism,
    InvalidParameter,
    Mechanism,
    MetricLdp,
    MetricMechanism,
    NumberField,
    PriorField,
    from_doubles,
    hookimpl,
    reduced,
)

_RARE = 2.0**-40  # below it a report is left out
_SLACK = 1e-6  # of the ratios, for the tolerance of the solver
_READINGS = 65  # twice as many lower the variance of a mean by a thousandth
_LARGEST = 16  # the solver's tolerance is 1e-7, about e^-16
_PROGRAMME = Cost(1e-4, 2000)  # for each pair of values
_METRIC = Cost(2.6e-8, 0.05)  # for the fourth power of the number of values
_INFORMATION = Cost(4e-5, 120)  # for each report and pair of values
_MINUTES = 600.0  # seconds that a programme of many values may take
_DETOUR = 1.01  # pairs of values that are nearly on the way to each other are left to the others
_START = 0.45  # of epsilon: below 1/2, weights by distance keep epsilon when they are scaled to sum to 1
_ROOM, _GHOST = 1e-5, 1e-9  # of the expected loss, for rounding; a share of reports that are left out
_DAMPED = 1e-13  # of the curvature, which doubles can hardly tell from none in some direction
_STEPS, _GAP = 200, 1e-5  # of the interior-point method: the most steps, and the gap
_NEARLY, _CAREFUL = 0.99, 0.9  # how far to go to the boundary, if the cost is linear or not
Floats = NDArray[np.float64]


def _square(table: tuple[tuple[float, ...], ...]) -> tuple[tuple[float, ...], ...]:
    if any(len(row) != len(table) for row in table):
        raise ValueError("must be a square table")
    if any(not 0 <= loss <= 1e12 for row in table for loss in row):
        raise ValueError("must hold numbers from 0 to 10^12")
    return table


def _rows(rows: Any) -> tuple[tuple[Any, ...], ...]:
    if not isinstance(rows, list | tuple) or not all(isinstance(row, list | tuple) for row in rows):
        raise ValueError("must be a list of rows of numbers")
    return tuple(tuple(row) for row in rows)


LossField = Annotated[
    tuple[tuple[NumberField, ...], ...],
    BeforeValidator(_rows),
    AfterValidator(_square),
    PlainSerializer(lambda table: [list(row) for row in table]),
]


class Optimal(CategoricalMechanism):
    """The epsilon-LDP channel from values to values with the smallest expected loss under a public prior.

    The loss of reporting y for x is row x, column y of ``loss``; by default it is 1 for each wrong value. A linear programme
    finds the channel. `bounds` returns its expected loss and a lower bound on that of any epsilon-LDP channel. With
    ``distortion``, the channel has this expected loss and the least mutual information of value and report: Blahut's
    rate-distortion function under epsilon-LDP, and `bounds` is about the information. The best channel often reports few of
    the values; then its reports cannot tell every distribution from every other, as `ldp.diagnose` shows.
    If several channels are optimal, another version of SciPy may choose another one: use the same on all machines.

    >>> optimal = Optimal(epsilon=1, domain=["a", "b"], prior=[1, 1])
    >>> optimal.channel().probabilities().round(3)[0].tolist()
    [0.731, 0.269]
    >>> [round(bound, 3) for bound in optimal.bounds()]
    [0.269, 0.269]
    """

    name = "optimal"
    prior: PriorField = Field(description="shares or counts of the values, public: for example an earlier estimate")
    loss: LossField | None = Field(None, description="loss of each report, one row for each value; by default 1 if it is wrong")
    distortion: Annotated[NumberField, Field(gt=0)] | None = Field(
        None, description="expected loss that reports may have; then the channel has the least mutual information at this loss"
    )

    def channel(self) -> DenseChannel:
        """Return the best channel in whole numbers."""
        return from_doubles(varied(self._solved[0]), self.epsilon.value)

    def bounds(self) -> tuple[float, float]:
        """Return the expected loss of the channel, or its information in nats, and a lower bound for any with this epsilon."""
        chances = self.channel().probabilities()
        kept = float((self._costs * chances).sum()) if self.distortion is None else information(chances, self._shares)
        return kept, self._solved[1]

    @cached_property
    def _shares(self) -> Floats:
        return shares_of(self.prior, len(self.domain), self.signature())

    @cached_property
    def _costs(self) -> Floats:
        """The loss of each report, row by value, times the share of the value."""
        size = len(self.domain)
        if self.loss is not None and len(self.loss) != size:
            raise InvalidParameter("the loss must have one row for each value of the domain", self.signature())
        check_epsilon(self.name, self.epsilon)
        (_PROGRAMME * size**2).check("the linear programme of this mechanism", "use fewer values")
        return np.asarray(self._shares[:, None] * (1.0 - np.eye(size) if self.loss is None else np.array(self.loss)))

    @cached_property
    def _solved(self) -> tuple[Floats, float]:
        """The best channel in doubles, and the lower bound."""
        costs, most = self._costs, exp(reduced(self.epsilon.value))
        if self.distortion is not None:
            return least_information(costs, self._shares, 1.0 - np.eye(len(costs)), float(self.epsilon), float(self.distortion))
        scale = float(costs.max()) or 1.0
        solved = programme(costs / scale, most)
        return filled(solved.least, costs, most), scale * lower_bound(costs / scale, solved.price, exp(self.epsilon))


class OptimalMean(IntervalMechanism):
    """The epsilon-LDP channel whose reports give the mean of numbers with the smallest expected error under a public prior.

    Each report stands for one of 65 numbers, and its expectation is the value. A linear programme finds the channel with the
    smallest expected squared distance of number and value. The mean stays unbiased if the prior is wrong, so the prior may be
    an estimate from other people: see `ldpsql.two_phases`. `bounds` returns that squared distance, in squared units, and a
    lower bound on that of any unbiased epsilon-LDP channel to these numbers. A report says little about single shares. With
    another version of SciPy the channel may differ in its last digits: use the same on all machines.

    Source: Ghazi, Kamath, Kumar, Leeman, Manurangsi, Varadarajan, Zhang, "Optimal unbiased randomizers for regression with
    label differential privacy", NeurIPS 2023.

    >>> optimal = OptimalMean(epsilon=1, low=0, high=1, bins=2, prior=[9, 1])
    >>> [round(float(bound), 2) for bound in optimal.bounds()]
    [0.23, 0.23]
    """

    name = "optimal_mean"
    sql_reports = str(list(range(_READINGS)))
    prior: PriorField = Field(description="shares or counts of the bins, public: for example an earlier estimate")

    def alphabet(self) -> Domain:
        """Return the places of the numbers that reports stand for, among 0 to 64."""
        return Domain.of(np.flatnonzero(self._used).tolist())

    def channel(self) -> DenseChannel:
        """Return the best channel in whole numbers."""
        return from_doubles(self._solved[0][:, self._used], self.epsilon.value)

    def readings(self) -> Floats:
        """Return the numbers that reports stand for, on the scale of the interval."""
        return self._numbers[self._used]

    def bounds(self) -> tuple[float, float]:
        """Return the expected squared distance of the numbers to the value, in squared units, and a lower bound of it."""
        square = (float(self.high - self.low) + float(self.step or 0)) ** 2
        return square * float((self._costs[:, self._used] * self.channel().probabilities()).sum()), square * self._solved[1]

    @property
    def _used(self) -> NDArray[np.bool_]:
        """Which of the numbers some report stands for."""
        return np.asarray(self._solved[0].any(axis=0))

    @property
    def _numbers(self) -> Floats:
        """65 numbers around the middle of the interval, to twice the distance that rounding to two numbers needs."""
        return 0.5 + np.linspace(-1.0, 1.0, _READINGS) / np.tanh(float(self.epsilon) / 2)

    @cached_property
    def _centres(self) -> Floats:
        """The values on the scale of the interval, from 0 to 1."""
        return (np.arange(self.bins) + 0.5) / self.bins

    @cached_property
    def _costs(self) -> Floats:
        """The squared distance of each number to each value, row by value, times the share of the value."""
        (_PROGRAMME * (self.bins * _READINGS)).check("the linear programme of this mechanism", "use fewer bins")
        shares = shares_of(self.prior, self.bins, self.signature())
        return np.asarray(shares[:, None] * (self._numbers - self._centres[:, None]) ** 2)

    @cached_property
    def _solved(self) -> tuple[Floats, float]:
        """The best channel in doubles, and the lower bound."""
        check_epsilon(self.name, self.epsilon)
        most = exp(reduced(self.epsilon.value)) * (1 - _SLACK)
        solved = programme(self._costs, most, (self._numbers, self._centres))
        least = np.where(solved.least > _RARE, solved.least, 0.0)
        shadow, price = solved.price[self.bins :], solved.price[: self.bins]
        left = self._costs - shadow[:, None] * self._numbers
        bound = lower_bound(left, price, exp(self.epsilon)) + float(shadow @ self._centres)
        return least + np.clip(solved.above, 0.0, (most - 1.0) * least), bound


class OptimalMetric(MetricMechanism):
    """The channel from values to values with the smallest expected loss under metric privacy and a public prior.

    The loss of reporting y for x is row x, column y of ``loss``, by default their distance. Distances that stop growing at D
    keep epsilon D between any two values, too: both kinds of privacy at once. `bounds` returns the expected loss and a lower
    bound on that of any channel with this privacy. An interior-point method solves the programme: about 0.7 seconds of one
    processor for a line of 100 values, 30 seconds for one of 300, and 10 minutes for a map of 384 cells, the largest. The loss
    is within 0.02 % of the bound on a line, and within 1 % on a map. With another version of NumPy or SciPy the channel may
    differ in its last digits: use the same on all machines.

    Source: Bordenabe, Chatzikokolakis, Palamidessi, "Optimal geo-indistinguishable mechanisms for location privacy", CCS 2014.

    >>> optimal = OptimalMetric(epsilon=1, domain=[0, 1, 2], prior=[1, 1, 1], columns=3)
    >>> optimal.channel().probabilities().round(3)[0].tolist()
    [0.731, 0.17, 0.099]
    """

    name = "optimal_metric"
    epsilon: EpsilonField = Field(description="privacy parameter per unit of distance")
    domain: DomainField = Field(description="the values that may occur, in a fixed order; on a grid, its cells row by row")
    prior: PriorField = Field(description="shares or counts of the values, public: for example an earlier estimate")
    loss: LossField | None = Field(None, description="loss of each report, one row for each value; by default its distance")
    distortion: Annotated[NumberField, Field(gt=0)] | None = Field(
        None, description="expected loss that reports may have; then the channel has the least mutual information at this loss"
    )

    def values(self) -> Domain:
        """Return the declared domain."""
        return self.domain

    def claim(self) -> MetricLdp:
        """Return metric privacy."""
        return MetricLdp(self.epsilon, self.metric())

    def channel(self) -> DenseChannel:
        """Return the best channel in whole numbers."""
        return from_doubles(varied(self._solved[0]), self.epsilon.value * self.metric().nearest())

    def bounds(self) -> tuple[float, float]:
        """Return the expected loss of the channel, or its information in nats, and a lower bound for any with this privacy."""
        chances = self.channel().probabilities()
        kept = float((self._costs * chances).sum()) if self.distortion is None else information(chances, self._shares)
        return kept, self._solved[1]

    @cached_property
    def _shares(self) -> Floats:
        return shares_of(self.prior, len(self.domain), self.signature())

    @cached_property
    def _costs(self) -> Floats:
        """The loss of each report, row by value, times the share of the value."""
        far = self.metric().matrix()
        if self.loss is not None and len(self.loss) != len(far):
            raise InvalidParameter("the loss must have one row for each value of the domain", self.signature())
        return np.asarray(self._shares[:, None] * (far if self.loss is None else np.array(self.loss)))

    @cached_property
    def _solved(self) -> tuple[Floats, float]:
        """The best channel in doubles, and the lower bound."""
        from scipy.sparse.csgraph import shortest_path  # noqa: PLC0415  # slow to import

        (_METRIC * len(self.domain) ** 4).check("the programme of this mechanism", "use fewer values", _MINUTES)
        costs, far = self._costs, shortest_path(self.metric().matrix())
        if float(self.epsilon) * far.max() > _LARGEST:
            raise InvalidParameter(
                f"optimal_metric takes an epsilon times the largest distance of at most {_LARGEST}", "use truncated_geometric"
            )
        if self.distortion is not None:
            return least_information(costs, self._shares, far, float(self.epsilon), float(self.distortion))
        scale, start = float(costs.max()) or 1.0, np.exp(-_START * float(self.epsilon) * far)
        pairs = Pairs.of(far, float(self.epsilon))
        now, bound = interior(Inside.of(costs / scale, pairs, start / start.sum(axis=1, keepdims=True)))
        most = np.exp((1 - _SLACK) * float(self.epsilon) * far)
        return private(mixture(columns_near(now.table.T, most), costs, pairs.shortened(far)), most, costs), scale * bound


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

    def shortened(self, far: Floats) -> Self:
        """Return the same pairs with ratios from which those of all pairs follow, with some room."""
        from scipy.sparse.csgraph import shortest_path  # noqa: PLC0415

        edges = np.zeros_like(far)
        edges[self.first, self.second] = far[self.first, self.second]
        longer = (shortest_path(edges) / np.where(far > 0, far, np.inf)).max()
        return replace(self, most=self.most ** ((1 - _SLACK) / longer))

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
        InvalidParameter: if every channel has a larger loss, or one without information has at most this.

    """
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


def information(chances: Floats, shares: Floats) -> float:
    """Return the mutual information of value and report in nats, for a channel of shape (values, reports)."""
    used = chances[:, chances.any(axis=0)]
    return float(shares @ (used * np.log(used / (shares @ used))).sum(axis=1))


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


def columns_near(rough: Floats, most: Floats) -> Floats:
    """Return columns that keep the ratios ``most``, shape (values, values), next to those of a table, and the steepest ones."""
    lowered = [(most * column).min(axis=1) for column in rough.T]
    raised = [(column / most).max(axis=1) for column in rough.T]
    return np.column_stack([*lowered, *raised, 1.0 / most, np.ones(len(most))])


def mixture(columns: Floats, costs: Floats, pairs: Pairs) -> Floats:
    """Return the cheapest channel, to the solver's tolerance, that is a sum of columns, each for its cheapest report.

    What these leave of 1 goes to the report that is cheapest for all values, and keeps the ratios of the pairs.
    """
    from scipy.optimize import linprog  # noqa: PLC0415  # slow to import
    from scipy.sparse import coo_array, eye_array, hstack  # noqa: PLC0415

    columns = columns / columns.mean(axis=0)
    each, rest, row = costs.T @ columns, costs[:, costs.sum(axis=0).argmin()], np.arange(len(pairs.most))
    ratios = coo_array(
        (np.append(np.ones(len(row)), -pairs.most), (np.tile(row, 2), np.append(pairs.first, pairs.second))),
        shape=(len(row), pairs.size),
    )
    solved = linprog(
        np.append(each.min(axis=0), rest),
        A_ub=hstack([coo_array((len(row), columns.shape[1])), ratios]).tocsr(),
        b_ub=np.zeros(len(row)),
        A_eq=hstack([columns, eye_array(pairs.size)]).tocsr(),
        b_eq=np.ones(pairs.size),
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


class Solved(NamedTuple):
    """A solved programme: the least probability of each report, what P(y|x) exceeds it by, and the price of each equation."""

    least: Floats
    above: Floats
    price: Floats


def programme(costs: Floats, most: float, expected: tuple[Floats, Floats] | None = None) -> Solved:
    """Return the channel with the smallest cost, the sum over values x and reports y of costs[x, y] P(y|x).

    The variables are the least probability m(y) of each report, and what P(y|x) exceeds it by, at most (most - 1) m(y).

    Args:
        costs: shape (values, reports).
        most: the largest ratio of the probabilities of a report.
        expected: a number for each report, and what its expectation must be for each value.

    """
    from scipy.optimize import linprog  # noqa: PLC0415  # slow to import
    from scipy.sparse import coo_array, vstack  # noqa: PLC0415

    size, reports = costs.shape
    pair = np.arange(costs.size)
    x, y = np.divmod(pair, reports)
    both, columns = np.concatenate([pair, len(pair) + y]), len(pair) + reports
    above = coo_array((np.repeat([1.0, 1.0 - most], len(pair)), (np.tile(pair, 2), both)), shape=(len(pair), columns))
    sums = [(np.ones(reports), np.ones(size)), *([] if expected is None else [expected])]
    equal = [coo_array((np.tile(of[y], 2), (np.tile(x, 2), both)), shape=(size, columns)) for of, _ in sums]
    solved = linprog(
        np.concatenate([costs.ravel(), costs.sum(axis=0)]), A_ub=above.tocsr(), b_ub=np.zeros(len(pair)),
        A_eq=vstack(equal).tocsr(), b_eq=np.concatenate([right for _, right in sums]), method="highs-ds",
    )  # fmt: skip
    if solved.x is None:
        raise InvalidParameter("the linear programme of this mechanism was not solved", "use fewer values, or another epsilon")
    own = np.asarray(solved.x)
    return Solved(own[len(pair) :], own[: len(pair)].reshape(costs.shape), np.asarray(solved.eqlin.marginals))


def varied(best: Floats) -> Floats:
    """Return a channel that has at least two reports.

    Raises:
        InvalidParameter: if it has only one.

    """
    if np.count_nonzero(best.any(axis=0)) > 1:
        return best
    raise InvalidParameter(
        "the best channel gives the same report for every value", "use a larger epsilon, or a mechanism without a prior"
    )


def shares_of(prior: Sequence[Fraction | int], size: int, signature: str) -> Floats:
    """Return a prior as shares.

    Raises:
        InvalidParameter: unless it has one number for each of ``size`` values.

    """
    if len(prior) != size:
        raise InvalidParameter("the prior must have one number for each value", signature)
    total = sum(prior)
    return np.array([float(p / total) for p in prior])


def check_epsilon(name: str, epsilon: Epsilon) -> None:
    """Refuse an epsilon that a linear programme cannot reach.

    Raises:
        InvalidParameter: if it is above 16.

    """
    if epsilon.value > _LARGEST:
        raise InvalidParameter(
            f"{name} takes an epsilon of at most {_LARGEST}", "with more, use krr: hardly any report is wrong"
        )


def filled(least: Floats, costs: Floats, most: float) -> Floats:
    """Return the cheapest channel with these least probabilities: P(y|x) lies between least(y) and most * least(y).

    Each row spends what is left of 1 on its cheapest reports, so a solver's tolerance does not reach the ratios.
    """
    least = np.where(least > _RARE, least, 0.0)
    least *= np.clip(least.sum(), 1.0 / most, 1.0) / least.sum()
    order = np.argsort(costs, axis=1, kind="stable")
    reached = np.minimum(np.cumsum((most - 1.0) * least[order], axis=1), 1.0 - least.sum())
    above = np.empty_like(costs)
    np.put_along_axis(above, order, np.diff(reached, axis=1, prepend=0.0), axis=1)
    return np.asarray(least + above)


def lower_bound(costs: Floats, price: Floats, most: float) -> float:
    """Return a bound below the cost of any channel with ratios up to ``most``, from any price of each row.

    A report of least probability m costs, beyond the prices, at least m sum_x min(r, most r) with r = costs - price. Lowering
    prices by as much as the smallest of these sums is negative makes the prices a bound, whoever computed them.
    """
    left = costs - price[:, None]
    return float(price.sum() + min(0.0, np.minimum(left, most * left).sum(axis=0).min()))


@hookimpl
def ldpsql_mechanisms() -> list[type[Mechanism]]:
    """Offer the channels with the smallest expected loss."""
    return [Optimal, OptimalMean, OptimalMetric]
