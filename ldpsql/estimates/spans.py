"""Shares of ranges and of rectangles of a map, and quantiles, which are where shares of nested ranges cross a level."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.domains.columns import finite_or_null, python_value
from ldpsql.domains.domain import Domain
from ldpsql.errors import InvalidDomain, InvalidParameter, OutOfTime
from ldpsql.errors.boundary import withheld
from ldpsql.estimates.conditions import between, scale_of, spans_between, within
from ldpsql.estimates.estimate import Estimate, Estimates
from ldpsql.estimates.functionals import (
    FIELDS,
    Functional,
    Linear,
    Measure,
    around,
    cut_to,
    holding,
    likeliest,
    linear,
    of_ranges,
)
from ldpsql.inference.counting import ReportSource
from ldpsql.inference.likelihood import Likelihood, factor_of_moved
from ldpsql.inference.limits import Limits, check, until
from ldpsql.inference.operators import DenseOperator, Floats, Ints, Ranges
from ldpsql.inference.outcome import normalised
from ldpsql.inference.score_intervals import deviations
from ldpsql.inference.solver.mle import solve
from ldpsql.mechanisms.base import CertifiedValues, Mechanism, certify_values
from ldpsql.mechanisms.region import Region
from ldpsql.mechanisms.spec import number

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
        return float(factor_of_moved(moved, self._one.shares[0, seen], self._one.squares[0, seen])[0])


_MOST_SETS = 128  # whose bounds are computed for a quantile if bounds are costly; of many values, half of them near it
_SHORT = 2048  # values up to which these sets are spaced evenly: sets of its own for each group take twice the time
_LEAST_SETS = 32  # whose bounds are computed if there are very many values
_CELLS = 1 << 23  # of sets times values, at a time
_ROUNDING = 1e-12


@dataclass(frozen=True)
class RangeShares(Functional):
    """The shares of several ranges of values, each from its low to its high end; see `RangeShare`."""

    ranges: tuple[RangeShare, ...]

    def measure(self, estimates: Estimates) -> Measure:
        if not estimates.likelihood.operator.lined:
            return Measure.stacked([one.listed(estimates) for one in self.ranges])
        spans = spans_between(estimates.values, [(one.low, one.high) for one in self.ranges])
        share = _shares(estimates, spans.centred)
        if spans.exact:
            return share
        least, most = (_shares(estimates, one) for one in (spans.certain, spans.possible))
        return widened(share, least, most, spans.centred.end > spans.centred.first)


@dataclass(frozen=True)
class RangeShare(Functional):
    """The share of the values from ``low`` to ``high``, both included, on the scale of `scale_of`; None means no bound.

    Raises:
        InvalidParameter: if low is above high.

    """

    low: float | None
    high: float | None

    def __post_init__(self) -> None:
        if self.low is not None and self.high is not None and self.low > self.high:
            raise InvalidParameter("a range must not end before it begins", "range_share(report, m, low, high)")

    def measure(self, estimates: Estimates) -> Measure:
        """Return the share of the range in every group; all or nothing of a bin that an end cuts may lie in the range."""
        return RangeShares((self,)).measure(estimates).at(0)

    def listed(self, estimates: Estimates) -> Measure:
        """Return the share of the range in every group, also if the values are not listed in rising order."""
        values = estimates.values
        certain, possible = between(values, self.low, self.high)
        centred = certain | possible & within(scale_of(values), self.low, self.high)
        share = _share(estimates, centred)
        if (certain == possible).all():
            return share
        return widened(share, _share(estimates, certain), _share(estimates, possible), centred.any())


def _share(estimates: Estimates, inside: NDArray[np.bool_]) -> Measure:
    """Return the share of a set of values on a line."""
    c = inside.astype(np.float64)
    bounds = linear(estimates, c[:, None], sets=True)
    return around(estimates, normalised(estimates.fit.theta) @ c, bounds, float(c.min()), float(c.max()))


def _shares(estimates: Estimates, ranges: Ranges) -> Measure:
    """Return the shares of several ranges of neighbouring values."""
    running = _running(estimates)
    estimate, bounds = running[:, ranges.end] - running[:, ranges.first], of_ranges(estimates, ranges)
    size = running.shape[1] - 1
    most, least = (
        (ranges.end > ranges.first).astype(np.float64),
        ((ranges.first == 0) & (ranges.end == size)).astype(np.float64),
    )
    regularised = estimates.fit.regularised[:, None]
    return cut_to(Measure(estimate, bounds.std_error, bounds.low, bounds.high), least, most, regularised)


def _running(estimates: Estimates) -> Floats:
    """Return the shares of the first 0, 1, .. values."""
    return np.pad(normalised(estimates.fit.theta).cumsum(axis=1), ((0, 0), (1, 0)))


def widened(share: Measure, least: Measure, most: Measure, counted: NDArray[np.bool_] | np.bool_ | bool = True) -> Measure:
    """Return a share with its own error; its interval holds the share of what is surely inside, and of what is possibly.

    A share that counts no value has the error of the values that are possibly inside.
    """
    error = np.where(counted, share.std_error, most.std_error)
    return replace(share, std_error=error, low=np.minimum(least.low, share.low), high=np.maximum(most.high, share.high))


def shares_of_sets(estimates: Estimates, sets: Floats) -> Measure:
    """Return the share of each set, a column of 0 and 1 with shape (values, sets); each field has shape (groups, sets)."""
    bounds = linear(estimates, sets)
    estimate = normalised(estimates.fit.theta) @ sets
    return cut_to(Measure(estimate, bounds.std_error, bounds.low, bounds.high), 0.0, 1.0, estimates.fit.regularised[:, None])


def quantiles(estimates: Estimates, levels: tuple[float, ...]) -> Measure:
    """Return the quantiles of all values at some levels: positions in the domain, and errors in the unit of the values.

    Each field has shape (groups, levels).
    """
    rising = np.argsort(scale_of(estimates.values), kind="stable")
    shares = normalised(estimates.fit.theta)[:, rising].cumsum(axis=1)[:, :-1]
    if estimates.likelihood.operator.lined:
        crossed = crossings(estimates, len(rising), levels)
    else:
        crossed = _listed_crossings(estimates, rising, levels)
    return _crossed(estimates, estimates.values, shares, levels, crossed)


def quantiles_of_shares(estimates: Estimates, values: Domain, shares: Measure, levels: tuple[float, ...]) -> Measure:
    """Return the quantiles of another distribution, as `quantiles` does, from the shares of its first 1, 2, .. values.

    Args:
        estimates: what the shares come from.
        values: the values of the distribution.
        shares: the shares in rising order of the values with their intervals, each field of shape (groups, values - 1).
        levels: the share below each quantile.

    """
    band = Band(np.arange(1, len(values)), len(values), shares.low, shares.high)
    unknown = np.asarray(np.isnan(shares.estimate).any(axis=1))
    measure = _crossed(estimates, values, np.nan_to_num(shares.estimate), levels, [band.crossing(q) for q in levels])
    return replace(measure, std_error=np.where(unknown[:, None], np.inf, measure.std_error))


def _crossed(
    estimates: Estimates, values: Domain, shares: Floats, levels: tuple[float, ...], crossed: list[tuple[Ints, Ints]]
) -> Measure:
    scale, parts = scale_of(values), []
    rising = np.argsort(scale, kind="stable")
    for q, ends in zip(levels, crossed, strict=True):
        estimate = (shares < q - _ROUNDING).sum(axis=1)
        value, first, last = (at.astype(np.float64) for at in (estimate, *ends))
        low, high = (end.astype(np.int64) for end in holding(value, first, last, estimates.fit.regularised))
        half = (scale[rising[high]] - scale[rising[low]]) / (2 * deviations(estimates.estimator.confidence))
        half[(low == 0) & (high == len(scale) - 1)] = np.inf  # the whole range
        value, least, most = (rising[at].astype(np.float64) for at in (estimate, low, high))
        parts.append(Measure(value, half, least, most, values.rounding))
    return Measure.stacked(parts)


def _listed_crossings(estimates: Estimates, rising: Ints, levels: tuple[float, ...]) -> list[tuple[Ints, Ints]]:
    """Return for each level the first and the last value that may be the quantile, counted in rising order.

    If bounds are costly or values are many, those of some sets serve for the sets between them too: a set has at least the
    share of one inside it.
    """
    size, groups = len(rising), len(estimates.fit.theta)
    place = np.empty(size, dtype=np.int64)
    place[rising] = np.arange(size)
    costly = estimates.likelihood.operator.bounding_weights is not None
    if costly and (of_ratios := by_ratios(estimates, rising, levels)) is not None:
        return of_ratios
    most = _MOST_SETS if costly else max(_LEAST_SETS, _CELLS // size)

    def ends(cuts: Ints) -> Linear:
        own = cuts[:1] if (cuts == cuts[0]).all() else cuts  # one table serves all groups
        step = max(1, _CELLS // (size * len(own)))
        starts = range(0, cuts.shape[1], step)
        sets = (place[:, None] < own[:, None, start : start + step] for start in starts)
        parts = [linear(estimates, some.astype(np.float64), sets=True) for some in sets]
        return Linear(*(np.concatenate(field, axis=1) for field in zip(*parts, strict=True)))

    if costly and size <= _SHORT:
        of_levels = [computed(ends, size, [spaced(1, size - 1, most)] * groups)] * len(levels)
    else:
        of_levels = bands(ends, groups, size, levels, most if size <= most else most // 2)
    crossed = ([band.crossing(q) for band in of_groups] for q, of_groups in zip(levels, of_levels, strict=True))
    return [(first, last) for first, last in map(np.transpose, crossed)]


# Shares of rectangles of a map, as the cells of a grid say about longitudes and latitudes.
#
# A rectangle holds its west and south sides but not its east and north ones, like the cells, so rectangles that share a side
# share no point; the outer sides of the grid belong to it. A side may cut cells: all or nothing of such a cell may lie in the
# rectangle, and the interval allows for both. The estimate takes the part of the cell by its area.

_SIDES = ("west", "south", "east", "north")


class Rectangle(NamedTuple):
    """The sides of a rectangle; None means no bound."""

    west: Fraction | None
    south: Fraction | None
    east: Fraction | None
    north: Fraction | None

    @classmethod
    def of(cls, sides: Iterable[Any]) -> Rectangle:
        """Return the rectangle with these sides: west, south, east and north, numbers or None."""
        try:
            rectangle = cls(*(None if side is None else number(side) for side in sides))
        except (TypeError, ValueError):
            raise InvalidParameter(
                "the sides of a rectangle must be four numbers or NULL: west, south, east and north"
            ) from None
        for low, high in ((rectangle.west, rectangle.east), (rectangle.south, rectangle.north)):
            if low is not None and high is not None and low >= high:
                raise InvalidParameter(
                    "a rectangle must have its west before its east and its south before its north",
                    "the south-west corner comes first",
                )
        return rectangle


@dataclass(frozen=True)
class RectangleShares(Functional):
    """The shares of several rectangles of a region whose cells are the values, numbered row by row."""

    region: Region
    rectangles: tuple[Rectangle, ...]

    def __post_init__(self) -> None:
        """Refuse rectangles that hold nothing of any cell: their share would be zero, without an error."""
        if not all(self._covered(one).any() for one in self.rectangles):
            raise InvalidParameter(
                "a rectangle lies outside the grid", "longitude comes before latitude; the sides are in the unit of the grid"
            )

    @classmethod
    def between(cls, southwest: Sequence[pa.Scalar], northeast: Sequence[pa.Scalar], grid: pa.Scalar) -> RectangleShares:
        """Return the shares of the rectangles between pairs of corners, points of a grid as SQL passes them.

        Raises:
            InvalidSpec: if there is no grid.
            InvalidParameter: if a corner is not a point, two are not the corners of a rectangle, or it lies outside the grid.

        """
        region = Region.read(python_value(grid))
        corners = zip(map(_point, southwest), map(_point, northeast), strict=True)
        return cls(region, tuple(Rectangle.of((*low, *high)) for low, high in corners))

    def measure(self, estimates: Estimates) -> Measure:
        part = np.stack([self._covered(one) for one in self.rectangles], axis=1)
        certain, possible = (sets.astype(np.float64) for sets in (part == 1.0, part > 0.0))
        share = _shares_inside(estimates, part, certain.min(axis=0), possible.max(axis=0))
        if np.array_equal(certain, possible):
            return share
        least, most = (_shares_inside(estimates, sets, sets.min(axis=0), sets.max(axis=0)) for sets in (certain, possible))
        return widened(share, least, most)

    def _covered(self, rectangle: Rectangle) -> Floats:
        """Return the part of each cell that lies in a rectangle."""
        west, south, east, north = rectangle
        across, along = self.region.across.covered(west, east), self.region.along.covered(south, north)
        return (along[:, None] * across).ravel()


def _shares_inside(estimates: Estimates, c: Floats, least: Floats, most: Floats) -> Measure:
    bounds = linear(estimates, c)
    measure = Measure(normalised(estimates.fit.theta) @ c, bounds.std_error, bounds.low, bounds.high)
    return cut_to(measure, least, most, estimates.fit.regularised[:, None])


def _point(corner: pa.Scalar) -> tuple[Any, Any]:
    """Return longitude and latitude of a corner; NULL means no bound."""
    point = python_value(corner)
    if point is None:
        return None, None
    if not isinstance(point, dict) or point.keys() != {"lon", "lat"}:
        raise InvalidParameter(
            "the corners of a rectangle must be points", "{'lon': -122.45, 'lat': 37.72}, or NULL for no bound"
        )
    return point["lon"], point["lat"]


def check_grid(source: Mechanism | ReportSource, grid: pa.Scalar) -> None:
    """Check that the values behind reports are the cells of a grid, as SQL passes it; see `check_cells`."""
    if not isinstance(source, Mechanism):
        raise InvalidParameter(
            "rectangles are asked of the reports of one mechanism", "estimate the reports of each by themselves"
        )
    check_cells(source, Region.read(python_value(grid)))


def check_cells(mechanism: Mechanism, region: Region) -> None:
    """Check that the values of a mechanism are the cells of a region."""
    certified = certify_values(mechanism)
    size, layout = len(certified.values), certified.layout
    shape = (region.rows, region.columns)
    if len(layout) == 2 and layout != shape:
        raise InvalidDomain(
            f"the mechanism has {layout[1]} columns and {layout[0]} rows of cells, the grid {shape[1]} and {shape[0]}",
            "use the grid that the cells were numbered with",
        )
    if size != len(region) or not np.array_equal(scale_of(certified.values), np.arange(size)):
        raise InvalidDomain("the values of the mechanism are not the cells of the grid", "its domain must be ldp.cells(grid)")


def region_of(mechanism: Mechanism, edges: Sequence[Any]) -> Region:
    """Return the region that the cells of a mechanism cover."""
    layout = certify_values(mechanism).layout
    if len(layout) != 2:
        raise InvalidParameter("only the cells of a grid lie in a region", "leave out --bounds")
    sides = tuple(edges) if isinstance(edges, Iterable) else ()
    if len(sides) != len(_SIDES):
        raise InvalidParameter("the bounds of a grid must be four numbers", "west, south, east and north")
    return Region(**dict(zip(_SIDES, sides, strict=True)), rows=layout[0], columns=layout[1])


@withheld
def rectangle_shares(estimate: Estimate, bounds: Sequence[Any], rectangles: Iterable[Sequence[Any]]) -> pa.Table:
    """Return the shares of rectangles of a map, one row each: west, south, east, north, estimate, std_error, low, high.

    Args:
        estimate: that of a mechanism over the cells of a grid.
        bounds: west, south, east and north of the grid: numbers, or strings that hold decimal numbers.
        rectangles: the sides of each rectangle, in the same order; None means no bound.

    Raises:
        InvalidParameter: if the values are not cells, or the sides are not those of rectangles of the grid.

    """
    source = estimate.of.source
    if not isinstance(source, CertifiedValues):
        raise InvalidParameter("rectangles need reports of one mechanism over the cells of a grid")
    listed = [Rectangle.of(sides) for sides in rectangles]
    if not listed:
        raise InvalidParameter("this needs at least one rectangle", "such as (0, 0, 0.5, 0.5)")
    shares = RectangleShares(region_of(source.mechanism, bounds), tuple(listed))
    one = shares.measure(estimate.of)
    sides = [[None if side is None else float(side) for side in column] for column in zip(*listed, strict=True)]
    numbers = [finite_or_null(getattr(one, name)[estimate.group]) for name in FIELDS]
    return pa.table([*(pa.array(column, pa.float64()) for column in sides), *numbers], [*_SIDES, *FIELDS])
