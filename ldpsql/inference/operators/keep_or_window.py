"""The likelihood of a kept key with a number near the value: a constant, plus the same window on the bins of every key."""

from __future__ import annotations

import numpy as np

from ldpsql.channels import TOTAL, Floats, KeepOrWindow
from ldpsql.inference.operators.base import NamedOperator, Operator, operator


class KeepOrWindowOperator(NamedOperator):
    """``anything`` for each symbol, plus ``kept`` times the row of ``window`` for the symbols of the value's own key."""

    def __init__(self, keys: int, anything: float, window: Floats) -> None:
        self.keys, self.bins = keys, len(window)
        self.inputs = self.outputs = keys * self.bins
        self.anything, self.kept, self.window = anything, 1.0 - anything * self.inputs, window

    def _folded(self, x: Floats, window: Floats) -> Floats:
        near = (x.reshape(*x.shape[:-1], self.keys, self.bins) @ window).reshape(x.shape)
        return np.asarray(self.anything * x.sum(axis=-1, keepdims=True) + self.kept * near, dtype=np.float64)

    def forward(self, theta: Floats) -> Floats:
        """Return P(report) under theta."""
        return self._folded(theta, self.window)

    def adjoint(self, w: Floats) -> Floats:
        """Return sum_z a_xz w_z."""
        return self._folded(w, self.window.T)

    def matrix(self) -> Floats:
        """Return P(report | value)."""
        return np.asarray(self.anything + self.kept * np.kron(np.eye(self.keys), self.window), dtype=np.float64)


@operator.register
def _(channel: KeepOrWindow) -> Operator:
    return KeepOrWindowOperator(channel.keys, channel.anything / TOTAL, channel.window.probabilities())
