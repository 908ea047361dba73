"""Ratios that learn from each other, such as the means of keys: each is shrunk to the others, as far as they are alike.

Fay, Herriot, "Estimates of income for small places", JASA 1979, with the likelihood of a ratio in the place of a normal one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from ldpsql.inference.operators import Floats

_REACH = 8.0  # errors of a ratio to either side
_NODES = 64
_GRID = np.linspace(-1.0, 1.0, 129)
_SPREADS = (0.02, 0.04, 0.08, 0.15, 0.25, 0.4, 0.7, 2.0)
_LEAST_SPREAD = 0.2  # of the numbers below, as a part of their mean
_CLEAR, _UNKNOWN = 2.0, 1e6  # errors of the mean from 0, and the variance if it is less
_LEAST = 1e-300


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
        evidence = np.log(np.maximum(np.exp(logs - logs.max(axis=1, keepdims=True)) @ _normals(), _LEAST)).sum(axis=0)
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
        return np.asarray((weights * nodes).sum(axis=1) / np.maximum(weights.sum(axis=1), _LEAST))


@cache
def _normals() -> Floats:
    """Return normal distributions over `_GRID`, cut to it, one a column, with every middle and spread."""
    middle, spread = (axis.ravel() for axis in np.meshgrid(_GRID[::4], _SPREADS))
    density = np.exp(-(((_GRID[:, None] - middle) / spread) ** 2) / 2.0)
    return np.asarray(density / density.sum(axis=0))
