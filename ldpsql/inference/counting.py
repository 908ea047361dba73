"""From columns of reports, or their counts, to likelihoods: what an estimator sees of the data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels import SetChannel
from ldpsql.domains.columns import plain
from ldpsql.domains.distinct import distinct, taken
from ldpsql.domains.domain import Domain
from ldpsql.domains.pair_sets import PairSets
from ldpsql.errors import BadCounts, ImpossibleReport, NoReports
from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.operators import Floats, Operator, collapsed, observed, operator, packed
from ldpsql.mechanisms.base import CertifiedMechanism, Mechanism, certify
from ldpsql.reports import NumberedReports, SetReports, impossible

MAX_COUNT = 2**53 - 1  # doubles hold whole numbers exactly up to here


def operator_of(mechanism: Mechanism) -> Operator:
    """Return the operator of a mechanism's certified channel; it is kept as long as that is."""
    return certify(mechanism).derived(_operator)


def _operator(certified: CertifiedMechanism) -> Operator:
    return operator(certified.response)


class Described(Protocol):
    """What an estimate tells of the mechanism, or the mechanisms, that its reports come from."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def values(self) -> Domain | PairSets:
        """The values, or the sets of pairs, that were perturbed."""

    @property
    def epsilon(self) -> float:
        """The largest realised epsilon of a report."""


class Source(Described, Protocol):
    """Several mechanisms together, that reports come from."""

    def likelihoods(
        self, reports: pa.Array, numbers: pa.Array, group: NDArray[np.int64], groups: int
    ) -> Iterator[tuple[NDArray[np.int64], Likelihood]]:
        """Yield the likelihoods of (report, number, group) triples; see `likelihoods`."""

    def possible(self, reports: pa.Array) -> NDArray[np.bool_]:
        """Tell which reports can occur; see `possible`."""


def column_likelihood(column: pa.Array | pa.ChunkedArray, mechanism: Mechanism) -> Likelihood:
    """Return the likelihood of a column of reports; NULL reports are left out.

    Raises:
        NoReports, ImpossibleReport: where there is none, or one that cannot occur.

    """
    known = plain(column).drop_null()
    if not len(known):
        raise NoReports()
    first, number = distinct(known)
    return counted_likelihood(taken(known, first), pa.array(np.bincount(number)), mechanism)


def counted_likelihood(reports: pa.Array, numbers: pa.Array, mechanism: Mechanism) -> Likelihood:
    """Return the likelihood of distinct reports and how often each occurs, as one group.

    Raises:
        NoReports: where there is none.

    """
    if not len(reports):
        raise NoReports()
    _, likelihood = next(likelihoods(mechanism, reports, numbers, np.zeros(len(reports), dtype=np.int64), 1))
    return likelihood


def likelihoods(
    source: Mechanism | Source, reports: pa.Array, numbers: pa.Array, group: NDArray[np.int64], groups: int
) -> Iterator[tuple[NDArray[np.int64], Likelihood]]:
    """Yield the likelihoods of (report, number, group) triples with the groups they hold; every group has reports.

    Reports that can be listed share one operator for all groups; else every group has its own, of its observed reports.

    Raises:
        ImpossibleReport, BadCounts: where reports or numbers cannot be what they must be.

    """
    if isinstance(source, Mechanism):
        return _likelihoods(source, reports, numbers, group, groups)
    return source.likelihoods(reports, numbers, group, groups)


def _likelihoods(
    mechanism: Mechanism, reports: pa.Array, numbers: pa.Array, group: NDArray[np.int64], groups: int
) -> Iterator[tuple[NDArray[np.int64], Likelihood]]:
    known = certify(mechanism)
    if isinstance(known.reports, Domain):
        counts = align(reports, numbers, group, groups, known.reports)
        yield np.arange(groups), Likelihood(operator_of(mechanism), counts, known.layout, known.named)
        return
    weights, channel = whole_numbers(numbers), known.response
    if isinstance(known.reports, NumberedReports):
        counts = known.reports.counts(reports, weights, group, groups)
        yield np.arange(groups), Likelihood(operator_of(mechanism), counts, known.layout)
        return
    words = known.reports.read(reports)
    if not isinstance(channel, SetChannel) or not channel.possible(words).all():
        raise impossible()
    for i in range(groups):
        at = np.flatnonzero(group == i) if groups > 1 else slice(None)
        octets, added = collapsed(packed(channel, words[at]), weights[at])
        yield np.array([i]), Likelihood(observed(channel, octets), added[None], known.layout)


def possible(source: Mechanism | Source, reports: pa.Array) -> NDArray[np.bool_]:
    """Tell which reports can occur.

    Raises:
        WrongType, ImpossibleReport: where the column cannot hold reports at all.

    """
    if not isinstance(source, Mechanism):
        return source.possible(reports)
    known = certify(source)
    if isinstance(known.reports, Domain):
        positions = known.reports.locate(reports)
        chance = operator_of(source).forward(np.ones(known.response.inputs)) > 0
        at = positions.fill_null(0).to_numpy(zero_copy_only=False)
        return positions.is_valid().to_numpy(zero_copy_only=False) & chance[at]
    fits = known.reports.possible(reports)
    channel = known.response
    if isinstance(channel, SetChannel) and isinstance(known.reports, SetReports):
        fits[fits] = channel.possible(known.reports.read(reports.filter(pa.array(fits))))
    return fits


def align(reports: pa.Array, numbers: pa.Array, group: NDArray[np.int64], groups: int, alphabet: Domain) -> Floats:
    """Lay out (report, number, group) triples as counts of shape (groups, reports of the alphabet).

    Raises:
        ImpossibleReport: where a report is not in the alphabet. The message names no report: it may be a raw value.
        BadCounts: where a number is negative, NULL or not whole.

    """
    positions = alphabet.locate(reports)
    if positions.null_count:
        raise ImpossibleReport(
            f"some reports cannot occur under this mechanism: {positions.null_count} distinct",
            "check that these are its reports, and not another column or mechanism",
        )
    cells = group * len(alphabet) + positions.to_numpy(zero_copy_only=False)
    counts: Floats = np.bincount(cells, weights=whole_numbers(numbers), minlength=groups * len(alphabet)).astype(np.float64)
    return counts.reshape(groups, len(alphabet))


def whole_numbers(numbers: pa.Array) -> Floats:
    """Return counts as doubles, which hold them exactly up to 2**53 - 1.

    Raises:
        BadCounts: where one is negative, NULL, not whole, or larger.

    """
    try:
        whole = numbers.cast(pa.uint64())
    except pa.ArrowException:
        whole = pa.nulls(len(numbers), pa.uint64())
    exact = whole.fill_null(MAX_COUNT + 1).to_numpy(zero_copy_only=False)
    if (exact > np.uint64(MAX_COUNT)).any():
        raise BadCounts("counts must be whole numbers from 0 to 2^53 - 1", "use ldp.counts(report) or map(reports, numbers)")
    return np.asarray(exact, dtype=np.float64)
