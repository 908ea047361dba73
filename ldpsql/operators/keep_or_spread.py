"""The likelihood of k-ary randomised response and its kin: everything has a closed form."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from ldpsql.channels import TOTAL, KeepOrSpread
from ldpsql.operators.base import Floats, Operator, operator


class KeepOrSpreadOperator(Operator):
    """``keep`` for the value itself, ``spread`` for each other: rank one and a diagonal."""

    def __init__(self, size: int, keep: float, spread: float) -> None:
        self.inputs = self.outputs = size
        self.keep, self.spread = keep, spread
        self.injective = keep != spread  # a value that nobody reported has g < 1

    @property
    def _lift(self) -> float:
        return self.keep - self.spread

    def forward(self, theta: Floats) -> Floats:
        """Return P(report) under theta."""
        return self.spread * theta.sum(axis=-1, keepdims=True) + self._lift * theta

    def adjoint(self, w: Floats) -> Floats:
        """Return sum_z a_xz w_z: the channel is symmetric."""
        return self.forward(w)

    def matrix(self) -> Floats:
        """Return P(report | value)."""
        return np.full((self.inputs, self.inputs), self.spread) + self._lift * np.eye(self.inputs)

    @cached_property
    def condition(self) -> float:
        """The eigenvalues are 1 and keep - spread."""
        return 1.0 / abs(self._lift) if self._lift else np.inf

    @cached_property
    def influence(self) -> float:
        """One report moves one share up and another down."""
        return self.condition

    def invert(self, shares: Floats) -> Floats:
        """Return (q - spread)/(keep - spread)."""
        return (shares - self.spread) / self._lift

    def maximum(self, shares: Floats) -> Floats | None:
        """Return the exact maximum: water-filling on the sorted shares, all groups at once.

        It solves g_x = 1 where theta_x > 0 and g_x <= 1 elsewhere, for keep > spread.
        Source: Pinzon, Palamidessi et al., arXiv 2601.08603.
        """
        if self._lift <= 0:
            return None
        falling = -np.sort(-shares, axis=-1)
        m = np.arange(1, self.inputs + 1)
        scale = falling.cumsum(axis=-1) / (self._lift + m * self.spread)
        active = falling > self.spread * scale  # true up to some m, false after it
        last = self.inputs - 1 - active[:, ::-1].argmax(axis=-1)
        chosen = np.take_along_axis(scale, last[:, None], axis=-1)
        theta: Floats = np.maximum(0.0, (shares / chosen - self.spread) / self._lift)
        return theta / theta.sum(axis=-1, keepdims=True)

    def interval(self, shares: Floats, n: Floats, theta: Floats, z: float) -> tuple[Floats, Floats, Floats]:
        """Return the multinomial error and Wilson's interval of every report's share, inverted: right also for few reports.

        Source: Wilson, "Probable inference, the law of succession, and statistical inference", JASA 1927.
        """
        n, expected = n[:, None], self.forward(theta)
        error = np.sqrt(expected * (1.0 - expected) / n) / abs(self._lift)
        middle = shares + z**2 / (2 * n)
        reach = z * np.sqrt(shares * (1 - shares) / n + (z / (2 * n)) ** 2)
        ends = np.sort([self.invert(end / (1 + z**2 / n)) for end in (middle - reach, middle + reach)], axis=0)
        return error, ends[0], ends[1]


@operator.register
def _(channel: KeepOrSpread) -> Operator:
    return KeepOrSpreadOperator(channel.size, channel.keep / TOTAL, channel.spread / TOTAL)
