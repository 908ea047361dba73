"""Collections of google/rappor: shares of candidate strings."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

from ldpsql.functions import Macros, Scalar, Settings, TextLists, by_row, collection_shares, hookimpl
from ldpsql.mechanisms import InvalidParameter

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
    """Offer ``ldp.rappor_shares``."""
    return [Scalar("__ldp_bloom_shares", shares_of_collection, _ROW), Macros.beside(__file__)]
