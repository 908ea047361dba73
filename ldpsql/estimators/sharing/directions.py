"""Directions in which the shares of groups differ from their mean, and shrinking along them: for channels without votes.

A direction is an eigenvector of the Fisher information of a report, on the scale (share - mean) / sqrt(mean). Reports of n
people determine the coefficient of their shares in it up to noise of variance (1/l - 1) / n, where l is the eigenvalue; if
values have neighbours, l is larger the smoother the direction is. Coefficients of populations are normal with a variance that
falls with a power of the rank of the direction, and those of the people who reported vary around them by 1/n. After Fay,
Herriot, "Estimates of income for small places", JASA 1979; Efron, "Empirical Bayes deconvolution estimates", Biometrika 2016.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TypeAlias

import numpy as np

from ldpsql.caches import ByteCache
from ldpsql.estimators.base import gained, split
from ldpsql.estimators.sharing.cells import CLASSES, by_rows
from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.operators import Floats, Operator

MOST_VALUES, MOST_CELLS = 2_000, 8_000_000  # of the domain, and of the table of the channel: eigenvectors take a second or two
# Of populations: variances in the first direction, and the powers by which they fall. Class 0 is another estimate altogether;
# in class 1 groups are samples of one population, and in the last one their people have the common shares exactly.
SIZES, POWERS = np.geomspace(0.002, 8.0, 7), (1.0, 2.0)
_LEAST, _MOST = 1e-12, 1.0 - 1e-9  # of an eigenvalue
_ALIKE = 1e-6  # eigenvalues that differ by less have one rank, because the order of their directions is arbitrary
_directions: ByteCache[tuple[bytes, bytes], Directions] = ByteCache(64 << 20)


@dataclass(frozen=True)
class Directions:
    """Eigenvectors, shape (values, directions), how well reports determine each of them, and their ranks from 1 on."""

    vectors: Floats
    seen: Floats
    ranks: Floats

    @classmethod
    def of(cls, operator: Operator, mean: Floats) -> Directions:
        """Return the directions of a channel around a mean."""
        key = (operator.key, mean.tobytes())
        return _directions.remembered(key, lambda _: cls._computed(operator, mean))

    @classmethod
    def _computed(cls, operator: Operator, mean: Floats) -> Directions:
        expected, root = operator.forward(mean), np.sqrt(mean)
        weights = np.divide(1.0, expected, out=np.zeros_like(expected), where=expected > 0)
        seen, vectors = np.linalg.eigh(operator.curvature(weights) * root[:, None] * root)
        seen, vectors = seen[::-1][1:], vectors[:, ::-1][:, 1:]  # the first one is the mean itself
        return cls(np.ascontiguousarray(vectors), np.clip(seen, _LEAST, _MOST), ranks(seen))


def ranks(seen: Floats) -> Floats:
    """Return the ranks of falling numbers, from 1 on; numbers that are alike have the mean of their ranks."""
    of = np.cumsum(np.append(0, -np.diff(seen) > _ALIKE))
    numbers = np.arange(1.0, len(seen) + 1.0)
    return np.asarray((np.bincount(of, numbers) / np.bincount(of))[of])


def directed(likelihood: Likelihood) -> bool:
    """Whether groups are shrunk along directions: the channel has no votes, and directions take a second or two."""
    op = likelihood.operator
    return op.votes is None and op.complete and 1 < op.inputs <= MOST_VALUES and op.inputs * op.outputs <= MOST_CELLS


@dataclass(frozen=True)
class Coefficients:
    """The unbiased coefficient of each group in each direction, (groups, directions), with the variance of its noise."""

    directions: Directions
    mean: Floats
    n: Floats  # (groups, 1)
    numbers: Floats
    noise: Floats

    @classmethod
    def of(cls, likelihood: Likelihood, mean: Floats) -> Coefficients:
        """Return the coefficients of the reports of every group."""
        directions, n = Directions.of(likelihood.operator, mean), np.maximum(likelihood.n, _LEAST)[:, None]
        rise = likelihood.gradient(mean[None]) * np.sqrt(mean)
        numbers = by_rows(rise, directions.vectors) / directions.seen
        return cls(directions, mean, n, numbers, (1.0 / directions.seen - 1.0) / n)

    def classes(self) -> Iterator[Floats]:
        """Yield for each class but the first the variances of the coefficients of its groups' people around the mean."""
        one = np.zeros_like(self.numbers)
        yield one + 1.0 / self.n
        yield from (variance + 1.0 / self.n for variance in self.populations(POWERS))
        yield one

    def populations(self, powers: Sequence[float]) -> Iterator[Floats]:
        """Yield variances of coefficients of populations that fall with these powers of the rank."""
        yield from (size * self.directions.ranks**-power for power in powers for size in SIZES)

    def evidence(self, variances: Iterable[Floats]) -> Floats:
        """Return ln of how likely the reports of each group are with each variance, (groups, variances), up to a term."""
        spreads = (variance + self.noise for variance in variances)
        return np.stack([-0.5 * (np.log(one * self.n) + self.numbers**2 / one).sum(axis=1) for one in spreads], axis=1)

    def kept(self, variances: Iterable[Floats], weights: Floats) -> tuple[Floats, Floats]:
        """Return which parts of the coefficients are kept, and their posterior variances, from the weights of the variances."""
        kept, square = np.zeros_like(self.numbers), np.zeros_like(self.numbers)
        for weight, variance in zip(weights.T, variances, strict=True):
            part = variance / (variance + self.noise)
            kept += weight[:, None] * part
            square += weight[:, None] * part**2
        return kept, kept * self.noise + np.maximum(square - kept**2, 0.0) * self.numbers**2

    def posterior(self, weights: Floats) -> tuple[Floats, Floats]:
        """Return the means and variances of shares, (groups, values), from the weights of the classes but the first."""
        kept, spread = self.kept(self.classes(), weights)
        theta = self.mean + by_rows(kept * self.numbers, self.directions.vectors.T) * np.sqrt(self.mean)
        theta = np.maximum(theta, 0.0)
        theta = theta / theta.sum(axis=1, keepdims=True)
        return theta, np.maximum(theta, self.mean / 10.0) * by_rows(spread, self.directions.vectors.T**2)

    def borrowed(self, classes: Floats) -> Floats:
        """Return which part of what reports determine comes from the mean of all groups, from the probabilities of classes."""
        own, seen = np.zeros(len(self.n)), self.directions.seen
        for weight, variance in zip(classes.T[1:], self.classes(), strict=True):
            population = np.maximum(variance - 1.0 / self.n, 0.0)
            own += weight * ((population / (variance + self.noise)) @ seen)
        return np.asarray(np.clip(1.0 - own / seen.sum() - classes[:, 0], 0.0, 1.0))


def probable(logs: Floats) -> Floats:
    """Return probabilities from their logarithms, up to a term."""
    chances = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(chances / chances.sum(axis=1, keepdims=True))


def among_others(classes: Floats) -> Floats:
    """Return the probabilities of all classes but the first, given that a group is not in that one."""
    total = classes[:, 1:].sum(axis=1, keepdims=True)
    return np.where(total > _LEAST, classes[:, 1:] / np.maximum(total, _LEAST), 1.0 / (CLASSES - 1))


FOLDS, UNCLEAR = 3, 0.5  # standard errors of a gain in predicting held-out reports that do not count
Alone: TypeAlias = Callable[[Likelihood], Floats]  # estimates groups alone
Errors: TypeAlias = tuple[Floats, Floats, Floats]
Moments: TypeAlias = tuple[Floats, Floats]  # the shares of all groups together, and their standard errors
LEVEL = 0.975
SHAPES = (0.0, 1.0, 2.0, 3.0, 4.0)  # of the mean: powers by which its coefficients around equal shares may fall
_PERSON = 0.25  # by which ends move outwards, because shares are whole numbers of people
_NARROW = 1.0 / 3.0  # least ratio of a share to its error, for its distribution
_TINY = 1e-12
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
    shape, scale = (middle / np.maximum(error, _TINY)) ** 2, error**2 / np.maximum(middle, _TINY)
    person = _PERSON / np.maximum(n, 1.0)
    low, high = (scale * gammaincinv(shape, level) for level in (1.0 - LEVEL, LEVEL))
    return np.maximum(np.minimum(low, theta) - person, 0.0), np.minimum(np.maximum(high, theta) + person, 1.0)
