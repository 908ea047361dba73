"""Bands around a distribution function, and the values between which they cross a level: intervals of quantiles."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ldpsql.errors import OutOfTime
from ldpsql.estimates.linear import Linear, of_ranges
from ldpsql.estimates.uncertainty import likeliest
from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.limits import Limits, check, until
from ldpsql.inference.operators import DenseOperator, Floats, Ints, Ranges
from ldpsql.inference.score_intervals import deviations
from ldpsql.inference.solver.mle import solve
from ldpsql.inference.weighted import ratio

if TYPE_CHECKING:
    from ldpsql.estimates.estimate import Estimates


_MOST_CUTS = 4096  # of a range, at which a band is computed at a time
_POINTS = 24  # cuts around a quantile, over which errors are averaged
_REACH = 3.0  # errors from a quantile to the outermost of these
_LEAST = 0.2  # of an error: what at least differs from cut to cut
_STEPS = 4
ROOM = 20  # the ends of an interval are moved outwards by its length, divided by this


class Band(NamedTuple):
    """Ends of the share of the first ``cuts`` values of ``size``, shape (.., cuts); the last cut leaves one out.

    A share grows with the number of values, but errors may let an end fall. The ends count in rising order, as if sorted
    (Chernozhukov, Fernandez-Val, Galichon, "Improving point and interval estimators of monotone functions by rearrangement",
    Biometrika 2009): the sorted band is at most as wide, and holds no less often. Between the first and the last time that an
    end crosses a level there may be many values that its errors exclude.
    """

    cuts: Ints
    size: int
    lower: Floats
    upper: Floats

    def crossing(self, q: float) -> tuple[Ints, Ints]:
        """Return for each group the first and the last value that may be the q-quantile, from 0.

        All numbers of values up to a cut have at most its upper end, all from it to the next one at least its lower end.
        """
        before, after = np.diff(self.cuts, prepend=0), np.diff(self.cuts, append=self.size)
        first, more = np.where(self.upper < q, before, 0), np.where(self.lower >= q, 0, after)
        return first.sum(axis=-1), self.cuts[0] - 1 + more.sum(axis=-1)

    def around(self, q: float) -> tuple[int, int]:
        """Return two numbers of values between which all lie where an end of the band of one group crosses q."""
        padded = np.concatenate([[0], self.cuts, [self.size - 1]])
        above, below = np.flatnonzero(self.upper >= q), np.flatnonzero(~(self.lower >= q))
        first = above[0] if len(above) else len(self.cuts)
        last = below[-1] + 1 if len(below) else 0
        return int(padded[first]) + 1, int(padded[last + 1])

    @property
    def centre(self) -> Floats:
        """The middle of the band."""
        return (self.lower + self.upper) / 2

    def joined(self, other: Band) -> Band:
        """Return the band of one group at its own cuts and at those of another one."""
        cuts, at = np.unique(np.concatenate([self.cuts, other.cuts]), return_index=True)
        lower, upper = (np.concatenate(ends)[at] for ends in ((self.lower, other.lower), (self.upper, other.upper)))
        return Band(cuts, self.size, lower, upper)

    def narrowed(self, factor: float) -> Band:
        """Return the band with errors times a factor, which are infinite only if it is 1."""
        if factor == 1.0:
            return self
        half = (self.upper - self.lower) / 2 * factor
        return self._replace(lower=self.centre - half, upper=self.centre + half)


def spaced(first: int, last: int, most: int = _MOST_CUTS) -> Ints:
    """Return all numbers from the first to the last, or so many of them that a band is computed quickly."""
    return np.unique(np.linspace(first, last, min(last - first + 1, most)).round().astype(np.int64))


def bands(
    ends: Callable[[Ints], Linear], groups: int, size: int, levels: tuple[float, ...], most: int = _MOST_CUTS
) -> list[list[Band]]:
    """Return for each level the band of each group; on a long line it is computed at some values, and at more near the level.

    Each level and each group has its own cuts, so an interval does not depend on what else is asked for.

    Args:
        ends: returns the shares of the first values up to some cuts with their errors, each of shape (groups, cuts).
        groups: how many groups there are.
        size: how many values there are.
        levels: the share below each quantile.
        most: at how many cuts a band is computed at a time.

    """
    cuts = spaced(1, size - 1, most)
    coarse = computed(ends, size, [cuts] * groups)
    if len(cuts) == size - 1:
        return [coarse] * len(levels)
    finer = (computed(ends, size, [spaced(*band.around(q), most) for band in coarse]) for q in levels)
    return [[band.joined(other) for band, other in zip(coarse, fine, strict=True)] for fine in finer]


def computed(ends: Callable[[Ints], Linear], size: int, cuts: list[Ints]) -> list[Band]:
    """Return for each group the band of its distribution function, computed at the values ``cuts`` of this group only."""
    most = max(len(own) for own in cuts)
    share = ends(np.stack([np.pad(own, (0, most - len(own)), mode="edge") for own in cuts]))
    parts = zip(cuts, share.low, share.high, strict=True)
    return [Band(own, size, low[: len(own)], high[: len(own)]) for own, low, high in parts]


def crossings(estimates: Estimates, size: int, levels: tuple[float, ...]) -> list[tuple[Ints, Ints]]:
    """Return for each level the first and the last value that may be the quantile, with errors as `averaged` has them.

    Where a long stretch holds nothing, some of its cuts lie outside of the band by chance and move an end inwards by a little.
    So ends are moved outwards by a twentieth of the interval.
    """
    of_levels = bands(
        lambda cuts: of_ranges(estimates, Ranges(np.zeros_like(cuts), cuts)), len(estimates.fit.theta), size, levels
    )
    out = []
    for q, own, factors in zip(levels, of_levels, averaged(estimates, of_levels, levels), strict=True):
        ends = [band.narrowed(factor).crossing(q) for band, factor in zip(own, factors, strict=True)]
        first, last = np.transpose(ends)
        room = np.maximum(last - first, 0) // ROOM
        out.append((np.maximum(first - room, 0), np.minimum(last + room, size - 1)))
    return out


def averaged(estimates: Estimates, of_levels: list[list[Band]], levels: tuple[float, ...]) -> Floats:
    """Return which part of the errors moves the quantiles of the sorted bands, shape (levels, groups).

    A quantile of sorted shares is a number of cuts whose shares are below q. So it moves by the mean of the errors of the cuts
    whose shares come near to q, and what differs from cut to cut cancels out. Which cuts come near depends on how much does
    differ, so both are computed in turns. The variance of the share between two cuts gives their covariance. If the reports say
    nothing about a share, as those of few people, no error is left out.
    """
    likelihood, z = estimates.likelihood, deviations(estimates.estimator.confidence)
    near = [[_near(band, q, z) for band in own] for q, own in zip(levels, of_levels, strict=True)]
    cuts, shares, error = np.moveaxis(np.array(near), 2, 0)
    known = (z * error <= 1.0).all(axis=-1)  # else the interval of a share may be longer than all that a share can be
    one, other = np.triu_indices(_POINTS, 1)
    with until(estimates.end), suppress(OutOfTime):
        theta = likeliest(likelihood, estimates.fit)
        groups = len(theta)
        ends = (np.moveaxis(cuts[..., at], 0, 1).reshape(groups, -1).astype(np.int64) for at in (one, other))
        _, apart = likelihood.of_ranges(theta, Ranges(*ends))
        apart = np.moveaxis(apart.reshape(groups, len(levels), -1), 0, 1)
        own = np.where(known[..., None], error, 0.0)
        covariance = own[..., None] ** 2 * np.eye(_POINTS)
        shared = (own[..., one] ** 2 + own[..., other] ** 2 - apart) / 2
        covariance[..., one, other] = covariance[..., other, one] = shared
        return np.where(known, _part(shares - np.array(levels)[:, None, None], own, covariance), 1.0)
    return np.ones(known.shape)


def _near(band: Band, q: float, z: float) -> Floats:
    """Return some cuts, evenly spaced, whose sorted shares lie within a few errors of q, with these shares and errors.

    If an error is infinite, all are, and cuts and shares are 0.
    """
    if not np.isfinite(band.upper - band.lower).all():
        return np.repeat([[0.0], [0.0], [np.inf]], _POINTS, axis=1)
    centre, error = np.sort(band.centre), (band.upper - band.lower) / (2 * z)
    final = len(centre) - 1
    reach = _REACH * error[min(int(np.searchsorted(centre, q)), final)]
    first = min(int(np.searchsorted(centre, q - reach)), final)
    last = max(int(np.searchsorted(centre, q + reach, side="right")) - 1, first)
    at = np.searchsorted(band.cuts, np.linspace(band.cuts[first], band.cuts[last], _POINTS))
    return np.stack([band.cuts[at], centre[at], error[at]])


def _part(away: Floats, error: Floats, covariance: Floats) -> Floats:
    """Return the error of the mean over cuts that come near, divided by the mean of their errors.

    Args:
        away: how far the share of each cut is from the level, shape (.., cuts).
        error: of each cut.
        covariance: of all pairs, shape (.., cuts, cuts).

    """
    largest = error.max(axis=-1, keepdims=True)
    common = np.zeros_like(largest)
    for _ in range(_STEPS):
        differs = np.sqrt(np.maximum(largest**2 - common**2, (_LEAST * largest) ** 2))
        weight = np.exp(-((away / np.maximum(differs, 1e-9)) ** 2) / 2) + 1e-300
        weight /= weight.sum(axis=-1, keepdims=True)
        variance = np.einsum("...i,...ij,...j->...", weight, covariance, weight)
        common = np.sqrt(np.maximum(variance, 0.0))[..., None]
    mean = (weight * error).sum(axis=-1)
    return np.asarray(np.minimum(1.0, common[..., 0] / np.where(mean > 0, mean, 1.0)))


# Intervals of quantiles by likelihood ratios, under channels that hardly distinguish neighbouring values.
#
# A value may be the q-quantile if some distribution with a share q up to it explains the reports nearly as well as the best
# one: twice the difference of the log-likelihoods is at most the square of a normal deviation. As shares are not negative, few
# such distributions are far from the best one, though bounds of the share for any reports (see
# `ldpsql.inference.operators.weights`) are wide.
#
# Sources: Owen, "Empirical likelihood ratio confidence intervals for a single functional", Biometrika 1988. Rao, Scott, "On
# chi-squared tests for multiway contingency tables with cell proportions estimated from survey data", Annals of Statistics
# 1984, for rows with weights. Batlle and others, "Optimization-based frequentist confidence intervals for functionals in
# constrained inverse problems", 2023, show that the deviation may be too small if shares are zero: ends are moved outwards for
# that.

_MOST_VALUES = 256
_MOST = 1 << 21  # cells of the channel, for each quantile: a second or two for each group
_PULL = 1e3  # reports, for each real one, that say on which side of a cut a value lies: they fix the share
_EVEN = 1e-3  # the part of a beginning that is uniform, as a share of 0 stays 0
_TOLERANCE = 1e-8
_MOST_STEPS = 100


def by_ratios(estimates: Estimates, rising: Ints, levels: tuple[float, ...]) -> list[tuple[Ints, Ints]] | None:
    """Return for each level the first and the last value that may be the quantile of each group, counted in rising order.

    Returns None for more values, reports and levels than it has time for. How many groups there are does not count: the
    interval of a group is the same among others.
    """
    likelihood, groups = estimates.likelihood, len(estimates.fit.theta)
    if len(rising) > _MOST_VALUES or len(levels) * len(rising) * likelihood.operator.outputs > _MOST:
        return None
    ends = np.empty((len(levels), 2, groups), dtype=np.int64)
    with until(estimates.end), suppress(OutOfTime):
        for group, theta in enumerate(likeliest(likelihood, estimates.fit)):
            one = _Ratio(likelihood.group(group), theta, rising, deviations(estimates.estimator.confidence))
            for q, own in zip(levels, ends, strict=True):
                own[:, group] = one.possible(q)
        return [(first, last) for first, last in ends]
    return None


class _Ratio:
    """The likelihood ratio of one group for the share of the first values.

    Args:
        one: the likelihood.
        theta: its maximum.
        rising: the values in rising order.
        z: the normal deviation.

    """

    def __init__(self, one: Likelihood, theta: Floats, rising: Ints, z: float) -> None:
        self._one, self._table, self._z = one, one.operator.matrix(), z
        self._begin = (1 - _EVEN) * theta[None] + _EVEN / len(theta)
        self._chances, self._most = one.operator.forward(theta[None])[0], one.log_likelihood(theta[None])[0]
        self._place, self._running = np.argsort(rising), theta[rising].cumsum()

    def possible(self, q: float) -> tuple[int, int]:
        """Return the first and the last value that may be the q-quantile, found by bisection, and moved outwards a little."""
        at, size = int((self._running[:-1] < q).sum()), len(self._running)
        low, first = -1, at
        while first - low > 1:
            middle = (low + first) // 2
            low, first = (low, middle) if self._explains(q, middle + 1) else (middle, first)
        last, high = at, size
        while high - last > 1:
            middle = (last + high) // 2
            last, high = (middle, high) if self._explains(q, middle) else (last, middle)
        room = (last - first) // ROOM
        return max(first - room, 0), min(last + room, size - 1)

    def _explains(self, q: float, cut: int) -> bool:
        """Return whether a share q of the first ``cut`` values explains the reports well enough.

        The likelihood is concave, so it is nowhere higher than what its gradient g allows: see `Likelihood.gap`.
        """
        check()
        inside = self._place < cut
        theta = self._constrained(q, inside)
        g = self._one.gradient(theta)[0]
        highest = q * g[inside].max() + (1 - q) * g[~inside].max()
        below = self._most - self._one.log_likelihood(theta)[0] - self._one.n[0] * np.log(highest)
        return bool(2 * below <= self._z**2 * self._of_weights(theta))

    def _constrained(self, q: float, inside: NDArray[np.bool_]) -> Floats:
        """Return about the likeliest distribution with a share q inside, shape (1, values)."""
        sides = np.stack([inside, ~inside], axis=1).astype(np.float64)
        share = np.array([q, 1 - q])

        def scaled(theta: Floats) -> Floats:
            return np.asarray(theta * (sides @ (share / (theta @ sides)[0])))

        counts = np.concatenate([self._one.counts[0], _PULL * self._one.n[0] * share])
        both = Likelihood(DenseOperator(np.concatenate([self._table, sides], axis=1) / 2), counts[None])
        return scaled(solve(both, _TOLERANCE, Limits(_MOST_STEPS), scaled(self._begin)).theta)

    def _of_weights(self, theta: Floats) -> float:
        """Return by how much weights change the variance of the difference of the log-likelihoods, a sum over reports."""
        seen = self._one.counts[0] > 0
        moved = np.log(self._chances[seen] / self._one.operator.forward(theta)[0, seen])[:, None]
        return float(ratio(moved, self._one.shares[0, seen], self._one.squares[0, seen])[0])
