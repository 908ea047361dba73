"""Proof by whole numbers that a channel keeps its claim, also noise on the plane, per unit of Euclidean distance.

Doubles have one purpose: to discard pairs that are farther from the limit than doubles can err. Comparisons of products of
whole numbers decide about the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import singledispatch
from math import inf, prod
from typing import Any, TypeAlias

import numpy as np

from ldpsql.channels import TOTAL, ChannelOf, PlanarNoise, TableChannel, UndrawnChannel, Weights, Witness, structure
from ldpsql.channels.dense import estimates_only
from ldpsql.channels.exact import exp_below, highest_log_ratios, log_ratio
from ldpsql.errors import InternalError, NotPrivate
from ldpsql.privacy.claims import ApproximateLdp, Claim, Grid, Line, MetricLdp, NoClaim, PureLdp, own_claim, root_below

# Proof by whole numbers that noise on the plane keeps an epsilon for each unit of Euclidean distance.
#
# With W(n) the weight of a point at squared distance n from the centre of the value's cell, that is
#
#     W(n) <= e^(epsilon max(1, sqrt(m) - sqrt(n))) W(m)    for all n < m,  with distances in cells.
#
# `channels/PROOFS.md` says why.
#
# Doubles accept pairs that are farther from the limit than they can err, and whole numbers decide about the others.

_DOUBT = 1e-12  # logarithms up to 45 and exponents as large err by less than 1e-13
_MOST_DECIDED = 4096  # pairs that whole numbers decide about; with more, the claim counts as exceeded
_ROOT_ERROR = Fraction(1, 10**29)


def kept_by(channel: PlanarNoise, exponent: Fraction) -> float | None:
    """Return the smallest exponent per cell that the noise keeps, to double precision; None if it is above ``exponent``."""
    weights = np.append(channel.falling, np.uint64(0)) + np.uint64(channel.spread)  # the last one holds from there on
    noise = _Noise(weights, channel.points)
    if not (noise.near_keep(exponent) and noise.far_keep(exponent)):
        return None
    return min(noise.steepest(), float(exponent))


class _Noise:
    """The weights W(n), with the pairs that are compared."""

    def __init__(self, weights: Weights, points: int) -> None:
        self._weights, self._points = weights, points
        self._logs, squares = np.log(weights.astype(np.float64)), np.arange(len(weights), dtype=np.int64)
        self._distances = np.sqrt(squares) / points
        # sqrt(m) = sqrt(n) + points, solved for m and for n; roots of whole numbers below 2**52 round to the right side.
        bend = np.sqrt((4 * points**2 * squares).astype(np.float64))
        self._ahead = np.minimum(squares + points**2 + np.floor(bend).astype(np.int64), len(weights) - 1)
        far = squares[points**2 :]
        self._behind = far + points**2 - np.ceil(bend[points**2 :]).astype(np.int64)
        self._far = points**2

    def near_keep(self, exponent: Fraction) -> bool:
        """Return whether pairs at most one cell apart keep the exponent."""
        doubtful = np.flatnonzero(self._logs - self._logs[self._ahead] > float(exponent) - _DOUBT)
        limit, pairs = exp_below(exponent), {(int(self._weights[n]), int(self._weights[self._ahead[n]])) for n in doubtful}
        return all(high * limit.denominator <= limit.numerator * low for high, low in pairs)

    def far_keep(self, exponent: Fraction) -> bool:
        """Return whether pairs more than one cell apart keep the exponent for each cell."""
        tilted = self._logs + float(exponent) * self._distances
        highest = np.maximum.accumulate(tilted)
        left = _MOST_DECIDED
        for at in np.flatnonzero(highest[self._behind] > tilted[self._far :] - _DOUBT):
            m = int(at) + self._far
            for n in np.flatnonzero(tilted[: self._behind[at] + 1] > tilted[m] - _DOUBT):
                left -= 1
                if left < 0 or not self._keeps(int(n), m, exponent):
                    return False
        return True

    def _keeps(self, n: int, m: int, exponent: Fraction) -> bool:
        """Return whether one pair keeps the exponent: the distance is rounded down."""
        apart = max(Fraction(0), root_below(m) - root_below(n) - _ROOT_ERROR) / self._points
        limit = exp_below(exponent * apart)
        return int(self._weights[n]) * limit.denominator <= limit.numerator * int(self._weights[m])

    def steepest(self) -> float:
        """Return the largest logarithm of a ratio for each cell of distance: each round raises it to that of some pair."""
        steepest = float((self._logs - self._logs[self._ahead]).max())
        while True:
            tilted = self._logs + steepest * self._distances
            highest = np.maximum.accumulate(tilted)[self._behind] - tilted[self._far :]
            if not len(highest) or highest.max() <= _DOUBT:
                return steepest
            at = int(highest.argmax())
            m, n = at + self._far, int(tilted[: self._behind[at] + 1].argmax())
            steeper = float((self._logs[n] - self._logs[m]) / (self._distances[m] - self._distances[n]))
            if not steepest < steeper < inf:
                return steepest
            steepest = steeper


Channel: TypeAlias = ChannelOf[Any]

# Natural logarithms of weights up to 2**64 err by less than 2e-14, exponents in doubles below 64 by about as much.
_LOG_DOUBT = 1e-12
_DELTA_DOUBT = 2.0**-44  # sums of at most 2**20 products of doubles, in shares of TOTAL


@dataclass(frozen=True)
class Certificate:
    """The privacy that a channel realises, next to its claim.

    ``value``, ``other`` and ``report`` are the positions that come closest to the limit, and ``ratio`` is the exact
    P(report|value)/P(report|other) there, or None if it is infinite, which only a claim with delta allows. ``epsilon`` is the
    smallest that the channel keeps: for metric privacy per unit of distance, for a claim with delta the claimed epsilon. For
    noise on a large grid it is the smallest that the noise keeps before it goes to the nearest cell, and the positions are
    neighbours in a row or a column.
    ``delta`` is the exact delta at that epsilon, 0 for claims without delta. Where nothing is claimed (`NoClaim`), ``ratio`` is
    None and ``epsilon`` infinite.
    """

    claimed: Claim | NoClaim
    ratio: Fraction | None
    value: int
    other: int
    report: int
    epsilon: float
    delta: Fraction = field(default=Fraction(0))

    @property
    def claim(self) -> Claim:
        """The claim that the channel keeps.

        Raises:
            NotPrivate: if there is none. Whoever draws, charges or compares privacy asks for it.

        """
        if isinstance(self.claimed, NoClaim):
            raise estimates_only()
        return self.claimed

    @property
    def slack(self) -> float:
        """How much of the claim is left: of delta if the claim has one, else of epsilon; rounding may give -1e-16."""
        if isinstance(self.claim, ApproximateLdp):
            return float(self.claim.delta - self.delta)
        return float(self.claim.epsilon) - self.epsilon


def certificate(channel: Channel, claim: Claim | NoClaim) -> Certificate:
    """Return the certificate of a channel for a claim, from comparisons of whole numbers.

    Raises:
        NotPrivate: if the ratio of some report exceeds what the claim allows, or a report rules a value out; if channel or
            claim do not have exactly a type of the core, or the tables used for drawing do not reproduce the weights.

    """
    own = own_claim(claim)
    if isinstance(own, NoClaim):
        if type(channel) is not UndrawnChannel:
            raise NotPrivate("a mechanism without a claim must have a channel that cannot draw", "see UndrawnChannel")
        return Certificate(own, None, 0, 1, 0, inf)
    structure(channel)
    if not channel.draws_its_weights():
        raise NotPrivate("the tables that the channel is drawn from do not give back its weights", "leave them to the core")
    return _checked(own, channel)


def of_rows(claim: PureLdp | ApproximateLdp, parts: Sequence[Certificate]) -> Certificate:
    """Return the certificate of independent reports of several columns from those of the columns.

    The probability of several reports is the product of theirs. So if the ratio of each column is at most e^epsilon_j, that of
    all of them is at most e^(sum of epsilon_j), and deltas add up (Dwork, Rothblum, Vadhan, "Boosting and differential
    privacy", FOCS 2010, theorem III.1). Values 0 and 1 are the rows of the values that the parts name.
    """
    ratios = [part.ratio for part in parts if part.ratio is not None]
    ratio = prod(ratios, start=Fraction(1)) if len(ratios) == len(parts) else None
    epsilon = float(claim.epsilon) if isinstance(claim, ApproximateLdp) or ratio is None else log_ratio(ratio)
    return Certificate(claim, ratio, 0, 1, 0, epsilon, sum((part.delta for part in parts), start=Fraction(0)))


def of_one(claim: PureLdp | ApproximateLdp, parts: Sequence[Certificate]) -> Certificate:
    """Return the certificate of a report of one column, drawn whatever the values are, from those of the columns.

    The chance of the column cancels in every ratio. Values 0 and 1 are the rows of the values that the parts name.
    """
    tight = max(parts, key=lambda part: part.epsilon)
    ratio = None if any(part.ratio is None for part in parts) else max(part.ratio for part in parts if part.ratio is not None)
    return Certificate(claim, ratio, 0, 1, 0, tight.epsilon, max(part.delta for part in parts))


@singledispatch
def _checked(claim: Claim, channel: Channel) -> Certificate:  # noqa: ARG001  # what is registered below reads the arguments
    """Return the certificate of a channel for a claim of one kind."""
    raise InternalError("no certificate compares a channel with this kind of claim", "register how it is checked")


@_checked.register
def _(claim: PureLdp, channel: Channel) -> Certificate:
    return _within(claim, channel.widest(), claim.limit)


@_checked.register
def _(claim: MetricLdp, channel: Channel) -> Certificate:
    if not isinstance(channel, TableChannel) or channel.inputs != len(claim.metric):
        raise NotPrivate("metric privacy needs a listed channel with one row for each value of the metric")
    if isinstance(channel, PlanarNoise):
        return _on_plane(claim, channel)
    if isinstance(claim.metric, Line):  # neighbours decide: between others the distances add up and the ratios multiply
        return _within(claim, channel.steepest(), claim.limit(0, 1))
    return _on_metric(claim, channel.weights())


def _within(claim: PureLdp | MetricLdp, witness: Witness | None, limit: Fraction) -> Certificate:
    """Certify that the largest ratio, None where it is infinite, is at most the limit."""
    if witness is None:
        raise _ruled_out()
    if witness.ratio < 1:  # the other value would be the likelier one, by the inverse
        raise InternalError("the structure of a channel did not find its largest ratio", "please report the mechanism")
    epsilon = log_ratio(witness.ratio)
    if witness.ratio > limit:
        raise _above(claim, epsilon)
    return Certificate(claim, witness.ratio, witness.value, witness.other, witness.report, epsilon)


def _on_plane(claim: MetricLdp, channel: PlanarNoise) -> Certificate:
    """Return the certificate of noise on the plane, from that of the noise: moving it to the nearest cell raises no ratio."""
    grid, witness = claim.metric, channel.steepest()
    if not isinstance(grid, Grid) or (grid.rows, grid.columns) != channel.shape or witness is None:
        raise NotPrivate("noise on the plane keeps distances on the grid of its cells only", "claim MetricLdp with that Grid")
    if not channel.spread:
        raise _ruled_out()
    kept, side = kept_by(channel, claim.epsilon.value * grid.side), float(grid.side)
    if kept is None:
        raise _above(claim, log_ratio(witness.ratio) / side)
    return Certificate(claim, witness.ratio, witness.value, witness.other, witness.report, kept / side)


def _on_metric(claim: MetricLdp, weights: Weights) -> Certificate:
    """Return the certificate for a claim on any metric, from all pairs at all reports."""
    used = np.flatnonzero(weights.any(axis=0))
    kept = weights[:, used]
    if (kept == 0).any():
        raise _ruled_out()
    logs, distances = np.log(kept.astype(np.float64)), claim.metric.matrix()
    best = (-inf, 0, 1)
    for x, highest in enumerate(highest_log_ratios(logs)):
        others = np.arange(len(kept)) != x  # even at distance 0: such values must be indistinguishable
        steepness = np.divide(highest, distances[x], out=np.full(len(kept), -inf), where=distances[x] > 0)
        for near in np.flatnonzero((highest > float(claim.epsilon) * distances[x] - _LOG_DOUBT) & others):
            limit = claim.limit(x, int(near))
            for y in np.flatnonzero(logs[x] - logs[near] > float(claim.epsilon) * distances[x, near] - _LOG_DOUBT):
                if int(kept[x, y]) * limit.denominator > limit.numerator * int(kept[near, y]):
                    raise _above(claim, float(steepness[near]))
        if steepness.max() > best[0]:
            best = (float(steepness.max()), x, int(steepness.argmax()))
    tight, x, other = best
    report = int((logs[x] - logs[other]).argmax())
    return Certificate(claim, Fraction(int(kept[x, report]), int(kept[other, report])), x, other, int(used[report]), tight)


@_checked.register
def _(claim: ApproximateLdp, channel: Channel) -> Certificate:
    if not isinstance(channel, TableChannel):
        raise NotPrivate("a claim with delta needs a channel whose reports can be listed")
    weights = channel.weights()
    delta, x, other = exact_delta(weights, claim.limit)
    if delta > claim.delta:
        raise NotPrivate(
            f"the channel has delta {float(delta):.6g} at epsilon {claim.epsilon}, above the claimed {float(claim.delta):g}",
            "the claim must cover the exact delta",
        )
    with np.errstate(divide="ignore", invalid="ignore"):
        report = int(np.nan_to_num(weights[x] / weights[other].astype(np.float64), nan=0.0).argmax())
    high, low = int(weights[x, report]), int(weights[other, report])
    ratio = Fraction(high, low) if low else None
    return Certificate(claim, ratio, x, other, report, float(claim.epsilon), delta)


def exact_delta(weights: Weights, grown: Fraction) -> tuple[Fraction, int, int]:
    """Return the exact max over x, x' of sum_y max(0, P(y|x) - grown P(y|x')), and the pair that attains it.

    Doubles select the pairs that may attain it; sums of whole numbers decide.
    """
    shares = weights / float(TOTAL)
    rough = np.stack([np.maximum(row - float(grown) * shares, 0.0).sum(axis=1) for row in shares])
    pairs = np.argwhere(rough >= rough.max() - _DELTA_DOUBT)
    return max((_delta(weights[x], weights[other], grown), int(x), int(other)) for x, other in pairs)


def _delta(row: Weights, other: Weights, grown: Fraction) -> Fraction:
    n, d = grown.numerator, grown.denominator
    near = row >= float(grown) * (1 - 2.0**-40) * other.astype(np.float64)  # the other reports add nothing
    over = sum(max(0, a * d - n * b) for a, b in zip(row[near].tolist(), other[near].tolist(), strict=True))
    return Fraction(over, d * TOTAL)


def _ruled_out() -> NotPrivate:
    return NotPrivate("some report rules a value out: the channel has no finite epsilon", "give every report a chance")


def _above(claim: PureLdp | MetricLdp, epsilon: float) -> NotPrivate:
    return NotPrivate(
        f"the channel has epsilon {epsilon:.6g}, above the claimed {claim}",
        "the claim must cover the largest ratio of two rows",
    )
