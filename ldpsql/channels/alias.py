"""Integer alias tables: exact draws from many rows of whole-number weights, one 64-bit word per draw.

Source: Walker, "An efficient method for generating discrete random variables with general distributions", ACM TOMS 1977.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ldpsql.channels.base import Codes, Weights
from ldpsql.channels.randomness import Words

_ROWS = 256  # rows at a time, when they are recounted
_BLOCK = 1 << 14  # draws at a time, so that what is computed on the way stays in the cache


@dataclass(frozen=True)
class AliasTables:
    """For each row 2**bits columns of capacity 2**(64-bits), each filled by its own report and at most one other.

    The top ``bits`` of a word pick the column. If the rest of the word is below ``threshold``, it gives the column's own
    report, else the column's ``alias``. Both are stored in one word, threshold * 2**bits + alias, so that a draw reads memory
    once; a column that its own report fills is its own alias.
    """

    packed: Weights  # (rows, columns)
    bits: int

    @property
    def threshold(self) -> Weights:
        """Weight that each column keeps for its own report, shape (rows, columns)."""
        return self.packed >> np.uint64(self.bits)

    @property
    def alias(self) -> Codes:
        """The other report of each column, shape (rows, columns)."""
        return (self.packed & np.uint64((1 << self.bits) - 1)).astype(np.int32)

    @classmethod
    def of(cls, weights: Weights) -> AliasTables:
        """Return the tables of all rows; each row of ``weights`` sums to 2**64."""
        rows, outputs = weights.shape
        bits = max(1, (outputs - 1).bit_length())
        columns, capacity = 1 << bits, np.uint64(1 << (64 - bits))
        left = np.zeros((rows, columns), dtype=np.uint64)  # weight of each report that is not placed yet
        left[:, :outputs] = weights
        threshold, alias = np.empty_like(left), np.empty((rows, columns), dtype=np.int32)
        # Reports below capacity first, then the others: `small` and `large` walk through the two parts.
        order = np.argsort(left >= capacity, axis=1, kind="stable")
        count_small = (left < capacity).sum(axis=1)
        small, large = np.zeros(rows, dtype=np.int64), count_small.copy()
        every = np.arange(rows)
        for _ in range(columns):  # each step finishes one column of every row
            giver = order[every, np.minimum(large, columns - 1)]
            spent = left[every, giver] < capacity  # the giver gave away so much that it is small itself
            take_small = ~spent & (small < count_small)
            column = np.where(take_small, order[every, np.minimum(small, columns - 1)], giver)
            following = order[every, np.minimum(large + 1, columns - 1)]
            donor = np.where(take_small, giver, np.where(spent, following, column))
            own = np.minimum(left[every, column], capacity)
            threshold[every, column], alias[every, column] = own, donor
            left[every, column] -= own
            left[every, donor] -= capacity - own
            small += take_small
            large += ~take_small
        full = threshold == capacity
        alias = np.where(full, np.arange(columns), alias)
        threshold = np.where(full, np.uint64(0), threshold)
        return cls(threshold << np.uint64(bits) | alias.astype(np.uint64), bits)

    def draw(self, rows: Codes, words: Words) -> Codes:
        """Draw one report from each of the given rows."""
        out = np.empty(len(rows), dtype=np.int32)
        for start in range(0, len(rows), _BLOCK):
            block = rows[start : start + _BLOCK]
            out[start : start + _BLOCK] = self._draw(block, words(len(block)))
        return out

    def _draw(self, rows: Codes, word: Weights) -> Codes:
        low = np.uint64((1 << self.bits) - 1)
        column = (word >> np.uint64(64 - self.bits)).view(np.int64)
        at = rows.astype(np.int64)
        at <<= self.bits
        at += column
        entry = self.packed.ravel().take(at)
        other = (entry & low).view(np.int64)
        # Shifting the column out leaves the rest at the height of the threshold, above the bits of the alias.
        return np.where((word << np.uint64(self.bits)) < (entry & ~low), column, other)

    def make(self, weights: Weights) -> bool:
        """Return whether the tables draw with exactly these weights, recounted from the tables alone."""
        outputs, blocks = weights.shape[1], range(0, len(weights), _ROWS)
        if type(self.packed) is not np.ndarray or self.packed.shape != (len(weights), 1 << self.bits):
            return False
        recounted = (self._recounted(slice(start, start + _ROWS)) for start in blocks)
        return all(
            np.array_equal(part[:, :outputs], weights[start : start + _ROWS]) and not part[:, outputs:].any()
            for start, part in zip(blocks, recounted, strict=True)
        )

    def _recounted(self, rows: slice) -> Weights:
        """Return the weights with which some rows of the tables draw each report."""
        part = AliasTables(self.packed[rows], self.bits)
        total, capacity = part.threshold, np.uint64(1 << (64 - self.bits))
        np.add.at(total, (np.arange(len(total))[:, None], part.alias), capacity - total)
        return total
