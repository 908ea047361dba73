"""Distances between two distributions, each a list of shares or an estimate."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from ldpsql.functions import (
    MECHANISMS,
    Column,
    Macros,
    Scalar,
    Settings,
    Texts,
    Wholes,
    by_row,
    distances,
    family,
    hookimpl,
    python_value,
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


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer ``ldp.distance_between``."""
    return [Scalar("__ldp_distance", distance, "DOUBLE"), Macros.beside(__file__)]
