"""Keep the value, or spread evenly over the others: k-ary randomised response and related channels."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import native
from ldpsql.channels.base import TOTAL, Codes, Floats, KeyLaw, PairResponse, Signs, TableChannel, Weights, Witness
from ldpsql.channels.randomness import Words, random_words
from ldpsql.errors import InvalidParameter

# Draws of equal parts and a rest that read the first bits of a random word, and further bits only if those do not decide.


Short: TypeAlias = NDArray[Any]  # of uint16 or uint32
# How many bits are read first, and the most numbers of which these nearly always decide.
_WIDTHS = ((16, 1 << 10), (32, 1 << 24))


@dataclass(frozen=True)
class ShortWords:
    """Draw 0 .. last: all but the last with weight ``each`` out of 2**64, the last with the rest.

    Short words of ``width`` bits are drawn with the first bits of these weights. Those from `decided` on do not decide:
    together with the further bits of a word they have ``last`` equal parts, the further bits of ``each``, then what the last
    lacks.
    """

    last: int
    each: int
    width: int

    @classmethod
    def of(cls, last: int, each: int) -> ShortWords | None:
        """Return the draws with the fewest bits; None if only whole words decide."""
        return next((cls(last, each, width) for width, most in _WIDTHS if last < most and each >> 64 - width), None)

    @property
    def _further(self) -> int:
        return 64 - self.width

    @property
    def decided(self) -> int:
        """How many of the 2**width short words decide."""
        return self.last * (self.each >> self._further) + (TOTAL - self.last * self.each >> self._further)

    def draw(self, count: int, words: Words) -> Short:
        """Draw numbers; a word has several short ones."""
        kind, decided = np.dtype(f"u{self.width // 8}").type, self.decided
        short: Short = words(-(-count * self.width // 64)).view(kind)[:count]
        drawn: Short = short // kind(self.each >> self._further)
        np.minimum(drawn, np.full(count, self.last, kind), out=drawn)  # a fourth of the time of a comparison with one number
        if decided < 1 << self.width and len(rows := np.flatnonzero(short >= kind(decided))):
            drawn[rows] = self._decide(short[rows] - kind(decided), words)
        return drawn

    def _decide(self, first: Short, words: Words) -> Short:
        """Draw numbers from further words for short ones that do not decide, counted from the first such one."""
        whole = first.astype(np.uint64) << np.uint64(self._further) | words(len(first)) >> np.uint64(self.width)
        return np.asarray(np.minimum(whole // np.uint64(self.each & (1 << self._further) - 1), np.uint64(self.last)))


_BLOCK = 1 << 15  # draws at a time, so that what is computed on the way stays in the cache
_MANY = 1 << 13  # from so many draws on, it pays to cut words into short ones


@dataclass(frozen=True)
class KeepOrSpread(TableChannel, PairResponse):
    """Report the value itself with weight ``keep``, each of the ``size - 1`` others with weight ``spread``.

    As a response to sets of pairs its values are the two signs of each key.

    Raises:
        InvalidParameter: unless the weights are whole, positive and sum to 2**64.

    """

    in_step = True
    size: int
    keep: int
    spread: int

    def __post_init__(self) -> None:
        whole = all(type(n) is int and n > 0 for n in (self.size, self.keep, self.spread))
        if not whole or self.size < 2 or self.keep + (self.size - 1) * self.spread != TOTAL:
            raise InvalidParameter("the weights of a keep-or-spread channel must be whole, positive and sum to 2**64")

    @classmethod
    def within(cls, size: int, ratio: Fraction) -> KeepOrSpread:
        """Return the channel that keeps most often among those with keep/spread at most ``ratio``.

        Raises:
            InvalidParameter: if it would not keep the value more often than report each other value.

        """
        # spread >= TOTAL/(ratio+size-1) gives keep = TOTAL-(size-1)*spread <= ratio*spread: rounding up is safe.
        spread = -(-TOTAL * ratio.denominator // (ratio.numerator + (size - 1) * ratio.denominator))
        keep = TOTAL - (size - 1) * spread
        if keep <= spread:
            raise InvalidParameter("epsilon is too small for so many values: the reports would say nothing")
        return cls(size, keep, spread)

    @property
    def inputs(self) -> int:
        return self.size

    @property
    def outputs(self) -> int:
        return self.size

    def rows(self, values: Codes) -> Weights:
        out = np.full((len(values), self.size), self.spread, dtype=np.uint64)
        out[np.arange(len(values)), values] = self.keep
        return out

    @property
    def hit(self) -> Fraction:
        """Probability that the value itself is reported."""
        return Fraction(self.keep, TOTAL)

    @property
    def miss(self) -> Fraction:
        """Probability that a given other value is reported."""
        return Fraction(self.spread, TOTAL)

    def probability(self, value: int, report: int) -> Fraction:
        """Return P(report | value), exactly."""
        return Fraction(self.keep if value == report else self.spread, TOTAL)

    def supporting(self, drawn: Codes, value: int) -> NDArray[np.bool_]:
        """Return which reports are the value itself."""
        return np.asarray(drawn == value)

    def widest(self) -> Witness:
        """Return the largest ratio: at the value itself, or at any other value if lying is likelier than keeping."""
        if self.keep >= self.spread:
            return Witness(Fraction(self.keep, self.spread), 0, 1, 0)
        return Witness(Fraction(self.spread, self.keep), 1, 0, 0)

    def cells(self, steps: int) -> Signs:
        return Signs(steps)

    def key_law(self) -> KeyLaw:
        """Return how often either sign of a key is reported."""
        lift = Fraction(self.keep - self.spread, TOTAL)
        return KeyLaw(Fraction(2 * self.spread, TOTAL), lift, lift)

    def shown(self, chances: Floats) -> Floats:
        """Return the probability of each report."""
        return np.asarray((self.spread + (self.keep - self.spread) * chances) / TOTAL)

    def draw(self, values: Codes, words: Words = random_words) -> Codes:
        """Draw how far to move on: a word has ``size - 1`` equal parts of width ``spread``, then the part that keeps.

        Of many draws each reads only the first bits of a word, and the further bits only if the first ones do not decide.
        """
        drawn = native.keep_or_spread(values, self.size, self.spread) if words is random_words else None
        if drawn is not None:
            return drawn
        short = ShortWords.of(self.size - 1, self.spread) if len(values) >= _MANY else None
        if len(values) <= _BLOCK:
            return self._draw(values, words, short)
        out = np.empty(len(values), dtype=np.int32)
        for start in range(0, len(values), _BLOCK):
            out[start : start + _BLOCK] = self._draw(values[start : start + _BLOCK], words, short)
        return out

    def _draw(self, values: Codes, words: Words, short: ShortWords | None) -> Codes:
        moved = self._steps(words(len(values))) if short is None else short.draw(len(values), words)
        moved += values.view(np.uint32).astype(moved.dtype, copy=False)
        moved += moved.dtype.type(1)
        # From size on, start again at 0; below size the difference wraps to a large number, so the minimum is `moved` itself.
        moved = np.minimum(moved, moved - moved.dtype.type(self.size))
        return moved.astype(np.uint32, copy=False).view(np.int32)

    def _steps(self, word: Weights) -> Short:
        steps = word // np.uint64(self.spread)
        return np.minimum(steps, np.uint64(self.size - 1), out=steps).astype(np.uint32)
