"""The most frequent values of a domain, with intervals and ranks that hold although the reports chose the values.

A choice by the largest estimates favours values whose noise is high, so the interval of one value, which holds with 95 %
probability, misses more often for the values that are chosen. These intervals hold for all values of the domain together, and
so for any choice of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ldpsql.errors import InvalidParameter
from ldpsql.estimates.uncertainty import Intervals
from ldpsql.inference.operators import Floats

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
    model, together = estimates.likelihood, estimates.together
    votes = model.operator.invert(model.shares) if model.operator.votes else estimates.fit.theta
    groups = zip(estimates.fit.theta, votes, together.std_error, together.low, together.high, strict=True)
    columns = [_top(theta, own, Intervals(*ends), count) for theta, own, *ends in groups]
    return dict(zip(NAMES, np.array(columns).swapaxes(0, 1), strict=True))


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
