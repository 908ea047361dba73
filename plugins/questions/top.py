"""The most frequent values of a domain, with intervals and ranks that hold although the reports chose the values.

A choice by the largest estimates favours values whose noise is high, so the interval of one value, which holds with 95 %
probability, misses more often for the values that are chosen. These intervals hold for all values of the domain together, and
so for any choice of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ldpsql.questions import (
    NUMBERS,
    Argument,
    Domain,
    Estimates,
    InvalidParameter,
    Kind,
    Lines,
    Question,
    Source,
    estimator_of_top,
    hookimpl,
    python_value,
)

Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class Top(Question):
    """The most frequent values, the most frequent first.

    Over many values the estimates are shrunk, so that their sum is nearly unbiased although the reports chose the values.
    """

    name = "top"
    summary = "the most frequent values, with intervals that hold together, and the best and the worst rank that each may have"
    fields = {"rank": Kind.WHOLE, "value": Kind.VALUE, **NUMBERS, "best_rank": Kind.WHOLE, "worst_rank": Kind.WHOLE}
    rows = True
    most: Argument

    def about(self, values: Domain) -> int:  # noqa: ARG002  # all have a top
        """Return how many values are asked for."""
        count = python_value(self.most)
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise InvalidParameter("the number of values at the top must be a whole number from 1", "ldp.top(report, m, 10)")
        return count

    @classmethod
    def estimator(cls, source: Source) -> str:
        """Return empirical Bayes for many values: the largest inverted shares are too large, the likeliest ones too small."""
        return estimator_of_top(source)

    @classmethod
    def measured(cls, functional: int, estimates: Estimates) -> Lines:
        """Return the most frequent values of every group."""
        model, together = estimates.likelihood, estimates.together
        votes = model.operator.invert(model.shares) if model.operator.votes else estimates.fit.theta
        groups = zip(estimates.fit.theta, votes, together.std_error, together.low, together.high, strict=True)
        columns = np.array([_top(largest(theta, own, functional), theta, *ends) for theta, own, *ends in groups]).swapaxes(0, 1)
        return Lines.of_numbers(dict(zip(("rank", "value", *NUMBERS, "best_rank", "worst_rank"), columns, strict=True)))


def _top(places: NDArray[np.int64], theta: Floats, std_error: Floats, low: Floats, high: Floats) -> Floats:
    """Return a row for each field of the answer."""
    surely_above = len(theta) - np.searchsorted(np.sort(low), high[places], side="right")
    surely_below = np.searchsorted(np.sort(high), low[places], side="left")
    rank, worst = np.arange(1, len(places) + 1), len(theta) - surely_below
    each = (theta, std_error, low, high)
    return np.stack([rank, places, *(one[places] for one in each), 1 + surely_above, worst])


def largest(theta: Floats, votes: Floats, count: int) -> NDArray[np.int64]:
    """Return the places of the largest shares, the largest first; equal shares by their votes, then by place."""
    if count < len(theta):
        least = np.partition(theta, len(theta) - count)[len(theta) - count]
        among = np.flatnonzero(theta >= least)
    else:
        among = np.arange(len(theta))
    return among[np.lexsort((-votes[among], -theta[among]))[:count]]


@hookimpl
def ldpsql_questions() -> list[type[Question]]:
    """Offer the top."""
    return [Top]
