"""Shrinking by pseudo-reports, for channels without votes: EM under a Dirichlet prior of several concentrations.

With the concentration a, each EM step adds a reports that are distributed like the mean of all groups. Held-out
reports choose a.
"""

from __future__ import annotations

import numpy as np

from ldpsql.estimators.resampling import split
from ldpsql.estimators.sharing.dispersion import CLASSES, CONCENTRATIONS
from ldpsql.inference.deadline import check
from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.operators import Floats

FOLDS, STEPS = 3, 50
USED = np.arange(0, len(CONCENTRATIONS), 2)  # classes; the last one, beside them, is the mean itself
POOLED = len(CONCENTRATIONS)
AT_ONCE = 1 << 22  # cells in memory


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
    return np.asarray(theta / theta.sum(axis=1, keepdims=True))


def by_class(likelihood: Likelihood, mean: Floats, classes: Floats) -> Floats:
    """Return the mean of the shrunk shares over the probabilities of the classes of every group."""
    theta = classes[:, POOLED:].sum(axis=1)[:, None] * mean
    for one in USED:
        theta = theta + classes[:, one, None] * shrunk(likelihood, mean, CONCENTRATIONS[one])
    total = theta.sum(axis=1, keepdims=True)
    return np.asarray(theta / total)


def pseudo_share(n: Floats, classes: Floats) -> Floats:
    """Return which part of all reports of each group, of which there are n, are pseudo-reports."""
    added = np.append(CONCENTRATIONS, np.full(CLASSES - POOLED, np.inf))
    return np.asarray((classes / (1.0 + n[:, None] / added)).sum(axis=1))


def scores(likelihood: Likelihood, mean: Floats) -> Floats:
    """Return the log-likelihood of held-out reports in each class, (groups, classes); -inf for classes that are not used."""
    parts = split(likelihood, FOLDS)
    out = np.full((parts.groups, CLASSES), -np.inf)
    for one in (*USED, POOLED):
        theta = np.tile(mean, (len(parts.group), 1)) if one == POOLED else shrunk(parts.learnt, mean, CONCENTRATIONS[one])
        out[:, one] = parts.totals(parts.held_out.log_likelihood(theta))
    return out
