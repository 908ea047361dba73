"""Groups of counts as DuckDB hands them over, and lists of structs as it takes them back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ldpsql.domain import plain
from ldpsql.errors import BadCounts
from ldpsql.estimation import likelihoods, possible, whole_numbers
from ldpsql.handles import PLANS, Plan
from ldpsql.likelihood import Likelihood


@dataclass(frozen=True)
class Planned:
    """The groups of one plan: their rows, and their counts as (report, number, group) triples."""

    plan: Plan
    rows: np.ndarray
    reports: pa.Array
    numbers: pa.Array
    group: np.ndarray

    def likelihoods(self) -> Iterator[tuple[np.ndarray, Likelihood]]:
        """Yield the rows of groups and their likelihoods; groups without reports are left out."""
        for part, likelihood in likelihoods(self.plan[0], self.reports, self.numbers, self.group, len(self.rows)):
            yield self.rows[part], likelihood

    def without_impossible(self) -> tuple[Planned, np.ndarray]:
        """Leave out the reports that cannot occur, and groups of nothing else; return also how many they were in each group."""
        fits = possible(self.plan[0], self.reports)
        numbers = whole_numbers(self.numbers)
        left_out = np.bincount(self.group[~fits], weights=numbers[~fits], minlength=len(self.rows)).astype(np.int64)
        fits &= numbers > 0
        there, group = np.unique(self.group[fits], return_inverse=True)
        kept = pa.array(np.flatnonzero(fits))
        reports, counted = self.reports.take(kept), self.numbers.take(kept)
        return Planned(self.plan, self.rows[there], reports, counted, group.ravel()), left_out


def planned(histograms: pa.ChunkedArray, plans: pa.ChunkedArray) -> Iterator[Planned]:
    """Yield the groups that hold anything, plan by plan."""
    maps, handles = plain(histograms), plain(plans).to_numpy(zero_copy_only=False)
    if pa.types.is_null(maps.type):
        return
    if not pa.types.is_map(maps.type):
        raise BadCounts("counts must be a MAP from reports to numbers", "use ldp.counts(report) or map(reports, numbers)")
    filled = maps.is_valid().to_numpy(zero_copy_only=False) & (np.diff(maps.offsets.to_numpy()) > 0)
    for handle in np.unique(handles[filled]):
        rows = np.flatnonzero(filled & (handles == handle))
        groups = maps.take(pa.array(rows))
        group = np.repeat(np.arange(len(rows)), np.diff(groups.offsets.to_numpy()))
        yield Planned(PLANS.thing(int(handle)), rows, groups.keys, groups.items, group)


def listed(parts: list[tuple[np.ndarray, np.ndarray]], count: int, names: tuple[str, ...]) -> pa.Array:
    """Lay numbers of shape (rows, list, names) out as ``count`` lists of structs; NULL for the rows that are not there."""
    sizes = np.zeros(count, dtype=np.int32)
    for rows, cells in parts:
        sizes[rows] = cells.shape[1]
    ends = np.concatenate([[0], sizes.cumsum()]).astype(np.int32)
    out = np.empty((int(ends[-1]), len(names)))
    for rows, cells in parts:
        out[ends[rows][:, None] + np.arange(cells.shape[1])] = cells
    structs = pa.StructArray.from_arrays([pa.array(column) for column in out.T.copy()], names)
    return pa.ListArray.from_arrays(pa.array(ends), structs, mask=pa.array(sizes == 0))
