"""Answers from the joint estimate of several columns: shares, margins and differences, with conditions on other columns."""

from __future__ import annotations

from dataclasses import asdict
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from ldpsql.functions import (
    FIELDS,
    MARGINS,
    MECHANISMS,
    NUMBERS,
    PAIRS,
    PLANS,
    Aggregate,
    Column,
    Columns,
    Estimates,
    Handles,
    Independence,
    Macros,
    Margin,
    ReportSource,
    Scalar,
    Settings,
    aggregates,
    arrow_fields,
    columns_named,
    counts_of,
    difference,
    domain_type,
    estimated,
    guarded,
    hookimpl,
    independence,
    listed,
    narrowed,
    number_of,
    number_structs,
    once_a_run,
    plain,
    struct_fields,
    values_of,
)
from ldpsql.mechanisms import Mechanism, Product

Source: TypeAlias = Mechanism | ReportSource
_ROW = ", ".join(f"{name} DOUBLE" for name in FIELDS)
_ROWS = f"STRUCT(value VARCHAR, {_ROW})[]"
_TESTED = (*FIELDS, "p_value")


@guarded
def number_handle(plans: Handles, ofs: Column, givens: Column) -> pa.Array:
    """Return the handle of each share or mean, where a condition holds, under a plan."""
    rows = zip(plain(plans).to_pylist(), plain(ofs), plain(givens), strict=True)
    numbers = [narrowed(PLANS.thing(plan), number_of(values_of(PLANS.thing(plan)[0]), of, given)) for plan, of, given in rows]
    return pa.array([NUMBERS.number(number) for number in numbers], pa.int64())


@guarded
def margin_handle(plans: Handles, columns: Settings, givens: Settings) -> pa.Array:
    """Return the handle of each margin, of all or for each value of other columns, under a plan."""
    rows = zip(*(plain(column).to_pylist() for column in (plans, columns, givens)), strict=True)
    margins = [narrowed(PLANS.thing(plan), _margin(PLANS.thing(plan)[0], *names)) for plan, *names in rows]
    return pa.array([MARGINS.number(margin) for margin in margins], pa.int64())


def _margin(source: Source, columns: object, given: object) -> Margin:
    values = values_of(source)
    if columns is None and given is None:
        return Margin(())
    names = columns if columns is not None or not isinstance(values, Product) else list(values.names)
    own, other = columns_named(values, names), () if given is None else columns_named(values, given)
    return Margin.checked(own, other)


@guarded
def margin_type(handles: Handles, columns: Settings) -> pa.Array:
    """Return the type of the cells of each margin, as from_json reads it."""
    rows = zip(plain(handles).to_pylist(), plain(columns).to_pylist(), strict=True)
    tables = ((values_of(MECHANISMS.thing(handle)), names) for handle, names in rows)
    return pa.array([domain_type(Margin(columns_named(values, names)).cells(values)) for values, names in tables], pa.string())


@guarded
@once_a_run
def margins(histograms: Column, handles: Handles) -> pa.Array:
    """Return the list of (cell as text, estimate, std_error, low, high) of each group; NULL if the group is empty."""
    parts = []
    for handle, counts in counts_of(histograms, handles):
        (source, estimator), margin = MARGINS.thing(handle)
        for rows, estimates in estimated(source, counts, estimator):
            shares = margin.measure(estimates)
            cells = np.stack([getattr(shares, name) for name in FIELDS], axis=-1)
            cells[np.isinf(shares.std_error) & np.isnan(shares.estimate)] = np.inf
            parts.append((rows, margin.cells(estimates.values).written, cells))
    return listed(parts, len(histograms), ("value", *FIELDS))


@guarded
def compared(histograms: Column, others: Column, handles: Handles) -> pa.Array:
    """Return (estimate, std_error, low, high, p_value) of the difference between two groups of people; NULL if one is empty."""
    out, empty = np.zeros((len(histograms), len(_TESTED))), np.ones(len(histograms), dtype=np.bool_)
    one, other = (_each(column, handles) for column in (histograms, others))
    for row in one.keys() & other.keys():
        number = NUMBERS.thing(plain(handles)[row].as_py())[1]
        tested = difference(one[row], number, other[row], number)
        out[row], empty[row] = [getattr(tested, name)[0] for name in _TESTED], False
    return number_structs(out, _TESTED, empty)


@guarded
def pair_handle(plans: Handles, columns: Settings) -> pa.Array:
    """Return the handle of each pair of columns under a plan; NULL stands for both of a table of two."""
    rows = zip(plain(plans).to_pylist(), plain(columns).to_pylist(), strict=True)
    pairs = [narrowed(PLANS.thing(plan), _pair(PLANS.thing(plan)[0], names)) for plan, names in rows]
    return pa.array([PAIRS.number(pair) for pair in pairs], pa.int64())


def _pair(source: Source, names: object) -> Columns:
    values = values_of(source)
    if names is None and isinstance(values, Product):
        return Columns(tuple(range(len(values.names))))
    return Columns(columns_named(values, names))


@guarded
@once_a_run
def independences(histograms: Column, handles: Handles) -> pa.Array:
    """Return the test of independence of each group; NULL if it is empty."""
    out: list[dict[str, object] | None] = [None] * len(histograms)
    for handle, counts in counts_of(histograms, handles):
        (source, estimator), columns = PAIRS.thing(handle)
        for rows, estimates in estimated(source, counts, estimator):
            for row, test in zip(rows, independence(estimates, columns), strict=True):
                out[row] = asdict(test) | ({} if test.degrees else {"statistic": None, "p_value": None})
    return pa.array(out, pa.struct(arrow_fields(Independence)))


def _each(histograms: pa.ChunkedArray, handles: pa.ChunkedArray) -> dict[int, Estimates]:
    """Return the estimates of each row that holds reports."""
    out: dict[int, Estimates] = {}
    for handle, counts in counts_of(histograms, handles):
        source, estimator = NUMBERS.thing(handle)[0]
        for rows, estimates in estimated(source, counts, estimator):
            out |= {int(row): estimates.only(place) for place, row in enumerate(rows)}
    return out


_ESTIMATOR = {"estimator": "'ibu'"}
_WITH_INTERVALS = {**_ESTIMATOR, "keep": "true", "confidence": "NULL"}
_AGGREGATES = (
    Aggregate(
        "independence",
        '__ldp_independences({counts}, __ldp_pair(ldp._plan(estimator, m), "columns"))',
        {"m": None, "columns": "NULL", **_ESTIMATOR},
        "a test of whether two columns are independent of each other, with their mutual information in bits",
    ),
    Aggregate(
        "margin",
        'ldp._rows(ldp._margin_kind(m, "columns"), '
        '__ldp_margins({counts}, __ldp_margin(ldp._plan(estimator, m, confidence), "columns", given)))',
        {"m": None, "columns": None, "given": "NULL", **_WITH_INTERVALS},
        "the table of some of the columns; with given, of shares among the rows with the same values there",
    ),
)


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer ``ldp.crosstab``, ``ldp.margin``, ``ldp.independence`` and ``ldp.compare``."""
    return [
        Scalar("__ldp_number", number_handle, "BIGINT"),
        Scalar("__ldp_margin", margin_handle, "BIGINT"),
        Scalar("__ldp_margin_type", margin_type, "VARCHAR"),
        Scalar("__ldp_margins", margins, _ROWS),
        Scalar("__ldp_pair", pair_handle, "BIGINT"),
        Scalar("__ldp_independences", independences, f"STRUCT({struct_fields(Independence)})"),
        Scalar("__ldp_compared", compared, f"STRUCT({_ROW}, p_value DOUBLE)"),
        Macros.beside(__file__),
        aggregates(*_AGGREGATES),
    ]
