"""Positions of values in a list of any length, at a cost that does not depend on the length.

A perfect hash gives each listed value a slot of its own: the hash of a value chooses a bucket, and the bucket has a
displacement under which its values fall into slots that no other value has. A look-up reads one displacement and one slot, then
compares the value with the listed one, so it is exact whatever the hash.
After Belazzougui, Botelho, Dietzfelbinger, "Hash, displace, and compress", ESA 2009.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ldpsql.channels import Codes, Words64
from ldpsql.errors import InternalError

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
