"""What every channel structure offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ldpsql.randomness import Words, random_words

Codes: TypeAlias = NDArray[np.int32]  # positions: of a value in the domain, of a report in the alphabet
Weights: TypeAlias = NDArray[np.uint64]

TOTAL = 1 << 64  # every row of weights sums to this, so one 64-bit word decides a draw


@dataclass(frozen=True)
class Witness:
    """The pair of values and the report that attain the largest ratio P(report|value) / P(report|other)."""

    ratio: Fraction
    value: int
    other: int
    report: int


class Channel(ABC):
    """P(report y | value x) = ``weights[x, y] / TOTAL``, exactly.

    Values and reports are positions, counted from 0. Implementations are frozen: what was certified is what is drawn.
    """

    @property
    @abstractmethod
    def inputs(self) -> int:
        """Number of values."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Number of reports."""

    @abstractmethod
    def rows(self, values: Codes) -> Weights:
        """Return the rows of weights of these values, shape ``(len(values), outputs)``."""

    @abstractmethod
    def widest(self) -> Witness | None:
        """Return where the ratio of two rows is largest, exactly; None where it is infinite."""

    @abstractmethod
    def draw(self, values: Codes, words: Words = random_words) -> Codes:
        """Draw one report for each value, independently."""

    def weights(self) -> Weights:
        """Return all rows of weights, shape ``(inputs, outputs)``."""
        return self.rows(np.arange(self.inputs, dtype=np.int32))

    def probabilities(self) -> NDArray[np.float64]:
        """Return the channel in double precision, shape ``(inputs, outputs)``: for estimation only, never for drawing."""
        return self.weights() / float(TOTAL)
