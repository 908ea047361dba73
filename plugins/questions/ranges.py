"""Shares of ranges of numbers, dates and times, and of rectangles of cells."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from ldpsql.questions import (
    NULL,
    Argument,
    Domain,
    InvalidParameter,
    Question,
    RangeShare,
    RangeShares,
    RectangleShares,
    Source,
    bound_of,
    check_grid,
    check_ordered,
    hookimpl,
    is_table,
    items_of,
)


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
    """Offer the shares of ranges."""
    return [Ranges]
