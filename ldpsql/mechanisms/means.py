"""Responses of the mechanisms for means, on an interval scaled to [-1, 1], and the numbers that their reports stand for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import TOTAL, Weights
from ldpsql.channels.moving import Window, two_reports


def pieces(epsilon: float, bins: int, share: int = TOTAL, *, outside: bool = True) -> Weights:
    """Return the weights of the piecewise mechanism: a row for the centre of each bin, a column for each bin of [-C, C].

    With z = e^(epsilon/2): C = (z+1)/(z-1), and the high density covers [(C+1)x/2 - (C-1)/2, (C+1)x/2 + (C-1)/2]. Each row sums
    to ``share``. Without ``outside``, there is no low density: bins that are not covered have the weight 1.
    """
    reach = 1 / np.tanh(epsilon / 4)
    width, first = (reach - 1) / (2 * reach) * bins, (reach + 1) / (4 * reach)
    return Window.of(bins, float(np.expm1(epsilon)) if outside else 2.0**64, float(width), float(first), share).weights()


def piece_readings(epsilon: float, bins: int) -> NDArray[np.float64]:
    """Return the centres of the bins of [-C, C], where -1 counts as 0 and 1 as 1."""
    return np.asarray(_centres(bins) / np.tanh(epsilon / 4) / 2 + 0.5)


def roundings(epsilon: float, bins: int, share: int = TOTAL) -> Weights:
    """Return the weights of the lower and the upper report of stochastic rounding for the centre of each bin.

    Each row sums to ``share``.
    """
    return two_reports(bins, int(share * (0.5 + (1 - 1 / bins) * np.tanh(epsilon / 2) / 2)), share)


def rounding_readings(epsilon: float) -> NDArray[np.float64]:
    """Return -C and C, C = (e^epsilon + 1)/(e^epsilon - 1), where -1 counts as 0 and 1 as 1."""
    return np.asarray(np.array([-1.0, 1.0]) / np.tanh(epsilon / 2) / 2 + 0.5)


def _centres(bins: int) -> NDArray[np.float64]:
    return np.asarray((2 * np.arange(bins) + 1) / bins - 1)
