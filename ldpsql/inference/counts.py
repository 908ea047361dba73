"""Counts of reports in groups: all that an estimator sees of the data, on every path from a query to a likelihood."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ldpsql.domains.columns import RECORD, as_numbers, distinct, family, plain, taken
from ldpsql.errors import BadCounts, ImpossibleReport
from ldpsql.inference.operators import Floats
from ldpsql.reports import of_octets

MAX_COUNT = 2**53 - 1  # doubles hold whole numbers exactly up to here
# sum() is a HUGEINT, a DECIMAL or a DOUBLE in DuckDB, count(*) a BIGINT and histogram() a UBIGINT. Intervals from sums of
# weights would be too short, so only the user can say that a sum is one of counts.
_SUMS = (
    "write sum(n)::BIGINT or ldp.counts(counts) for sums of counts; for weights, pass weight := column, or make the counts "
    "with ldp.counts(report, weight := column)"
)
_WRITTEN_OUT = tuple(f"{{{mark}{RECORD}" for mark in "'\"")  # how a STRUCT with a record begins as text
SUMS = ("n", "w", "ww")  # of weighted counts: of rows, of their weights, and of the squares of these


class Weights(NamedTuple):
    """What counts are if rows have weights: the numbers of rows with a weight, and the sums of the squared weights."""

    people: Floats
    squares: Floats


@dataclass(frozen=True, eq=False)
class GroupedCounts:
    """How often reports occur in groups: ``reports[i]`` occurs ``numbers[i]`` times in the group ``groups[group[i]]``.

    ``groups`` holds the caller's number of each group, for example its row of a SQL column. Every group has a report. If rows
    have weights, ``numbers`` are the sums of these, and ``weights`` are not None.

    Raises:
        ImpossibleReport: if the reports are recorded ones as text.

    """

    reports: pa.Array
    numbers: Floats
    group: NDArray[np.int64]
    groups: NDArray[np.int64]
    weights: Weights | None = None

    def __post_init__(self) -> None:
        """Refuse what DuckDB writes into a CSV file for reports with a record."""
        text = len(self.reports) and family(self.reports.type) == "text"
        if text and (self.reports[0].as_py() or "").startswith(_WRITTEN_OUT):
            raise ImpossibleReport(
                "the reports are text that a file such as CSV made of recorded reports",
                "write Parquet, which keeps the record, or only the reports: SELECT struct_extract_at(city, 1) AS city",
            )

    @property
    def people(self) -> Floats:
        """How many rows have each report."""
        return self.numbers if self.weights is None else self.weights.people

    @classmethod
    def of(cls, reports: pa.Array, numbers: pa.Array, group: NDArray[np.int64] | None = None) -> GroupedCounts:
        """Return the counts of rows (report, number, group); without groups all rows are of group 0.

        Raises:
            BadCounts: if a number is negative, NULL, not whole, or larger than 2**53 - 1.

        """
        own = numbers_of(numbers)
        if group is None:
            return cls(reports, own[0], np.zeros(len(reports), dtype=np.int64), np.zeros(1, dtype=np.int64), own[1])
        groups, position = np.unique(group, return_inverse=True)
        return cls(reports, own[0], position.ravel(), groups, own[1])

    @classmethod
    def of_column(cls, column: pa.Array | pa.ChunkedArray) -> GroupedCounts:
        """Return the counts of a column of reports, as one group; NULL reports are left out."""
        reports = plain(column).drop_null()
        first, number = distinct(reports)
        return cls.of(taken(reports, first), pa.array(np.bincount(number)))

    @classmethod
    def of_maps(cls, maps: pa.MapArray, rows: NDArray[np.int64]) -> GroupedCounts:
        """Return the counts in some rows of a column of maps from report to number, none of which is NULL or empty."""
        chosen = maps.take(pa.array(rows))
        reports = of_octets(chosen.keys) if pa.types.is_binary(chosen.keys.type) else chosen.keys
        group = np.repeat(np.arange(len(rows)), np.diff(chosen.offsets.to_numpy()))
        numbers, weights = numbers_of(chosen.items)
        return cls(reports, numbers, group, rows, weights)

    @classmethod
    def of_lists(cls, lists: pa.ListArray, rows: NDArray[np.int64]) -> GroupedCounts:
        """Return the counts in some rows of a column of lists of reports; NULL, and groups of nothing else, are left out."""
        chosen = lists.take(pa.array(rows))
        group = np.repeat(np.arange(len(rows)), np.diff(chosen.offsets.to_numpy()))
        reports = chosen.flatten()
        present = reports.is_valid().to_numpy(zero_copy_only=False)
        whole = cls(reports, present.astype(np.float64), group, rows)
        return whole if present.all() else whole.select(np.flatnonzero(present))

    @classmethod
    def joined(cls, parts: Sequence[GroupedCounts]) -> GroupedCounts:
        """Return the counts of different groups in one."""
        reports, numbers = pa.concat_arrays([part.reports for part in parts]), np.concatenate([part.numbers for part in parts])
        starts = np.cumsum([0, *(len(part.groups) for part in parts)])
        group = np.concatenate([part.group + start for part, start in zip(parts, starts, strict=False)])
        weights = [part.weights for part in parts if part.weights is not None]
        together = Weights(*map(np.concatenate, zip(*weights, strict=True))) if weights else None
        return cls(reports, numbers, group, np.concatenate([part.groups for part in parts]), together)

    def in_order(self, groups: NDArray[np.int64]) -> GroupedCounts:
        """Return the counts with the groups in another order."""
        order = np.argsort(groups)
        place = order[np.searchsorted(groups[order], self.groups)]
        return replace(self, group=place[self.group], groups=groups)

    def select(self, rows: NDArray[np.int64]) -> GroupedCounts:
        """Return the counts of some rows, with the groups that still have reports."""
        groups, group = np.unique(self.group[rows], return_inverse=True)
        weights = None if self.weights is None else Weights(*(part[rows] for part in self.weights))
        return GroupedCounts(self.reports.take(pa.array(rows)), self.numbers[rows], group.ravel(), self.groups[groups], weights)

    def effective(self) -> tuple[GroupedCounts, ...]:
        """Return plain counts: of the weights, of the rows, and of the squared weights.

        The first and the last are scaled so that they add up to Kish's number of rows of equal weight of each group,
        (sum of w)^2 / sum of w^2, whose total weight has the same variance (Kish, "Survey sampling", 1965).
        """
        if self.weights is None:
            return (self,)
        people, squares = self.weights
        w, ww = (np.bincount(self.group, weights=one, minlength=len(self.groups)) for one in (self.numbers, squares))
        scaled = self.numbers * (w / ww)[self.group], squares * (w**2 / ww**2)[self.group]
        return tuple(replace(self, numbers=one, weights=None) for one in (scaled[0], people, scaled[1]))

    def merge(self) -> tuple[NDArray[np.int64], Floats]:
        """Return the first row of each distinct report of each group, and the sum of its numbers.

        Raises:
            BadCounts: if a sum is larger than 2**53 - 1.

        """
        first, number = self._distinct()
        sums: Floats = np.bincount(number, weights=self.numbers, minlength=len(first)).astype(np.float64, copy=False)
        if sums.max(initial=0.0) > MAX_COUNT:
            raise BadCounts("the counts add up to more than can be counted exactly", "at most 2^53 - 1 a report")
        return first, sums

    def merged(self) -> tuple[NDArray[np.int64], GroupedCounts]:
        """Return the first row of each distinct report of each group, and the counts with one row for each.

        Raises:
            BadCounts: if a sum is not finite, or larger than 2**53 - 1 if rows have no weights.

        """
        if self.weights is None:
            first, sums = self.merge()
            return first, replace(self, reports=taken(self.reports, first), numbers=sums, group=self.group[first])
        first, number = self._distinct()
        n, w, ww = (
            check_weights(np.bincount(number, weights=one, minlength=len(first)).astype(np.float64))
            for one in (self.weights.people, self.numbers, self.weights.squares)
        )
        return first, GroupedCounts(taken(self.reports, first), w, self.group[first], self.groups, Weights(n, ww))

    def written(self) -> pa.Array:
        """Return the numbers as a column: whole ones, or structs of `SUMS` if rows have weights."""
        if self.weights is None:
            return pa.array(self.numbers.astype(np.uint64))
        columns = [self.weights.people.astype(np.uint64), self.numbers, self.weights.squares]
        return pa.StructArray.from_arrays([pa.array(column) for column in columns], SUMS)

    def _distinct(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first row of each distinct report of each group, and the number of that of each row."""
        first, number = distinct(self.reports)
        if len(self.groups) > 1:
            _, first, number = np.unique(self.group * len(first) + number, return_index=True, return_inverse=True)
        return first, number

    def table(self, positions: NDArray[np.int64], width: int) -> Floats:
        """Return the counts of each group by the positions of the reports, shape (groups, width)."""
        cells = self.group * width + positions
        sums: Floats = np.bincount(cells, weights=self.numbers, minlength=len(self.groups) * width).astype(np.float64)
        return sums.reshape(len(self.groups), width)

    def rows_of_groups(self) -> Iterator[NDArray[np.int64] | slice]:
        """Yield the rows of each group."""
        if len(self.groups) == 1:
            yield slice(None)
            return
        order = np.argsort(self.group, kind="stable")
        yield from np.split(order, np.searchsorted(self.group[order], np.arange(1, len(self.groups))))


def numbers_of(numbers: pa.Array) -> tuple[Floats, Weights | None]:
    """Return counts as doubles; of weighted counts, structs of `SUMS`, the sums of weights, and the others.

    Raises:
        BadCounts: if they are neither.

    """
    if not pa.types.is_struct(numbers.type) or {field.name for field in numbers.type} != set(SUMS):
        return whole_numbers(numbers), None
    n, w, ww = (pc.struct_field(numbers, name).cast(pa.float64()).fill_null(np.nan) for name in SUMS)
    n, w, ww = (check_weights(one.to_numpy(zero_copy_only=False)) for one in (n, w, ww))
    return w, Weights(n, ww)


def weighed(
    reports: pa.Array, weights: pa.Array, group: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.int64], GroupedCounts]:
    """Return the weighted counts of rows, and the row of the first of each distinct report of each group, in their order.

    Rows whose report is NULL or whose weight is 0 are left out.

    Args:
        reports: the report of each row.
        weights: the weight of each row, or structs of `SUMS`, to add them up.
        group: the caller's number of the group of each row; None if there is one group.

    Raises:
        BadCounts: if the weight of a report is negative, NULL or not finite, or its square is not in the range of doubles.

    """
    if len(reports) != len(weights):
        raise BadCounts("each report needs its weight", "pass the keys and the values of one map")
    there = np.asarray(reports.is_valid().to_numpy(zero_copy_only=False))
    numbers, others = (as_numbers(weights), None) if not pa.types.is_struct(weights.type) else numbers_of(weights)
    if not (numbers[there] >= 0).all():  # nor NaN, which is NULL
        raise bad_weights()
    rows = np.flatnonzero(there & (numbers > 0))
    with np.errstate(over="ignore", under="ignore"):
        people, squares = others or (np.ones_like(numbers), numbers**2)
    own = Weights(check_weights(people[rows]), check_weights(squares[rows]))
    groups, place = np.unique(np.zeros(len(rows), dtype=np.int64) if group is None else group[rows], return_inverse=True)
    plain_rows = GroupedCounts(reports.take(pa.array(rows)), check_weights(numbers[rows]), place.ravel(), groups, own)
    first, counts = plain_rows.merged()
    return rows[first], counts


def check_weights(sums: Floats) -> Floats:
    """Return sums that belong to rows with weights."""
    if not ((sums > 0) & np.isfinite(sums)).all():
        raise bad_weights()
    return np.asarray(sums, dtype=np.float64)


def bad_weights() -> BadCounts:
    """Return the error for weights that cannot be added up."""
    return BadCounts(
        "some weights are negative, NULL, not finite, or so large or small that their squares are",
        "leave these rows out, by keep := weight > 0, or give them a weight of 0",
    )


def whole_numbers(numbers: pa.Array) -> Floats:
    """Return counts as doubles, which hold them exactly up to 2**53 - 1."""
    if not (pa.types.is_integer(numbers.type) or pa.types.is_null(numbers.type)):
        raise BadCounts("counts must have an integer type, and these numbers, of another type, may be sums of weights", _SUMS)
    try:
        whole = numbers.cast(pa.uint64())
    except pa.ArrowException:
        whole = pa.nulls(len(numbers), pa.uint64())
    exact = whole.fill_null(MAX_COUNT + 1).to_numpy(zero_copy_only=False)
    if (exact > np.uint64(MAX_COUNT)).any():
        raise BadCounts("counts must be whole numbers from 0 to 2^53 - 1", "use ldp.counts(report) or map(reports, numbers)")
    return np.asarray(exact, dtype=np.float64)
