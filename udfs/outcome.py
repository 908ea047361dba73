"""Raw columns next to a perturbed one: their means by its values, and regressions on it, with weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
import pyarrow as pa

from ldpsql.functions import (
    FIELDS,
    MECHANISMS,
    Column,
    Handles,
    Lists,
    Macros,
    OutsideDomain,
    Scalar,
    Takes,
    by_value,
    corrected,
    guarded,
    hookimpl,
    listed,
    moments,
    named_place,
    one_thread,
    plain,
    python_value,
    regression,
    structs_with,
    values_of,
)
from ldpsql.mechanisms import Domain, Mechanism

_ROW = ("value", *FIELDS, "effective_reports")
_ROWS = f"STRUCT(value VARCHAR, {', '.join(f'{name} DOUBLE' for name in _ROW[1:])})[]"
_TERMS = f"STRUCT(term VARCHAR, {', '.join(f'{name} DOUBLE' for name in regression.COLUMNS[1:])})[]"
_WEIGHTS = "STRUCT(value VARCHAR, weight DOUBLE)[]"


def _options(*names: str) -> Takes:
    return Takes(f"a STRUCT of {', '.join(names)}", structs_with(*names), nulls=False)


_Asked = Annotated[Column, _options("of", "measure", "versus", "estimator", "confidence", "together")]
_Fitted = Annotated[Column, _options("of", "family", "numbers", "interactions", "confidence")]


def _groups(reports: pa.ListArray, *others: pa.Array) -> Iterator[tuple[Any, np.ndarray]]:
    """Yield different values of the other columns, with the rows that have them and a list of reports."""
    filled = np.flatnonzero(reports.is_valid().to_numpy(zero_copy_only=False))
    keys = [tuple(column[row] for column in others) for row in filled]
    for key in dict.fromkeys(keys):
        rows = filled[[one == key for one in keys]]
        yield tuple(column[rows[0]] for column in others), rows


def _place(values: Domain, of: pa.Scalar) -> tuple[int, ...]:
    place = named_place(values, of)
    return () if place is None else (place,)


def _asked(mechanism: Mechanism, options: pa.Scalar) -> tuple[tuple[int, ...], Domain, by_value.Asked]:
    values = values_of(mechanism)
    place = _place(values, options["of"])
    own = corrected.columns_of(mechanism, place)[0]
    chosen = {name: options[name].as_py() for name in ("measure", "estimator", "confidence", "together")}
    versus = options["versus"]
    at = own.locate(pa.array([versus]))[0].as_py() if versus.is_valid else None
    if versus.is_valid and at is None:
        raise OutsideDomain("the value to compare with is not in the domain", "versus is one of the values")
    return place, own, by_value.Asked(chosen["measure"], chosen["estimator"], at, chosen["confidence"], chosen["together"])


@guarded
@one_thread
def outcome(reports: Lists, rows: Lists, handles: Handles, options: _Asked) -> pa.Array:
    """Return for each group a list of (value as text, number, error, interval, effective reports); NULL if it has no weight."""
    column, lists, parts = plain(reports), plain(rows), []
    for (handle, option), groups in _groups(column, plain(handles), plain(options)):
        mechanism = MECHANISMS.thing(handle.as_py())
        places, own, asked = _asked(mechanism, option)
        for each in moments.Moments.of_lists(column, lists, groups).each():
            sums = by_value.Corrected.of(mechanism, places, each)
            if sums is not None:
                answer = by_value.answer(sums, asked)
                effective = np.full(len(own), sums.effective)
                cells = np.stack([*(getattr(answer, name) for name in FIELDS), effective], axis=-1)
                cells[np.isnan(cells)] = np.inf  # NULL in SQL
                parts.append((each.groups, own.written, cells[None]))
    return listed(parts, len(column), _ROW)


@guarded
@one_thread
def regressed(reports: Lists, rows: Lists, handles: Handles, options: _Fitted) -> pa.Array:
    """Return for each group a list of (term, estimate, error, interval, p_value); NULL if it is empty."""
    column, lists = plain(reports), plain(rows)
    out: list[list[dict[str, Any]] | None] = [None] * len(reports)
    for (handle, option), groups in _groups(column, plain(handles), plain(options)):
        mechanism, settings = MECHANISMS.thing(handle.as_py()), python_value(option)
        places = _place(values_of(mechanism), option["of"])
        family = regression.check_family(settings["family"])
        for row in groups:
            flat = moments.RawRows.of_lists(column, lists, np.array([row]))
            design = regression.Design.of(
                mechanism,
                [settings["of"] or "value"],
                places,
                flat.names,
                numbers=settings["numbers"],
                interactions=settings["interactions"],
            )
            fit = regression.of_rows(mechanism, flat, design, family, settings["confidence"]) if len(flat.raw) else None
            out[row] = fit.rows() if fit else None
    return pa.array(out)


@guarded
@one_thread
def weights(reports: Column, handles: Handles, ofs: Column) -> pa.Array:
    """Return for each report a list of all values with the weight that the report has for each; NULL for NULL."""
    column, parts = plain(reports), []
    for (handle, of), rows in _groups(column, plain(handles), plain(ofs)):
        mechanism = MECHANISMS.thing(handle.as_py())
        values = values_of(mechanism)
        place = _place(values, of)
        own = corrected.columns_of(mechanism, place)[0]
        there, q = corrected.contributions(mechanism, place, column.take(pa.array(rows)))
        parts.append((rows[there], own.written, q[:, :, None]))
    return listed(parts, len(column), ("value", "weight"))


@guarded
@one_thread
def unbiased(reports: Column, handles: Handles) -> pa.Array:
    """Return for each report a number whose expectation is the value behind it; NULL for NULL."""
    column, out = plain(reports), np.full(len(reports), np.nan)
    for (handle,), rows in _groups(column, plain(handles)):
        there, numbers = corrected.unbiased(MECHANISMS.thing(handle.as_py()), column.take(pa.array(rows)))
        out[rows[there]] = numbers
    return pa.array(out, mask=np.isnan(out))


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer ``ldp.outcome``, ``ldp.sums``, ``ldp.regression``, ``ldp.weights`` and ``ldp.unbiased``."""
    sums = moments.sums_sql("report", ["y"], "weight")
    return [
        Scalar("__ldp_outcome", outcome, _ROWS),
        Scalar("__ldp_regressed", regressed, _TERMS),
        Scalar("__ldp_weights", weights, _WEIGHTS),
        Scalar("__ldp_unbiased", unbiased, "DOUBLE"),
        Macros(f"CREATE OR REPLACE MACRO ldp.sums(report, y, weight := 1) AS {sums};"),
        Macros.beside(__file__),
    ]
