"""The likelihood of bits of neighbouring bins: support sets in which each key shows one number, or nothing."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import TOTAL, BinBits, Floats, IndependentBits
from ldpsql.inference.operators.base import PairOperator
from ldpsql.inference.operators.dense import DenseOperator
from ldpsql.inference.operators.octets import Octets, collapsed
from ldpsql.inference.operators.supports import SupportOperator, observed


class BinOperator(SupportOperator, PairOperator):
    """One column for each observed report; the numbers that keys show determine more than its support."""

    def __init__(self, channel: BinBits, octets: Octets) -> None:
        super().__init__(channel, octets)
        self.channel, self.keys = channel, channel.keys
        self._range = self._miss * channel.mixed / TOTAL, self._hit

    @cached_property
    def _numbers(self) -> NDArray[np.int16]:
        """The number that each report shows at each key, ``places`` for nothing, shape (keys, reports)."""
        parts = [self.channel.numbers(members.T).T.astype(np.int16) for _, members in self._unpacked()]
        return np.concatenate(parts, axis=1)

    def shown(self, w: Floats) -> Floats:
        """Return the weight of the reports that show each number at each key, (groups, reports) -> (groups, numbers)."""
        places = self.channel.places
        each = [[np.bincount(key, weights, places + 1)[:places] for key in self._numbers] for weights in w]
        return np.array(each, dtype=np.float64).reshape(len(w), -1)

    def of_keys(self, counts: Floats) -> tuple[SupportOperator, Floats]:
        """Return the likelihood of the keys alone, and the counts of its reports: unary encoding of a key."""
        law = self.channel.key_law()
        weights = (round(chance * TOTAL) for chance in (law.other + law.lift, law.other))
        shown = np.packbits(self._numbers < self.channel.places, axis=0, bitorder="little")
        octets, sums = collapsed(shown, counts)
        return SupportOperator(IndependentBits(self.keys, *weights), octets), sums

    @cached_property
    def of_one(self) -> DenseOperator:
        """The likelihood of what one key shows."""
        return one_key(self.channel)

    @cached_property
    def _moves(self) -> Floats:
        """By how much the chance of each number of a key grows with the share of each of its bins."""
        return np.asarray(self.of_one.matrix()[:-1, :-1] - self.channel.spread / TOTAL)

    @cached_property
    def condition(self) -> float:
        """The condition number of the numbers of one key, as keys are inverted on their own."""
        return float(np.linalg.cond(self._moves))

    @cached_property
    def influence(self) -> float:
        """A report shows a number at a key, or nothing there."""
        inverse = np.pad(np.linalg.pinv(self._moves), ((0, 1), (0, 0)))
        return float((inverse.max(axis=0) - inverse.min(axis=0)).max())

    def invert(self, shares: Floats) -> Floats:
        """Return the least-squares inverse of the numbers that each key shows.

        Raises:
            IllConditioned: if it drowns the estimate in noise.

        """
        self.check_condition()
        moved = self.shown(shares).reshape(len(shares), self.keys, -1) - self.channel.spread / TOTAL
        return np.asarray(moved @ np.linalg.pinv(self._moves)).reshape(len(shares), -1)


def one_key(channel: BinBits) -> DenseOperator:
    """Return the likelihood of what one key shows: values are its bins and "another key", reports its numbers and nothing."""
    apart = np.append(np.full(channel.places, channel.spread / TOTAL), 1.0 - float(channel.key_law().other))
    moved = np.zeros((channel.bins + 1, channel.places + 1))
    moved[:-1, :-1] = channel.patterns()[:-1].T * (channel.near / TOTAL)
    return DenseOperator(apart * (1.0 - moved.sum(axis=1, keepdims=True)) + moved)


@observed.register
def _(channel: BinBits, octets: Octets) -> SupportOperator:
    return BinOperator(channel, octets)
