"""Audits of a mechanism: its exact privacy, and its privacy measured from draws.

`analytic` reads the certificate. `empirical` relies on the sampler alone: it draws, counts the event that best distinguishes
two values, and bounds epsilon from below by Clopper-Pearson intervals. A lower bound above the claim proves a defect. For sets
of pairs it also draws from chosen sets, and compares the symbols in the reports with their exact probabilities.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import TOTAL, Levels, OrthogonalHash, TableChannel
from ldpsql.channels.costs import Cost
from ldpsql.errors import InvalidParameter
from ldpsql.mechanisms.base import CertifiedMechanism, CertifiedPairs, CertifiedStrings, Mechanism, certify, certify_values
from ldpsql.mechanisms.sampling import (
    blocks,
    chosen_sets,
    expected_shares,
    levels_follow,
    plausible,
    prefixes_follow,
    reports_of,
)
from ldpsql.privacy.claims import ApproximateLdp

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
    delta = float(proof.claim.delta) if isinstance(proof.claim, ApproximateLdp) else 0.0
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
    """Return the exact probability of every report given every value, for a channel whose reports are listed.

    Raises:
        InvalidParameter: if the reports are too many to list.

    """
    channel = certify_values(mechanism).channel
    if not isinstance(channel, OrthogonalHash | Levels | TableChannel):
        raise InvalidParameter(f"the reports of {mechanism.name} are too many to list", "see ldp.describe and ldp.audit")
    (_CELL * (channel.inputs * channel.outputs)).check(
        f"a table of the channel of {mechanism.name}", "use fewer values; ldp.describe and ldp.audit say what it keeps"
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
