"""Shares of ranges of numbers, dates and times, and of rectangles of cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from ldpsql.questions import (
    NULL,
    Argument,
    Domain,
    Functional,
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
)


@dataclass(frozen=True, kw_only=True)
class _OnLineOrGrid(Question):
    """Shares between low and high ends: numbers, or with a grid its points."""

    of_ranges = True
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

    def between(self, values: Domain, lows: Sequence[Argument], highs: Sequence[Argument]) -> RangeShares | RectangleShares:
        """Return the shares between these ends."""
        if self.grid.is_valid:
            return RectangleShares.between(lows, highs, self.grid)
        ends = zip(lows, highs, strict=True)
        return RangeShares(tuple(RangeShare(*(bound_of(end, values) for end in pair)) for pair in ends))


@dataclass(frozen=True)
class OneRange(_OnLineOrGrid):
    """The share of the values from low to high, both included; NULL means no bound. With a grid, of a rectangle."""

    name = "range_share"
    summary = (
        "the share of the values from low to high, with its error and interval; with a grid, of a rectangle between two points"
    )
    low: Argument
    high: Argument

    def about(self, values: Domain) -> Functional:
        """Return the share of the range."""
        return self.between(values, [self.low], [self.high])


@dataclass(frozen=True)
class SeveralRanges(_OnLineOrGrid):
    """The shares of several ranges, from the lists of their low and of their high ends."""

    name = "range_shares"
    summary = "the shares of several ranges from one estimate, in the order of the lists of their low and high ends"
    rows = True
    lows: Argument
    highs: Argument

    def about(self, values: Domain) -> Functional:
        """Return the shares of the ranges."""
        lows, highs = _items(self.lows), _items(self.highs)
        if len(lows) != len(highs):
            raise InvalidParameter("there must be as many low ends as high ends", "[0, 10], [9, 19] are two ranges")
        return self.between(values, lows, highs)


def _items(column: Argument) -> list[pa.Scalar]:
    """Return the items of a list."""
    if not isinstance(column, pa.ListScalar | pa.LargeListScalar) or not column.is_valid or not len(column.values):
        raise InvalidParameter("this needs a list of ends of ranges that is not empty", "[0, 10], [9, 19] are two ranges")
    return list(column.values)


@hookimpl
def ldpsql_questions() -> list[type[Question]]:
    """Offer the share of one range, and of several."""
    return [OneRange, SeveralRanges]
