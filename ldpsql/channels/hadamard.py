"""Hadamard response, a parity check that the value passes more often than others, and random subsets of a fixed size."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels.base import TOTAL, Codes, Drawn, SetChannel, Weights, words_of
from ldpsql.channels.costs import Cost
from ldpsql.channels.randomness import Words, random_words
from ldpsql.errors import InvalidParameter

_CELLS = 1 << 20  # of the table of parities, at a time


@dataclass(frozen=True)
class Hadamard(SetChannel):
    """Report the values x whose number x + 1 has an even number of bits in common with a mask.

    Of the 2**``bits`` masks, the value passes half. With weight ``inside`` out of 2**64 the mask is a random one of these, else
    a random one of the others.

    Raises:
        InvalidParameter: unless there are at least two values and a weight between 0 and 2**64 that is not in the middle.

    """

    size: int
    inside: int

    def __post_init__(self) -> None:
        whole = all(type(n) is int for n in (self.size, self.inside))
        if not whole or self.size < 2 or not 0 < self.inside < TOTAL or 2 * self.inside == TOTAL:
            raise InvalidParameter(
                "Hadamard response needs at least two values, and a weight that is not certain and not a half"
            )

    @classmethod
    def within(cls, size: int, ratio: Fraction) -> Hadamard:
        """Return the channel that supports the value most often among those whose ratio is at most ``ratio``."""
        return cls(size, int(ratio * TOTAL / (1 + ratio)))

    @property
    def bits(self) -> int:
        """Number of bits of a mask: the least for which the numbers 1 .. size fit."""
        return self.size.bit_length()

    @property
    def ratio(self) -> Fraction:
        """A value passes half of the masks."""
        return Fraction(self.inside, TOTAL - self.inside)

    @property
    def hit(self) -> Fraction:
        """Probability that the value passes."""
        return Fraction(self.inside, TOTAL)

    @property
    def miss(self) -> Fraction:
        """Probability that another value passes: of the masks that the value passes, another passes half."""
        return Fraction(1, 2)

    def size_law(self) -> None:
        """Return None: how many values pass depends a little on the value."""

    def witness(self) -> int:
        """Return the set of mask 2, which value 0, of number 1, passes and value 1, of number 2, does not."""
        return sum(1 << x for x in range(self.size) if not (x + 1) & 2)

    def possible(self, drawn: Drawn) -> NDArray[np.bool_]:
        """Return which are the sets of a mask: that of the single bits at which a number 2**i does not pass."""
        held = self.supports(drawn)
        powers = 1 << np.arange(self.bits)
        masks: Weights = (~held[:, powers - 1]).astype(np.uint64) @ powers.astype(np.uint64)
        return np.asarray((self.sets(masks) == drawn).all(axis=1))

    def draw(self, values: Codes, words: Words = random_words) -> Weights:
        """Draw a mask, and flip it at a bit of the value's number unless it should pass as it does."""
        masks = words(len(values)) >> np.uint64(64 - self.bits)
        numbers = values.astype(np.uint64) + np.uint64(1)
        inside = words(len(values)) < np.uint64(self.inside)
        lowest = numbers & (~numbers + np.uint64(1))
        return self.sets(np.where(_passes(masks, numbers) == inside, masks, masks ^ lowest))

    def sets(self, masks: Weights) -> Weights:
        """Return the set of each mask, shape ``(masks, words)``."""
        numbers = np.arange(1, self.size + 1, dtype=np.uint64)
        step = max(1, _CELLS // self.size)
        parts = [words_of(_passes(masks[at : at + step, None], numbers)) for at in range(0, len(masks), step)]
        return np.concatenate(parts) if parts else np.empty((0, -(-self.size // 64)), dtype=np.uint64)


def _passes(masks: Weights, numbers: Weights) -> NDArray[np.bool_]:
    """Return which numbers have an even number of bits in common with the masks; the arguments broadcast."""
    return np.asarray(np.bitwise_count(masks & numbers) % 2 == 0)


# Hadamard response with blocks, as a table of two weights: which reports a value favours, and its signs.
#
# The value of row n of a block favours the reports of this block that have an even number of bits in common with n.


BlockSigns: TypeAlias = NDArray[np.int8]  # shape (values, reports)


def signs_in_blocks(values: int, size: int, blocks: int) -> BlockSigns:
    """Return the signs of values that fill the rows of blocks in turn, without the first row of each."""
    number = np.arange(values)
    return _signs(number // (size - 1), number % (size - 1) + 1, size, size * blocks)


def _signs(blocks: NDArray[np.int64], numbers: NDArray[np.int64], size: int, outputs: int) -> BlockSigns:
    place = np.arange(outputs)
    odd = (np.bitwise_count(numbers[:, None] & (place % size)) & 1).astype(np.int8)
    return np.where(place // size == blocks[:, None], 1 - 2 * odd, 0).astype(np.int8)


def signs_of(weights: Weights) -> BlockSigns | None:
    """Return the signs of a table of weights: 1 for favoured reports, -1 for others of the block, else 0.

    None if the table has another structure, or only one block.

    >>> signs_of(np.array([[3, 1, 3, 1, 1, 1, 1, 1], [1, 1, 1, 1, 3, 3, 1, 1]], dtype=np.uint64)).tolist()
    [[1, -1, 1, -1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1, -1, -1]]
    """
    low, outputs = weights[0].min(), weights.shape[1]
    half = int((weights[0] != low).sum())
    size = 2 * half
    if not half or half & (half - 1) or outputs % size or outputs == size:
        return None
    favoured = weights != low
    if np.ptp(weights[favoured]):
        return None
    blocks = favoured.argmax(axis=1) // size
    powers = 1 << np.arange(half.bit_length())
    numbers = ~favoured[np.arange(len(favoured))[:, None], blocks[:, None] * size + powers] @ powers
    signs = _signs(blocks, numbers, size, outputs)
    distinct = len(np.unique(blocks * size + numbers)) == len(numbers)
    return signs if distinct and numbers.all() and np.array_equal(signs > 0, favoured) else None


# Random subsets of a fixed size that hold the value more often than others. Reports are 64-bit words, one bit per value.

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
    def ratio(self) -> Fraction:
        """A set with the value is one of C(size-1, chosen-1), a set without it one of C(size-1, chosen)."""
        return Fraction(self.inside * (self.size - self.chosen), (TOTAL - self.inside) * self.chosen)

    @property
    def hit(self) -> Fraction:
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
