"""The base classes of channel structures, and of responses to sets of pairs: symbols, shown keys, the largest ratio."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels.costs import Cost
from ldpsql.channels.randomness import Words, random_words

Codes: TypeAlias = NDArray[np.int32]  # positions: of a value in the domain, of a report in the alphabet
Weights: TypeAlias = NDArray[np.uint64]  # probabilities, in whole numbers
Words64: TypeAlias = NDArray[np.uint64]  # words of 64 bits
Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Drawn: TypeAlias = NDArray[Any]  # positions (n,), or the words of reports that are too many to number (n, words)

Held_contra = TypeVar("Held_contra", contravariant=True)

TOTAL = 1 << 64  # every row of weights sums to this, so one 64-bit word decides a draw
_RESOLUTION = 1e-13  # relative; doubles divide two weights with an error below 4e-16


@dataclass(frozen=True)
class Witness:
    """The pair of values and the report with the largest ratio P(report|value) / P(report|other)."""

    ratio: Fraction
    value: int
    other: int
    report: int


class ChannelOf(ABC, Generic[Held_contra]):
    """The exact conditional distribution of the report given what a person holds.

    Implementations are frozen, so that the channel that was certified is the one that is drawn from. ``in_step`` says
    that up to some thousand values are drawn from one word each at a time, in their order; ``abreast`` says that up to
    some thousand values (2**20 over their number) are drawn from equally many words each at a time, those of one value in
    a row. Permanent reports depend on both, so they never change.
    """

    in_step: ClassVar[bool] = False
    abreast: ClassVar[bool] = False

    @abstractmethod
    def widest(self) -> Witness | None:
        """Return where the ratio of two values is largest, exactly; None if it is infinite."""

    @property
    def per_report(self) -> Cost:
        """What it costs to draw one report, and to hold it."""
        return Cost(1e-7, 8)

    @abstractmethod
    def draw(self, values: Held_contra, words: Words = random_words) -> Drawn:
        """Draw one report for each value, independently."""

    def draws_its_weights(self) -> bool:
        """Return whether the tables used for drawing reproduce the weights; a channel without tables draws with its weights."""
        return True


class Channel(ChannelOf[Codes]):
    """The conditional distribution of the report given a listed value. Values are positions, counted from 0."""

    event: ClassVar[str] = "the report is {report}"  # the event that best distinguishes two values

    @property
    @abstractmethod
    def inputs(self) -> int:
        """Number of values."""

    def telling(self, drawn: Drawn, report: int, own: Codes, others: Codes) -> NDArray[np.bool_]:  # noqa: ARG002
        """Return for which of these reports the event happens; by default, if they equal the report of the certificate.

        Args:
            drawn: the reports.
            report: the number of the report of the certificate.
            own: the values that the event makes more likely.
            others: the values that it makes less likely.

        """
        return np.asarray(drawn == report)

    def possible(self, drawn: Drawn) -> NDArray[np.bool_]:
        """Return which of these words or positions can be reports, beyond having the right form."""
        return np.ones(len(drawn), dtype=np.bool_)


class TableChannel(Channel):
    """P(report y | value x) = ``weights[x, y] / TOTAL``: reports are positions too."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Number of reports."""

    @abstractmethod
    def rows(self, values: Codes) -> Weights:
        """Return the rows of weights of these values, shape ``(len(values), outputs)``."""

    def steepest(self) -> Witness | None:
        """Return where the ratio of two neighbouring values is largest, exactly; None if it is infinite."""
        w = self.weights()
        high, low = np.concatenate([w[:-1], w[1:]]), np.concatenate([w[1:], w[:-1]])
        largest = largest_ratio(high.ravel(), low.ravel())
        if largest is None:
            return None
        ratio, at = largest
        row, report = divmod(at, self.outputs)
        x, rising = row % (self.inputs - 1), row >= self.inputs - 1
        return Witness(ratio, x + rising, x + 1 - rising, report)

    def weights(self) -> Weights:
        """Return all rows of weights, shape ``(inputs, outputs)``."""
        return self.rows(np.arange(self.inputs, dtype=np.int32))

    def probabilities(self) -> NDArray[np.float64]:
        """Return the channel in double precision, shape ``(inputs, outputs)``: for estimation only, never for drawing."""
        return self.weights() / float(TOTAL)


class SetChannel(Channel):
    """Every report supports a set of values, and is ``ratio`` times as likely from a value in the set as from any other.

    Unary encodings, hashed reports and random subsets are of this kind, and share their likelihood: P(report|x) is
    proportional to 1 + (ratio - 1) [x in the set].
    """

    event = "the report supports the value and not the other"
    size: int  # number of values, unless a structure counts them otherwise

    @property
    def inputs(self) -> int:
        return self.size

    @property
    @abstractmethod
    def ratio(self) -> Fraction:
        """P(report | a value in its set) / P(report | a value outside)."""

    @property
    @abstractmethod
    def hit(self) -> Fraction:
        """Probability that the report supports the true value."""

    @property
    @abstractmethod
    def miss(self) -> Fraction:
        """Probability that the report supports a given other value."""

    def supports(self, drawn: Drawn) -> NDArray[np.bool_]:
        """Return which values each report supports, shape ``(len(drawn), inputs)``: by default, its bits say so."""
        return bits_of(drawn, self.inputs)

    def octets(self, drawn: Drawn) -> NDArray[np.uint8]:
        """Return the same as bits, shape (octets, len(drawn)): bit i of octet b is set if the set holds value 8 b + i."""
        return np.packbits(self.supports(drawn), axis=1, bitorder="little").T

    @abstractmethod
    def witness(self) -> int:
        """Return a report, as a number, that supports value 0 and not value 1."""

    def telling(self, drawn: Drawn, report: int, own: Codes, others: Codes) -> NDArray[np.bool_]:  # noqa: ARG002
        """Return which reports support all of the own values and none of the others."""
        held = self.supports(drawn)
        return np.asarray(held[:, own].all(axis=1) & ~held[:, others].any(axis=1))

    def size_law(self) -> NDArray[np.float64] | None:
        """Return the probabilities that a report supports 0 .. inputs values, or None if they depend on the true value.

        Values are supported independently: the true one with probability `hit`, every other one with probability `miss`.
        """
        miss, hit, others = float(self.miss), float(self.hit), self.inputs - 1
        taken = np.arange(1, others + 1)
        logs = np.concatenate([[0.0], np.cumsum(np.log((others - taken + 1) / taken * miss / (1 - miss)))])
        binomial = np.exp(logs + others * np.log1p(-miss))
        return np.convolve(binomial, [1 - hit, hit])

    def widest(self) -> Witness:
        """Return the ratio: it is the same for every pair and every report that supports one of them only."""
        if self.ratio >= 1:
            return Witness(self.ratio, 0, 1, self.witness())
        return Witness(1 / self.ratio, 1, 0, self.witness())


def words_of(bits: NDArray[np.bool_]) -> Weights:
    """Pack rows of bits into 64-bit words, the first in the lowest bit."""
    rows, size = bits.shape
    padded = np.zeros((rows, -(-size // 64) * 64), dtype=np.bool_)
    padded[:, :size] = bits
    return np.packbits(padded, axis=1, bitorder="little").view("<u8").astype(np.uint64, copy=False)


def bits_of(words: Weights, size: int) -> NDArray[np.bool_]:
    """Unpack 64-bit words into rows of bits."""
    octets = np.ascontiguousarray(words, dtype="<u8").view(np.uint8)
    return np.unpackbits(octets, axis=1, count=size, bitorder="little").view(np.bool_)


def largest_ratio(high: Weights, low: Weights) -> tuple[Fraction, int] | None:
    """Return the largest of the ratios ``high / low``, exactly, and its position; None if a ratio is infinite.

    Doubles only discard ratios far from the largest; whole numbers decide among the rest. 0/0 does not count.
    """
    if np.any((low == 0) & (high > 0)):
        return None
    rough = high / np.maximum(low, 1)
    close = np.flatnonzero(rough >= rough.max() * (1 - _RESOLUTION))
    pairs = np.unique(np.stack([high[close], low[close]]), axis=1, return_index=True)
    ratio, first = max((Fraction(int(h), int(b)), int(i)) for (h, b), i in zip(pairs[0].T, pairs[1], strict=True))
    return ratio, int(close[first])


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
