"""What the reports of a mechanism reveal: information, exact privacy, and privacy measured from draws.

`analytic` reads the certificate. `empirical` relies on the sampler alone: it draws, counts the event that best distinguishes
two values, and bounds epsilon from below by Clopper-Pearson intervals. A lower bound above the claim proves a defect. For sets
of pairs it also draws from chosen sets, and compares the symbols in the reports with their exact probabilities.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import TOTAL, Drawn, Floats, KeyValue, Letters, Levels, OrthogonalHash, Prefixes, Sets, TableChannel
from ldpsql.channels.costs import Cost
from ldpsql.domains.domain import Domain
from ldpsql.errors import InvalidParameter
from ldpsql.mechanisms.base import CertifiedMechanism, CertifiedPairs, CertifiedStrings, Mechanism, certify, certify_values
from ldpsql.privacy.shuffling import central

_PAIR = Cost(1e-8, 64)  # of a table of probabilities, and of what is computed from it
_ROUNDING = 1e-12  # of sums over the reports: it must not make a bound too small
_POWERS = np.arange(1, 8) / 8  # any power between 0 and 1 gives a valid bound; 1/2 is the best one for symmetric channels


@dataclass(frozen=True)
class Information:
    """What one report reveals about a value on average.

    Attributes:
        entropy: nats of uncertainty about the value before its report.
        residual_entropy: the same after it.
        mutual_information: the difference.
        average_distortion: the mean distance from value to report, None if reports are not values of the domain.
        least_information: the least nats that a channel with this distortion can reveal, None without a slope.

    """

    entropy: float
    residual_entropy: float
    mutual_information: float
    average_distortion: float | None
    least_information: float | None


@dataclass(frozen=True)
class RepeatedError:
    """How surely repeated reports of one value identify it.

    Attributes:
        divergence: the Chernoff information of the two values that are hardest to tell apart, in bits.
        error: at most this is the probability that the most likely value, given all reports, is not the true one.
        types_error: the same from the method of types, which is much larger for few reports.

    """

    divergence: float
    error: float
    types_error: float


def _prior(mechanism: Mechanism, prior: NDArray[np.float64]) -> NDArray[np.float64]:
    weights = np.asarray(prior, dtype=np.float64)
    size = certify_values(mechanism).channel.inputs
    if weights.shape != (size,) or not np.isfinite(weights).all() or (weights < 0).any() or not weights.any():
        raise InvalidParameter(f"a prior of {mechanism.name} must hold {size} numbers, none negative, not all zero")
    return weights / weights.sum()


def _table(mechanism: Mechanism) -> NDArray[np.float64]:
    channel = certify_values(mechanism).channel
    if not isinstance(channel, TableChannel):
        raise InvalidParameter(f"{mechanism.name} has no table of probabilities", "use a mechanism with listed reports")
    (_PAIR * (channel.inputs * channel.outputs)).check(
        f"a table of {channel.inputs:,} x {channel.outputs:,} probabilities", "use fewer values or larger cells"
    )
    return channel.probabilities()


def mutual_information(mechanism: Mechanism, prior: NDArray[np.float64]) -> float:
    """Return I(value; report) in nats under a prior over the values, shape (values,), scaled to sum to one.

    Raises:
        InvalidParameter: if the prior does not fit, or there is no table of probabilities, as for reports of sets or hashes.

    """
    shares, table = _prior(mechanism, prior), _table(mechanism)
    outcome = shares @ table
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(table > 0, np.log(table / outcome), 0.0)
    return float(shares @ (table * logs).sum(axis=1))


def information_of(mechanism: Mechanism, prior: NDArray[np.float64], beta: float | None = None) -> Information:
    """Return what one report reveals under a prior, shape (values,), scaled to sum to one.

    With a slope ``beta`` it has Blahut's lower bound: any channel with this distortion D has information at least
    -beta D - sum_x pi(x) log A(x) - log max_y alpha(y), where A(x) = sum_y c(y) e^(-beta d(x,y)),
    alpha(y) = sum_x pi(x) e^(-beta d(x,y)) / A(x), and c is any distribution: here that of the reports.
    Source: Blahut 1972, theorem 6.

    Raises:
        InvalidParameter: as `mutual_information`; with ``beta`` as `average_distortion`.

    """
    shares = _prior(mechanism, prior)
    some = shares[shares > 0]
    before, revealed = -float(some @ np.log(some)), mutual_information(mechanism, prior)
    after = max(0.0, before - revealed)
    if beta is None:
        distortion = average_distortion(mechanism, prior) if _are_values(mechanism) else None
        return Information(before, after, revealed, distortion, None)
    distortion, near = average_distortion(mechanism, prior), np.exp(-beta * _distortion(mechanism))
    scale = near @ (shares @ _table(mechanism))
    tilt = float(np.log(((shares / scale) @ near).max()))
    least = -beta * distortion - float(shares @ np.log(scale)) - tilt
    return Information(before, after, revealed, distortion, max(0.0, least))


def average_distortion(mechanism: Mechanism, prior: NDArray[np.float64]) -> float:
    """Return the mean distance from value to report under a prior, in units of the metric.

    Without a metric it is the probability that they differ.

    Raises:
        InvalidParameter: as `mutual_information`, and for a mechanism whose reports are not the values of its domain.

    """
    return float((_prior(mechanism, prior) @ (_table(mechanism) * _distortion(mechanism))).sum())


def _distortion(mechanism: Mechanism) -> NDArray[np.float64]:
    """Return the distances between values and reports: those of the claim's metric, else 0 or 1."""
    if not _are_values(mechanism):
        raise InvalidParameter(f"the reports of {mechanism.name} are not values of its domain", "distortion needs them to be")
    certified = certify_values(mechanism)
    metric = getattr(certified.certificate.claimed, "metric", None)
    return metric.matrix() if metric is not None else 1.0 - np.eye(len(certified.values))


def _are_values(mechanism: Mechanism) -> bool:
    certified = certify_values(mechanism)
    return isinstance(certified.reports, Domain) and certified.values.values.equals(certified.reports.values)


def repeated_error(mechanism: Mechanism, reports: int) -> RepeatedError:
    """Return how surely this many reports of one value, drawn independently, identify it.

    The sum over all other values bounds the error by Chernoff. The method of types bounds the probability that the shares of
    the reports diverge from the channel's row, and they must do so by ``divergence`` before another row is nearer.
    Source: ElSalamouny, Palamidessi, "Full convergence of the iterative Bayesian update", 2020, section VI.C, equation 17.

    Raises:
        InvalidParameter: if there is no table of probabilities, or the reports are not a whole number of at least 1.

    """
    if isinstance(reports, bool) or not isinstance(reports, int) or reports < 1:
        raise InvalidParameter("reports must be a whole number of at least 1", "the number of reports of one person")
    table = _table(mechanism)
    (Cost(5e-7) * table.size + Cost(1e-10) * (len(_POWERS) * len(table) * table.size)).check(
        f"comparing the rows of {table.shape[0]:,} values", "use fewer values or larger cells"
    )
    with np.errstate(divide="ignore"):  # rows without a common report
        overlap = np.log2(np.minimum(_overlaps(table) * (1.0 + _ROUNDING), 1.0))
    np.fill_diagonal(overlap, -np.inf)
    others = np.exp2(reports * overlap).sum(axis=1)
    divergence = abs(float(overlap.max()))  # not -0.0
    types = table.shape[1] * np.log2(1.0 + reports) - reports * divergence
    return RepeatedError(divergence, min(1.0, float(others.max())), float(np.exp2(min(0.0, types))))


def _overlaps(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the smallest sum over the reports of a^(1-s) b^s for each pair of rows a, b."""
    return reduce(np.minimum, ((table ** (1.0 - power)) @ (table**power).T for power in _POWERS))


# What shuffling adds to the privacy of a mechanism: the central epsilon and delta of all reports together.

_MOST_REPORTS = 10**10
_SMALLEST_DELTA = 1e-14


@dataclass(frozen=True)
class Shuffled:
    """The central privacy of the shuffled reports of a mechanism.

    All reports together, in random order and without ids, are (``epsilon``, ``delta``)-differentially private with respect to
    the value of one person. No analysis can prove less than ``epsilon_at_least``; it is 0 where no attack has been computed.
    ``local_epsilon`` is what one report keeps by itself.
    """

    mechanism: str
    reports: int
    delta: float
    epsilon: float
    epsilon_at_least: float
    local_epsilon: float


def shuffled(mechanism: Mechanism | str, *, reports: int, delta: float) -> Shuffled:
    """Return the central privacy of the shuffled reports of a mechanism, one report for each person.

    It holds against a reader who sees the reports in random order and without ids, and if all the people counted have sent a
    report that this mechanism drew. It is never applied by itself: the ledger charges local privacy.

    Source: Wang et al., "Privacy amplification via shuffling: unified, simplified, and tightened", VLDB 2024, with the exact
    largest ratio and total variation of the channel.

    Args:
        mechanism: the mechanism that draws the reports, its text, or its name in the settings.
        reports: the number of reports, at least 2 and at most 10^10.
        delta: the probability with which epsilon may be exceeded, at least 1e-14 and below 1.

    Raises:
        InvalidParameter: if a number is outside of its range.
        NotPrivate: if some report of the mechanism rules a value out.

    """
    if not isinstance(reports, int) or not 2 <= reports <= _MOST_REPORTS:
        raise InvalidParameter(f"reports must be a whole number from 2 to {_MOST_REPORTS}", "count one report for each person")
    if not isinstance(delta, int | float) or not _SMALLEST_DELTA <= delta < 1:
        raise InvalidParameter(f"delta must be at least {_SMALLEST_DELTA:g} and below 1", "less than 1 / reports, such as 1e-9")
    certified = certify(mechanism)
    epsilon, at_least, local = central(certified.channel, reports, delta)
    return Shuffled(certified.mechanism.name, reports, delta, epsilon, at_least, local)


# Tests of whether draws follow their channel, by bounds that hold for any number of draws.

_CELLS = 1 << 22  # pairs of sets, or symbols, that are drawn at a time

Counts = NDArray[np.int64]


def plausible(counts: Counts, draws: int, expected: Floats, alarm: float) -> bool:
    """Return whether events happened as often as expected, by Bernstein's inequality.

    Args:
        counts: how often each event happened.
        draws: the number of draws.
        expected: the probability of each event.
        alarm: at most this is the probability of False although the events have these probabilities.

    """
    limit = np.log(2 * len(expected) / alarm)
    room = limit / 3 + np.sqrt(limit**2 / 9 + 2 * limit * draws * expected * (1 - expected))
    return bool((np.abs(counts - draws * expected) <= room).all())


def chosen_sets(channel: KeyValue) -> list[Sets]:
    """Return sets of no pair, one pair, as many pairs as the padding, and all keys, with values over the whole range."""
    sizes = {0, 1, min(channel.padding, channel.keys), channel.keys}
    return [Sets.one(np.linspace(1.0, 0.0, size)) for size in sorted(sizes)]


def expected_shares(channel: KeyValue, held: Sets) -> Floats:
    """Return for each symbol the probability that a report of this set shows it, from the exact chances of the symbols."""
    chances = np.array([float(Fraction(weight, TOTAL**2)) for weight in channel.chances(held)])
    return channel.response.shown(chances)


def reports_of(channel: KeyValue, held: Sets, draws: int) -> Iterator[Drawn]:
    """Draw reports of one set, block by block."""
    width = max(len(held.keys), channel.response.inputs // 64, 1)
    return (channel.draw(held.repeated(part)) for part in blocks(draws, width))


def prefixes_follow(channel: Prefixes, draws: int, alarm: float) -> bool:
    """Return whether level, seed and support of two strings have their distribution."""
    strings, expected = [channel.extreme(place) for place in (0, 1)], _prefix_shares(channel)
    for own, other in (strings, strings[::-1]):
        drawn = (channel.draw(np.tile(own, (part, 1))) for part in blocks(draws, channel.length))
        counts = np.sum([_tally_prefixes(channel, own, other, part) for part in drawn], axis=0)
        if not plausible(counts, draws, expected, alarm / 2):
            return False
    return True


def _tally_prefixes(channel: Prefixes, own: Letters, other: Letters, drawn: Drawn) -> Counts:
    """Return how often each level occurs, each first and last byte of a seed, and support of two strings by level."""
    levels, seeds, symbols = drawn[:, 0].astype(np.int64), drawn[:, 1], drawn[:, 2]
    parts = [np.bincount(levels, minlength=channel.levels)]
    octets = (seeds >> np.uint64(24), seeds & np.uint64(255))
    parts += [np.bincount(octet.astype(np.int64), minlength=256) for octet in octets]
    for letters in (own, other):
        supported = channel.hashes(np.tile(letters, (len(drawn), 1)), levels, seeds) == symbols
        parts.append(np.bincount(levels[supported], minlength=channel.levels))
    return np.concatenate(parts)


def _prefix_shares(channel: Prefixes) -> Floats:
    """Return the probabilities of what `_tally_prefixes` counts, for strings that differ in their first letter."""
    levels = np.array([float(share) for share in channel.shares()])
    octets = np.full(512, 1 / 256)
    return np.concatenate([levels, octets, levels * float(channel.hit), levels * float(channel.miss)])


def levels_follow(channel: Levels, draws: int, alarm: float) -> bool:
    """Return whether level, seed and support of two values have their distribution, for the first and the last value."""
    ends = (0, channel.inputs - 1)
    for own, other in (ends, ends[::-1]):
        expected = np.concatenate(
            [_level_shares(channel), _support_shares(channel, own, own), _support_shares(channel, own, other)]
        )
        parts = blocks(draws, len(channel.blocks))
        drawn = (channel.draw(np.full(part, own, dtype=np.int32)) for part in parts)
        counts = np.sum([_tally_levels(channel, (own, other), part) for part in drawn], axis=0)
        if not plausible(counts, draws, expected, alarm / 2):
            return False
    return True


def _tally_levels(channel: Levels, values: tuple[int, int], drawn: Drawn) -> Counts:
    """Return how often each level occurs, in both halves of its reports, and support of each value by level."""
    tallied = np.zeros((4, len(channel.blocks)), dtype=np.int64)
    for level, rows in channel.by_level(drawn):
        within = drawn[rows] - channel.starts[level]
        tallied[:2, level] = np.bincount(within < _half(channel, level), minlength=2)
    for place, value in enumerate(values):
        for level, rows in channel.by_level(drawn[channel.supporting(drawn, value)]):
            tallied[2 + place, level] = len(rows)
    return tallied.ravel()


def _half(channel: Levels, level: int) -> int:
    """Return the first report of the second half of the seeds of a level; all reports if it has none."""
    response = channel.responses[level]
    return response.seeds // 2 * response.response.size if isinstance(response, OrthogonalHash) else response.outputs


def _level_shares(channel: Levels) -> Floats:
    """Return the probabilities of the second and of the first half of the reports of each level."""
    shares = np.array([float(share) for share in channel.shares()])
    ends = [response.outputs for response in channel.responses]
    first = np.array([_half(channel, level) / end for level, end in enumerate(ends)])  # seeds are even
    return np.concatenate([shares * (1 - first), shares * first])


def _support_shares(channel: Levels, own: int, value: int) -> Floats:
    """Return the probability that a report of one value supports another, by level."""
    same = [
        bool(np.ptp(channel.nodes(np.array([own, value], dtype=np.int32), level)) == 0) for level in range(len(channel.blocks))
    ]
    chances = zip(channel.shares(), channel.responses, same, strict=True)
    return np.array([float(share * (one.hit if near else one.miss)) for share, one, near in chances])


def blocks(draws: int, width: int) -> Iterator[int]:
    """Yield the parts of a number of draws, each with a bounded number of cells, ``width`` a draw."""
    step = max(1, min(1 << 16, _CELLS // width))
    for start in range(0, draws, step):
        yield min(step, draws - start)


_CELL = Cost(2e-6, 600)  # of a table in SQL


@dataclass(frozen=True)
class AnalyticAudit:
    """The certificate in words: the claim, the realised privacy, and the pair and report that come closest to the limit."""

    mechanism: str
    claim: str
    claimed_epsilon: float
    epsilon: float
    ratio: str
    slack: float
    delta: float
    exact_delta: str
    value: str
    other: str
    report: str


@dataclass(frozen=True)
class EmpiricalAudit:
    """Frequencies of one event under two values, and the lower bound of epsilon that they prove with this confidence.

    ``passed`` is true if the bound is within the claim and the draws follow the channel.
    """

    mechanism: str
    claimed_epsilon: float
    epsilon_at_least: float
    confidence: float
    draws: int
    value: str
    other: str
    event: str
    hits_value: int
    hits_other: int
    passed: bool


def analytic(mechanism: Mechanism) -> AnalyticAudit:
    """Return the realised privacy, exactly; for metric privacy, epsilon is per unit of distance."""
    certified = certify(mechanism)
    proof = certified.certificate
    return AnalyticAudit(
        mechanism=mechanism.name,
        claim=str(proof.claim),
        claimed_epsilon=float(proof.claim.epsilon),
        epsilon=proof.epsilon,
        ratio="infinite" if proof.ratio is None else str(proof.ratio),
        slack=proof.slack,
        delta=float(proof.delta),
        exact_delta=str(proof.delta),
        value=certified.text(proof.value),
        other=certified.text(proof.other),
        report=certified.report_text(proof.report),
    )


def empirical(mechanism: Mechanism, draws: int = 1_000_000, confidence: float = 0.999999) -> EmpiricalAudit:
    """Return a lower bound of epsilon, from draws of the two values of the certificate.

    For metric privacy the bound is per unit of distance; for a claim with delta, delta is subtracted from the frequency first.

    Raises:
        InvalidParameter: unless there are at least 1,000 draws and the confidence lies between 0.5 and 1.

    """
    if draws < 1000 or not 0.5 < confidence < 1:
        raise InvalidParameter("an audit needs at least 1,000 draws and a confidence between 0.5 and 1")
    certified = certify(mechanism)
    proof = certified.certificate
    hits = [_hits(certified, x, draws) for x in (proof.value, proof.other)]
    low, high = _lower(hits[0], draws, confidence), _upper(hits[1], draws, confidence)
    delta = float(proof.claim.delta)
    metric = getattr(proof.claim, "metric", None)
    distance = float(metric.below(proof.value, proof.other)) if metric is not None else 1.0
    bound = max(0.0, float(np.log(max(low - delta, 1e-300) / high))) / distance
    return EmpiricalAudit(
        mechanism=mechanism.name,
        claimed_epsilon=float(proof.claim.epsilon),
        epsilon_at_least=bound,
        confidence=confidence,
        draws=draws,
        value=certified.text(proof.value),
        other=certified.text(proof.other),
        event=certified.event.format(report=certified.report_text(proof.report)),
        hits_value=hits[0],
        hits_other=hits[1],
        passed=bound <= float(proof.claim.epsilon) and _follows(certified, draws, 1 - confidence),
    )


def _hits(certified: CertifiedMechanism, value: int, draws: int) -> int:
    """Return how often the event of the certificate happens among draws from a value."""
    return sum(int(certified.happened(certified.draw_value(value, part)).sum()) for part in blocks(draws, certified.width))


def _follows(certified: CertifiedMechanism, draws: int, alarm: float) -> bool:
    """Return whether draws from chosen sets, strings or ends of a range follow the channel; of others the bound suffices."""
    if isinstance(certified, CertifiedStrings):
        return prefixes_follow(certified.channel, draws, alarm)
    if isinstance(certified.channel, Levels):
        return levels_follow(certified.channel, draws, alarm)
    if not isinstance(certified, CertifiedPairs):
        return True
    channel, sets = certified.channel, chosen_sets(certified.channel)
    counts = [np.sum([channel.response.tally(drawn) for drawn in reports_of(channel, held, draws)], axis=0) for held in sets]
    each = zip(sets, counts, strict=True)
    return all(plausible(count, draws, expected_shares(channel, held), alarm / len(sets)) for held, count in each)


def _lower(hits: int, draws: int, confidence: float) -> float:
    from scipy.special import betaincinv  # noqa: PLC0415  # slow to import

    return float(betaincinv(hits, draws - hits + 1, (1 - confidence) / 2)) if hits else 0.0


def _upper(hits: int, draws: int, confidence: float) -> float:
    from scipy.special import betaincinv  # noqa: PLC0415

    return float(betaincinv(hits + 1, draws - hits, (1 + confidence) / 2)) if hits < draws else 1.0


@dataclass(frozen=True)
class Listing:
    """The whole channel: the probability of report y given value x is ``exact[codes[x, y]]``."""

    codes: NDArray[np.int32]
    exact: tuple[Fraction, ...]


def listed(mechanism: Mechanism) -> Listing:
    """Return the exact probability of every report given every value, for a channel whose reports are listed."""
    channel = certify_values(mechanism).channel
    if not isinstance(channel, OrthogonalHash | Levels | TableChannel):
        raise InvalidParameter(f"the reports of {mechanism.name} are too many to list", "see ldp.describe")
    (_CELL * (channel.inputs * channel.outputs)).check(
        f"a table of the channel of {mechanism.name}", "use fewer values; ldp.describe says what it keeps"
    )
    if isinstance(channel, TableChannel):
        weights = channel.weights()
        distinct, codes = np.unique(weights, return_inverse=True)
        return Listing(codes.reshape(weights.shape).astype(np.int32), tuple(Fraction(w, TOTAL) for w in distinct.tolist()))
    levels = channel if isinstance(channel, Levels) else Levels((channel.inputs,), ((1,),), (channel,))
    return _listed_levels(levels)


def _listed_levels(channel: Levels) -> Listing:
    """Return the table of a channel whose reports support values: each level has two probabilities."""
    exact: list[Fraction] = []
    reports, level_of = np.arange(channel.outputs), np.repeat(np.arange(len(channel.responses)), np.diff(channel.starts))
    for share, response in zip(channel.shares(), channel.responses, strict=True):
        supports = response.supporting(np.arange(response.outputs, dtype=np.int32), 0)
        exact += [share * response.probability(0, int(place)) for place in (supports.argmin(), supports.argmax())]
    codes = np.empty((channel.inputs, channel.outputs), dtype=np.int32)
    for value, row in enumerate(codes):
        row[:] = 2 * level_of + channel.supporting(reports, value)
    return Listing(codes, tuple(exact))
