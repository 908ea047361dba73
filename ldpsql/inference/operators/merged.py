"""Blocks of values that count as one value and share its weight equally, and values that are perturbed as another one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, singledispatch

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import Floats
from ldpsql.inference.limits import check
from ldpsql.inference.operators.base import Operator, digest
from ldpsql.inference.operators.dense import DenseOperator, StepsOperator
from ldpsql.inference.operators.supports import SetOperator


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
        return self.mean(self.base.adjoint(w))

    def matrix(self) -> Floats:
        """Return P(report | block)."""
        return self.mean(self.base.matrix().T).T

    def curvature(self, w: Floats, among: NDArray[np.int64] | slice = slice(None)) -> Floats:
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
        return self._table.forward(theta)

    def adjoint(self, w: Floats) -> Floats:
        return self._table.adjoint(w)

    def matrix(self) -> Floats:
        return self._table.matrix()

    def curvature(self, w: Floats, among: NDArray[np.int64] | slice = slice(None)) -> Floats:
        return self._table.curvature(w, among)


class MergedStepsOperator(MergedDenseOperator):
    """Blocks of a table that has quicker products than the smaller table; this one is for curvatures."""

    forward, adjoint = MergedOperator.forward, MergedOperator.adjoint


@merged.register
def _(op: DenseOperator, block: NDArray[np.int64]) -> MergedOperator:
    return MergedDenseOperator(op, block)


@merged.register
def _(op: StepsOperator, block: NDArray[np.int64]) -> MergedOperator:
    few = 4 * (block.max() + 1) < op.inputs
    return (MergedDenseOperator if few else MergedStepsOperator)(op, block)


# Blocks of values under a channel whose reports support sets: pairs of blocks are compared, not pairs of values.


_KEPT = 1 << 22  # cells
_MOST_SAMPLED = 1 << 24


class MergedSupportOperator(MergedOperator):
    """Blocks of values: a report gives a block the mean of what it gives to its values."""

    def __init__(self, base: SetOperator, block: NDArray[np.int64]) -> None:
        super().__init__(base, block)
        self._sets = base
        self.sampled = base.sampled and self.inputs * len(base.sample) <= _MOST_SAMPLED

    def matrix(self) -> Floats:
        """Return P(report | block), up to the factor."""
        return np.concatenate([means for _, means in self._means()], axis=1)

    def of_reports(self, positions: NDArray[np.int64]) -> Floats:
        """Return P(report | block) of some reports, up to the factor, shape (inputs, reports)."""
        return np.concatenate([means for _, means in self._means(positions)], axis=1)

    def rough_curvature(self, w: Floats, among: NDArray[np.int64] | slice = slice(None)) -> Floats:
        """Return the curvature; if there are many reports, from the sample of them and in single precision."""
        if not self.sampled:
            return self.curvature(w, among)
        chosen = w[self._sets.sample]
        rows = self._of_sample[among] * np.sqrt(chosen * (w.sum() / chosen.sum())).astype(np.float32)
        return (rows @ rows.T).astype(np.float64)

    @cached_property
    def _of_sample(self) -> NDArray[np.float32]:
        return np.concatenate([means.astype(np.float32) for _, means in self._means(self._sets.sample)], axis=1)

    def curvature(self, w: Floats, among: NDArray[np.int64] | slice = slice(None)) -> Floats:
        roots, total = np.sqrt(w), np.zeros(())
        for part, means in self._kept or self._means():
            check()
            rows = means[among] * roots[part]
            total = total + rows @ rows.T  # the product of a matrix with itself: BLAS computes half of it
        return total

    @cached_property
    def _kept(self) -> list[tuple[slice, Floats]] | None:
        """The columns of all reports if they are small, because a solver needs many curvatures; otherwise None."""
        return list(self._means()) if self.inputs * self.outputs <= _KEPT else None

    def _means(self, chosen: NDArray[np.int64] | None = None) -> Iterator[tuple[slice, Floats]]:
        """Yield P(report | block), up to the factor, some reports at a time, of all or the chosen ones."""
        order, starts = self._order
        for part, columns in self._sets.columns(chosen=chosen):
            yield part, np.add.reduceat(columns[order], starts, axis=0) / self.sizes[:, None]


@merged.register
def _(op: SetOperator, block: NDArray[np.int64]) -> MergedOperator:
    return MergedSupportOperator(op, block)


# A channel over more values than it was made for: further values are perturbed as one of its own.


class ExtendedOperator(Operator):
    """A channel in which value x is perturbed like value ``at[x]`` of ``base``."""

    def __init__(self, base: Operator, at: NDArray[np.int64] | NDArray[np.int32]) -> None:
        self.base, self.at = base, at
        self.inputs, self.outputs, self.complete = len(at), base.outputs, base.complete
        self.sampled = base.sampled

    @cached_property
    def key(self) -> bytes:
        return digest(b"extended", self.base.key, self.at)

    def forward(self, theta: Floats) -> Floats:
        return self.base.forward(self.summed(theta))

    def summed(self, theta: Floats) -> Floats:
        """Return the weight of every value of ``base``."""
        rows: list[Floats] = [
            np.bincount(self.at, row, self.base.inputs).astype(np.float64) for row in theta.reshape(-1, self.inputs)
        ]
        return np.stack(rows).reshape(*theta.shape[:-1], self.base.inputs)

    def reachable(self) -> NDArray[np.bool_]:
        whole = bool(np.bincount(self.at, minlength=self.base.inputs).all())
        return self.base.reachable() if whole else super().reachable()

    def adjoint(self, w: Floats) -> Floats:
        return self.base.adjoint(w)[..., self.at]

    def matrix(self) -> Floats:
        return self.base.rows(self.at.astype(np.int64, copy=False))

    def rows(self, among: NDArray[np.int64] | slice) -> Floats:
        return self.base.rows(self.at[among].astype(np.int64, copy=False))

    def curvature(self, w: Floats, among: NDArray[np.int64] | slice = slice(None)) -> Floats:
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
