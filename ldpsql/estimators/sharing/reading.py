"""One estimate from posteriors of single shares, which need not sum to one."""

from __future__ import annotations

import numpy as np

from ldpsql.estimators.sharing.cells import LEVELS, Posterior
from ldpsql.inference.operators import Floats
from ldpsql.inference.score_intervals import deviations

Z = deviations(0.95)


def medians(posterior: Posterior) -> Floats:
    """Return the posterior quantiles, all of one level in each group, that sum to one: the least expected absolute error.

    At a minimum of sum_x E|t_x - theta_x| among t that sum to one, P(theta_x < t_x) is the same for all x.
    """
    totals, groups = posterior.quantiles.sum(axis=1), np.arange(len(posterior.mean))
    after = np.clip((totals < 1.0).sum(axis=1), 1, len(LEVELS) - 1)
    low, high = totals[groups, after - 1], totals[groups, after]
    part = np.clip((1.0 - low) / np.maximum(high - low, 1e-12), 0.0, 1.0)[:, None]
    shares = (1.0 - part) * posterior.quantiles[groups, :, after - 1] + part * posterior.quantiles[groups, :, after]
    total = shares.sum(axis=1, keepdims=True)
    means = posterior.mean / np.maximum(posterior.mean.sum(axis=1, keepdims=True), 1e-300)
    return np.asarray(np.where(total > 0, shares / np.where(total > 0, total, 1.0), means))


def credible(posterior: Posterior, error: Floats, borrowed: Floats) -> tuple[Floats, Floats, Floats]:
    """Return standard errors, low and high ends of 95 % of shares; ``error`` is that of the mean of all groups.

    The posterior takes that mean for certain. Its error adds to that of each estimate as far as this is ``borrowed``; source:
    Morris, "Parametric empirical Bayes inference: theory and applications", JASA 1983.
    """
    added = borrowed[:, None] * error
    low = posterior.mean - np.hypot(posterior.mean - posterior.quantiles[..., 0], Z * added)
    high = posterior.mean + np.hypot(posterior.quantiles[..., -1] - posterior.mean, Z * added)
    return np.sqrt(posterior.variance + added**2), np.maximum(low, 0.0), np.minimum(high, 1.0)
