"""Counts of groups, as a SQL column of maps from report to number hands them over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.counting import Source, likelihoods, possible, whole_numbers
from ldpsql.domain import plain
from ldpsql.errors import BadCounts, InvalidParameter
from ldpsql.estimation import Estimates, estimate_likelihood
from ldpsql.estimator import Estimator
from ldpsql.likelihood import Likelihood
from ldpsql.mechanism import Mechanism
from ldpsql.operators import Floats
from ldpsql.pairs.families import KeyValueMechanism


@dataclass(frozen=True)
class Groups:
    """Some rows of the column: their counts as (report, number, group) triples, ``rows[group]`` being the row."""

    rows: NDArray[np.int64]
    reports: pa.Array
    numbers: pa.Array
    group: NDArray[np.int64]

    def estimates(self, source: Mechanism | Source, estimator: Estimator) -> Iterator[tuple[NDArray[np.int64], Estimates]]:
        """Yield rows and their estimates; rows without a report are left out."""
        if isinstance(source, KeyValueMechanism):
            raise InvalidParameter("these are reports of sets of pairs", "use ldp.key_value or ldp.key_value_diagnose")
        for rows, likelihood in self.likelihoods(source):
            yield rows, estimate_likelihood(source, likelihood, estimator)

    def likelihoods(self, source: Mechanism | Source) -> Iterator[tuple[NDArray[np.int64], Likelihood]]:
        """Yield rows and their likelihoods; rows without a report are left out."""
        for part, likelihood in likelihoods(source, self.reports, self.numbers, self.group, len(self.rows)):
            yield self.rows[part], likelihood

    def without_impossible(self, source: Mechanism | Source) -> tuple[Groups, NDArray[np.int64]]:
        """Leave out the reports that cannot occur, and rows of nothing else; return also how many they were in each row."""
        fits, numbers = possible(source, self.reports), whole_numbers(self.numbers)
        left_out = np.bincount(self.group[~fits], weights=numbers[~fits], minlength=len(self.rows)).astype(np.int64)
        fits &= numbers > 0
        there, group = np.unique(self.group[fits], return_inverse=True)
        kept = pa.array(np.flatnonzero(fits))
        return Groups(self.rows[there], self.reports.take(kept), self.numbers.take(kept), group.ravel()), left_out


def groups_of(histograms: pa.ChunkedArray, handles: pa.ChunkedArray) -> Iterator[tuple[int, Groups]]:
    """Yield each handle with its groups; NULL and empty maps are left out.

    Raises:
        BadCounts: where the column does not hold maps.

    """
    maps, by_row = plain(histograms), plain(handles).to_numpy(zero_copy_only=False)
    if pa.types.is_null(maps.type):
        return
    if not pa.types.is_map(maps.type):
        raise BadCounts("counts must be a MAP from reports to numbers", "use ldp.counts(report) or map(reports, numbers)")
    filled = maps.is_valid().to_numpy(zero_copy_only=False) & (np.diff(maps.offsets.to_numpy()) > 0)
    for handle in np.unique(by_row[filled]):
        rows = np.flatnonzero(filled & (by_row == handle))
        taken = maps.take(pa.array(rows))
        group = np.repeat(np.arange(len(rows)), np.diff(taken.offsets.to_numpy()))
        yield int(handle), Groups(rows, taken.keys, taken.items, group)


def listed(parts: list[tuple[NDArray[np.int64], Floats]], count: int, names: tuple[str, ...]) -> pa.Array:
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
