"""Shares of all values, of cells, of some values, of the most frequent ones; differences, independence, and known shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.questions import (
    NULL,
    NUMBERS,
    TESTED,
    Argument,
    Columns,
    Contrast,
    Domain,
    Estimates,
    InvalidParameter,
    Kind,
    Lines,
    Margin,
    Mean,
    Question,
    Share,
    Source,
    distances,
    estimator_of_top,
    hookimpl,
    margin_of,
    number_of,
    python_value,
    share_of,
    two_columns,
)

_PEOPLE = dict(zip(("people", "people_error", "people_low", "people_high"), NUMBERS, strict=True))


@dataclass(frozen=True)
class AllShares(Question):
    """The share of every value."""

    name = "estimate"
    summary = "the share of every value, with its error and interval"
    fields = {"value": Kind.VALUE, **NUMBERS}
    rows = True

    def about(self, values: Domain) -> Margin:  # noqa: ARG002  # of any values
        """Return the table of all columns."""
        return Margin(())

    @classmethod
    def measured(cls, functional: Margin, estimates: Estimates) -> Lines:
        """Return the shares of every group, in the order of the values."""
        measure = functional.measure(estimates)
        numbers: dict[str, Any] = {name: getattr(measure, name) for name in NUMBERS}
        return Lines.of_numbers({"value": np.arange(measure.estimate.shape[1]), **numbers})


@dataclass(frozen=True)
class PeopleByValue(AllShares):
    """The share of every value, and the number of people who have it: the share of all who reported."""

    name = "people"
    summary = "the number of people with each value, with its error and interval, beside the share"
    fields = {**AllShares.fields, **dict.fromkeys(_PEOPLE, Kind.NUMBER)}

    @classmethod
    def measured(cls, functional: Margin, estimates: Estimates) -> Lines:
        """Return the shares and the numbers of every group; what the reports say nothing about is unknown."""
        if estimates.likelihood.weights is not None:
            raise InvalidParameter("people are counted without weights", "multiply weighted shares by the sum of the weights")
        measure, people = functional.measure(estimates), estimates.likelihood.n[:, None]
        shares: dict[str, Any] = {name: getattr(measure, name) for name in NUMBERS}
        known = np.where(np.isfinite(measure.std_error), people, np.nan)
        numbers = {name: shares[own] * known for name, own in _PEOPLE.items()}
        return Lines.of_numbers({"value": np.arange(measure.estimate.shape[1]), **shares, **numbers})


@dataclass(frozen=True)
class SharesOfMargin(AllShares):
    """The table of some of the columns, or of all; with ``given``, shares among the rows with the same values there."""

    name = "margin"
    summary = "the table of some of the columns; with given, of shares among the rows with the same values there"
    typed_by = "columns"
    columns: Argument = NULL
    given: Argument = NULL

    def about(self, values: Domain) -> Margin:
        """Return the table of these columns."""
        return margin_of(values, python_value(self.columns), python_value(self.given))

    def unit(self, values: Domain) -> Domain:
        """Return the cells of the table."""
        return self.about(values).cells(values)


@dataclass(frozen=True)
class ShareOfValues(Question):
    """The share of some values or cells, of all or of those in which a condition holds."""

    name = "share"
    summary = (
        "the share of some values of columns, of all or where a condition on other columns holds, with its error and interval"
    )
    of: Argument
    given: Argument = NULL

    def about(self, values: Domain) -> Share:
        """Return the share."""
        return share_of(values, self.of, self.given)


# The most frequent values of a domain, with intervals and ranks that hold although the reports chose the values.
#
# A choice by the largest estimates favours values whose noise is high, so the interval of one value, which holds with 95 %
# probability, misses more often for the values that are chosen. These intervals hold for all values of the domain together, and
# so for any choice of them.

Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class Top(Question):
    """The most frequent values, the most frequent first.

    Over many values the estimates are shrunk, so that their sum is nearly unbiased although the reports chose the values.
    """

    name = "top"
    summary = "the most frequent values, with intervals that hold together, and the best and the worst rank that each may have"
    fields = {"rank": Kind.WHOLE, "value": Kind.VALUE, **NUMBERS, "best_rank": Kind.WHOLE, "worst_rank": Kind.WHOLE}
    rows = True
    most: Argument

    def about(self, values: Domain) -> int:  # noqa: ARG002  # all have a top
        """Return how many values are asked for."""
        count = python_value(self.most)
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise InvalidParameter("the number of values at the top must be a whole number from 1", "ldp.top(report, m, 10)")
        return count

    @classmethod
    def estimator(cls, source: Source) -> str:
        """Return empirical Bayes for many values: the largest inverted shares are too large, the likeliest ones too small."""
        return estimator_of_top(source)

    @classmethod
    def measured(cls, functional: int, estimates: Estimates) -> Lines:
        """Return the most frequent values of every group."""
        model, together = estimates.likelihood, estimates.together
        votes = model.operator.invert(model.shares) if model.operator.votes else estimates.fit.theta
        groups = zip(estimates.fit.theta, votes, together.std_error, together.low, together.high, strict=True)
        columns = np.array([_top(largest(theta, own, functional), theta, *ends) for theta, own, *ends in groups]).swapaxes(0, 1)
        return Lines.of_numbers(dict(zip(("rank", "value", *NUMBERS, "best_rank", "worst_rank"), columns, strict=True)))


def _top(places: NDArray[np.int64], theta: Floats, std_error: Floats, low: Floats, high: Floats) -> Floats:
    """Return a row for each field of the answer."""
    surely_above = len(theta) - np.searchsorted(np.sort(low), high[places], side="right")
    surely_below = np.searchsorted(np.sort(high), low[places], side="left")
    rank, worst = np.arange(1, len(places) + 1), len(theta) - surely_below
    each = (theta, std_error, low, high)
    return np.stack([rank, places, *(one[places] for one in each), 1 + surely_above, worst])


def largest(theta: Floats, votes: Floats, count: int) -> NDArray[np.int64]:
    """Return the places of the largest shares, the largest first; equal shares by their votes, then by place."""
    if count < len(theta):
        least = np.partition(theta, len(theta) - count)[len(theta) - count]
        among = np.flatnonzero(theta >= least)
    else:
        among = np.arange(len(theta))
    return among[np.lexsort((-votes[among], -theta[among]))[:count]]


# How far the distribution of the values is from another one, such as that of a census.


class Away(NamedTuple):
    """The shares to compare with, one for each value, and the name of the distance."""

    shares: tuple[float, ...]
    metric: str


@dataclass(frozen=True)
class DistanceToShares(Question):
    """The distance of the estimated shares from known ones: one for each value, or rows of a table."""

    name = "distance"
    summary = "the distance of the estimated shares from known ones, such as those of a table"
    fields = {"distance": Kind.NUMBER}
    options = {"estimator": "NULL"}
    shares: Argument
    metric: Argument = pa.scalar("total_variation")

    def about(self, values: Domain) -> Away:
        """Return the known shares; a value without a row has none.

        Raises:
            InvalidParameter: if they are not a share for each value, or rows with a value and its share, or do not sum to 1.

        """
        known = self.shares.values if isinstance(self.shares, pa.ListScalar) and self.shares.is_valid else pa.nulls(0)
        if pa.types.is_struct(known.type) and known.type.num_fields == 2:
            places, numbers = values.locate(known.field(0)), known.field(1)
            if places.null_count or len(places.unique()) < len(places):
                raise InvalidParameter("each row needs another value of the domain", _HINT)
        else:
            places, numbers = pa.array(np.arange(len(known))), known
        shares = np.zeros(len(values))
        if (len(numbers) != len(shares) and numbers is known) or not _are_numbers(numbers):
            raise InvalidParameter("the known shares must be one for each value, or rows with a value and its share", _HINT)
        shares[places.to_numpy()] = numbers.cast(pa.float64()).to_numpy(zero_copy_only=False)
        if (shares < 0).any() or not abs(shares.sum() - 1) <= _ROUNDED:
            raise InvalidParameter("the known shares must be at least 0 and sum to 1", "divide numbers of people by their sum")
        return Away(tuple(shares.tolist()), str(python_value(self.metric)))

    @classmethod
    def measured(cls, functional: Away, estimates: Estimates) -> Lines:
        """Return the distance of every group."""
        source: Any = getattr(estimates.source, "mechanism", estimates.source)
        away = [distances.distance(functional.metric, theta, functional.shares, source) for theta in estimates.fit.theta]
        return Lines.of_numbers({"distance": np.array(away)})


_ROUNDED = 1e-6  # how far the sum of known shares may be from 1
_HINT = "shares := [0.5, 0.3, 0.2], or shares := (SELECT list({value: city, share: share}) FROM census)"


def _are_numbers(column: pa.Array) -> bool:
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return not column.null_count and any(kind(column.type) for kind in kinds)


@dataclass(frozen=True)
class Difference(Question):
    """A share or a mean where one condition holds, less the same where another one does, of the same reports."""

    name = "difference"
    summary = "the difference of a share or a mean between two conditions, with its error, interval and p-value"
    fields = TESTED
    of: Argument
    given: Argument
    versus: Argument

    def about(self, values: Domain) -> Contrast:
        """Return the difference."""
        if not self.given.is_valid or not self.versus.is_valid:
            raise InvalidParameter(
                "a difference needs two conditions", "given := {city: 'Lima'}, versus := {city: 'Oslo'}; see also ldp.compare"
            )
        return Contrast(*(number_of(values, self.of, where) for where in (self.given, self.versus)))


@dataclass(frozen=True)
class Comparison(Question):
    """A share or a mean of some people, less the same of other people."""

    name = "compare"
    summary = "the difference of a share or a mean between the counts of two groups, with its error, interval and p-value"
    fields = TESTED
    two_groups = True
    of: Argument = NULL
    given: Argument = NULL

    def about(self, values: Domain) -> Share | Mean:
        """Return the share or the mean."""
        return number_of(values, self.of, self.given)


@dataclass(frozen=True)
class IndependenceTest(Question):
    """A test of whether two columns are independent, both of a table of two if none is named."""

    name = "independence"
    summary = "a test of whether two columns are independent of each other, with their mutual information in bits"
    fields = {
        "mutual_information": Kind.NUMBER,
        "statistic": Kind.NUMBER,
        "degrees": Kind.WHOLE,
        "p_value": Kind.NUMBER,
    }
    options = {"estimator": "NULL"}
    columns: Argument = NULL

    def about(self, values: Domain) -> Columns:
        """Return the two columns."""
        return two_columns(values, python_value(self.columns))


@hookimpl
def ldpsql_questions() -> list[type[Question]]:
    """Offer questions about shares, their differences, and independence."""
    return [
        AllShares,
        PeopleByValue,
        SharesOfMargin,
        ShareOfValues,
        Top,
        DistanceToShares,
        Difference,
        Comparison,
        IndependenceTest,
    ]
