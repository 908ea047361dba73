"""The likelihood of reports that support sets of values: P(report|x) is proportional to 1 + (ratio - 1) [x in the set]."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import TOTAL, Drawn, OrthogonalHash, SetChannel
from ldpsql.fit import known_law, within
from ldpsql.operators.base import Floats, Operator, operator

_BLOCK = 1 << 22  # cells turned into doubles at a time


class SupportOperator(Operator):
    """One column for each of some distinct reports, up to a factor that no estimate depends on.

    ``supports`` has shape (inputs, outputs). With ``scale`` the columns are the probabilities of all reports there are;
    without, they are those of the observed ones only, and likelihoods hold up to a constant.
    """

    def __init__(self, channel: SetChannel, supports: NDArray[np.bool_], scale: float | None = None) -> None:
        self.inputs, self.outputs = supports.shape
        self.complete = scale is not None
        self._hit, self._miss = float(channel.hit), float(channel.miss)
        self.supports = supports
        self._scale = 1.0 if scale is None else scale
        self._lift = float(channel.ratio - 1)
        self._size_law = channel.size_law

    @classmethod
    def observed(cls, channel: SetChannel, drawn: Drawn) -> SupportOperator:
        """Return the operator of these distinct reports."""
        return cls(channel, np.ascontiguousarray(channel.supports(drawn).T))

    def _blocks(self) -> Iterator[tuple[slice, Floats]]:
        step = max(1, _BLOCK // self.inputs)
        for start in range(0, self.outputs, step):
            part = slice(start, start + step)
            yield part, self.supports[:, part].astype(np.float64)

    def forward(self, theta: Floats) -> Floats:
        """Return P(report) under theta, up to the factor."""
        inside = np.empty((*theta.shape[:-1], self.outputs))
        for part, table in self._blocks():
            inside[..., part] = theta @ table
        return self._scale * (theta.sum(axis=-1, keepdims=True) + self._lift * inside)

    def adjoint(self, w: Floats) -> Floats:
        """Return sum_z a_xz w_z."""
        return self._scale * (w.sum(axis=-1, keepdims=True) + self._lift * self.supported(w))

    def supported(self, w: Floats) -> Floats:
        """Return for each value the weight of the reports that support it."""
        total = np.zeros((*w.shape[:-1], self.inputs))
        for part, table in self._blocks():
            total += w[..., part] @ table.T
        return total

    def curvature(self, w: Floats, among: NDArray[np.int64] | slice = slice(None)) -> Floats:
        """Return sum_z w_z a_z a_z' over the values ``among``: a constant, two rank-one parts and the supports."""
        single = self.supported(w)[among]
        both = np.zeros((len(single), len(single)))
        for part, table in self._blocks():
            rows = table[among]
            both += (rows * w[part]) @ rows.T
        lifted = self._lift * (single[:, None] + single) + self._lift**2 * both
        total: Floats = self._scale**2 * (w.sum() + lifted)
        return total

    def matrix(self) -> Floats:
        """Return P(report | value), up to the factor."""
        return self._scale + self._scale * self._lift * self.supports.astype(np.float64)

    @cached_property
    def condition(self) -> float:
        """Expected support counts are miss + (hit - miss) theta: eigenvalues hit - miss and hit + (inputs - 1) miss."""
        lift = self._hit - self._miss
        return (lift + self.inputs * self._miss) / abs(lift)

    @cached_property
    def influence(self) -> float:
        """A report supports a value or not."""
        return 1.0 / abs(self._hit - self._miss)

    def law_fit(self, shares: Floats, n: float) -> tuple[float, float]:
        """Compare the numbers of values that the reports support with their law, and the share of each with its range.

        Whatever the distribution, a value is supported by between miss and hit of the reports.
        """
        inside = self.forward(np.ones(self.inputs)) / self._scale - self.inputs
        supported = np.rint(inside / self._lift).astype(np.int64)
        sizes = np.bincount(supported, weights=shares * n, minlength=self.inputs + 1)
        statistic, log_p = known_law(np.asarray(sizes, dtype=np.float64), self._size_law())
        log_q = within(self.supported(shares), n, *sorted((self._miss, self._hit)))
        return statistic, min(0.0, min(log_p, log_q) + float(np.log(2)))  # two tests

    def invert(self, shares: Floats) -> Floats:
        """Return (share of the reports that support x - miss)/(hit - miss)."""
        return (self.supported(shares) - self._miss) / (self._hit - self._miss)


@operator.register
def _(channel: OrthogonalHash) -> Operator:
    everything = np.arange(channel.outputs, dtype=np.int32)
    scale = channel.response.spread / TOTAL / channel.seeds
    return SupportOperator(channel, np.ascontiguousarray(channel.supports(everything).T), scale)
