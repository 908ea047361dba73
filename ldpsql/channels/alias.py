"""Integer alias tables: exact draws from many rows of whole-number weights, one 64-bit word per draw.

Source: Walker, "An efficient method for generating discrete random variables with general distributions", ACM TOMS 1977.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ldpsql.channels import native
from ldpsql.channels.base import Codes, Weights
from ldpsql.channels.randomness import Words, random_words

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
        bits = max(1, (weights.shape[1] - 1).bit_length())
        packed = np.zeros((len(weights), 1 << bits), dtype=np.uint64)
        packed[:, : weights.shape[1]] = weights
        for row in packed:
            row[:] = _packed(row, bits)
        return cls(packed, bits)

    def draw(self, rows: Codes, words: Words) -> Codes:
        """Draw one report from each of the given rows."""
        drawn = native.alias(rows, self.packed, self.bits) if words is random_words else None
        if drawn is not None:
            return drawn
        out = np.empty(len(rows), dtype=np.int32)
        for start in range(0, len(rows), _BLOCK):
            block = rows[start : start + _BLOCK]
            out[start : start + _BLOCK] = self._draw(block, words(len(block)))
        return out

    def _draw(self, rows: Codes, word: Weights) -> Codes:
        low = np.uint64((1 << self.bits) - 1)
        column = (word >> np.uint64(64 - self.bits)).view(np.int64)
        at = column
        if len(self.packed) > 1:
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


def _packed(weights: Weights, bits: int) -> Weights:
    """Return the columns of one row: reports below capacity lack weight, which the others give in order.

    What the smaller reports lack and what the others can spare are added up in order. A report gives from where the spare
    weight of those before it ends. It takes from the one after it what it gave beyond its own.
    """
    capacity = np.uint64(1 << (64 - bits))
    small, large = np.flatnonzero(weights < capacity), np.flatnonzero(weights >= capacity)
    lacks, spare = capacity - weights[small], np.cumsum(weights[large] - capacity, dtype=np.uint64)
    lacking = np.cumsum(lacks, dtype=np.uint64)
    threshold, alias = weights.copy(), np.arange(len(weights))
    alias[small] = large[np.searchsorted(spare, lacking - lacks)]
    first = np.searchsorted(lacking, spare, side="right")  # the first report that the spare weight up to here does not fill
    short = np.flatnonzero(first < len(small))
    threshold[large] = 0  # it fills its column, and is its own alias
    threshold[large[short]] = capacity - (lacking[first[short]] - spare[short])
    alias[large[short]] = large[short + 1]
    return np.asarray(threshold << np.uint64(bits) | alias.astype(np.uint64), dtype=np.uint64)
