"""A channel over more values than it was made for: further values are perturbed as one of its own."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import Floats
from ldpsql.inference.operators.base import Operator, digest


class ExtendedOperator(Operator):
    """A channel in which value x is perturbed like value ``at[x]`` of ``base``."""

    def __init__(self, base: Operator, at: NDArray[np.int64] | NDArray[np.int32]) -> None:
        self.base, self.at = base, at
        self.inputs, self.outputs, self.complete = len(at), base.outputs, base.complete
        self.sampled = base.sampled

    @cached_property
    def key(self) -> bytes:
        """A digest of the channel and the places of the values."""
        return digest(b"extended", self.base.key, self.at)

    def forward(self, theta: Floats) -> Floats:
        """Return P(report) under theta."""
        return self.base.forward(self.summed(theta))

    def summed(self, theta: Floats) -> Floats:
        """Return the weight of every value of ``base``."""
        rows: list[Floats] = [
            np.bincount(self.at, row, self.base.inputs).astype(np.float64) for row in theta.reshape(-1, self.inputs)
        ]
        return np.stack(rows).reshape(*theta.shape[:-1], self.base.inputs)

    def reachable(self) -> NDArray[np.bool_]:
        """Return which reports some value gives with a chance above zero."""
        whole = bool(np.bincount(self.at, minlength=self.base.inputs).all())
        return self.base.reachable() if whole else super().reachable()

    def adjoint(self, w: Floats) -> Floats:
        """Return sum_z a_xz w_z."""
        return self.base.adjoint(w)[..., self.at]

    def matrix(self) -> Floats:
        """Return P(report | value)."""
        return self.base.rows(self.at.astype(np.int64, copy=False))

    def rows(self, among: NDArray[np.int64] | slice) -> Floats:
        """Return P(report | value) of some values."""
        return self.base.rows(self.at[among].astype(np.int64, copy=False))

    def curvature(self, w: Floats, among: NDArray[np.int64] | slice = slice(None)) -> Floats:
        """Return sum_z w_z a_z a_z' over the values ``among``."""
        own, place = np.unique(self.at[among].astype(np.int64, copy=False), return_inverse=True)
        return self.base.curvature(w, own)[np.ix_(place, place)]

    def rough_curvature(self, w: Floats, among: NDArray[np.int64] | slice = slice(None)) -> Floats:
        """Return the rough curvature of the base, for the values ``among``."""
        own, place = np.unique(self.at[among].astype(np.int64, copy=False), return_inverse=True)
        return self.base.rough_curvature(w, own)[np.ix_(place, place)]

    @cached_property
    def condition(self) -> float:
        """Infinite: values that are perturbed alike cannot be distinguished."""
        return float("inf")
