"""Several reports of one value: the likelihood of a list of reports is the product of theirs."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ldpsql.inference.operators.base import Ends, Floats, Operator, digest
from ldpsql.inference.operators.dense import DenseOperator

_BLOCK = 1 << 22  # cells of logarithms at a time


class ProductOperator(DenseOperator):
    """One column for each list of reports of one value, divided by its largest entry.

    The factor changes no estimate, and keeps the product of a long list from underflowing: logarithms are added, the largest
    sum is subtracted, and only then are they exponentiated. A list that no value can give is a column of zeros.
    """

    complete = False

    def __init__(self, single: Operator, positions: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
        """Multiply the columns ``positions`` of ``single``, a list of ``lengths[u]`` >= 1 of them for each u."""
        with np.errstate(divide="ignore"):
            logs = np.log(single.matrix()).T
        self._single, self._positions, self._lengths = single, positions, lengths
        ends = np.concatenate([[0], np.cumsum(lengths)])
        table = np.empty((len(lengths), single.inputs))
        for first, last in _blocks(ends, single.inputs):
            here = positions[ends[first] : ends[last]]
            table[first:last] = np.add.reduceat(logs[here], ends[first:last] - ends[first], axis=0)
        table -= np.maximum(table.max(axis=1, keepdims=True), -np.finfo(np.float64).max)
        super().__init__(np.exp(table).T)

    @cached_property
    def key(self) -> bytes:
        """A digest of the single reports of each list."""
        return digest(b"product", self._single.key, self._positions, self._lengths)

    @cached_property
    def condition(self) -> float:
        """The condition number of one report, as `invert` takes the mean of a user's reports."""
        return self._single.condition

    @cached_property
    def influence(self) -> float:
        """The influence of one report: a user can replace a whole list, and the mean moves as far as all of it does."""
        return self._single.influence

    def invert(self, shares: Floats) -> Floats:
        """Return the inverse of the shares of single reports, which share the weight of their user."""
        each = np.repeat(shares / self._lengths, self._lengths, axis=-1)
        counts = [np.bincount(self._positions, weights=row, minlength=self._single.outputs) for row in each]
        return self._single.invert(np.array(counts))

    inverse = None

    def inverted_interval(self, shares: Floats, n: Floats, theta: Floats, z: float) -> Ends:  # noqa: ARG002
        """Return standard error of every share that `invert` gives, and ``z`` errors to either side.

        The error is that of the mean over the users, from how the inverses of their lists are scattered.
        """
        each = self._single.invert(np.eye(self._single.outputs))
        ends = np.concatenate([[0], np.cumsum(self._lengths)])
        second = np.zeros((len(shares), self.inputs))
        for first, last in _blocks(ends, self.inputs):
            here = each[self._positions[ends[first] : ends[last]]]
            means = np.add.reduceat(here, ends[first:last] - ends[first], axis=0) / self._lengths[first:last, None]
            second += shares[:, first:last] @ means**2
        v = self.invert(shares)
        error = np.sqrt(np.maximum(second - v**2, 0.0) / n[:, None])
        return error, v - z * error, v + z * error


def _blocks(ends: NDArray[np.int64], inputs: int) -> list[tuple[int, int]]:
    """Cut the lists into runs of at most `_BLOCK` cells, or of one list."""
    cuts, start = [], 0
    while start < len(ends) - 1:
        stop = int(np.searchsorted(ends, ends[start] + max(1, _BLOCK // inputs), side="right")) - 1
        stop = max(stop, start + 1)
        cuts.append((start, stop))
        start = stop
    return cuts
