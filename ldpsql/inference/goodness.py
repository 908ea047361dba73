"""Goodness of fit: bounds of the probability that honest reports look like this. They hold at every sample size.

All are logarithms of upper bounds of a p-value: they never refuse honest reports more often than they state. They find crude
manipulation, wrong parameters and raw columns; manipulation that imitates the mechanism passes them.
"""

from __future__ import annotations

import numpy as np

from ldpsql.channels import Floats


def log_fit_p_value(statistic: Floats, outputs: int) -> Floats:
    """Return an upper bound of ln P(G^2 >= statistic) for counts of ``outputs`` cells under their best or their true law.

    Half of G^2 at the maximum is at most n KL(shares, truth), whose tail is that of a Gamma variable (Agrawal, "Finite-sample
    concentration of the multinomial in relative entropy", IEEE Trans. Inf. Theory 2020, theorem I.2). For several samples the
    number of cells is their sum.
    """
    t, free = np.minimum(statistic / 2.0, 1e300), outputs - 1  # infinite if the law excludes an observed report
    with np.errstate(divide="ignore"):
        bound: Floats = -t + free * (1.0 + np.log(np.maximum(t, free) / free))
    return np.where(t <= free, 0.0, bound)


def known_law(counts: Floats, law: Floats) -> tuple[float, float]:
    """Return G^2 of counts against a fully known law, and the logarithm of its p-value's bound.

    Cells with less than one expected report are pooled, which depends on the number of reports only: the bound stays a bound.
    """
    n = counts.sum()
    rare = law * n < 1.0
    observed = np.append(counts[~rare], counts[rare].sum())
    expected = np.append(law[~rare], max(law[rare].sum(), 1e-300)) * n
    seen = observed > 0
    statistic = max(0.0, 2.0 * float(observed[seen] @ np.log(observed[seen] / expected[seen])))
    return statistic, float(log_fit_p_value(np.array(statistic), max(2, len(observed))))


def log_p_within(shares: Floats, n: float, low: float, high: float) -> float:
    """Return the logarithm of the bound of the p-value that all of these shares have expectations between low and high.

    Each share is of n independent reports. Source: Chernoff's bound exp(-n KL) for either end, times the number of shares.
    """
    worst = max(float(_divergence(shares[shares < low], low).max(initial=0.0)), 0.0)
    worst = max(float(_divergence(shares[shares > high], high).max(initial=0.0)), worst)
    return min(0.0, np.log(len(shares)) - n * worst)


def _divergence(shares: Floats, chance: float) -> Floats:
    """Return KL(share, chance) of coins."""
    with np.errstate(divide="ignore", invalid="ignore"):
        heads = np.where(shares > 0, shares * np.log(shares / chance), 0.0)
        tails = np.where(shares < 1, (1 - shares) * np.log((1 - shares) / (1 - chance)), 0.0)
    return np.asarray(heads + tails)
