"""Positions of values on a line: numbers as they are, dates in days and times in seconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.domains.columns import family
from ldpsql.domains.domain import Domain
from ldpsql.domains.ranges import Bins, Bounds, Numbers, Steps
from ldpsql.domains.sql_types import shown_type
from ldpsql.errors import InvalidDomain, WrongType
from ldpsql.inference.counting import ReportSource
from ldpsql.inference.operators import Floats, Ranges
from ldpsql.mechanisms.base import Mechanism, certify_values

_DAY = 86_400.0


def scale_of(values: Domain) -> Floats:
    """Return the positions of the values: numbers as they are, dates in days and times in seconds since 1970.

    Raises:
        InvalidDomain: if the values have no order.

    """
    return positions_of(values.values)


def positions_of(column: pa.Array) -> Floats:
    """Return the positions of the values in a column without NULL, as `scale_of` does."""
    kind = family(column.type)
    if kind == "number":
        return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
    if kind == "date":
        return np.asarray(column.cast(pa.timestamp("s")).cast(pa.int64()).to_numpy() / _DAY)
    if kind in ("timestamp", "timestamp with time zone"):
        microseconds = pa.timestamp("us", tz=column.type.tz)
        return np.asarray(column.cast(microseconds, safe=False).cast(pa.int64()).to_numpy() / 1e6)
    hint = "this needs numbers, dates or times"
    if kind == "boolean":
        hint = "ask for ldp.share(..., of := true), or cast booleans to 0 and 1 before they are perturbed"
    raise InvalidDomain("the values of this domain have no order", hint)


def between(values: Domain, low: float | None, high: float | None) -> Bounds:
    """Return which values stand only for numbers from ``low`` to ``high``, and which may stand for one of these.

    They are the same values, except for bins that an end cuts. Ends are on the scale of `scale_of`; None means no bound.

    Raises:
        InvalidDomain: if the values have no order.

    """
    if isinstance(values, Bins | Steps):
        return values.between(-np.inf if low is None else low, np.inf if high is None else high)
    inside = within(scale_of(values), low, high)
    return inside, inside


class Spans(NamedTuple):
    """The values of several ranges: those that stand only for numbers in it, those that may, and of these those inside it."""

    certain: Ranges
    possible: Ranges
    centred: Ranges

    @property
    def exact(self) -> bool:
        """Whether no end cuts a bin."""
        return all(np.array_equal(one, other) for one, other in zip(self.certain, self.possible, strict=True))


def spans_between(values: Domain, ends: Sequence[tuple[float | None, float | None]]) -> Spans:
    """Return the values of several ranges; see `between`. The values are rising."""
    low = np.array([-np.inf if first is None else first for first, _ in ends])
    high = np.array([np.inf if last is None else last for _, last in ends])
    scale = scale_of(values)
    centred = np.searchsorted(scale, low), np.searchsorted(scale, high, side="right")
    certain, possible = values.spans(low, high) if isinstance(values, Numbers) else (centred, centred)
    within_both = np.maximum(centred[0], possible[0]), np.minimum(centred[1], possible[1])
    return Spans(*(Ranges(first, np.maximum(first, end)) for first, end in (certain, possible, within_both)))


def within(scale: Floats, low: float | None, high: float | None) -> NDArray[np.bool_]:
    """Return which numbers lie from ``low`` to ``high``, both included; None means no bound."""
    return (scale >= (-np.inf if low is None else low)) & (scale <= (np.inf if high is None else high))


def check_ordered(source: Mechanism | ReportSource) -> None:
    """Refuse reports of values that have no order; see `check_line`."""
    of: Any = certify_values(source) if isinstance(source, Mechanism) else source
    check_line(of.values, getattr(of, "layout", ()))


def check_line(values: Domain, layout: tuple[int, ...]) -> None:
    """Refuse the cells of a grid, which are numbered but not ordered."""
    if len(layout) == 2 and min(layout) > 1:
        raise InvalidDomain(
            "the cells of a grid have no order", "this needs values on a line; for a rectangle pass grid := to ldp.range_share"
        )
    scale_of(values)


def bound_of(bound: pa.Scalar, values: Domain) -> float | None:
    """Return the end of a range on the scale of the values; None for NULL.

    Raises:
        WrongType: if it cannot be compared with them.

    """
    if not bound.is_valid:
        return None
    kind = values.values.type
    if pa.types.is_struct(bound.type):
        raise WrongType("points are the corners of a rectangle of a grid", "pass it: grid := ldp.grid(...)")
    try:
        if pa.types.is_string(bound.type) and family(kind) in ("date", "timestamp", "timestamp with time zone"):
            bound = bound.cast(kind)  # a literal
        if family(kind) == "date" and pa.types.is_timestamp(bound.type):
            return float(bound.cast(pa.timestamp("us"), safe=False).value / 1e6 / _DAY)
        if family(bound.type) == family(kind) and family(kind) is not None:
            position = float(positions_of(pa.repeat(bound, 1))[0])
            if not np.isnan(position):
                return position
    except (pa.ArrowException, ValueError, OverflowError):
        pass
    raise WrongType(f"the ends of the range must be like the values, of type {shown_type(kind)}", "cast them")
