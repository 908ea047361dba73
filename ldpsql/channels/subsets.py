"""Random subsets of a fixed size that hold the value more often than others. Reports are 64-bit words, one bit per value."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels.base import TOTAL, Codes, Drawn, SetChannel, Weights
from ldpsql.channels.bits import bits_of, words_of
from ldpsql.channels.costs import Cost
from ldpsql.channels.randomness import Words, random_words
from ldpsql.errors import InvalidParameter

_BLOCK = 1 << 20  # keys at a time


@dataclass(frozen=True)
class Subsets(SetChannel):
    """Report ``chosen`` of the ``size`` values: with weight ``inside`` out of 2**64 the value is one of them.

    Raises:
        InvalidParameter: unless 0 < chosen < size and the weight lies strictly between 0 and 2**64.

    """

    abreast = True
    size: int
    chosen: int
    inside: int

    def __post_init__(self) -> None:
        whole = all(type(n) is int for n in (self.size, self.chosen, self.inside))
        if not whole or not (0 < self.chosen < self.size and 0 < self.inside < TOTAL):
            raise InvalidParameter("a subset must hold some of the values, not all, and its weight must not be certain")

    @classmethod
    def within(cls, size: int, chosen: int, ratio: Fraction) -> Subsets:
        """Return the channel that holds the value most often among those whose ratio is at most ``ratio``."""
        # ratio = inside (size-chosen) / ((TOTAL-inside) chosen), solved for inside and rounded down.
        lifted = ratio * chosen
        return cls(size, chosen, int(lifted * TOTAL / (size - chosen + lifted)))

    @property
    def inputs(self) -> int:
        """Number of values."""
        return self.size

    @property
    def ratio(self) -> Fraction:
        """A set with the value is one of C(size-1, chosen-1), a set without it one of C(size-1, chosen)."""
        return Fraction(self.inside * (self.size - self.chosen), (TOTAL - self.inside) * self.chosen)

    @property
    def hit(self) -> Fraction:
        """Probability that the set holds the value."""
        return Fraction(self.inside, TOTAL)

    def size_law(self) -> NDArray[np.float64]:
        """Return probability 1 for as many values as are chosen."""
        return (np.arange(self.size + 1) == self.chosen).astype(np.float64)

    @property
    def miss(self) -> Fraction:
        """Probability that the set holds a given other value."""
        return (self.chosen - self.hit) / (self.size - 1)

    @property
    def per_report(self) -> Cost:
        """A random key for each value, which are sorted: 50 nanoseconds each."""
        return Cost(1e-7 + 5e-8 * self.size, self.size / 8 + 8)

    def witness(self) -> int:
        """Return a set with value 0 and without value 1."""
        return (1 << (self.chosen + 1)) - 1 - 2

    def supports(self, drawn: Drawn) -> NDArray[np.bool_]:
        """Return the sets."""
        return bits_of(drawn, self.size)

    def possible(self, drawn: Drawn) -> NDArray[np.bool_]:
        """Return which have the right number of values."""
        return np.bitwise_count(drawn).sum(axis=1, dtype=np.int64) == self.chosen  # beyond the last value no bit is set

    def draw(self, values: Codes, words: Words = random_words) -> Weights:
        """Draw whether the value is in the set, then choose the others with the smallest of random keys."""
        step = max(1, _BLOCK // self.size)
        parts = [self._draw(values[start : start + step], words) for start in range(0, len(values), step)]
        return np.concatenate(parts) if parts else np.empty((0, -(-self.size // 64)), dtype=np.uint64)

    def _draw(self, values: Codes, words: Words) -> Weights:
        held = words(len(values)) < np.uint64(self.inside)
        others = _uniform_subsets(self.size - 1, self.chosen - held.astype(np.int64), words)
        place = np.arange(self.size - 1)
        bits = np.zeros((len(values), self.size), dtype=np.bool_)
        np.put_along_axis(bits, place + (place >= values[:, None]), others, axis=1)
        bits[np.arange(len(values)), values] = held
        return words_of(bits)


def _uniform_subsets(size: int, chosen: NDArray[np.int64], words: Words) -> NDArray[np.bool_]:
    """Return for each row an exactly uniform subset of ``chosen`` out of ``size``: rows with tied keys are drawn again."""
    keys = words(len(chosen) * size).reshape(len(chosen), size)
    last = np.take_along_axis(np.sort(keys, axis=1), np.maximum(chosen - 1, 0)[:, None], axis=1)
    out = (keys <= last) & (chosen > 0)[:, None]
    tied = np.flatnonzero(out.sum(axis=1) != chosen)
    if len(tied):
        out[tied] = _uniform_subsets(size, chosen[tied], words)
    return out
