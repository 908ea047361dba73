"""Standard errors, intervals, goodness of fit and uniqueness: what can be said about an estimate from the reports alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from ldpsql.estimator import simplex_projection
from ldpsql.likelihood import Floats, KeepOrSpreadOperator, Likelihood, Operator
from ldpsql.mle import keep_or_spread_mle, maximise, uniform
from ldpsql.supports import SupportOperator

FALSE_ALARM = 1e-12  # chance of refusing honest reports


@dataclass(frozen=True)
class Intervals:
    """Standard error and interval of every share, each of shape (groups, values)."""

    std_error: Floats
    low: Floats
    high: Floats


def intervals(likelihood: Likelihood, theta: Floats, confidence: float) -> Intervals:
    """Return the intervals around the one-step debiased estimate theta + V(g - 1).

    V is the inverse, among directions that sum to zero, of the expected information sum_z a_z a_z' / P_theta(z) of a report.
    Debiasing matters on the border of the simplex, where theta itself is not normal around the truth. For keep-or-spread
    channels the shares of the reports are binomial and the interval is Wilson's. An interval is cut to [0, 1] and widened to
    hold the estimate.
    """
    inside = simplex_projection(theta)
    centre, variance = _debiased(likelihood, inside)
    error = np.sqrt(np.maximum(variance, 0.0) / likelihood.n[:, None])
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    if isinstance(likelihood.operator, KeepOrSpreadOperator):
        low, high = _wilson(likelihood, likelihood.operator, z)
    else:
        known = np.isfinite(error)
        low = np.where(known, np.where(known, centre - z * error, 0.0), 0.0)
        high = np.where(known, np.where(known, centre + z * error, 1.0), 1.0)
    return Intervals(error, np.minimum(np.clip(low, 0, 1), theta), np.maximum(np.clip(high, 0, 1), theta))


def _wilson(likelihood: Likelihood, op: KeepOrSpreadOperator, z: float) -> tuple[Floats, Floats]:
    """Return Wilson's interval of every report's share, inverted: right also for few reports and shares near zero.

    Source: Wilson, "Probable inference, the law of succession, and statistical inference", JASA 1927.
    """
    shares, n = likelihood.shares, likelihood.n[:, None]
    middle = shares + z**2 / (2 * n)
    reach = z * np.sqrt(shares * (1 - shares) / n + (z / (2 * n)) ** 2)
    ends = [(end / (1 + z**2 / n) - op.spread) / (op.keep - op.spread) for end in (middle - reach, middle + reach)]
    return ends[0], ends[1]


def _debiased(likelihood: Likelihood, theta: Floats) -> tuple[Floats, Floats]:
    """Return centre and n times the variance of every share."""
    op = likelihood.operator
    expected = op.forward(theta)
    if isinstance(op, KeepOrSpreadOperator):
        # V = diag(P) - P P' over (keep-spread)^2, so the centre is the inversion and the variance multinomial.
        lift = op.keep - op.spread
        return (likelihood.shares - op.spread) / lift, expected * (1.0 - expected) / lift**2
    gradient = op.adjoint(likelihood.shares / np.maximum(expected, 1e-300))
    centre, variance = np.empty_like(theta), np.empty_like(theta)
    for i, p in enumerate(expected):
        # The expected information needs all reports; with the observed ones, their shares stand for their probabilities.
        weight = p if op.complete else likelihood.shares[i]
        inverse, unknown = _tangent_inverse(op.curvature(np.where(p > 0, weight / np.where(p > 0, p, 1.0) ** 2, 0.0)))
        centre[i] = theta[i] + inverse @ (gradient[i] - 1.0)
        variance[i] = np.where(unknown, np.inf, inverse.diagonal())
    return centre, variance


def _tangent_inverse(information: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Invert the information among directions that sum to zero; tell the values it says nothing about."""
    size = len(information)
    centring = np.eye(size) - 1.0 / size
    eigenvalues, vectors = np.linalg.eigh(centring @ information @ centring)
    floor = 1e-10 * max(eigenvalues[-1], 1e-300)
    kept = eigenvalues > floor
    inverse = (vectors[:, kept] / eigenvalues[kept]) @ vectors[:, kept].T
    null = vectors[:, ~kept] - vectors[:, ~kept].mean(axis=0)  # drop the direction (1, ..., 1) itself
    return inverse, np.abs(null).max(axis=1, initial=0.0) > 1e-6


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
    """Return the maximum-likelihood distribution of one group."""
    op = likelihood.operator
    if isinstance(op, KeepOrSpreadOperator) and op.keep > op.spread:
        return keep_or_spread_mle(likelihood, op)
    return maximise(likelihood, uniform(likelihood), 1e-9, 100)[0]


def unique(likelihood: Likelihood, theta: Floats) -> bool:
    """Tell whether a maximum of one group's likelihood is the only one: the columns that can hold mass are independent."""
    if isinstance(likelihood.operator, KeepOrSpreadOperator):
        return likelihood.operator.keep != likelihood.operator.spread  # a value nobody reported has g < 1
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


def influence(operator: Operator) -> float:
    """Return by how much n reports move at most when one is replaced: n times the change of an inverted share."""
    if isinstance(operator, KeepOrSpreadOperator):
        return 1.0 / abs(operator.keep - operator.spread)
    if isinstance(operator, SupportOperator):
        return 1.0 / abs(operator.hit - operator.miss)
    return _computed_influence(operator)


@lru_cache(maxsize=256)
def _computed_influence(operator: Operator) -> float:
    inverse = np.linalg.pinv(operator.matrix())
    return float((inverse.max(axis=0) - inverse.min(axis=0)).max())
