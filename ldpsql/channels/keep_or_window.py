"""Keep the key and report a number near the value, or report any symbol: key-value pairs under the piecewise mechanism."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from ldpsql.channels.base import TOTAL, Codes, Floats, Witness
from ldpsql.channels.dense import DenseChannel
from ldpsql.channels.pair_responses import Bins, KeyLaw, PairResponse
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
        """Number of symbols."""
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
        """Return the bins."""
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
        """Return whether the tables of the window, recounted, reproduce its weights."""
        return self.window.draws_its_weights()

    def draw(self, values: Codes, words: Words = random_words) -> Codes:
        """Draw from one word which symbol is reported, or that the key is kept; another word draws from the window."""
        drawn = words(len(values)) // np.uint64(self.anything)
        key, x = np.divmod(values, np.int32(self.bins))
        near = key * np.int32(self.bins) + self.window.draw(x, words).astype(np.int32)
        return np.where(drawn < np.uint64(self.inputs), drawn.astype(np.int64), near).astype(np.int32)
