"""Rows of several columns: each column has a channel, and all reports of a row are drawn independently of each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod

import numpy as np

from ldpsql.channels.base import Channel, Codes, Drawn, Witness
from ldpsql.channels.randomness import Words, random_words


@dataclass(frozen=True)
class Rows(Channel):
    """P(reports | values) is the product of P_j(report | value) over the columns.

    Values are positions, shape (rows, columns). Drawn reports are side by side in 64-bit words: one of a position, and as many
    as there are words for the others.
    """

    parts: tuple[Channel, ...]

    @property
    def inputs(self) -> int:
        """Number of rows of one value of each column."""
        return prod(part.inputs for part in self.parts)

    def widest(self) -> Witness | None:
        """Return the product of the columns' largest ratios: values 0 and 1 are the rows of the values that attain them."""
        each = [part.widest() for part in self.parts]
        ratio = Fraction(1)
        for one in each:
            if one is None:
                return None
            ratio *= one.ratio
        return Witness(ratio, 0, 1, 0)

    def draws_its_weights(self) -> bool:
        """Return whether the tables of all columns reproduce their weights."""
        return all(part.draws_its_weights() for part in self.parts)

    def draw(self, values: Codes, words: Words = random_words) -> Drawn:
        """Draw a report of each column for each row."""
        return together([part.draw(np.ascontiguousarray(values[:, j]), words) for j, part in enumerate(self.parts)])


def together(drawn: Sequence[Drawn]) -> Drawn:
    """Return the draws of several columns side by side, as 64-bit words."""
    return np.column_stack([part.astype(np.uint64) for part in drawn])
