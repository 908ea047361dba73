"""Functionals of a distribution with errors and intervals: shares, linear ones c'theta, and ratios of two of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ldpsql.errors import OutOfTime
from ldpsql.inference.counting import operator_of
from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.limits import Limits, check, until
from ldpsql.inference.operators import Floats, Ranges
from ldpsql.inference.operators.weights import Bounding, Majorants
from ldpsql.inference.outcome import Fit, Status, normalised, simplex_projection
from ldpsql.inference.score_intervals import cut, deviations, exact_ends, half_width, log_fit_p_value, vote_scatter
from ldpsql.inference.solver.mle import TOLERANCE, maximum_likelihood
from ldpsql.mechanisms.base import CertifiedMechanism, CertifiedValues

if TYPE_CHECKING:
    from ldpsql.estimates.estimate import Estimates


FALSE_ALARM = 1e-12  # chance of refusing honest reports


@dataclass(frozen=True)
class Intervals:
    """Standard error and interval of every share, each of shape (groups, values)."""

    std_error: Floats
    low: Floats
    high: Floats


def intervals(likelihood: Likelihood, fit: Fit, confidence: float) -> Intervals:
    """Return the errors and intervals of every share, `bounded`.

    An inversion has its own, `Operator.inverted_interval`. All other estimates have those of the debiased estimate one step
    from the maximum of the likelihood, `Operator.interval`: see `Estimator`.
    """
    check()
    z = deviations(confidence)
    theta = fit.theta
    if fit.errors is not None:
        error, low, high = likelihood.widened(simplex_projection(theta), fit.errors)
        reach = z / deviations(0.95)
        low, high = theta - (theta - low) * reach, theta + (high - theta) * reach
    elif set(fit.status) == {Status.INVERSION}:
        error, low, high = likelihood.inverted_interval(simplex_projection(theta), z)
    else:
        error, low, high = likelihood.interval(likeliest(likelihood, fit), z)
    return bounded(fit, error, low, high, z)


def intervals_together(likelihood: Likelihood, fit: Fit, confidence: float) -> Intervals:
    """Return intervals of a confidence that is so high that all hold together; without votes, those of `intervals`.

    The number of votes for a value is binomial, and its interval is exact here: a normal one, whose ends are so far out, misses
    several times as often as it says if there are few votes.
    """
    votes = likelihood.operator.votes
    if votes is None:
        return intervals(likelihood, fit, confidence)
    inverted = likelihood.operator.invert(likelihood.shares)
    low, high = np.stack([exact_ends(v, n, votes, confidence) for v, n in zip(inverted, likelihood.n, strict=True)], axis=1)
    theta = simplex_projection(fit.theta)
    error, low, high = likelihood.widened(theta, (np.sqrt(vote_scatter(theta, votes) / likelihood.n[:, None]), low, high))
    return bounded(fit, error, low, high, deviations(confidence))


def bounded(fit: Fit, error: Floats, low: Floats, high: Floats, z: float) -> Intervals:
    """Return intervals `cut` to [0, 1] and widened to hold the estimate, unless it is regularised.

    The intervals of a regularised estimate are those of the unbiased one. Widened to hold the other, they would end at it, as
    if it were a bound.
    """
    low, high = cut(low, high, z * error)
    return Intervals(error, *holding(fit.theta, low, high, fit.regularised[:, None]))


def holding(estimate: Floats, low: Floats, high: Floats, regularised: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Return intervals widened to hold the estimates that are not regularised."""
    return np.where(regularised, low, np.minimum(low, estimate)), np.where(regularised, high, np.maximum(high, estimate))


def no_intervals(theta: Floats) -> Intervals:
    """Return infinite errors, and intervals that hold all that a share can be."""
    return Intervals(np.full_like(theta, np.inf), np.minimum(theta, 0.0), np.maximum(theta, 1.0))


def goodness_of_fit(likelihood: Likelihood) -> tuple[float, float]:
    """Return for one group a statistic of misfit, and the logarithm of a bound of its p-value.

    If all reports can be listed it is G^2 against the best distribution, otherwise the result of `Operator.law_fit`. The
    p-value also bounds that of the votes for values. Weights of rows do not count.
    """
    likelihood = likelihood.of_people
    op = likelihood.operator
    if not op.complete:
        return op.law_fit(likelihood.shares[0], float(likelihood.n[0]))
    misfit = likelihood.misfit(best_fit(likelihood))
    return float(misfit[0]), float(_log_p(likelihood, misfit)[0])


def suspicious(likelihood: Likelihood, theta: Floats) -> NDArray[np.bool_]:
    """Return for each group whether its values cannot be reports of the channel, whatever the true distribution is."""
    likelihood = likelihood.of_people
    if not likelihood.operator.complete:
        return np.zeros(len(theta), dtype=np.bool_)  # nearly all reports differ: frequencies cannot be compared
    limit = np.log(FALSE_ALARM)
    flagged = _log_p(likelihood, likelihood.misfit(simplex_projection(theta))) < limit
    for i in np.flatnonzero(flagged):  # theta itself may be a poor fit: only the best one counts
        one = likelihood.group(int(i))
        flagged[i] = _log_p(one, one.misfit(best_fit(one)))[0] < limit
    return flagged


def _log_p(likelihood: Likelihood, misfit: Floats) -> Floats:
    """Return ln of a bound of the p-value of two tests: of G^2, and of the votes for values."""
    op = likelihood.operator
    both = log_fit_p_value(misfit, op.outputs), op.log_votes_p_value(likelihood.shares, likelihood.n)
    return np.minimum(0.0, np.minimum(*both) + np.log(2.0))


def likeliest(likelihood: Likelihood, fit: Fit) -> Floats:
    """Return the maximum of the likelihood of every group, whatever the estimator is; the estimate if that is not needed."""
    if likelihood.operator.large or likelihood.operator.consistent:
        return fit.theta
    certified = set(fit.status) == {Status.CERTIFIED}
    return fit.theta if certified and (likelihood.gap(fit.theta) <= TOLERANCE).all() else best_fit(likelihood)


def best_fit(likelihood: Likelihood) -> Floats:
    """Return the distribution that explains the reports best, or close to it; see `maximum_likelihood`, which remembers it."""
    return maximum_likelihood(likelihood, limits=Limits(20 if likelihood.operator.large else 100)).theta


_SLACK = 1e-6
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
            bounds = _of_variance(*_functionals(estimates, c), z, off)
        else:
            theta = likeliest(estimates.likelihood, estimates.fit)
            bounds = _between_bounds(estimates.likelihood, weights, theta, c, z, sets=sets, off=off)
        says_nothing = bounds.high - bounds.low > 2 * np.ptp(c, axis=-2) + _SLACK
        if sets and weights is not None:
            says_nothing |= (bounds.low <= _SLACK) & (bounds.high >= 1.0 - _SLACK)
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
        bounds = _of_variance(*likelihood.of_ranges(theta, ranges), z)
        says_nothing = bounds.high - bounds.low > 2 + _SLACK
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


def _of_variance(centre: Floats, variance: Floats, z: float, off: float = 0.0) -> Linear:
    error = np.sqrt(np.maximum(variance, 0.0))
    half = half_width(error, off, z)
    return Linear(centre, error, centre - half, centre + half)


def _between_bounds(
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


# Ratios of two functionals of a distribution, such as conditional shares and means, and differences between them.
#
# The delta method fails for a ratio whose denominator is not clearly positive. So intervals are those of Fieller, and
# differences are those that a test of two ratios at once does not reject: both hold however small the denominators are, and
# use only that the functionals are normal around the truth.

_STEPS = 40  # halvings of an interval
_ANGLES = 48  # at which a test is looked at first
_MINIMA, _CLOSER, _ZOOMS = 3, 16, 5  # the local minima that are looked at again, at how many angles, and how often
_WIDEST = np.pi / 2 - 1e-3  # an angle: ratios up to a thousand
_SMALLEST = 1e-300
_ZERO = 1e-13  # relative: variances below it are those of zero


class Pair(NamedTuple):
    """The numerator and the denominator of ratios, with their variances and covariance; fields of one shape."""

    top: Floats
    bottom: Floats
    tops: Floats
    both: Floats
    bottoms: Floats

    @property
    def unknown(self) -> NDArray[np.bool_]:
        """Whether the reports say nothing about one of them."""
        return np.asarray(~np.isfinite(self.tops + self.both + self.bottoms))


def ratio(pair: Pair) -> Floats:
    """Return the ratio; 0 if the denominator is not positive."""
    positive = pair.bottom > 0
    return np.where(positive, pair.top / np.where(positive, pair.bottom, 1.0), 0.0)


def fieller(pair: Pair, z: float, least: float, most: float) -> tuple[Floats, Floats]:
    """Return the ends of the ratios r between ``least`` and ``most`` for which top - r bottom is within z errors of zero.

    If the denominator is within z errors of zero, that may be all of them, or all but some between: then it is the shortest
    interval that holds them, or all if none is left. An interval around a clearly positive denominator is cut to these ratios
    and its own only if it is wider than all of them.
    Source: Fieller, "Some problems in interval estimation", Journal of the Royal Statistical Society B 1954.
    """
    known = ~pair.unknown
    top, bottom, tops, both, bottoms = (np.where(known, part, 0.0) for part in pair)
    lead, half = bottom**2 - z**2 * bottoms, top * bottom - z**2 * both
    root = half**2 - lead * (top**2 - z**2 * tops)
    clear = known & (lead > 0) & (bottom > 0)
    reach = np.sqrt(np.maximum(root, 0.0))
    lead = np.where(lead == 0, _SMALLEST, lead)
    first, last = np.sort([(half - reach) / lead, (half + reach) / lead], axis=0)
    gap = known & ~clear & (root > 0) & (lead < 0)  # ratios between the two are excluded
    low = np.where(gap & (first < least) & (least < last) & (last < most), last, least)
    high = np.where(gap & (last > most) & (least < first) & (first < most), first, most)
    wide, own = last - first > most - least, ratio(pair)
    first = np.where(wide, np.maximum(first, np.minimum(own, least)), first)
    last = np.where(wide, np.minimum(last, np.maximum(own, most)), last)
    return np.where(clear, first, low), np.where(clear, last, high)


class Two(NamedTuple):
    """Two ratios: numerator and denominator of each, shape (groups, 4), and their covariance, shape (groups, 4, 4)."""

    centre: Floats
    covariance: Floats

    @property
    def pairs(self) -> tuple[Pair, Pair]:
        """The two ratios by themselves."""
        v = self.covariance
        one, other = (
            Pair(self.centre[:, i], self.centre[:, i + 1], v[:, i, i], v[:, i, i + 1], v[:, i + 1, i + 1]) for i in (0, 2)
        )
        return one, other

    @property
    def unknown(self) -> NDArray[np.bool_]:
        """Whether the reports say nothing about one of the functionals."""
        return np.asarray(~np.isfinite(self.covariance).all(axis=(1, 2)))

    @property
    def middle(self) -> Floats:
        """The first ratio less the second."""
        one, other = map(ratio, self.pairs)
        return one - other

    @property
    def error(self) -> Floats | None:
        """The standard error of the difference if no denominator has an error, as those of shares of all; else None."""
        one, other = self.pairs
        scale = _ZERO * np.abs(self.covariance).max(axis=(1, 2))
        exact = (np.abs(self.covariance[:, 1::2]).max(axis=(1, 2)) <= scale) & (one.bottom > 0) & (other.bottom > 0)
        if not exact.all():
            return None
        both = self.covariance[:, 0, 2] / (one.bottom * other.bottom)
        variance = one.tops / one.bottom**2 + other.tops / other.bottom**2 - 2 * both
        return np.sqrt(variance) if (variance > scale).all() else None

    def filled(self) -> Two:
        """Return both functionals with a finite covariance, the identity where it is unknown."""
        return Two(self.centre, np.where(self.unknown[:, None, None], np.eye(4), self.covariance))


def statistic(two: Two, difference: Floats) -> Floats:
    """Return how far the reports are from ratios with this difference, at most as much as a chi-square with one degree is.

    It is the least, over all second ratios r, of the squared distance of both numerators from r times their denominators, in
    units of its errors. Where denominators are weak it is smaller than a chi-square.
    Source: Anderson, Rubin, "Estimation of the parameters of a single equation", Annals of Mathematical Statistics 1949;
    Guggenberger and others, "On the asymptotic sizes of subset Anderson-Rubin tests", Econometrica 2012.

    Args:
        two: the ratios of each group.
        difference: the first ratio less the second, shape (groups,).

    """
    if (error := two.error) is not None:
        return np.asarray(((two.middle - difference) / error) ** 2)
    one, other = (ratio(pair) for pair in two.pairs)
    ends = np.stack([np.arctan(other), np.arctan(one - difference)], axis=1)
    along = np.linspace(0.0, 1.0, _ANGLES)
    angles = np.concatenate(
        [
            np.broadcast_to(np.linspace(-_WIDEST, _WIDEST, _ANGLES), (len(ends), _ANGLES)),
            ends[:, :1] + (ends[:, 1:] - ends[:, :1]) * along,
        ],
        axis=1,
    )
    angles = np.sort(angles, axis=1)
    distances = _distance(two, difference, angles)
    # A share that is 0 or 1 for certain is the second ratio at one angle only, which is among these and not among closer ones.
    least = distances.min(axis=1)
    # The distance is a fraction of degree 4, and has at most three local minima.
    walled = np.pad(distances, ((0, 0), (1, 1)), constant_values=np.inf)
    low = (distances <= walled[:, :-2]) & (distances <= walled[:, 2:])
    before, after = _neighbours(angles, np.argsort(np.where(low, distances, np.inf), axis=1)[:, :_MINIMA])
    for _ in range(_ZOOMS):
        angles = before[..., None] + (after - before)[..., None] * np.linspace(0.0, 1.0, _CLOSER)
        distances = _distance(two, difference, angles.reshape(len(ends), -1)).reshape(angles.shape)
        before, after = (end[..., 0] for end in _neighbours(angles, distances.argmin(axis=-1)[..., None]))
    return np.minimum(least, distances.min(axis=(1, 2)))


def _neighbours(angles: Floats, at: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Return the angles before and after those at these places."""
    last = angles.shape[-1] - 1
    before, after = (np.take_along_axis(angles, place, axis=-1) for place in (np.maximum(at - 1, 0), np.minimum(at + 1, last)))
    return before, after


def _distance(two: Two, difference: Floats, angles: Floats) -> Floats:
    """Return the squared distance for second ratios that are the tangents of angles, shape (groups, angles)."""
    cosine, sine = np.cos(angles), np.sin(angles)
    none = np.zeros_like(angles)
    one = np.stack([cosine, -(sine + difference[:, None] * cosine), none, none], axis=-1)
    other = np.stack([none, none, cosine, -sine], axis=-1)
    u, v = ((row @ two.centre[:, :, None])[..., 0] for row in (one, other))
    moved, turned = one @ two.covariance, other @ two.covariance
    uu, uv, vv = (moved * one).sum(-1), (moved * other).sum(-1), (turned * other).sum(-1)
    scale = np.abs(two.covariance).max(axis=(1, 2))[:, None]
    uu, vv = np.maximum(uu, _ZERO * scale), np.maximum(vv, _ZERO * scale)
    # Half of the sum and of the difference of u and v, in units of their errors, are independent, also if both are the same.
    own, other, both = u / np.sqrt(uu), v / np.sqrt(vv), np.clip(uv / np.sqrt(uu * vv), -1.0, 1.0)
    return np.asarray(((own + other) ** 2 / np.maximum(1 + both, _ZERO) + (own - other) ** 2 / np.maximum(1 - both, _ZERO)) / 2)


def differences_within(two: Two, z: float, most: float) -> tuple[Floats, Floats, Floats]:
    """Return the middle and the ends of the differences whose `statistic` is at most z^2, from -most to most."""
    middle = np.clip(two.middle, -most, most)
    if (error := two.error) is not None:
        return middle, np.clip(two.middle - z * error, -most, most), np.clip(two.middle + z * error, -most, most)
    both = Two(*(np.concatenate([part, part]) for part in two))  # one group for each end
    inside, far = np.concatenate([middle, middle]), np.repeat([-most, most], len(middle))
    outside, reached = far, statistic(both, far) <= z**2
    for _ in range(_STEPS):
        half = (inside + outside) / 2
        holds = statistic(both, half) <= z**2
        inside, outside = np.where(holds, half, inside), np.where(holds, outside, half)
    low, high = np.split(np.where(reached, far, inside), 2)
    return middle, low, high


FIELDS = ("estimate", "std_error", "low", "high")  # that all numbers with errors have
_ROUNDING = 1e-12  # of the range: shares that sum to one may add up to a little more


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

    @staticmethod
    def stacked(parts: Sequence[Measure]) -> Measure:
        """Return several numbers as one, each field of shape (groups, numbers)."""
        return _joined((np.stack([getattr(part, name) for part in parts], axis=1) for name in FIELDS), parts[0].rounding)

    @staticmethod
    def joined(parts: Sequence[Measure]) -> Measure:
        """Return parts of several numbers as one, each field of shape (groups, numbers)."""
        return _joined((np.concatenate([getattr(part, name) for part in parts], axis=1) for name in FIELDS), parts[0].rounding)

    def at(self, place: int) -> Measure:
        """Return one of several numbers."""
        return _joined((getattr(self, name)[:, place] for name in FIELDS), self.rounding)

    def scaled(self, unit: float, zero: float = 0.0) -> Measure:
        """Return the numbers ``zero + unit * number``, with their errors and intervals."""
        return Measure(zero + unit * self.estimate, unit * self.std_error, zero + unit * self.low, zero + unit * self.high)


def _joined(columns: Iterable[Floats], rounding: float) -> Measure:
    estimate, error, low, high = columns
    return Measure(estimate, error, low, high, rounding)


class Functional(ABC):
    """A number about a distribution over ordered values."""

    @abstractmethod
    def measure(self, estimates: Estimates) -> Measure:
        """Return the number for every group.

        Raises:
            InvalidDomain: if the values have no order.

        """


class TableFunctional(Functional):
    """A number about columns of a table, given by their places."""

    @property
    @abstractmethod
    def touched(self) -> frozenset[int]:
        """The places of the columns that the number depends on; none stands for all."""

    @abstractmethod
    def among(self, places: Sequence[int]) -> Self:
        """Return the same number for a table that has the columns at these places only."""


def around(estimates: Estimates, estimate: Floats | None, bounds: Linear, least: float, most: float) -> Measure:
    """Return an estimate of one functional with its interval `cut_to`; None stands for the unbiased estimate."""
    regularised = estimates.fit.regularised
    if estimate is None:  # may lie outside of what the functional can be
        estimate, regularised = bounds.centre[:, 0], np.zeros_like(regularised)
    return cut_to(Measure(estimate, bounds.std_error[:, 0], bounds.low[:, 0], bounds.high[:, 0]), least, most, regularised)


def cut_to(measure: Measure, least: Floats | float, most: Floats | float, regularised: NDArray[np.bool_]) -> Measure:
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
