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
    distances,
    family,
    guarded,
    hookimpl,
    plain,
    python_value,
)
from ldpsql.mechanisms import InvalidParameter


@guarded
def distance(names: Texts, ps: Column, qs: Column, handles: Wholes | None = None, powers: Settings | None = None) -> pa.Array:
    """Return the distance of each pair; NULL if one of the two is NULL."""
    columns = [[None] * len(names) if column is None else plain(column).to_pylist() for column in (handles, powers)]
    rows = enumerate(zip(plain(names).to_pylist(), plain(ps), plain(qs), strict=True))
    return pa.array([_distance(name, p, q, [column[row] for column in columns]) for row, (name, p, q) in rows], pa.float64())


def _distance(name: str, p: pa.Scalar, q: pa.Scalar, arguments: list[Any]) -> float | None:
    if not (p.is_valid and q.is_valid):
        return None
    if None not in (_values(p), _values(q)) and _values(p) != _values(q):
        raise InvalidParameter("these are estimates over different values", "compare estimates of one mechanism's domain")
    mechanism = None if arguments[0] is None else MECHANISMS.thing(arguments[0])
    power = 1.0 if arguments[1] is None else arguments[1]
    if isinstance(power, bool) or not isinstance(power, int | float | Decimal):
        raise InvalidParameter("power must be a number of at least 1", "1 gives the earth mover's distance")
    return distances.distance(name, _shares(p), _shares(q), mechanism, float(power))


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
    """Offer the distances as scalar functions."""
    return [Scalar("__ldp_distance", distance, "DOUBLE"), Macros.beside(__file__)]
