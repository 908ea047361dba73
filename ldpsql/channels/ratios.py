"""The largest ratios between the rows of a channel."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_CELLS = 1 << 15  # cells at a time, so that what is subtracted stays in the cache


def highest_log_ratios(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the largest of logs[x, y] - logs[x', y] over the reports y, for all pairs of rows: shape (rows, rows)."""
    logs = np.ascontiguousarray(logs)  # an array of selected columns is not
    size, step = len(logs), max(1, _CELLS // logs.shape[1])
    out = np.empty((size, size))
    room = np.empty((step, logs.shape[1]))
    for start in range(0, size, step):
        others = logs[start : start + step]
        stop = start + len(others)
        for x in range(stop):  # each difference serves both directions
            apart = np.subtract(logs[x], others, out=room[: len(others)])
            apart.max(axis=1, out=out[x, start:stop])
            out[start:stop, x] = -apart.min(axis=1)
    return out
