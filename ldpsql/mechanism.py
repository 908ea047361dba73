"""The base class of mechanisms, and what the core makes of one: a certified mechanism that draws.

A mechanism only says what its channel is. The core checks the channel against the claim and does the drawing, so a plugin
can neither draw wrongly nor spend more than it says, and never sees a value.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Annotated, ClassVar

import pyarrow as pa
from pydantic import Field

from ldpsql.channels import Channel, Codes, DenseChannel, KeepOrSpread
from ldpsql.domain import Domain, DomainField
from ldpsql.errors import InvalidParameter, NotPrivate
from ldpsql.privacy import PureLdp, log_ratio
from ldpsql.randomness import Words, random_words
from ldpsql.spec import EpsilonField, Spec

_STRUCTURES = (DenseChannel, KeepOrSpread)
Rule = Annotated[str, Field(pattern=r"(?s)^as:.+$")]


class Mechanism(Spec):
    """A local mechanism: declared parameters, a privacy claim, and a channel that keeps it.

    An implementation sets ``name``, its parameters, `values`, `claim` and `channel`; for reports that are not values of the
    domain also `alphabet` and ``sql_reports``.
    """

    kind = "mechanism"
    sql_reports: ClassVar[str] = (
        'CASE WHEN "domain" IS NULL THEN [] ELSE "domain" END'  # in terms of the parameters; CASE, unlike coalesce, is folded
    )
    nulls: Rule | None = Field(None, description="'as:VALUE': a declared value stands for NULL; else NULL is refused")
    outside: Rule | None = Field(None, description="'as:VALUE': a declared value stands for any value outside the domain")

    @abstractmethod
    def values(self) -> Domain:
        """Return the values that may be perturbed, in the order of the channel's rows."""

    @abstractmethod
    def claim(self) -> PureLdp:
        """Return the privacy that the channel is held to."""

    @abstractmethod
    def channel(self) -> Channel:
        """Return P(report | value)."""

    def alphabet(self) -> Domain:
        """Return the reports, in the order of the channel's columns."""
        return self.values()


class CategoricalMechanism(Mechanism):
    """An epsilon-LDP mechanism over declared values: an implementation only adds ``name`` and `channel`."""

    epsilon: EpsilonField = Field(description="privacy parameter: no report is likelier by more than e^epsilon")
    domain: DomainField = Field(description="the values that may occur, in a fixed order")

    def values(self) -> Domain:
        """Return the declared domain."""
        return self.domain

    def claim(self) -> PureLdp:
        """Return epsilon-LDP."""
        return PureLdp(self.epsilon)


@dataclass(frozen=True)
class Certificate:
    """Proof by whole numbers that a channel keeps its claim.

    ``ratio`` is the largest P(report|value)/P(report|other), exactly; ``epsilon`` its logarithm; ``value``, ``other`` and
    ``report`` are the positions that attain it.
    """

    claim: PureLdp
    ratio: Fraction
    value: int
    other: int
    report: int

    @property
    def epsilon(self) -> float:
        """The realised epsilon."""
        return log_ratio(self.ratio)


def certificate(channel: Channel, claim: PureLdp) -> Certificate:
    """Compare a channel with a claim, in whole numbers.

    Raises:
        NotPrivate: where some report is likelier by more than the claim allows, or rules some value out.

    """
    if type(channel) not in _STRUCTURES:  # a subclass could draw something else than it shows
        raise NotPrivate("a channel must have one of the structures of the core", "see ldpsql.channels")
    witness = channel.widest()
    if witness is None:
        raise NotPrivate("some report rules a value out: the channel has no finite epsilon", "give every report a chance")
    if witness.ratio > claim.limit:
        raise NotPrivate(
            f"the channel has epsilon {log_ratio(witness.ratio):.6g}, above the claimed {claim.epsilon}",
            "the claim must cover the largest ratio of two rows",
            claim=claim,
            witness=witness,
        )
    return Certificate(claim, witness.ratio, witness.value, witness.other, witness.report)


@dataclass(frozen=True)
class CertifiedMechanism:
    """A mechanism with the channel that was built from it, its certificate, and its rules resolved to positions."""

    mechanism: Mechanism
    channel: Channel
    certificate: Certificate
    values: Domain
    reports: Domain
    null_code: int | None
    outside_code: int | None

    def perturb_codes(self, column: pa.Array | pa.ChunkedArray, words: Words = random_words) -> Codes:
        """Draw one report for each value and return its position in the alphabet."""
        codes = self.values.codes(column, null_code=self.null_code, outside_code=self.outside_code)
        return self.channel.draw(codes, words)

    def perturb(self, column: pa.Array | pa.ChunkedArray) -> pa.Array:
        """Draw one report for each value."""
        return self.reports.values.take(pa.array(self.perturb_codes(column)))


@lru_cache(maxsize=256)
def certify(mechanism: Mechanism) -> CertifiedMechanism:
    """Build the channel of a mechanism and certify it; the last 256 are kept.

    Raises:
        NotPrivate: where the channel does not keep the claim.
        InvalidParameter: where channel, domain, alphabet and rules do not belong together.

    """
    channel, values, reports = mechanism.channel(), mechanism.values(), mechanism.alphabet()
    proof = certificate(channel, mechanism.claim())
    if (channel.inputs, channel.outputs) != (len(values), len(reports)):
        raise InvalidParameter(
            f"the channel of {mechanism.name} is {channel.inputs} by {channel.outputs}, "
            f"its domain and alphabet are {len(values)} by {len(reports)}"
        )
    null_code, outside_code = (_position(values, rule) for rule in (mechanism.nulls, mechanism.outside))
    return CertifiedMechanism(mechanism, channel, proof, values, reports, null_code, outside_code)


def _position(values: Domain, rule: str | None) -> int | None:
    if rule is None:
        return None
    position = values.position(rule.removeprefix("as:"))
    if position is None:
        raise InvalidParameter("a rule names a value that is not in the domain", "write 'as:' and a declared value")
    return position
