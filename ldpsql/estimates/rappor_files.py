"""The files of a google/rappor collection, as rows: read into parameters, counts and candidates, and the shares of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels.costs import Cost
from ldpsql.domains.columns import finite_or_null
from ldpsql.errors import BadCounts, InvalidParameter
from ldpsql.estimates.bloom import BloomParameters, BloomShares, bloom_shares
from ldpsql.inference.operators import Floats

Rows: TypeAlias = Sequence[Mapping[str, Any]]  # of a file; only params need the names of their columns
_PARAMETERS = ("k", "h", "m", "p", "q", "f")


def collection_shares(params: Rows, counts: Rows, candidates: Rows, rate: object) -> pa.Table:
    """Return a row for each candidate, and a last one, of which the candidate is NULL, for all other strings.

    Args:
        params: one row with the parameters.
        counts: for each cohort the number of reports, then a count for each bit.
        candidates: strings, then the bits that each sets; bits are numbered from 1 through all cohorts.
        rate: the expected share of the detected candidates that nobody has.

    Raises:
        InvalidParameter: if the parameters, the rate or the candidates do not make a collection.
        BadCounts: if the counts do not fit the parameters.

    """
    if not isinstance(rate, int | float | Decimal) or not 0 < rate < 1:
        raise InvalidParameter("the false discovery rate must lie between 0 and 1", "for example rate := 0.05")
    parameters, table = _parameters(params), _counts(counts)
    names, members = _members(parameters, [list(row.values()) for row in candidates])
    estimated = bloom_shares(parameters, table[:, 0], table[:, 1:], members)
    return _columns(names, estimated, float(rate))


def _parameters(rows: Rows) -> BloomParameters:
    fields = rows[0] if len(rows) == 1 else {}
    numbers: list[Any] = [fields.get(name) for name in _PARAMETERS]
    if not all(isinstance(number, int | float) for number in numbers) or not all(isinstance(n, int) for n in numbers[:3]):
        raise InvalidParameter("params needs one row with whole numbers k, h and m, and with p, q and f", "see google/rappor")
    return BloomParameters(*numbers)


def _counts(rows: Rows) -> Floats:
    numbers = [list(row.values()) for row in rows]
    if len({len(row) for row in numbers}) != 1 or not all(type(number) is int for row in numbers for number in row):
        raise BadCounts("the counts need whole numbers: the reports of a cohort, and then a count for each bit")
    return np.array(numbers, dtype=np.float64)


def _members(parameters: BloomParameters, candidates: list[list[Any]]) -> tuple[list[str], NDArray[np.bool_]]:
    """Return the distinct candidates and the bits that each sets; bits are numbered from 1 through all cohorts."""
    listed = {str(row[0]): row[1:] for row in candidates if row[0] is not None}
    bits = parameters.m * parameters.k
    if not listed:
        raise InvalidParameter("the map needs at least one candidate", "a first column of strings, then their bits")
    Cost(bytes=64 * bits * len(listed)).check("the table of candidates and bits", "list fewer candidates")
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


def _columns(names: list[str], estimated: BloomShares, rate: float) -> pa.Table:
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
    return pa.table(columns)
