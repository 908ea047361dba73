"""Means of groups of numbers: how far each is that of its own group, and shares that are moved to it.

Classes of dispersion treat all values alike. So if all numbers of a group are larger than those of others, each of its rare
values is drawn to the common shares, and its mean too far.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import fsum, sqrt
from typing import TypeAlias

import numpy as np

from ldpsql.estimators.resampling import split
from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.operators import Floats
from ldpsql.inference.operators.base import MAX_CONDITION
from ldpsql.inference.outcome import simplex_projection

Fitted: TypeAlias = Callable[[Likelihood], Floats]  # the shares of groups

FOLDS = 3
CLEAR = 1.0  # standard errors
_LEAST = 1e-9  # of all, so that no value is ruled out
_FARTHEST, _HALVINGS = 200.0, 40  # the largest slope of the logarithm of a share over the range, and steps to find one


def of_numbers(likelihood: Likelihood) -> bool:
    """Return whether values are in order, and all groups vote for them through one channel, which can be inverted."""
    operator = likelihood.operator
    votes = operator.votes is not None and operator.complete
    return len(likelihood.layout) == 1 and votes and operator.condition <= MAX_CONDITION


def own_part(parts: Sequence[Likelihood], shared: Fitted) -> float:
    """Return how far the means of groups are those of each group alone, from 0 to 1; 0 if that is not clear.

    It is what predicts the unbiased means of held-out reports best, in least squares over all groups.
    Source: Breiman, "Stacked regressions", Machine Learning 1996.
    """
    ahead, apart = np.concatenate([_predicted(part, shared) for part in parts], axis=1)
    both, square = fsum(ahead * apart), fsum(apart**2)
    if not square > 0:
        return 0.0
    part = min(max(both / square, 0.0), 1.0)
    error = sqrt(fsum(((ahead - part * apart) * apart) ** 2)) / square
    return part if part > CLEAR * error else 0.0


def _predicted(likelihood: Likelihood, shared: Fitted) -> Floats:
    """Return by how much the held-out means, and those of each group alone, exceed the shared means, shape (2, folds).

    All are multiplied by the root of the number of reports that are held out.
    """
    folds, x = split(likelihood, FOLDS), places(likelihood.operator.inputs)
    folds = folds.of_rows(folds.held_out.n > 0)
    if not len(folds.group):
        return np.zeros((2, 0))
    means = np.stack([likelihood.operator.invert(folds.held_out.shares), _alone(folds.learnt)]) @ x
    return np.asarray((means - shared(folds.learnt) @ x) * np.sqrt(folds.held_out.n))


def moved(likelihood: Likelihood, theta: Floats, part: float) -> Floats:
    """Return the shares ``theta`` of groups with means that are by this part those of each group alone.

    Their logarithms change in proportion to the place of the value.
    """
    x = places(likelihood.operator.inputs) - 0.5
    wanted = ((1.0 - part) * theta + part * _alone(likelihood)) @ x
    logs = np.log(np.maximum(theta, _LEAST))
    low, high = np.full((2, len(theta)), [[-_FARTHEST], [_FARTHEST]])
    for _ in range(_HALVINGS):
        slope = (low + high) / 2.0
        tilted = logs + slope[:, None] * x
        shares = np.exp(tilted - tilted.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        below = shares @ x < wanted
        low, high = np.where(below, slope, low), np.where(below, high, slope)
    return shares


def _alone(likelihood: Likelihood) -> Floats:
    """Return the shares of each group by its own reports: the inverted ones, projected on the simplex."""
    return simplex_projection(likelihood.operator.invert(likelihood.shares))


def places(values: int) -> Floats:
    """Return the places of values in order, from 0 to 1."""
    return np.linspace(0.0, 1.0, values)
