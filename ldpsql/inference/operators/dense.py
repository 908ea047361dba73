"""Any channel whose reports can be listed, as its table of probabilities."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import TOTAL, BlockSigns, DenseChannel, Floats, TableChannel, signs_of
from ldpsql.inference.operators.base import Operator, of_each, operator
from ldpsql.inference.operators.weights import Bounding, hazy_weights

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


class DenseOperator(Operator):
    """Any channel, as its table of probabilities."""

    def __init__(self, table: Floats) -> None:
        self._table = table
        self.inputs, self.outputs = table.shape

    def forward(self, theta: Floats) -> Floats:
        return of_each(theta, self._table)

    def adjoint(self, w: Floats) -> Floats:
        return of_each(w, self._table.T)

    def matrix(self) -> Floats:
        return self._table

    @cached_property
    def bounding_weights(self) -> Bounding | None:
        return hazy_weights(self)


@operator.register
def _(channel: TableChannel) -> Operator:
    return DenseOperator(channel.probabilities())


# Windows, as those of the square wave and the piecewise mechanism: products by cumulative sums.

_MANY_REPORTS = 512  # from there on, cumulative sums are quicker than BLAS
_MOST_STEPS = 5  # the first report, and two on each side of a window: it covers part of its first and of its last bin
_LARGEST_RATIO = 1e4  # of chances: small ones would be lost in the rounding of sums with large ones


class StepsOperator(DenseOperator):
    """A table whose rows change at a few reports only: a product takes as long as the reports and values are many.

    Args:
        table: P(report | value).
        places: the reports at which each row changes, shape (steps, inputs).
        heights: by how much it changes there; before the first report, it is 0.

    """

    def __init__(self, table: Floats, places: NDArray[np.int64], heights: Floats) -> None:
        super().__init__(table)
        self._places, self._heights = places, heights

    @cached_property
    def _changes(self) -> tuple[csr_matrix, csr_matrix]:
        """The changes of every row, shape (outputs, inputs), and their transpose."""
        from scipy.sparse import csr_matrix  # noqa: PLC0415  # slow to import, needed for this structure only

        values = np.broadcast_to(np.arange(self.inputs), self._places.shape)
        place = (self._places.ravel(), values.ravel())
        changes = csr_matrix((self._heights.ravel(), place), shape=(self.outputs, self.inputs))
        return changes, changes.T.tocsr()

    def forward(self, theta: Floats) -> Floats:
        changed = self._changes[0] @ theta.reshape(-1, self.inputs).T
        return np.asarray(changed.cumsum(axis=0).T).reshape(*theta.shape[:-1], self.outputs)

    def adjoint(self, w: Floats) -> Floats:
        rest = w.reshape(-1, self.outputs).T[::-1].cumsum(axis=0)[::-1]  # the sum from each report on
        return np.asarray((self._changes[1] @ rest).T).reshape(*w.shape[:-1], self.inputs)


# Hadamard response with blocks, inverted as its authors do: the share of a value is a character of the reports of its block.
#
# Acharya, Sun, Zhang, "Hadamard response: estimating distributions privately, efficiently, and with little communication",
# AISTATS 2019.


class BlocksOperator(DenseOperator):
    """A table in which a value favours the reports of its block that have an even number of bits in common with its number.

    Args:
        table: P(report | value).
        signs: for each value and report 1 if it is favoured, -1 for the other reports of its block, else 0.
        lift: how much likelier a favoured report is than any other.

    """

    scaled = False

    def __init__(self, table: Floats, signs: BlockSigns, lift: float) -> None:
        super().__init__(table)
        self._signs, self._lift = signs, lift

    @cached_property
    def inverse(self) -> Floats:
        """The signs, scaled: those of two values have no report in common, or cancel each other."""
        size = np.abs(self._signs[0]).sum(dtype=np.int64)
        return np.asarray(self._signs.T * (2.0 / (self._lift * size)))

    @cached_property
    def influence(self) -> float:
        """By how much an inverted share moves at most: from one sign to the other."""
        return float(self.inverse.max() - self.inverse.min())

    def invert(self, shares: Floats) -> Floats:
        """Return the sums of the signs; only their expectation sums to one."""
        return np.asarray(shares @ self.inverse)


@operator.register
def _(channel: DenseChannel) -> Operator:
    table, signs = channel.probabilities(), signs_of(channel.weights())
    if signs is None:
        if table.shape[1] >= _MANY_REPORTS and table.max() <= _LARGEST_RATIO * table.min():
            changes = np.diff(table, axis=1, prepend=0.0)
            most = int(np.count_nonzero(changes, axis=1).max())
            if most <= _MOST_STEPS:
                places = np.argsort(changes == 0, axis=1, kind="stable")[:, :most]
                heights = np.take_along_axis(changes, places, axis=1)
                return StepsOperator(table, np.ascontiguousarray(places.T), np.ascontiguousarray(heights.T))
        return DenseOperator(table)
    weights = channel.weights()[0]
    return BlocksOperator(table, signs, int(weights.max() - weights.min()) / TOTAL)
