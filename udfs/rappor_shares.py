"""Collections of google/rappor: shares of candidate strings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from ldpsql.functions import (
    BadCounts,
    BloomParameters,
    BloomShares,
    Macros,
    Scalar,
    bloom_shares,
    finite_or_null,
    guarded,
    hookimpl,
    plain,
)
from ldpsql.mechanisms import InvalidParameter

_ROW = (
    "STRUCT(candidate VARCHAR, estimate DOUBLE, std_error DOUBLE, low DOUBLE, high DOUBLE, p_value DOUBLE, detected BOOLEAN, "
    "gap DOUBLE)[]"
)
_PARAMETERS = ("k", "h", "m", "p", "q", "f")
_MOST_CELLS = 1 << 26  # of the table of bits and candidates, half a gigabyte


@guarded
def shares_of_collections(*columns: pa.ChunkedArray) -> pa.Array:
    """Return for each collection a row for each candidate, and a last one, of which the candidate is NULL, for all others."""
    rows = zip(*(plain(column).to_pylist() for column in columns), strict=True)
    return pa.array([_rows(*row) for row in rows])


def _rows(*columns: Any) -> list[dict[str, Any]]:
    params, counts, candidates = ([json.loads(row) for row in rows or []] for rows in columns[:3])
    rate = columns[3]
    if not isinstance(rate, int | float | Decimal) or not 0 < rate < 1:
        raise InvalidParameter("the false discovery rate must lie between 0 and 1", "for example rate := 0.05")
    parameters, table = _parameters(params), _counts(counts)
    names, members = _members(parameters, [list(row.values()) for row in candidates])
    estimated = bloom_shares(parameters, table[:, 0], table[:, 1:], members)
    return _columns(names, estimated, float(rate))


def _parameters(rows: list[dict[str, Any]]) -> BloomParameters:
    fields = rows[0] if len(rows) == 1 else {}
    numbers: list[Any] = [fields.get(name) for name in _PARAMETERS]
    if not all(isinstance(number, int | float) for number in numbers) or not all(isinstance(n, int) for n in numbers[:3]):
        raise InvalidParameter("params needs one row with whole numbers k, h and m, and with p, q and f", "see google/rappor")
    return BloomParameters(*numbers)


def _counts(rows: list[dict[str, Any]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    numbers = [list(row.values()) for row in rows]
    if len({len(row) for row in numbers}) != 1 or not all(type(number) is int for row in numbers for number in row):
        raise BadCounts("the counts need whole numbers: the reports of a cohort, and then a count for each bit")
    return np.array(numbers, dtype=np.float64)


def _members(parameters: BloomParameters, candidates: list[list[Any]]) -> tuple[list[str], np.ndarray[Any, np.dtype[np.bool_]]]:
    """Return the distinct candidates and the bits that each sets; bits are numbered from 1 through all cohorts."""
    listed = {str(row[0]): row[1:] for row in candidates if row[0] is not None}
    bits = parameters.m * parameters.k
    if not listed or 2 * bits * len(listed) > _MOST_CELLS:
        raise InvalidParameter(
            f"the map needs from 1 to {_MOST_CELLS // (2 * bits):,} candidates", "a first column of strings, then their bits"
        )
    members = np.zeros((len(listed), bits), dtype=np.bool_)
    for place, row in enumerate(listed.values()):
        members[place, _positions(row, bits)] = True
    return list(listed), members.reshape(-1, parameters.m, parameters.k)


def _positions(row: Sequence[Any], bits: int) -> list[int]:
    """Return the bits of a candidate, counted from 0; the CSV of google/rappor may end with an empty field."""
    texts = [str(number).strip() for number in row if number is not None]
    if not all(text.isdecimal() and 1 <= int(text) <= bits for text in filter(None, texts)):
        raise InvalidParameter(
            f"the map has a bit that is not a number from 1 to {bits}", "bits are counted through all cohorts"
        )
    return [int(text) - 1 for text in filter(None, texts)]


def _columns(names: list[str], estimated: BloomShares, rate: float) -> list[dict[str, Any]]:
    low, high = estimated.intervals()
    columns = {
        "candidate": pa.array([*names, None], pa.string()),
        "estimate": pa.array(estimated.shares),
        "std_error": finite_or_null(estimated.std_error),
        "low": pa.array(low),
        "high": pa.array(high),
        "p_value": pa.array(estimated.p_value),
        "detected": pa.array([*estimated.detected(rate).tolist(), None]),
        "gap": pa.array(np.full(len(low), estimated.gap)),
    }
    return pa.table(columns).to_pylist()


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer ``ldp.rappor_shares``."""
    return [Scalar("__ldp_bloom_shares", shares_of_collections, _ROW), Macros.beside(__file__)]
