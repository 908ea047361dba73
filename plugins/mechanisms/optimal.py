"""Channels with the smallest expected loss: of reported values under epsilon-LDP and metric LDP, and of unbiased numbers.

Kairouz, Oh, Viswanath, "Extremal mechanisms for local differential privacy", JMLR 2016: a linear programme finds the channel.
With an expected loss it needs no list of extreme points: reports with the same best answer can be merged into that value.
"""

from functools import cached_property
from math import exp
from typing import Annotated, Any, NamedTuple

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
    MetricMechanism,
    NumberField,
    PriorField,
    check_values,
    from_doubles,
    hookimpl,
    least_information,
    least_loss,
    mutual_information,
    reduced,
    shares_of,
)

_RARE = 2.0**-40  # below it a report is left out
_SLACK = 1e-6  # of the ratios, for the tolerance of the solver
_LARGEST = 16  # the solver's tolerance is 1e-7, about e^-16
_READINGS = 65  # twice as many lower the variance of a mean by a thousandth
_PROGRAMME = Cost(1e-4, 2000)  # for each pair of values
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
        if self.distortion is not None:
            return mutual_information(self, self._shares), self._solved[1]
        return float((self._costs * self.channel().probabilities()).sum()), self._solved[1]

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
    lower bound on that of any unbiased epsilon-LDP channel to these numbers. A report says little about single shares. Shares
    of ranges and quantiles are what `hierarchy` is made for. With another version of SciPy the channel may differ in its last
    digits: use the same on all machines.

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

    def channel(self) -> DenseChannel:
        """Return the best channel in whole numbers."""
        return from_doubles(varied(self._solved[0]), self.epsilon.value * self.metric().nearest())

    def bounds(self) -> tuple[float, float]:
        """Return the expected loss of the channel, or its information in nats, and a lower bound for any with this privacy."""
        if self.distortion is not None:
            return mutual_information(self, self._shares), self._solved[1]
        return float((self._costs * self.channel().probabilities()).sum()), self._solved[1]

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
        check_values(len(self.domain))
        far, epsilon = self.metric().matrix(), float(self.epsilon)
        if self.distortion is not None:
            return least_information(self._costs, self._shares, far, epsilon, float(self.distortion))
        return least_loss(self._costs, far, epsilon)


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
