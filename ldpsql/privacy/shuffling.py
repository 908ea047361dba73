"""Central privacy of shuffled reports: what n reports in random order, without ids, reveal about one of the n people.

Two numbers of the channel are enough: the largest ratio p of the probabilities of a report given two values, and the largest
total variation b between the reports of two values. With a = b / (p - 1), a person with one value sends a report of the first
kind with probability pa and of the second kind with probability a, a person with the other value the other way round, and
both send a common kind otherwise. Everybody else sends each of these kinds with at least the p-th part of its larger
probability, whatever they hold. So the numbers of reports of each kind reveal at least as much as the shuffled reports.

Sources: Feldman, McMillan, Talwar, "Hiding among the clones", FOCS 2021, and "Stronger privacy amplification by shuffling",
SODA 2023, whose bound is the case b = (p - 1) / (p + 1), without a common kind; Wang et al., "Privacy amplification via
shuffling: unified, simplified, and tightened", VLDB 2024, for p and b. That paper counts the common kind together with all
other reports. Here it has a count of its own, as few reports may otherwise reveal more than the bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import singledispatch
from math import exp
from typing import Any, NamedTuple

import numpy as np

from ldpsql.channels import TOTAL, ChannelOf, Floats, KeepOrSpread, SetChannel, TableChannel, Weights
from ldpsql.channels.exact import log_ratio
from ldpsql.errors import NotPrivate

_MOST_TERMS = 1 << 31  # of weights that are subtracted to compare all values with each other
_OUTSIDE = 1e-20  # the probability beyond each end of the numbers of special reports that are looked at
_BLOCKS = (2000, 24)  # of the numbers of reports of the second and the third kind
_ROUNDING = 1e-9
_DOUBT = 2e-15  # of a computed delta, and this share of it
_DOUBTFUL_SHARE = 1e-6
_APART = 1e-5  # relative: how far the bound lies from where delta crosses


class Kinds(NamedTuple):
    """Probabilities of kinds of reports: ``own`` given one value, ``other`` given another, ``rest`` of everybody else.

    The first kind is more likely given the one value, no other kind is. Reports of everybody else may be of no kind.
    """

    own: tuple[float, ...]
    other: tuple[float, ...]
    rest: tuple[float, ...]


class Central(NamedTuple):
    """Epsilon of the shuffled reports for a delta, between ``at_least`` and ``epsilon``; ``local`` is that of one report."""

    epsilon: float
    at_least: float
    local: float


def central(channel: ChannelOf[Any], reports: int, delta: float) -> Central:
    """Return the central epsilon of this many shuffled reports for a delta.

    Raises:
        NotPrivate: if some report rules a value out.

    """
    witness = channel.widest()
    if witness is None:
        raise NotPrivate("some report rules a value out, so shuffling has no bound", "use a mechanism without delta")
    if witness.ratio == 1:
        return Central(0.0, 0.0, 0.0)
    local = log_ratio(witness.ratio)
    difference = variation(channel) or (witness.ratio - 1) / (witness.ratio + 1)  # the largest that the ratio allows
    above = _crossing([hiding(witness.ratio, difference)], reports, delta * (1 - _DOUBTFUL_SHARE) - _DOUBT, local, up=True)
    below = _crossing([*_seen(channel)], reports, delta, local, up=False)
    return Central(min(above * (1 + _APART), local), below * (1 - _APART), local)


def hiding(ratio: Fraction, difference: Fraction) -> Kinds:
    """Return kinds of reports that reveal at least as much as any channel with this ratio and this total variation."""
    low = difference / (ratio - 1)
    high, common = ratio * low, 1 - (ratio + 1) * low
    kinds = [(high, low, low), (low, high, low)] + [(common, common, common / ratio)] * (common > 0)
    return Kinds(*(tuple(float(p) for p in chances) for chances in zip(*kinds, strict=True)))


def _crossing(views: list[Kinds], reports: int, delta: float, local: float, *, up: bool) -> float:
    """Return the epsilon between 0 and ``local`` at which delta falls below this one in all views."""
    from scipy.optimize import brentq  # noqa: PLC0415  # slow to import

    def excess(epsilon: float) -> float:
        return max((divergence(kinds, epsilon, reports, up=up) for kinds in views), default=0.0) / delta - 1

    if excess(0.0) <= 0:
        return 0.0
    return float(brentq(excess, 0.0, local, xtol=_APART * 1e-3, rtol=_APART / 4)) if excess(local) < 0 else local


def divergence(kinds: Kinds, epsilon: float, reports: int, *, up: bool) -> float:
    """Return a bound of the sum of max(0, P - e^epsilon Q) over the numbers of reports of each kind, from above or below.

    With N the numbers of reports if all people were like the rest, it is E[max(0, sum x N)] / n, where x is (own - e^epsilon
    other) / rest of each kind. Only the first x is positive, so the sum falls with the other numbers: they are taken in blocks,
    at the end of each block that gives a bound. What is left is a tail of a binomial law.
    """
    from scipy.stats import binom  # noqa: PLC0415  # slow to import

    gains = [((own - exp(epsilon) * other) / rest, rest) for own, other, rest in zip(*kinds, strict=True)]
    (gain, share), *losses = [gains[0], *sorted(gains[1:])]
    if gain <= 0:
        return 0.0
    level = losses.pop()[0] if sum(kinds.rest) > 1 - _ROUNDING else 0.0  # then the last kind is all that is left
    left = bound = np.array([float(reports)])
    lost, chance, part = -level * left, np.ones(1), 1.0
    for (loss, rest), most in zip(losses, _BLOCKS, strict=False):
        blocks = _Blocks.of(bound, rest / part, most)
        taken = blocks.ends(up=up)
        left, bound, lost, chance = (
            each.ravel()
            for each in (left - taken, bound - blocks.ends(up=not up), lost - (loss - level) * taken, chance * blocks.chance)
        )
        part -= rest
    left, share = np.maximum(left, 0), min(share / part, 1.0)
    start = np.ceil(lost / (gain - level))
    mean = (gain - level) * left * share * binom.sf(start - 2, np.maximum(left - 1, 0), share)
    over = np.maximum(mean - lost * binom.sf(start - 1, left, share), 0.0)
    return float((chance * over).sum()) / reports + (4 * _OUTSIDE if up else 0.0)


class _Blocks(NamedTuple):
    """Blocks of almost all numbers of successes in some trials, each of shape (blocks, trials)."""

    first: Floats
    last: Floats
    chance: Floats

    @classmethod
    def of(cls, trials: Floats, share: float, most: int) -> _Blocks:
        """Return at most this many blocks, about."""
        from scipy.stats import binom  # noqa: PLC0415  # slow to import

        low, high = binom.ppf(_OUTSIDE, trials, share), trials - binom.ppf(_OUTSIDE, trials, 1 - share)
        size = np.maximum(np.ceil((high - low + 1) / most), 1)
        first = np.maximum(low, 0) + size * np.arange(int(((high - low) // size).max()) + 1)[:, None]
        last = np.minimum(first + size - 1, trials)
        return cls(first, last, np.maximum(binom.cdf(last, trials, share) - binom.cdf(first - 1, trials, share), 0.0))

    def ends(self, *, up: bool) -> Floats:
        """Return the end of each block that bounds a falling function from above, or from below."""
        return self.first if up else self.last


@singledispatch
def variation(channel: ChannelOf[Any]) -> Fraction | None:  # noqa: ARG001  # what is registered below reads it
    """Return the largest total variation between the reports of two values; None if nothing better than the ratio is known."""
    return None


@variation.register
def _(channel: SetChannel) -> Fraction:
    return abs(channel.hit - channel.miss)


@variation.register
def _(channel: KeepOrSpread) -> Fraction:
    return Fraction(channel.keep - channel.spread, TOTAL)


@variation.register
def _(channel: TableChannel) -> Fraction | None:
    if channel.inputs**2 * channel.outputs > _MOST_TERMS:
        return None
    weights = channel.weights()
    return _difference(weights, *_farthest(weights))


def _farthest(weights: Weights) -> tuple[int, int]:
    """Return two values whose reports differ most; of almost equal pairs any."""
    from scipy.spatial.distance import cdist  # noqa: PLC0415  # slow to import

    shares = weights / float(TOTAL)
    x, other = divmod(int(cdist(shares, shares, "cityblock").argmax()), len(shares))
    return x, other


def _difference(weights: Weights, x: int, other: int) -> Fraction:
    """Return the total variation between the reports of two values, exactly."""
    pairs = zip(weights[x].tolist(), weights[other].tolist(), strict=True)
    return Fraction(sum(max(a - b, 0) for a, b in pairs), TOTAL)


@singledispatch
def _seen(channel: ChannelOf[Any]) -> Iterator[Kinds]:  # noqa: ARG001
    """Yield what somebody can count who knows the values of everybody else: each of them gives a lower bound."""
    yield from ()


@_seen.register
def _(channel: SetChannel) -> Iterator[Kinds]:
    hit, miss = float(channel.hit), float(channel.miss)
    supports, others = (hit, 1 - hit), (miss, 1 - miss)
    yield Kinds(supports, others, others) if hit > miss else Kinds(supports[::-1], others[::-1], others[::-1])


@_seen.register
def _(channel: TableChannel) -> Iterator[Kinds]:
    large = channel.inputs**2 * channel.outputs > _MOST_TERMS
    few = np.arange(min(channel.inputs, 3), dtype=np.int32)
    weights = channel.rows(few) if large or isinstance(channel, KeepOrSpread) else channel.weights()
    x, other = _farthest(weights)
    more, less = weights[x] > weights[other], weights[x] < weights[other]
    sums = [weights[:, reports].sum(axis=1, dtype=float) / TOTAL for reports in (more, less, ~more & ~less)]
    rarest = int((sums[0] + sums[1]).argmin())  # everybody else holds the value that hides least
    for rest in {rarest, x, other}:
        used = [row for row in sums if row[rest] > 0]
        yield Kinds(*(tuple(float(row[place]) for row in used) for place in (x, other, rest)))
