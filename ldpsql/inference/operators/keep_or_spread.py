"""The likelihood of k-ary randomised response and of channels like it: everything has a closed form."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import TOTAL, Floats, KeepOrSpread
from ldpsql.inference.operators.base import Ends, NamedOperator, Operator, operator


class KeepOrSpreadOperator(NamedOperator):
    """``keep`` for the value itself, ``spread`` for each other: rank one and a diagonal."""

    def __init__(self, size: int, keep: float, spread: float) -> None:
        self.inputs = self.outputs = size
        self.keep, self.spread = keep, spread
        self.exchangeable = keep > spread
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

    def of_reports(self, positions: NDArray[np.int64]) -> Floats:
        """Return P(report | value) of some reports."""
        table = np.full((self.inputs, len(positions)), self.spread)
        table[positions, np.arange(len(positions))] = self.keep
        return table

    def curvature(self, w: Floats, among: NDArray[np.int64] | slice = slice(None)) -> Floats:
        """Return sum_z w_z a_z a_z' over the values ``among``: with a_z = spread + lift e_z it is a sum and a diagonal."""
        own = self._lift * w[among]
        table = self.spread * (self.spread * w.sum() + own[:, None] + own)
        table[np.diag_indices(len(own))] += self._lift * own
        return np.asarray(table)

    @property
    def votes(self) -> tuple[float, float]:
        """A report votes for the value that it names."""
        return self.spread, self.keep

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

    def interval(self, shares: Floats, n: Floats, theta: Floats, z: float) -> Ends:
        """Return the intervals of the inversion: no estimate is more precise, and one step from any theta leads there."""
        return self.inverted_interval(shares, n, theta, z)

    def covariance(self, shares: Floats, theta: Floats) -> Floats:  # noqa: ARG002  # not needed
        """Return the multinomial covariance of the reports over (keep - spread)^2."""
        expected = self.forward(theta)
        return (np.diag(expected) - np.outer(expected, expected)) / self._lift**2

    def functionals(self, shares: Floats, n: Floats, theta: Floats, c: Floats) -> tuple[Floats, Floats]:
        """Return c applied to the inversion, and the multinomial variance: V is (diag(P) - P P')/(keep - spread)^2."""
        expected, inverted = self.forward(theta)[:, None, :], self.invert(shares)[:, None, :]
        mean = expected @ c
        variance = expected @ c**2 - mean**2
        return (inverted @ c)[:, 0], variance[:, 0] / (self._lift**2 * n[:, None])


@operator.register
def _(channel: KeepOrSpread) -> Operator:
    return KeepOrSpreadOperator(channel.size, channel.keep / TOTAL, channel.spread / TOTAL)
