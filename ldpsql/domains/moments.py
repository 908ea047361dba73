"""Dates and times as ordered domains given by their ends: every day, hour or minute from one moment to another."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels import Codes
from ldpsql.domains.columns import family, plain
from ldpsql.domains.domain import MISSING, OUTSIDE, Domain, in_rows
from ldpsql.domains.sql_types import shown_type
from ldpsql.errors import InvalidParameter, MissingValue, OutsideDomain, WrongType
from ldpsql.errors.boundary import withheld

UNITS: dict[str, int] = {"day": 86_400_000_000, "hour": 3_600_000_000, "minute": 60_000_000}  # in microseconds
_TEMPORAL = ("date", "timestamp", "timestamp with time zone")


class Moments(Domain):
    """Every day, hour or minute from the one that holds ``low`` to the one that holds ``high``; a moment counts as its start.

    The days of dates are dates, all other values are timestamps. Moments beyond the ends count as the nearer end with ``clip``,
    else they are refused.

    >>> days = Moments("2024-02-28", "2024-03-01", "day", 1000)
    >>> len(days), days.texts[1]
    (3, '2024-02-29')

    Raises:
        InvalidParameter: unless low comes before high, and both are dates or times.

    """

    def __init__(self, low: str, high: str, unit: str, most: int, *, clip: bool = False) -> None:
        kind, start, end = moments(low, high, unit)
        self._unit = UNITS[unit]
        self._first, last = start // self._unit, end // self._unit
        if not 1 <= last - self._first < most:
            raise InvalidParameter(
                f"a range of times must go from low to a later high, at most {most:,} of the unit", "use a larger unit"
            )
        starts = pa.array(np.arange(self._first, last + 1) * self._unit)
        super().__init__(starts.cast(kind) if pa.types.is_timestamp(kind) else starts.cast(pa.timestamp("us")).cast(kind))
        self.clip = clip

    def position(self, text: str) -> int | None:
        """Return the position of the moment with this text, None if it is not in the domain."""
        try:
            return int(self.codes(pa.array([text]).cast(self.values.type))[0])
        except (pa.ArrowException, OutsideDomain):
            return None

    @withheld
    def codes(
        self, column: pa.Array | pa.ChunkedArray, *, null_code: int | None = None, outside_code: int | None = None
    ) -> Codes:
        """Return the position of every moment; ``null_code`` stands for NULL, ``outside_code`` for moments outside.

        Raises:
            WrongType: for a column of neither dates nor times, or with a time zone if the ends have none.
            MissingValue: for a NULL without ``null_code``.
            OutsideDomain: for a moment outside the domain without ``outside_code``.

        """
        column = plain(column)
        if null_code is None and column.null_count:
            raise MissingValue(*in_rows(MISSING, column.is_null().to_numpy(zero_copy_only=False)))
        at = self._microseconds(column) // self._unit - self._first
        if self.clip:
            at = np.clip(at, 0, len(self) - 1)
        missing = column.is_null().to_numpy(zero_copy_only=False)
        inside = (at >= 0) & (at < len(self)) | missing
        if outside_code is None and not inside.all():
            raise OutsideDomain(*in_rows(OUTSIDE, ~inside))
        codes = np.where(inside, at, 0).astype(np.int32)
        return np.select([missing, ~inside], [np.int32(null_code or 0), np.int32(outside_code or 0)], codes)

    def _microseconds(self, column: pa.Array) -> NDArray[np.int64]:
        """Return the moments of a column in microseconds since 1970, 0 for NULL."""
        if pa.types.is_null(column.type):
            return np.zeros(len(column), dtype=np.int64)
        if not _comparable(column.type, self.values.type):
            message = f"the column has type {shown_type(column.type)}, the mechanism perturbs {shown_type(self.values.type)}"
            raise WrongType(message, "cast the column")
        return microseconds(column)

    @cached_property
    def _first_of_range(self) -> Any:
        return None


def _comparable(one: pa.DataType, other: pa.DataType) -> bool:
    """Return whether both are dates or times, with a time zone or without."""
    zoned = "timestamp with time zone"
    return family(one) in _TEMPORAL and (family(one) == zoned) == (family(other) == zoned)


def microseconds(column: pa.Array) -> NDArray[np.int64]:
    """Return dates or times in microseconds since 1970, 0 for NULL."""
    if pa.types.is_date(column.type):
        days = column.cast(pa.date32()).view(pa.int32()).cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        return np.clip(days, -(10**7), 10**7) * UNITS["day"]
    whole = column.cast(pa.timestamp("us", tz=column.type.tz), safe=False)
    return np.asarray(whole.view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False))


def moments(low: str, high: str, unit: str) -> tuple[pa.DataType, int, int]:
    """Return the type of the values between two dates or times, and both in microseconds since 1970.

    Raises:
        InvalidParameter: unless both are dates, or times with a time zone or without, in a form that SQL writes.

    """
    if unit not in UNITS:
        raise InvalidParameter("the step of dates and times must be 'day', 'hour' or 'minute'")
    for kind in (pa.date32(), pa.timestamp("us"), pa.timestamp("us", tz="UTC")):
        if kind != pa.date32() or unit == "day":
            with suppress(pa.ArrowException):
                start, end = microseconds(pa.array([low, high]).cast(kind)).tolist()
                return kind, start, end
    raise InvalidParameter("low and high must be two numbers, two dates or two times", "such as DATE '2024-01-31'")


def text_in_utc(text: str) -> str:
    """Return the text of a time with a time zone in UTC, so that it does not depend on the zone of a session.

    >>> text_in_utc("2024-01-31 05:30:00+05:30"), text_in_utc("2024-01-31")
    ('2024-01-31 00:00:00+00', '2024-01-31')
    """
    try:
        moment = pa.scalar(text).cast(pa.timestamp("us", tz="UTC")).cast(pa.timestamp("us")).as_py()
    except (pa.ArrowException, OverflowError):
        return text
    return f"{moment}+00"
