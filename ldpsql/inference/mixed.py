"""Reports that several mechanisms drew: one of them for each user, or several reports of each user."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels import SetChannel
from ldpsql.domains.columns import family, plain
from ldpsql.domains.domain import Domain
from ldpsql.errors import BadCounts, ImpossibleReport, InvalidDomain, InvalidParameter
from ldpsql.inference.counting import likelihoods, operator_of, possible
from ldpsql.inference.counts import Counts
from ldpsql.inference.likelihood import Likelihood, joined
from ldpsql.inference.operators import ExtendedOperator, Operator, ProductOperator, SupportOperator, packed
from ldpsql.mechanisms.base import CertifiedValues, Mechanism, certify, certify_values
from ldpsql.reports import NumberedReports, WordReports, impossible

_LEVELS = "declare a mechanism for every level that occurs"
_MOST_GROWN = 4096  # values: the curvature of such a mixture is a table of all pairs
_PAIRS = "declare one mechanism, and use ldp.key_value"


@dataclass(frozen=True)
class Mixed:
    """One mechanism for each level, over one domain; every user has one level, public and chosen without looking at the value.

    A level may have a part of the domain if its mechanism has a value for all others, ``outside := 'as:VALUE'``: the domain has
    grown since its reports were drawn.

    Raises:
        InvalidParameter: unless there is one mechanism for each level.
        InvalidDomain: if the mechanisms have different domains, and a shorter one has no value for the others.

    """

    levels: Domain
    mechanisms: tuple[Mechanism, ...]
    name = "the mechanisms of these levels"

    def __post_init__(self) -> None:
        if not self.mechanisms or len(self.levels) != len(self.mechanisms):
            raise InvalidParameter("there must be one mechanism for each level", "for example MAP {'low': ldp.krr(1, ...)}")
        if not all(self._shares(certify_values(mechanism, _PAIRS)) for mechanism in self.mechanisms):
            raise InvalidDomain(
                "the mechanisms of the levels have different domains",
                "declare one domain for all of them, or a part of it with outside := 'as:VALUE'",
            )
        if len(self.values) > _MOST_GROWN and any(certify_values(one).values != self.values for one in self.mechanisms):
            raise InvalidParameter(
                f"versions of a domain of more than {_MOST_GROWN:,} values cannot be estimated together",
                "estimate the reports of each version by themselves",
            )

    @property
    def values(self) -> Domain:
        """The domain that they share: the longest."""
        return max((certify_values(mechanism, _PAIRS).values for mechanism in self.mechanisms), key=len)

    def _shares(self, certified: CertifiedValues) -> bool:
        own, shared = certified.values, self.values
        return own == shared or (
            certified.outside_code is not None
            and family(own.values.type) == family(shared.values.type)
            and not shared.locate(own.values).null_count
        )

    def _extended(self, mechanism: Mechanism, likelihood: Likelihood) -> Likelihood:
        """Return the likelihood of the reports of a level over the whole domain."""
        certified, shared = certify_values(mechanism, _PAIRS), self.values
        if certified.values == shared:
            return likelihood
        at = certified.values.locate(shared.values).fill_null(certified.outside_code)
        return Likelihood(ExtendedOperator(likelihood.operator, at.to_numpy().astype(np.int64)), likelihood.counts)

    @property
    def epsilon(self) -> float:
        """The largest realised epsilon of all levels."""
        return max(certify(mechanism).epsilon for mechanism in self.mechanisms)

    def places(self, column: pa.Array) -> NDArray[np.int32]:
        """Return the position of the level of each row, -1 for NULL and for a level without a mechanism.

        Raises:
            WrongType: if the column cannot hold levels.

        """
        positions = self.levels.locate(column).fill_null(-1)
        return np.asarray(positions.to_numpy(zero_copy_only=False))

    def likelihoods(self, counts: Counts) -> Iterator[tuple[NDArray[np.int64], Likelihood]]:
        """Yield for each group the stacked likelihoods of its levels; the reports are structs (level, report), or NULL."""
        _check(counts.reports)
        counts = counts.select(np.flatnonzero(_reported(counts.reports)))
        places = self.places(counts.reports.field("level"))
        if (places < 0).any():
            raise ImpossibleReport("some reports have no level, or one that no mechanism is declared for", _LEVELS)
        levels: dict[int, list[Likelihood]] = {group: [] for group in counts.groups.tolist()}
        for place in np.unique(places):
            of_level = counts.select(np.flatnonzero(places == place))
            of_level = replace(of_level, reports=_of_one_type(of_level.reports.field("report")))
            mechanism = self.mechanisms[place]
            for groups, own in likelihoods(mechanism, of_level):
                likelihood = self._extended(mechanism, own)
                for row, group in enumerate(groups.tolist()):
                    levels[group].append(likelihood.group(row))
        for group, parts in levels.items():
            yield np.array([group]), joined(parts)

    def possible(self, pairs: pa.Array) -> NDArray[np.bool_]:
        """Return which pairs have a level, and NULL or a report that the mechanism of the level can give."""
        _check(pairs)
        fits, places = ~_reported(pairs), self.places(pairs.field("level"))
        for place in np.unique(places[(places >= 0) & ~fits]):
            rows = np.flatnonzero((places == place) & ~fits)
            fits[rows] = possible(self.mechanisms[place], _of_one_type(pairs.field("report").take(pa.array(rows))))
        return fits


@dataclass(frozen=True)
class Repeated:
    """One mechanism that draws several reports of the same value for each user: every report spends its epsilon."""

    mechanism: Mechanism

    def __post_init__(self) -> None:
        certify_values(self.mechanism, _PAIRS)

    @property
    def name(self) -> str:
        """The name of the mechanism."""
        return self.mechanism.name

    @property
    def values(self) -> Domain:
        """The values of the mechanism."""
        return certify_values(self.mechanism, _PAIRS).values

    @property
    def epsilon(self) -> float:
        """The realised epsilon of one report: a user who sends r reports spends r times as much."""
        return certify(self.mechanism).epsilon

    def likelihoods(self, counts: Counts) -> Iterator[tuple[NDArray[np.int64], Likelihood]]:
        """Yield for each group a likelihood with an operator of its own: one column for each distinct list of reports."""
        reports, starts, lengths = _elements(counts.reports)
        single, positions = _columns(self.mechanism, reports)
        for group, rows in zip(counts.groups, counts.rows_of_groups(), strict=True):
            at = np.arange(len(lengths))[rows]
            at = at[lengths[at] > 0]
            if len(at):
                before = lengths[at].cumsum() - lengths[at]
                elements = np.repeat(starts[at] - before, lengths[at]) + np.arange(lengths[at].sum())
                product = ProductOperator(single, positions[elements], lengths[at])
                yield np.array([group]), Likelihood(product, counts.numbers[None, at], certify(self.mechanism).layout)

    def possible(self, lists: pa.Array) -> NDArray[np.bool_]:
        """Return which lists hold only reports that the mechanism can give."""
        reports, starts, lengths = _elements(lists)
        impossible_before = np.concatenate([[0], np.cumsum(~possible(self.mechanism, reports))])
        return np.asarray(impossible_before[starts + lengths] == impossible_before[starts])


def _elements(lists: pa.Array) -> tuple[pa.Array, NDArray[np.int64], NDArray[np.int64]]:
    """Return the reports of all lists, and where those of each list start and how many they are."""
    if not (pa.types.is_list(lists.type) or pa.types.is_large_list(lists.type)):
        raise BadCounts("these are not counts of lists of reports", "use ldp.ibu_repeated(reports, m) on a column of lists")
    offsets = lists.offsets.to_numpy().astype(np.int64)
    reports = lists.values.slice(offsets[0], offsets[-1] - offsets[0])
    return reports, offsets[:-1] - offsets[0], np.diff(offsets)


def _check(pairs: pa.Array) -> None:
    if not pa.types.is_struct(pairs.type) or {field.name for field in pairs.type} != {"level", "report"}:
        raise BadCounts("these are not counts of reports with their levels", "use ldp.mixed_counts(report, level)")


def _reported(pairs: pa.Array) -> NDArray[np.bool_]:
    """Return which pairs have a report that is not NULL."""
    reports = pairs.field("report")
    if not pa.types.is_union(reports.type):
        return np.asarray(reports.is_valid().to_numpy(zero_copy_only=False))
    members = [reports.field(i).is_valid().to_numpy(zero_copy_only=False) for i in range(reports.type.num_fields)]
    return np.asarray(np.choose(reports.type_codes.to_numpy(), members))


def _of_one_type(reports: pa.Array) -> pa.Array:
    """Return reports; of a union, which may hold reports of several types, the member that all of these rows have."""
    if not pa.types.is_union(reports.type):
        return plain(reports)
    members = np.unique(reports.type_codes.to_numpy())
    if len(members) != 1:
        raise impossible()
    return plain(reports.field(int(members[0])))


def _columns(mechanism: Mechanism, reports: pa.Array) -> tuple[Operator, NDArray[np.int64]]:
    """Return an operator that holds all of these reports, and the position of each among its columns."""
    certified = certify(mechanism)
    if not possible(mechanism, reports).all():
        raise impossible()
    if isinstance(certified.reports, Domain):
        return operator_of(mechanism), certified.reports.locate(reports).to_numpy(zero_copy_only=False).astype(np.int64)
    if isinstance(certified.reports, NumberedReports):
        return operator_of(mechanism), certified.reports.positions(reports)
    if not isinstance(certified.response, SetChannel) or not isinstance(certified.reports, WordReports):
        raise impossible()
    words, number = np.unique(certified.reports.read(reports), axis=0, return_inverse=True)
    return SupportOperator(certified.response, packed(certified.response, words)), number.ravel()
