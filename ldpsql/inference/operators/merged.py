"""Values taken together: each block of values counts as one value, and shares its weight equally among them."""

from __future__ import annotations

from functools import cached_property, singledispatch

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import Floats
from ldpsql.inference.operators.base import Operator, digest
from ldpsql.inference.operators.dense import DenseOperator


class MergedOperator(Operator):
    """A channel from blocks of values to reports; ``block`` is the number of each value's block, from 0."""

    def __init__(self, base: Operator, block: NDArray[np.int64]) -> None:
        self.base, self.block = base, block
        self.sizes = np.bincount(block)
        self.inputs, self.outputs, self.complete = len(self.sizes), base.outputs, base.complete
        self.injective = base.injective

    @cached_property
    def key(self) -> bytes:
        """A digest of the blocks and the channel; the key of the channel itself if every value is a block."""
        single = np.array_equal(self.block, np.arange(self.base.inputs))
        return self.base.key if single else digest(b"merged", self.base.key, self.block)

    @cached_property
    def _order(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The values block by block, and the position at which each block starts."""
        return np.argsort(self.block, kind="stable"), np.concatenate([[0], self.sizes.cumsum()[:-1]])

    def spread(self, weights: Floats) -> Floats:
        """Share the weight of every block equally among its values."""
        return (weights / self.sizes)[..., self.block]

    def summed(self, weights: Floats) -> Floats:
        """Return the weight of every block."""
        order, starts = self._order
        return np.add.reduceat(weights[..., order], starts, axis=-1)

    def mean(self, of_values: Floats) -> Floats:
        """Return the mean over every block, along the last axis."""
        return self.summed(of_values) / self.sizes

    def forward(self, theta: Floats) -> Floats:
        """Return P(report) under these weights of the blocks."""
        return self.base.forward(self.spread(theta))

    def adjoint(self, w: Floats) -> Floats:
        """Return sum_z a_xz w_z for every block."""
        return self.mean(self.base.adjoint(w))

    def matrix(self) -> Floats:
        """Return P(report | block)."""
        return self.mean(self.base.matrix().T).T

    def curvature(self, w: Floats, among: NDArray[np.int64] | slice = slice(None)) -> Floats:
        """Return sum_z w_z a_z a_z' over the blocks ``among``."""
        return self.mean(self.mean(self.base.curvature(w)).T)[among][:, among]

    def maximum(self, shares: Floats) -> Floats | None:
        """Return the maximum if the channel treats all values alike: reports of one block may then share their counts."""
        if not self.base.exchangeable:
            return None
        exact = self.base.maximum(self.mean(shares)[..., self.block])
        return None if exact is None else self.summed(exact)


@singledispatch
def merged(op: Operator, block: NDArray[np.int64]) -> MergedOperator:
    """Return the operator of blocks of values that fits the structure."""
    return MergedOperator(op, block)


class MergedDenseOperator(MergedOperator):
    """Blocks of a table: a smaller table."""

    @cached_property
    def _table(self) -> DenseOperator:
        return DenseOperator(self.mean(self.base.matrix().T).T)

    def forward(self, theta: Floats) -> Floats:
        """Return P(report) under these weights of the blocks."""
        return self._table.forward(theta)

    def adjoint(self, w: Floats) -> Floats:
        """Return sum_z a_xz w_z for every block."""
        return self._table.adjoint(w)

    def matrix(self) -> Floats:
        """Return P(report | block)."""
        return self._table.matrix()

    def curvature(self, w: Floats, among: NDArray[np.int64] | slice = slice(None)) -> Floats:
        """Return sum_z w_z a_z a_z' over the blocks ``among``."""
        return self._table.curvature(w, among)


@merged.register
def _(op: DenseOperator, block: NDArray[np.int64]) -> MergedOperator:
    return MergedDenseOperator(op, block)
