"""Collections of google/rappor: shares of candidate strings."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from ldpsql.functions import Macros, Scalar, Settings, TextLists, collection_shares, guarded, hookimpl, plain
from ldpsql.mechanisms import InvalidParameter

_ROW = (
    "STRUCT(candidate VARCHAR, estimate DOUBLE, std_error DOUBLE, low DOUBLE, high DOUBLE, p_value DOUBLE, detected BOOLEAN, "
    "gap DOUBLE)[]"
)


@guarded
def shares_of_collections(params: TextLists, counts: TextLists, listed: TextLists, rates: Settings) -> pa.Array:
    """Return for each collection a row for each candidate, and a last one, of which the candidate is NULL, for all others."""
    rows = zip(*(plain(column).to_pylist() for column in (params, counts, listed, rates)), strict=True)
    shares = [collection_shares(_read(params), _read(counts), _read(listed), rate) for params, counts, listed, rate in rows]
    return pa.array([table.to_pylist() for table in shares])


def _read(rows: list[str | None] | None) -> list[dict[str, Any]]:
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
    return [Scalar("__ldp_bloom_shares", shares_of_collections, _ROW), Macros.beside(__file__)]
