"""Sets of key-value pairs: pad, sample one pair, make a symbol of it, and respond with that, all in one step.

Gu, Li, Cheng, Xiong, Cao, "PCKV: locally differentially private correlated key-value data collection with optimized utility",
USENIX Security 2020.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels.base import TOTAL, Channel, Codes, Drawn, SetChannel, Weights, Witness
from ldpsql.channels.keep_or_spread import KeepOrSpread
from ldpsql.channels.keep_or_window import KeepOrWindow
from ldpsql.channels.randomness import Words, random_words
from ldpsql.channels.signed_bits import SignedBits
from ldpsql.errors import InvalidParameter

Response: TypeAlias = KeepOrSpread | SignedBits | KeepOrWindow


@dataclass(frozen=True)
class Sets:
    """Sets of pairs, one after the other: set i is ``keys[start:end]`` with start and end at ``ends[i]`` and ``ends[i + 1]``.

    ``places`` says where each value lies in its range: 0 at the low end, 1 at the high end. A key is in a set at most once.
    """

    ends: NDArray[np.int64]
    keys: Codes
    places: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.ends) - 1


@dataclass(frozen=True)
class KeyValue(Channel):
    """A set of pairs -> the response to one symbol.

    A set is padded with dummies to at least ``padding``, and one of its members is drawn, each equally likely. A pair becomes a
    symbol of its key: with a ``KeepOrWindow`` the bin of its value; else + or -, + with probability j/steps where the value
    is the j-th of the steps from low to high. A dummy becomes any symbol of the ``padding`` dummy keys, which follow the
    ``keys`` real ones. So no symbol of a key has a larger chance than about 1/padding, which weakens the response to it.

    Raises:
        InvalidParameter: unless the response has as many symbols as the keys and the dummies need.

    """

    keys: int
    padding: int
    response: Response
    steps: int = 1 << 20

    def __post_init__(self) -> None:
        known = type(self.response) in (KeepOrSpread, SignedBits, KeepOrWindow)
        whole = all(type(n) is int and n > 0 for n in (self.keys, self.padding, self.steps)) and self.steps < 1 << 31
        if not whole or not known or self.response.inputs % (self.keys + self.padding) or self.cells < 2:
            raise InvalidParameter("the response must have as many symbols as keys and dummies need")
        if self.cells != 2 and not isinstance(self.response, KeepOrWindow):
            raise InvalidParameter("a response with signs has two symbols a key")

    @property
    def inputs(self) -> int:
        """Number of keys: the sets are too many to number."""
        return self.keys

    @property
    def cells(self) -> int:
        """Number of symbols of a key."""
        return self.response.inputs // (self.keys + self.padding)

    @property
    def estimated(self) -> Channel:
        """The response: what is estimated is how often each symbol is drawn."""
        return self.response

    @staticmethod
    def most(padding: int, cells: int) -> Fraction:
        """Return an upper bound of the chance that a key is drawn: 1/padding, rounded up as the words divide it."""
        return Fraction(cells * -(-TOTAL // (padding * cells)), TOTAL)

    def widest(self) -> Witness | None:
        """Return the largest ratio of two sets, bounded by construction; the two keys stand for sets that hold one of them.

        A response that shows one symbol z has P(z|set) = s + (P(z|z) - s) w, where s is its chance from any other key and w
        that of its key to be drawn: at most `most`. One that shows many can support all of one set and nothing of another.
        """
        found = self.response.widest()
        if found is None or isinstance(self.response, SetChannel):
            return found and Witness(found.ratio, 0, 1, found.report)
        return Witness(1 + (found.ratio - 1) * self.most(self.padding, self.cells), 0, 1, found.report)

    def copies(self, value: int, count: int) -> Sets:
        """Return sets that hold one key only, with the highest value."""
        ends = np.arange(count + 1, dtype=np.int64)
        return Sets(ends, np.full(count, value, dtype=np.int32), np.ones(count))

    def chances(self, held: Sets) -> list[int]:
        """Return the chance of every symbol to be drawn from one set, exactly: whole numbers out of 2**128."""
        slots = max(len(held.keys), self.padding)
        slot = [TOTAL // slots + (i < TOTAL % slots) for i in range(slots)]
        out = [0] * self.response.inputs
        for weight, key, place in zip(slot, held.keys.tolist(), held.places.tolist(), strict=False):
            for cell, share in enumerate(self._split(place)):
                out[key * self.cells + cell] += weight * share
        dummies = self.padding * self.cells
        for i in range(dummies):
            out[self.keys * self.cells + i] = sum(slot[len(held.keys) :]) * (TOTAL // dummies + (i < TOTAL % dummies))
        return out

    def _split(self, place: float) -> list[int]:
        """Return the weights of the symbols of a value, out of 2**64."""
        at = self._positions(np.array([place]))
        if isinstance(self.response, KeepOrWindow):
            return [TOTAL * (cell == int(at[0])) for cell in range(self.cells)]
        plus = int(at[0]) * TOTAL // self.steps
        return [plus, TOTAL - plus]

    def _positions(self, places: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the bin of every value, or the number of the step nearest to it."""
        if isinstance(self.response, KeepOrWindow):
            return np.minimum(places * self.cells, self.cells - 1).astype(np.int64)
        return np.rint(places * self.steps).astype(np.int64)

    def draws_its_weights(self) -> bool:
        """Tell whether the tables of the response, recounted, give back its weights."""
        return self.response.draws_its_weights()

    def draw(self, values: Sets, words: Words = random_words) -> Drawn:  # type: ignore[override]  # its values are sets
        """Draw which member, then its symbol or which dummy, then the response."""
        sizes = np.diff(values.ends)
        slots = np.maximum(sizes, self.padding).astype(np.uint64)
        member, second = (words(len(sizes)) % slots).astype(np.int64), words(len(sizes))
        symbols = self.keys * self.cells + (second % np.uint64(self.padding * self.cells)).astype(np.int64)
        own = np.flatnonzero(member < sizes)
        at = values.ends[own] + member[own]
        symbols[own] = values.keys[at] * np.int64(self.cells) + self._cells_of(values.places[at], second[own])
        return self.response.draw(symbols.astype(np.int32), words)

    def _cells_of(self, places: NDArray[np.float64], second: Weights) -> NDArray[np.int64]:
        """Return the bin of every value, or its sign: 0 for +, 1 for -."""
        at = self._positions(places)
        if isinstance(self.response, KeepOrWindow):
            return at
        # The weight of +, floor(at 2^64 / steps), can be 2^64 itself: compare with one less, and give the lowest value none.
        at = at.astype(np.uint64)
        whole, rest = divmod(TOTAL, self.steps)
        weight = at * np.uint64(whole % TOTAL) + at * np.uint64(rest) // np.uint64(self.steps)
        return ~((at > 0) & (second <= weight - np.uint64(1))) & 1
