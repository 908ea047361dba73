"""Means and ratios that learn from those of other groups, or of other keys, as far as these are alike.

Classes of dispersion treat all values alike. So if all numbers of a group are larger than those of others, each of its rare
values is drawn to the common shares, and its mean too far.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import fsum, sqrt
from typing import TypeAlias

import numpy as np

from ldpsql.estimators.base import split
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


# Ratios that learn from each other, such as the means of keys: each is shrunk to the others, as far as they are alike.
#
# Fay, Herriot, "Estimates of income for small places", JASA 1979, with the likelihood of a ratio in the place of a normal
# one.

_REACH = 8.0  # errors of a ratio to either side
_NODES = 64
_GRID = np.linspace(-1.0, 1.0, 129)
_SPREADS = (0.02, 0.04, 0.08, 0.15, 0.25, 0.4, 0.7, 2.0)
_LEAST_SPREAD = 0.2  # of the numbers below, as a part of their mean
_CLEAR, _UNKNOWN = 2.0, 1e6  # errors of the mean from 0, and the variance if it is less
_TINY = 1e-300


@dataclass(frozen=True)
class Ratios:
    """Ratios in [-1, 1]: unbiased numbers ``above`` and ``below``, their variances and covariances, each of shape (ratios,)."""

    above: Floats
    below: Floats
    of_above: Floats
    of_below: Floats
    both: Floats

    def log_likelihood(self, ratio: Floats, step: float = 0.0) -> Floats:
        """Return the logarithm of the likelihood of values of each ratio, shape (ratios, values), up to a constant.

        The numbers below are as if drawn from a normal distribution, whose mean and variance are those of all of them without
        their noise. If it is wide, the likelihood is that of above - ratio * below, whose expectation is 0: Fieller, "Some
        problems in interval estimation", JRSS B 1954. ``step`` is the distance between the values of a grid, over which
        narrower likelihoods are spread.
        """
        middle = max(float(self.below.mean()), 0.0)
        wide = max(float(((self.below - middle) ** 2 - self.of_below).mean()), (_LEAST_SPREAD * middle) ** 2)
        if middle**2 < _CLEAR**2 * float(self.of_below.mean()) / len(self.below):  # even their sum may be 0
            wide = _UNKNOWN
        above, below, of_above, of_below, both = (part[:, None] for part in vars(self).values())
        first, second = above - ratio * middle, below - middle
        a, d = of_above + ratio**2 * wide + (step * below) ** 2 / 4.0, of_below + wide
        b = both + ratio * wide
        determinant = a * d - b**2
        return -((first**2 * d - 2.0 * first * second * b + second**2 * a) / determinant + np.log(determinant)) / 2.0

    def prior(self) -> Floats:
        """Return the distribution over `_GRID` from which the ratios seem to be drawn.

        It is normal, cut to [-1, 1]. Its middle and its spread are not known: all are averaged, each weighted by how likely it
        makes all ratios.
        """
        logs = self.log_likelihood(_GRID, _GRID[1] - _GRID[0])
        evidence = np.log(np.maximum(np.exp(logs - logs.max(axis=1, keepdims=True)) @ _normals(), _TINY)).sum(axis=0)
        weights = np.exp(evidence - evidence.max())
        return np.asarray(_normals() @ weights / weights.sum())

    def shrunk(self) -> Floats:
        """Return the posterior expectation of each ratio under `prior`: of one with much noise about the mean of the others."""
        plain = np.divide(self.above, self.below, out=np.zeros_like(self.above), where=self.below > 0)
        plain = np.clip(plain, -1.0, 1.0)
        variance = np.maximum(self.of_above - 2.0 * plain * self.both + plain**2 * self.of_below, 0.0)
        error = np.divide(np.sqrt(variance), self.below, out=np.full_like(plain, np.inf), where=self.below > 0)
        low, high = np.maximum(plain - _REACH * error, -1.0), np.minimum(plain + _REACH * error, 1.0)
        nodes = low[:, None] + (high - low)[:, None] * (np.arange(_NODES) + 0.5) / _NODES
        logs = self.log_likelihood(nodes)
        weights = np.exp(logs - logs.max(axis=1, keepdims=True)) * np.interp(nodes, _GRID, self.prior())
        return np.asarray((weights * nodes).sum(axis=1) / np.maximum(weights.sum(axis=1), _TINY))


@cache
def _normals() -> Floats:
    """Return normal distributions over `_GRID`, cut to it, one a column, with every middle and spread."""
    middle, spread = (axis.ravel() for axis in np.meshgrid(_GRID[::4], _SPREADS))
    density = np.exp(-(((_GRID[:, None] - middle) / spread) ** 2) / 2.0)
    return np.asarray(density / density.sum(axis=0))
