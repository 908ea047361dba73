"""Prefixes of strings: a public length, a public hash of the prefix of that length, and randomised response on the hash.

Wang, Li, Jha, "Locally differentially private heavy hitter identification", IEEE TDSC 2021 (PEM, the prefix extending method).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels.base import TOTAL, ChannelOf, Codes, Drawn, Weights, Witness
from ldpsql.channels.hashed import splitmix
from ldpsql.channels.keep_or_spread import KeepOrSpread
from ldpsql.channels.levels import level_shares, levels_of
from ldpsql.channels.randomness import Words, random_words
from ldpsql.errors import InvalidParameter

SEEDS = 1 << 32  # a report names one of as many functions; the other half of its random word decides about the level
MOST_VECTORS = 1 << 18  # vectors of one step, among which one transform counts
_HALF, _BLOCK = np.uint64(32), 1 << 15

Letters: TypeAlias = NDArray[np.uint8]  # (strings, length): 1, 2, .. for letters of the alphabet, 0 after the end of a string


@dataclass(frozen=True)
class Prefixes(ChannelOf[Letters]):
    """A report is a level, a seed and y, the response to the hash of the prefix of that level under the seed.

    Level and seed are drawn independently of the string. The prefix of the last level is the whole string. The letters of each
    step from one level to the next are a vector over the field of ``response.size`` elements, and the hash is the inner product
    of all vectors up to the level with one that the seed determines: two prefixes collide under one of ``response.size`` seeds.

    Args:
        length: the largest number of letters of a string.
        letters: the number of letters of the alphabet.
        levels: the number of prefixes.
        response: k-RR on the hash.

    Raises:
        InvalidParameter: if the numbers do not belong together, or the number of symbols is not a prime.

    """

    length: int
    letters: int
    levels: int
    response: KeepOrSpread

    def __post_init__(self) -> None:
        whole = all(type(n) is int and 0 < n < 256 for n in (self.length, self.letters, self.levels))
        if not whole or type(self.response) is not KeepOrSpread or not is_prime(self.response.size):
            raise InvalidParameter("prefixes need lengths, letters and levels below 256, and a response to a prime of symbols")
        if self.levels > self.length or self.response.size**self.dimension > MOST_VECTORS:
            raise InvalidParameter("a step between two levels must be at least one letter, and have few enough continuations")

    @cached_property
    def ends(self) -> list[int]:
        """The number of letters of the prefix of each level: steps of equal length, the first ones longer by one if need be."""
        return [-(-self.length * level // self.levels) for level in range(1, self.levels + 1)]

    @property
    def step(self) -> int:
        """The largest number of letters from one level to the next."""
        return -(-self.length // self.levels)

    @property
    def dimension(self) -> int:
        """The number of coordinates of the letters of a step."""
        return dimension(self.response.size, self.letters, self.step)

    @property
    def hit(self) -> Fraction:
        """Probability that a report supports the prefix of its string."""
        return Fraction(self.response.keep, TOTAL)

    @property
    def miss(self) -> Fraction:
        """Probability that a report supports a given other prefix of its level, over all seeds."""
        return Fraction(1, self.response.size)

    def shares(self) -> list[Fraction]:
        """Return the exact probability of every level."""
        return level_shares(self.levels)

    def probability(self, letters: Letters, level: int, seed: int, y: int) -> Fraction:
        """Return the exact probability of a report, given the letters of one string."""
        kept = int(self.hashes(letters[None], np.array([level]), np.array([seed], dtype=np.uint64))[0]) == y
        weight = self.response.keep if kept else self.response.spread
        return self.shares()[level] / SEEDS * Fraction(weight, TOTAL)

    def widest(self) -> Witness:
        """Return the ratio: level and seed do not depend on the string, so only the response counts."""
        return Witness(Fraction(self.response.keep, self.response.spread), 0, 1, self._witness())

    def extreme(self, place: int) -> Letters:
        """Return the letters of a string of the certificate: number 0 is empty, number 1 is the first letter."""
        out = np.zeros(self.length, dtype=np.uint8)
        out[0] = place
        return out

    def _witness(self) -> int:
        """Return a report of the first level that supports the empty string and not the first letter, as one number."""
        seeds = np.arange(64, dtype=np.uint64)
        levels = np.zeros(len(seeds), dtype=np.int64)
        hashes = [self.hashes(np.tile(self.extreme(place), (len(seeds), 1)), levels, seeds) for place in (0, 1)]
        seed = int((hashes[0] != hashes[1]).argmax())
        return seed * self.response.size + int(hashes[0][seed])

    def draw(self, values: Letters, words: Words = random_words) -> Drawn:
        """Draw level and seed from one word, then respond to the hash with another."""
        if len(values) > _BLOCK:
            starts = range(0, len(values), _BLOCK)
            return np.concatenate([self.draw(values[start : start + _BLOCK], words) for start in starts])
        word = words(len(values))
        levels, seeds = levels_of(word, self.levels), word >> _HALF
        responses = self.response.draw(self.hashes(values, levels, seeds), words)
        return np.stack([levels.astype(np.uint64), seeds, responses.astype(np.uint64)], axis=1)

    def hashes(self, values: Letters, levels: NDArray[np.int64], seeds: Weights) -> Codes:
        """Return the hash of the prefix of each string, at its level and under its seed."""
        sums, functions = np.zeros(len(values), dtype=np.int64), self.functions(seeds)
        for step in range(self.levels):
            rows = np.flatnonzero(levels >= step)
            if not len(rows):
                break
            sums[rows] += np.einsum("ij,ij->i", self.vectors(values[rows], step), self.coefficients(functions[rows], step))
        return (sums % self.response.size).astype(np.int32)

    def functions(self, seeds: Weights) -> Weights:
        """Return the hash of each seed, from which its coefficients come: it must never change, as reports depend on it."""
        return splitmix(seeds)

    def coefficients(self, functions: Weights, step: int) -> NDArray[np.int32]:
        """Return the vectors that multiply the letters of a step, shape (seeds, dimension), from the `functions` of seeds.

        It must never change: reports depend on it.
        """
        words = -(-self.dimension // 2)
        places = np.arange(step * words, (step + 1) * words, dtype=np.uint64)
        halves = splitmix(functions[:, None] ^ places).astype("<u8", copy=False).view("<u4")[:, : self.dimension]
        return (np.multiply(halves, self.response.size, dtype=np.uint64) >> _HALF).astype(np.int32)

    def vectors(self, values: Letters, step: int) -> NDArray[np.int32]:
        """Return the letters of a step as vectors, shape (strings, dimension)."""
        start = self.ends[step - 1] if step else 0
        return self._vectors[self.numbers(values[:, start : self.ends[step]])]

    @cached_property
    def _vectors(self) -> NDArray[np.int32]:
        """The vectors of all letters of a step."""
        return self.digits(np.arange((self.letters + 1) ** self.step))

    def numbers(self, letters: Letters) -> NDArray[np.int64]:
        """Return the letters of a step as one number each, in base letters + 1."""
        out = np.zeros(len(letters), dtype=np.int64)
        for place in range(letters.shape[1]):
            out = out * (self.letters + 1) + letters[:, place]
        return out

    def digits(self, numbers: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the digits of numbers in base ``response.size``, the highest first."""
        places = self.response.size ** np.arange(self.dimension - 1, -1, -1, dtype=np.int64)
        return (numbers[:, None] // places % self.response.size).astype(np.int32)


def dimension(symbols: int, letters: int, step: int) -> int:
    """Return the number of coordinates over a field of ``symbols`` elements for ``step`` letters, each one or the end."""
    return next(m for m in range(1, 10_000) if symbols**m >= (letters + 1) ** step)


def is_prime(number: int) -> bool:
    """Return whether a number has no divisor but 1 and itself."""
    return number > 1 and all(number % divisor for divisor in range(2, int(number**0.5) + 1))
