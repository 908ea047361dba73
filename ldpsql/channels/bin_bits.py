"""Bits of neighbouring bins: a unary encoding in which every key shows the bins near a number, or nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels.base import TOTAL, Codes, Drawn, Floats, SetChannel, Weights, Witness
from ldpsql.channels.bits import bits_of, words_of
from ldpsql.channels.pair_responses import Bins, KeyLaw, PairResponse
from ldpsql.channels.randomness import Words, random_words
from ldpsql.errors import InvalidParameter

_CELLS = 1 << 22  # bits unpacked at a time


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
        """Number of symbols."""
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

    def supports(self, drawn: Drawn) -> NDArray[np.bool_]:
        """Return the bits."""
        return bits_of(drawn, self.inputs)

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
        step = max(1, _CELLS // self.inputs)
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
        """Return the bins."""
        return Bins(self.bins)

    def key_law(self) -> KeyLaw:
        """Return how often any number is shown at a key."""
        other, kept = Fraction(self.places * self.spread, TOTAL), Fraction(self.width * self.near, TOTAL)
        return KeyLaw(other, kept * (1 - other), kept)

    def shown(self, chances: Floats) -> Floats:
        """Return for each symbol the probability that a report supports it."""
        each = chances.reshape(self.keys, self.bins)
        apart = np.abs(np.subtract.outer(np.arange(self.bins), np.arange(self.bins)))
        kept = each @ np.maximum(self.width - apart, 0) * (self.near / TOTAL)
        unmoved = 1.0 - each.sum(axis=1, keepdims=True) * (1.0 - self.mixed / TOTAL)
        return np.asarray(kept + unmoved * float(self.miss)).ravel()

    def tally(self, drawn: Drawn) -> NDArray[np.int64]:
        """Return how many of these reports support each symbol."""
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
