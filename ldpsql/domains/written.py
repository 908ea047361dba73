"""Domains as JSON, which other programs read."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ldpsql.domains.composite import PairSets, Product
from ldpsql.domains.domain import Domain
from ldpsql.domains.unlisted import Bins, Moments, Steps, Strings, Whole

_EXACT = 1 << 53  # whole numbers below are exact in every reader of JSON


def exported(values: Domain | PairSets | Strings) -> dict[str, Any]:
    """Return a domain, or a description of sets of pairs or strings, as plain JSON; its ``kind`` says how it is written.

    >>> exported(Domain.of(["Lima", "Oslo"])), exported(Domain.of(range(3, 9)))
    ({'kind': 'listed', 'type': 'string', 'values': ['Lima', 'Oslo']}, {'kind': 'whole', 'first': 3, 'count': 6, 'clip': False})
    """
    if isinstance(values, PairSets):
        rules = {"clip": values.clip, "drop_missing": values.drop_missing, "drop_unknown": values.drop_unknown}
        return {"kind": "pairs", "keys": exported(values.keys), "low": values.low, "high": values.high, **rules}
    if isinstance(values, Strings):
        return {"kind": "strings", "length": values.length, "letters": list(values.alphabet)}
    if isinstance(values, Product):
        return {"kind": "rows", "names": list(values.names), "parts": [exported(part) for part in values.parts]}
    return _by_ends(values) or exported_list(values)


def exported_list(values: Domain) -> dict[str, Any]:
    """Return a domain as plain JSON whose values are whole numbers in a row, or a list."""
    first = values._first_of_range
    if first is not None and abs(first) + len(values) < _EXACT:
        return _whole(first, values) | {"clip": False}
    return {"kind": "listed", "type": str(values.values.type), "values": listed(values)}


def _by_ends(values: Domain) -> dict[str, Any] | None:
    """Return a domain that is given by its ends; None if its values must be listed."""
    if isinstance(values, Whole):
        return _whole(values._low, values) | {"clip": values.clip}
    if isinstance(values, Bins):
        ends = {"low": values._low, "high": values._high, "width": values._width}
        return {"kind": "bins", **ends, "count": len(values), "clip": values.clip}
    if isinstance(values, Steps):
        steps = {"low": values._low, "high": values._high, "step": values._step, "each": values._each, "last": values._last}
        return {"kind": "steps", **steps, "clip": values.clip}
    if isinstance(values, Moments):
        unit = {"unit": values._unit // 1000, "first": values._first}  # milliseconds, as programs count time
        return {"kind": "moments", **unit, "count": len(values), "clip": values.clip}
    return None


def _whole(first: int, values: Domain) -> dict[str, Any]:
    return {"kind": "whole", "first": first, "count": len(values)}


def listed(values: Domain) -> list[Any]:
    """Return values as JSON has them: text, booleans, and numbers that are exact in doubles; all others as text."""
    kind = values.values.type
    if pa.types.is_float64(kind) or pa.types.is_boolean(kind):
        return list(values.values.to_pylist())
    if pa.types.is_integer(kind) and all(abs(number) < _EXACT for number in values.values.to_pylist()):
        return list(values.values.to_pylist())
    return values.texts
