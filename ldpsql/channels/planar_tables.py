"""Noise on the plane, added up for the cells of a rectangle: at each offset, and at each offset and beyond."""

from __future__ import annotations

from math import isqrt
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ldpsql.errors import InvalidParameter

_MOST = 2.0**64 * (1.0 - 2.0**-38)  # a sum of doubles up to here is one of less than 2**64
Number = TypeVar("Number", np.uint64, np.float64)  # weights, or shares


def reach(squares: int, points: int) -> int:
    """Return by how many cells noise can move a value along a row, if it has weights for this many squared distances."""
    return (isqrt(squares - 1) + points // 2) // points


def noise_tables(falling: NDArray[Number], columns: int, rows: int, points: int) -> NDArray[Number]:
    """Return the noise at each offset of columns and of rows, shape (2, 2, columns, rows).

    The first axis selects noise at that offset of columns only, or at that offset and beyond; the second does so for rows.

    Raises:
        InvalidParameter: if the sums may not fit in 64 bits.

    """
    total = 0.0
    last = reach(len(falling), points)
    out = np.zeros((2, 2, columns, rows), dtype=falling.dtype)
    half = points // 2
    squares = np.arange(last * points + half + 1, dtype=np.int64) ** 2
    beyond = np.zeros(last + 1, dtype=falling.dtype)
    for offset in range(last, -1, -1):
        single = np.zeros_like(beyond)
        for at in range(offset * points - half, offset * points + half + 1):
            line = np.zeros(half + len(squares), dtype=falling.dtype)  # of the points from -half on
            inside = np.searchsorted(squares, len(falling) - at**2)
            line[half : half + inside] = falling[at**2 + squares[:inside]]
            line[:half] = line[2 * half : half : -1]
            total += float(line.sum(dtype=np.float64))
            single += line.reshape(-1, points).sum(axis=1, dtype=falling.dtype)
        beyond += single
        if offset < columns:
            for kind, line in enumerate((single, beyond)):
                size = min(rows, last + 1)
                out[kind, 0, offset, :size] = line[:size]
                out[kind, 1, offset, :size] = line[::-1].cumsum(dtype=falling.dtype)[::-1][:size]
    if total > _MOST:
        raise InvalidParameter("the noise on the plane has too much weight", "all weights sum to 2**64")
    return out


def box(tables: NDArray[Number], *, mirrored: bool = True) -> NDArray[Number]:
    """Return the noise at the offsets up to the last column and row, where the last one stands for all beyond: one quarter.

    With ``mirrored``, each offset counts as often as it occurs in the four quarters.
    """
    columns, rows = tables.shape[2:]
    last = [np.where(np.arange(size) == size - 1, 1, 0) for size in (columns, rows)]
    quarter = tables[last[0][:, None], last[1], np.arange(columns)[:, None], np.arange(rows)]
    if not mirrored:
        return quarter
    times = [np.where(np.arange(size) == 0, 1, 2) for size in (columns, rows)]
    return quarter * np.outer(*times).astype(tables.dtype)


def at_end(size: int) -> NDArray[np.int64]:
    """Return 1 for the first and the last of some places, and 0 for the others."""
    return np.isin(np.arange(size), [0, size - 1]).astype(np.int64)


def cells_reached(columns: int, rows: int, reached: int) -> NDArray[np.uint64]:
    """Return how many cells of the plane go to each cell of the rectangle, shape (rows, columns)."""
    return np.outer(1 + reached * at_end(rows), 1 + reached * at_end(columns)).astype(np.uint64)
