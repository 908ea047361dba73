"""Key-value pairs: sets of them, and the response that keeps the key and reports a number near the value."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels.base import TOTAL, Bins, ChannelOf, Codes, Drawn, Floats, KeyCells, KeyLaw, PairResponse, Witness
from ldpsql.channels.bits import BinBits, SignedBits
from ldpsql.channels.costs import Cost
from ldpsql.channels.dense import DenseChannel
from ldpsql.channels.keep_or_spread import KeepOrSpread
from ldpsql.channels.randomness import Words, random_words
from ldpsql.errors import InvalidParameter


@dataclass(frozen=True)
class KeepOrWindow(PairResponse):
    """Symbols are key * bins + bin. With weight ``anything`` out of 2**64 each symbol is reported; else the key is kept.

    If the key is kept, the reported bin is drawn from the row of ``window`` that belongs to the bin of the symbol.

    Raises:
        InvalidParameter: unless the weight is whole, positive, and leaves a chance to keep the key.

    """

    keys: int
    anything: int
    window: DenseChannel

    def __post_init__(self) -> None:
        whole = all(type(n) is int and n > 0 for n in (self.keys, self.anything))
        if not whole or type(self.window) is not DenseChannel or self.window.inputs != self.window.outputs or self.kept <= 0:
            raise InvalidParameter("the weight of any symbol must be whole, positive, and leave a chance to keep the key")

    @classmethod
    def within(cls, keys: int, window: DenseChannel, ratio: Fraction) -> KeepOrWindow:
        """Return the channel that keeps the key most often among those whose ratio is at most ``ratio``."""
        # 1 + (TOTAL - symbols anything) highest / (TOTAL anything) <= ratio, solved for anything and rounded up.
        highest = int(window.weights().max())
        anything = -(-TOTAL * highest // ((ratio - 1) * TOTAL + keys * window.inputs * highest))
        return cls(keys, int(anything), window)

    @property
    def bins(self) -> int:
        """Number of bins of a key."""
        return self.window.inputs

    @property
    def inputs(self) -> int:
        return self.keys * self.bins

    @property
    def outputs(self) -> int:
        """Number of reports: symbols too."""
        return self.inputs

    @property
    def kept(self) -> int:
        """Weight of keeping the key."""
        return TOTAL - self.inputs * self.anything

    def probability(self, value: int, report: int) -> Fraction:
        """Return P(report | value), exactly."""
        (key, x), (reported, y) = divmod(value, self.bins), divmod(report, self.bins)
        near = int(self.window.rows(np.array([x], dtype=np.int32))[0, y]) if key == reported else 0
        return Fraction(self.anything * TOTAL + self.kept * near, TOTAL**2)

    def cells(self, steps: int) -> Bins:  # noqa: ARG002  # bins are not drawn
        return Bins(self.bins)

    def key_law(self) -> KeyLaw:
        """Return how often any bin of a key is reported."""
        kept = Fraction(self.kept, TOTAL)
        return KeyLaw(Fraction(self.anything * self.bins, TOTAL), kept, kept)

    def shown(self, chances: Floats) -> Floats:
        """Return the probability of each report."""
        near = chances.reshape(self.keys, self.bins) @ self.window.probabilities()
        return np.asarray(self.anything / TOTAL + self.kept / TOTAL * near.ravel())

    @cached_property
    def _highest(self) -> tuple[int, int]:
        """The bin and the report where the window is highest."""
        x, y = np.unravel_index(int(self.window.weights().argmax()), (self.bins, self.bins))
        return int(x), int(y)

    def widest(self) -> Witness:
        """Return the ratio at the highest point of the window: any other key gives it the weight ``anything``."""
        x, y = self._highest
        return Witness(self.probability(x, y) / self.probability(self.bins, y), x, self.bins, y)

    def draws_its_weights(self) -> bool:
        return self.window.draws_its_weights()

    def draw(self, values: Codes, words: Words = random_words) -> Codes:
        """Draw from one word which symbol is reported, or that the key is kept; another word draws from the window."""
        drawn = words(len(values)) // np.uint64(self.anything)
        key, x = np.divmod(values, np.int32(self.bins))
        near = key * np.int32(self.bins) + self.window.draw(x, words).astype(np.int32)
        return np.where(drawn < np.uint64(self.inputs), drawn.astype(np.int64), near).astype(np.int32)


# Sets of key-value pairs: pad the set, sample one pair, turn it into a symbol, and respond to the symbol, in one step.
#
# Gu, Li, Cheng, Xiong, Cao, "PCKV: locally differentially private correlated key-value data collection with optimized utility",
# USENIX Security 2020.

Response = KeepOrSpread | SignedBits | BinBits | KeepOrWindow


@dataclass(frozen=True)
class Sets:
    """Sets of pairs, one after the other: set i is ``keys[start:end]`` with start and end at ``ends[i]`` and ``ends[i + 1]``.

    ``places`` holds where each value lies in its range: 0 at the low end, 1 at the high end. A key is in a set at most once.
    """

    ends: NDArray[np.int64]
    keys: Codes
    places: NDArray[np.float64]

    @classmethod
    def one(cls, places: NDArray[np.float64]) -> Sets:
        """Return one set: the first keys with these values."""
        return cls(np.array([0, len(places)]), np.arange(len(places), dtype=np.int32), places)

    def __len__(self) -> int:
        return len(self.ends) - 1

    def at(self, place: int) -> Sets:
        """Return one of the sets."""
        start, end = self.ends[place : place + 2]
        return Sets(np.array([0, end - start]), self.keys[start:end], self.places[start:end])

    def repeated(self, count: int) -> Sets:
        """Return a single set ``count`` times."""
        return Sets(np.arange(count + 1) * len(self.keys), np.tile(self.keys, count), np.tile(self.places, count))


@dataclass(frozen=True)
class KeyValue(ChannelOf[Sets]):
    """The channel from a set of pairs to the response to one symbol.

    A set is padded with dummies to at least ``padding`` members, and one member is drawn, each equally likely. A pair becomes a
    symbol of its key, as the response requires: a sign or a bin. A dummy becomes any symbol of the ``padding`` dummy keys,
    which follow the ``keys`` real ones. So the chance of each symbol of a key is at most about 1/padding, which reduces the
    effect of the pair on the report.

    Raises:
        InvalidParameter: unless the response has as many symbols as the keys and the dummies need.

    """

    keys: int
    padding: int
    response: Response
    steps: int = 1 << 20

    def __post_init__(self) -> None:
        of_core = type(self.response) in (KeepOrSpread, SignedBits, BinBits, KeepOrWindow)
        whole = all(type(n) is int and n > 0 for n in (self.keys, self.padding, self.steps)) and self.steps < 1 << 31
        if not whole or not of_core or self.response.inputs != (self.keys + self.padding) * self.cells:
            raise InvalidParameter("the response must have as many symbols as keys and dummies need")

    @property
    def symbols(self) -> KeyCells:
        """How values become the symbols of a key."""
        return self.response.cells(self.steps)

    @property
    def cells(self) -> int:
        """Number of symbols of a key."""
        return self.symbols.count

    @staticmethod
    def most(padding: int, cells: int) -> Fraction:
        """Return an upper bound of the chance that a key is drawn: 1/padding, rounded up as the sampler rounds it."""
        return Fraction(cells * -(-TOTAL // (padding * cells)), TOTAL)

    def widest(self) -> Witness | None:
        """Return a bound of the ratio of two sets, by construction; its values are symbols, and `extreme` returns the sets."""
        return self.response.between_sets(self.most(self.padding, self.cells), self._together)

    @property
    def _together(self) -> int:
        """How many pairs a set may hold without reducing the chance of each."""
        return min(self.padding, self.keys)

    def extreme(self, symbol: int) -> Sets:
        """Return the set that makes this symbol of a witness as likely as possible, alone or with those of other keys."""
        key, cell = divmod(symbol, self.cells)
        if self.response.single:
            return Sets(np.array([0, 1]), np.array([key], dtype=np.int32), np.array([self.symbols.place(cell)]))
        return Sets.one(np.full(self._together, self.symbols.place(cell)))

    def symbols_of(self, symbol: int) -> Codes:
        """Return the symbols of the pairs of an extreme set."""
        return self.extreme(symbol).keys * np.int32(self.cells) + np.int32(symbol % self.cells)

    def chances(self, held: Sets) -> list[int]:
        """Return the exact chance of every symbol to be drawn from one set, as whole numbers out of 2**128."""
        slots = max(len(held.keys), self.padding)
        slot = [TOTAL // slots + (i < TOTAL % slots) for i in range(slots)]
        out = [0] * self.response.inputs
        for weight, key, place in zip(slot, held.keys.tolist(), held.places.tolist(), strict=False):
            for cell, share in enumerate(self.symbols.weights(place)):
                out[key * self.cells + cell] += weight * share
        dummies = self.padding * self.cells
        for i in range(dummies):
            out[self.keys * self.cells + i] = sum(slot[len(held.keys) :]) * (TOTAL // dummies + (i < TOTAL % dummies))
        return out

    @property
    def per_report(self) -> Cost:
        """That of the response to the symbol that is drawn from a set."""
        return Cost(1e-7) + self.response.per_report

    def draws_its_weights(self) -> bool:
        return self.response.draws_its_weights()

    def draw(self, values: Sets, words: Words = random_words) -> Drawn:
        """Draw a member of each set, then its symbol or a dummy's, then the response."""
        sizes = np.diff(values.ends)
        slots = np.maximum(sizes, self.padding).astype(np.uint64)
        member, second = (words(len(sizes)) % slots).astype(np.int64), words(len(sizes))
        symbols = self.keys * self.cells + (second % np.uint64(self.padding * self.cells)).astype(np.int64)
        own = np.flatnonzero(member < sizes)
        at = values.ends[own] + member[own]
        symbols[own] = values.keys[at] * np.int64(self.cells) + self.symbols.draw(values.places[at], second[own])
        return self.response.draw(symbols.astype(np.int32), words)
