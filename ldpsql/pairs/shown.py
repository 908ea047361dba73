"""What reports of key-value mechanisms show about every key, before any estimator: unbiased estimates and their errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np

from ldpsql.channels import KeyValue
from ldpsql.errors import InvalidParameter
from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.operators import Floats, PairOperator
from ldpsql.inference.score_intervals import cut, wilson
from ldpsql.mechanisms.base import CertifiedPairs, Mechanism, certify
from ldpsql.mechanisms.key_value import KeyValueMechanism

_REACH = 8.0  # errors of a mean to either side
_NODES = 64
_CLEAR = 0.3  # an error of a mean on [-1, 1]


@dataclass(frozen=True)
class Shown:
    """What the reports show about every key and dummy, each of shape (groups, keys).

    ``share`` is the share of reports that show the key; ``score`` and ``square`` are the means over all reports of the score
    that a report gives to its value, and of the square of the score. The expectations of ``share`` and ``score`` are
    other + lift * drawn and apart * drawn * value: ``drawn`` is the share of users from whom this key was drawn, ``value``
    their mean value on [-1, 1].
    """

    share: Floats
    score: Floats
    square: Floats
    other: float
    lift: float
    apart: float
    typical: float = 1.0  # square of a score

    @property
    def drawn(self) -> Floats:
        """The unbiased estimate of how often each key is drawn."""
        return (self.share - self.other) / self.lift

    @property
    def total(self) -> Floats:
        """The unbiased estimate of the sum of its values, over all users."""
        return self.score / self.apart

    def drawn_error(self, n: Floats, drawn: Floats) -> Floats:
        """Return the standard error of the unbiased estimate, if each key is drawn this often."""
        expected = np.clip(self.other + self.lift * drawn, 0.0, 1.0)
        return np.sqrt(expected * (1.0 - expected) / n) / self.lift

    def drawn_interval(self, n: Floats, z: float) -> tuple[Floats, Floats]:
        """Return Wilson's interval of the share, inverted."""
        low, high = ((end - self.other) / self.lift for end in wilson(self.share, n, z))
        return low, high

    def moments(self, n: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the variances of ``drawn`` and ``total`` and their covariance.

        As if two more reports had shown the key, one with each sign: so few reports that agree do not seem certain.
        Source: Agresti, Coull, "Approximate is better than exact for interval estimation of binomial proportions", 1998.
        """
        share, square = np.minimum(self.share + 2 / n, 1.0), self.square + 2 * self.typical / n
        drawn = share * (1.0 - share) / n / self.lift**2
        total = (square - self.score**2) / n / self.apart**2
        both = self.score * (1.0 - share) / n / (self.lift * self.apart)
        return drawn, total, both

    def mean_error(self, n: Floats, drawn: Floats, mean: Floats) -> Floats:
        """Return the standard error of the mean, by the delta method; infinite if the key seems never to be drawn."""
        of_drawn, of_total, both = self.moments(n)
        variance = of_total - 2 * mean * both + mean**2 * of_drawn
        error = np.sqrt(np.maximum(variance, 0.0))
        return np.divide(error, drawn, out=np.full_like(error, np.inf), where=drawn > 0)

    @property
    def mean(self) -> Floats:
        """The unbiased sum over the unbiased frequency, cut to [-1, 1]; 0 if the key seems never to be drawn."""
        ratio = np.divide(self.total, self.drawn, out=np.zeros_like(self.total), where=self.drawn > 0)
        return np.clip(ratio, -1.0, 1.0)

    def likely_mean(self, n: Floats) -> Floats:
        """Return `mean` if its error is small, otherwise its posterior expectation under a uniform prior.

        The weight of a mean m is the likelihood of total - m drawn, Fieller's as in `mean_interval`. If the noise is larger
        than the value, the expectation is near the middle of the range, and `mean` is anywhere.
        """
        of_drawn, of_total, both = self.moments(n)
        error = self.mean_error(n, self.drawn, self.mean)
        low, high = np.maximum(self.mean - _REACH * error, -1.0), np.minimum(self.mean + _REACH * error, 1.0)
        means = [low + (high - low) * (node + 0.5) / _NODES for node in range(_NODES)]

        def surprise(m: Floats) -> Floats:
            return (self.total - m * self.drawn) ** 2 / (of_total - 2 * m * both + m**2 * of_drawn) / 2

        least = np.minimum.reduce([surprise(m) for m in means])
        weights, sums = np.zeros_like(low), np.zeros_like(low)
        for m in means:
            weight = np.exp(least - surprise(m))
            weights, sums = weights + weight, sums + weight * m
        return np.where(error < _CLEAR, self.mean, sums / weights)

    def mean_interval(self, n: Floats, z: float) -> tuple[Floats, Floats]:
        """Return the means m for which total - m drawn is within z errors of 0, cut to [-1, 1]; all if none is ruled out.

        Source: Fieller, "Some problems in interval estimation", JRSS B 1954.
        """
        of_drawn, of_total, both = self.moments(n)
        a = self.drawn**2 - z**2 * of_drawn
        b = self.drawn * self.total - z**2 * both
        c = self.total**2 - z**2 * of_total
        bounded = (a > 0) & (self.drawn > 0)
        root = np.sqrt(np.maximum(b**2 - a * c, 0.0))
        scale = np.where(bounded, a, 1.0)
        low, high = np.where(bounded, (b - root) / scale, -1.0), np.where(bounded, (b + root) / scale, 1.0)
        return cut(low, high, (high - low) / 2, -1.0, 1.0)


def shown(mechanism: KeyValueMechanism, likelihood: Likelihood) -> Shown:
    """Return what the reports of each group show about every key."""
    channel, scores = channel_of(mechanism), mechanism.scores()
    symbols = cast("PairOperator", likelihood.operator).shown(likelihood.shares)
    by_key = symbols.reshape(len(symbols), -1, len(scores))
    share, score, square = (by_key @ scores**power for power in range(3))
    law = channel.response.key_law()
    return Shown(share, score, square, float(law.other), float(law.lift), float(law.apart), float((scores**2).mean()))


def over_pairs(mechanism: Mechanism) -> KeyValueMechanism:
    """Return the mechanism, which must be a key-value mechanism.

    Raises:
        InvalidParameter: if it is another one.

    """
    certified = certify(mechanism)
    if not isinstance(certified, CertifiedPairs) or not isinstance(mechanism, KeyValueMechanism):
        raise InvalidParameter(f"{mechanism.name} does not perturb sets of key-value pairs", certified.remedy)
    return mechanism


def channel_of(mechanism: KeyValueMechanism) -> KeyValue:
    """Return the certified channel of a key-value mechanism."""
    return cast("KeyValue", certify(mechanism).channel)
