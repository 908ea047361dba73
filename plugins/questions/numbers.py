"""Numbers, dates and times: means, variances, quantiles and medians, and the shares of ranges and of rectangles of cells."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from ldpsql.questions import (
    NULL,
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
    RangeShare,
    RangeShares,
    RectangleShares,
    Source,
    Variance,
    bound_of,
    check_grid,
    check_ordered,
    hookimpl,
    is_table,
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


# Shares of ranges of numbers, dates and times, and of rectangles of cells.


@dataclass(frozen=True)
class Ranges(Question):
    """The share of the values from low to high, both included; NULL means no bound. With a grid, of a rectangle.

    Lists of low and of high ends, one as long as the other, are several ranges.
    """

    name = "range_share"
    of_ranges = True
    summary = (
        "the share of the values from low to high, with its error and interval; with a grid, of a rectangle between two "
        "points; for lists of low and high ends a row for each range"
    )
    rows = "low"
    low: Argument
    high: Argument
    grid: Argument = NULL

    def check(self, source: Source) -> None:
        """Refuse reports of several columns, of other cells than the grid's, or without a grid of values without order."""
        if self.grid.is_valid:
            check_grid(source, self.grid)
        elif is_table(source):
            raise InvalidParameter(
                "these reports are of several columns, and a range is of one",
                "use ldp.share(report, m, of := {age: {low: 18, high: 65}})",
            )
        else:
            check_ordered(source)

    def about(self, values: Domain) -> RangeShares | RectangleShares:
        """Return the shares between the ends."""
        lows, highs = (list(items_of(ends)) for ends in (self.low, self.high))
        one, other = (isinstance(ends, pa.ListScalar) for ends in (self.low, self.high))
        if one != other or len(lows) != len(highs) or not lows:
            raise InvalidParameter("there must be as many low ends as high ends", "[0, 10], [9, 19] are two ranges")
        if self.grid.is_valid:
            return RectangleShares.between(lows, highs, self.grid)
        ends = zip(lows, highs, strict=True)
        return RangeShares(tuple(RangeShare(*(bound_of(end, values) for end in pair)) for pair in ends))


@hookimpl
def ldpsql_questions() -> list[type[Question]]:
    """Offer the four, and the shares of ranges."""
    return [
        MeanOfValues,
        VarianceOfValues,
        Quantiles,
        Median,
        Ranges,
    ]
