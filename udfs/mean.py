"""Mean, variance, quantile and share of a range of the values behind the reports, with errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import pyarrow as pa

from ldpsql.functions import (
    FIELDS,
    MEASURES,
    PLANS,
    Aggregate,
    Column,
    Functional,
    Handles,
    Macros,
    Mean,
    MeanOf,
    Mixed,
    OfColumn,
    Quantile,
    QuantileOf,
    Quantiles,
    QuantilesOf,
    RangeShare,
    RangeShares,
    RectangleShares,
    ReportSource,
    Scalar,
    Texts,
    Variance,
    VarianceOf,
    aggregates,
    all_measured,
    bound_of,
    check_line,
    check_ordered,
    condition,
    family,
    guarded,
    hookimpl,
    measured,
    named_place,
    narrowed,
    once_a_run,
    plain,
    values_of,
    without_inversion,
)
from ldpsql.mechanisms import InvalidParameter, Mechanism, Product

Source: TypeAlias = Mechanism | ReportSource
_ROW = ", ".join(f"{name} DOUBLE" for name in FIELDS)


@guarded
def functional_handle(names: Texts, plans: Handles, ofs: Column, givens: Column, *arguments: Column) -> pa.Array:
    """Return the handle of each functional under a plan, with its column of a table, its condition and its arguments."""
    out, columns, of_columns, conditions = [], [plain(argument) for argument in arguments], plain(ofs), plain(givens)
    for row, (name, handle) in enumerate(zip(plain(names).to_pylist(), plain(plans).to_pylist(), strict=True)):
        plan = PLANS.thing(handle)
        source, own = plan[0], [column[row] for column in columns]
        of_table = _of_table(name, source, of_columns[row], conditions[row], own)
        if of_table is not None:
            out.append(MEASURES.number(narrowed(plan, of_table)))
            continue
        if isinstance(source, Mixed):
            _check_levels(name, source)
        elif isinstance(source, Mechanism) and not _on_map(name, own):
            check_ordered(source)
        unbiased = without_inversion(source, plan[1]) if name in ("mean", "variance") else None
        functional = _functional(name, source, own, unbiased=unbiased is not None)
        out.append(MEASURES.number(((source, unbiased or plan[1]), functional)))
    return pa.array(out, pa.int64())


def _check_levels(name: str, source: Mixed) -> None:
    """Refuse values without order, and quantiles if the levels have different domains: they are positions in one of them."""
    check_line(source.values, source.layout)
    if name.startswith("quantile") and any(level.values != source.values for level in source.each):
        raise InvalidParameter("the mechanisms of the levels have different domains", "quantiles need the same one")


def _of_table(name: str, source: Source, of: pa.Scalar, given: pa.Scalar, arguments: list[pa.Scalar]) -> OfColumn | None:
    """Return a functional of a column of a table, or where a condition holds; None for all values of one column."""
    values = values_of(source)
    if not isinstance(values, Product) and not of.is_valid and not given.is_valid:
        return None
    column, where = named_place(values, of), condition(values, given)
    match name:
        case "mean":
            return MeanOf(column, where)
        case "variance":
            return VarianceOf(column, where)
        case "quantile":
            return QuantileOf(column, where, quantiles=Quantiles((_quantile(arguments[0]),)))
        case "quantiles":
            return QuantilesOf(column, where, quantiles=_quantiles(arguments[0]))
    raise InvalidParameter(
        "these reports are of several columns, and a range is of one",
        "use ldp.share(report, m, of := {age: {low: 18, high: 65}})",
    )


def _functional(name: str, source: Source, arguments: list[pa.Scalar], *, unbiased: bool) -> Functional:
    match name:
        case "mean":
            return Mean(unbiased)
        case "variance":
            return Variance(unbiased)
        case "quantile":
            return _quantile(arguments[0])
        case "quantiles":
            return _quantiles(arguments[0])
        case "range_shares":
            lows, highs = (_items(ends, "ends of ranges", "[0, 10], [9, 19] are two ranges") for ends in arguments[:2])
            if len(lows) != len(highs):
                raise InvalidParameter("there must be as many low ends as high ends", "[0, 10], [9, 19] are two ranges")
            return _shares(source, lows, highs, arguments[2])
        case _:
            return _shares(source, [arguments[0]], [arguments[1]], arguments[2]).only


def _on_map(name: str, arguments: Sequence[pa.Scalar]) -> bool:
    """Return whether shares of rectangles are asked for: the last argument is a grid."""
    return name in ("range_share", "range_shares") and bool(arguments[2].is_valid)


def _shares(
    source: Source, lows: Sequence[pa.Scalar], highs: Sequence[pa.Scalar], grid: pa.Scalar
) -> RangeShares | RectangleShares:
    if grid.is_valid and isinstance(source, Mechanism):
        return RectangleShares.between(source, lows, highs, grid)
    values = values_of(source)
    return RangeShares(tuple(RangeShare(*(bound_of(end, values) for end in ends)) for ends in zip(lows, highs, strict=True)))


def _quantiles(shares: pa.Scalar) -> Quantiles:
    items = _items(shares, "shares between 0 and 1", "such as [0.25, 0.5, 0.75]")
    return Quantiles(tuple(_quantile(share) for share in items))


def _quantile(share: pa.Scalar) -> Quantile:
    if family(share.type) != "number" or not share.is_valid:
        raise InvalidParameter("a quantile needs a share between 0 and 1", "for example 0.5 for the median")
    return Quantile(float(share.as_py()))


def _items(column: pa.Scalar, what: str, example: str) -> list[pa.Scalar]:
    """Return the items of a list."""
    if not isinstance(column, pa.ListScalar | pa.LargeListScalar) or not column.is_valid or not len(column.values):
        raise InvalidParameter(f"this needs a list of {what} that is not empty", example)
    return list(column.values)


@guarded
@once_a_run
def measure(histograms: Column, handles: Handles) -> pa.Array:
    """Return (estimate, std_error, low, high) of the functional of each group; NULL if it is empty."""
    return measured(histograms, handles, MEASURES.thing, FIELDS)


@guarded
@once_a_run
def measure_positions(histograms: Column, handles: Handles) -> pa.Array:
    """Return (estimate, std_error, low, high, rounding) of a quantile of each group, as positions in the domain."""
    return measured(histograms, handles, MEASURES.thing, (*FIELDS, "rounding"))


@guarded
@once_a_run
def measure_all(histograms: Column, handles: Handles) -> pa.Array:
    """Return for each group a list with (estimate, std_error, low, high) of each number; NULL if the group is empty."""
    return all_measured(histograms, handles, MEASURES.thing, FIELDS)


@guarded
@once_a_run
def measure_all_positions(histograms: Column, handles: Handles) -> pa.Array:
    """Return for each group a list with (estimate, std_error, low, high, rounding, q) of each quantile, as positions."""
    return all_measured(histograms, handles, MEASURES.thing, (*FIELDS, "rounding", "q"))


_ESTIMATOR = {"estimator": "'ibu'"}
_WHERE = {"keep": "true", "of": "NULL", "given": "NULL", "confidence": "NULL"}  # a column of a table, and a condition on others
_ON_MAPS = {**_ESTIMATOR, "keep": "true", "grid": "NULL", "confidence": "NULL"}
_AGGREGATES = (
    Aggregate(
        "mean",
        "ldp._in_unit(ldp._column_kind(m, of), "
        "__ldp_measure({counts}, __ldp_functional('mean', ldp._plan(estimator, m, confidence), of, given)))",
        {"m": None, **_ESTIMATOR, **_WHERE},
        "the mean of the values, with its error and interval",
    ),
    Aggregate(
        "variance",
        "__ldp_measure({counts}, __ldp_functional('variance', ldp._plan(estimator, m, confidence), of, given))",
        {"m": None, **_ESTIMATOR, **_WHERE},
        "the variance of the values, with its error and interval",
    ),
    Aggregate(
        "quantile",
        "ldp._at(ldp._column_values(m, of), "
        "__ldp_measure_positions({counts}, __ldp_functional('quantile', ldp._plan(estimator, m, confidence), of, given, q)))",
        {"m": None, "q": None, **_ESTIMATOR, **_WHERE},
        "the value below which a share q of all values lies, with its interval",
    ),
    Aggregate(
        "median",
        "ldp._at(ldp._column_values(m, of), "
        "__ldp_measure_positions({counts}, __ldp_functional('quantile', ldp._plan(estimator, m, confidence), of, given, 0.5)))",
        {"m": None, **_ESTIMATOR, **_WHERE},
        "the value below which half of all values lie, with its interval",
    ),
    Aggregate(
        "quantiles",
        "ldp._each_at(ldp._column_values(m, of), __ldp_measure_all_positions({counts}, "
        "__ldp_functional('quantiles', ldp._plan(estimator, m, confidence), of, given, qs)))",
        {"m": None, "qs": None, **_ESTIMATOR, **_WHERE},
        "several quantiles from one estimate, a row for each of the shares in the list qs",
        rows=True,
    ),
    Aggregate(
        "range_shares",
        "__ldp_measure_all({counts}, "
        "__ldp_functional('range_shares', ldp._plan(estimator, m, confidence), NULL, NULL, lows, highs, grid))",
        {"m": None, "lows": None, "highs": None, **_ON_MAPS},
        "the shares of several ranges from one estimate, in the order of the lists of their low and high ends",
        rows=True,
    ),
    Aggregate(
        "range_share",
        "__ldp_measure({counts}, "
        "__ldp_functional('range_share', ldp._plan(estimator, m, confidence), NULL, NULL, low, high, grid))",
        {"m": None, "low": None, "high": None, **_ON_MAPS},
        "the share of the values from low to high, with its error and interval; with a grid, of a rectangle between two points",
    ),
)


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer ``ldp.mean``, ``ldp.variance``, ``ldp.quantile`` and ``ldp.range_share``, and several of the last two at once."""
    return [
        Scalar("__ldp_functional", functional_handle, "BIGINT"),
        Scalar("__ldp_measure", measure, f"STRUCT({_ROW})"),
        Scalar("__ldp_measure_positions", measure_positions, f"STRUCT({_ROW}, rounding DOUBLE)"),
        Scalar("__ldp_measure_all", measure_all, f"STRUCT({_ROW})[]"),
        Scalar("__ldp_measure_all_positions", measure_all_positions, f"STRUCT({_ROW}, rounding DOUBLE, q DOUBLE)[]"),
        Macros.beside(__file__),
        aggregates(*_AGGREGATES),
    ]
