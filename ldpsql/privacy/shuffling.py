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

Of two possible reports, only the number of the second one is left to see: a sum of coins, whose law is computed. See `Coins`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import singledispatch
from itertools import pairwise
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
_MOST_COINS = 10**7
_SPLITS = 50  # of people into those of the one and of the other probability, while one of these is rare
_PMF = 1e-11  # relative error of the law of so many coins: those of two binomial laws were at most 3e-12
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
    """Return the central epsilon of this many shuffled reports for a delta."""
    witness = channel.widest()
    if witness is None:
        raise NotPrivate("some report rules a value out, so shuffling has no bound", "use a mechanism without delta")
    if witness.ratio == 1:
        return Central(0.0, 0.0, 0.0)
    local = log_ratio(witness.ratio)
    difference = variation(channel) or (witness.ratio - 1) / (witness.ratio + 1)  # the largest that the ratio allows
    hidden, seen, doubted = hiding(witness.ratio, difference), list(_seen(channel)), delta * (1 - _DOUBTFUL_SHARE) - _DOUBT
    above = _crossing(lambda epsilon: divergence(hidden, epsilon, reports, up=True), doubted, local)
    if isinstance(channel, TableChannel) and channel.outputs == 2:
        above = min(above, _crossing(Coins.of(channel, reports).divergence, doubted, local))
    below = _crossing(
        lambda epsilon: max((divergence(kinds, epsilon, reports, up=False) for kinds in seen), default=0.0), delta, local
    )
    return Central(min(above * (1 + _APART), local), below * (1 - _APART), local)


def hiding(ratio: Fraction, difference: Fraction) -> Kinds:
    """Return kinds of reports that reveal at least as much as any channel with this ratio and this total variation."""
    low = difference / (ratio - 1)
    high, common = ratio * low, 1 - (ratio + 1) * low
    kinds = [(high, low, low), (low, high, low)] + [(common, common, common / ratio)] * (common > 0)
    return Kinds(*(tuple(float(p) for p in chances) for chances in zip(*kinds, strict=True)))


def _crossing(divergence: Callable[[float], float], delta: float, local: float) -> float:
    """Return the epsilon between 0 and ``local`` at which a falling divergence is this delta."""
    from scipy.optimize import brentq  # noqa: PLC0415  # slow to import

    def excess(epsilon: float) -> float:
        return divergence(epsilon) / delta - 1

    if delta > 0 and excess(0.0) <= 0:
        return 0.0
    return float(brentq(excess, 0.0, local, xtol=_APART * 1e-3, rtol=_APART / 4)) if delta > 0 and excess(local) < 0 else local


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


class Coins(NamedTuple):
    """The number of second reports among those of everybody else, of channels with two reports, for splits of the people.

    A divergence is convex in each probability of a second report, so it is largest if everybody has the least or the largest
    one. It never grows with another person, whose report is noise on the number. So people of whom at least k have the one
    probability and at least m the other reveal at most what k and m people do: a split stands for all those up to the next.
    """

    least: float
    largest: float
    laws: list[Floats]
    doubt: float

    @classmethod
    def of(cls, channel: TableChannel, reports: int) -> Coins:
        """Return the numbers for this many reports, or for fewer, which reveal more."""
        from scipy.stats import binom  # noqa: PLC0415  # slow to import

        second = channel.rows(np.arange(channel.inputs, dtype=np.int32))[:, 1] / float(TOTAL)
        least, largest = float(second.min()), float(second.max())
        others = min(reports, _MOST_COINS) - 1
        half = (others + 1) / 2 * np.linspace(0, 1, _SPLITS + 1) ** 1.5  # closer where the largest divergence mostly is
        splits = np.unique(np.concatenate([half, others + 1 - half]).astype(np.int64))
        laws, doubt = [], 0.0
        for k, beyond in pairwise(splits):
            parts = [binom.pmf(_likely(people, p), people, p) for people, p in ((k, least), (others + 1 - beyond, largest))]
            size = len(parts[0]) + len(parts[1]) - 1
            law = np.fft.irfft(np.prod([np.fft.rfft(part, 2 * size) for part in parts], axis=0), 2 * size)[:size]
            laws.append(np.pad(np.maximum(law, 0.0), 1))
            # of a discrete Fourier transform: Higham, "Accuracy and Stability of Numerical Algorithms", theorem 24.2
            rounding = 8 * np.finfo(float).eps * np.log2(4 * size) * np.sqrt(np.prod([part @ part for part in parts]))
            doubt = max(doubt, size * float(rounding) + 4 * _OUTSIDE)
        return cls(least, largest, laws, doubt)

    def divergence(self, epsilon: float) -> float:
        """Return a bound from above of the sum of max(0, P - e^epsilon Q) over the numbers of second reports of all people."""
        grown = exp(epsilon)
        both = np.array([(self.largest, self.least), (self.least, self.largest)])
        own, other = both[:, 0], both[:, 1]
        apart = np.stack([own - grown * other, 1 - own - grown * (1 - other)], axis=1)
        apart += _PMF * abs(apart)
        sums = [np.maximum(more * law[:-1] + less * law[1:], 0.0).sum() for law in self.laws for more, less in apart.tolist()]
        return float(max(sums)) + (1 + grown) * self.doubt


def _likely(people: int, p: float) -> Floats:
    """Return almost all numbers of successes in some trials."""
    from scipy.stats import binom  # noqa: PLC0415  # slow to import

    low, high = binom.ppf(_OUTSIDE, people, p), people - binom.ppf(_OUTSIDE, people, 1 - p)
    return np.arange(max(low, 0), high + 1)


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
