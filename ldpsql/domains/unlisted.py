"""Domains that are not listed: ranges of numbers given by their ends, intervals cut into bins, moments, and strings."""

from __future__ import annotations

import codecs
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels import Codes, Letters
from ldpsql.domains.columns import family, plain
from ldpsql.domains.domain import MISSING, OUTSIDE, Domain, in_rows
from ldpsql.domains.sql_types import between, counted, double, shown_type, whole, wide
from ldpsql.errors import InvalidParameter, MissingValue, OutsideDomain, WrongType
from ldpsql.errors.boundary import withheld
from ldpsql.quoting import quoted

MAX_VALUES = 20_000
_EXACT = 2**53  # whole numbers up to here are exact in doubles
_FINE, _TOO_MANY = 2**48, 99  # a double below is nearly exact; decimals with which none is below
_OFF_STEP = 1e-6  # by how much of a step a number may miss a declared one: 0.1 is not exact in doubles

Bounds: TypeAlias = tuple[NDArray[np.bool_], NDArray[np.bool_]]
Ends: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]  # of ranges of bins: the first bin, and that after the last


class Between(Domain, ABC):
    """Values between two ends. Those beyond them count as the nearer end with ``clip``, else they are refused; so is NaN."""

    _refusal = OUTSIDE

    def __init__(self, values: pa.Array, *, clip: bool) -> None:
        super().__init__(values)
        self.clip = clip

    @withheld
    def codes(
        self, column: pa.Array | pa.ChunkedArray, *, null_code: int | None = None, outside_code: int | None = None
    ) -> Codes:
        column = plain(column)
        direct = self._range_codes(column)
        if direct is not None:
            return direct
        if null_code is None and column.null_count:
            raise MissingValue(*in_rows(MISSING, column.is_null().to_numpy(zero_copy_only=False)))
        at, inside = self._places(column)
        if not column.null_count and inside.all():
            return at.astype(np.int32)
        missing = column.is_null().to_numpy(zero_copy_only=False)
        inside |= missing
        if outside_code is None and not inside.all():
            raise OutsideDomain(*in_rows(self._refusal, ~inside))
        codes = np.where(inside, at, 0).astype(np.int32)
        return np.select([missing, ~inside], [np.int32(null_code or 0), np.int32(outside_code or 0)], codes)

    @abstractmethod
    def _places(self, column: pa.Array) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Return the position of every value, and whether it is in the domain; of NULL, any."""


class Numbers(Between, ABC):
    """Numbers between two ends."""

    _low: float
    _high: float
    _refusal = OUTSIDE[0], "widen its range, or write outside := 'clip' in the mechanism"

    def position(self, text: str) -> int | None:
        try:
            return int(self.codes(pa.array([float(text)]))[0])
        except (ValueError, OutsideDomain):
            return None

    def _places(self, column: pa.Array) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        numbers = doubles(column)
        return self._placed(np.clip(numbers, self._low, self._high) if self.clip else numbers)

    def spans(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> tuple[Ends, Ends]:
        """Return which values stand only for numbers between pairs of numbers, and which may stand for some; here the same."""
        numbers = self.values.to_numpy()
        ends = np.searchsorted(numbers, low), np.searchsorted(numbers, high, side="right")
        return ends, ends

    def between(self, low: float, high: float) -> Bounds:
        """Return the values of `spans` for one pair of numbers, as two masks."""
        place = np.arange(len(self))
        certain, possible = (
            (place >= first[0]) & (place < end[0]) for first, end in self.spans(np.array([low]), np.array([high]))
        )
        return certain, possible

    @property
    @abstractmethod
    def placing(self) -> tuple[float, ...]:
        """How positions are computed, as seven numbers.

        These are low and high; the width of a step; how far from the next step a number may lie, in steps, 0 for whole numbers
        only; the last step; the steps to a bin; and the number of bins of which each holds all numbers between two steps, or 0.
        """

    @abstractmethod
    def _placed(self, numbers: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return the position of every number, and whether it is in the domain."""


class Whole(Numbers):
    """The whole numbers ``low`` .. ``high``.

    >>> Whole(1, 6, clip=True).codes(pa.array([0, 3, 9])).tolist()
    [0, 2, 5]

    Raises:
        InvalidParameter: unless there are at least two and at most 20,000.

    """

    _low: int

    def __init__(self, low: int, high: int, *, clip: bool = False) -> None:
        if not low < high < low + MAX_VALUES or max(abs(low), abs(high)) >= _EXACT:
            raise InvalidParameter(
                f"a range must go from low to a larger high, at most {MAX_VALUES:,} whole numbers",
                "for a wider range, use hybrid, square_wave or hierarchy",
            )
        super().__init__(pa.array(np.arange(low, high + 1, dtype=np.int64)), clip=clip)
        self._low, self._high = low, high

    @staticmethod
    def sql(low: str, high: str, margin: str | None = None) -> str:
        """Return the SQL for the list of the numbers, in terms of parameters; ``margin`` widens the range at both ends."""
        if margin is None:
            return between(wide(low), wide(high))
        return between(f"{wide(low)} - {whole(margin)}", f"{wide(high)} + {whole(margin)}")

    @property
    def placing(self) -> tuple[float, ...]:
        """Steps of 1."""
        return self._low, self._high, 1, 0, self._high - self._low, 1, 0

    def _placed(self, numbers: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        return numbers - self._low, (numbers >= self._low) & (numbers <= self._high) & (numbers == np.floor(numbers))


class Bins(Numbers):
    """The interval from ``low`` to ``high``, both included, cut into ``count`` bins of equal width; its values are the centres.

    A number may lie anywhere in its bin, the lower edge included: up to half a width from the centre that stands for it.

    >>> Bins(0.0, 10.0, 5).codes(pa.array([0.0, 3.9, 10.0])).tolist()
    [0, 1, 4]

    Raises:
        InvalidParameter: unless low < high and doubles can tell the bins apart.

    """

    def __init__(self, low: float, high: float, count: int, *, clip: bool = False) -> None:
        width = (high - low) / count
        if not (low < high and np.isfinite(width) and width > 8 * np.spacing(max(abs(low), abs(high)))):
            raise InvalidParameter("an interval must go from low to a larger high", "and its bins must not be too narrow")
        super().__init__(pa.array(low + (np.arange(count) + 0.5) * (high - low) / count), clip=clip)
        self._low, self._high, self._width = low, high, width
        self.rounding = width / 2

    @staticmethod
    def sql(low: str, high: str, count: str) -> str:
        """Return the list of the centres in SQL, computed in the same order as here."""
        bottom, top = double(low), double(high)
        centre = f"{bottom} + (i::DOUBLE + 0.5::DOUBLE) * ({top} - {bottom}) / {double(count)}"
        return f"list_transform({Bins.sql_numbers(count)}, lambda i: {centre})"

    @staticmethod
    def sql_numbers(count: str) -> str:
        """Return the list of the numbers of the bins in SQL, from 0."""
        return counted(quoted(count))

    @property
    def placing(self) -> tuple[float, ...]:
        """Bins that begin at steps."""
        return self._low, self._high, self._width, 0, len(self), 1, len(self)

    def _placed(self, numbers: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        inside = (numbers >= self._low) & (numbers <= self._high)
        with np.errstate(invalid="ignore", over="ignore"):
            places = (numbers - self._low) / self._width  # truncated when they are turned into positions
            return np.minimum(places, len(self) - 1, out=places), inside

    def spans(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> tuple[Ends, Ends]:
        """Return which bins lie between pairs of numbers, and which hold numbers between them."""
        edges = self._low + np.arange(len(self) + 1) * self._width
        slack = 1e-9 * self._width
        first, last = edges[:-1], edges[1:]
        certain = np.searchsorted(first, low - slack), np.searchsorted(last, high + slack, side="right")
        # A bin holds its lower edge, and only the last its upper one.
        begin = np.minimum(
            np.searchsorted(last, low + slack, side="right"), np.where(low <= last[-1], len(self) - 1, len(self))
        )
        return certain, (begin, np.searchsorted(first, high + slack, side="right"))

    @cached_property
    def _first_of_range(self) -> Any:
        return None


class Steps(Numbers):
    """The numbers ``low``, ``low + step``, ... ``high``, with as many to a bin as needed for at most ``most`` bins.

    The values of the domain are the centres of the bins; if a bin holds one number, that number. Other numbers are refused.

    >>> Steps(0, 100, 1, 1024).codes(pa.array([0, 1, 100])).tolist(), len(Steps(0, 100, 1, 50))
    ([0, 1, 100], 34)

    Raises:
        InvalidParameter: unless ``high`` is a whole number of steps above ``low``, and doubles can tell the numbers apart.

    """

    _refusal = (
        OUTSIDE[0],
        "round the column to the declared step, widen its range, or write outside := 'clip' for numbers beyond it",
    )

    def __init__(self, low: float, high: float, step: float, most: int, *, clip: bool = False) -> None:
        self._low, self._high, self._step = low, high, step
        self._each, count = steps_to_bins(low, high, step, most)
        self._last = round((high - low) / step)
        centres = low + (np.arange(count) * self._each + (self._each - 1) / 2) * step
        scale = 10.0 ** _decimals(low, step)
        if max(abs(low), abs(high)) * scale < _FINE:
            centres = np.rint(centres * scale) / scale  # 0.35, not 0.35000000000000003
        super().__init__(pa.array(centres), clip=clip)
        self.rounding = step * (self._each - 1) / 2

    @staticmethod
    def sql(low: str, high: str, step: str, most: str) -> str:
        """Return the list of the centres in SQL, computed in the same order as here."""
        each = sql_steps_to_bins(low, high, step, most)[0]
        centre = f"{double(low)} + (i::DOUBLE * {each} + ({each} - 1::DOUBLE) / 2::DOUBLE) * {double(step)}"
        scale = f"pow(10::DOUBLE, {_sql_decimals(low, step)})"
        fine = f"greatest(abs({double(low)}), abs({double(high)})) * {scale} < {_FINE}::DOUBLE"
        rounded = f"CASE WHEN {fine} THEN round(({centre}) * {scale}) / {scale} ELSE {centre} END"
        return f"list_transform({Steps.sql_numbers(low, high, step, most)}, lambda i: {rounded})"

    @staticmethod
    def sql_numbers(low: str, high: str, step: str, most: str) -> str:
        """Return the list of the numbers of the bins in SQL, from 0."""
        return counted(sql_steps_to_bins(low, high, step, most)[1])

    @property
    def placing(self) -> tuple[float, ...]:
        """Bins of steps."""
        return self._low, self._high, self._step, _OFF_STEP, self._last, self._each, 0

    def _placed(self, numbers: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        with np.errstate(invalid="ignore", over="ignore"):
            steps = (numbers - self._low) / self._step
            whole = np.rint(steps)
            inside = (whole >= 0) & (whole <= self._last) & (np.abs(steps - whole) <= _OFF_STEP)
            return whole // self._each, inside

    def spans(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> tuple[Ends, Ends]:
        centres, slack = self.values.to_numpy(), _OFF_STEP * self._step
        first, last = centres - self.rounding, np.minimum(centres + self.rounding, self._high)
        certain = np.searchsorted(first, low - slack), np.searchsorted(last, high + slack, side="right")
        return certain, (np.searchsorted(last, low - slack), np.searchsorted(first, high + slack, side="right"))

    @cached_property
    def _first_of_range(self) -> int | None:
        """The first number if the numbers are consecutive and each has a bin, so that a position is a difference; else None."""
        consecutive = self._step == 1 and self._each == 1 and float(self._low).is_integer() and abs(self._low) < _EXACT
        return int(self._low) if consecutive else None


def _decimals(low: float, step: float) -> int:
    """Return with how many decimals all centres are exact; too many for doubles if a number is written with an exponent."""
    return 1 + max(_TOO_MANY if "e" in text else len(text.partition(".")[2]) for text in (repr(float(low)), repr(float(step))))


def _sql_decimals(low: str, step: str) -> str:
    """Return the number of decimals of `_decimals` as SQL."""
    texts = (f"{double(parameter)}::VARCHAR" for parameter in (low, step))
    counts = (f"CASE WHEN contains({text}, 'e') THEN {_TOO_MANY} ELSE length(split_part({text}, '.', 2)) END" for text in texts)
    return f"1 + greatest({', '.join(counts)})"


def steps_to_bins(low: float, high: float, step: float, most: int) -> tuple[int, int]:
    """Return how many numbers ``low``, ``low + step``, ... ``high`` go to each bin, and how many bins they fill."""
    if not (low < high and step > 8 * np.spacing(max(abs(low), abs(high)))):
        raise InvalidParameter("an interval must go from low to a larger high", "by steps that are not too small")
    steps = (high - low) / step
    if not (steps < _EXACT and abs(steps - round(steps)) <= _OFF_STEP and round(steps) >= 1):
        raise InvalidParameter("high must be a whole number of steps above low", "move high to the nearest number that is")
    count = round(steps) + 1
    each = -(-count // most)
    return each, -(-count // each)


def sql_steps_to_bins(low: str, high: str, step: str, most: str) -> tuple[str, str]:
    """Return the two numbers of `steps_to_bins` in SQL, computed in the same order."""
    count = f"(round(({double(high)} - {double(low)}) / {double(step)}) + 1::DOUBLE)"
    each = f"ceil({count} / {double(most)})"
    return each, f"ceil({count} / {each})"


def doubles(column: pa.Array) -> NDArray[np.float64]:
    """Return a column of numbers in double precision, 0 for NULL."""
    if pa.types.is_null(column.type):
        return np.zeros(len(column))
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_decimal(column.type)):
        hint = (
            "count days or minutes from a public date, or take hierarchy"
            if pa.types.is_temporal(column.type)
            else "cast the column"
        )
        raise WrongType(f"the column has type {shown_type(column.type)}, the mechanism perturbs numbers", hint)
    return column.cast(pa.float64(), safe=False).fill_null(0.0).to_numpy(zero_copy_only=False)


# Dates and times as ordered domains given by their ends: every day, hour or minute from one moment to another.

UNITS: dict[str, int] = {"day": 86_400_000_000, "hour": 3_600_000_000, "minute": 60_000_000}  # in microseconds
_TEMPORAL = ("date", "timestamp", "timestamp with time zone")


class Moments(Between):
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
        values = starts.cast(kind) if pa.types.is_timestamp(kind) else starts.cast(pa.timestamp("us")).cast(kind)
        super().__init__(values, clip=clip)

    def position(self, text: str) -> int | None:
        try:
            return int(self.codes(pa.array([text]).cast(self.values.type))[0])
        except (pa.ArrowException, OutsideDomain):
            return None

    def _places(self, column: pa.Array) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        at = self._microseconds(column) // self._unit - self._first
        if self.clip:
            at = np.clip(at, 0, len(self) - 1)
        return at, (at >= 0) & (at < len(self))

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
    """Return the type of the values between two dates or times, and both in microseconds since 1970."""
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


# The cells of a grid, numbered row by row from 0: cell = row * columns + column.


def cells(columns: int, rows: int) -> Domain:
    """Return the numbers of the cells."""
    return Domain.of(range(columns * rows))


def sql_cells(columns: str, rows: str) -> str:
    """Return the SQL for the list of the cells, in terms of the parameters."""
    return counted(f"{wide(columns)} * {wide(rows)}")


UTF8 = bytes([*range(0xC0), *range(0xC2, 0xF5)])  # the bytes that can occur
_OUTSIDE = (
    "a string to be perturbed is longer than max_bytes, or has a character that is not among the declared ones",
    "raise max_bytes, add to characters, or write outside := 'as:STRING' in the mechanism",
)


@dataclass(frozen=True)
class Strings:
    """The strings of at most ``length`` bytes of an alphabet, whose bytes are its letters.

    A character of several bytes adds all of them to the alphabet. Letters are numbered from 1, in the order of their bytes; 0
    stands after the end of a string.

    >>> Strings(4, b"abc").letters(pa.array(["cab", "", None]))[0].tolist()
    [[3, 1, 2, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    """

    length: int
    alphabet: bytes
    _listed: Domain = field(init=False, repr=False, compare=False, default_factory=lambda: Domain(pa.array([], pa.string())))

    @property
    def listed(self) -> Domain:
        """The values that can be listed: none."""
        return self._listed

    @cached_property
    def _number(self) -> NDArray[np.uint8]:
        """The number of each byte as a letter, 0 if it is not in the alphabet."""
        out = np.zeros(256, dtype=np.uint8)
        out[np.frombuffer(self.alphabet, dtype=np.uint8)] = np.arange(1, len(self.alphabet) + 1)
        return out

    def position(self, text: str) -> Letters | None:
        """Return the letters of one string, None if it does not fit."""
        letters, fits = self.letters(pa.array([text]))
        return letters[0] if fits[0] else None

    def letters(self, column: pa.Array) -> tuple[Letters, NDArray[np.bool_]]:
        """Return the letters of plain strings, shape (strings, length), and which strings fit; NULL counts as empty."""
        text = column.cast(pa.large_binary())
        _, offsets, data = text.buffers()
        ends = np.frombuffer(offsets, np.int64)[text.offset :][: len(text) + 1]
        sizes = np.diff(ends)
        if text.null_count:
            sizes = np.where(text.is_null().to_numpy(zero_copy_only=False), 0, sizes)
        fits = sizes <= self.length
        octets = np.frombuffer(data or b"", np.uint8)
        out = np.zeros((len(text), self.length), dtype=np.uint8)
        for place in range(int(sizes[fits].max(initial=0))):
            rows = np.flatnonzero(fits & (sizes > place))
            out[rows, place] = self._number[octets[ends[rows] + place]]
            fits[rows] = out[rows, place] > 0
        out[~fits] = 0
        return out, fits

    @withheld
    def codes(
        self, column: pa.Array | pa.ChunkedArray, *, null: Letters | None = None, outside: Letters | None = None
    ) -> Letters:
        """Return the letters of every string; ``null`` stands for NULL, ``outside`` for strings that do not fit.

        Raises:
            WrongType: if the column does not hold text.
            MissingValue: for a NULL without ``null``.
            OutsideDomain: for a string that does not fit without ``outside``.

        """
        texts = _texts(plain(column))
        missing = texts.is_null().to_numpy(zero_copy_only=False)
        if null is None and missing.any():
            raise MissingValue(*in_rows(MISSING, missing))
        letters, fits = self.letters(texts)
        if outside is None and not fits.all():
            raise OutsideDomain(*in_rows(_OUTSIDE, ~fits))
        letters[~fits] = 0 if outside is None else outside
        letters[missing] = 0 if null is None else null
        return letters

    def text(self, letters: Letters) -> str | None:
        """Return the letters of a whole string as text, None if they are not text in UTF-8."""
        try:
            return self._bytes(letters).decode()
        except UnicodeDecodeError:
            return None

    def begins(self, letters: Letters) -> bool:
        """Return whether text in UTF-8 can begin with these letters."""
        try:
            codecs.getincrementaldecoder("utf-8")().decode(self._bytes(letters))
        except UnicodeDecodeError:
            return False
        return True

    def _bytes(self, letters: Letters) -> bytes:
        return bytes(self.alphabet[letter - 1] for letter in letters.tolist() if letter)


def _texts(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_null(column.type):
        return column.cast(pa.string())
    if family(column.type) != "text":
        raise WrongType(f"the column has type {shown_type(column.type)}, the mechanism perturbs text", "cast it to VARCHAR")
    return column
