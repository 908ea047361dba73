"""Standard errors, intervals, and goodness of fit: what the reports alone say about an estimate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.limits import Limits, check
from ldpsql.inference.operators import Floats
from ldpsql.inference.outcome import Fit, Status, simplex_projection
from ldpsql.inference.score_intervals import cut, deviations, exact_ends, log_fit_p_value, vote_scatter
from ldpsql.inference.solver.mle import TOLERANCE, maximum_likelihood

FALSE_ALARM = 1e-12  # chance of refusing honest reports


@dataclass(frozen=True)
class Intervals:
    """Standard error and interval of every share, each of shape (groups, values)."""

    std_error: Floats
    low: Floats
    high: Floats


def intervals(likelihood: Likelihood, fit: Fit, confidence: float) -> Intervals:
    """Return the errors and intervals of every share, `bounded`.

    An inversion has its own, `Operator.inverted_interval`. All other estimates have those of the debiased estimate one step
    from the maximum of the likelihood, `Operator.interval`: see `Estimator`.
    """
    check()
    z = deviations(confidence)
    theta = fit.theta
    if fit.errors is not None:
        error, low, high = likelihood.widened(simplex_projection(theta), fit.errors)
        reach = z / deviations(0.95)
        low, high = theta - (theta - low) * reach, theta + (high - theta) * reach
    elif set(fit.status) == {Status.INVERSION}:
        error, low, high = likelihood.inverted_interval(simplex_projection(theta), z)
    else:
        error, low, high = likelihood.interval(likeliest(likelihood, fit), z)
    return bounded(fit, error, low, high, z)


def intervals_together(likelihood: Likelihood, fit: Fit, confidence: float) -> Intervals:
    """Return intervals of a confidence that is so high that all hold together; without votes, those of `intervals`.

    The number of votes for a value is binomial, and its interval is exact here: a normal one, whose ends are so far out, misses
    several times as often as it says if there are few votes.
    """
    votes = likelihood.operator.votes
    if votes is None:
        return intervals(likelihood, fit, confidence)
    inverted = likelihood.operator.invert(likelihood.shares)
    low, high = np.stack([exact_ends(v, n, votes, confidence) for v, n in zip(inverted, likelihood.n, strict=True)], axis=1)
    theta = simplex_projection(fit.theta)
    error, low, high = likelihood.widened(theta, (np.sqrt(vote_scatter(theta, votes) / likelihood.n[:, None]), low, high))
    return bounded(fit, error, low, high, deviations(confidence))


def bounded(fit: Fit, error: Floats, low: Floats, high: Floats, z: float) -> Intervals:
    """Return intervals `cut` to [0, 1] and widened to hold the estimate, unless it is regularised.

    The intervals of a regularised estimate are those of the unbiased one. Widened to hold the other, they would end at it, as
    if it were a bound.
    """
    low, high = cut(low, high, z * error)
    return Intervals(error, *holding(fit.theta, low, high, fit.regularised[:, None]))


def holding(estimate: Floats, low: Floats, high: Floats, regularised: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Return intervals widened to hold the estimates that are not regularised."""
    return np.where(regularised, low, np.minimum(low, estimate)), np.where(regularised, high, np.maximum(high, estimate))


def no_intervals(theta: Floats) -> Intervals:
    """Return infinite errors, and intervals that hold all that a share can be."""
    return Intervals(np.full_like(theta, np.inf), np.minimum(theta, 0.0), np.maximum(theta, 1.0))


def goodness_of_fit(likelihood: Likelihood) -> tuple[float, float]:
    """Return for one group a statistic of misfit, and the logarithm of a bound of its p-value.

    If all reports can be listed it is G^2 against the best distribution, otherwise the result of `Operator.law_fit`. The
    p-value also bounds that of the votes for values. Weights of rows do not count.
    """
    likelihood = likelihood.of_people
    op = likelihood.operator
    if not op.complete:
        return op.law_fit(likelihood.shares[0], float(likelihood.n[0]))
    misfit = likelihood.misfit(best_fit(likelihood))
    return float(misfit[0]), float(_log_p(likelihood, misfit)[0])


def suspicious(likelihood: Likelihood, theta: Floats) -> NDArray[np.bool_]:
    """Return for each group whether its values cannot be reports of the channel, whatever the true distribution is."""
    likelihood = likelihood.of_people
    if not likelihood.operator.complete:
        return np.zeros(len(theta), dtype=np.bool_)  # nearly all reports differ: frequencies cannot be compared
    limit = np.log(FALSE_ALARM)
    flagged = _log_p(likelihood, likelihood.misfit(simplex_projection(theta))) < limit
    for i in np.flatnonzero(flagged):  # theta itself may be a poor fit: only the best one counts
        one = likelihood.group(int(i))
        flagged[i] = _log_p(one, one.misfit(best_fit(one)))[0] < limit
    return flagged


def _log_p(likelihood: Likelihood, misfit: Floats) -> Floats:
    """Return ln of a bound of the p-value of two tests: of G^2, and of the votes for values."""
    op = likelihood.operator
    both = log_fit_p_value(misfit, op.outputs), op.log_votes_p_value(likelihood.shares, likelihood.n)
    return np.minimum(0.0, np.minimum(*both) + np.log(2.0))


def likeliest(likelihood: Likelihood, fit: Fit) -> Floats:
    """Return the maximum of the likelihood of every group, whatever the estimator is; the estimate if that is not needed."""
    if likelihood.operator.large or likelihood.operator.consistent:
        return fit.theta
    certified = set(fit.status) == {Status.CERTIFIED}
    return fit.theta if certified and (likelihood.gap(fit.theta) <= TOLERANCE).all() else best_fit(likelihood)


def best_fit(likelihood: Likelihood) -> Floats:
    """Return the distribution that explains the reports best, or close to it; see `maximum_likelihood`, which remembers it."""
    return maximum_likelihood(likelihood, limits=Limits(20 if likelihood.operator.large else 100)).theta
