"""Several reports of one value: the likelihood of a list of reports is the product of theirs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import Floats
from ldpsql.errors import NotApplicable
from ldpsql.inference.deadline import check
from ldpsql.inference.operators.base import Ends, Operator, digest
from ldpsql.inference.operators.dense import DenseOperator
from ldpsql.inference.operators.inverted import InvertedOperator
from ldpsql.inference.operators.stack import StackOperator
from ldpsql.inference.operators.weights import Bounding, Majorants, ReportWeights, weighable

_BLOCK = 1 << 22  # cells of logarithms at a time
MOST_CELLS = 1 << 28  # lists times values: 2 GiB


class ProductOperator(InvertedOperator, DenseOperator):
    """One column for each list of reports of one value, divided by its largest entry.

    The factor changes no estimate, and keeps the product of a long list from underflowing: logarithms are added, the largest
    sum is subtracted, and only then are they exponentiated. A list that no value can give is a column of zeros.
    """

    complete = False

    def __init__(
        self, single: Operator, positions: NDArray[np.int64], lengths: NDArray[np.int64], *, differ: bool = False
    ) -> None:
        """Multiply the columns ``positions`` of ``single``, a list of ``lengths[u]`` >= 1 of them for each u.

        Args:
            single: the operator of one report.
            positions: the reports of all lists, one after another.
            lengths: the number of reports of each list.
            differ: whether few people have the same list, so that their number says little about its probability.

        """
        self._seen, self._place = np.unique(positions, return_inverse=True)
        if max(len(lengths), len(self._seen)) * single.inputs > MOST_CELLS:
            raise NotApplicable(
                f"the table of {len(lengths):,} lists of reports and {single.inputs:,} values is too large",
                "use fewer values, or ldp.ibu on one report of each user",
            )
        self._single, self._positions, self._lengths, self._differ = single, positions, lengths, differ
        self.isotropic = single.isotropic
        with np.errstate(divide="ignore"):
            logs = np.log(single.of_reports(self._seen)).T
        ends = np.concatenate([[0], np.cumsum(lengths)])
        table = np.empty((len(lengths), single.inputs))
        for first, last in _blocks(ends, single.inputs):
            check()
            here = self._place[ends[first] : ends[last]]
            table[first:last] = np.add.reduceat(logs[here], ends[first:last] - ends[first], axis=0)
        table -= np.maximum(table.max(axis=1, keepdims=True), -np.finfo(np.float64).max)
        super().__init__(np.exp(table).T)

    @cached_property
    def key(self) -> bytes:
        """A digest of the single reports of each list."""
        return digest(b"product", self._single.key, self._positions, self._lengths)

    @cached_property
    def bounding_weights(self) -> Bounding | None:
        """The weights of lists, if few are the same or a mechanism of a report hardly distinguishes neighbouring values."""
        parts = self._single.parts if type(self._single) is StackOperator else (self._single,)
        if not (self._differ or any(part.bounding_weights for part in parts)) or not all(map(weighable, parts)):
            return None
        return _ListWeights([part.bounding_weights or ReportWeights(part) for part in parts], self._positions, self._lengths)

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

    def information(self, theta: Floats, shares: Floats) -> Floats:
        """Return the expected information of a list, shape (inputs, inputs), unless the operator of one report has none."""
        return self._single.information(theta, shares) if self.isotropic else super().information(theta, shares)

    def inverted_functionals(
        self,
        shares: Floats,
        n: Floats,
        theta: Floats,  # noqa: ARG002  # as observed
        c: Floats,
    ) -> tuple[Floats, Floats]:
        """Return c'v for the inversion v, and its variance, from how the contributions of the reports are scattered."""
        inverted, starts = self._inverted(), np.cumsum(self._lengths) - self._lengths
        centre, second = np.empty((2, len(shares), c.shape[-1]))
        for i, each in enumerate(np.broadcast_to(c, (len(shares), *c.shape[-2:]))):
            check()
            lists = np.add.reduceat((inverted @ each)[self._place], starts, axis=0) / self._lengths[:, None]
            centre[i], second[i] = shares[i] @ lists, shares[i] @ lists**2
        return centre, np.maximum(second - centre**2, 0.0) / n[:, None]

    def inverted_interval(self, shares: Floats, n: Floats, theta: Floats, z: float) -> Ends:  # noqa: ARG002
        """Return standard error of every share that `invert` gives, and ``z`` errors to either side.

        The error is that of the mean over the users, from how the inverses of their lists are scattered.
        """
        each = self._inverted()
        ends = np.concatenate([[0], np.cumsum(self._lengths)])
        second = np.zeros((len(shares), self.inputs))
        for first, last in _blocks(ends, self.inputs):
            check()
            here = each[self._place[ends[first] : ends[last]]]
            means = np.add.reduceat(here, ends[first:last] - ends[first], axis=0) / self._lengths[first:last, None]
            second += shares[:, first:last] @ means**2
        v = self.invert(shares)
        error = np.sqrt(np.maximum(second - v**2, 0.0) / n[:, None])
        return error, v - z * error, v + z * error

    def _inverted(self) -> Floats:
        """Return the inverse of each report that is seen, shape (seen, inputs)."""
        out, step = np.empty((len(self._seen), self.inputs)), max(1, _BLOCK // self._single.outputs)
        for start in range(0, len(self._seen), step):
            check()
            here = self._seen[start : start + step]
            out[start : start + step] = self._single.invert(
                (here[:, None] == np.arange(self._single.outputs)).astype(np.float64)
            )
        return out


class _ListWeights:
    """Weights of lists of reports: the mean of those of its reports, which has the same expectation whatever the value is."""

    def __init__(self, parts: Sequence[Bounding], positions: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
        """Take the weights of the reports of each mechanism, and the reports of all lists one after another."""
        self._parts, self._positions, self._lengths = parts, positions, lengths

    def majorants(self, c: Floats, n: float, z: float, *, sets: bool) -> Majorants:
        """Return the majorants of functionals; see `ReportWeights.majorants`."""
        parts = [part.majorants(c, n, z, sets=sets) for part in self._parts]
        of_reports, starts = np.concatenate([part.weights for part in parts], axis=1), np.cumsum(self._lengths) - self._lengths
        lists = [np.add.reduceat(row[self._positions], starts) / self._lengths for row in of_reports]
        return Majorants(np.array(lists), np.max([part.bias for part in parts], axis=0))


def _blocks(ends: NDArray[np.int64], inputs: int) -> list[tuple[int, int]]:
    """Cut the lists into runs of at most `_BLOCK` cells, or of one list."""
    cuts, start = [], 0
    while start < len(ends) - 1:
        stop = int(np.searchsorted(ends, ends[start] + max(1, _BLOCK // inputs), side="right")) - 1
        stop = max(stop, start + 1)
        cuts.append((start, stop))
        start = stop
    return cuts
