"""Reports that other libraries drew, and collections of google/rappor."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeAlias

import pyarrow as pa

from ldpsql.functions import (
    MECHANISMS,
    Column,
    Handles,
    Macros,
    Scalar,
    Settings,
    TextLists,
    Texts,
    ToColumn,
    by_row,
    collection_shares,
    drawn_by_form,
    guarded,
    hookimpl,
    names_withheld,
    plain,
    read_foreign,
    same_in_all_rows,
    scalars_by_form,
    with_nulls,
)
from ldpsql.mechanisms import InvalidParameter


def foreign_reports(to_column: ToColumn, kind: pa.DataType) -> Callable[..., pa.Array]:
    """Return a function that reads the reports of others, one a row; ``to_column`` makes a column of type ``kind`` of them."""

    @guarded
    def read(reports: Column, forms: Texts, handles: Handles) -> pa.Array:
        if not len(reports):
            return pa.array([], kind)
        form, handle = same_in_all_rows("mechanism and format of read", forms, handles)
        column = plain(reports)
        valid = column.is_valid()
        with names_withheld():
            certified, drawn = read_foreign(MECHANISMS.thing(handle), column.filter(valid), form)
        return with_nulls(plain(to_column(certified, drawn)), valid.to_numpy(zero_copy_only=False))

    return read


# Created once: DuckDB may call a function as long as the process lives, and does not keep it alive.
_BY_FORM = scalars_by_form("__ldp_read", foreign_reports, draws=False, volatile=False)


# Collections of google/rappor: shares of candidate strings.

_ROW = (
    "STRUCT(candidate VARCHAR, estimate DOUBLE, std_error DOUBLE, low DOUBLE, high DOUBLE, p_value DOUBLE, detected BOOLEAN, "
    "gap DOUBLE)[]"
)


_Rows: TypeAlias = list[str | None] | None  # objects of JSON


@by_row(TextLists, TextLists, TextLists, Settings)
def shares_of_collection(params: _Rows, counts: _Rows, listed: _Rows, rate: Any) -> list[dict[str, Any]]:
    """Return a row for each candidate of a collection, and a last one, of which the candidate is NULL, for all others."""
    rows: list[dict[str, Any]] = collection_shares(_read(params), _read(counts), _read(listed), rate).to_pylist()
    return rows


def _read(rows: _Rows) -> list[dict[str, Any]]:
    try:
        read = [json.loads(row or "null") for row in rows or []]
    except (json.JSONDecodeError, RecursionError):
        read = [None]
    if not all(isinstance(row, dict) and row for row in read):
        raise InvalidParameter(
            "the rows of a collection must be objects of JSON", "ldp.rappor_shares makes them of tables and files"
        )
    return read


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer ``ldp.read`` and ``ldp.rappor_shares``."""
    return [
        *dict.fromkeys(_BY_FORM.values()),
        drawn_by_form("_foreign", _BY_FORM, ("report", "form"), "report, form, __ldp_mechanism(m)"),
        Scalar("__ldp_bloom_shares", shares_of_collection, _ROW),
        Macros.beside(__file__),
    ]
