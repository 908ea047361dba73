"""Proof by whole numbers that noise on the plane keeps an epsilon for each unit of Euclidean distance.

With W(n) the weight of a point at squared distance n from the centre of the value's cell, that is

    W(n) <= e^(epsilon max(1, sqrt(m) - sqrt(n))) W(m)    for all n < m,  with distances in cells.

`channels/PROOFS.md` says why.

Doubles accept pairs that are farther from the limit than they can err, and whole numbers decide about the others.
"""

from __future__ import annotations

from fractions import Fraction
from math import inf

import numpy as np

from ldpsql.channels import PlanarNoise, Weights
from ldpsql.channels.exact import exp_below
from ldpsql.privacy.claims import root_below

_DOUBT = 1e-12  # logarithms up to 45 and exponents as large err by less than 1e-13
_MOST_DECIDED = 4096  # pairs that whole numbers decide about; with more, the claim counts as exceeded
_ROOT_ERROR = Fraction(1, 10**29)


def kept_by(channel: PlanarNoise, exponent: Fraction) -> float | None:
    """Return the smallest exponent per cell that the noise keeps, to double precision; None if it is above ``exponent``."""
    weights = np.append(channel.falling, np.uint64(0)) + np.uint64(channel.spread)  # the last one holds from there on
    noise = _Noise(weights, channel.points)
    if not (noise.near_keep(exponent) and noise.far_keep(exponent)):
        return None
    return min(noise.steepest(), float(exponent))


class _Noise:
    """The weights W(n), with the pairs that are compared."""

    def __init__(self, weights: Weights, points: int) -> None:
        self._weights, self._points = weights, points
        self._logs, squares = np.log(weights.astype(np.float64)), np.arange(len(weights), dtype=np.int64)
        self._distances = np.sqrt(squares) / points
        # sqrt(m) = sqrt(n) + points, solved for m and for n; roots of whole numbers below 2**52 round to the right side.
        bend = np.sqrt((4 * points**2 * squares).astype(np.float64))
        self._ahead = np.minimum(squares + points**2 + np.floor(bend).astype(np.int64), len(weights) - 1)
        far = squares[points**2 :]
        self._behind = far + points**2 - np.ceil(bend[points**2 :]).astype(np.int64)
        self._far = points**2

    def near_keep(self, exponent: Fraction) -> bool:
        """Return whether pairs at most one cell apart keep the exponent."""
        doubtful = np.flatnonzero(self._logs - self._logs[self._ahead] > float(exponent) - _DOUBT)
        limit, pairs = exp_below(exponent), {(int(self._weights[n]), int(self._weights[self._ahead[n]])) for n in doubtful}
        return all(high * limit.denominator <= limit.numerator * low for high, low in pairs)

    def far_keep(self, exponent: Fraction) -> bool:
        """Return whether pairs more than one cell apart keep the exponent for each cell."""
        tilted = self._logs + float(exponent) * self._distances
        highest = np.maximum.accumulate(tilted)
        left = _MOST_DECIDED
        for at in np.flatnonzero(highest[self._behind] > tilted[self._far :] - _DOUBT):
            m = int(at) + self._far
            for n in np.flatnonzero(tilted[: self._behind[at] + 1] > tilted[m] - _DOUBT):
                left -= 1
                if left < 0 or not self._keeps(int(n), m, exponent):
                    return False
        return True

    def _keeps(self, n: int, m: int, exponent: Fraction) -> bool:
        """Return whether one pair keeps the exponent: the distance is rounded down."""
        apart = max(Fraction(0), root_below(m) - root_below(n) - _ROOT_ERROR) / self._points
        limit = exp_below(exponent * apart)
        return int(self._weights[n]) * limit.denominator <= limit.numerator * int(self._weights[m])

    def steepest(self) -> float:
        """Return the largest logarithm of a ratio for each cell of distance: each round raises it to that of some pair."""
        steepest = float((self._logs - self._logs[self._ahead]).max())
        while True:
            tilted = self._logs + steepest * self._distances
            highest = np.maximum.accumulate(tilted)[self._behind] - tilted[self._far :]
            if not len(highest) or highest.max() <= _DOUBT:
                return steepest
            at = int(highest.argmax())
            m, n = at + self._far, int(tilted[: self._behind[at] + 1].argmax())
            steeper = float((self._logs[n] - self._logs[m]) / (self._distances[m] - self._distances[n]))
            if not steepest < steeper < inf:
                return steepest
            steepest = steeper
