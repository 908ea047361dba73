"""What is made of estimates: distances between distributions, and rows that are drawn from one."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from ldpsql.functions import (
    MECHANISMS,
    Column,
    Lists,
    Macros,
    Scalar,
    Settings,
    Texts,
    Wholes,
    by_row,
    distances,
    drawn_cells,
    family,
    hookimpl,
    python_value,
    weights,
)
from ldpsql.mechanisms import InvalidParameter


@by_row(Column, Column, Texts, Wholes, Settings, returns=pa.float64())
def distance(p: pa.Scalar, q: pa.Scalar, metric: str | None, handle: int | None, power: Any) -> float | None:
    """Return the distance of two distributions; NULL if one of them is NULL."""
    if not (p.is_valid and q.is_valid):
        return None
    if None not in (_values(p), _values(q)) and _values(p) != _values(q):
        raise InvalidParameter("these are estimates over different values", "compare estimates of one mechanism's domain")
    mechanism = None if handle is None else MECHANISMS.thing(handle)
    if isinstance(power, bool) or not isinstance(power, int | float | Decimal):
        raise InvalidParameter("power must be a number of at least 1", "1 gives the earth mover's distance")
    return distances.distance(metric or "", _shares(p), _shares(q), mechanism, float(power))


def _values(distribution: pa.Scalar) -> list[Any] | None:
    """Return the values of an estimate; None for a plain list."""
    items = distribution.values if isinstance(distribution, pa.ListScalar) else pa.nulls(0)
    has_values = pa.types.is_struct(items.type) and items.type.get_field_index("value") >= 0
    return [python_value(value) for value in items.field("value")] if has_values else None


def _shares(distribution: pa.Scalar) -> np.ndarray:
    """Return the numbers of a list, or the shares of an estimate."""
    items = distribution.values if isinstance(distribution, pa.ListScalar) else pa.nulls(0)
    if pa.types.is_struct(items.type) and items.type.get_field_index("estimate") >= 0:
        items = items.field("estimate")
    if family(items.type) != "number" or items.null_count:
        raise InvalidParameter("a distance needs two lists of equally many finite numbers", "pass the estimates, without NULL")
    return np.asarray(items.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))


# Rows that are drawn from an estimate.


@by_row(Lists, Settings, returns=pa.list_(pa.int64()))
def synthesized(estimate: pa.ListScalar, number: int | None) -> pa.Array:
    """Return which of the rows of an estimate are drawn, counted from 1."""
    rows = getattr(estimate, "values", None)  # a NULL without a type has none
    if rows is None or not pa.types.is_struct(rows.type):
        raise InvalidParameter("there is no estimate to draw rows from", "the table is empty")
    return drawn_cells(weights(rows), -1 if number is None else number) + 1


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer ``ldp.distance_between`` and ``ldp.synthesize``."""
    return [
        Scalar("__ldp_distance", distance, "DOUBLE"),
        Scalar("__ldp_synthesized", synthesized, "BIGINT[]"),
        Macros.beside(__file__),
    ]
