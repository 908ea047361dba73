"""Ordered domains that are described, not listed: a range of whole numbers, and an interval of numbers cut into bins."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels import Codes
from ldpsql.columns import plain, shown_type
from ldpsql.domain import MISSING, OUTSIDE, Domain, in_rows
from ldpsql.errors import InvalidParameter, MissingValue, OutsideDomain, WrongType

MAX_VALUES = 20_000
_EXACT = 2**53  # whole numbers up to here are exact in doubles


class Numbers(Domain, ABC):
    """Numbers between two ends; with ``clip`` those beyond count as the nearer end, else they are refused. NaN always is."""

    def __init__(self, values: pa.Array, *, clip: bool) -> None:
        super().__init__(values)
        self.clip = clip

    def position(self, text: str) -> int | None:
        """Return the position of the number that is written like this, None if it is not in the domain."""
        try:
            return int(self.codes(pa.array([float(text)]))[0])
        except (ValueError, OutsideDomain):
            return None

    def codes(
        self, column: pa.Array | pa.ChunkedArray, *, null_code: int | None = None, outside_code: int | None = None
    ) -> Codes:
        """Return the position of every value, the given codes standing for NULL and for values outside.

        Raises:
            MissingValue: for a NULL without ``null_code``.
            OutsideDomain: for a value outside the domain without ``outside_code``; for NaN always.

        """
        column = plain(column)
        direct = self._range_codes(column)
        if direct is not None:
            return direct
        if null_code is None and column.null_count:
            raise MissingValue(*in_rows(MISSING, column.is_null().to_numpy(zero_copy_only=False)))
        at, inside = self._places(doubles(column))
        if not column.null_count and inside.all():
            return at.astype(np.int32)
        missing = column.is_null().to_numpy(zero_copy_only=False)
        inside |= missing
        if outside_code is None and not inside.all():
            refusal = (OUTSIDE[0], "widen its range, or write outside := 'clip' in the mechanism")
            raise OutsideDomain(*in_rows(refusal, ~inside))
        codes = np.where(inside, at, 0).astype(np.int32)
        return np.select([missing, ~inside], [np.int32(null_code or 0), np.int32(outside_code or 0)], codes)

    @abstractmethod
    def _places(self, numbers: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return the position of every number, and whether it is in the domain."""


class Whole(Numbers):
    """The whole numbers ``low`` .. ``high``.

    >>> Whole(1, 6, clip=True).codes(pa.array([0, 3, 9])).tolist()
    [0, 2, 5]

    Raises:
        InvalidParameter: unless they are at least two and at most 20,000.

    """

    def __init__(self, low: int, high: int, *, clip: bool = False) -> None:
        if not low < high < low + MAX_VALUES or max(abs(low), abs(high)) >= _EXACT:
            raise InvalidParameter(f"a range must go from low to a larger high, at most {MAX_VALUES} whole numbers")
        super().__init__(pa.array(np.arange(low, high + 1, dtype=np.int64)), clip=clip)
        self._low, self._high = low, high

    def _places(self, numbers: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        if self.clip:
            numbers = np.clip(numbers, self._low, self._high)
        return numbers - self._low, (numbers >= self._low) & (numbers <= self._high) & (numbers == np.floor(numbers))


class Bins(Numbers):
    """The interval from ``low`` to ``high``, both included, cut into ``count`` bins of equal width; its values are the centres.

    >>> Bins(0.0, 10.0, 5).codes(pa.array([0.0, 3.9, 10.0])).tolist()
    [0, 1, 4]

    Raises:
        InvalidParameter: unless low < high and doubles can tell the bins apart.

    """

    def __init__(self, low: float, high: float, count: int, *, clip: bool = False) -> None:
        width = (high - low) / count
        if not (low < high and np.isfinite(width) and width > 8 * np.spacing(max(abs(low), abs(high)))):
            raise InvalidParameter("an interval must go from low to a larger high", "and its bins must not be too narrow")
        # The SQL constructors compute the same numbers in the same order.
        super().__init__(pa.array(low + (np.arange(count) + 0.5) * (high - low) / count), clip=clip)
        self._low, self._high, self._width = low, high, width

    def _places(self, numbers: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        if self.clip:
            numbers = np.clip(numbers, self._low, self._high)
        inside = (numbers >= self._low) & (numbers <= self._high)
        with np.errstate(invalid="ignore", over="ignore"):
            places = (numbers - self._low) / self._width  # cut to whole numbers by whoever turns them into positions
            return np.minimum(places, len(self) - 1, out=places), inside

    @cached_property
    def _first_of_range(self) -> Any:
        return None


def doubles(column: pa.Array) -> NDArray[np.float64]:
    """Return a column of numbers in double precision, 0 for NULL."""
    if pa.types.is_null(column.type):
        return np.zeros(len(column))
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_decimal(column.type)):
        raise WrongType(f"the column has type {shown_type(column.type)}, the mechanism perturbs numbers", "cast the column")
    return column.cast(pa.float64(), safe=False).fill_null(0.0).to_numpy(zero_copy_only=False)
