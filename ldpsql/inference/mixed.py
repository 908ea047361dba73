"""Reports that several mechanisms drew: one of them for each user, or several reports of each user."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels import SetChannel
from ldpsql.domains.columns import plain
from ldpsql.domains.domain import Domain
from ldpsql.errors import BadCounts, ImpossibleReport, InvalidDomain, InvalidParameter
from ldpsql.inference.counting import likelihoods, operator_of, possible, whole_numbers
from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.operators import Operator, ProductOperator, SupportOperator, packed, stacked
from ldpsql.mechanisms.base import Mechanism, certify, certify_values
from ldpsql.reports import NumberedReports, WordReports, impossible

_LEVELS = "declare a mechanism for every level that occurs"
_PAIRS = "declare one mechanism, and use ldp.key_value"


@dataclass(frozen=True)
class Mixed:
    """One mechanism for each level, over one domain; every user has one level, which is public and chosen without the value.

    Raises:
        InvalidParameter: unless there is one mechanism for each level.
        InvalidDomain: where the mechanisms have different domains.

    """

    levels: Domain
    mechanisms: tuple[Mechanism, ...]
    name = "the mechanisms of these levels"

    def __post_init__(self) -> None:
        if not self.mechanisms or len(self.levels) != len(self.mechanisms):
            raise InvalidParameter("there must be one mechanism for each level", "for example MAP {'low': ldp.krr(1, ...)}")
        if any(certify_values(mechanism, _PAIRS).values != self.values for mechanism in self.mechanisms):
            raise InvalidDomain("the mechanisms of the levels have different domains", "declare one domain for all of them")

    @property
    def values(self) -> Domain:
        """The domain that they share."""
        return certify_values(self.mechanisms[0], _PAIRS).values

    @property
    def epsilon(self) -> float:
        """The largest realised epsilon of all levels."""
        return max(certify(mechanism).epsilon for mechanism in self.mechanisms)

    def places(self, column: pa.Array) -> NDArray[np.int32]:
        """Return the position of the level of every row, -1 where it is NULL or has no mechanism.

        Raises:
            WrongType: where the column cannot hold levels.

        """
        found = self.levels.locate(column).fill_null(-1)
        return np.asarray(found.to_numpy(zero_copy_only=False))

    def likelihoods(
        self, pairs: pa.Array, numbers: pa.Array, group: NDArray[np.int64], groups: int
    ) -> Iterator[tuple[NDArray[np.int64], Likelihood]]:
        """Stack the likelihoods of the levels that each group has; ``pairs`` are structs (level, report)."""
        pairs, numbers, group = _with_reports(pairs, numbers, group)
        places = self.places(pairs.field("level"))
        if (places < 0).any():
            raise ImpossibleReport("some reports have no level, or one that no mechanism is declared for", _LEVELS)
        found: list[list[Likelihood]] = [[] for _ in range(groups)]
        for place in np.unique(places):
            rows = np.flatnonzero(places == place)
            there, own = np.unique(group[rows], return_inverse=True)
            reports = _of_one_type(pairs.field("report"), rows)
            parts = likelihoods(self.mechanisms[place], reports, numbers.take(pa.array(rows)), own.ravel(), len(there))
            for held, likelihood in parts:
                for row, i in enumerate(held):
                    found[there[i]].append(likelihood.group(row))
        for i, levels in enumerate(found):
            if levels:
                yield np.array([i]), joined(levels)

    def possible(self, pairs: pa.Array) -> NDArray[np.bool_]:
        """Tell which pairs have a level, and a report that its mechanism can give; a NULL report is no report."""
        _check(pairs)
        fits, places = ~_reported(pairs), self.places(pairs.field("level"))
        for place in np.unique(places[(places >= 0) & ~fits]):
            rows = np.flatnonzero((places == place) & ~fits)
            fits[rows] = possible(self.mechanisms[place], _of_one_type(pairs.field("report"), rows))
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

    def likelihoods(
        self, lists: pa.Array, numbers: pa.Array, group: NDArray[np.int64], groups: int
    ) -> Iterator[tuple[NDArray[np.int64], Likelihood]]:
        """Give every group its own operator, one column for each distinct list of reports."""
        if not (pa.types.is_list(lists.type) or pa.types.is_large_list(lists.type)):
            raise BadCounts("these are not counts of lists of reports", "use ldp.ibu_repeated(reports, m) on a column of lists")
        weights, offsets = whole_numbers(numbers), lists.offsets.to_numpy()
        single, positions = _columns(self.mechanism, lists.values.slice(offsets[0], offsets[-1] - offsets[0]))
        starts, lengths = offsets[:-1] - offsets[0], np.diff(offsets)
        for i in range(groups):
            at = np.flatnonzero((group == i) & (lengths > 0))
            if not len(at):
                continue
            taken = np.repeat(starts[at] - np.concatenate([[0], lengths[at].cumsum()[:-1]]), lengths[at]) + np.arange(
                lengths[at].sum()
            )
            product = ProductOperator(single, positions[taken], lengths[at])
            yield np.array([i]), Likelihood(product, weights[None, at], certify(self.mechanism).layout)

    def possible(self, lists: pa.Array) -> NDArray[np.bool_]:
        """Tell which lists hold only reports that the mechanism can give."""
        if not (pa.types.is_list(lists.type) or pa.types.is_large_list(lists.type)):
            raise BadCounts("these are not counts of lists of reports", "use ldp.ibu_repeated(reports, m) on a column of lists")
        offsets = lists.offsets.to_numpy()
        fits = possible(self.mechanism, lists.values.slice(offsets[0], offsets[-1] - offsets[0]))
        bad = np.concatenate([[0], np.cumsum(~fits)])
        return np.asarray(np.diff(bad[offsets - offsets[0]]) == 0)


def joined(levels: Sequence[Likelihood]) -> Likelihood:
    """Return the likelihood of one group's reports under several channels, from those of each channel."""
    kept = [level for level in levels if level.counts.any()] or levels[:1]
    if len(kept) == 1:
        return kept[0]
    totals = np.array([level.n[0] for level in kept])
    stack = stacked([level.operator for level in kept], totals / totals.sum())
    layouts, named = {level.layout for level in kept}, [level.named for level in kept if level.named is not None]
    return Likelihood(
        stack,
        np.concatenate([level.counts for level in kept], axis=1),
        layouts.pop() if len(layouts) == 1 else (),
        np.concatenate(named) if len(named) == len(kept) else None,
    )


def _check(pairs: pa.Array) -> None:
    if not pa.types.is_struct(pairs.type) or {field.name for field in pairs.type} != {"level", "report"}:
        raise BadCounts("these are not counts of reports with their levels", "use ldp.mixed_counts(report, level)")


def _reported(pairs: pa.Array) -> NDArray[np.bool_]:
    """Tell which pairs have a report that is not NULL."""
    reports = pairs.field("report")
    if not pa.types.is_union(reports.type):
        return np.asarray(reports.is_valid().to_numpy(zero_copy_only=False))
    members = [reports.field(i).is_valid().to_numpy(zero_copy_only=False) for i in range(reports.type.num_fields)]
    return np.asarray(np.choose(reports.type_codes.to_numpy(), members))


def _with_reports(pairs: pa.Array, numbers: pa.Array, group: NDArray[np.int64]) -> tuple[pa.Array, pa.Array, NDArray[np.int64]]:
    """Leave out the pairs whose report is NULL."""
    _check(pairs)
    rows = np.flatnonzero(_reported(pairs))
    return pairs.take(pa.array(rows)), numbers.take(pa.array(rows)), group[rows]


def _of_one_type(reports: pa.Array, rows: NDArray[np.int64]) -> pa.Array:
    """Return some reports; of a union, whose rows may hold reports of several types, the member that all of them have."""
    if not pa.types.is_union(reports.type):
        return plain(reports.take(pa.array(rows)))
    members = np.unique(reports.type_codes.to_numpy()[rows])
    if len(members) != 1:
        raise impossible()
    return plain(reports.field(int(members[0])).take(pa.array(rows)))


def _columns(mechanism: Mechanism, reports: pa.Array) -> tuple[Operator, NDArray[np.int64]]:
    """Return an operator that holds all of these reports, and where it has the column of each."""
    known = certify(mechanism)
    if not possible(mechanism, reports).all():
        raise impossible()
    if isinstance(known.reports, Domain):
        return operator_of(mechanism), known.reports.locate(reports).to_numpy(zero_copy_only=False).astype(np.int64)
    if isinstance(known.reports, NumberedReports):
        return operator_of(mechanism), known.reports.positions(reports)
    if not isinstance(known.response, SetChannel) or not isinstance(known.reports, WordReports):
        raise impossible()
    words, number = np.unique(known.reports.read(reports), axis=0, return_inverse=True)
    return SupportOperator(known.response, packed(known.response, words)), number.ravel()
