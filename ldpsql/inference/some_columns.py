"""Some columns of reports of several: what answers about few columns are estimated from, without paying for the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from math import prod

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels import KeepOrSpread
from ldpsql.domains.product import Product
from ldpsql.errors import InternalError
from ldpsql.inference.counting import likelihoods, possible
from ldpsql.inference.counts import GroupedCounts
from ldpsql.inference.likelihood import Likelihood, Weighted
from ldpsql.inference.operators import (
    Floats,
    KeepOrSpreadOperator,
    KhatriRaoOperator,
    KroneckerOperator,
    Operator,
    StackOperator,
    Unreported,
    stacked,
)
from ldpsql.mechanisms.base import CertifiedRow, Mechanism, certify
from ldpsql.mechanisms.parts import ColumnMechanism, Parts
from ldpsql.mechanisms.rows import RowMechanism

# The likelihood of some columns of a table, from the reports of all its columns.

Part = tuple[Operator, Floats]  # with the counts of its reports


def margin(likelihood: Likelihood, columns: Sequence[int]) -> Likelihood | None:
    """Return the likelihood of some columns of a table, given by rising numbers; None if the others cannot be left out.

    They can be left out if each report depends on one column only, or is a row and all other rows are alike. It is also None if
    a group has no reports of the columns.
    """
    if not likelihood.variables:  # it is not known which columns the values have
        return None
    if likelihood.weights is not None:
        return _of_weights(likelihood, likelihood.weights, columns)
    chosen = tuple(likelihood.variables[j] for j in columns)
    part = _margin(likelihood.operator, likelihood.counts, [variable.size for variable in likelihood.variables], columns)
    if part is None or not part[1].any(axis=1).all():
        return None
    return Likelihood(*part, chosen[0].layout if len(chosen) == 1 else (), variables=chosen if len(chosen) > 1 else ())


def _of_weights(likelihood: Likelihood, weights: Weighted, columns: Sequence[int]) -> Likelihood | None:
    """Return the likelihood of some columns of weighted rows; only the rows that report them count for their Kish number."""
    each = [margin(likelihood.with_counts(one), columns) for one in (likelihood.counts, *weights)]
    if any(one is None for one in each):
        return None
    own, people, squares = (one for one in each if one is not None)
    scale = (own.n / squares.n)[:, None]
    return replace(own.with_counts(own.counts * scale), weights=Weighted(people.counts, squares.counts * scale**2))


def summed(tables: Floats, shape: Sequence[int], columns: Sequence[int]) -> Floats:
    """Return the margins of tables, shape (groups, cells): sums over all columns but these."""
    others = tuple(1 + j for j in range(len(shape)) if j not in columns)
    return np.asarray(tables.reshape(len(tables), *shape).sum(axis=others).reshape(len(tables), -1))


@singledispatch
def _margin(whole: Operator, counts: Floats, shape: Sequence[int], columns: Sequence[int]) -> Part | None:  # noqa: ARG001
    return None


@_margin.register
def _(whole: KroneckerOperator, counts: Floats, shape: Sequence[int], columns: Sequence[int]) -> Part | None:  # noqa: ARG001
    parts = [whole.parts[j] for j in columns]
    if all(isinstance(part, Unreported) for part in parts):
        return None
    return parts[0] if len(parts) == 1 else KroneckerOperator(parts), summed(counts, whole.reports, columns)


@_margin.register
def _(whole: KhatriRaoOperator, counts: Floats, shape: Sequence[int], columns: Sequence[int]) -> Part | None:  # noqa: ARG001
    some = whole.of_columns(columns)
    return None if some is None else (some, counts)


@_margin.register
def _(whole: KeepOrSpreadOperator, counts: Floats, shape: Sequence[int], columns: Sequence[int]) -> Part | None:
    size = prod(shape[j] for j in columns)
    others = whole.inputs // size  # a row with the same values in these columns is reported for each of their values
    keep = whole.keep + (others - 1) * whole.spread
    return KeepOrSpreadOperator(size, keep, others * whole.spread), summed(counts, shape, columns)


@_margin.register
def _(whole: StackOperator, counts: Floats, shape: Sequence[int], columns: Sequence[int]) -> Part | None:
    ends = np.cumsum([part.outputs for part in whole.parts])[:-1]
    each = [_margin(part, own, shape, columns) for part, own in zip(whole.parts, np.split(counts, ends, axis=1), strict=True)]
    parts = [part for part in each if part is not None]  # the others say nothing about these columns
    if not parts:
        return None
    totals = np.array([own.sum() for _, own in parts])
    if not totals.all():
        return None
    return stacked([part for part, _ in parts], totals / totals.sum()), np.concatenate([own for _, own in parts], axis=1)


@dataclass(frozen=True)
class SomeColumns:
    """Reports of several columns, of which only some columns count, given by rising numbers.

    Reports of these columns of a row are reports of the row mechanism of these columns. Of k-RR over whole rows, they are those
    of a k-RR over the rows of these columns that keeps more often.
    """

    mechanism: Mechanism
    places: tuple[int, ...]

    @classmethod
    def of(cls, mechanism: Mechanism, places: Sequence[int]) -> SomeColumns | None:
        """Return the reports of some columns; None if these are all columns, or the others cannot be left out."""
        certified = certify(mechanism)
        values = certified.values
        if not isinstance(values, Product) or not places or len(places) == len(values.names):
            return None
        apart = isinstance(mechanism, RowMechanism) or isinstance(certified.response, KeepOrSpread)
        return cls(mechanism, tuple(sorted(places))) if apart else None

    @property
    def name(self) -> str:
        """The name of the mechanism."""
        return self.mechanism.name

    @property
    def values(self) -> Product:
        """The cells of the table of these columns."""
        whole = certify(self.mechanism).values
        if not isinstance(whole, Product):
            raise InternalError("a mechanism of one column has no other columns", "make these by SomeColumns.of")
        return whole.margin(self.places)

    @property
    def epsilon(self) -> float:
        """The realised epsilon of a whole row."""
        return certify(self.mechanism).epsilon

    def likelihoods(self, counts: GroupedCounts) -> Iterator[tuple[NDArray[np.int64], Likelihood]]:
        """Yield the likelihoods of these columns, each with the groups whose counts it holds; other groups report none of them.

        Raises:
            ImpossibleReport: if a report of these columns cannot occur.

        """
        row = certify(self.mechanism)
        if isinstance(row, CertifiedRow) and isinstance(self.mechanism, RowMechanism):
            own = self._counts(row, counts)
            yield from likelihoods(self._own(row, type(self.mechanism)), own) if len(own.groups) else ()
            return
        for groups, whole in likelihoods(self.mechanism, counts):
            part = margin(whole, self.places)
            if part is not None:
                yield groups, part

    def possible(self, reports: pa.Array) -> NDArray[np.bool_]:
        """Return which reports can occur, in all columns."""
        return possible(self.mechanism, reports)

    def _own(self, row: CertifiedRow, kind: type[RowMechanism]) -> Mechanism:
        """Return the mechanism of these columns: that of the one column, or a row of several."""
        if len(self.places) == 1:
            return row.parts[self.places[0]].mechanism
        return kind(
            columns=Parts(ColumnMechanism(row.values.names[place], row.parts[place].mechanism) for place in self.places)
        )

    def _counts(self, row: CertifiedRow, counts: GroupedCounts) -> GroupedCounts:
        """Return the counts of the reports of these columns, without rows that report none of them."""
        each = row.reports.fields(counts.reports)
        columns = [each[place] for place in self.places]
        reported = np.any([column.is_valid().to_numpy(zero_copy_only=False) for column in columns], axis=0)
        names = [row.reports.names[place] for place in self.places]
        reports = columns[0] if len(columns) == 1 else pa.StructArray.from_arrays(columns, names)
        some = GroupedCounts(reports, counts.numbers, counts.group, counts.groups).select(np.flatnonzero(reported))
        if any(column.null_count for column in columns):
            return some  # rows that report different columns are recognised later
        first, sums = some.merge()
        return GroupedCounts(some.reports.take(pa.array(first)), sums, some.group[first], some.groups)
