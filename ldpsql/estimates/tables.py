"""Numbers about a column or a table of several, with errors: margins, shares, means, quantiles, differences, independence.

Each is c'theta for some vector c over the values, or a ratio of two, at least in its first derivative, so its error follows
from the errors of the shares (the delta method). As for the shares, the estimate is that of the estimator, the interval that
of the debiased one. Of all values of one column, intervals are narrower than those of ratios.

A bin counts as its centre, which is at most `Domain.rounding` away from each number in it. Every interval is wider by what
this does to the mean, the variance, the quantile or the share. Values that are not bins have rounding 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.domains.composite import Product
from ldpsql.domains.domain import Domain
from ldpsql.errors import InvalidParameter, NotApplicable
from ldpsql.estimates.conditions import (
    TableCells,
    blocks,
    column_of_table,
    columns_named,
    condition,
    groups_of,
    named_place,
    table_of,
)
from ldpsql.estimates.functionals import (
    Measure,
    Pair,
    TableFunctional,
    Two,
    around,
    covariances,
    cut_to,
    differences_within,
    fieller,
    linear,
    ratio,
    sample_mean,
    statistic,
)
from ldpsql.estimates.spans import quantiles, quantiles_of_shares
from ldpsql.estimators.held_out import mutual_information
from ldpsql.inference.operators import Floats
from ldpsql.inference.outcome import normalised, simplex_projection
from ldpsql.inference.score_intervals import deviations, widening

if TYPE_CHECKING:
    from ldpsql.estimates.estimate import Estimates


_MOST = 0.25  # the largest variance on a scale from 0 to 1: Popoviciu's inequality
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Share(TableFunctional):
    """The share of some cells, of all or of those in which a condition holds."""

    of: TableCells
    given: TableCells | None = None

    @property
    def touched(self) -> frozenset[int]:
        return self.of.places | _places(self.given)

    def among(self, places: Sequence[int]) -> Self:
        return replace(self, of=self.of.among(places), given=_among(self.given, places))

    def measure(self, estimates: Estimates) -> Measure:
        return _ratios(estimates, *self.parts(estimates.values)).at(0)

    def parts(self, values: Domain) -> tuple[Floats, Floats]:
        """Return numerator and denominator as functionals, shape (cells, 1)."""
        given = _given(values, self.given)
        return (self.of.inside(values) * given)[:, None], given[:, None]

    def unit(self, values: Domain) -> Unit:  # noqa: ARG002  # a share has no unit
        """Return the scale of shares."""
        return Unit(0.0, 1.0, 0.0)


@dataclass(frozen=True)
class OfColumn(TableFunctional):
    """A number about a column, of all or where a condition holds."""

    column: int | None = None
    given: TableCells | None = None

    def is_plain(self, values: Domain) -> bool:
        """Return whether the number is about all values of one column."""
        return self.given is None and not isinstance(values, Product)

    @property
    def touched(self) -> frozenset[int]:
        """The places of the columns that the number depends on."""
        return _places(self.given) | ({self.column} if self.column is not None else set())

    def among(self, places: Sequence[int]) -> Self:
        column = None if self.column is None else places.index(self.column)
        return replace(self, column=column, given=_among(self.given, places))


@dataclass(frozen=True)
class Mean(OfColumn):
    """The mean of a column of numbers, or of dates in days and of times in seconds since 1970.

    ``unbiased`` asks for the unbiased mean of all values of one column instead of that of the estimated distribution: for the
    piecewise mechanism, stochastic rounding and the hybrid mechanism the mean of the reports, on the scale of the values.
    """

    unbiased: bool = False

    def measure(self, estimates: Estimates) -> Measure:
        unit, (top, bottom) = self.unit(estimates.values), self.parts(estimates.values)
        if not self.is_plain(estimates.values):
            return _ratios(estimates, top, bottom, off=unit.off).at(0).scaled(unit.width, unit.least)
        x = top[:, 0]
        bounds = sample_mean(estimates, x, unit.off) if self.unbiased else linear(estimates, top, off=unit.off)
        estimate = None if self.unbiased else normalised(estimates.fit.theta) @ x
        return around(estimates, estimate, bounds, -unit.off, 1.0 + unit.off).scaled(unit.width, unit.least)

    def parts(self, values: Domain) -> tuple[Floats, Floats]:
        """Return numerator and denominator as functionals, shape (cells, 1), on a scale from 0 to 1."""
        unit, given = self.unit(values), _given(values, self.given)
        scale = (column_of_table(values, self.column)[1] - unit.least) / unit.width
        return (scale * given)[:, None], given[:, None]

    def unit(self, values: Domain) -> Unit:
        """Return the scale of the column."""
        own, scale = column_of_table(values, self.column)
        width = float(np.ptp(scale))
        return Unit(float(scale.min()), width, own.rounding / width)


@dataclass(frozen=True)
class Variance(OfColumn):
    """The variance of a column, in its unit squared: days for dates, seconds for times.

    ``unbiased`` asks for the mean squared distance to the unbiased mean, instead of the variance of the estimated distribution.
    """

    unbiased: bool = False

    def measure(self, estimates: Estimates) -> Measure:
        """Return the variance of every group: its derivative is (x - mean)^2, up to a constant."""
        mean = Mean(self.column, self.given)
        unit, (top, bottom) = mean.unit(estimates.values), mean.parts(estimates.values)
        if self.is_plain(estimates.values):
            measure = self._plain(estimates, top[:, 0])
        else:
            x = (column_of_table(estimates.values, self.column)[1] - unit.least) / unit.width
            measure = self._where(estimates, x, top, bottom)
        return _spread(measure.scaled(unit.width**2), unit.off * unit.width)

    def _plain(self, estimates: Estimates, x: Floats) -> Measure:
        """Return the variance of all values on a scale from 0 to 1."""
        theta = normalised(estimates.fit.theta)
        mean = np.clip(linear(estimates, x[:, None]).centre, 0.0, 1.0)
        spread = linear(estimates, ((x - mean) ** 2)[..., None])
        estimate = None if self.unbiased else theta @ x**2 - (theta @ x) ** 2
        part = around(estimates, estimate, spread, 0.0, _MOST)
        undetermined = part.high - part.low > _MOST - _ROUNDING
        return replace(part, std_error=np.where(undetermined, np.inf, part.std_error))

    @staticmethod
    def _where(estimates: Estimates, x: Floats, top: Floats, bottom: Floats) -> Measure:
        """Return the variance where the condition holds, on a scale from 0 to 1."""
        about = np.clip(ratio(_pair(estimates, top, bottom)), 0.0, 1.0)[:, :, None]
        measure = _ratios(estimates, (x[:, None] - about) ** 2 * bottom, bottom, most=_MOST).at(0)
        theta = normalised(estimates.fit.theta)
        with np.errstate(divide="ignore", invalid="ignore"):
            moments = (theta @ (x[:, None] ** [1, 2] * bottom)) / (theta @ bottom)
        own = np.where(np.isfinite(moments[:, 1]), moments[:, 1] - moments[:, 0] ** 2, np.nan)
        if estimates.fit.regularised.any():
            return replace(measure, estimate=own)
        return replace(measure, estimate=own, low=np.fmin(measure.low, own), high=np.fmax(measure.high, own))


@dataclass(frozen=True)
class Quantile(OfColumn):
    """The smallest value of a column that at least a share ``q`` of all values does not exceed, or one for each of several.

    Its interval holds every value that is a q-quantile of some distribution function within the errors of the estimated one:
    the band is sorted and inverted, one side at a time (`crossings`). So is an estimate that has negative shares.
    If reports hardly distinguish neighbouring values, it holds those with which some distribution explains the reports nearly
    as well as the best one does (`by_ratios`).
    ``std_error`` is half the interval over its number of standard errors, infinite if the interval is the whole range.

    Raises:
        InvalidParameter: unless each share is between 0 and 1.

    """

    q: float | tuple[float, ...] = field(kw_only=True)

    def __post_init__(self) -> None:
        if not all(0 < q < 1 for q in self.levels):
            raise InvalidParameter("a quantile needs a share between 0 and 1", "for example 0.5 for the median")

    @property
    def levels(self) -> tuple[float, ...]:
        """The share below each quantile."""
        return self.q if isinstance(self.q, tuple) else (self.q,)

    def measure(self, estimates: Estimates) -> Measure:
        """Return positions and errors in the unit of the values, of shape (groups,), or (groups, quantiles) of several."""
        measure = self._measured(estimates)
        return measure if isinstance(self.q, tuple) else measure.at(0)

    def _measured(self, estimates: Estimates) -> Measure:
        values = estimates.values
        if self.is_plain(values):
            return quantiles(estimates, self.levels)
        own, scale = column_of_table(values, self.column)
        given = _given(values, self.given)[:, None]
        shares = _ratios(estimates, (scale[:, None] <= np.unique(scale)[:-1]) * given, given)
        return quantiles_of_shares(estimates, own, shares, self.levels)


@dataclass(frozen=True)
class Margin(TableFunctional):
    """The share of each cell of a table of some of the columns, of all or of the rows with its values of other columns."""

    columns: tuple[int, ...]
    given: tuple[int, ...] = ()

    @property
    def touched(self) -> frozenset[int]:
        """The places of the columns of the margin; none stands for all."""
        return frozenset(self.columns)

    def among(self, places: Sequence[int]) -> Self:
        columns, given = (tuple(map(places.index, own)) for own in (self.columns, self.given))
        return replace(self, columns=columns, given=given)

    @classmethod
    def checked(cls, columns: tuple[int, ...], given: tuple[int, ...]) -> Margin:
        """Return the margin.

        Raises:
            InvalidParameter: unless the columns include those that are given, and another one.

        """
        if not set(given) < set(columns):
            raise InvalidParameter(
                "the columns of a margin must include those that are given, and another one",
                "columns := ['city', 'age'], given := ['city']",
            )
        return cls(columns, given)

    def cells(self, values: Domain) -> Domain:
        """Return the cells of the margin: the values themselves if no column is named."""
        return table_of(values, self.columns) if self.columns else values

    def measure(self, estimates: Estimates) -> Measure:
        values = estimates.values
        if not self.columns:
            errors = estimates.intervals
            return Measure(estimates.fit.theta, errors.std_error, errors.low, errors.high)
        margin, own = groups_of(values, self.columns)
        whole = groups_of(values, self.given)[1] if self.given else np.zeros(len(own), dtype=np.int64)
        first = np.zeros(len(margin), dtype=np.int64)
        first[own] = np.arange(len(own))  # any cell of the table that belongs to it
        parts = []
        for some in blocks(len(margin), 3 * len(own)):
            top = (own[:, None] == np.arange(some.start, some.stop)).astype(np.float64)
            bottom = (whole[:, None] == whole[first[some]]).astype(np.float64)
            parts.append(_ratios(estimates, top, bottom))
        return Measure.joined(parts)


def margin_of(values: Domain, names: object, given: object) -> Margin:
    """Return the margin of columns by their names, of all for None: then without ``given`` of the values themselves."""
    if names is None and given is None:
        return Margin(())
    listed = names if names is not None or not isinstance(values, Product) else list(values.names)
    return Margin.checked(columns_named(values, listed), () if given is None else columns_named(values, given))


class Unit(NamedTuple):
    """The scale of a number: where it begins, its width, and how far a number may lie from its bin, in widths."""

    least: float
    width: float
    off: float


def _places(given: TableCells | None) -> frozenset[int]:
    return frozenset() if given is None else given.places


def _among(given: TableCells | None, places: Sequence[int]) -> TableCells | None:
    return None if given is None else given.among(places)


def _given(values: Domain, given: TableCells | None) -> Floats:
    if given is not None:
        return given.inside(values)
    return np.ones(len(values))


def _pair(estimates: Estimates, top: Floats, bottom: Floats) -> Pair:
    """Return the ratios of functionals, each field of shape (groups, ratios)."""
    centre, v = covariances(estimates, np.stack(np.broadcast_arrays(top, bottom), axis=-1))
    return Pair(centre[..., 0], centre[..., 1], v[..., 0, 0], v[..., 0, 1], v[..., 1, 1])


def of_theta(estimates: Estimates, top: Floats, bottom: Floats) -> Floats:
    """Return the ratios for the estimated shares, shape (groups, ratios); NaN if the denominator is not positive."""
    theta = normalised(estimates.fit.theta)
    above, below = ((theta[:, None] @ part)[:, 0] for part in (top, bottom))
    return np.where(below > 0, above / np.where(below > 0, below, 1.0), np.nan)


def _ratios(estimates: Estimates, top: Floats, bottom: Floats, most: float = 1.0, off: float = 0.0) -> Measure:
    """Return ratios from 0 to ``most`` of functionals, with intervals, each field of shape (groups, ratios); see `fieller`.

    If the denominator is one for all cells, the interval is that of a functional. An estimate is NaN, and its error infinite,
    if the reports say nothing about the ratio.
    """
    estimate, z = of_theta(estimates, top, bottom), deviations(estimates.estimator.confidence)
    if (bottom == 1.0).all():
        bounds = linear(estimates, top)
        low, high = bounds.low, bounds.high
        known = np.isfinite(bounds.std_error)
    else:
        low, high = fieller(_pair(estimates, top, bottom), z, 0.0, most)
        known = np.isfinite(estimate) & ((low > 0.0) | (high < most))
    error = (high - low) / (2 * z)
    wider = widening(error, off, z)
    measure = Measure(estimate, np.where(known, error, np.inf), low - wider, high + wider)
    return cut_to(measure, 0.0 - off, most + off, estimates.fit.regularised[:, None])


def _spread(measure: Measure, off: float) -> Measure:
    """Return variances of numbers that may lie so far from the bins: standard deviations are at most as far apart."""
    if not off:
        return measure
    low, high = np.sqrt(np.maximum(measure.low, 0.0)), np.sqrt(measure.high)
    return replace(measure, low=np.maximum(low - off, 0.0) ** 2, high=(high + off) ** 2)


MOST_CELLS = 1500  # as many as an operator computes a covariance for
_NONE = 1e-9  # of the largest eigenvalue: a direction that the reports say nothing about


class Independence(NamedTuple):
    """The tests of some groups, each of shape (groups,).

    Args:
        mutual_information: of the estimated table, in bits; noise alone makes it positive.
        statistic: how far the table is from the product of its margins, in units of its errors.
        degrees: the statistic's expectation if the columns are independent; 0 if the reports say nothing about them together,
            and then the statistic and the p-value are NaN.
        p_value: the chance of a statistic as large as this if they are.

    """

    mutual_information: Floats
    statistic: Floats
    degrees: Floats
    p_value: Floats


@dataclass(frozen=True)
class Columns(TableFunctional):
    """Two columns of a table, by their places.

    Raises:
        InvalidParameter: unless there are two.

    """

    places: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.places) != 2:
            raise InvalidParameter("a test of independence needs two columns", "columns := ['city', 'age']")

    @property
    def touched(self) -> frozenset[int]:
        return frozenset(self.places)

    def among(self, places: Sequence[int]) -> Self:
        return replace(self, places=tuple(map(places.index, self.places)))

    def margin(self, values: Domain) -> tuple[Floats, tuple[int, int]]:
        """Return which cell of the two columns' table each cell belongs to, shape (cells, cells of the two), and its shape."""
        both, own = groups_of(values, self.places)
        first, second = both.shape
        return (own[:, None] == np.arange(len(both))).astype(np.float64), (first, second)

    def measure(self, estimates: Estimates) -> Independence:  # type: ignore[override]  # several numbers
        """Return the test of every group.

        The table of the two columns is debiased one step from the distribution in which they are independent, and its distance
        from the product of its margins is measured in the errors of that distribution: the score test. Its law is a chi-square
        with the statistic's own mean and variance, of which the second counts reports that are rare.

        Raises:
            NotApplicable: if the table has too many cells.

        """
        operator = estimates.likelihood.operator
        if operator.inputs > MOST_CELLS:
            raise NotApplicable(
                f"a test of independence takes at most {MOST_CELLS:,} cells, and this table has {operator.inputs:,}",
                "test reports of the two columns only: {city: report.city, age: report.age}, with a row mechanism of their own",
            )
        gathered, shape = self.margin(estimates.values)
        tests = [_tested(estimates, group, gathered, shape) for group in range(len(estimates.fit.theta))]
        return Independence(*np.array(tests).T)


def two_columns(values: Domain, names: object) -> Columns:
    """Return two columns by their names; None stands for both of a table of two."""
    both = names is None and isinstance(values, Product)
    return Columns(tuple(range(len(values.names))) if both else columns_named(values, names))  # type: ignore[attr-defined]


def _tested(estimates: Estimates, group: int, gathered: Floats, shape: tuple[int, int]) -> tuple[float, ...]:
    likelihood, theta = estimates.likelihood.group(group), simplex_projection(estimates.fit.theta[group])
    if likelihood.weights is not None:
        raise NotApplicable("rows with weights cannot be tested for independence", "leave out weight")
    operator, n = likelihood.operator, float(likelihood.n[0])
    null = _independent(theta, gathered, shape)
    covariance = operator.covariance(likelihood.shares[0], null)
    information = max(0.0, mutual_information(normalised(theta @ gathered).reshape(shape)) / np.log(2))
    if not np.isfinite(covariance).all():
        return information, np.nan, 0, np.nan
    chances = np.maximum(operator.forward(null[None])[0], 1e-300)
    scores = operator.matrix() / chances - 1.0  # of each report, shape (cells, reports)
    table = null @ gathered  # now the derivative of its distance from the product of its margins
    rows, columns = table.reshape(shape).sum(axis=1), table.reshape(shape).sum(axis=0)
    first = np.kron(np.eye(shape[0]), np.outer(columns, np.ones(shape[1])))
    second = np.kron(np.outer(rows, np.ones(shape[0])), np.eye(shape[1]))
    direction = np.asarray(np.eye(len(table)) - first - second) @ gathered.T
    tangent = direction @ covariance
    spread = tangent @ direction.T
    values, vectors = np.linalg.eigh((spread + spread.T) / 2)
    kept = values > _NONE * max(values[-1], 1e-300)
    whitened = (vectors[:, kept] / np.sqrt(values[kept])).T @ tangent @ scores
    weights = chances if operator.complete else likelihood.shares[0]
    return _judged(information, whitened, likelihood.shares[0], weights, n)


def _judged(information: float, whitened: Floats, shares: Floats, weights: Floats, n: float) -> tuple[float, ...]:
    """Return the test from the whitened scores of reports, shape (degrees, reports)."""
    from scipy.special import chdtrc  # noqa: PLC0415  # slow to import

    degrees = len(whitened)
    if not degrees:
        return information, np.nan, 0, np.nan
    statistic = n * float(((whitened @ shares) ** 2).sum())
    fourth = float((weights / weights.sum()) @ (whitened**2).sum(axis=0) ** 2)
    variance = max(2 * degrees + (fourth - degrees**2 - 2 * degrees) / n, degrees / 2)
    scale = variance / (2 * degrees)
    return information, statistic, degrees, float(chdtrc(degrees / scale, statistic / scale))


def _independent(theta: Floats, gathered: Floats, shape: tuple[int, int]) -> Floats:
    """Return the distribution with the same margins in which the two columns are independent, others as they are given them."""
    table = theta @ gathered
    product = np.outer(table.reshape(shape).sum(axis=1), table.reshape(shape).sum(axis=0)).ravel()
    rest = np.divide(1.0, table, out=np.zeros_like(table), where=table > 0)
    own = theta * (gathered @ (product * rest))
    empty = (table <= 0) & (product > 0)
    if empty.any():  # nothing is known of the other columns there: they are as in any cell
        own += gathered @ np.where(empty, product / gathered.sum(axis=0), 0.0)
    return np.asarray(own / own.sum())


@dataclass(frozen=True)
class Difference(Measure):
    """Differences between two numbers with errors, and the p-value of the hypothesis that there is none; shape (groups,)."""

    p_value: Floats = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True)
class Contrast(TableFunctional):
    """The difference between two shares or two means of the same reports."""

    one: Share | Mean
    other: Share | Mean

    @property
    def touched(self) -> frozenset[int]:
        return self.one.touched | self.other.touched

    def among(self, places: Sequence[int]) -> Self:
        return replace(self, one=self.one.among(places), other=self.other.among(places))

    def measure(self, estimates: Estimates) -> Difference:
        """Return the difference of every group; see `difference`."""
        return difference(estimates, self.one, estimates, self.other)


def share_of(values: Domain, of: pa.Scalar, given: pa.Scalar) -> Share:
    """Return the share of the values that a condition names, where another one holds.

    Raises:
        InvalidParameter: if no value is named.

    """
    cells = condition(values, of)
    if cells is None:
        raise InvalidParameter("a share needs a value or a condition", "of := {city: 'Lima'}")
    return Share(cells, condition(values, given))


def number_of(values: Domain, of: pa.Scalar, given: pa.Scalar) -> Share | Mean:
    """Return the mean of a column of a table that is named, or of the only column for NULL; else a share."""
    named = isinstance(values, Product) and isinstance(of, pa.StringScalar)
    if of.is_valid and not named:
        return share_of(values, of, given)
    column = named_place(values, of)
    column_of_table(values, column)
    return Mean(column, condition(values, given))


def difference(first: Estimates, one: Share | Mean, second: Estimates, other: Share | Mean) -> Difference:
    """Return the first number less the second.

    The two are of the same reports if ``first`` and ``second`` are the same estimates, else of different people. The p-value is
    that of a test of two ratios at once (`statistic`): under no difference it is uniform, or larger if a condition is rare.

    Args:
        first: estimates of several groups.
        one: the first number.
        second: estimates of as many groups, under mechanisms with the same values.
        other: the second number.

    """
    from scipy.special import chdtrc  # noqa: PLC0415  # slow to import

    if first is second and one == other:
        return _none(first, one)
    two = _together(first, one, other) if first is second else _apart(first, one, second, other)
    z, unit = deviations(first.estimator.confidence), one.unit(first.values)
    known = ~two.unknown
    middle, low, high = differences_within(two.filled(), z, 2.0)
    error, off = (high - low) / (2 * z), 2 * unit.off
    wider = widening(error, off, z)
    estimate = _estimated(first, one) - _estimated(second, other)
    p_value = np.where(two.unknown, np.nan, chdtrc(1, statistic(two.filled(), np.clip(middle, -off, off))))
    known &= np.isfinite(estimate) & ((low > -1.0 - off) | (high < 1.0 + off))
    regularised = first.fit.regularised | second.fit.regularised
    measure = Measure(estimate, np.where(known, error, np.inf), low - wider, high + wider)
    cut = cut_to(measure, -1.0 - off, 1.0 + off, regularised).scaled(unit.width)
    tested = Difference(cut.estimate, cut.std_error, cut.low, cut.high, p_value=p_value)
    if first is second or known.all():
        return tested
    return _where_known(known, tested, one.measure(first), other.measure(second), z)


def _where_known(known: NDArray[np.bool_], tested: Difference, one: Measure, other: Measure, z: float) -> Difference:
    """Return the differences, where they are not known those that the intervals of both numbers allow.

    A wide noise on many bins determines a mean, but not its covariance with anything. The interval then holds at least as often
    as it says, and the p-value is small only if it leaves out zero.
    """
    from scipy.special import ndtr  # noqa: PLC0415  # slow to import

    low, high = one.low - other.high, one.high - other.low
    error = (high - low) / (2 * z)
    found = np.isfinite(one.std_error) & np.isfinite(other.std_error) & (error > 0)
    p_value = np.where(found, 2 * ndtr(-np.abs(low + high) / 2 / np.where(found, error, 1.0)), np.nan)
    return Difference(
        tested.estimate,
        np.where(known, tested.std_error, np.where(found, error, np.inf)),
        np.where(known, tested.low, low),
        np.where(known, tested.high, high),
        p_value=np.where(known, tested.p_value, p_value),
    )


def _none(estimates: Estimates, number: Share | Mean) -> Difference:
    """Return the difference of a number from itself."""
    estimate = 0.0 * _estimated(estimates, number)
    zero = np.zeros_like(estimate)
    return Difference(estimate, np.where(np.isfinite(estimate), 0.0, np.inf), zero, zero, p_value=zero + 1.0)


def _together(estimates: Estimates, one: Share | Mean, other: Share | Mean) -> Two:
    """Return two ratios of the same reports."""
    parts = [*one.parts(estimates.values), *other.parts(estimates.values)]
    centre, covariance = covariances(estimates, np.stack(parts, axis=-1))
    return Two(centre[:, 0], covariance[:, 0])


def _apart(first: Estimates, one: Share | Mean, second: Estimates, other: Share | Mean) -> Two:
    """Return two ratios of different reports, which are independent."""
    a, v = covariances(first, np.stack(one.parts(first.values), axis=-1))
    b, w = covariances(second, np.stack(other.parts(second.values), axis=-1))
    both = np.zeros((len(a), 4, 4))
    both[:, :2, :2], both[:, 2:, 2:] = v[:, 0], w[:, 0]
    return Two(np.concatenate([a[:, 0], b[:, 0]], axis=1), both)


def _estimated(estimates: Estimates, number: Share | Mean) -> Floats:
    return of_theta(estimates, *number.parts(estimates.values))[:, 0]
