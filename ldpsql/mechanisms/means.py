"""Responses of the mechanisms for means, on an interval scaled to [-1, 1], and the numbers that their reports stand for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ldpsql.mechanisms.families import window


def pieces(epsilon: float, bins: int) -> NDArray[np.float64]:
    """Return the densities of the piecewise mechanism: a row for the centre of each bin, a column for each bin of [-C, C].

    With z = e^(epsilon/2): C = (z+1)/(z-1), and the high density covers [(C+1)x/2 - (C-1)/2, (C+1)x/2 + (C-1)/2].
    """
    reach = 1 / np.tanh(epsilon / 4)
    left = (reach + 1) / 2 * _centres(bins) - (reach - 1) / 2
    return np.asarray(1 + np.expm1(epsilon) * window((left + reach) / (2 * reach), (reach - 1) / (2 * reach), bins))


def piece_readings(epsilon: float, bins: int) -> NDArray[np.float64]:
    """Return the centres of the bins of [-C, C], where -1 counts as 0 and 1 as 1."""
    return np.asarray(_centres(bins) / np.tanh(epsilon / 4) / 2 + 0.5)


def roundings(epsilon: float, bins: int) -> NDArray[np.float64]:
    """Return the probabilities of the lower and the upper report of stochastic rounding for the centre of each bin."""
    rise = _centres(bins) * np.tanh(epsilon / 2) / 2
    return np.stack([0.5 - rise, 0.5 + rise], axis=1)


def rounding_readings(epsilon: float) -> NDArray[np.float64]:
    """Return -C and C, C = (e^epsilon + 1)/(e^epsilon - 1), where -1 counts as 0 and 1 as 1."""
    return np.asarray(np.array([-1.0, 1.0]) / np.tanh(epsilon / 2) / 2 + 0.5)


def _centres(bins: int) -> NDArray[np.float64]:
    return np.asarray((2 * np.arange(bins) + 1) / bins - 1)
