"""Numbers about a distribution, with errors: mean, variance, quantile, share of a range.

Each is c'theta for some vector c over the values, at least in its first derivative, so its error follows from the errors of
the shares (the delta method). As for the shares, the estimate is that of the estimator, the interval that of the debiased one.

A bin counts as its centre, which is at most `Domain.rounding` away from each number in it. Every interval is wider by what this
does to the mean, the variance, the quantile or the share. Values that are not bins have rounding 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ldpsql.errors import InvalidParameter
from ldpsql.estimates.estimate import Estimates
from ldpsql.estimates.linear import Linear, linear, sample_mean
from ldpsql.estimates.scale import between, scale_of, within
from ldpsql.estimates.uncertainty import holding
from ldpsql.inference.operators import Floats
from ldpsql.inference.outcome import simplex_projection
from ldpsql.inference.score_intervals import cut, deviations

_ROUNDING = 1e-12  # of the range: shares that sum to one may add up to a little more
_MOST_SETS = 128  # whose bounds are computed for a quantile


@dataclass(frozen=True)
class Measure:
    """Estimates of one number, their standard errors and intervals, each of shape (groups,).

    For quantiles estimate, low and high are positions in the domain: the interval is from ``rounding`` below the one value to
    ``rounding`` above the other.
    """

    estimate: Floats
    std_error: Floats
    low: Floats
    high: Floats
    rounding: float = 0.0

    def scaled(self, unit: float, zero: float = 0.0) -> Measure:
        """Return the same on another scale: of ``zero + unit`` times each number."""
        return Measure(zero + unit * self.estimate, unit * self.std_error, zero + unit * self.low, zero + unit * self.high)


class Functional(ABC):
    """A number about a distribution over ordered values."""

    @abstractmethod
    def measure(self, estimates: Estimates) -> Measure:
        """Return the number for every group.

        Raises:
            InvalidDomain: if the values have no order.

        """


@dataclass(frozen=True)
class Mean(Functional):
    """The mean of the values: for dates in days, for times in seconds since 1970.

    ``unbiased`` asks for the unbiased mean instead of that of the estimated distribution: for the piecewise mechanism,
    stochastic rounding and the hybrid mechanism the mean of the reports, on the scale of the values.
    """

    unbiased: bool = False

    def measure(self, estimates: Estimates) -> Measure:
        """Return the mean of every group."""
        scale = scale_of(estimates.values)
        least, width = float(scale.min()), float(np.ptp(scale))
        x = (scale - least) / width
        off = estimates.values.rounding / width
        bounds = sample_mean(estimates, x, off) if self.unbiased else linear(estimates, x[:, None], off=off)
        estimate = None if self.unbiased else _normalised(estimates.fit.theta) @ x
        return _around(estimates, estimate, bounds, -off, 1.0 + off).scaled(width, least)


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
        values = estimates.values
        certain, possible = between(values, self.low, self.high)
        centred = certain | possible & within(scale_of(values), self.low, self.high)
        share = _share(estimates, centred)
        if (certain == possible).all():
            return share
        least, most = (_share(estimates, inside) for inside in (certain, possible))
        error = np.maximum(share.std_error, np.maximum(least.std_error, most.std_error))
        return replace(share, std_error=error, low=np.minimum(least.low, share.low), high=np.maximum(most.high, share.high))


@dataclass(frozen=True)
class Variance(Functional):
    """The variance of the values, in their unit squared (days for dates, seconds for times).

    ``unbiased`` asks for the mean squared distance to the unbiased mean, instead of the variance of the estimated distribution.
    """

    unbiased: bool = False

    def measure(self, estimates: Estimates) -> Measure:
        """Return the variance of every group: its derivative is (x - mean)^2, up to a constant."""
        scale = scale_of(estimates.values)
        unit = float(np.ptp(scale))
        x = (scale - scale.min()) / unit
        theta = _normalised(estimates.fit.theta)
        mean = np.clip(linear(estimates, x[:, None]).centre, x.min(), x.max())
        spread = linear(estimates, ((x - mean) ** 2)[..., None])
        estimate = None if self.unbiased else theta @ x**2 - (theta @ x) ** 2
        measure = _around(estimates, estimate, spread, 0.0, 0.25).scaled(unit**2)  # Popoviciu's inequality: at most a quarter
        off = estimates.values.rounding  # standard deviations are at most as far apart as the numbers
        low, high = np.sqrt(np.maximum(measure.low, 0.0)), np.sqrt(measure.high)
        return replace(measure, low=np.maximum(low - off, 0.0) ** 2, high=(high + off) ** 2) if off else measure


@dataclass(frozen=True)
class Quantile(Functional):
    """The smallest value that at least a share ``q`` of all values does not exceed.

    Its interval holds every value that is a q-quantile of some distribution function within the errors of the estimated one:
    the band is inverted, one side at a time. ``std_error`` is half the interval over its number of standard errors,
    infinite if the interval is the whole range.

    Raises:
        InvalidParameter: unless 0 < q < 1.

    """

    q: float

    def __post_init__(self) -> None:
        if not 0 < self.q < 1:
            raise InvalidParameter("a quantile needs a share between 0 and 1", "for example 0.5 for the median")

    def measure(self, estimates: Estimates) -> Measure:
        """Return positions in the domain, and the error in the unit of the values, for every group."""
        scale = scale_of(estimates.values)
        rising = np.argsort(scale, kind="stable")
        below = (scale[:, None] <= scale[rising[:-1]]).astype(np.float64)  # below[x, j]: value x counts up to the j-th
        shares = _normalised(estimates.fit.theta) @ below
        lower, upper = _band(estimates, below)
        sure = np.ones((len(shares), 1))
        estimate = _first(np.hstack([shares, sure]) >= self.q - 1e-12)
        low = _first(np.hstack([upper, sure]) >= self.q)
        # The j-th value is too high if the one before it certainly reaches q.
        not_reached = np.hstack([sure, np.where(np.isfinite(lower), lower, -1.0)]) < self.q
        not_reached[:, 0] = True
        high = len(scale) - 1 - _first(not_reached[:, ::-1])
        low, high = holding(estimate, low, high, estimates.fit.regularised)
        half = (scale[rising[high]] - scale[rising[low]]) / (2 * deviations(estimates.estimator.confidence))
        half[(low == 0) & (high == len(scale) - 1)] = np.inf  # the whole range
        value, least, most = (rising[at].astype(np.float64) for at in (estimate, low, high))
        return Measure(value, half, least, most, estimates.values.rounding)


def _band(estimates: Estimates, below: Floats) -> tuple[Floats, Floats]:
    """Return lower and upper ends for the shares of nested sets, each of shape (groups, sets).

    If bounds are costly, those of some sets serve for the sets between them too: a set has at least the share of one inside it.
    """
    size = below.shape[1]
    if estimates.likelihood.operator.bounding_weights is None or size <= _MOST_SETS:
        band = linear(estimates, below, sets=True)
        return band.low, band.high
    some = np.linspace(0, size - 1, _MOST_SETS).round().astype(np.int64)
    band = linear(estimates, below[:, some], sets=True)
    after = np.searchsorted(some, np.arange(size))
    before = np.searchsorted(some, np.arange(size), side="right") - 1
    return band.low[:, before], band.high[:, after]


def _share(estimates: Estimates, inside: NDArray[np.bool_]) -> Measure:
    """Return the share of a set of values on a line."""
    c = inside.astype(np.float64)
    estimate = _normalised(estimates.fit.theta) @ c
    return _around(estimates, estimate, linear(estimates, c[:, None], sets=True), float(c.min()), float(c.max()))


def _around(estimates: Estimates, estimate: Floats | None, bounds: Linear, least: float, most: float) -> Measure:
    """Return an estimate of one functional with its interval `_cut`; None stands for the unbiased estimate."""
    regularised = estimates.fit.regularised
    if estimate is None:  # may lie outside of what the functional can be
        estimate, regularised = bounds.centre[:, 0], np.zeros_like(regularised)
    return _cut(Measure(estimate, bounds.std_error[:, 0], bounds.low[:, 0], bounds.high[:, 0]), least, most, regularised)


def _cut(measure: Measure, least: float, most: float, regularised: NDArray[np.bool_]) -> Measure:
    """Cut intervals to [least, most], or make them all of it if the error is infinite; widen them to hold the estimate.

    The interval of a regularised estimate is that of the unbiased one, and is not widened: see `holding`.
    """
    finite = np.isfinite(measure.std_error)
    low, high = cut(measure.low, measure.high, (measure.high - measure.low) / 2, least, most)
    low, high = np.where(finite, low, least), np.where(finite, high, most)
    inside = np.clip(measure.estimate, least, most)
    rounded = np.abs(measure.estimate - inside) < _ROUNDING * (most - least)  # an inversion may really lie outside
    estimate = np.where(rounded, inside, measure.estimate)
    return Measure(estimate, measure.std_error, *holding(estimate, low, high, regularised))


def _normalised(theta: Floats) -> Floats:
    """Return shares that sum to one: those of an inversion of set-valued reports do so only in expectation.

    If the sum of the shares is not positive, they are those of the nearest distribution.
    """
    total = theta.sum(axis=-1, keepdims=True)
    return np.where(total > 0, theta / np.where(total > 0, total, 1.0), simplex_projection(theta))


def _first(holds: np.ndarray) -> np.ndarray:
    """Return for each group the first position that holds."""
    return np.asarray(holds.argmax(axis=1))


def shares_of_sets(estimates: Estimates, sets: Floats) -> Measure:
    """Return the share of each of several sets of values, each field of shape (groups, sets).

    Args:
        estimates: the estimates of several groups.
        sets: 1 for the values of a set and 0 for others, shape (values, sets).

    """
    bounds = linear(estimates, sets)
    estimate = _normalised(estimates.fit.theta) @ sets
    return _cut(Measure(estimate, bounds.std_error, bounds.low, bounds.high), 0.0, 1.0, estimates.fit.regularised[:, None])
