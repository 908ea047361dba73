"""Standard errors, intervals, and goodness of fit: what can be said about an estimate from the reports alone."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from ldpsql.budget import Budget
from ldpsql.estimator import simplex_projection
from ldpsql.likelihood import Likelihood
from ldpsql.mle import maximum_likelihood
from ldpsql.operators import Floats

FALSE_ALARM = 1e-12  # chance of refusing honest reports


@dataclass(frozen=True)
class Intervals:
    """Standard error and interval of every share, each of shape (groups, values)."""

    std_error: Floats
    low: Floats
    high: Floats


def intervals(likelihood: Likelihood, theta: Floats, confidence: float) -> Intervals:
    """Return the intervals of the operator at this confidence, cut to [0, 1] and widened to hold the estimate."""
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    error, low, high = likelihood.operator.interval(likelihood.shares, likelihood.n, simplex_projection(theta), z)
    return Intervals(error, np.minimum(np.clip(low, 0, 1), theta), np.maximum(np.clip(high, 0, 1), theta))


def log_fit_p_value(statistic: Floats, outputs: int) -> Floats:
    """Return an upper bound of ln P(G^2 >= statistic) under the best distribution, at every sample size.

    Half of G^2 at the maximum is at most n KL(shares, truth), whose tail is that of a Gamma variable (Agrawal, "Finite-sample
    concentration of the multinomial in relative entropy", IEEE Trans. Inf. Theory 2020, theorem I.2).
    """
    t, free = statistic / 2.0, outputs - 1
    with np.errstate(divide="ignore"):
        bound: Floats = -t + free * (1.0 + np.log(np.maximum(t, free) / free))
    return np.where(t <= free, 0.0, bound)


def suspicious(likelihood: Likelihood, theta: Floats) -> NDArray[np.bool_]:
    """Tell for each group whether its values cannot be reports of the channel, whatever the true distribution is."""
    if not likelihood.operator.complete:
        return np.zeros(len(theta), dtype=np.bool_)  # nearly all reports differ: there is nothing to compare frequencies with
    limit, outputs = np.log(FALSE_ALARM), likelihood.operator.outputs
    inside = simplex_projection(theta)
    flagged = log_fit_p_value(likelihood.misfit(inside), outputs) < limit
    for i in np.flatnonzero(flagged):  # theta itself may be a poor fit: only the best one counts
        best = best_fit(likelihood.group(int(i)))
        flagged[i] = log_fit_p_value(likelihood.group(int(i)).misfit(best), outputs)[0] < limit
    return flagged


def best_fit(likelihood: Likelihood) -> Floats:
    """Return the maximum-likelihood distribution of each group."""
    return maximum_likelihood(likelihood, budget=Budget(100)).theta
