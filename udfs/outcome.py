"""Raw columns next to a perturbed one: their sums, the weights of reports for each value, and unbiased numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from ldpsql.functions import (
    MECHANISMS,
    Column,
    Handles,
    Macros,
    Scalar,
    WrongType,
    corrected,
    guarded,
    hookimpl,
    named_place,
    one_thread,
    plain,
    sums_sql,
    values_of,
)

_OUTCOME, _WEIGHT = {"outcome": "outcome"}, "ldp._weight(weight)"
_WEIGHTS = "STRUCT(value VARCHAR, weight DOUBLE)[]"


def _groups(reports: pa.ListArray, *others: pa.Array) -> Iterator[tuple[Any, np.ndarray]]:
    """Yield different values of the other columns, with the rows that have them and a list of reports."""
    filled = np.flatnonzero(reports.is_valid().to_numpy(zero_copy_only=False))
    keys = [tuple(column[row] for column in others) for row in filled]
    for key in dict.fromkeys(keys):
        rows = filled[[one == key for one in keys]]
        yield tuple(column[rows[0]] for column in others), rows


@guarded
@one_thread
def weights(reports: Column, handles: Handles, ofs: Column) -> pa.Array:
    """Return for each report a list of all values with the weight that the report has for each; NULL for NULL."""
    column, kind = plain(reports), pa.list_(pa.struct([("value", pa.string()), ("weight", pa.float64())]))
    lists, place = [pa.nulls(1, kind)], np.zeros(len(column), dtype=np.int64)
    for (handle, of), rows in _groups(column, plain(handles), plain(ofs)):
        mechanism = MECHANISMS.thing(handle.as_py())
        named = named_place(values_of(mechanism), of)
        places = () if named is None else (named,)
        own = corrected.columns_of(mechanism, places)[0]
        there, q = corrected.contributions(mechanism, places, column.take(pa.array(rows)))
        values = own.written.take(pa.array(np.tile(np.arange(len(own)), len(there))))
        structs = pa.StructArray.from_arrays([values, pa.array(q.ravel())], fields=list(kind.value_type))
        place[rows[there]] = sum(map(len, lists)) + np.arange(len(there))
        lists.append(pa.ListArray.from_arrays(pa.array(np.arange(len(there) + 1) * len(own), pa.int32()), structs))
    return pa.concat_arrays(lists).take(pa.array(place))


_UNREAD = (  # after FROM without a mechanism, a macro has only the name of the column
    "cast the column; after FROM, pass the mechanism of the reports too: "
    "FROM ldp.outcome(reports, city, city(), outcome := ldp.unbiased(income, income()))"
)


@guarded
@one_thread
def unbiased(reports: Column, handles: Handles) -> pa.Array:
    """Return for each report a number whose expectation is the value behind it; NULL for NULL."""
    column, out = plain(reports), np.full(len(reports), np.nan)
    for (handle,), rows in _groups(column, plain(handles)):
        try:
            there, numbers = corrected.unbiased(MECHANISMS.thing(handle.as_py()), column.take(pa.array(rows)))
        except WrongType as error:
            raise WrongType(error.message, _UNREAD if pa.types.is_string(column.type) else error.hint) from None
        out[rows[there]] = numbers
    return pa.array(out, mask=np.isnan(out))


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer ``ldp.sums``, ``ldp.weights`` and ``ldp.unbiased``; ``ldp.outcome`` and ``ldp.regression`` are questions."""
    return [
        Scalar("__ldp_weights", weights, _WEIGHTS),
        Scalar("__ldp_unbiased", unbiased, "DOUBLE"),
        Macros(
            f"CREATE OR REPLACE MACRO ldp.sums(report, outcome, weight := NULL) AS {sums_sql('report', _OUTCOME, _WEIGHT)};"
        ),
        Macros.beside(__file__),
    ]
