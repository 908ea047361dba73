"""Means, variances, quantiles and medians of numbers, dates or times."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from ldpsql.questions import (
    NUMBERS,
    RANGE,
    Argument,
    Domain,
    InvalidParameter,
    Kind,
    Mean,
    Quantile,
    Question,
    QuestionOfColumn,
    Variance,
    hookimpl,
    items_of,
)


@dataclass(frozen=True)
class MeanOfValues(QuestionOfColumn):
    """The mean of the values: of dates a time, with an error in days; of times a time, with an error in seconds."""

    name = "mean"
    summary = "the mean of the values, with its error and interval"
    fields = {**NUMBERS, **dict.fromkeys(RANGE, Kind.MEAN)}

    def about(self, values: Domain) -> Mean:
        """Return the mean, of all or where the condition holds."""
        return Mean(*self.where(values))


@dataclass(frozen=True)
class VarianceOfValues(QuestionOfColumn):
    """The variance of the values in their unit squared: days for dates, seconds for times."""

    name = "variance"
    summary = "the variance of the values, with its error and interval"

    def about(self, values: Domain) -> Variance:
        """Return the variance, of all or where the condition holds."""
        return Variance(*self.where(values))


_VALUES = {**NUMBERS, **dict.fromkeys(RANGE, Kind.VALUE)}


@dataclass(frozen=True)
class Quantiles(QuestionOfColumn):
    """The smallest value that at least a share q of all values does not exceed; for a list of shares one value each."""

    name = "quantile"
    of_ranges = True
    summary = "the value below which a share q of all values lies, with its interval; for a list of shares a row for each"
    fields = {"q": Kind.NUMBER, **_VALUES}
    rows = "q"
    q: Argument

    def about(self, values: Domain) -> Quantile:
        """Return the quantiles, of all or where the condition holds."""
        shares = items_of(self.q)
        numbers = any(kind(shares.type) for kind in (pa.types.is_floating, pa.types.is_decimal, pa.types.is_integer))
        if not numbers or not len(shares) or shares.null_count:
            raise InvalidParameter(
                "a quantile needs a share between 0 and 1, or a list of shares", "such as 0.5 or [0.25, 0.5, 0.75]"
            )
        return Quantile(*self.where(values), q=tuple(map(float, shares.to_pylist())))


@dataclass(frozen=True)
class Median(QuestionOfColumn):
    """The smallest value that at least half of all values do not exceed."""

    name = "median"
    of_ranges = True
    summary = "the value below which half of all values lie, with its interval"
    fields = _VALUES

    def about(self, values: Domain) -> Quantile:
        """Return the median, of all or where the condition holds."""
        return Quantile(*self.where(values), q=0.5)


@hookimpl
def ldpsql_questions() -> list[type[Question]]:
    """Offer the four."""
    return [MeanOfValues, VarianceOfValues, Quantiles, Median]
