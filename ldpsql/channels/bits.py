"""Independent bits: unary encodings with one bit per value, and signed ones with +, - or nothing at every key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import native
from ldpsql.channels.base import (
    TOTAL,
    Bins,
    Codes,
    Drawn,
    Floats,
    KeyLaw,
    PairResponse,
    SetChannel,
    Signs,
    Weights,
    Witness,
    words_of,
)
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


_CELLS = 1 << 24  # bits unpacked at a time
_PLUS = np.uint64(0x5555555555555555)  # the lower bit of every key


@dataclass(frozen=True)
class SignedBits(SetChannel, PairResponse):
    """Symbol 2k is + at key k, symbol 2k + 1 is - there; each report has at most one of the two at each of ``keys`` keys.

    Out of 2**64, the key of the symbol shows its sign with weight ``same``, the other sign with weight ``opposite``, else
    nothing; every other key shows either sign with weight ``spread``. Up to a common factor, reports without the symbol's own
    sign are as likely as under any other symbol, so a report supports the symbols that it shows.

    Raises:
        InvalidParameter: unless the weights are whole and positive, and both "nothing" and the opposite sign are rarer at the
            own key than elsewhere by the same factor. So the own sign is the likeliest, and `ratio` is above 1.

    """

    single: ClassVar[bool] = False
    keys: int
    same: int
    opposite: int
    spread: int

    def __post_init__(self) -> None:
        whole = all(type(n) is int and 0 < n < TOTAL for n in (self.keys, self.same, self.opposite, self.spread))
        nothing = TOTAL - self.same - self.opposite
        if not whole or nothing <= 0 or 2 * self.spread >= TOTAL:
            raise InvalidParameter("the weights of signed bits must be whole, positive and sum to less than 2**64")
        if self.opposite * (TOTAL - 2 * self.spread) != nothing * self.spread:
            raise InvalidParameter("signed bits must show the opposite sign and nothing less often by the same factor")
        if self.opposite >= self.spread:  # else reports without the own sign would tell most
            raise InvalidParameter("signed bits must show the opposite sign less often than at other keys")

    @classmethod
    def within(cls, keys: int, ratio: Fraction) -> SignedBits:
        """Return nearly the best channel whose ratio is at most ``ratio``: + or - elsewhere with probability 2/(ratio + 3).

        Source: Gu, Li, Cheng, Xiong, Cao, "PCKV", USENIX Security 2020, section 5.2.
        """
        spread = coarse_above(2 / (ratio + 3)) // 2
        nothing = TOTAL - 2 * spread
        unit = gcd(spread, nothing)
        # same = TOTAL - scale (spread + nothing)/unit is at most ratio * opposite, opposite = scale * spread/unit.
        scale = -(-TOTAL * unit // ((ratio + 1) * spread + nothing))
        opposite = int(scale) * spread // unit
        return cls(keys, TOTAL - opposite - int(scale) * nothing // unit, opposite, spread)

    @property
    def inputs(self) -> int:
        return 2 * self.keys

    @property
    def ratio(self) -> Fraction:
        """P(own sign | symbol) / P(own sign | the opposite symbol): every other comparison of supports gives the same ratio."""
        return Fraction(self.same, self.opposite)

    @property
    def hit(self) -> Fraction:
        """Probability that the symbol is shown."""
        return Fraction(self.same, TOTAL)

    @property
    def miss(self) -> Fraction:
        """Probability that a given symbol of another key is shown."""
        return Fraction(self.spread, TOTAL)

    @property
    def crossed(self) -> Fraction:
        """Probability that the opposite symbol of the same key is shown."""
        return Fraction(self.opposite, TOTAL)

    def witness(self) -> int:
        """Return the report that shows + at key 0 only."""
        return 1

    def possible(self, drawn: Drawn) -> NDArray[np.bool_]:
        """Return which show at most one sign at every key."""
        return ~(drawn & (drawn >> np.uint64(1)) & _PLUS).any(axis=1)

    def cells(self, steps: int) -> Signs:
        return Signs(steps)

    def key_law(self) -> KeyLaw:
        """Return how often either sign of a key is shown."""
        return KeyLaw(2 * self.miss, self.hit + self.crossed - 2 * self.miss, self.hit - self.crossed)

    def shown(self, chances: Floats) -> Floats:
        """Return for each sign the probability that it is shown: if it was drawn, the opposite one, or another key."""
        swapped = chances.reshape(-1, 2)[:, ::-1].ravel()
        elsewhere = 1.0 - chances - swapped
        return chances * float(self.hit) + swapped * float(self.crossed) + elsewhere * float(self.miss)

    def tally(self, drawn: Drawn) -> NDArray[np.int64]:
        counts = np.zeros(self.inputs, dtype=np.int64)
        for part in np.array_split(drawn, 1 + len(drawn) * self.inputs // _CELLS):
            counts += self.supports(part).sum(axis=0)
        return counts

    def between_sets(self, most: Fraction, together: int) -> Witness:  # noqa: ARG002  # sampling does not weaken it
        """Return the ratio at the report that shows all of one set and nothing of another: + and - at the first keys."""
        return Witness(self.ratio, 0, 1, sum(1 << 2 * key for key in range(together)))

    def size_law(self) -> NDArray[np.float64]:
        """Return the probabilities that a report shows 0 .. 2 keys signs: one key has a probability of its own.

        The second half is zero: a key shows one sign at most.
        """
        own, other = float(self.hit + self.crossed), 2 * float(self.miss)
        law = np.array([1 - own, own])
        taken, others = np.arange(1, self.keys), self.keys - 1
        logs = np.concatenate([[0.0], np.cumsum(np.log((others - taken + 1) / taken * other / (1 - other)))])
        law = np.convolve(np.exp(logs + others * np.log1p(-other)), law)
        return np.concatenate([law, np.zeros(self.keys)])

    def draw(self, values: Codes, words: Words = random_words) -> Weights:
        """Draw all keys as if the symbol had another key, 32 at a time, then replace the own key."""
        out = np.empty((len(values), -(-self.inputs // 64)), dtype=np.uint64)
        for start in range(0, len(values), _BLOCK):
            block = values[start : start + _BLOCK]
            out[start : start + _BLOCK] = self._draw(block, words)
        return out

    def _draw(self, values: Codes, words: Words) -> Weights:
        width = -(-self.inputs // 64)
        signed = coins(2 * self.spread, len(values) * width, words) & _PLUS
        plus = signed & words(len(signed))
        bits = (plus | (signed ^ plus) << np.uint64(1)).reshape(-1, width)
        if self.inputs % 64:
            bits[:, -1] &= np.uint64((1 << self.inputs % 64) - 1)
        row, word, place = np.arange(len(values)), values >> 6, (values & 63).astype(np.uint64)
        drawn, own = words(len(values)), np.uint64(1) << place
        other = np.uint64(1) << (place ^ np.uint64(1))
        kept = np.select([drawn < np.uint64(self.same), drawn < np.uint64(self.same + self.opposite)], [own, other], 0)
        bits[row, word] = bits[row, word] & ~(own | other) | kept.astype(np.uint64)
        return bits


# Bits of neighbouring bins: a unary encoding in which every key shows the bins near a number, or nothing.

_CELLS_OF_BINS = 1 << 22  # bits unpacked at a time


@dataclass(frozen=True)
class BinBits(SetChannel, PairResponse):
    """Symbols are key * bins + bin; a report shows one of ``places`` numbers at each of ``keys`` keys, or nothing there.

    Number y is near the bins y - width + 1 .. y, and the report has the bits of these bins. Out of 2**64, each number is shown
    with weight ``spread`` at any key. At the key of the symbol, with weight ``near`` each, one of the ``width`` numbers near
    its bin replaces what would be shown otherwise. So a report that supports the symbol is likelier by the same factor, and all
    others are equally likely.

    Raises:
        InvalidParameter: unless the weights are whole and positive, and leave a chance for all reports.

    """

    single: ClassVar[bool] = False
    keys: int
    bins: int
    width: int
    spread: int
    near: int

    def __post_init__(self) -> None:
        whole = all(type(n) is int and n > 0 for n in (self.keys, self.bins, self.width, self.spread, self.near))
        if not whole or not 2 <= self.bins >= self.width or self.mixed <= 0 or self.places * self.spread >= TOTAL:
            raise InvalidParameter("the weights of bits of bins must be whole, positive, and leave a chance for all reports")

    @classmethod
    def within(cls, keys: int, bins: int, ratio: Fraction) -> BinBits:
        """Return the channel with the window of the piecewise mechanism whose ratio is at most ``ratio``.

        Its window has 1/s of the bins, s the root of the ratio, and other keys show a number with probability 1/(s + 1). If
        the bins are fine enough, the key of the symbol shows one with 1/2, as in PCKV-UE.
        """
        root = float(ratio) ** 0.5
        width = min(max(1, round(bins / root)), bins)
        spread = int(TOTAL / (root + 1) / (bins + width - 1))
        # 1 + TOTAL near / ((TOTAL - width near) spread) <= ratio, solved for near and rounded down.
        return cls(keys, bins, width, spread, int((ratio - 1) * spread * TOTAL / (TOTAL + (ratio - 1) * spread * width)))

    @property
    def inputs(self) -> int:
        return self.keys * self.bins

    @property
    def places(self) -> int:
        """How many numbers a key can show."""
        return self.bins + self.width - 1

    @property
    def mixed(self) -> int:
        """Weight of a report in which the symbol has no effect."""
        return TOTAL - self.width * self.near

    @property
    def ratio(self) -> Fraction:
        """P(report | a symbol that it supports) / P(report | one that it does not support)."""
        return 1 + Fraction(self.near * TOTAL, self.mixed * self.spread)

    @property
    def miss(self) -> Fraction:
        """Probability that a given symbol of another key is supported."""
        return Fraction(self.width * self.spread, TOTAL)

    @property
    def hit(self) -> Fraction:
        """Probability that the symbol is supported."""
        return Fraction(self.width * self.near, TOTAL) + Fraction(self.mixed, TOTAL) * self.miss

    def witness(self) -> int:
        """Return the report that supports the first symbol only."""
        return 1

    def patterns(self) -> NDArray[np.bool_]:
        """Return the bits of each number, and none in the last row for nothing, shape (places + 1, bins)."""
        number, first = np.arange(self.places + 1)[:, None], np.arange(self.bins)
        return (first <= number) & (number < first + self.width) & (number < self.places)

    def numbers(self, held: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return the number that each key shows, ``places`` for nothing: (reports, symbols) -> (reports, keys)."""
        bits = held.reshape(-1, self.keys, self.bins)
        first, lowest = bits.argmax(axis=2), bits[:, :, 0]
        shown = np.where(first > 0, first + self.width - 1, self.places)
        shown[lowest] = bits[lowest].sum(axis=1) - 1
        return shown

    def blocks(self, reports: int) -> Iterator[slice]:
        """Yield which reports to unpack next."""
        step = max(1, _CELLS_OF_BINS // self.inputs)
        for start in range(0, reports, step):
            yield slice(start, start + step)

    def possible(self, drawn: Drawn) -> NDArray[np.bool_]:
        """Return which show a number, or nothing, at every key."""
        out, patterns = np.empty(len(drawn), dtype=np.bool_), self.patterns()
        for part in self.blocks(len(drawn)):
            held = self.supports(drawn[part])
            out[part] = (patterns[np.minimum(self.numbers(held), self.places)].reshape(held.shape) == held).all(axis=1)
        return out

    def cells(self, steps: int) -> Bins:  # noqa: ARG002  # bins are not drawn
        return Bins(self.bins)

    def key_law(self) -> KeyLaw:
        """Return how often any number is shown at a key."""
        other, kept = Fraction(self.places * self.spread, TOTAL), Fraction(self.width * self.near, TOTAL)
        return KeyLaw(other, kept * (1 - other), kept)

    def shown(self, chances: Floats) -> Floats:
        each = chances.reshape(self.keys, self.bins)
        apart = np.abs(np.subtract.outer(np.arange(self.bins), np.arange(self.bins)))
        kept = each @ np.maximum(self.width - apart, 0) * (self.near / TOTAL)
        unmoved = 1.0 - each.sum(axis=1, keepdims=True) * (1.0 - self.mixed / TOTAL)
        return np.asarray(kept + unmoved * float(self.miss)).ravel()

    def tally(self, drawn: Drawn) -> NDArray[np.int64]:
        return np.sum([self.supports(drawn[part]).sum(axis=0) for part in self.blocks(len(drawn))], axis=0, dtype=np.int64)

    def between_sets(self, most: Fraction, together: int) -> Witness:  # noqa: ARG002  # sampling does not weaken it
        """Return the ratio at the report that shows the first number at all keys of both sets: the first bins, and the last."""
        return Witness(self.ratio, 0, self.bins - 1, sum(1 << self.bins * key for key in range(together)))

    def size_law(self) -> None:
        """Return None: how many bins a report supports depends on where its numbers are."""
        return

    def draw(self, values: Codes, words: Words = random_words) -> Weights:
        """Draw all keys as if the symbol had another key, then perhaps replace what its own key shows."""
        out = np.empty((len(values), -(-self.inputs // 64)), dtype=np.uint64)
        for part in self.blocks(len(values)):
            out[part] = self._draw(values[part], words)
        return out

    def _draw(self, values: Codes, words: Words) -> Weights:
        drawn = words(len(values) * self.keys) // np.uint64(self.spread)
        shown = np.minimum(drawn, np.uint64(self.places)).astype(np.int64).reshape(-1, self.keys)
        key, first = np.divmod(values.astype(np.int64), self.bins)
        moved = words(len(values)) // np.uint64(self.near)
        own = np.flatnonzero(moved < np.uint64(self.width))
        shown[own, key[own]] = first[own] + moved[own].astype(np.int64)
        return words_of(self.patterns()[shown].reshape(len(values), self.inputs))
