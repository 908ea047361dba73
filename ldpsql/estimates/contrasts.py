"""Differences between two shares or means, of the same reports or of different people, with errors and p-values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.domains.composite import Product
from ldpsql.domains.domain import Domain
from ldpsql.errors import InvalidParameter
from ldpsql.estimates.conditions import column_of_table, condition, named_place
from ldpsql.estimates.functionals import Measure, TableFunctional, Two, covariances, cut_to, differences_within, statistic
from ldpsql.estimates.tables import Mean, Share, of_theta
from ldpsql.inference.operators import Floats
from ldpsql.inference.score_intervals import deviations, widening

if TYPE_CHECKING:
    from ldpsql.estimates.estimate import Estimates


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
