"""Counts of groups, as a SQL column of maps from report to number hands them over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.domain import plain
from ldpsql.errors import BadCounts
from ldpsql.estimation import Estimates, Source, estimate_likelihood, likelihoods, possible, whole_numbers
from ldpsql.estimator import Estimator
from ldpsql.mechanism import Mechanism


@dataclass(frozen=True)
class Groups:
    """Some rows of the column: their counts as (report, number, group) triples, ``rows[group]`` being the row."""

    rows: NDArray[np.int64]
    reports: pa.Array
    numbers: pa.Array
    group: NDArray[np.int64]

    def estimates(self, source: Mechanism | Source, estimator: Estimator) -> Iterator[tuple[NDArray[np.int64], Estimates]]:
        """Yield rows and their estimates; rows without a report are left out."""
        for part, likelihood in likelihoods(source, self.reports, self.numbers, self.group, len(self.rows)):
            yield self.rows[part], estimate_likelihood(source, likelihood, estimator)

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
