"""Responses to sets of pairs: how values become symbols, what reports show of a key, the largest ratio of two sets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels.base import TOTAL, Channel, Drawn, Floats, Weights, Witness


class KeyCells(ABC):
    """How a value becomes one of the cells of its key; a value is a place, from 0 at the low end of the range to 1."""

    @property
    @abstractmethod
    def count(self) -> int:
        """Number of cells of a key."""

    @abstractmethod
    def weights(self, place: float) -> list[int]:
        """Return the weight of each cell for a value, out of 2**64."""

    @abstractmethod
    def draw(self, places: Floats, words: Weights) -> NDArray[np.int64]:
        """Return the cell of every value, drawn from one word each."""

    @abstractmethod
    def place(self, cell: int) -> float:
        """Return a value that always becomes this cell."""


@dataclass(frozen=True)
class Signs(KeyCells):
    """Cell 0 is +, cell 1 is -: the j-th of the steps from low to high becomes + with probability j/steps."""

    steps: int

    @property
    def count(self) -> int:
        return 2

    def weights(self, place: float) -> list[int]:
        plus = int(np.rint(place * self.steps)) * TOTAL // self.steps
        return [plus, TOTAL - plus]

    def draw(self, places: Floats, words: Weights) -> NDArray[np.int64]:
        # The weight of +, floor(at 2^64 / steps), can be 2^64 itself: compare with one less, and never make the lowest value +.
        at = np.rint(places * self.steps).astype(np.uint64)
        whole, rest = divmod(TOTAL, self.steps)
        weight = at * np.uint64(whole % TOTAL) + at * np.uint64(rest) // np.uint64(self.steps)
        return (~((at > 0) & (words <= weight - np.uint64(1))) & 1).astype(np.int64)

    def place(self, cell: int) -> float:
        """Return the high end for +, the low end for -."""
        return 1.0 - cell


@dataclass(frozen=True)
class Bins(KeyCells):
    """The cell is one of ``bins`` bins of equal width."""

    bins: int

    @property
    def count(self) -> int:
        return self.bins

    def weights(self, place: float) -> list[int]:
        """Return all the weight for the bin of the value."""
        at = int(self._bins(np.array([place]))[0])
        return [TOTAL * (cell == at) for cell in range(self.bins)]

    def draw(self, places: Floats, words: Weights) -> NDArray[np.int64]:  # noqa: ARG002  # nothing is left to chance
        return self._bins(places)

    def _bins(self, places: Floats) -> NDArray[np.int64]:
        return np.minimum(places * self.bins, self.bins - 1).astype(np.int64)

    def place(self, cell: int) -> float:
        """Return the centre of the bin."""
        return (cell + 0.5) / self.bins


@dataclass(frozen=True)
class KeyLaw:
    """How often reports show a key: with probability other + lift * w if it is drawn with probability w.

    ``apart`` is the slope of the scores in the value: the mean score of a report is apart * w * value.
    """

    other: Fraction
    lift: Fraction
    apart: Fraction


class PairResponse(Channel):
    """The response to the symbol that was drawn from a set of pairs: symbol key * cells + cell, the keys before the dummies.

    A report shows symbols: one if ``single``, else any number, of each key one at most.
    """

    single: ClassVar[bool] = True

    @abstractmethod
    def cells(self, steps: int) -> KeyCells:
        """Return how values become the symbols of a key; ``steps`` is how finely random rounding divides the range."""

    @abstractmethod
    def key_law(self) -> KeyLaw:
        """Return how often reports show a key."""

    @abstractmethod
    def shown(self, chances: Floats) -> Floats:
        """Return for each symbol the probability that a report shows it, from the chance of each to be drawn."""

    def tally(self, drawn: Drawn) -> NDArray[np.int64]:
        """Return how many of these reports show each symbol."""
        return np.bincount(drawn, minlength=self.inputs)

    def between_sets(self, most: Fraction, together: int) -> Witness | None:  # noqa: ARG002  # one symbol shows one pair
        """Return a bound of the ratio of two sets, by construction; None if it is infinite. `PROOFS.md` has its proof.

        Args:
            most: the largest chance of a key to be drawn.
            together: how many pairs a set may hold without reducing the chance of each.

        """
        witness = self.widest()
        return witness and replace(witness, ratio=1 + (witness.ratio - 1) * most)
