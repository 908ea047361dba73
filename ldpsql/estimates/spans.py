"""Shares of ranges, and quantiles, which are where the shares of nested ranges cross a level."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ldpsql.domains.domain import Domain
from ldpsql.errors import InvalidParameter
from ldpsql.estimates.bands import Band, bands, by_ratios, computed, crossings, spaced
from ldpsql.estimates.linear import Linear, linear, of_ranges
from ldpsql.estimates.measures import Functional, Measure, around, cut_to
from ldpsql.estimates.scale import between, scale_of, spans_between, within
from ldpsql.estimates.uncertainty import holding
from ldpsql.inference.operators import Floats, Ints, Ranges
from ldpsql.inference.outcome import normalised
from ldpsql.inference.score_intervals import deviations

if TYPE_CHECKING:
    from ldpsql.estimates.estimate import Estimates

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
