"""Positions of values in a list of any length, at a cost that does not depend on the length.

A perfect hash gives each listed value a slot of its own: the hash of a value chooses a bucket, and the bucket has a
displacement under which its values fall into slots that no other value has. A look-up reads one displacement and one slot, then
compares the value with the listed one, so it is exact whatever the hash.
After Belazzougui, Botelho, Dietzfelbinger, "Hash, displace, and compress", ESA 2009.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ldpsql.channels import Codes, Words64
from ldpsql.domains.words import most_words, words_of
from ldpsql.errors import InternalError

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
