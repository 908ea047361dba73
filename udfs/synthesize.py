"""Rows that are drawn from an estimate."""

from __future__ import annotations

import pyarrow as pa

from ldpsql.functions import Lists, Macros, Scalar, Settings, by_row, drawn_cells, hookimpl, weights
from ldpsql.mechanisms import InvalidParameter


@by_row(Lists, Settings, returns=pa.list_(pa.int64()))
def synthesized(estimate: pa.ListScalar, number: int | None) -> pa.Array:
    """Return which of the rows of an estimate are drawn, counted from 1."""
    rows = getattr(estimate, "values", None)  # a NULL without a type has none
    if rows is None or not pa.types.is_struct(rows.type):
        raise InvalidParameter("there is no estimate to draw rows from", "the table is empty")
    return drawn_cells(weights(rows), -1 if number is None else number) + 1


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer ``ldp.synthesize``."""
    return [Scalar("__ldp_synthesized", synthesized, "BIGINT[]"), Macros.beside(__file__)]
