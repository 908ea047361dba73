"""Linear functionals of a distribution, c'theta, with errors and intervals: what means, ranges and quantiles are made of."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ldpsql.errors import OutOfTime
from ldpsql.estimates.uncertainty import likeliest
from ldpsql.inference.counting import operator_of
from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.limits import until
from ldpsql.inference.operators import Floats, Ranges
from ldpsql.inference.operators.weights import Bounding, Majorants
from ldpsql.inference.outcome import Status, normalised, simplex_projection
from ldpsql.inference.score_intervals import deviations, half_width
from ldpsql.mechanisms.base import CertifiedMechanism, CertifiedValues

if TYPE_CHECKING:
    from ldpsql.estimates.estimate import Estimates

_ROUNDING = 1e-6
_UNBIASED = 1e-3  # of the range


class Linear(NamedTuple):
    """What the reports say about linear functionals, whatever the estimator is; each of shape (groups, functionals).

    ``centre`` is the middle of the interval: unbiased if the functional is identified. Ends are not cut. ``std_error`` is half
    the interval of the functional of bins over the number of standard errors; infinite if the reports say nothing.
    """

    centre: Floats
    std_error: Floats
    low: Floats
    high: Floats


def linear(estimates: Estimates, c: Floats, *, sets: bool = False, off: float = 0.0) -> Linear:
    """Return what the reports say about c'theta.

    If the channel distinguishes the values, that is the debiased estimate plus and minus its errors (`Operator.functionals`).
    An inversion has its own errors, as for shares: if reports are sets, they are larger than those of the debiased estimate.
    If it hardly distinguishes neighbours, as wide noise on many bins does, it is a lower and an upper bound that hold whatever
    the distribution is (`ldpsql.inference.operators.weights`).

    Args:
        estimates: the estimates of several groups.
        c: functionals, shape (values, functionals), or (groups, values, functionals) if each group has its own.
        sets: whether each functional is the share of a set of values that lie on a line.
        off: by how much the functional of the numbers may differ from that of their bins; the intervals include it.

    """
    with until(estimates.end), suppress(OutOfTime):
        z = deviations(estimates.estimator.confidence)
        weights = estimates.likelihood.operator.bounding_weights
        if weights is None:
            bounds = _around(*_functionals(estimates, c), z, off)
        else:
            theta = likeliest(estimates.likelihood, estimates.fit)
            bounds = _bounded(estimates.likelihood, weights, theta, c, z, sets=sets, off=off)
        says_nothing = bounds.high - bounds.low > 2 * np.ptp(c, axis=-2) + _ROUNDING
        if sets and weights is not None:
            says_nothing |= (bounds.low <= _ROUNDING) & (bounds.high >= 1.0 - _ROUNDING)
        return bounds._replace(std_error=np.where(says_nothing, np.inf, bounds.std_error))
    theta = estimates.fit.theta  # there was no time for more
    return _unknown(np.einsum("gx,gxm->gm", theta, np.broadcast_to(c, (len(theta), *c.shape[-2:]))))


def _unknown(centre: Floats) -> Linear:
    """Return estimates without errors."""
    return Linear(centre, *(np.full(centre.shape, end) for end in (np.inf, -np.inf, np.inf)))


def covariances(estimates: Estimates, c: Floats) -> tuple[Floats, Floats]:
    """Return the debiased values of functionals that belong together, and their covariances.

    Nothing of size cells^2 is needed: the covariance of two functionals follows from the variance of their sum.

    Args:
        estimates: the estimates of several groups.
        c: k functionals in each of m families, shape (cells, m, k), or (groups, cells, m, k) if each group has its own.

    Returns:
        Values of shape (groups, m, k) and covariances of shape (groups, m, k, k), which are infinite if the reports determine
        neither of the two, or there is no time.

    """
    families, each = c.shape[-2:]
    one, other = np.triu_indices(each, 1)
    sums = c[..., one] + c[..., other]
    flat = np.concatenate([part.reshape(*c.shape[:-2], -1) for part in (c, sums)], axis=-1)
    groups = len(estimates.fit.theta)
    centre, variance = np.zeros((groups, flat.shape[-1])), np.full((groups, flat.shape[-1]), np.inf)
    with until(estimates.end), suppress(OutOfTime):
        centre, variance = _functionals(estimates, flat)
    count = families * each
    own = variance[:, :count].reshape(groups, families, each)
    together = variance[:, count:].reshape(groups, families, -1)
    out = np.zeros((groups, families, each, each))
    out[..., range(each), range(each)] = own
    with np.errstate(invalid="ignore"):
        shared = (together - own[..., one] - own[..., other]) / 2
    out[..., one, other] = out[..., other, one] = np.where(np.isfinite(shared), shared, np.inf)
    return centre[:, :count].reshape(groups, families, each), out


def of_ranges(estimates: Estimates, ranges: Ranges) -> Linear:
    """Return what the reports say about the shares of ranges of the values, in their order.

    If the channel has no structure for ranges they are functionals like others. If it has, each group may have its own ranges,
    shape (groups, ranges).
    """
    operator = estimates.likelihood.operator
    if not operator.lined:
        place = np.arange(operator.inputs)[:, None]
        return linear(estimates, ((place >= ranges.first) & (place < ranges.end)).astype(np.float64), sets=True)
    with until(estimates.end), suppress(OutOfTime):
        likelihood, z = estimates.likelihood, deviations(estimates.estimator.confidence)
        theta = likeliest(likelihood, estimates.fit)
        bounds = _around(*likelihood.of_ranges(theta, ranges), z)
        says_nothing = bounds.high - bounds.low > 2 + _ROUNDING
        return bounds._replace(std_error=np.where(says_nothing, np.inf, bounds.std_error))
    running = np.pad(estimates.fit.theta.cumsum(axis=1), ((0, 0), (1, 0)))
    first, end = (np.broadcast_to(ends, (len(running), ends.shape[-1])) for ends in ranges)
    return _unknown(np.take_along_axis(running, end, axis=1) - np.take_along_axis(running, first, axis=1))


def sample_mean(estimates: Estimates, x: Floats, off: float) -> Linear:
    """Return the unbiased mean of values x on a scale from 0 to 1: of `Mechanism.readings` if it has any, else of `linear`."""
    readings = estimates.source.derived(_readings) if isinstance(estimates.source, CertifiedValues) else None
    if readings is not None:
        z = deviations(estimates.estimator.confidence)
        with until(estimates.end), suppress(OutOfTime):
            law = estimates.likelihood.law(likeliest(estimates.likelihood, estimates.fit))
            groups = zip(estimates.likelihood.shares, *law, estimates.likelihood.n, strict=True)
            parts = [_mean(readings, shares, own, float(n)) for shares, *own, n in groups]
            mean, error = (np.stack(part) for part in zip(*parts, strict=True))
            half = half_width(error, float(readings.bias[0]) + off, z)
            return Linear(mean, error, mean - half, mean + half)
    return linear(estimates, x[:, None], off=off)


def _readings(certified: CertifiedMechanism) -> Majorants | None:
    """Return the readings of a mechanism with their largest bias; None if there are none, or they are biased."""
    operator, readings = operator_of(certified.mechanism), certified.mechanism.readings()
    if readings is None or readings.shape != (operator.outputs,):
        return None
    last = operator.inputs - 1
    readings = (readings * operator.inputs - 0.5) / last  # 0 is the first value, the centre of its bin, and 1 the last
    bias = float(np.abs(operator.adjoint(readings) - np.arange(last + 1) / last).max())
    return Majorants(readings[None], np.array([bias])) if bias < _UNBIASED else None


def _functionals(estimates: Estimates, c: Floats) -> tuple[Floats, Floats]:
    """Return c'v of an inversion v, or else of the debiased estimate, and its variance, each of shape (groups, functionals)."""
    likelihood, fit = estimates.likelihood, estimates.fit
    if set(fit.status) == {Status.INVERSION}:
        variance = likelihood.inverted_variances(simplex_projection(fit.theta), c)
        if variance is not None:
            each = np.broadcast_to(c, (len(fit.theta), *c.shape[-2:]))
            return np.einsum("gx,gxm->gm", normalised(fit.theta), each), variance
    return likelihood.functionals(likeliest(likelihood, fit), c)


def _around(centre: Floats, variance: Floats, z: float, off: float = 0.0) -> Linear:
    error = np.sqrt(np.maximum(variance, 0.0))
    half = half_width(error, off, z)
    return Linear(centre, error, centre - half, centre + half)


def _bounded(
    likelihood: Likelihood, weights: Bounding, theta: Floats, c: Floats, z: float, *, sets: bool, off: float = 0.0
) -> Linear:
    """Bound c'theta from above, and (1 - c)'theta of sets or -c'theta of others, which bounds it from below.

    Both bounds may be too low or too high at a time by at most ``off``, so `half_width` holds for the pair of them. Errors are
    those of the estimated law of the reports, or if that is not known, as of lists of reports, of the observed one.
    """
    law, parts = likelihood.law(theta), []
    each = np.broadcast_to(c, (len(theta), *c.shape[-2:]))
    for shares, *chances, n, own in zip(likelihood.shares, *law, likelihood.n, each, strict=True):
        over = weights.majorants(own, float(n), z, sets=sets)
        under = weights.majorants(1.0 - own if sets else -own, float(n), z, sets=sets)
        above, error = _mean(over, shares, chances, float(n))
        below, other = _mean(under, shares, chances, float(n))
        low, high = float(sets) - below - half_width(other, off, z), above + half_width(error, off, z)
        half = (above + below - float(sets) + z * (error + other)) / 2
        parts.append(((low + high) / 2, np.maximum(half, 0.0) / z, low, high))
    return Linear(*(np.stack(column) for column in zip(*parts, strict=True)))


def _mean(majorants: Majorants, shares: Floats, law: Sequence[Floats], n: float) -> tuple[Floats, Floats]:
    """Return the mean of the weights of the reports, and its standard error if the reports have this `Likelihood.law`."""
    chances, squares = law
    mean = majorants.weights @ chances
    variance = majorants.weights**2 @ squares - 2 * mean * (majorants.weights @ squares) + mean**2 * squares.sum()
    return majorants.weights @ shares, np.sqrt(np.maximum(variance, 0.0) / n)
