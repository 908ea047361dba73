"""Standard errors, intervals, goodness of fit and uniqueness: what can be said about an estimate from the reports alone."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from ldpsql.estimator import simplex_projection
from ldpsql.fit import log_fit_p_value
from ldpsql.likelihood import Likelihood
from ldpsql.mle import maximise, uniform
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


def goodness_of_fit(likelihood: Likelihood) -> tuple[float, float]:
    """Return for one group a statistic of misfit, and the logarithm of a bound of its p-value.

    Where all reports can be listed it is G^2 against the best distribution; else what `Operator.law_fit` says.
    """
    op = likelihood.operator
    if not op.complete:
        return op.law_fit(likelihood.shares[0], float(likelihood.n[0]))
    misfit = likelihood.misfit(best_fit(likelihood))
    return float(misfit[0]), float(log_fit_p_value(misfit, op.outputs)[0])


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
    """Return the maximum-likelihood distribution of one group."""
    exact = likelihood.operator.maximum(likelihood.shares)
    return maximise(likelihood, uniform(likelihood), 1e-9, 100)[0] if exact is None else exact


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
