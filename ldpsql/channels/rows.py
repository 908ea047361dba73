"""Rows of several columns: each column has a channel, and all reports of a row are drawn independently of each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels.base import Channel, Codes, Drawn, Witness
from ldpsql.channels.costs import Cost
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

    @property
    def per_report(self) -> Cost:
        return sum((part.per_report for part in self.parts), Cost())

    def draws_its_weights(self) -> bool:
        return all(part.draws_its_weights() for part in self.parts)

    def draw(self, values: Codes, words: Words = random_words) -> Drawn:
        """Draw a report of each column for each row."""
        return together([part.draw(np.ascontiguousarray(values[:, j]), words) for j, part in enumerate(self.parts)])


@dataclass(frozen=True)
class OneOfRows(Rows):
    """One column of each row, drawn at random whatever the values are, and a report of it; the other columns are not reported.

    Drawn reports have the number of the column in front of the words of all columns, which are 0 for those not reported.
    """

    def widest(self) -> Witness | None:
        """Return the largest of the columns' largest ratios: the chance of the column is the same for all rows."""
        each = [part.widest() for part in self.parts]
        ratios = [one.ratio for one in each if one is not None]
        return Witness(max(ratios), 0, 1, 0) if len(ratios) == len(each) else None

    def draw(self, values: Codes, words: Words = random_words) -> Drawn:
        """Draw the column of each row, then the report of its value."""
        column = words(len(values)) % np.uint64(len(self.parts))
        return together([column, *(self._drawn(j, values, column == j, words) for j in range(len(self.parts)))])

    def _drawn(self, j: int, values: Codes, chosen: NDArray[np.bool_], words: Words) -> Drawn:
        """Draw the reports of one column in the rows that report it."""
        own = self.parts[j].draw(values[chosen, j], words)
        out = np.zeros((len(values), *own.shape[1:]), dtype=np.uint64)
        out[chosen] = own
        return out


def together(drawn: Sequence[Drawn]) -> Drawn:
    """Return the draws of several columns side by side, as 64-bit words."""
    return np.column_stack([part.astype(np.uint64) for part in drawn])
