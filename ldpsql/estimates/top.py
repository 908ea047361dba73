"""The most frequent values of a domain, with intervals and ranks that hold although the reports chose the values.

A choice by the largest estimates favours values whose noise is high, so the interval of one value, which holds with 95 %
probability, misses more often for the values that are chosen. These intervals hold for all values of the domain together, and
so for any choice of them (Bonferroni's inequality).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ldpsql.errors import InvalidParameter, OutOfTime
from ldpsql.estimates.uncertainty import Intervals, bounded, intervals, no_intervals
from ldpsql.inference.deadline import until
from ldpsql.inference.operators import Floats
from ldpsql.inference.outcome import simplex_projection
from ldpsql.inference.score_intervals import deviations, exact_ends, vote_scatter

if TYPE_CHECKING:
    from ldpsql.estimates.estimate import Estimates

NAMES = ("rank", "value", "estimate", "std_error", "low", "high", "best_rank", "worst_rank")


def checked_count(count: object) -> int:
    """Return a number of values if it is one.

    Raises:
        InvalidParameter: unless it is a whole number from 1.

    """
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise InvalidParameter("the number of values at the top must be a whole number from 1", "ldp.top(report, m, 10)")
    return count


def tops(estimates: Estimates, count: int) -> dict[str, Floats]:
    """Return the ``count`` most frequent values of every group, or all if there are fewer.

    Returns:
        A column for each of `NAMES`, shape (groups, values at the top); ``value`` is the position in the domain.

    """
    together = simultaneous(estimates)
    votes = estimates.likelihood.operator.invert(estimates.likelihood.shares) if _votes(estimates) else estimates.fit.theta
    groups = zip(estimates.fit.theta, votes, together.std_error, together.low, together.high, strict=True)
    columns = [_top(theta, own, Intervals(*ends), count) for theta, own, *ends in groups]
    return dict(zip(NAMES, np.array(columns).swapaxes(0, 1), strict=True))


def simultaneous(estimates: Estimates) -> Intervals:
    """Return the intervals of all shares that hold together with the estimator's confidence.

    If reports are votes for values, the number of votes for a value is binomial: its interval is exact for any number of
    reports, and the standard error is that of the votes. Other intervals are those of `intervals`.
    """
    model, theta = estimates.likelihood, estimates.fit.theta
    single = 1.0 - (1.0 - estimates.estimator.confidence) / theta.shape[1]
    votes = _votes(estimates)
    if votes is None:
        with until(estimates.end), suppress(OutOfTime):
            return intervals(model, estimates.fit, single)
        return no_intervals(theta)
    error = np.sqrt(vote_scatter(simplex_projection(theta), votes) / model.n[:, None])
    ends = [exact_ends(v, n, votes, single) for v, n in zip(model.operator.invert(model.shares), model.n, strict=True)]
    low, high = (np.stack(column) for column in zip(*ends, strict=True))
    error, low, high = model.widened(simplex_projection(theta), (error, low, high))
    return bounded(estimates.fit, error, low, high, deviations(single))


def _votes(estimates: Estimates) -> tuple[float, float] | None:
    return estimates.likelihood.operator.votes


def _top(theta: Floats, votes: Floats, ends: Intervals, count: int) -> Floats:
    """Return a row for each of `NAMES`."""
    places = largest(theta, votes, count)
    low, high = ends.low[places], ends.high[places]
    surely_above = len(theta) - np.searchsorted(np.sort(ends.low), high, side="right")
    surely_below = np.searchsorted(np.sort(ends.high), low, side="left")
    rank, worst = np.arange(1, len(places) + 1), len(theta) - surely_below
    return np.stack([rank, places, theta[places], ends.std_error[places], low, high, 1 + surely_above, worst])


def largest(theta: Floats, votes: Floats, count: int) -> NDArray[np.int64]:
    """Return the places of the largest shares, the largest first; equal shares by their votes, then by place."""
    if count < len(theta):
        least = np.partition(theta, len(theta) - count)[len(theta) - count]
        among = np.flatnonzero(theta >= least)
    else:
        among = np.arange(len(theta))
    return among[np.lexsort((-votes[among], -theta[among]))[:count]]
