"""Counts of reports of several columns to likelihoods of their joint table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels import SetChannel
from ldpsql.domains.domain import Domain
from ldpsql.domains.product import Product
from ldpsql.inference.counts import GroupedCounts
from ldpsql.inference.likelihood import Likelihood, Variable, joined
from ldpsql.inference.operators import (
    MOST_REPORTS,
    Floats,
    KhatriRaoOperator,
    KroneckerOperator,
    ObservedColumn,
    Operator,
    Unreported,
    operator,
)
from ldpsql.mechanisms.base import CertifiedMechanism, CertifiedRow, CertifiedValues
from ldpsql.reports import NumberedReports, WordReports, impossible

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
