"""Keep the value, or spread evenly over the others: k-ary randomised response and related channels."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels.base import TOTAL, Codes, TableChannel, Weights, Witness
from ldpsql.channels.pair_responses import Floats, KeyLaw, PairResponse, Signs
from ldpsql.channels.randomness import Words, random_words
from ldpsql.errors import InvalidParameter

_BLOCK = 1 << 15  # draws at a time, so that what is computed on the way stays in the cache
_MANY = 1 << 13  # from so many draws on, words are cut into short ones
# Short words, and the most values for which nearly all of them decide a draw.
_SHORT: tuple[tuple[type[np.uint16 | np.uint32], int], ...] = ((np.uint16, 1 << 10), (np.uint32, 1 << 24))


@dataclass(frozen=True)
class KeepOrSpread(TableChannel, PairResponse):
    """Report the value itself with weight ``keep``, each of the ``size - 1`` others with weight ``spread``.

    As a response to sets of pairs its values are the two signs of each key.

    Raises:
        InvalidParameter: unless the weights are whole, positive and sum to 2**64.

    """

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
        """Number of values."""
        return self.size

    @property
    def outputs(self) -> int:
        """Number of reports."""
        return self.size

    def rows(self, values: Codes) -> Weights:
        """Return the rows of weights of these values."""
        out = np.full((len(values), self.size), self.spread, dtype=np.uint64)
        out[np.arange(len(values)), values] = self.keep
        return out

    def widest(self) -> Witness:
        """Return the largest ratio: at the value itself, or at any other value if lying is likelier than keeping."""
        if self.keep >= self.spread:
            return Witness(Fraction(self.keep, self.spread), 0, 1, 0)
        return Witness(Fraction(self.spread, self.keep), 1, 0, 0)

    def cells(self, steps: int) -> Signs:
        """Return the signs."""
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
        kind = self._short() if len(values) >= _MANY else None
        if len(values) <= _BLOCK:
            return self._draw(values, words, kind)
        out = np.empty(len(values), dtype=np.int32)
        for start in range(0, len(values), _BLOCK):
            out[start : start + _BLOCK] = self._draw(values[start : start + _BLOCK], words, kind)
        return out

    def _draw(self, values: Codes, words: Words, kind: type[np.uint16 | np.uint32] | None) -> Codes:
        moved = self._steps(words(len(values))) if kind is None else self._short_steps(len(values), words, kind)
        moved += values.astype(moved.dtype)
        moved += moved.dtype.type(1)
        # From size on, start again at 0; below size the difference wraps to a large number, so the minimum is `moved` itself.
        return np.minimum(moved, moved - moved.dtype.type(self.size)).astype(np.int32)

    def _steps(self, word: Weights) -> NDArray[np.uint32]:
        """Return how far each word moves on."""
        steps = word // np.uint64(self.spread)
        return np.minimum(steps, np.uint64(self.size - 1), out=steps).astype(np.uint32)

    def _short(self) -> type[np.uint16 | np.uint32] | None:
        """Return the shortest words that nearly always decide a draw; None if only whole words do."""
        bits = ((kind, 8 * np.dtype(kind).itemsize, most) for kind, most in _SHORT)
        return next((kind for kind, width, most in bits if self.size <= most and self.spread >> 64 - width), None)

    def _short_steps(self, count: int, words: Words, kind: type[np.uint16 | np.uint32]) -> NDArray[np.uint16 | np.uint32]:
        """Return how far short words move on.

        The first bits of the weights are drawn as the weights are; short words from ``decided`` on do not decide. Together with
        the further bits of a word these are ``size - 1`` equal parts of the further bits of ``spread``, then those of ``keep``.
        """
        width = 8 * np.dtype(kind).itemsize
        further = 64 - width
        part, decided = self.spread >> further, (self.size - 1) * (self.spread >> further) + (self.keep >> further)
        short = words(-(-count * width // 64)).view(kind)[:count]
        steps = np.minimum(short // kind(part), kind(self.size - 1))
        if decided < 1 << width and len(rows := np.flatnonzero(short >= kind(decided))):
            high = (short[rows] - kind(decided)).astype(np.uint64) << np.uint64(further)
            rest = (high | words(len(rows)) >> np.uint64(width)) // np.uint64(self.spread & (1 << further) - 1)
            steps[rows] = np.minimum(rest, np.uint64(self.size - 1))
        return steps
