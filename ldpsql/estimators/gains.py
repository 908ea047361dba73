"""How much better one estimate predicts held-out reports than another, and how clear that is."""

from __future__ import annotations

import numpy as np

from ldpsql.estimators.resampling import Split
from ldpsql.inference.operators import Floats

ALIKE = 2.0  # in log-likelihood; Edwards, "Likelihood", 1972: two units of support


def gained(parts: Split, before: Floats, after: Floats) -> tuple[Floats, Floats]:
    """Return the gain in log-likelihood of the held-out reports of each group, and its standard error."""
    counts = parts.held_out.counts
    seen = counts > 0
    with np.errstate(divide="ignore", invalid="ignore"):
        rise = np.where(seen, np.log(np.where(seen, after, 1.0)) - np.log(np.where(seen, before, 1.0)), 0.0)
    rise = np.nan_to_num(rise, nan=0.0, posinf=50.0, neginf=-50.0)  # a probability of zero counts as e^-50
    total, n = parts.totals((counts * rise).sum(axis=1)), np.maximum(parts.totals(counts.sum(axis=1)), 1.0)
    return total, np.sqrt(np.maximum(parts.totals((counts * rise**2).sum(axis=1)) - total**2 / n, 0.0))


def clear(gain: Floats, error: Floats, least: float, most: float) -> Floats:
    """Return how clear a gain in log-likelihood is: 0 up to ``least`` standard errors, 1 from ``most`` of them on.

    A standard error below `ALIKE` counts as that.
    """
    return np.asarray(np.clip((gain / np.maximum(ALIKE, error) - least) / (most - least), 0.0, 1.0))
