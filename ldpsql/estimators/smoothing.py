"""Averages of neighbouring values, which what smooths shares has in common."""

from __future__ import annotations

import numpy as np

from ldpsql.inference.operators import Floats

WEIGHT = 0.25  # of each neighbour


def smoothed(theta: Floats, layout: tuple[int, ...], weight: float = WEIGHT) -> Floats:
    """Return every value, shape (groups, values), averaged with its neighbours, along each axis of the layout in turn.

    Each neighbour has this weight, and the value itself the rest.
    """
    cells = theta.reshape(-1, *layout) if layout else theta
    for axis in range(1, 1 + len(layout)):
        cells = _along(cells, axis, weight)
    return cells.reshape(theta.shape)


def _along(cells: Floats, axis: int, weight: float) -> Floats:
    """Return averages along an axis; at the ends the weight of the missing neighbour stays with the value."""
    moved = np.moveaxis(cells, axis, -1)
    padded = np.concatenate([moved[..., :1], moved, moved[..., -1:]], axis=-1)
    return np.moveaxis(weight * (padded[..., :-2] + padded[..., 2:]) + (1.0 - 2.0 * weight) * moved, -1, axis)
