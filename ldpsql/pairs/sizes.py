"""How many pairs people have: what the share of dummies tells of it."""

from __future__ import annotations

import numpy as np

from ldpsql.operators import Floats

_HALVINGS = 60


def lost_if_poisson(dummies: float, padding: int) -> float:
    """Return by how much frequencies are too low on the whole, if the sizes S of the sets are Poisson numbers.

    A dummy is drawn with probability E max(0, 1 - S/padding), which tells the mean of S. The frequencies add up to
    E min(S, padding) = padding (1 - dummies) instead of E S. For other sizes it may be anything from 0, where no set is larger
    than the padding: one pair of each user, drawn, does not tell how many there are.

    >>> round(lost_if_poisson(0.5, 1), 2), round(lost_if_poisson(0.5, 4), 2)
    (0.28, 0.04)
    """
    if dummies >= 1.0:
        return 0.0
    sizes = np.arange(padding, dtype=np.float64)
    factorials = np.concatenate([[0.0], np.cumsum(np.log(sizes[1:]))])
    low, high = 0.0, 1.0
    while _dummies(high, sizes, factorials) > dummies:
        low, high = high, 2 * high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _dummies(middle, sizes, factorials) > dummies else (low, middle)
    return max(0.0, 1.0 - padding * (1.0 - dummies) / high)


def _dummies(mean: float, sizes: Floats, factorials: Floats) -> float:
    """Return the share of dummies under Poisson numbers; ``factorials`` are the logarithms of those of the sizes."""
    chance = np.exp(sizes * np.log(mean) - mean - factorials)
    return float(chance @ (1.0 - sizes / len(sizes)))
