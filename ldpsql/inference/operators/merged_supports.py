"""Blocks of values under a channel whose reports support sets: pairs of blocks are compared, not pairs of values."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import Floats
from ldpsql.inference.deadline import check
from ldpsql.inference.operators.merged import MergedOperator, merged
from ldpsql.inference.operators.supports import SetOperator

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
        """Return sum_z w_z a_z a_z' over the blocks ``among``."""
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
