"""Signed bits: a unary encoding with +, - or nothing at every key. Reports are 64-bit words, two bits per key, + below -."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels.base import TOTAL, Codes, Drawn, Floats, SetChannel, Weights, Witness
from ldpsql.channels.bits import bits_of, coarse_above, coins
from ldpsql.channels.pair_responses import KeyLaw, PairResponse, Signs
from ldpsql.channels.randomness import Words, random_words
from ldpsql.errors import InvalidParameter

_BLOCK = 1 << 15  # reports at a time, so that the words stay in the cache
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
        """Number of symbols."""
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

    def supports(self, drawn: Drawn) -> NDArray[np.bool_]:
        """Return the bits."""
        return bits_of(drawn, self.inputs)

    def possible(self, drawn: Drawn) -> NDArray[np.bool_]:
        """Return which show at most one sign at every key."""
        return ~(drawn & (drawn >> np.uint64(1)) & _PLUS).any(axis=1)

    def cells(self, steps: int) -> Signs:
        """Return the signs."""
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
        """Return how many of these reports show each sign."""
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
