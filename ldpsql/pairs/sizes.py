"""The number of pairs that people have, from the share of dummies."""

from __future__ import annotations

import numpy as np

_HALVINGS = 60


def lost_if_geometric(dummies: float, padding: int) -> float:
    """Return by how much frequencies are too low on the whole, if the sizes of the sets are geometric numbers.

    With sizes S for which P(S >= s) = q^s, a pair is drawn with probability E min(S, padding)/padding, the mean of q^s over
    s = 1 .. padding; the share of dummies is the rest and determines q. Frequencies add up to E min(S, padding) instead of E S,
    which is q^padding too low. Sizes that vary less lose less, and nothing is lost if no set is larger than the padding.

    >>> round(lost_if_geometric(0.5, 1), 2), round(lost_if_geometric(0.5, 4), 2)
    (0.5, 0.3)
    """
    sizes, low, high = np.arange(1, padding + 1), 0.0, 1.0
    for _ in range(_HALVINGS):
        q = (low + high) / 2
        low, high = (q, high) if (q**sizes).mean() < 1.0 - dummies else (low, q)
    return float(low**padding)
