"""Reports that several mechanisms drew: one of them for each user, or several reports of each user."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels import SetChannel
from ldpsql.domains.columns import family, plain
from ldpsql.domains.composite import Product
from ldpsql.domains.domain import Domain
from ldpsql.errors import BadCounts, ImpossibleReport, InvalidDomain, InvalidParameter
from ldpsql.inference.counting import ReportSource, likelihoods, operator_of, possible
from ldpsql.inference.counts import GroupedCounts
from ldpsql.inference.likelihood import Likelihood, joined
from ldpsql.inference.operators import (
    ExtendedOperator,
    Floats,
    KeepOrSpreadOperator,
    Operator,
    ProductOperator,
    SupportOperator,
    packed,
    stacked,
)
from ldpsql.inference.operators.product import DIFFERENT
from ldpsql.mechanisms.base import Mechanism, certify, certify_values
from ldpsql.reports import MarkedReports, NumberedReports, WordReports, impossible, of_octets

# Where the reports of one level come from: a mechanism, or the values themselves for people who publish them.

PAIRS = "declare one mechanism, and use ldp.key_value"


@dataclass(frozen=True)
class Unperturbed:
    """Values that people published as they are: in SQL ``ldp.krr('infinity', ...)``. Nothing draws such reports."""

    values: Domain
    epsilon = float("inf")
    outside: int | None = None

    @property
    def layout(self) -> tuple[int, ...]:
        """Return which values are neighbours, as the mechanisms do by default."""
        return (len(self.values),) if self.values.rising else ()

    def likelihoods(self, counts: GroupedCounts) -> Iterator[tuple[NDArray[np.int64], Likelihood]]:
        """Yield the likelihood of all groups."""
        operator, positions = self.columns(counts.reports)
        table = counts.table(positions, len(self.values))
        yield counts.groups, Likelihood(operator, table, self.layout, np.arange(len(self.values)))

    def possible(self, reports: pa.Array) -> NDArray[np.bool_]:
        """Return which reports are values."""
        return np.asarray(self.values.locate(reports).is_valid().to_numpy(zero_copy_only=False))

    def columns(self, reports: pa.Array) -> tuple[Operator, NDArray[np.int64]]:
        """Return the identity, and the position of the value that each report is."""
        positions = self.values.locate(reports)
        if positions.null_count:
            raise ImpossibleReport("some reports that nothing perturbed are not in the domain", "declare all values that occur")
        size = len(self.values)
        return KeepOrSpreadOperator(size, 1.0, 0.0), positions.to_numpy(zero_copy_only=False).astype(np.int64)


@dataclass(frozen=True)
class Perturbed:
    """Reports that one mechanism over listed values drew."""

    mechanism: Mechanism

    def __post_init__(self) -> None:
        certify_values(self.mechanism, PAIRS)

    @property
    def name(self) -> str:
        """The name of the mechanism."""
        return self.mechanism.name

    @property
    def values(self) -> Domain:
        """The values of the mechanism."""
        return certify_values(self.mechanism, PAIRS).values

    @property
    def outside(self) -> int | None:
        """The position of the value that stands for all others, if there is one."""
        return certify_values(self.mechanism, PAIRS).outside_code

    @property
    def epsilon(self) -> float:
        """The realised epsilon of one report."""
        return certify(self.mechanism).epsilon

    @property
    def layout(self) -> tuple[int, ...]:
        """Return which values are neighbours."""
        return certify(self.mechanism).layout

    def likelihoods(self, counts: GroupedCounts) -> Iterator[tuple[NDArray[np.int64], Likelihood]]:
        """Yield the likelihoods of counts of reports."""
        return likelihoods(self.mechanism, counts)

    def possible(self, reports: pa.Array) -> NDArray[np.bool_]:
        """Return which reports the mechanism can give."""
        return possible(self.mechanism, reports)

    def columns(self, reports: pa.Array) -> tuple[Operator, NDArray[np.int64]]:
        """Return an operator that holds all of these reports, and the position of each among its columns.

        Raises:
            ImpossibleReport: if a report cannot occur under the mechanism.

        """
        certified = certify(self.mechanism)
        if not self.possible(reports).all():
            raise impossible()
        if isinstance(certified.reports, Domain | NumberedReports):
            return operator_of(self.mechanism), certified.reports.positions(reports)
        if not isinstance(certified.response, SetChannel) or not isinstance(certified.reports, WordReports):
            raise impossible()
        words, number = np.unique(certified.reports.read(reports), axis=0, return_inverse=True)
        return SupportOperator(certified.response, packed(certified.response, words)), number.ravel()


Level: TypeAlias = Perturbed | Unperturbed


_LEVELS = "declare a mechanism for every level that occurs"
_LISTS = "give each user two lists of the same length: ldp.ibu({level: levels, report: reports}, mechanisms)"
_SHORT = 8  # reports of a user, up to which some users have the same ones
_MOST_GROWN = 4096  # values: the curvature of such a mixture is a table of all pairs


@dataclass(frozen=True)
class Mixed:
    """One mechanism for each level, over one domain; the level of a report is public, chosen without looking at the value.

    A level may have a part of the domain if its mechanism has a value for all others, ``outside := 'as:VALUE'``: the domain has
    grown since its reports were drawn.

    Raises:
        InvalidParameter: unless there is one mechanism for each level.
        InvalidDomain: if the mechanisms have different domains, and a shorter one has no value for the others.

    """

    levels: Domain
    mechanisms: tuple[Mechanism | Unperturbed, ...]
    name = "the mechanisms of these levels"

    def __post_init__(self) -> None:
        if not self.mechanisms or len(self.levels) != len(self.mechanisms):
            raise InvalidParameter("there must be one mechanism for each level", "for example MAP {'low': ldp.krr(1, ...)}")
        if not all(self._shares(level) for level in self.each):
            raise InvalidDomain(
                "the mechanisms of the levels have different domains",
                "declare one domain for all of them, or a part of it with outside := 'as:VALUE'",
            )
        if len(self.values) > _MOST_GROWN and any(level.values != self.values for level in self.each):
            raise InvalidParameter(
                f"versions of a domain of more than {_MOST_GROWN:,} values cannot be estimated together",
                "estimate the reports of each version by themselves",
            )

    @cached_property
    def each(self) -> tuple[Level, ...]:
        """Where the reports of each level come from."""
        return tuple(one if isinstance(one, Unperturbed) else Perturbed(one) for one in self.mechanisms)

    @property
    def values(self) -> Domain:
        """The domain that they share: the longest."""
        return max((level.values for level in self.each), key=len)

    @property
    def layout(self) -> tuple[int, ...]:
        """Which values are neighbours, if all levels agree."""
        layouts = {level.layout for level in self.each}
        return layouts.pop() if len(layouts) == 1 else ()

    @property
    def epsilon(self) -> float:
        """The largest realised epsilon of all levels."""
        return max(level.epsilon for level in self.each)

    def _shares(self, level: Level) -> bool:
        own, shared = level.values, self.values
        return own == shared or (
            level.outside is not None
            and family(own.values.type) == family(shared.values.type)
            and not shared.locate(own.values).null_count
        )

    def _extended(self, level: Level, operator: Operator) -> Operator:
        """Return the operator of a level over the whole domain."""
        if level.values == self.values:
            return operator
        at = level.values.locate(self.values.values).fill_null(level.outside)
        return ExtendedOperator(operator, at.to_numpy().astype(np.int64))

    def places(self, column: pa.Array) -> NDArray[np.int32]:
        """Return the position of the level of each row, -1 for NULL and for a level without a mechanism.

        Raises:
            WrongType: if the column cannot hold levels.

        """
        positions = self.levels.locate(column).fill_null(-1)
        return np.asarray(positions.to_numpy(zero_copy_only=False))

    def _declared(self, pairs: pa.Array) -> NDArray[np.int32]:
        """Return the position of the level of each pair."""
        places = self.places(pairs.field("level"))
        if (places < 0).any():
            raise ImpossibleReport("some reports have no level, or one that no mechanism is declared for", _LEVELS)
        return places

    def likelihoods(self, counts: GroupedCounts) -> Iterator[tuple[NDArray[np.int64], Likelihood]]:
        """Yield for each group the stacked likelihoods of its levels; the reports are structs (level, report).

        If each user has several reports, they are structs of two lists, and the likelihood of a user is the product.
        """
        _check(counts.reports)
        if _of_lists(counts.reports):
            yield from Repeated(self).likelihoods(replace(counts, reports=_lists_of_pairs(counts.reports)))
            return
        counts = counts.select(np.flatnonzero(_reported(counts.reports)))
        places = self._declared(counts.reports)
        levels: dict[int, list[Likelihood]] = {group: [] for group in counts.groups.tolist()}
        for place in np.unique(places):
            of_level = counts.select(np.flatnonzero(places == place))
            of_level = replace(of_level, reports=_of_one_type(of_level.reports.field("report")))
            level = self.each[place]
            for groups, own in level.likelihoods(of_level):
                operator = self._extended(level, own.operator)
                likelihood = own if operator is own.operator else own.with_operator(operator)
                for row, group in enumerate(groups.tolist()):
                    levels[group].append(likelihood.group(row))
        for group, parts in levels.items():
            yield np.array([group]), joined(parts)

    def possible(self, pairs: pa.Array) -> NDArray[np.bool_]:
        """Return which pairs have a level, and NULL or a report that the mechanism of the level can give."""
        _check(pairs)
        if _of_lists(pairs):
            return Repeated(self).possible(_lists_of_pairs(pairs))
        fits, places = ~_reported(pairs), self.places(pairs.field("level"))
        for place in np.unique(places[(places >= 0) & ~fits]):
            rows = np.flatnonzero((places == place) & ~fits)
            fits[rows] = self.each[place].possible(_of_one_type(pairs.field("report").take(pa.array(rows))))
        return fits

    def columns(self, pairs: pa.Array) -> tuple[Operator, NDArray[np.int64]]:
        """Return an operator that holds all of these pairs of a level and a report, and the position of each."""
        _check(pairs)
        places = self._declared(pairs)
        operators: list[Operator] = []
        positions = np.empty(len(pairs), dtype=np.int64)
        weights = []
        for place in np.unique(places):
            rows = np.flatnonzero(places == place)
            level = self.each[place]
            operator, own = level.columns(_of_one_type(pairs.field("report").take(pa.array(rows))))
            positions[rows] = own + sum(before.outputs for before in operators)
            operators.append(self._extended(level, operator))
            weights.append(len(rows) / len(pairs))
        return stacked(operators, np.array(weights)) if len(operators) > 1 else operators[0], positions


@dataclass(frozen=True)
class Repeated:
    """Lists of reports of one value for each user, by one mechanism or by those of levels: every report spends its epsilon.

    Source: ElSalamouny, Palamidessi, "Generalized iterative Bayesian update and applications to mechanisms for privacy
    protection", EuroS&P 2020, section V: the likelihood of a list is the product of those of its reports.
    """

    of: Perturbed | Mixed

    @property
    def name(self) -> str:
        """The name of the mechanism."""
        return self.of.name

    @property
    def values(self) -> Domain:
        """The values of the mechanism."""
        return self.of.values

    @property
    def layout(self) -> tuple[int, ...]:
        """Which values are neighbours."""
        return self.of.layout

    @property
    def epsilon(self) -> float:
        """The largest realised epsilon of one report: a user spends the sum over all of them."""
        return self.of.epsilon

    def likelihoods(self, counts: GroupedCounts) -> Iterator[tuple[NDArray[np.int64], Likelihood]]:
        """Yield for each group a likelihood with an operator of its own: one column for each distinct list of reports."""
        reports, starts, lengths = _elements(counts.reports)
        if not len(reports):
            return
        single, unordered = self.of.columns(reports)
        positions = unordered[np.lexsort((unordered, np.repeat(np.arange(len(lengths)), lengths)))]  # the order does not matter
        for group, rows in zip(counts.groups, counts.rows_of_groups(), strict=True):
            at = np.arange(len(lengths))[rows]
            at = at[lengths[at] > 0]
            if len(at):
                before = lengths[at].cumsum() - lengths[at]
                elements = np.repeat(starts[at] - before, lengths[at]) + np.arange(lengths[at].sum())
                own, sizes, numbers = _distinct(positions[elements], lengths[at], counts.numbers[at])
                differ = isinstance(self.of, Perturbed) and len(sizes) > DIFFERENT * float(numbers.sum())
                product = ProductOperator(single, own, sizes, differ=differ)
                yield np.array([group]), Likelihood(product, numbers[None], self.layout)

    def possible(self, lists: pa.Array) -> NDArray[np.bool_]:
        """Return which lists hold only reports that the mechanism can give."""
        reports, starts, lengths = _elements(lists)
        impossible_before = np.concatenate([[0], np.cumsum(~self.of.possible(reports))])
        return np.asarray(impossible_before[starts + lengths] == impossible_before[starts])


S = TypeVar("S", bound=ReportSource)


def of_lists(source: Mechanism | S, kind: pa.DataType) -> Mechanism | S | Repeated:
    """Return what drew reports of a type: lists of reports of a mechanism if they are lists of a deeper nesting than its own.

    Args:
        source: what is said to have drawn them.
        kind: the type of the reports.

    """
    return Repeated(Perturbed(source)) if isinstance(source, Mechanism) and _depth(kind) > _own_depth(source) else source


def _distinct(
    positions: NDArray[np.int64], lengths: NDArray[np.int64], numbers: Floats
) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """Return the distinct lists of positions, their lengths, and how many users have each; long ones are taken to differ."""
    longest = int(lengths.max())
    if longest > _SHORT:
        return positions, lengths, numbers
    table = np.full((len(lengths), longest), -1, dtype=np.int64)
    table[np.arange(longest) < lengths[:, None]] = positions
    lists, place = np.unique(table, axis=0, return_inverse=True)
    sums = np.bincount(place.ravel(), weights=numbers).astype(np.float64)
    return lists[lists >= 0], (lists >= 0).sum(axis=1), sums


def _own_depth(mechanism: Mechanism) -> int:
    reports = certify(mechanism).reports
    plain = isinstance(reports, Domain | MarkedReports) and not isinstance(reports, Product)
    return _depth(reports.type) if plain else 0


def _depth(kind: pa.DataType) -> int:
    """Return how many lists are around each other; bytes stand for lists of words."""
    if pa.types.is_dictionary(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _depth(kind.value_type) + (not pa.types.is_dictionary(kind))
    return int(pa.types.is_binary(kind))


def _elements(lists: pa.Array) -> tuple[pa.Array, NDArray[np.int64], NDArray[np.int64]]:
    """Return the reports of all lists that are not NULL, and where those of each list start and how many they are."""
    lists = of_octets(lists) if pa.types.is_binary(lists.type) else lists
    if not (pa.types.is_list(lists.type) or pa.types.is_large_list(lists.type)):
        raise BadCounts("these are not counts of lists of reports", "give each user a list of reports")
    offsets = lists.offsets.to_numpy().astype(np.int64)
    reports = lists.values.slice(offsets[0], offsets[-1] - offsets[0])
    there = np.concatenate([[0], np.cumsum(reports.is_valid().to_numpy(zero_copy_only=False))])
    starts = there[offsets - offsets[0]]
    return reports.drop_null() if there[-1] < len(reports) else reports, starts[:-1], np.diff(starts)


def _check(pairs: pa.Array) -> None:
    if not pa.types.is_struct(pairs.type) or {field.name for field in pairs.type} != {"level", "report"}:
        raise BadCounts("these are not counts of reports with their levels", "pass {level: level, report: report}")


def _of_lists(pairs: pa.Array) -> bool:
    """Return whether these are structs of a list of levels and a list of reports."""
    return bool(pa.types.is_list(pairs.type.field("level").type))


def _lists_of_pairs(lists: pa.Array) -> pa.ListArray:
    """Return structs of two lists as lists of structs (level, report), without the pairs whose report is NULL."""
    levels, reports = lists.field("level"), lists.field("report")
    if not pa.types.is_list(reports.type):
        raise BadCounts("there is a list of levels for each user, and no list of reports", _LISTS)
    lengths = [each.value_lengths().fill_null(0).to_numpy().astype(np.int64) for each in (levels, reports)]
    if (lengths[0] != lengths[1]).any():
        raise BadCounts("some users have more levels than reports, or fewer", _LISTS)
    pairs = pa.StructArray.from_arrays([levels.flatten(), reports.flatten()], ["level", "report"])
    kept = _reported(pairs)
    user = np.repeat(np.arange(len(lists)), lengths[0])[kept]
    offsets = np.concatenate([[0], np.bincount(user, minlength=len(lists)).cumsum()])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pairs.take(pa.array(np.flatnonzero(kept))))


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
