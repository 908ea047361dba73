"""Reports of several columns: the channel is the product of the columns' channels, and is applied one column at a time.

As a matrix it is a Kronecker product, which is never built. With K_j values and M_j reports of column j, the probabilities of
all reports take about sum_j K_j M_j times the number of cells / K_j multiplications.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import Floats, Rows
from ldpsql.channels.costs import Cost
from ldpsql.errors import NotApplicable
from ldpsql.inference.limits import check
from ldpsql.inference.operators.base import MAX_CONDITION, Ends, InvertedOperator, Operator, digest, operator
from ldpsql.inference.operators.dense import DenseOperator

MOST_PAIRS = 1500  # cells up to which something may be computed for all pairs of them
MOST_REPORTS = 1 << 24
_BLOCK = 1 << 22  # numbers of a table at a time
_MOST_BIAS, _MOST_SMOOTH = 0.1, 64  # standard errors, and functionals that may be smooth


class KroneckerOperator(InvertedOperator):
    """All reports of several columns, those of the last column fastest, as the values are.

    With more than `MOST_PAIRS` cells nothing is computed for each pair of them: errors are then those of the inversion, whose
    variance is a product of the columns' as well. If a column has no useful inverse, as wide noise on many bins has none,
    functionals that are smooth along it, such as means, have errors nevertheless, and others infinite ones.
    """

    inverse = None

    def __init__(self, parts: Sequence[Operator]) -> None:
        self.parts = tuple(parts)
        self.shape = tuple(part.inputs for part in parts)
        self.reports = tuple(part.outputs for part in parts)
        self.inputs, self.outputs = prod(self.shape), prod(self.reports)
        if self.outputs > MOST_REPORTS or self.inputs > MOST_REPORTS:
            raise NotApplicable(
                f"the table of {self.inputs:,} cells and {self.outputs:,} reports is too large: at most {MOST_REPORTS:,}",
                "estimate fewer columns together: name them in a row mechanism of their own",
            )
        self.injective = all(part.injective for part in parts)
        many = self.inputs > MOST_PAIRS
        self.large = many and not self.condition <= MAX_CONDITION  # no errors without an inverse
        self.isotropic = self.even = many and not self.large

    @cached_property
    def key(self) -> bytes:
        return digest(b"kronecker", *(part.key for part in self.parts))

    def _each(self, cells: Floats, shape: tuple[int, ...], maps: Sequence[object]) -> Floats:
        """Apply a map to each column of tables, which are the last axis of ``cells``."""
        groups = cells.shape[:-1]
        table = cells.reshape(*groups, *shape)
        for axis, own in enumerate(maps, start=len(groups)):
            table = np.moveaxis(own(np.moveaxis(table, axis, -1)), -1, axis)  # type: ignore[operator]
        return np.asarray(table.reshape(*groups, prod(table.shape[len(groups) :])))  # -1 is not known of no groups

    def forward(self, theta: Floats) -> Floats:
        return self._each(theta, self.shape, [part.forward for part in self.parts])

    def adjoint(self, w: Floats) -> Floats:
        return self._each(w, self.reports, [part.adjoint for part in self.parts])

    def _by(self, cells: Floats, tables: Sequence[Floats]) -> Floats:
        """Multiply each column of tables of reports by its matrix, shape (reports, anything)."""
        return self._each(cells, self.reports, [lambda v, own=own: v @ own for own in tables])

    def reachable(self) -> NDArray[np.bool_]:
        out = np.ones(1, dtype=np.bool_)
        for part in self.parts:
            out = (out[:, None] & part.reachable()).ravel()
        return out

    def matrix(self) -> Floats:
        return self.rows(slice(None))

    def rows(self, among: NDArray[np.int64] | slice) -> Floats:
        return self._gathered(np.arange(self.inputs)[among], self.shape, [part.matrix() for part in self.parts])

    def of_reports(self, positions: NDArray[np.int64]) -> Floats:
        return self._gathered(positions, self.reports, [part.matrix().T for part in self.parts]).T

    @staticmethod
    def _gathered(cells: NDArray[np.int64], shape: tuple[int, ...], tables: Sequence[Floats]) -> Floats:
        """Return rows of the Kronecker product of tables."""
        out = np.ones((len(cells), 1))
        for place, table in zip(np.unravel_index(cells, shape), tables, strict=True):
            out = (out[:, :, None] * table[place][:, None, :]).reshape(len(cells), -1)
        return out

    def curvature(self, w: Floats, among: NDArray[np.int64] | slice = slice(None)) -> Floats:
        """Return sum_z w_z a_z a_z' over the cells ``among``: of few cells from the products of pairs in each column."""
        if self.inputs <= MOST_PAIRS:
            return self._curvature(w)[among][:, among]
        cells = np.arange(self.inputs)[among]
        out, step = np.zeros((len(cells), len(cells))), max(1, _BLOCK // len(cells))
        seen = np.flatnonzero(w)
        for start in range(0, len(seen), step):
            check()
            here = seen[start : start + step]
            block = self._columns_of(here, cells) * np.sqrt(w[here])
            out += block @ block.T
        return out

    def _columns_of(self, reports: NDArray[np.int64], cells: NDArray[np.int64]) -> Floats:
        """Return P(report | value) of some reports and cells, shape (cells, reports)."""
        out = np.ones((len(cells), len(reports)))
        places = zip(self.parts, np.unravel_index(cells, self.shape), np.unravel_index(reports, self.reports), strict=True)
        for part, value, report in places:
            out *= part.matrix()[np.ix_(value, report)]
        return out

    def _curvature(self, w: Floats) -> Floats:
        """Return the curvature of all cells."""
        table = w.reshape(self.reports)
        for axis, part in enumerate(self.parts):  # each axis of reports becomes one of pairs of values
            a = part.matrix()
            pairs = (a[:, None] * a).reshape(-1, part.outputs)
            table = np.moveaxis(np.tensordot(pairs, table, axes=(1, axis)), 0, axis)
        count = len(self.shape)
        split = table.reshape([size for part in self.parts for size in (part.inputs, part.inputs)])
        order = [2 * j for j in range(count)] + [2 * j + 1 for j in range(count)]
        return np.asarray(split.transpose(order).reshape(self.inputs, self.inputs))

    @cached_property
    def condition(self) -> float:
        """The product of the columns' condition numbers."""
        return float(prod(part.condition for part in self.parts))

    @cached_property
    def _inverses(self) -> list[Floats]:
        """The inverse of each column's channel, shape (reports, values); of one without a useful inverse, `smooth_inverse`."""
        useful = [part.condition <= MAX_CONDITION for part in self.parts]
        return [
            np.asarray(np.linalg.pinv(part.matrix()), dtype=np.float64) if own else part.smooth_inverse
            for part, own in zip(self.parts, useful, strict=True)
        ]

    @cached_property
    def influence(self) -> float:
        high, low = extremes([(own.max(axis=0), own.min(axis=0)) for own in self._inverses])
        return float((high - low).max())

    def invert(self, shares: Floats) -> Floats:
        self.check_condition()
        v = self._by(shares, self._inverses)
        return v / v.sum(axis=-1, keepdims=True)

    def scatter(self, theta: Floats) -> Floats:
        second = self._by(self.forward(theta), [own**2 for own in self._inverses])
        return np.maximum(second - theta**2, 0.0)

    def pulled(self, c: Floats) -> Floats:
        inverses = [lambda v, own=own: v @ own.T for own in self._inverses]
        return np.moveaxis(self._each(np.moveaxis(c, -1, -2), self.shape, inverses), -1, -2)

    def functionals(self, shares: Floats, n: Floats, theta: Floats, c: Floats) -> tuple[Floats, Floats]:
        """Return functionals of the debiased estimate, or of an inversion whose bias is far below its errors."""
        debiased = super().functionals(shares, n, theta, c)
        if np.isfinite(debiased[1]).all() or c.shape[-1] > _MOST_SMOOTH:
            return debiased
        inverted = self.inverted_functionals(shares, n, theta, c)
        expected = np.moveaxis(self.adjoint(np.moveaxis(self.pulled(c), -2, -1)), -1, -2)
        bias = np.abs(expected - c).max(axis=-2)
        return inverted if (bias <= _MOST_BIAS * np.sqrt(inverted[1])).all() else debiased

    def inverted_functionals(self, shares: Floats, n: Floats, theta: Floats, c: Floats) -> tuple[Floats, Floats]:
        pulled, p = self.pulled(c), self.forward(theta)[..., None, :]
        mean = (p @ pulled)[..., 0, :]
        variance = (p @ pulled**2)[..., 0, :] - mean**2
        return (shares[..., None, :] @ pulled)[..., 0, :], np.maximum(variance, 0.0) / n[:, None]


class Unreported(DenseOperator):
    """A column of which nothing was reported: one report, which every value gives."""

    bounding_weights = None
    condition = np.inf
    influence = np.inf

    def __init__(self, inputs: int) -> None:
        super().__init__(np.ones((inputs, 1)))

    @cached_property
    def key(self) -> bytes:
        return digest(b"unreported", np.array([self.inputs]))


def extremes(each: Sequence[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    """Return the largest and the smallest product of numbers, one of each column, from those of the columns."""
    high, low = np.ones(1), np.ones(1)
    for own in each:  # of a product, the extremes are products of extremes
        ends = np.stack([bound[:, None] * end for bound in (high, low) for end in own])
        high, low = ends.max(axis=0).ravel(), ends.min(axis=0).ravel()
    return high, low


@operator.register
def _(channel: Rows) -> Operator:
    return KroneckerOperator([operator(part) for part in channel.parts])


# Observed reports of several columns: the columns of a product of channels, which are products of columns.

_CELLS_AT_ONCE = 1 << 22


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
        return digest(b"khatri-rao", *self._tables)

    def of_columns(self, columns: Sequence[int]) -> KhatriRaoOperator | None:
        """Return the operator of the reports of some columns; None if they were not reported."""
        some = [self._columns[j] for j in columns]
        return None if all(np.isinf(one.condition) for one in some) else KhatriRaoOperator(some)

    def _blocks(self) -> Iterator[slice]:
        step = max(1, _CELLS_AT_ONCE // self.inputs)
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
        return self._weighed(w, self._tables)

    def _weighed(self, w: Floats, tables: Sequence[Floats]) -> Floats:
        """Return the sum of the products of columns of these tables, each with its weight."""
        *others, last = tables
        out = np.zeros((*w.shape[:-1], self.inputs // self.shape[-1], self.shape[-1]))
        for here in self._blocks():
            out += (_product(others, here) * w[..., None, here]) @ last[:, here].T
        return out.reshape(*w.shape[:-1], self.inputs)

    def matrix(self) -> Floats:
        return _product(self._tables, slice(0, self.outputs))

    def curvature(self, w: Floats, among: NDArray[np.int64] | slice = slice(None)) -> Floats:
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
        high, low = extremes([(np.array([one.ends[0]]), np.array([one.ends[1]])) for one in self._columns])
        return float((high - low).max())

    def invert(self, shares: Floats) -> Floats:
        """Return the unbiased inverse of shares: the mean of what the reports contribute."""
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

    def pulled(self, c: Floats) -> Floats:
        rows = np.swapaxes(c, -1, -2)
        return np.swapaxes(np.concatenate([rows @ _product(self._pulls, here) for here in self._blocks()], axis=-1), -1, -2)

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
