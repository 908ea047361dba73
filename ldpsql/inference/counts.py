"""Counts of reports in groups: all that an estimator sees of the data, on every path from a query to a likelihood."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.domains.columns import distinct, plain, taken
from ldpsql.errors import BadCounts
from ldpsql.inference.operators import Floats
from ldpsql.reports import of_octets

MAX_COUNT = 2**53 - 1  # doubles hold whole numbers exactly up to here
# sum() is a HUGEINT, a DECIMAL or a DOUBLE in DuckDB, count(*) a BIGINT and histogram() a UBIGINT. Intervals from sums of
# weights would be too short, so only the user can say that a sum is one of counts.
_SUMS = (
    "write sum(n)::BIGINT or ldp.merge(counts) for sums of counts; for weights, estimate each group of equal weight, "
    "and combine the estimates of the groups by their weights"
)


@dataclass(frozen=True, eq=False)
class GroupedCounts:
    """How often reports occur in groups: ``reports[i]`` occurs ``numbers[i]`` times in the group ``groups[group[i]]``.

    ``groups`` holds the caller's number of each group, for example its row of a SQL column. Every group has a report.
    """

    reports: pa.Array
    numbers: Floats
    group: NDArray[np.int64]
    groups: NDArray[np.int64]

    @classmethod
    def of(cls, reports: pa.Array, numbers: pa.Array, group: NDArray[np.int64] | None = None) -> GroupedCounts:
        """Return the counts of rows (report, number, group); without groups all rows are of group 0.

        Raises:
            BadCounts: if a number is negative, NULL, not whole, or larger than 2**53 - 1.

        """
        weights = whole_numbers(numbers)
        if group is None:
            return cls(reports, weights, np.zeros(len(reports), dtype=np.int64), np.zeros(1, dtype=np.int64))
        groups, position = np.unique(group, return_inverse=True)
        return cls(reports, weights, position.ravel(), groups)

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
        return cls(reports, whole_numbers(chosen.items), group, rows)

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
        return cls(reports, numbers, group, np.concatenate([part.groups for part in parts]))

    def in_order(self, groups: NDArray[np.int64]) -> GroupedCounts:
        """Return the counts with the groups in another order."""
        order = np.argsort(groups)
        place = order[np.searchsorted(groups[order], self.groups)]
        return GroupedCounts(self.reports, self.numbers, place[self.group], groups)

    def select(self, rows: NDArray[np.int64]) -> GroupedCounts:
        """Return the counts of some rows, with the groups that still have reports."""
        groups, group = np.unique(self.group[rows], return_inverse=True)
        return GroupedCounts(self.reports.take(pa.array(rows)), self.numbers[rows], group.ravel(), self.groups[groups])

    def merge(self) -> tuple[NDArray[np.int64], Floats]:
        """Return the first row of each distinct report of each group, and the sum of its numbers.

        Raises:
            BadCounts: if a sum is larger than 2**53 - 1.

        """
        first, number = distinct(self.reports)
        if len(self.groups) > 1:
            _, first, number = np.unique(self.group * len(first) + number, return_index=True, return_inverse=True)
        sums: Floats = np.bincount(number, weights=self.numbers, minlength=len(first)).astype(np.float64, copy=False)
        if sums.max(initial=0.0) > MAX_COUNT:
            raise BadCounts("the counts add up to more than can be counted exactly", "at most 2^53 - 1 a report")
        return first, sums

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


def whole_numbers(numbers: pa.Array) -> Floats:
    """Return counts as doubles, which hold them exactly up to 2**53 - 1.

    Raises:
        BadCounts: if their type is not an integer type of at most 64 bits, or one is negative, NULL or larger.

    """
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
