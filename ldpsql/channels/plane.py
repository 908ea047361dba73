"""Noise on the plane, moved to the nearest cell of a rectangle: as a table of all pairs of cells if they are few."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels.base import TableChannel
from ldpsql.channels.dense import DenseChannel, from_doubles, reduced
from ldpsql.channels.planar_decay import PlanarDecay
from ldpsql.errors import InvalidParameter

MOST_LISTED = 1024  # cells of which all pairs are listed
_FAR = 36.0  # epsilon times distance beyond which less than 2^-45 of the noise falls
_MOST_POINTS = 60_000_000


def planar_channel(columns: int, rows: int, exponent: Fraction, points: int = 1) -> TableChannel:
    """Return the channel of noise proportional to e^(-exponent * distance in cells), see `clamped_plane`, for many cells too.

    Raises:
        InvalidParameter: if the noise reaches too far to be added up.

    """
    decay, few = reduced(exponent), columns * rows <= MOST_LISTED
    try:
        noise = PlanarDecay.within(columns, rows, decay, points).noise()
    except InvalidParameter:
        if few:  # a table can hold noise that reaches farther
            return from_doubles(clamped_plane(columns, rows, decay, points), exponent)
        raise
    return DenseChannel(noise.weights()) if few else noise


def clamped_plane(columns: int, rows: int, decay: float, points: int = 1) -> NDArray[np.float64]:
    """Return the table of noise proportional to e^(-decay * distance in cells); each point goes to its nearest cell.

    Each cell holds ``points`` x ``points`` points in a regular pattern; values are centres of cells. The pattern repeats, so
    the noise has the same total for every value, and a ratio of two rows never exceeds e^(decay * distance). In a rectangle,
    the nearest row and the nearest column give the nearest cell, so a cell on the border collects all points beyond it.

    Raises:
        InvalidParameter: if the noise reaches too far to be added up.

    """
    return _pairs(_noise_of_decay(columns, rows, decay, points), np.arange(columns * rows))


def _noise_of_decay(columns: int, rows: int, decay: float, points: int) -> NDArray[np.float64]:
    """Return the noise at each offset of columns and of rows, shape (2, 2, columns, rows).

    The first axis selects noise at that offset of columns only, or at that offset and beyond; the second does so for rows.

    Raises:
        InvalidParameter: if the noise spreads over more cells than a table may have.

    """
    far = ceil(_FAR / decay)
    if (columns + far) * (rows + far) * points**2 > _MOST_POINTS:
        raise InvalidParameter("epsilon is too small for cells of this side", "use larger cells or a larger epsilon")
    single = _quadrant(columns + far, rows + far, decay, points)
    by_column = [single, single[::-1].cumsum(axis=0)[::-1]]
    return np.array([[t[:columns, :rows], t[:, ::-1].cumsum(axis=1)[:, ::-1][:columns, :rows]] for t in by_column])


def _pairs(tables: NDArray[np.float64], values: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the noise for some values and all reports, both numbered row by row: shape (values, columns * rows)."""
    columns, rows = tables.shape[2:]
    row, column = np.divmod(values, columns)
    at_border = [np.isin(np.arange(size), [0, size - 1]).astype(np.int64) for size in (columns, rows)]
    apart = [np.abs(own[:, None] - np.arange(size)) for own, size in ((column, columns), (row, rows))]
    table = tables[at_border[0][None, None, :], at_border[1][None, :, None], apart[0][:, None, :], apart[1][:, :, None]]
    return table.reshape(len(values), columns * rows)


def _quadrant(columns: int, rows: int, decay: float, points: int) -> NDArray[np.float64]:
    """Return the noise at offsets (0.., 0..): the sum over the points of the cell."""
    steps = (np.arange(points) - (points - 1) / 2) / points
    across = (np.arange(columns)[:, None] + steps).ravel()
    along = (np.arange(rows)[:, None] + steps).ravel()
    out = np.empty((columns, rows))
    for i in range(columns):
        at = across[i * points : (i + 1) * points]
        mass = np.exp(-decay * np.hypot(at[:, None], along)).sum(axis=0)
        out[i] = mass.reshape(rows, points).sum(axis=1)
    return out
