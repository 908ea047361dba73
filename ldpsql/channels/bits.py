"""Independent bits: unary encodings, one bit per value. Reports are 64-bit words, the first value in the lowest bit."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ldpsql.channels import native
from ldpsql.channels.base import TOTAL, Codes, SetChannel, Weights
from ldpsql.channels.costs import Cost
from ldpsql.channels.randomness import Words, random_words
from ldpsql.errors import InvalidParameter

_BLOCK = 1 << 15  # reports at a time, so that the words stay in the cache
_BITS = 1 << 25  # at a time
_PRECISION = 12  # leading bits of a coarse weight


def coarse_above(probability: Fraction) -> int:
    """Return a weight from ``probability`` to 1/2048 above it, with few nonzero bits, so that it is cheap to draw."""
    exact = -(-TOTAL * probability.numerator // probability.denominator)
    step = 1 << max(0, exact.bit_length() - _PRECISION)
    return -(-exact // step) * step


@dataclass(frozen=True)
class IndependentBits(SetChannel):
    """Set the bit of the value with weight ``own`` out of 2**64, every other bit with weight ``other``.

    Raises:
        InvalidParameter: unless there are at least two values and both weights lie strictly between 0 and 2**64.

    """

    abreast = True
    size: int
    own: int
    other: int

    def __post_init__(self) -> None:
        whole = all(type(n) is int and 0 < n < TOTAL for n in (self.size, self.own, self.other))
        if not whole or self.size < 2 or self.own == self.other:
            raise InvalidParameter("the weights of bits must be whole, between 0 and 2**64, and differ")

    @property
    def ratio(self) -> Fraction:
        """Two bits distinguish two values, the others cancel: own (1 - other) / (other (1 - own))."""
        return Fraction(self.own * (TOTAL - self.other), self.other * (TOTAL - self.own))

    @property
    def hit(self) -> Fraction:
        """Probability that the own bit is set."""
        return Fraction(self.own, TOTAL)

    @property
    def miss(self) -> Fraction:
        """Probability that any other bit is set."""
        return Fraction(self.other, TOTAL)

    @property
    def per_report(self) -> Cost:
        """A nanosecond for each bit."""
        return Cost(1e-7 + 1e-9 * self.size, self.size / 8 + 8)

    def witness(self) -> int:
        """Return the report with the bit of value 0 only."""
        return 1

    def draw(self, values: Codes, words: Words = random_words) -> Weights:
        """Draw all bits with the weight ``other``, 64 at a time, then replace the bit of the value."""
        drawn = native.bits(values, self.size, self.own, self.other) if words is random_words else None
        if drawn is not None:
            return drawn
        width = -(-self.size // 64)
        out, step = np.empty((len(values), width), dtype=np.uint64), min(_BLOCK, max(1, _BITS // self.size))
        for start in range(0, len(values), step):
            out[start : start + step] = self._draw(values[start : start + step], words)
        return out

    def _draw(self, values: Codes, words: Words) -> Weights:
        width = -(-self.size // 64)
        bits = coins(self.other, len(values) * width, words).reshape(-1, width)
        if self.size % 64:
            bits[:, -1] &= np.uint64((1 << self.size % 64) - 1)
        row, word = np.arange(len(values)), values >> 6
        place = (values & 63).astype(np.uint64)
        kept = (words(len(values)) < np.uint64(self.own)).astype(np.uint64)
        bits[row, word] = bits[row, word] & ~(np.uint64(1) << place) | (kept << place)
        return bits


def coins(weight: int, count: int, words: Words) -> Weights:
    """Return words whose bits are all set with probability weight/2**64, independently.

    It reads the binary digits of the probability from the last nonzero one to the first. For a digit 1 it ORs a random word in,
    for a digit 0 it ANDs one; each step halves the probability so far and adds half the digit.
    """
    out = np.zeros(count, dtype=np.uint64)
    for place in range((weight & -weight).bit_length() - 1, 64):
        step = np.bitwise_or if weight >> place & 1 else np.bitwise_and
        step(out, words(count), out=out)
    return out
