"""Bands around a distribution function, and the values between which they cross a level: intervals of quantiles."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ldpsql.errors import OutOfTime
from ldpsql.estimates.estimate import Estimates
from ldpsql.estimates.uncertainty import likeliest
from ldpsql.inference.deadline import until
from ldpsql.inference.operators import Floats, Ranges
from ldpsql.inference.score_intervals import deviations

_MOST_CUTS = 4096  # of a range, at which a band is computed at a time
_POINTS = 24  # cuts around a quantile, over which errors are averaged
_REACH = 3.0  # errors from a quantile to the outermost of these
_LEAST = 0.2  # of an error: what at least differs from cut to cut
_STEPS = 4
_ROOM = 20

Ints = NDArray[np.int64]


class Band(NamedTuple):
    """Ends of the share of the first ``cuts`` values of ``size``, each of shape (groups, cuts); the last cut leaves one out.

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
        return first.sum(axis=1), self.cuts[0] - 1 + more.sum(axis=1)

    def around(self, q: float) -> list[tuple[int, int]]:
        """Return for each group two numbers of values between which all lie where an end of the band crosses q."""
        padded = np.concatenate([[0], self.cuts, [self.size - 1]])
        above, below = self.upper >= q, ~(self.lower >= q)
        first = np.where(above.any(axis=1), above.argmax(axis=1), above.shape[1])
        last = np.where(below.any(axis=1), below.shape[1] - below[:, ::-1].argmax(axis=1), 0)
        return [(int(padded[a]) + 1, int(padded[b + 1])) for a, b in zip(first, last, strict=True)]

    @property
    def centre(self) -> Floats:
        """The middle of the band."""
        return (self.lower + self.upper) / 2

    def narrowed(self, factors: Floats) -> Band:
        """Return the band with the errors of each group times a factor."""
        half = (self.upper - self.lower) / 2 * factors[:, None]
        return self._replace(lower=self.centre - half, upper=self.centre + half)


def spaced(first: int, last: int) -> Ints:
    """Return all numbers from the first to the last, or so many of them that a band is computed quickly."""
    return np.unique(np.linspace(first, last, min(last - first + 1, _MOST_CUTS)).round().astype(np.int64))


def crossings(estimates: Estimates, band: Band, levels: tuple[float, ...]) -> list[tuple[Ints, Ints]]:
    """Return for each level the first and the last value that may be the quantile, with errors as `averaged` has them.

    Where a long stretch holds nothing, some of its cuts lie outside of the band by chance and move an end inwards by a little.
    So ends are moved outwards by a twentieth of the interval.
    """
    factors, out = averaged(estimates, band, levels), []
    for q, own in zip(levels, factors, strict=True):
        first, last = band.narrowed(own).crossing(q)
        room = np.maximum(last - first, 0) // _ROOM
        out.append((np.maximum(first - room, 0), np.minimum(last + room, band.size - 1)))
    return out


def averaged(estimates: Estimates, band: Band, levels: tuple[float, ...]) -> Floats:
    """Return which part of the errors moves the quantiles of the sorted band, shape (levels, groups).

    A quantile of sorted shares is a number of cuts whose shares are below q. So it moves by the mean of the errors of the cuts
    whose shares come near to q, and what differs from cut to cut cancels out. Which cuts come near depends on how much does
    differ, so both are computed in turns. The variance of the share between two cuts gives their covariance.
    """
    groups, operator, likelihood = len(band.lower), estimates.likelihood.operator, estimates.likelihood
    if not np.isfinite(band.upper - band.lower).all():
        return np.ones((len(levels), groups))
    error = (band.upper - band.lower) / (2 * deviations(estimates.estimator.confidence))
    centre = np.sort(band.centre, axis=1)
    near = np.array([[_near(band.cuts, *group, q) for group in zip(centre, error, strict=True)] for q in levels])
    own, shares = (np.take_along_axis(each[None], near, axis=2) for each in (error, centre))
    one, other = np.triu_indices(_POINTS, 1)
    ends = (np.moveaxis(band.cuts[near[..., at]], 0, 1).reshape(groups, -1) for at in (one, other))
    with until(estimates.end), suppress(OutOfTime):
        theta = likeliest(likelihood, estimates.fit)
        _, apart = operator.of_ranges(likelihood.shares, likelihood.n, theta, Ranges(*ends))
        apart = np.moveaxis(apart.reshape(groups, len(levels), -1), 0, 1)
        covariance = own[..., None] ** 2 * np.eye(_POINTS)
        shared = (own[..., one] ** 2 + own[..., other] ** 2 - apart) / 2
        covariance[..., one, other] = covariance[..., other, one] = shared
        return _part(shares - np.array(levels)[:, None, None], own, covariance)
    return np.ones((len(levels), groups))


def _near(cuts: Ints, centre: Floats, error: Floats, q: float) -> Ints:
    """Return the places of some cuts, evenly spaced, whose sorted shares lie within a few errors of q."""
    final = len(cuts) - 1
    reach = _REACH * error[min(int(np.searchsorted(centre, q)), final)]
    first = min(int(np.searchsorted(centre, q - reach)), final)
    last = max(int(np.searchsorted(centre, q + reach, side="right")) - 1, first)
    return np.searchsorted(cuts, np.linspace(cuts[first], cuts[last], _POINTS))


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
