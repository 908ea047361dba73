"""Any finite channel, as a table of whole numbers, drawn by integer alias tables."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels.alias import AliasTables
from ldpsql.channels.base import TOTAL, Channel, Codes, Weights, Witness
from ldpsql.errors import InvalidParameter
from ldpsql.privacy import exp_below
from ldpsql.randomness import Words, random_words


class DenseChannel(Channel):
    """A channel given by its weights, an array of uint64 of shape ``(inputs, outputs)`` whose rows sum to 2**64.

    Raises:
        InvalidParameter: for another type or shape, or a row with another sum.

    """

    def __init__(self, weights: Weights) -> None:
        if weights.dtype != np.uint64 or weights.ndim != 2 or min(weights.shape) < 2:
            raise InvalidParameter("weights must be unsigned 64-bit whole numbers, at least two values by two reports")
        if not _rows_sum_to_total(weights):
            raise InvalidParameter("every row of weights must sum to 2**64")
        self._weights = weights.copy()
        self._weights.flags.writeable = False
        self.tables = AliasTables.of(self._weights)

    @property
    def inputs(self) -> int:
        """Number of values."""
        return self._weights.shape[0]

    @property
    def outputs(self) -> int:
        """Number of reports."""
        return self._weights.shape[1]

    def rows(self, values: Codes) -> Weights:
        """Return the rows of weights of these values."""
        return self._weights[values]

    def widest(self) -> Witness | None:
        """Return the largest ratio of two weights in a column, compared as whole numbers."""
        w = self._weights
        high, low = w.max(axis=0), w.min(axis=0)
        if np.any((low == 0) & (high > 0)):
            return None
        used = np.flatnonzero(high)
        ratio, report = max((Fraction(int(high[y]), int(low[y])), int(y)) for y in used)
        return Witness(ratio, int(w[:, report].argmax()), int(w[:, report].argmin()), report)

    def draw(self, values: Codes, words: Words = random_words) -> Codes:
        """Draw one report for each value, one word each."""
        return self.tables.draw(values, words)


def _rows_sum_to_total(weights: Weights) -> bool:
    """Tell whether each row sums to exactly 2**64: the 32-bit halves are added apart, so nothing wraps."""
    high = (weights >> np.uint64(32)).sum(axis=1, dtype=np.uint64)
    low = (weights & np.uint64(0xFFFFFFFF)).sum(axis=1, dtype=np.uint64)
    return all((int(h) << 32) + int(part) == TOTAL for h, part in zip(high, low, strict=True))


def floor_mixing(rows: Sequence[Sequence[Fraction]], epsilon: Fraction) -> DenseChannel:
    """Round an exact channel to whole numbers so that ratios within e^epsilon stay within e^epsilon.

    Every probability P becomes (TOTAL - g m) P + g, rounded to a neighbouring whole number, with m reports and a floor
    g >= coth(epsilon/2): the floor outweighs what the rounding can do to a ratio.

    Args:
        rows: probabilities P(report|value), each row summing to exactly 1.
        epsilon: the smallest exponent by which two rows are to stay comparable.

    """
    grown = exp_below(epsilon)
    floor = -(-(grown + 1) // (grown - 1))  # coth(epsilon/2) = (e^epsilon + 1)/(e^epsilon - 1), from above
    if floor * len(rows[0]) >= TOTAL:
        raise InvalidParameter("this channel is too close to constant to be kept in whole numbers")
    return DenseChannel(np.stack([_round_row(row, int(floor)) for row in rows]))


def _round_row(row: Sequence[Fraction], floor: int) -> NDArray[np.uint64]:
    """Round one row to whole numbers that sum to TOTAL, each within one of its exact value (largest remainders)."""
    exact = [(TOTAL - floor * len(row)) * p + floor for p in row]
    whole = [int(v) for v in exact]
    by_remainder = sorted(range(len(row)), key=lambda y: exact[y] - whole[y], reverse=True)
    for y in by_remainder[: TOTAL - sum(whole)]:
        whole[y] += 1
    return np.array(whole, dtype=np.uint64)
