"""The likelihood of reports: theta -> P(report), its adjoint and its curvature, for each structure of channel.

The log-likelihood per report is f(theta) = sum_z q_z log(theta . a_z) with report shares q and columns a_z of the channel.
Everything takes groups along the first axis, so one call serves a GROUP BY.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property, singledispatch
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import TOTAL, Channel, KeepOrSpread, TableChannel
from ldpsql.errors import InternalError

Floats: TypeAlias = NDArray[np.float64]


class Operator(ABC):
    """A channel as a linear map, for estimation."""

    inputs: int
    outputs: int
    complete: bool = True  # whether the columns are the probabilities of all reports, not only of observed ones up to a factor

    @abstractmethod
    def forward(self, theta: Floats) -> Floats:
        """Return P(report) under theta: shape (..., inputs) -> (..., outputs)."""

    @abstractmethod
    def adjoint(self, w: Floats) -> Floats:
        """Return sum_z a_xz w_z: shape (..., outputs) -> (..., inputs)."""

    @abstractmethod
    def matrix(self) -> Floats:
        """Return P(report | value), shape (inputs, outputs)."""

    def curvature(self, w: Floats, among: NDArray[np.int64] | slice = slice(None)) -> Floats:
        """Return sum_z w_z a_z a_z' over the values ``among``, for one group of weights, shape (outputs,)."""
        rows = self.matrix()[among]
        return (rows * w) @ rows.T


class DenseOperator(Operator):
    """Any channel, as its table of probabilities."""

    def __init__(self, table: Floats) -> None:
        self._table = table
        self.inputs, self.outputs = table.shape

    def forward(self, theta: Floats) -> Floats:
        """Return P(report) under theta."""
        return theta @ self._table

    def adjoint(self, w: Floats) -> Floats:
        """Return sum_z a_xz w_z."""
        return w @ self._table.T

    def matrix(self) -> Floats:
        """Return P(report | value)."""
        return self._table


class KeepOrSpreadOperator(Operator):
    """``keep`` for the value itself, ``spread`` for each other: rank one and a diagonal."""

    def __init__(self, size: int, keep: float, spread: float) -> None:
        self.inputs = self.outputs = size
        self.keep, self.spread = keep, spread

    def forward(self, theta: Floats) -> Floats:
        """Return P(report) under theta."""
        return self.spread * theta.sum(axis=-1, keepdims=True) + (self.keep - self.spread) * theta

    def adjoint(self, w: Floats) -> Floats:
        """Return sum_z a_xz w_z: the channel is symmetric."""
        return self.forward(w)

    def matrix(self) -> Floats:
        """Return P(report | value)."""
        return np.full((self.inputs, self.inputs), self.spread) + (self.keep - self.spread) * np.eye(self.inputs)


@singledispatch
def operator(channel: Channel) -> Operator:
    """Return the operator that fits the structure of a channel."""
    if not isinstance(channel, TableChannel):
        raise InternalError("the reports of this channel cannot be listed", "its operator is made for observed reports")
    return DenseOperator(channel.probabilities())


@operator.register
def _(channel: KeepOrSpread) -> Operator:
    return KeepOrSpreadOperator(channel.size, channel.keep / TOTAL, channel.spread / TOTAL)


@dataclass(frozen=True)
class Likelihood:
    """Counts of reports, shape (groups, outputs), under a channel; every group holds at least one report."""

    operator: Operator
    counts: Floats

    @cached_property
    def n(self) -> Floats:
        """Number of reports of each group."""
        total: Floats = self.counts.sum(axis=-1)
        return total

    @cached_property
    def shares(self) -> Floats:
        """Share q_z of every report in its group."""
        return self.counts / self.n[:, None]

    def log_likelihood(self, theta: Floats) -> Floats:
        """Return L(theta) = n f(theta) for each group; NaN where theta gives an observed report no chance."""
        expected = self.operator.forward(theta)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.where(self.counts > 0, np.log(np.where(expected > 0, expected, np.nan)), 0.0)
        return np.einsum("gz,gz->g", self.counts, logs)

    def gradient(self, theta: Floats) -> Floats:
        """Return g_x = sum_z q_z a_xz / P_theta(z); one step of IBU is theta * g (ElSalamouny, Palamidessi, eq. 6)."""
        expected = self.operator.forward(theta)
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.operator.adjoint(np.where(self.counts > 0, self.shares / expected, 0.0))

    def gap(self, theta: Floats) -> Floats:
        """Return G = max_x g_x - 1, for which max L - L(theta) <= n log(1+G), whatever theta on the simplex is.

        f is concave, so f(t) - f(theta) <= log(sum_z q_z P_t(z)/P_theta(z)) = log(t . g) <= log(max g).
        """
        gap: Floats = np.nan_to_num(self.gradient(theta).max(axis=-1) - 1.0, nan=np.inf)
        return gap

    def misfit(self, theta: Floats) -> Floats:
        """Return G^2 = 2 sum_z n_z log(q_z / P_theta(z)), the likelihood-ratio statistic against any distribution."""
        with np.errstate(divide="ignore"):
            own = np.where(self.counts > 0, self.counts * np.log(np.where(self.counts > 0, self.shares, 1.0)), 0.0)
        return 2.0 * np.nan_to_num(own.sum(axis=-1) - self.log_likelihood(theta), nan=np.inf)

    def group(self, i: int) -> Likelihood:
        """Return the likelihood of one group."""
        return Likelihood(self.operator, self.counts[i : i + 1])
