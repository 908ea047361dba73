"""From counts of reports to likelihoods, under one mechanism or several."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels import PlanarNoise, SetChannel
from ldpsql.domains.domain import Domain
from ldpsql.domains.pair_sets import PairSets
from ldpsql.domains.strings import Strings
from ldpsql.errors import NoReports
from ldpsql.inference.counts import GroupedCounts
from ldpsql.inference.likelihood import Likelihood, Weighted
from ldpsql.inference.operators import Floats, Operator, check_number, collapsed, observed, packed
from ldpsql.inference.operators.plane import FEW
from ldpsql.inference.rows import certified_operator, row_likelihoods, row_possible, variables_of
from ldpsql.mechanisms.base import CertifiedRow, CertifiedStrings, Mechanism, certify
from ldpsql.reports import NumberedReports, SetReports, WordReports, impossible

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
