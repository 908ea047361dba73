"""Standard errors, intervals, goodness of fit and uniqueness: what can be said about an estimate from the reports alone."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from ldpsql.estimator import Fit, Status, simplex_projection
from ldpsql.likelihood import Likelihood
from ldpsql.mle import certified_maximum
from ldpsql.operators import Floats

FALSE_ALARM = 1e-12  # chance of refusing honest reports


@dataclass(frozen=True)
class Intervals:
    """Standard error and interval of every share, each of shape (groups, values)."""

    std_error: Floats
    low: Floats
    high: Floats


def intervals(likelihood: Likelihood, fit: Fit, confidence: float) -> Intervals:
    """Return the errors and intervals of every share, intervals cut to [0, 1] and widened to hold the estimate.

    Of an inversion they are its own, `Operator.inverted_interval`. Otherwise they are those of the debiased estimate one step
    from the maximum of the likelihood, `Operator.interval`, whatever the estimate is: see `Estimator`.
    """
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    op, theta = likelihood.operator, fit.theta
    if all(status is Status.INVERSION for status in fit.status):
        error, low, high = op.inverted_interval(likelihood.shares, likelihood.n, simplex_projection(theta), z)
    else:
        known = all(status is Status.CERTIFIED for status in fit.status)
        error, low, high = op.interval(likelihood.shares, likelihood.n, theta if known else best_fit(likelihood), z)
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
    """Return the maximum-likelihood distribution of every group."""
    return certified_maximum(likelihood, max_iterations=100)[0]


def unique(likelihood: Likelihood, theta: Floats) -> bool:
    """Tell whether a maximum of one group's likelihood is the only one: the columns that can hold mass are independent."""
    if likelihood.operator.injective:
        return True
    face, table = _optimal_face(likelihood, theta)
    return bool(np.linalg.matrix_rank(table) == len(face))


def identified(likelihood: Likelihood, theta: Floats) -> tuple[Floats, Floats]:
    """Return the smallest and the largest share that each value has among all maxima of one group's likelihood."""
    from scipy.optimize import linprog  # noqa: PLC0415  # slow to import, needed only where the maximum is not unique

    low, high = theta[0].copy(), theta[0].copy()
    face, table = _optimal_face(likelihood, theta)
    equal = np.vstack([table.T, np.ones(len(face))])
    target = equal @ theta[0, face]
    for place, x in enumerate(face):
        cost = np.zeros(len(face))
        cost[place] = 1.0
        ends = [linprog(sign * cost, A_eq=equal, b_eq=target, bounds=(0, 1)) for sign in (1, -1)]
        if all(end.status == 0 for end in ends):
            low[x], high[x] = ends[0].fun, -ends[1].fun
    return np.minimum(low, theta[0]), np.maximum(high, theta[0])


def _optimal_face(likelihood: Likelihood, theta: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Return the values with g = 1, the only ones that can hold mass at a maximum, and their rows of the channel."""
    face = np.flatnonzero(likelihood.gradient(theta)[0] > 1.0 - 1e-6)
    return face, likelihood.operator.matrix()[face][:, likelihood.counts[0] > 0]
