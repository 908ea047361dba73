"""Numbers about a distribution, with errors: mean, variance, quantile, share of a range.

Each is c'theta for some vector c over the values, at least in its first derivative, so its error follows from the errors of
the shares (the delta method). As for the shares, the estimate is that of the estimator, the interval that of the debiased one.

A bin counts as its centre, which is at most `Domain.rounding` away from each number in it. Every interval is wider by what this
does to the mean, the variance, the quantile or the share. Values that are not bins have rounding 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ldpsql.estimates.linear import linear, sample_mean
from ldpsql.estimates.measures import Functional, Measure, around, cut_to, normalised
from ldpsql.estimates.scale import scale_of
from ldpsql.estimates.spans import Quantile, Quantiles, RangeShare, RangeShares
from ldpsql.inference.operators import Floats

if TYPE_CHECKING:
    from ldpsql.estimates.estimate import Estimates

_ROUNDING = 1e-9

__all__ = [
    "Functional",
    "Mean",
    "Measure",
    "Quantile",
    "Quantiles",
    "RangeShare",
    "RangeShares",
    "Variance",
    "shares_of_sets",
]


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
        estimate = None if self.unbiased else normalised(estimates.fit.theta) @ x
        return around(estimates, estimate, bounds, -off, 1.0 + off).scaled(width, least)


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
        theta = normalised(estimates.fit.theta)
        mean = np.clip(linear(estimates, x[:, None]).centre, x.min(), x.max())
        spread = linear(estimates, ((x - mean) ** 2)[..., None])
        estimate = None if self.unbiased else theta @ x**2 - (theta @ x) ** 2
        part = around(estimates, estimate, spread, 0.0, 0.25)  # Popoviciu's inequality: at most a quarter
        undetermined = part.high - part.low > 0.25 - _ROUNDING
        measure = replace(part, std_error=np.where(undetermined, np.inf, part.std_error)).scaled(unit**2)
        off = estimates.values.rounding  # standard deviations are at most as far apart as the numbers
        low, high = np.sqrt(np.maximum(measure.low, 0.0)), np.sqrt(measure.high)
        return replace(measure, low=np.maximum(low - off, 0.0) ** 2, high=(high + off) ** 2) if off else measure


def shares_of_sets(estimates: Estimates, sets: Floats) -> Measure:
    """Return the share of each of several sets of values, each field of shape (groups, sets).

    Args:
        estimates: the estimates of several groups.
        sets: 1 for the values of a set and 0 for others, shape (values, sets).

    """
    bounds = linear(estimates, sets)
    estimate = normalised(estimates.fit.theta) @ sets
    return cut_to(Measure(estimate, bounds.std_error, bounds.low, bounds.high), 0.0, 1.0, estimates.fit.regularised[:, None])
