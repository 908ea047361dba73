"""What every operator offers: theta -> P(report), its adjoint, its curvature, and what follows from them.

A structure overrides what it can do better than the table of probabilities. Everything takes groups along the first axes, so
one call serves a GROUP BY.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property, singledispatch
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import Channel, TableChannel
from ldpsql.errors import IllConditioned, InternalError

Floats: TypeAlias = NDArray[np.float64]

MAX_CONDITION = 1e8


class Operator(ABC):
    """A channel as a linear map, for estimation."""

    inputs: int
    outputs: int
    complete: bool = True  # whether the columns are the probabilities of all reports, not only of observed ones up to a factor
    injective: bool = False  # whether it is known that the maximum of the likelihood is always unique

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

    @cached_property
    def condition(self) -> float:
        """The 2-norm condition number of the channel: how much inversion can magnify errors."""
        return float(np.linalg.cond(self.matrix()))

    @cached_property
    def influence(self) -> float:
        """By how much an inverted share moves at most, times n, when one of n reports is replaced."""
        inverse = np.linalg.pinv(self.matrix())
        return float((inverse.max(axis=0) - inverse.min(axis=0)).max())

    def invert(self, shares: Floats) -> Floats:
        """Return the unbiased v with v A = shares: (groups, outputs) -> (groups, inputs); shares of values may be negative.

        They sum to one, except where reports support sets: there only their expectation does.

        Raises:
            IllConditioned: where the channel has no inverse, or one that drowns the estimate in noise.

        """
        if not self.condition <= MAX_CONDITION:
            raise IllConditioned(
                f"the channel has condition number {self.condition:.3g}, too large to invert",
                "use ibu",
                condition=self.condition,
            )
        # With more reports than values the least-squares inverse is still unbiased.
        v = np.asarray(np.linalg.lstsq(self.matrix().T, shares.T, rcond=None)[0].T, dtype=np.float64)
        return v / v.sum(axis=-1, keepdims=True)

    def maximum(self, shares: Floats) -> Floats | None:  # noqa: ARG002  # for those that have one
        """Return the maximum of the likelihood where it has a closed form: (groups, outputs) -> (groups, inputs)."""
        return None

    def law_fit(self, shares: Floats, n: float) -> tuple[float, float]:  # noqa: ARG002  # for those that are not complete
        """Return a statistic and ln of a bound of its p-value that tell honest reports of one group from others.

        For operators that are not complete, whose reports nearly all differ: something of them must follow a known law. Without
        one there is no test, and the p-value is 1.
        """
        return 0.0, 0.0

    def interval(self, shares: Floats, n: Floats, theta: Floats, z: float) -> tuple[Floats, Floats, Floats]:
        """Return standard error, low and high of every share of each group: ``z`` errors around the debiased estimate.

        The centre is one step from theta, theta + V(g - 1), where V is the inverse, among directions that sum to zero, of the
        expected information sum_z a_z a_z' / P_theta(z) of a report. On the border of the simplex theta itself is not normal
        around the truth; the centre is. A share that the reports say nothing about has an infinite error.
        """
        expected = self.forward(theta)
        gradient = self.adjoint(shares / np.maximum(expected, 1e-300))
        centre, variance = np.empty_like(theta), np.empty_like(theta)
        for i, p in enumerate(expected):
            # The expected information needs all reports; with the observed ones, their shares stand for their probabilities.
            weight = p if self.complete else shares[i]
            inverse, unknown = tangent_inverse(self.curvature(np.where(p > 0, weight / np.where(p > 0, p, 1.0) ** 2, 0.0)))
            centre[i] = theta[i] + inverse @ (gradient[i] - 1.0)
            variance[i] = np.where(unknown, np.inf, inverse.diagonal())
        error = np.sqrt(np.maximum(variance, 0.0) / n[:, None])
        reach = np.where(np.isfinite(error), z * error, 1.0)  # a share lies within 1 of anything on the simplex
        middle = np.where(np.isfinite(error), centre, theta)
        return error, middle - reach, middle + reach


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


def tangent_inverse(information: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Invert the information among directions that sum to zero; tell the values it says nothing about."""
    size = len(information)
    centring = np.eye(size) - 1.0 / size
    eigenvalues, vectors = np.linalg.eigh(centring @ information @ centring)
    floor = 1e-10 * max(eigenvalues[-1], 1e-300)
    kept = eigenvalues > floor
    inverse = (vectors[:, kept] / eigenvalues[kept]) @ vectors[:, kept].T
    null = vectors[:, ~kept] - vectors[:, ~kept].mean(axis=0)  # drop the direction (1, ..., 1) itself
    return inverse, np.abs(null).max(axis=1, initial=0.0) > 1e-6


@singledispatch
def operator(channel: Channel) -> Operator:
    """Return the operator that fits the structure of a channel."""
    if not isinstance(channel, TableChannel):
        raise InternalError("the reports of this channel cannot be listed", "its operator is made for observed reports")
    return DenseOperator(channel.probabilities())
