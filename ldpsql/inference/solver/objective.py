"""The objective for one group of reports, and how far a distribution is from the maximum.

The maximum of f(theta) = sum_z q_z log(theta . a_z) on the simplex is the minimum of phi(theta) = -f(theta) + sum theta over
theta >= 0, which sums to one (Kim, Carbonetto, Stephens, Anitescu, "A fast algorithm for maximum likelihood estimation of
mixture proportions", JCGS 2020). There g_x = sum_z q_z a_xz / (theta . a_z) is 1 where theta_x > 0, and at most 1 elsewhere.
"""

from __future__ import annotations

from functools import cached_property
from math import isnan

import numpy as np
from numpy.typing import NDArray

from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.operators import Floats

TINY = 1e-150  # stands for a probability of zero; its square does not underflow


class Point:
    """A distribution of the values of one group, with phi, its gradient and the gap there, each computed on first use."""

    def __init__(self, likelihood: Likelihood, theta: Floats) -> None:
        self._likelihood, self.theta = likelihood, theta
        self.operator, self.shares = likelihood.operator, likelihood.shares[0]

    def at(self, theta: Floats) -> Point:
        """Return another point of the same problem: theta scaled to sum to one."""
        return Point(self._likelihood, theta / theta.sum())

    def unscaled(self, theta: Floats) -> Point:
        """Return another point of the same problem, whose theta need not sum to one."""
        return Point(self._likelihood, theta)

    @property
    def seen(self) -> NDArray[np.bool_]:
        """Which reports were observed."""
        return self.shares > 0

    @cached_property
    def expected(self) -> Floats:
        """P(report) under theta."""
        return self.operator.forward(self.theta)

    @cached_property
    def phi(self) -> float:
        """The objective; infinite if theta gives an observed report probability zero."""
        if ((self.expected <= 0) & self.seen).any():
            return np.inf
        return float(self.theta.sum() - self.shares @ np.log(self._divisor))

    @cached_property
    def _divisor(self) -> Floats:
        return np.maximum(self.expected, TINY)

    @cached_property
    def _ratios(self) -> Floats:
        return self.shares / self._divisor

    @cached_property
    def gradient(self) -> Floats:
        """g, which is 1 minus the gradient of phi."""
        return self.operator.adjoint(self._ratios)

    @cached_property
    def gap(self) -> float:
        """G = max g - 1, for which max f - f(theta) <= log(1 + G): see `Likelihood.gap`."""
        highest = float(self.gradient.max())
        return np.inf if isnan(highest) else highest - 1.0

    def curvature(self, among: NDArray[np.int64] | slice) -> Floats:
        """Return the second derivatives of phi by the values ``among``, for steps: from a sample if there are many reports."""
        return self.operator.rough_curvature(self._ratios / self._divisor, among)

    def bent(self, direction: Floats) -> Floats:
        """Return the second derivatives of phi times a direction."""
        return self.operator.adjoint(self._ratios / self._divisor * self.operator.forward(direction))

    def em(self) -> Point:
        """Return the point after one step of IBU."""
        return self.at(self.theta * self.gradient)


class TiedPoint(Point):
    """A distribution that is equal within each block of values; its gradient is that along such distributions."""

    def __init__(self, likelihood: Likelihood, theta: Floats, block: NDArray[np.int64]) -> None:
        super().__init__(likelihood, block_means(theta, block))
        self._block = block

    def at(self, theta: Floats) -> TiedPoint:
        """Return another point of the same problem: the nearest that is equal within blocks, scaled to sum to one."""
        return TiedPoint(self._likelihood, theta / theta.sum(), self._block)

    @cached_property
    def gradient(self) -> Floats:
        """The mean of g over each block."""
        return block_means(self.operator.adjoint(self._ratios), self._block)


def block_means(v: Floats, block: NDArray[np.int64]) -> Floats:
    """Return v with each number replaced by the mean of its block."""
    return np.asarray((np.bincount(block, weights=v) / np.bincount(block))[block], dtype=np.float64)


def nearer(one: Point, other: Point) -> Point:
    """Return the point with the smaller gap."""
    return other if other.gap < one.gap else one
