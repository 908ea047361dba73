"""Ratios of two functionals of a distribution, such as conditional shares and means, and differences between them.

The delta method fails for a ratio whose denominator is not clearly positive. So intervals are those of Fieller, and differences
are those that a test of two ratios at once does not reject: both hold however small the denominators are, and use only that
the functionals are normal around the truth.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ldpsql.inference.operators import Floats

_STEPS = 40  # halvings of an interval
_ANGLES = 48  # at which a test is looked at first
_MINIMA, _CLOSER, _ZOOMS = 3, 16, 5  # the local minima that are looked at again, at how many angles, and how often
_WIDEST = np.pi / 2 - 1e-3  # an angle: ratios up to a thousand
_SMALLEST = 1e-300
_ROUNDING = 1e-13  # relative: variances below it are those of zero


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
        scale = _ROUNDING * np.abs(self.covariance).max(axis=(1, 2))
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
    before, after = _around(angles, np.argsort(np.where(low, distances, np.inf), axis=1)[:, :_MINIMA])
    for _ in range(_ZOOMS):
        angles = before[..., None] + (after - before)[..., None] * np.linspace(0.0, 1.0, _CLOSER)
        distances = _distance(two, difference, angles.reshape(len(ends), -1)).reshape(angles.shape)
        before, after = (end[..., 0] for end in _around(angles, distances.argmin(axis=-1)[..., None]))
    return np.minimum(least, distances.min(axis=(1, 2)))


def _around(angles: Floats, at: NDArray[np.int64]) -> tuple[Floats, Floats]:
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
    uu, vv = np.maximum(uu, _ROUNDING * scale), np.maximum(vv, _ROUNDING * scale)
    # Half of the sum and of the difference of u and v, in units of their errors, are independent, also if both are the same.
    own, other, both = u / np.sqrt(uu), v / np.sqrt(vv), np.clip(uv / np.sqrt(uu * vv), -1.0, 1.0)
    return np.asarray(
        ((own + other) ** 2 / np.maximum(1 + both, _ROUNDING) + (own - other) ** 2 / np.maximum(1 - both, _ROUNDING)) / 2
    )


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
