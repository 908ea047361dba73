"""Rows that are drawn from an estimate."""

from __future__ import annotations

import pyarrow as pa

from ldpsql.functions import Lists, Macros, Scalar, Settings, drawn_cells, guarded, hookimpl, plain, weights
from ldpsql.mechanisms import InvalidParameter


@guarded
def synthesized(estimates: Lists, numbers: Settings) -> pa.Array:
    """Return for each list of rows of an estimate which of them are drawn, counted from 1."""
    return pa.array(list(map(_drawn, plain(estimates), plain(numbers).to_pylist())), pa.list_(pa.int64()))


def _drawn(estimate: pa.ListScalar, number: int | None) -> pa.Array:
    rows = getattr(estimate, "values", None)  # a NULL without a type has none
    if rows is None or not pa.types.is_struct(rows.type):
        raise InvalidParameter("there is no estimate to draw rows from", "the table is empty")
    return drawn_cells(weights(rows), -1 if number is None else number) + 1


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer ``ldp.synthesize``."""
    return [Scalar("__ldp_synthesized", synthesized, "BIGINT[]"), Macros.beside(__file__)]
