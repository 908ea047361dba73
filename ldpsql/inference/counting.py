"""From counts of reports to likelihoods: under one mechanism or several, of rows of several columns, and of some columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from math import prod
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels import KeepOrSpread, PlanarNoise, SetChannel
from ldpsql.domains.composite import PairSets, Product
from ldpsql.domains.domain import Domain
from ldpsql.domains.unlisted import Strings
from ldpsql.errors import InternalError, NoReports
from ldpsql.inference.counts import GroupedCounts
from ldpsql.inference.likelihood import Likelihood, Variable, Weighted, joined
from ldpsql.inference.operators import (
    MOST_REPORTS,
    Floats,
    KeepOrSpreadOperator,
    KhatriRaoOperator,
    KroneckerOperator,
    ObservedColumn,
    Operator,
    StackOperator,
    Unreported,
    check_number,
    collapsed,
    observed,
    operator,
    packed,
    stacked,
)
from ldpsql.inference.operators.noise import FEW
from ldpsql.mechanisms.base import CertifiedMechanism, CertifiedRow, CertifiedStrings, CertifiedValues, Mechanism, certify
from ldpsql.mechanisms.families import RowMechanism
from ldpsql.mechanisms.spec import ColumnMechanism, Parts
from ldpsql.reports import NumberedReports, SetReports, WordReports, impossible

_AT_ONCE = 1 << 24  # counts of groups in one table


def certified_operator(certified: CertifiedMechanism) -> Operator:
    """Return the operator of a certified channel whose reports can be listed."""
    return operator(certified.response)


def variables_of(certified: CertifiedMechanism) -> tuple[Variable, ...]:
    """Return the columns if the values are rows of several columns; otherwise none."""
    if isinstance(certified, CertifiedRow):
        return tuple(Variable(len(part.values), part.layout) for part in certified.parts)
    values = certified.values
    return tuple(map(Variable, values.shape)) if isinstance(values, Product) else ()


def row_likelihoods(row: CertifiedRow, counts: GroupedCounts) -> Iterator[tuple[NDArray[np.int64], Likelihood]]:
    """Yield the likelihoods of the joint table, each with the groups whose counts it holds.

    A row in which some columns are NULL says something about the others only. Rows of NULL in all columns are left out.

    Raises:
        ImpossibleReport: if a report cannot occur.

    """
    if not row_possible(row, counts.reports).all():
        raise impossible()
    columns = row.reports.fields(counts.reports)
    reported = np.stack([column.is_valid().to_numpy(zero_copy_only=False) for column in columns], axis=1)
    some = np.flatnonzero(reported.any(axis=1) & (counts.numbers > 0))
    if len(some) < len(reported):
        counts, reported = counts.select(some), reported[some]
    if not len(counts.groups):
        return
    patterns, pattern = np.unique(reported, axis=0, return_inverse=True)
    sizes = [len(part.reports) for part in row.parts if isinstance(part.reports, Domain | NumberedReports)]
    if len(patterns) == 1 and patterns.all() and len(sizes) == len(row.parts) and prod(sizes) <= MOST_REPORTS:
        yield from _listed_likelihoods(row, counts)
        return
    for name, rows in zip(counts.groups, counts.rows_of_groups(), strict=True):
        at = np.arange(len(reported))[rows]
        parts = [_one(row, counts, at[pattern.ravel()[at] == number], there) for number, there in enumerate(patterns)]
        yield np.array([name]), joined([part for part in parts if part is not None])


def row_possible(row: CertifiedRow, reports: pa.Array) -> NDArray[np.bool_]:
    """Return which rows hold a possible report of each column, or NULL."""
    fits = row.reports.possible(reports)
    for part, column in zip(row.parts, row.reports.fields(reports), strict=True):
        there = np.flatnonzero(fits & column.is_valid().to_numpy(zero_copy_only=False))
        own = column.take(pa.array(there))
        if isinstance(part.reports, Domain):
            fits[there] &= part.derived(certified_operator).reachable()[listed_positions(part, own)]
        elif isinstance(part.channel, SetChannel) and isinstance(part.reports, WordReports):
            fits[there] &= part.channel.possible(part.reports.read(own))
    return fits


def _listed(part: CertifiedValues) -> bool:
    return isinstance(part.reports, Domain | NumberedReports)


def listed_positions(part: CertifiedValues, column: pa.Array) -> NDArray[np.int64]:
    """Return the positions of reports that can be listed."""
    if not isinstance(part.reports, Domain | NumberedReports):
        raise impossible()
    return part.reports.positions(column)


def _listed_likelihoods(row: CertifiedRow, counts: GroupedCounts) -> Iterator[tuple[NDArray[np.int64], Likelihood]]:
    """Yield likelihoods that share one operator of all reports, for some groups at a time."""
    own = row.derived(_kronecker)
    places = [
        listed_positions(part, column) for part, column in zip(row.parts, row.reports.fields(counts.reports), strict=True)
    ]
    cells, step = np.ravel_multi_index(places, own.reports), max(1, _AT_ONCE // own.outputs)
    for first in range(0, len(counts.groups), step):
        if len(counts.groups) <= step:
            yield counts.groups, Likelihood(own, counts.table(cells, own.outputs), variables=variables_of(row))
            return
        rows = np.flatnonzero((counts.group >= first) & (counts.group < first + step))
        some = counts.select(rows)
        yield some.groups, Likelihood(own, some.table(cells[rows], own.outputs), variables=variables_of(row))


def _kronecker(row: CertifiedMechanism) -> KroneckerOperator:
    parts = row.parts if isinstance(row, CertifiedRow) else ()
    return KroneckerOperator([part.derived(certified_operator) for part in parts])


def _one(row: CertifiedRow, counts: GroupedCounts, rows: NDArray[np.int64], there: NDArray[np.bool_]) -> Likelihood | None:
    """Return the likelihood of one group's reports of some columns; None without reports."""
    if not len(rows):
        return None
    columns = [column.take(pa.array(rows)) for column in row.reports.fields(counts.reports)]
    numbers = counts.numbers[rows]
    if all(_listed(part) for part, reported in zip(row.parts, there, strict=True) if reported):
        parts = [
            part.derived(certified_operator) if reported else Unreported(len(part.values))
            for part, reported in zip(row.parts, there, strict=True)
        ]
        if prod(part.outputs for part in parts) <= MOST_REPORTS:
            own = KroneckerOperator(parts)
            each = zip(row.parts, columns, there, strict=True)
            places = [listed_positions(*pair) if reported else np.zeros(len(rows), np.int64) for *pair, reported in each]
            cells = np.ravel_multi_index(places, own.reports)
            table = np.bincount(cells, weights=numbers, minlength=own.outputs)[None].astype(np.float64)
            return Likelihood(own, table, variables=variables_of(row))
    each = zip(row.parts, columns, there, strict=True)
    return Likelihood(KhatriRaoOperator(_observed(each, len(rows))), numbers[None], variables=variables_of(row))


def _observed(each: Iterator[tuple[CertifiedValues, pa.Array, bool]], rows: int) -> Sequence[ObservedColumn]:
    """Return the observed reports of each column."""
    return [observed_column(part, column) if reported else _of_none(len(part.values), rows) for part, column, reported in each]


def _of_none(values: int, rows: int) -> ObservedColumn:
    return ObservedColumn(np.ones((values, rows)), np.ones((values, rows)), np.inf, (np.inf, -np.inf))


def least_squares(certified: CertifiedMechanism) -> Floats:
    """Return the least-squares inverse of a channel, shape (reports, values)."""
    return np.asarray(np.linalg.pinv(certified.derived(certified_operator).matrix()), dtype=np.float64)


def observed_column(
    part: CertifiedValues, column: pa.Array, inversion: Callable[[CertifiedMechanism], Floats] = least_squares
) -> ObservedColumn:
    """Return the observed reports of one column; those that can be listed contribute what the inversion says."""
    channel = part.channel
    if isinstance(channel, SetChannel) and isinstance(part.reports, WordReports):
        supported = channel.supports(part.reports.read(column)).T.astype(np.float64)
        hit, miss = float(channel.hit), float(channel.miss)
        ends = (1 - miss) / (hit - miss), -miss / (hit - miss)
        condition = (hit + (channel.inputs - 1) * miss) / abs(hit - miss)
        return ObservedColumn(1.0 + float(channel.ratio - 1) * supported, (supported - miss) / (hit - miss), condition, ends)
    own, at = part.derived(certified_operator), listed_positions(part, column)
    inverse = part.derived(inversion)
    return ObservedColumn(own.matrix()[:, at], inverse[at].T, own.condition, (float(inverse.max()), float(inverse.min())))


FEW_ALIKE = 0.01  # the expected part of reports that equal another one, up to which all are taken to differ


def operator_of(mechanism: Mechanism) -> Operator:
    """Return the operator of a mechanism's certified channel; it is kept as long as the channel is."""
    return certify(mechanism).derived(certified_operator)


def check_reports(mechanism: Mechanism, reports: int) -> None:
    """Return if so many reports can be read, as far as this is certain before they are counted."""
    certified = certify(mechanism)
    if isinstance(certified, CertifiedRow | CertifiedStrings) or not isinstance(certified.reports, WordReports):
        return
    channel = certified.response
    if isinstance(channel, SetChannel) and reports * _alike(channel) < FEW_ALIKE:
        check_number(channel, reports)


def _alike(channel: SetChannel) -> float:
    """Return a bound on the probability that two reports are the same set: each value is in both or in neither."""
    miss = float(channel.miss)
    return float((1.0 - 2.0 * miss * (1.0 - miss)) ** (channel.inputs - 1))


def on_large_map(mechanism: Mechanism) -> bool:
    """Return whether the values are the cells of a map that is too large for a table of all pairs of them."""
    certified = certify(mechanism)
    channel = None if isinstance(certified, CertifiedRow) else certified.response
    return isinstance(channel, PlanarNoise) and channel.inputs > FEW


class Described(Protocol):
    """What an estimate says about the mechanism, or the mechanisms, that its reports come from."""

    @property
    def name(self) -> str:
        """The name."""

    @property
    def values(self) -> Domain | PairSets | Strings:
        """The values, the sets of pairs or the strings that were perturbed."""

    @property
    def epsilon(self) -> float:
        """The largest realised epsilon of a report."""


class ReportSource(Described, Protocol):
    """Where reports come from if it is not one report of one mechanism for each user."""

    def likelihoods(self, counts: GroupedCounts) -> Iterator[tuple[NDArray[np.int64], Likelihood]]:
        """Yield the likelihoods of counts; see `likelihoods`."""

    def possible(self, reports: pa.Array) -> NDArray[np.bool_]:
        """Return which reports can occur; see `possible`."""


def column_likelihood(column: pa.Array | pa.ChunkedArray, mechanism: Mechanism | ReportSource) -> Likelihood:
    """Return the likelihood of a column of reports; NULL reports are left out.

    Raises:
        NoReports, ImpossibleReport: if there is no report, or one that cannot occur.

    """
    return counted_likelihood(GroupedCounts.of_column(column), mechanism)


def counted_likelihood(counts: GroupedCounts, mechanism: Mechanism | ReportSource) -> Likelihood:
    """Return the likelihood of the counts of one group.

    Raises:
        NoReports, ImpossibleReport: if there is no report, or one that cannot occur.

    """
    of_group = next(likelihoods(mechanism, counts), None) if len(counts.reports) else None
    if of_group is None:
        raise NoReports()
    return of_group[1]


def likelihoods(source: Mechanism | ReportSource, counts: GroupedCounts) -> Iterator[tuple[NDArray[np.int64], Likelihood]]:
    """Yield likelihoods, each with the groups whose counts it holds, as ``counts.groups`` numbers them.

    Reports that can be listed share one operator for all groups. For others every group has its own operator, with the
    reports that were observed.

    Weighted counts are read as if there were Kish's number of reports; `Likelihood.weights` then corrects the errors.

    Raises:
        ImpossibleReport: if a report cannot occur.

    """
    # The same reports give the same operator, whatever their numbers are.
    for (groups, own), *others in zip(*(_of_plain(source, one) for one in counts.effective()), strict=True):
        yield groups, replace(own, weights=Weighted(*(one.counts for _, one in others))) if others else own


def _of_plain(source: Mechanism | ReportSource, counts: GroupedCounts) -> Iterator[tuple[NDArray[np.int64], Likelihood]]:
    if not isinstance(source, Mechanism):
        return source.likelihoods(counts)
    certified = certify(source)
    if isinstance(certified, CertifiedRow):
        return row_likelihoods(certified, counts)
    if isinstance(certified.reports, Domain | NumberedReports):
        return _listed_likelihood(source, counts)
    return _observed_likelihoods(source, counts)


def _listed_likelihood(mechanism: Mechanism, counts: GroupedCounts) -> Iterator[tuple[NDArray[np.int64], Likelihood]]:
    yield counts.groups, table_likelihood(mechanism, aligned(counts, mechanism))


def _observed_likelihoods(mechanism: Mechanism, counts: GroupedCounts) -> Iterator[tuple[NDArray[np.int64], Likelihood]]:
    certified = certify(mechanism)
    channel = certified.response
    if not isinstance(channel, SetChannel) or not isinstance(certified.reports, WordReports):
        raise impossible()
    words = certified.reports.read(counts.reports)
    if not channel.possible(words).all():
        raise impossible()
    for name, rows in zip(counts.groups, counts.rows_of_groups(), strict=True):
        octets, sums = collapsed(packed(channel, words[rows]), counts.numbers[rows])
        own = observed(channel, octets)
        yield np.array([name]), Likelihood(own, sums[None], certified.layout, variables=variables_of(certified))


def table_likelihood(mechanism: Mechanism, counts: Floats) -> Likelihood:
    """Return the likelihood of counts of reports that can be listed, shape (groups, reports of the alphabet)."""
    certified = certify(mechanism)
    return Likelihood(operator_of(mechanism), counts, certified.layout, certified.named, variables_of(certified))


def aligned(counts: GroupedCounts, mechanism: Mechanism) -> Floats:
    """Return counts of reports that can be listed, shape (groups, reports of the alphabet).

    Raises:
        ImpossibleReport: if a report cannot occur, or the reports cannot be listed.

    """
    reports = certify(mechanism).reports
    if isinstance(reports, NumberedReports):
        return reports.spread(counts.table(reports.positions(counts.reports), reports.differing))
    if not isinstance(reports, Domain):
        raise impossible()
    return counts.table(reports.positions(counts.reports), len(reports))


def possible(source: Mechanism | ReportSource, reports: pa.Array) -> NDArray[np.bool_]:
    """Return which reports can occur.

    Raises:
        WrongType, ImpossibleReport: if the column cannot hold reports at all.

    """
    if not isinstance(source, Mechanism):
        return source.possible(reports)
    certified = certify(source)
    if isinstance(certified, CertifiedRow):
        return row_possible(certified, reports)
    if isinstance(certified.reports, Domain):
        positions = certified.reports.locate(reports)
        chance = operator_of(source).reachable()
        at = positions.fill_null(0).to_numpy(zero_copy_only=False)
        return positions.is_valid().to_numpy(zero_copy_only=False) & chance[at]
    fits = certified.reports.possible(reports)
    channel = certified.response
    if isinstance(channel, SetChannel) and isinstance(certified.reports, SetReports):
        fits[fits] = channel.possible(certified.reports.read(reports.filter(pa.array(fits))))
    return fits


def without_impossible(source: Mechanism | ReportSource, counts: GroupedCounts) -> tuple[GroupedCounts, NDArray[np.int64]]:
    """Return the counts of the reports that can occur, and how many reports of each group cannot.

    Groups without any other report are left out of the counts.
    """
    fits = possible(source, counts.reports)
    left_out = np.bincount(counts.group[~fits], weights=counts.people[~fits], minlength=len(counts.groups))
    return counts.select(np.flatnonzero(fits & (counts.numbers > 0))), left_out.astype(np.int64)


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
