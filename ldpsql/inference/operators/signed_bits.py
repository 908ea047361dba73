"""The likelihood of signed bits: support sets in which the two symbols of a key exclude each other."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from ldpsql.channels import Floats, SignedBits
from ldpsql.inference.operators.base import PairOperator
from ldpsql.inference.operators.octets import Octets
from ldpsql.inference.operators.supports import SupportOperator, observed


class SignedOperator(SupportOperator, PairOperator):
    """One column for each observed report; only the inverse differs from that of other support sets."""

    def __init__(self, channel: SignedBits, octets: Octets) -> None:
        super().__init__(channel, octets)
        self.hit, self.miss, self.crossed = float(channel.hit), float(channel.miss), float(channel.crossed)
        self._range = min(self.miss, self.crossed), self.hit

    @property
    def apart(self) -> float:
        """How fast the share of + minus that of - at a key grows with the difference of its symbols."""
        return self.hit - self.crossed

    @property
    def lifted(self) -> float:
        """How fast the share of either sign at a key grows with the sum of its symbols."""
        return self.hit + self.crossed - 2 * self.miss

    @cached_property
    def condition(self) -> float:
        """Expected support counts have the eigenvalues of differences, of sums, and of the sum of all symbols."""
        eigenvalues = np.abs([self.apart, self.lifted, self.lifted + self.inputs * self.miss])
        return float(eigenvalues.max() / eigenvalues.min())

    @cached_property
    def influence(self) -> float:
        """A report shows a symbol, the opposite one, or neither: the largest difference between two of these."""
        return max(1.0 / abs(self.apart), (1.0 / abs(self.apart) + 1.0 / abs(self.lifted)) / 2)

    def shown(self, w: Floats) -> Floats:
        """Return the weight of the reports that support each symbol."""
        return self.supported(w)

    def invert(self, shares: Floats) -> Floats:
        """Return half the inverted sum of the shares of both signs of a key, plus or minus half their inverted difference.

        Source: Gu, Li, Cheng, Xiong, Cao, "PCKV", USENIX Security 2020, equation 9.
        """
        supported = self.supported(shares)
        plus, minus = supported[..., 0::2], supported[..., 1::2]
        both = (plus + minus - 2 * self.miss) / self.lifted
        apart = (plus - minus) / self.apart
        return np.stack([both + apart, both - apart], axis=-1).reshape(supported.shape) / 2


@observed.register
def _(channel: SignedBits, octets: Octets) -> SupportOperator:
    return SignedOperator(channel, octets)
