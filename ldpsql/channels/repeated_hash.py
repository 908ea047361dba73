"""A hash with two responses: one that a person keeps, and one that is drawn again for every report."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ldpsql.channels.base import TOTAL, Codes, Weights
from ldpsql.channels.hashed import PrivateHash
from ldpsql.channels.keep_or_spread import KeepOrSpread
from ldpsql.channels.randomness import Words, random_words
from ldpsql.channels.splitmix import hashed
from ldpsql.errors import InvalidParameter


@dataclass(frozen=True)
class RepeatedHash(PrivateHash):
    """Report a seed and ``again`` of ``response`` of the hash of the value; one report alone is k-RR on the hash.

    Raises:
        InvalidParameter: unless both responses are k-RR over the same symbols.

    """

    again: KeepOrSpread

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.again) is not KeepOrSpread or self.again.size != self.response.size:
            raise InvalidParameter("both responses must be keep-or-spread over the same symbols")

    @classmethod
    def within(cls, size: int, first: KeepOrSpread, ratio: Fraction) -> RepeatedHash:
        """Return the channel whose single reports have at most a ratio, made with the largest second response.

        Raises:
            InvalidParameter: if ``ratio`` is not smaller than that of the first response.

        """
        # With a = first's keep/spread and r = again's, one report has (a r + g - 1)/(a + r + g - 2) <= ratio: solve for r.
        a, g = Fraction(first.keep, first.spread), first.size
        if ratio >= a:
            raise InvalidParameter("the epsilon of one report must be smaller than the permanent one", "once < permanent")
        return cls(size, first, KeepOrSpread.within(g, (ratio * (a + g - 2) - g + 1) / (a - ratio)))

    @property
    def _kept(self) -> int:
        """Weight, out of 2**128, with which the report is the hash: both keep it, or the second one returns to it."""
        first, again = self.response, self.again
        return first.keep * again.keep + (first.size - 1) * first.spread * again.spread

    @property
    def _other(self) -> int:
        """Weight, out of 2**128, with which the report is a given other symbol."""
        return (TOTAL**2 - self._kept) // (self.response.size - 1)  # exact: the others are alike

    @property
    def ratio(self) -> Fraction:
        """The seed does not depend on the value, so only the two responses count."""
        return Fraction(self._kept, self._other)

    @property
    def hit(self) -> Fraction:
        """Probability that the report is the hash."""
        return Fraction(self._kept, TOTAL**2)

    def draw(self, values: Codes, words: Words = random_words) -> Weights:
        """Draw a seed and both responses: three words each."""
        seeds = words(len(values))
        return self.repeated(seeds, self.response.draw(hashed(seeds, values, self.response.size), words), words)

    def repeated(self, seeds: Weights, kept: Codes, words: Words = random_words) -> Weights:
        """Draw a report of people who keep a seed and the response to its hash."""
        return np.stack([seeds, self.again.draw(kept, words).astype(np.uint64)], axis=1)
