"""Shrinking along directions, for channels without votes, against the estimate of each group alone."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from hashlib import blake2b
from typing import TypeAlias

import numpy as np

from ldpsql.caches import ByteCache
from ldpsql.estimators.resampling import gained, split
from ldpsql.estimators.sharing.directions import Coefficients, among_others, probable
from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.operators import Floats

FOLDS, UNCLEAR = 3, 0.5  # standard errors of a gain in predicting held-out reports that do not count
Alone: TypeAlias = Callable[[Likelihood], Floats]  # estimates groups alone
Errors: TypeAlias = tuple[Floats, Floats, Floats]
Moments: TypeAlias = tuple[Floats, Floats]  # the shares of all groups together, and their standard errors
LEVEL = 0.975
SHAPES = (0.0, 1.0, 2.0, 3.0, 4.0)  # of the mean: powers by which its coefficients around equal shares may fall
_PERSON = 0.25  # by which ends move outwards, because shares are whole numbers of people
_NARROW = 1.0 / 3.0  # least ratio of a share to its error, for its distribution
_LEAST = 1e-12
_scores: ByteCache[tuple[Hashable, bytes], Floats] = ByteCache(16 << 20)


def scores(likelihood: Likelihood, mean: Floats, alone: Alone) -> Floats:
    """Return ln of how likely the reports of each group are in each class, (groups, classes), up to a term of the group.

    They take long, and a prior is learned from the same ones that each group is estimated with: they are kept by group.
    """
    channel = (alone, likelihood.operator.key, likelihood.layout, mean.tobytes())
    keys = [(channel, blake2b(counts.tobytes(), digest_size=16).digest()) for counts in likelihood.counts]
    kept = {key: score for key in keys if (score := _scores.get(key)) is not None}
    rows = [row for row, key in enumerate(keys) if key not in kept]
    if rows:
        for row, score in zip(rows, _computed(likelihood.with_counts(likelihood.counts[rows]), mean, alone), strict=True):
            kept[keys[row]] = score.copy()
            _scores.put(keys[row], kept[keys[row]])
    return np.array([kept[key] for key in keys])


def _computed(likelihood: Likelihood, mean: Floats, alone: Alone) -> Floats:
    """Return the scores of all groups; the estimate alone has that of the others, plus its clear gain on held-out reports."""
    own = Coefficients.of(likelihood, mean)
    others = own.evidence(own.classes())
    logs = np.column_stack([(probable(others) * others).sum(axis=1), others])
    parts = split(likelihood, FOLDS)
    if not len(parts.group):
        return logs
    own = Coefficients.of(parts.learnt, mean)
    shrunk = own.posterior(probable(own.evidence(own.classes())))[0]
    before, after = (parts.learnt.operator.forward(theta) for theta in (shrunk, alone(parts.learnt)))
    gain, error = gained(parts, before, after)
    logs[:, 0] += gain - UNCLEAR * error
    return logs


def error_of_mean(pooled: Likelihood, mean: Floats) -> Floats:
    """Return the standard errors of the shares of all groups together, whose reports are those of one group.

    How rough they may be is learned from where reports show it: from their coefficients around equal shares.
    """
    own = Coefficients.of(pooled, np.full_like(mean, 1.0 / len(mean)))
    spread = own.kept(own.populations(SHAPES), probable(own.evidence(own.populations(SHAPES))))[1][0]
    return np.sqrt(mean * (own.directions.vectors**2 @ spread))


def by_direction(likelihood: Likelihood, mean: Moments, classes: Floats, alone: Alone) -> tuple[Floats, Errors]:
    """Return the estimates of all groups, and standard errors, low and high ends of 95 % of their shares.

    What the reports of all groups together do not show of their shares, those of one group do not show either: that error adds.
    """
    shrunk, variance = Coefficients.of(likelihood, mean[0]).posterior(among_others(classes))
    single, own = classes[:, :1], alone(likelihood)
    theta = single * own + (1.0 - single) * shrunk
    error = np.sqrt(variance + single * (1.0 - single) * (own - shrunk) ** 2 + mean[1] ** 2)
    return theta, (error, *ends(theta, error, likelihood.n[:, None]))


def ends(theta: Floats, error: Floats, n: Floats) -> tuple[Floats, Floats]:
    """Return the ends of 95 % of shares of n people, which are Gamma with these means and standard errors."""
    from scipy.special import gammaincinv  # noqa: PLC0415  # slow to import

    middle = np.maximum(theta, _NARROW * error)
    shape, scale = (middle / np.maximum(error, _LEAST)) ** 2, error**2 / np.maximum(middle, _LEAST)
    person = _PERSON / np.maximum(n, 1.0)
    low, high = (scale * gammaincinv(shape, level) for level in (1.0 - LEVEL, LEVEL))
    return np.maximum(np.minimum(low, theta) - person, 0.0), np.minimum(np.maximum(high, theta) + person, 1.0)
