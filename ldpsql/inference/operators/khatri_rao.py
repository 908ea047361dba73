"""Observed reports of several columns: the columns of a product of channels, which are products of columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import Floats
from ldpsql.channels.costs import Cost
from ldpsql.inference.deadline import check
from ldpsql.inference.operators.base import MAX_CONDITION, Ends, InvertedOperator, digest
from ldpsql.inference.operators.kronecker import MOST_PAIRS, extremes

_BLOCK = 1 << 22


class ObservedColumn(NamedTuple):
    """The reports of one column that were observed.

    Args:
        table: P(report | value), up to a factor of each report, shape (values, reports).
        pull: what each report contributes to the inverse of the channel, shape (values, reports).
        condition: the condition number of the channel.
        ends: the largest and the smallest contribution of any report to a share.

    """

    table: Floats
    pull: Floats
    condition: float
    ends: tuple[float, float]


class KhatriRaoOperator(InvertedOperator):
    """P(reports u | values) is the product of the columns' P(report u_j | value): only the reports that were observed."""

    complete = False
    inverse = None

    def __init__(self, columns: Sequence[ObservedColumn]) -> None:
        self._columns = tuple(columns)
        self._tables, self._pulls = [one.table for one in columns], [one.pull for one in columns]
        self.shape = tuple(map(len, self._tables))
        self.inputs, self.outputs = prod(self.shape), self._tables[0].shape[1]
        Cost(bytes=8.0 * self.inputs * self.outputs).check(
            f"a table of {self.outputs:,} distinct reports and {self.inputs:,} cells",
            "estimate fewer columns together, or perturb them with mechanisms whose reports can be listed, such as krr",
        )
        many = self.inputs > MOST_PAIRS
        self.large = many and not self.condition <= MAX_CONDITION
        self.isotropic = self.even = many and not self.large

    @cached_property
    def key(self) -> bytes:
        """A digest of the tables."""
        return digest(b"khatri-rao", *self._tables)

    def of_columns(self, columns: Sequence[int]) -> KhatriRaoOperator | None:
        """Return the operator of the reports of some columns; None if they were not reported."""
        some = [self._columns[j] for j in columns]
        return None if all(np.isinf(one.condition) for one in some) else KhatriRaoOperator(some)

    def _blocks(self) -> Iterator[slice]:
        step = max(1, _BLOCK // self.inputs)
        for start in range(0, self.outputs, step):
            check()
            yield slice(start, min(start + step, self.outputs))

    def forward(self, theta: Floats) -> Floats:
        """Return P(reports) under theta, up to a factor for each."""
        *others, last = self._tables
        out = np.empty((*theta.shape[:-1], self.outputs))
        for here in self._blocks():
            rest = theta.reshape(*theta.shape[:-1], -1, self.shape[-1]) @ last[:, here]
            out[..., here] = (rest * _product(others, here)).sum(axis=-2)
        return out

    def adjoint(self, w: Floats) -> Floats:
        """Return sum_z a_xz w_z."""
        return self._weighed(w, self._tables)

    def _weighed(self, w: Floats, tables: Sequence[Floats]) -> Floats:
        """Return the sum of the products of columns of these tables, each with its weight."""
        *others, last = tables
        out = np.zeros((*w.shape[:-1], self.inputs // self.shape[-1], self.shape[-1]))
        for here in self._blocks():
            out += (_product(others, here) * w[..., None, here]) @ last[:, here].T
        return out.reshape(*w.shape[:-1], self.inputs)

    def matrix(self) -> Floats:
        """Return P(reports | values)."""
        return _product(self._tables, slice(0, self.outputs))

    def curvature(self, w: Floats, among: NDArray[np.int64] | slice = slice(None)) -> Floats:
        """Return sum_z w_z a_z a_z' over the cells ``among``."""
        cells = np.arange(self.inputs)[among]
        out = np.zeros((len(cells), len(cells)))
        for here in self._blocks():
            block = _product(self._tables, here)[cells] * np.sqrt(w[here])
            out += block @ block.T
        return out

    @cached_property
    def condition(self) -> float:
        """The product of the columns' condition numbers."""
        return float(prod(one.condition for one in self._columns))

    @cached_property
    def influence(self) -> float:
        """By how much an inverted share moves at most, times n, when one of n reports is replaced."""
        high, low = extremes([(np.array([one.ends[0]]), np.array([one.ends[1]])) for one in self._columns])
        return float((high - low).max())

    def invert(self, shares: Floats) -> Floats:
        """Return the unbiased inverse of shares: the mean of what the reports contribute.

        Raises:
            IllConditioned: if the channel has no inverse, or one that drowns the estimate in noise.

        """
        self.check_condition()
        return self._weighed(shares, self._pulls)

    def inverted_interval(self, shares: Floats, n: Floats, theta: Floats, z: float) -> Ends:  # noqa: ARG002  # as observed
        """Return standard error of every share that `invert` gives, and ``z`` errors to either side.

        The error is that of a mean, from how the contributions of the reports are scattered.
        """
        centre = self.invert(shares)
        second = self._weighed(shares, [pull**2 for pull in self._pulls])
        error = np.sqrt(np.maximum(second - centre**2, 0.0) / n[:, None])
        return error, centre - z * error, centre + z * error

    def inverted_functionals(
        self,
        shares: Floats,
        n: Floats,
        theta: Floats,  # noqa: ARG002  # as observed
        c: Floats,
    ) -> tuple[Floats, Floats]:
        """Return c'v for the inversion v, and its variance, from how the contributions of the reports are scattered."""
        each = np.broadcast_to(c, (len(shares), *c.shape[-2:]))
        centre, second = np.zeros((2, len(shares), c.shape[-1]))
        for here in self._blocks():
            pulled = np.swapaxes(each, -1, -2) @ _product(self._pulls, here)
            centre += (pulled @ shares[:, here, None])[..., 0]
            second += (pulled**2 @ shares[:, here, None])[..., 0]
        return centre, np.maximum(second - centre**2, 0.0) / n[:, None]


def _product(tables: Sequence[Floats], here: slice) -> Floats:
    """Return for each report of a slice the product of its columns of the tables, shape (cells, reports)."""
    out = np.ones((1, here.stop - here.start))
    for table in tables:
        out = (out[:, None] * table[:, here]).reshape(-1, out.shape[1])
    return out
