"""Groups of counts as DuckDB hands them over, and lists of structs as it takes them back."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from ldpsql.domain import plain
from ldpsql.errors import BadCounts
from ldpsql.estimation import likelihoods
from ldpsql.estimator import Estimator
from ldpsql.handles import PLANS
from ldpsql.likelihood import Likelihood
from ldpsql.mechanism import Mechanism


def counted(
    histograms: pa.ChunkedArray, plans: pa.ChunkedArray
) -> Iterator[tuple[np.ndarray, Mechanism, Estimator, Likelihood]]:
    """Yield the rows of all groups that hold reports, plan by plan, with their mechanism, estimator and likelihood."""
    maps, handles = plain(histograms), plain(plans).to_numpy(zero_copy_only=False)
    if pa.types.is_null(maps.type):
        return
    if not pa.types.is_map(maps.type):
        raise BadCounts("counts must be a MAP from reports to numbers", "use ldp.counts(report) or map(reports, numbers)")
    filled = maps.is_valid().to_numpy(zero_copy_only=False) & (np.diff(maps.offsets.to_numpy()) > 0)
    for handle in np.unique(handles[filled]):
        mechanism, estimator = PLANS.thing(int(handle))
        rows = np.flatnonzero(filled & (handles == handle))
        groups = maps.take(pa.array(rows))
        sizes = np.diff(groups.offsets.to_numpy())
        group = np.repeat(np.arange(len(rows)), sizes)
        for part, likelihood in likelihoods(mechanism, groups.keys, groups.items, group, len(rows)):
            yield rows[part], mechanism, estimator, likelihood


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
