"""Averages of neighbouring values, which what smooths shares has in common."""

from __future__ import annotations

import numpy as np

from ldpsql.inference.operators import Floats


def smoothed(theta: Floats, layout: tuple[int, ...]) -> Floats:
    """Return every value, shape (groups, values), averaged with its neighbours, along each axis of the layout in turn."""
    cells = theta.reshape(-1, *layout) if layout else theta
    for axis in range(1, 1 + len(layout)):
        cells = _along(cells, axis)
    return cells.reshape(theta.shape)


def _along(cells: Floats, axis: int) -> Floats:
    """Return averages with weights 1/4, 1/2, 1/4 along an axis; at the ends the missing quarter stays with the value."""
    moved = np.moveaxis(cells, axis, -1)
    padded = np.concatenate([moved[..., :1], moved, moved[..., -1:]], axis=-1)
    return np.moveaxis((padded[..., :-2] + 2 * moved + padded[..., 2:]) / 4, -1, axis)
