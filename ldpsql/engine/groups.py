"""Counts of groups, as a SQL column of maps from report to number hands them over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ldpsql.domains.columns import plain
from ldpsql.engine.threads import one_thread
from ldpsql.errors import BadCounts, InvalidParameter
from ldpsql.estimates.estimate import Estimates, estimate_likelihood
from ldpsql.estimators.base import Estimator
from ldpsql.inference.counting import Source, likelihoods, possible, whole_numbers
from ldpsql.inference.deadline import soonest, until
from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.operators import Floats
from ldpsql.mechanisms.base import Mechanism
from ldpsql.mechanisms.key_value import KeyValueMechanism
from ldpsql.reports import of_octets


def refuse_pairs(source: Mechanism | Source) -> None:
    """Refuse reports of sets of pairs, which no estimator of a distribution takes."""
    if isinstance(source, KeyValueMechanism):
        raise InvalidParameter(
            "these are reports of sets of pairs",
            "estimate them in SQL, with ldp.key_value or ldp.key_value_diagnose (ldpsql sql)",
        )


@dataclass(frozen=True)
class Groups:
    """Some rows of the column: their counts as (report, number, group) triples, ``rows[group]`` being the row."""

    rows: NDArray[np.int64]
    reports: pa.Array
    numbers: pa.Array
    group: NDArray[np.int64]

    def estimates(self, source: Mechanism | Source, estimator: Estimator) -> Iterator[tuple[NDArray[np.int64], Estimates]]:
        """Yield rows and their estimates; rows without a report are left out."""
        refuse_pairs(source)
        end, parts = soonest(estimator.deadline), self.likelihoods(source)
        while True:
            with until(end):  # operators are built on the way
                part = next(parts, None)
                if part is None:
                    return
                found = estimate_likelihood(source, part[1], estimator)
            yield part[0], found

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
        reports = of_octets(taken.keys) if pa.types.is_binary(taken.keys.type) else taken.keys
        yield int(handle), Groups(rows, reports, taken.items, group)


def once_a_run(function: Callable[[pa.Array, pa.Array], pa.Array]) -> Callable[[pa.ChunkedArray, pa.ChunkedArray], pa.Array]:
    """Let a function of (maps, handles) see each run of equal rows once: a window gives all rows of a partition one map."""

    @wraps(function)
    @one_thread
    def seen_once(histograms: pa.ChunkedArray, handles: pa.ChunkedArray) -> pa.Array:
        maps, by_row = plain(histograms), plain(handles)
        new = _begins_a_run(maps, by_row.to_numpy(zero_copy_only=False))
        first = pa.array(np.flatnonzero(new))
        return function(maps.take(first), by_row.take(first)).take(pa.array(np.cumsum(new) - 1))

    return seen_once


def _begins_a_run(maps: pa.Array, handles: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Tell which rows differ from the row before; where keys cannot be compared all are taken to."""
    new = np.ones(len(maps), dtype=np.bool_)
    if len(maps) < 2 or not pa.types.is_map(maps.type) or pa.types.is_nested(maps.type.key_type):
        return new
    valid, sizes = maps.is_valid().to_numpy(zero_copy_only=False), np.diff(maps.offsets.to_numpy()).astype(np.int64)
    alike = valid[1:] & valid[:-1] & (sizes[1:] == sizes[:-1]) & (sizes[1:] > 0) & (handles[1:] == handles[:-1])
    rows = np.flatnonzero(alike) + 1
    if not len(rows):
        return new
    here, before, each = maps.take(pa.array(rows)), maps.take(pa.array(rows - 1)), sizes[rows]
    agree = pc.and_(pc.equal(here.keys, before.keys), pc.equal(here.items, before.items)).fill_null(False)
    new[rows] = ~np.logical_and.reduceat(agree.to_numpy(zero_copy_only=False), np.cumsum(each) - each)
    return new


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
