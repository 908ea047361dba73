"""Shares of ranges of numbers, dates and times, and of rectangles of cells."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ldpsql.functions import (
    FIELDS,
    MEASURES,
    PLANS,
    Aggregate,
    Column,
    Handles,
    Mixed,
    RangeShare,
    RangeShares,
    RectangleShares,
    ReportSource,
    Scalar,
    Texts,
    aggregates,
    all_measured,
    bound_of,
    check_line,
    check_ordered,
    guarded,
    hookimpl,
    measured,
    once_a_run,
    plain,
    values_of,
)
from ldpsql.mechanisms import InvalidParameter, Mechanism, Product

_ROW = ", ".join(f"{name} DOUBLE" for name in FIELDS)


@guarded
def range_handle(names: Texts, plans: Handles, lows: Column, highs: Column, grids: Column) -> pa.Array:
    """Return the handle of each share of a range, or of several, under a plan; with a grid, of rectangles between points."""
    rows = zip(plain(names).to_pylist(), plain(plans).to_pylist(), *map(plain, (lows, highs, grids)), strict=True)
    return pa.array([_number(name == "range_share", plan, low, high, grid) for name, plan, low, high, grid in rows], pa.int64())


def _number(one: bool, plan: int, low: pa.Scalar, high: pa.Scalar, grid: pa.Scalar) -> int:
    source = PLANS.thing(plan)[0]
    lows, highs = ([end] if one else _items(end) for end in (low, high))
    if len(lows) != len(highs):
        raise InvalidParameter("there must be as many low ends as high ends", "[0, 10], [9, 19] are two ranges")
    if isinstance(source, Mechanism):
        if isinstance(values_of(source), Product) and not grid.is_valid:
            raise InvalidParameter(
                "these reports are of several columns, and a range is of one",
                "use ldp.share(report, m, of := {age: {low: 18, high: 65}})",
            )
        if not grid.is_valid:
            check_ordered(source)
    elif isinstance(source, Mixed):
        check_line(source.values, source.layout)
    shares = _shares(source, lows, highs, grid)
    return MEASURES.number((PLANS.thing(plan), shares.only if one else shares))


def _shares(
    source: Mechanism | ReportSource, lows: Sequence[pa.Scalar], highs: Sequence[pa.Scalar], grid: pa.Scalar
) -> RangeShares | RectangleShares:
    if grid.is_valid and isinstance(source, Mechanism):
        return RectangleShares.between(source, lows, highs, grid)
    values = values_of(source)
    return RangeShares(tuple(RangeShare(*(bound_of(end, values) for end in ends)) for ends in zip(lows, highs, strict=True)))


def _items(column: pa.Scalar) -> list[pa.Scalar]:
    """Return the items of a list."""
    if not isinstance(column, pa.ListScalar | pa.LargeListScalar) or not column.is_valid or not len(column.values):
        raise InvalidParameter("this needs a list of ends of ranges that is not empty", "[0, 10], [9, 19] are two ranges")
    return list(column.values)


@guarded
@once_a_run
def measure(histograms: Column, handles: Handles) -> pa.Array:
    """Return (estimate, std_error, low, high) of the number of each group; NULL if it is empty."""
    return measured(histograms, handles, MEASURES.thing, FIELDS)


@guarded
@once_a_run
def measure_all(histograms: Column, handles: Handles) -> pa.Array:
    """Return for each group a list with (estimate, std_error, low, high) of each number; NULL if the group is empty."""
    return all_measured(histograms, handles, MEASURES.thing, FIELDS)


_PLAN = "ldp._plan(estimator, m, confidence)"
_ON_MAPS = {"estimator": "'ibu'", "keep": "true", "grid": "NULL", "confidence": "NULL"}
_AGGREGATES = (
    Aggregate(
        "range_shares",
        f"__ldp_measure_all({{counts}}, __ldp_range('range_shares', {_PLAN}, lows, highs, grid))",
        {"m": None, "lows": None, "highs": None, **_ON_MAPS},
        "the shares of several ranges from one estimate, in the order of the lists of their low and high ends",
        rows=True,
    ),
    Aggregate(
        "range_share",
        f"__ldp_measure({{counts}}, __ldp_range('range_share', {_PLAN}, low, high, grid))",
        {"m": None, "low": None, "high": None, **_ON_MAPS},
        "the share of the values from low to high, with its error and interval; with a grid, of a rectangle between two points",
    ),
)


@hookimpl
def ldpsql_functions() -> list[object]:
    """Offer ``ldp.range_share`` and ``ldp.range_shares``."""
    return [
        Scalar("__ldp_range", range_handle, "BIGINT"),
        Scalar("__ldp_measure", measure, f"STRUCT({_ROW})"),
        Scalar("__ldp_measure_all", measure_all, f"STRUCT({_ROW})[]"),
        aggregates(*_AGGREGATES),
    ]
