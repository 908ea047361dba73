"""Finite domains: the values that may be perturbed, and the reports that may come out.

A domain is declared, never inferred from data, and keeps the type of its values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sized
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Annotated, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import BeforeValidator, PlainSerializer

from ldpsql.channels import Codes, Words64
from ldpsql.domains.columns import column_of, copied, exactly, family, in_utc, named_type, plain, widened
from ldpsql.domains.sql_types import shown_type
from ldpsql.errors import (
    ImpossibleReport,
    InternalError,
    InvalidDomain,
    InvalidParameter,
    MissingValue,
    OutsideDomain,
    WrongType,
)
from ldpsql.errors.boundary import withheld
from ldpsql.names import FIRST_LIST
from ldpsql.quoting import quoted

# Positions of values in a list of any length, at a cost that does not depend on the length.
#
# A perfect hash gives each listed value a slot of its own: the hash of a value chooses a bucket, and the bucket has a
# displacement under which its values fall into slots that no other value has. A look-up reads one displacement and one slot,
# then compares the value with the listed one, so it is exact whatever the hash.
# After Belazzougui, Botelho, Dietzfelbinger, "Hash, displace, and compress", ESA 2009.

# Columns as 64-bit words, such that two values of one type are equal if and only if their words are.


Numbers: TypeAlias = NDArray[Any]  # of int32 or int64, as Arrow has the ends of strings

_INLINE = 12  # bytes that a string view holds itself: the first four next to the length, then eight
_MASKS = np.array([(1 << 8 * length) - 1 for length in range(9)], dtype=np.uint64)
_WIDTHS: dict[int, np.dtype[Any]] = {8 * size: np.dtype(f"<u{size}") for size in (1, 2, 4, 8)}


def most_words(column: pa.Array) -> int:
    """Return how many words the values of a column have at most."""
    if not _is_text(column.type):
        return 2
    _, lengths = _extents(column)
    return 2 + max(0, int(lengths.max(initial=0)) - 5) // 8


def words_of(column: pa.Array, count: int) -> Words64 | None:
    """Return the words of each value, shape (values, words), ``count`` for a string; None if the type has no words.

    The first word of a string has its length, so strings of different lengths differ in it, however many words are read. The
    words of NULL mean nothing.
    """
    if _is_text(column.type):
        return _of_text(column, count)
    if pa.types.is_boolean(column.type):
        return words_of(column.cast(pa.uint8()), count)
    if pa.types.is_decimal128(column.type):
        return _fixed(column, np.dtype(np.uint64), 2)
    width = _WIDTHS.get(column.type.bit_width) if pa.types.is_primitive(column.type) else None
    return None if width is None else _fixed(column, width, 1).astype(np.uint64, copy=False)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _fixed(column: pa.Array, kind: np.dtype[Any], count: int) -> NDArray[Any]:
    """Return the bytes of values of equal size as whole numbers, ``count`` a value."""
    data, first = column.buffers()[1], column.offset * count
    if data is None or not len(column):
        return np.zeros((len(column), count), dtype=kind)
    whole = np.frombuffer(data, dtype=kind, count=first + len(column) * count)
    return whole[first:].reshape(len(column), count)


def _extents(column: pa.Array) -> tuple[Numbers, Numbers]:
    """Return where each string begins, and its length."""
    if not len(column):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    kind = np.int32 if pa.types.is_string(column.type) else np.int64
    ends = np.frombuffer(column.buffers()[1], dtype=kind, count=column.offset + len(column) + 1)[column.offset :]
    return ends[:-1], np.diff(ends)


def _of_text(column: pa.Array, count: int) -> Words64:
    """Return the length and the first four bytes of each string, then eight bytes a word, filled up with zeros."""
    views = _fixed(column.cast(pa.string_view()), np.dtype(np.uint64), 2)
    if count == 2:
        return views
    words = np.zeros((len(column), count), dtype=np.uint64)
    words[:, :2] = views
    begins, lengths = _extents(column)
    long = np.flatnonzero(lengths > _INLINE)
    if len(long):  # their views have an address instead of bytes
        _read_long(words, long, begins[long] - begins[0], lengths[long], _padded(column, begins, lengths))
    return words


def _read_long(
    words: Words64,
    rows: NDArray[np.int64],
    begins: Numbers,
    lengths: Numbers,
    text: NDArray[np.uint8],
) -> None:
    """Put bytes of some rows into all their words but the first."""
    # Eight bytes at any address: NumPy copies them one by one where they are not aligned.
    at = np.ndarray((len(text) - 7,), dtype="<u8", buffer=text, strides=(1,))
    for number, word in enumerate(words.T[1:]):
        left = lengths - (4 + 8 * number)
        if left.min() < 8:
            rows, begins, lengths, left = (part[left > 0] for part in (rows, begins, lengths, left))
        if not len(rows):
            return
        word[rows] = at[begins + (4 + 8 * number)] & _MASKS.take(left, mode="clip")


def _padded(column: pa.Array, begins: Numbers, lengths: Numbers) -> NDArray[np.uint8]:
    """Return the bytes of all strings, and eight more that may be read with the last one."""
    first, last = int(begins[0]), int(begins[-1] + lengths[-1])
    text = np.zeros(last - first + 8, dtype=np.uint8)
    if last > first:
        text[:-8] = np.frombuffer(column.buffers()[2], dtype=np.uint8, count=last)[first:]
    return text


_SPREAD, _GATHER, _PLACE = (np.uint64(odd) for odd in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0xD6E8FEB86659FD93))
_HALF = np.uint64(32)
_TRIES = 1 << 14  # displacements that a bucket may have
_SPARE = 1 << 22  # bytes that the words of strings may take beyond four times the strings
_FEW = 512  # so many values are found as quickly by Arrow, which makes a table of them at every call
_CELLS: dict[int, Any] = {1: np.uint64, 2: np.complex128}  # of so many words: NumPy reads cells of these types fastest
_TIERS = (4, 2, 0)  # buckets of more values than this are placed together, the fullest first


class Listed:
    """Distinct values without NULL, in which the values of columns of the same type are looked up."""

    def __init__(self, values: pa.Array) -> None:
        self._values, self._index = values, Index.of(values) if len(values) > _FEW else None

    def locate(self, column: pa.Array) -> pa.Array:
        """Return the position of each value as int32, null if it is NULL or not listed."""
        if self._index is None or not len(column) or column.type != self._values.type:
            return pc.index_in(column, value_set=self._values)
        positions, same = self._index.positions(column)
        if same.all() and not column.null_count:
            return pa.array(positions)
        found = same.all(axis=1)
        if column.null_count:
            found &= column.is_valid().to_numpy(zero_copy_only=False)
        return pa.array(positions, mask=~found)


@dataclass(frozen=True)
class Index:
    """The words of the listed values, the displacement of each bucket, and the position of the value in each slot."""

    words: Words64  # (values, words)
    displacements: NDArray[np.uint16]
    slots: Codes  # an empty slot holds position 0, whose words decide like those of any other

    @classmethod
    def of(cls, values: pa.Array) -> Index | None:
        """Return the index of distinct values without NULL; None if their type has none, or strings differ much in length."""
        count = most_words(values)
        if 8 * count * len(values) > 4 * values.nbytes + _SPARE:
            return None
        words = words_of(values, count)
        return None if words is None else _placed(np.ascontiguousarray(words))

    def positions(self, column: pa.Array) -> tuple[Codes, NDArray[np.bool_]]:
        """Return a position for each value of a column of the same type, and which of its words the value there has too.

        A value that is not listed differs in a word, shape (values, words). NULL may get any position, and any words.
        """
        words = words_of(column, self.words.shape[1])
        if words is None:
            raise InternalError("values were looked up in an index of another type", "please report the type of the column")
        hashes = _hashes(words)
        positions = self.slots.take(_slots(hashes, self.displacements.take(_buckets(hashes, self.displacements)), self.slots))
        return positions, self._whole.take(positions).view(np.uint64).reshape(words.shape) == words

    @cached_property
    def _whole(self) -> NDArray[Any]:
        """All words of a value as one cell, so that a look-up reads one place of the memory."""
        kind = np.dtype(_CELLS.get(self.words.shape[1], (np.void, 8 * self.words.shape[1])))
        return self.words.view(kind)[:, 0]


def _hashes(words: Words64) -> Words64:
    """Return a hash of each value."""
    hashes = words[:, 0] * _SPREAD
    for word in words.T[1:]:
        hashes ^= hashes >> _HALF  # in place, in the cache
        hashes ^= word
        hashes *= _SPREAD
    hashes ^= hashes >> _HALF
    return hashes


def _buckets(hashes: Words64, displacements: NDArray[np.uint16]) -> NDArray[np.int64]:
    buckets = hashes * _GATHER
    buckets >>= np.uint64(65 - len(displacements).bit_length())
    return buckets.view(np.int64)


def _slots(hashes: Words64, displacements: NDArray[np.uint16] | int, slots: Codes) -> NDArray[np.int64]:
    """Return the slot of each hash under the displacement of its bucket: the slots are a power of two."""
    moved = hashes ^ np.multiply(displacements, _SPREAD, dtype=np.uint64)
    moved *= _PLACE
    moved >>= np.uint64(65 - len(slots).bit_length())
    return moved.view(np.int64)


def _placed(words: Words64) -> Index | None:
    """Return an index of these words; None if two have the same hash, or a bucket finds no slots, both next to impossible."""
    hashes = _hashes(words)
    slots = np.zeros(1 << max(4, (2 * len(words) - 1).bit_length()), dtype=np.int32)
    displacements = np.zeros(len(slots) >> 2, dtype=np.uint16)
    placing = _Placing(hashes, _buckets(hashes, displacements), displacements, slots, np.ones(len(slots), dtype=np.bool_))
    return Index(words, displacements, slots) if placing.succeeds() else None


@dataclass(frozen=True)
class _Placing:
    """The hash and the bucket of each value, the displacements of the buckets, the slots, and which of them are empty."""

    hashes: Words64
    buckets: NDArray[np.int64]
    displacements: NDArray[np.uint16]
    slots: Codes
    empty: NDArray[np.bool_]

    def succeeds(self) -> bool:
        """Place all values; return whether that was possible."""
        sizes, upper = np.bincount(self.buckets, minlength=len(self.displacements))[self.buckets], len(self.buckets)
        for lower in _TIERS:
            waiting, displacement = np.flatnonzero((sizes > lower) & (sizes <= upper)).astype(np.int32), 0
            while len(waiting) and displacement < _TRIES:
                waiting, displacement = self._after(waiting, displacement), displacement + 1
            if len(waiting):
                return False
            upper = lower
        self.slots[self.empty] = 0
        return True

    def _after(self, waiting: Codes, displacement: int) -> Codes:
        """Place the buckets whose values all find slots of their own under a displacement; return the values of the others."""
        at, bucket = _slots(self.hashes[waiting], displacement, self.slots), self.buckets[waiting]
        free = self.empty[at]
        self.slots[at[free]] = waiting[free]  # of several values in one slot, the last one stays
        refused = np.zeros(len(self.displacements), dtype=np.bool_)
        refused[bucket[~free | (self.slots[at] != waiting)]] = True
        placed = ~refused[bucket]
        self.empty[at[placed]] = False
        self.displacements[bucket[placed]] = displacement
        return waiting[~placed]


MOST_LISTED = 1 << 24
_IMPLIED = (pa.string(), pa.int64(), pa.float64(), pa.bool_())  # the types of plain lists
_PART = 1 << 16  # values at a time
_INTEGERS = tuple(np.dtype(f"{sign}{size}") for sign in "iu" for size in (1, 2, 4, 8))
_IN_CACHE = 1 << 16  # values whose strings mostly stay in the processor's cache
_HASHED = 1_000  # about how many values of a domain its hash reads


class Domain:
    """At least two distinct, non-NULL values of one type, in a fixed order; iterating yields them as Python objects.

    >>> list(Domain.of(["Lima", "Oslo"]))
    ['Lima', 'Oslo']
    >>> Domain.of(["Lima", "Oslo"]).codes(pa.array(["Oslo", "Oslo", "Lima"])).tolist()
    [1, 1, 0]
    """

    rounding: float  # how far a number may lie from the value that stands for it

    def __init__(self, values: pa.Array) -> None:
        self.values, self.rounding = values, 0.0
        self._in_type: dict[pa.DataType, tuple[Listed, pa.Array | None]] = {}

    @staticmethod
    def sql_given(parameter: str, otherwise: str | None = None) -> str:
        """Return the SQL for the list that a parameter holds; for NULL the list of another parameter."""
        if otherwise is not None:
            return f"{FIRST_LIST}({quoted(parameter)}, {quoted(otherwise)})"
        return quoted(parameter)

    @classmethod
    def of(cls, given: object) -> Domain:
        """Return the domain of a list, a range, an Arrow array, a Polars series, or the form that `to_json` writes.

        Raises:
            InvalidDomain: for fewer than two values, duplicates, NULL, NaN, or a type without exact equality.
            InvalidParameter: for more than 2^24 values.

        """
        if isinstance(given, Domain):
            return given
        if isinstance(given, Sized) and len(given) > MOST_LISTED:
            raise InvalidParameter(f"a domain may list at most {MOST_LISTED:,} values", "group values, for example by a prefix")
        values = _to_arrow(given)
        if len(values) < 2:
            raise InvalidDomain("a domain must hold at least two values", "declare every value that may occur")
        if family(values.type) is None:
            raise InvalidDomain(
                "the values of a domain must be text, numbers, booleans, dates or timestamps", "cast them in the domain"
            )
        if values.null_count:
            raise InvalidDomain(
                "a domain must not hold NULL", "declare a value for it, and nulls := 'as:VALUE' in the mechanism"
            )
        if pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
            raise InvalidDomain("a domain must not hold NaN", "declare finite numbers only")
        if pa.types.is_floating(values.type):
            values = pc.add(values, 0.0)  # -0.0 equals 0.0
        if _repeats(values):
            raise InvalidDomain("a domain must not hold a value twice", "list every value once")
        return cls(values)

    @property
    def type(self) -> pa.DataType:
        """The Arrow type of the values."""
        return self.values.type

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Any]:
        yield from self.values.to_pylist()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Domain) and self.values.equals(other.values)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        step = 1 + len(self) // _HASHED  # of a long domain only some values: equality compares all of them
        return hash((str(self.values.type), len(self), *self.values[::step].to_pylist()))

    def __repr__(self) -> str:
        return repr(self.to_json())

    @property
    def listed(self) -> Domain:
        """The domain itself: all values can be listed."""
        return self

    @cached_property
    def written(self) -> pa.Array:
        """The values as a column of text, in order; times with a time zone in UTC, whatever the zone of a session is."""
        return in_utc(self.values).cast(pa.string())

    @cached_property
    def digits(self) -> str:
        """The fingerprint of the domain: a digest, in 32 hexadecimal digits, of the type and the values in their order."""
        digest = blake2b(f"{in_utc(self.values[:1]).type} {len(self)} ".encode(), digest_size=16)
        offsets = np.frombuffer(self.written.buffers()[1], np.int32)[self.written.offset :][: len(self) + 1]
        for start in range(0, len(self), _PART):
            digest.update(np.diff(offsets[start : start + _PART + 1]).astype("<i4", copy=False).tobytes())
        digest.update(memoryview(self.written.buffers()[2])[offsets[0] : offsets[-1]])
        return digest.hexdigest()

    @cached_property
    def texts(self) -> list[str]:
        """The values as text, in order."""
        return list(self.written.to_pylist())

    def to_json(self) -> list[Any] | dict[str, Any]:
        """Return a plain list if it implies the type, else the type and the values as strings."""
        return list(self.values.to_pylist()) if self.values.type in _IMPLIED else self._typed()

    def _typed(self) -> dict[str, Any]:
        return {"type": str(self.values.type), "values": self.texts}

    @cached_property
    def rising(self) -> bool:
        """Whether the values are numbers, dates or times, each larger than the one before."""
        if family(self.values.type) in (None, "text", "boolean"):
            return False
        return _strictly_rising(self.values)

    def position(self, text: str) -> int | None:
        """Return the position of the value that this text stands for, None if there is none."""
        if text in self.texts:
            return self.texts.index(text)
        try:
            place = self.values.index(pa.scalar(text).cast(self.values.type)).as_py()  # 1.1 is 1.10, a day its first moment
        except pa.ArrowException:
            return None
        return None if place < 0 else int(place)

    def taken(self, positions: pa.Array) -> pa.Array:
        """Return the values at these positions."""
        if len(self) > _IN_CACHE and pa.types.is_string(self.values.type):
            return self.views_at(positions.to_numpy()).cast(pa.string())  # reads a string in one place instead of two
        return pc.take(self.values, positions, boundscheck=False)

    # Reports that are values are read and written as the forms of `ldpsql.reports` are.

    def to_arrow(self, drawn: Codes) -> pa.Array:
        """Return draws of a channel, which are positions, as a column."""
        return self.taken(pa.array(drawn))

    def possible(self, column: pa.Array) -> NDArray[np.bool_]:
        """Return which rows of a column hold a value."""
        return np.asarray(self.locate(column).is_valid().to_numpy(zero_copy_only=False))

    def positions(self, column: pa.Array) -> NDArray[np.int64]:
        """Return the positions of the reports of a column.

        Raises:
            ImpossibleReport: if one is not a value; the message does not have it, as it may be a raw value.

        """
        found = self.locate(column)
        if found.null_count:
            raise ImpossibleReport(
                f"some reports cannot occur under this mechanism: {found.null_count} distinct",
                "check that these are its reports, and not another column or mechanism",
            )
        return np.asarray(found.to_numpy().astype(np.int64))

    def text(self, report: int) -> str:
        """Return the value at a position as text."""
        return str(self.written[report])

    def views_at(self, positions: Codes) -> pa.Array:
        """Return the values at these positions as text in 16 bytes each, which hold short strings themselves."""
        _, cells, *further = self._views.buffers()
        numbers = np.frombuffer(cells, np.complex128)[self._views.offset :]  # of numbers, those have 16 bytes
        taken: Any = numbers.take(positions)
        return pa.Array.from_buffers(self._views.type, len(positions), [None, pa.py_buffer(taken), *further])

    @cached_property
    def _views(self) -> pa.Array:
        return self.values.cast(pa.string()).cast(pa.string_view())

    @withheld
    def locate(self, column: pa.Array | pa.ChunkedArray) -> pa.Array:
        """Return the position of every value as int32, null if the value is NULL or not in the domain.

        Raises:
            WrongType: if the column's type cannot be compared with the domain's.

        """
        column = plain(column)
        if pa.types.is_dictionary(column.type):
            return pc.take(self.locate(column.dictionary), column.indices)
        if pa.types.is_null(column.type):
            return pa.nulls(len(column), pa.int32())
        if column.type not in self._in_type:
            self._in_type[column.type] = self._converted(column.type)
        listed, positions = self._in_type[column.type]
        if pa.types.is_floating(column.type):
            column = pc.add(column, 0.0).cast(column.type)  # -0.0 equals 0.0
        indices = listed.locate(column)
        return indices if positions is None else positions.take(indices)

    def _converted(self, column_type: pa.DataType) -> tuple[Listed, pa.Array | None]:
        """Return the values that a column's type can hold, and their positions, or None if they are all.

        The domain is public, so the domain is converted, each value exactly. A value that the type cannot hold cannot occur in
        the column.
        """
        if column_type == self.values.type:
            return Listed(self.values), None
        if family(column_type) is None or family(column_type) != family(self.values.type):
            dated = pa.types.is_date(column_type) or pa.types.is_timestamp(column_type)
            listed = f"; outside of SQL, a list of such values is {{'type': '{column_type}', 'values': [...]}}" if dated else ""
            raise WrongType(
                f"the column has type {shown_type(column_type)}, the domain has type {shown_type(self.values.type)}",
                f"declare the domain in the column's type, or cast the column{listed}",
            )
        if (cast := widened(self.values, column_type)) is not None:
            return Listed(cast), None
        cells = [exactly(value, column_type) for value in self.values]
        kept = [place for place, cell in enumerate(cells) if cell is not None]
        values = pa.array([cell.as_py() for cell in cells if cell is not None], column_type)
        if len(pc.unique(values)) < len(values):
            raise WrongType("two values of the domain are the same in the column's type", "declare it in the column's type")
        return Listed(values), pa.array(kept, pa.int32())

    @cached_property
    def _first_of_range(self) -> int | None:
        """The first value if the values are consecutive rising integers, so that a position is a difference; else None."""
        if not pa.types.is_integer(self.values.type):
            return None
        first, last = self.values[0].as_py(), self.values[-1].as_py()
        consecutive = last - first == len(self) - 1 and self.values.to_pylist() == list(range(first, last + 1))
        return int(first) if consecutive and -(2**62) < first < last < 2**62 else None

    @cached_property
    def _first_in(self) -> dict[pa.DataType, Any]:
        """The first value of a range of integers in each type that holds all of its values; empty if it is not a range."""
        first = self._first_of_range
        if first is None:
            return {}
        holding = (kind for kind in _INTEGERS if np.iinfo(kind).min <= first and first + len(self) - 1 <= np.iinfo(kind).max)
        return {pa.from_numpy_dtype(kind): kind.type(first) for kind in holding}

    def _range_codes(self, column: pa.Array) -> Codes | None:
        """Return the positions in a range of integers by subtraction; None if the domain or the column needs a look-up."""
        first = self._first_in.get(column.type)
        if first is None or column.null_count:
            return None
        offset = column.to_numpy().view(f"u{first.itemsize}")
        if first:
            offset = offset - first.view(offset.dtype)  # what lies below the first becomes very large
        return offset.astype(np.int32) if len(offset) and offset.max() < len(self) else None

    @withheld
    def codes(
        self, column: pa.Array | pa.ChunkedArray, *, null_code: int | None = None, outside_code: int | None = None
    ) -> Codes:
        """Return the position of every value; ``null_code`` stands for NULL, ``outside_code`` for values outside.

        Raises:
            MissingValue: for a NULL without ``null_code``.
            OutsideDomain: for a value outside the domain without ``outside_code``.

        """
        column = plain(column)
        direct = self._range_codes(column)
        if direct is not None:
            return direct
        at = self.locate(column)
        if at.null_count:
            missing = column.is_null().to_numpy(zero_copy_only=False)
            outside = at.is_null().to_numpy(zero_copy_only=False) & ~missing
            if null_code is None and missing.any():
                raise MissingValue(*in_rows(MISSING, missing))
            if outside_code is None and outside.any():
                raise OutsideDomain(*in_rows(OUTSIDE, outside))
            codes = at.fill_null(0).to_numpy(zero_copy_only=False)
            return np.select([missing, outside], [np.int32(null_code or 0), np.int32(outside_code or 0)], codes)
        return at.to_numpy(zero_copy_only=False)


MISSING = ("a NULL was to be perturbed, and the mechanism has no rule for NULL", "write nulls := 'as:VALUE' in the mechanism")
OUTSIDE = (
    "a value to be perturbed is outside the declared domain",
    "add it, or write outside := 'as:VALUE' in the mechanism",
)


def in_rows(refusal: tuple[str, str], rows: NDArray[np.bool_]) -> tuple[str, str]:
    """Return message and hint of a refusal, with the number of rows concerned among those read together."""
    return f"{refusal[0]}: {int(rows.sum()):,} of {len(rows):,} rows read together", refusal[1]


def _to_arrow(source: object) -> pa.Array:
    """Return the values of a domain as one plain Arrow array."""
    try:
        if isinstance(source, dict):
            source = pa.array(source["values"], pa.string()).cast(named_type(source["type"]))
        values = column_of(source)
        values = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
        values = values.cast(pa.string()) if pa.types.is_large_string(values.type) else values  # one type for all libraries
        if pa.types.is_temporal(values.type):
            values.to_pylist()  # an infinite date, for example, cannot be represented outside DuckDB
        return copied(values)  # nobody else can change it
    except (WrongType, pa.ArrowException, KeyError, TypeError, ValueError, OverflowError):
        pass
    if isinstance(source, dict) and {"table", "file"} & source.keys():
        hint = "name the mechanism in ldpsql.toml or attach, or pass the column itself, such as frame['item']"
        raise InvalidDomain("a domain must be a list of values here, not the name of a table or a file", hint)
    if isinstance(source, dict):
        hint = "types are those of Arrow, such as 'date32[day]' and 'timestamp[us]'; times with a zone end with Z or +00:00"
        raise InvalidDomain("the values of a domain cannot be read in the type that it names", hint)
    raise InvalidDomain("a domain must be a list of values of one type", "for example ['Lima', 'Oslo', 'Rome']")


def _repeats(values: pa.Array) -> bool:
    """Return whether a value occurs twice, in half the time and less than a third of the memory of pc.unique."""
    if _strictly_rising(values):
        return False
    order = pc.sort_indices(values)
    parts = (values.take(order[start : start + _PART + 1]) for start in range(0, len(order), _PART))
    return any(pc.any(pc.equal(part[1:], part[:-1])).as_py() for part in parts)


def _strictly_rising(values: pa.Array) -> bool:
    """Return whether each value is larger than the one before, without the memory of a sort: text by its bytes in UTF-8."""
    parts = (values[start : start + _PART + 1] for start in range(0, len(values), _PART))
    return all(pc.all(pc.greater(part[1:], part[:-1])).as_py() for part in parts)


DomainField = Annotated[Domain, BeforeValidator(Domain.of), PlainSerializer(Domain.to_json)]
