"""Neighbours: groups in order, such as days, that are the more alike the nearer they are.

Groups are cut into runs of neighbours. The mean that the groups of a run are shrunk towards is that of the runs around it,
without the run itself: what the reports of a group say is then used once. How far around is what best predicts the votes of
each group, and if neighbours do not clearly predict better than all other groups do, all keep the common mean. After Rao, Yu,
"Small-area estimation by combining time-series and cross-sectional data", Canadian Journal of Statistics 1994.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ldpsql.estimators.sharing.cells import Votes
from ldpsql.estimators.sharing.prior import Prior, averaged, class_weights, credible, evidence, floored, medians, probabilities
from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.operators import Floats

RUNS, CELLS = 64, 2_000  # runs, and runs times values: each run takes a few milliseconds a value
REACHES = (1.0, 2.0, 4.0, 8.0, 16.0)  # runs over which the weight of neighbours falls by e
CLEAR, LEAST = 2.0, 4.0  # standard errors, and units of log-likelihood, that neighbours have to gain
HALF = 0.5  # of a prediction comes from neighbours: few reports of them cannot spoil it
_TINY = 1e-12

Runs = NDArray[np.int64]


def with_neighbours(prior: Prior, parts: Sequence[Likelihood]) -> tuple[Runs, list[Prior]] | None:
    """Return the run of each group, and the prior of each run; None if neighbours do not help, or reports are no votes."""
    if not parts or any(part.operator.votes is None for part in parts):
        return None
    votes = Votes.joined([Votes.of(part) for part in parts])
    runs = runs_of(votes.n, votes.numbers.shape[1])
    kernel = kernel_of(votes, runs)
    if kernel is None:
        return None
    means, errors = centres(around(votes, runs, kernel), prior)
    logs = np.concatenate([evidence(votes.chosen(runs == run), mean) for run, mean in enumerate(means)])
    weights = class_weights(logs)
    wide = averaged(logs, weights)
    each = zip(means, errors, strict=True)
    return runs, [Prior(*(tuple(one.tolist()) for one in (mean, error, weights, wide))) for mean, error in each]


def runs_of(n: Floats, values: int) -> Runs:
    """Return the number of the run of each group; runs have about as many reports each."""
    most = min(RUNS, max(1, CELLS // values))
    if len(n) <= most:
        return np.arange(len(n))
    middle = np.cumsum(n) - n / 2.0
    return np.unique((middle * (most / n.sum())).astype(np.int64), return_inverse=True)[1]


def kernel_of(votes: Votes, runs: Runs) -> Floats | None:
    """Return the weights of other runs in the prediction of each, (runs, runs); None if all runs predict as well."""
    apart = np.abs(np.subtract.outer(np.arange(runs[-1] + 1), np.arange(runs[-1] + 1)))
    others = (apart > 0).astype(np.float64)
    if len(others) < 3:
        return None
    pooled = predicted(votes, runs, others)
    best, most = None, 0.0
    for reach in REACHES:
        kernel = others * np.exp((1 - apart) / reach)
        gain = log_likelihood(votes, HALF * pooled + HALF * predicted(votes, runs, kernel)) - log_likelihood(votes, pooled)
        error = float(np.sqrt(np.square(gain - gain.mean()).sum()))
        if gain.sum() > max(most, CLEAR * error, LEAST):
            best, most = kernel, float(gain.sum())
    return best


def around(votes: Votes, runs: Runs, kernel: Floats) -> Votes:
    """Return the votes of the runs around each run."""
    numbers = np.zeros((len(kernel), votes.numbers.shape[1]))
    np.add.at(numbers, runs, votes.numbers)
    n = np.bincount(runs, weights=votes.n)
    return Votes(np.rint(kernel @ numbers), np.rint(kernel @ n), votes.low, votes.high)


def predicted(votes: Votes, runs: Runs, kernel: Floats) -> Floats:
    """Return the share of votes for each value that the runs around that of a group have, (groups, values)."""
    near = around(votes, runs, kernel)
    return (near.numbers / np.maximum(near.n, 1.0)[:, None])[runs]


def log_likelihood(votes: Votes, shares: Floats) -> Floats:
    """Return the log-likelihood of the votes of each group."""
    yes, no = (np.log(np.maximum(chance, _TINY)) for chance in (shares, 1.0 - shares))
    return np.asarray((votes.numbers * yes + (votes.n[:, None] - votes.numbers) * no).sum(axis=1))


def centres(near: Votes, prior: Prior) -> tuple[Floats, Floats]:
    """Return the shares of the runs around each run, shrunk towards those of all groups, and their standard errors."""
    mean = np.array(prior.mean)
    logs = evidence(near, mean)
    weights = class_weights(logs)
    classes = probabilities(logs, weights)
    added = prior.borrowed_votes(near, classes)[:, None] * np.array(prior.error)
    return floored(medians(near, mean, weights, classes)), credible(near, mean, classes, added)[0]
