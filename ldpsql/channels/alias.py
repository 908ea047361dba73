"""Integer alias tables: exact draws from many rows of whole-number weights, one 64-bit word a draw.

Source: Walker, "An efficient method for generating discrete random variables with general distributions", ACM TOMS 1977.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels.base import TOTAL, Codes, Weights
from ldpsql.randomness import Words


@dataclass(frozen=True)
class AliasTables:
    """For each row 2**bits columns of capacity 2**(64-bits), each filled by its own report and at most one other.

    The top ``bits`` of a word pick the column; the rest of the word, below ``threshold``, keeps the column's own report,
    else gives its ``alias``.
    """

    threshold: NDArray[np.uint64]  # (rows, columns)
    alias: Codes  # (rows, columns)
    bits: int

    @classmethod
    def of(cls, weights: Weights) -> AliasTables:
        """Build the tables of all rows at once; each row of ``weights`` sums to 2**64."""
        rows, outputs = weights.shape
        bits = max(1, (outputs - 1).bit_length())
        columns, capacity = 1 << bits, np.uint64(1 << (64 - bits))
        left = np.zeros((rows, columns), dtype=np.uint64)  # weight of each report still to be placed
        left[:, :outputs] = weights
        threshold, alias = np.empty_like(left), np.empty((rows, columns), dtype=np.int32)
        # Reports below capacity first, then the others: `small` and `large` walk through the two parts.
        order = np.argsort(left >= capacity, axis=1, kind="stable")
        count_small = (left < capacity).sum(axis=1)
        small, large = np.zeros(rows, dtype=np.int64), count_small.copy()
        every = np.arange(rows)
        for _ in range(columns):  # each step finishes one column of every row
            giver = order[every, np.minimum(large, columns - 1)]
            spent = left[every, giver] < capacity  # the giver gave so much that it became small itself
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
        return cls(threshold, alias, bits)

    def draw(self, rows: Codes, words: Words) -> Codes:
        """Draw one report from each of the given rows."""
        word = words(len(rows))
        rest = np.uint64(64 - self.bits)
        column = (word >> rest).astype(np.int32)
        at = rows.astype(np.int64) * (1 << self.bits) + column
        keep = (word & ((np.uint64(1) << rest) - np.uint64(1))) < self.threshold.ravel()[at]
        return np.where(keep, column, self.alias.ravel()[at])

    def weights(self, outputs: int) -> list[list[int]]:
        """Give back the weights that the tables were made from, recounted from the tables alone."""
        capacity = TOTAL >> self.bits
        recounted = []
        for threshold, alias in zip(self.threshold.tolist(), self.alias.tolist(), strict=True):
            row = [0] * (1 << self.bits)
            for column, (own, other) in enumerate(zip(threshold, alias, strict=True)):
                row[column] += own
                row[other] += capacity - own
            recounted.append(row[:outputs])
        return recounted
