"""Shrinking by pseudo-reports, for channels without votes that are too large for directions: EM under Dirichlet priors.

With the concentration a, each EM step adds a reports that are distributed like the mean of all groups. If values have
neighbours, the ratio to that mean is then smoothed: what groups share may be rough, how they differ from it is not seen that
finely. Held-out reports choose among these, the estimate of each group alone, and the mean itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np

from ldpsql.estimators.base import smoothed, split
from ldpsql.estimators.sharing.cells import CLASSES, CONCENTRATIONS
from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.limits import check
from ldpsql.inference.operators import Floats

FOLDS, STEPS = 3, 50
ALONE, POOLED = 0, len(CONCENTRATIONS)  # classes: the estimate of each group alone, and the mean itself
USED = np.arange(2, POOLED, 2)  # those between them
AT_ONCE = 1 << 22  # cells in memory
Alone: TypeAlias = Callable[[Likelihood], Floats]  # estimates groups alone


def shrunk(likelihood: Likelihood, mean: Floats, concentration: float) -> Floats:
    """Return the shares of every group after `STEPS` EM steps from the mean, with pseudo-reports."""
    theta = np.tile(mean, (len(likelihood.n), 1))
    own = (likelihood.n / (likelihood.n + concentration))[:, None]
    step = max(1, AT_ONCE // max(1, likelihood.operator.outputs))
    for start in range(0, len(theta), step):
        rows = slice(start, start + step)
        part = likelihood.with_counts(likelihood.counts[rows])
        for _ in range(STEPS):
            check()
            theta[rows] = own[rows] * theta[rows] * part.gradient(theta[rows]) + (1.0 - own[rows]) * mean
            theta[rows] = mean * smoothed(theta[rows] / mean, part.layout)
    return np.asarray(theta / theta.sum(axis=1, keepdims=True))


def by_class(likelihood: Likelihood, mean: Floats, classes: Floats, alone: Alone) -> Floats:
    """Return the mean of the estimates in each class over the probabilities of the classes of every group."""
    theta = sum((classes[:, one, None] * shares for one, shares in _candidates(likelihood, mean, alone)), np.zeros(1))
    return np.asarray(theta / theta.sum(axis=1, keepdims=True))


def _candidates(likelihood: Likelihood, mean: Floats, alone: Alone) -> Iterator[tuple[int, Floats]]:
    """Yield each class that is used, and the estimate of every group in it."""
    yield ALONE, alone(likelihood)
    yield from ((int(one), shrunk(likelihood, mean, CONCENTRATIONS[one])) for one in USED)
    yield POOLED, np.tile(mean, (len(likelihood.n), 1))


def pseudo_share(n: Floats, classes: Floats) -> Floats:
    """Return which part of all reports of each group, of which there are n, are pseudo-reports."""
    added = np.append(CONCENTRATIONS, np.full(CLASSES - POOLED, np.inf))
    return np.asarray((classes / (1.0 + n[:, None] / added)).sum(axis=1))


def scores(likelihood: Likelihood, mean: Floats, alone: Alone) -> Floats:
    """Return the log-likelihood of held-out reports in each class, (groups, classes); -inf for classes that are not used."""
    parts = split(likelihood, FOLDS)
    out = np.full((parts.groups, CLASSES), -np.inf)
    for one, theta in _candidates(parts.learnt, mean, alone) if len(parts.group) else ():
        out[:, one] = parts.totals(np.nan_to_num(parts.held_out.log_likelihood(theta), nan=-1e6))
    out[:, POOLED] = np.where(np.isin(np.arange(parts.groups), parts.group), out[:, POOLED], 0.0)
    return out
