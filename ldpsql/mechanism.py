"""The base class of mechanisms, and what the core makes of one: a certified mechanism that draws.

A mechanism only says what its channel is. The core checks the channel against the claim and does the drawing, so a plugin
can neither draw wrongly nor spend more than it says, and never sees a value.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Annotated, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from ldpsql.boundary import withheld
from ldpsql.certificate import Certificate, certificate
from ldpsql.channels import Channel, Drawn, KeepOrWindow, OrthogonalHash, SetChannel, TableChannel
from ldpsql.domain import Domain, DomainField
from ldpsql.errors import InvalidParameter, LdpError, NotPrivate, PluginError, PrivacyLeakWarning
from ldpsql.privacy import Claim, Epsilon, PureLdp
from ldpsql.randomness import Words, random_words
from ldpsql.reports import Alphabet, SetReports, WordReports
from ldpsql.spec import EpsilonField, Spec

_PROTECTS_LITTLE = 8
_BLOCK = 1 << 15  # values at a time, so that what is computed on the way stays in the cache


def _rule(given: object) -> str:
    if not isinstance(given, str) or not given.startswith("as:") or given == "as:":
        raise InvalidParameter("a rule must say which declared value is meant", "write 'as:' and the value, such as 'as:Lima'")
    return given


Rule = Annotated[str, BeforeValidator(_rule)]


class Mechanism(Spec):
    """A local mechanism: declared parameters, a privacy claim, and a channel that keeps it.

    An implementation sets ``name``, its parameters, `values`, `claim` and `channel`; for reports that are not values of the
    domain also `alphabet` and ``sql_reports``; for values that no parameter ``domain`` lists also ``sql_domain``.
    """

    kind = "mechanism"
    sql_reports: ClassVar[str] = (
        'CASE WHEN "domain" IS NULL THEN [] ELSE "domain" END'  # in terms of the parameters; CASE, unlike coalesce, is folded
    )
    sql_domain: ClassVar[str | None] = None  # the list of `values` in SQL, in terms of the parameters
    nulls: Rule | None = Field(None, description="'as:VALUE': a declared value stands for NULL; else NULL is refused")
    outside: Rule | None = Field(None, description="'as:VALUE': a declared value stands for any value outside the domain")

    @abstractmethod
    def values(self) -> Domain:
        """Return the values that may be perturbed, in the order of the channel's rows."""

    @abstractmethod
    def claim(self) -> Claim:
        """Return the privacy that the channel is held to."""

    @abstractmethod
    def channel(self) -> Channel:
        """Return P(report | value)."""

    def alphabet(self) -> Alphabet:
        """Return the reports, in the order of the channel's columns."""
        return self.values()

    def layout(self) -> tuple[int, ...]:
        """Return (number of values,) where neighbours in the domain are close, (rows, columns) on a grid, else ().

        By default numbers, dates and times in rising order are close to their neighbours.
        """
        values = self.values()
        return (len(values),) if values.rising else ()


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
class CertifiedMechanism:
    """A mechanism with the channel that was built from it, its certificate, and its rules resolved to positions."""

    mechanism: Mechanism
    channel: Channel
    certificate: Certificate
    values: Domain
    reports: Alphabet
    null_code: int | None
    outside_code: int | None

    @property
    def name(self) -> str:
        """The name of the mechanism."""
        return self.mechanism.name

    @property
    def epsilon(self) -> float:
        """The epsilon that the certificate found."""
        return self.certificate.epsilon

    @cached_property
    def layout(self) -> tuple[int, ...]:
        """Which values are neighbours."""
        return self.mechanism.layout()

    @cached_property
    def named(self) -> NDArray[np.int64] | None:
        """The value that each report is the name of, where the reports are the values of the domain."""
        return np.arange(len(self.values)) if self.reports == self.values else None

    @withheld
    def draw(self, column: pa.Array | pa.ChunkedArray, words: Words = random_words) -> Drawn:
        """Draw one report for each value, in the channel's own terms: its position in the alphabet, or its words."""
        if len(column) <= _BLOCK:
            codes = self.values.codes(column, null_code=self.null_code, outside_code=self.outside_code)
            return self.channel.draw(codes, words)
        return np.concatenate([self.draw(column.slice(start, _BLOCK), words) for start in range(0, len(column), _BLOCK)])

    @withheld
    def perturb(self, column: pa.Array | pa.ChunkedArray) -> pa.Array:
        """Draw one report for each value."""
        return self.shown(self.draw(column))

    def shown(self, drawn: Drawn) -> pa.Array:
        """Return what was drawn as a column of reports."""
        if isinstance(self.reports, Domain):
            return pc.take(self.reports.values, pa.array(drawn), boundscheck=False)
        return self.reports.to_arrow(drawn)


@lru_cache(maxsize=256)
def certify(mechanism: Mechanism) -> CertifiedMechanism:
    """Build the channel of a mechanism and certify it; the last 256 are kept.

    Raises:
        NotPrivate: where the channel does not keep the claim.
        InvalidParameter: where channel, domain, alphabet and rules do not belong together.

    """
    try:
        channel, values, reports = mechanism.channel(), mechanism.values(), mechanism.alphabet()
    except LdpError:
        raise
    except Exception as error:  # a plugin may raise anything; no raw value is in reach of it here
        raise PluginError(
            f"the mechanism {mechanism.name} raised {type(error).__name__} instead of giving its channel",
            "ldpsql.testing.check_mechanism shows where",
        ) from error
    claim, told = mechanism.claim(), getattr(mechanism, "epsilon", None)
    if isinstance(told, Epsilon) and claim.epsilon > told:
        raise NotPrivate(f"{mechanism.name} claims more than the epsilon it was given", "the claim is what users rely on")
    proof = certificate(channel, claim)
    if channel.inputs != len(values) or not _belongs(reports, channel):
        raise InvalidParameter(f"the channel of {mechanism.name} does not have the shape of its domain and alphabet")
    if isinstance(claim, PureLdp) and claim.epsilon.value > _PROTECTS_LITTLE:  # once a mechanism: the result is kept
        protects = f"{mechanism.name} with epsilon {claim.epsilon} protects very little: reports are nearly the values"
        warnings.warn(protects, PrivacyLeakWarning, stacklevel=2)
    null_code, outside_code = (_position(values, rule) for rule in (mechanism.nulls, mechanism.outside))
    return CertifiedMechanism(mechanism, channel, proof, values, reports, null_code, outside_code)


def _belongs(reports: Alphabet, channel: Channel) -> bool:
    """Tell whether these are the reports of the channel."""
    channel = channel.estimated
    if isinstance(reports, SetReports):
        return isinstance(channel, SetChannel) and reports.size == channel.inputs
    if isinstance(reports, WordReports):
        return isinstance(channel, SetChannel)
    return isinstance(channel, TableChannel | OrthogonalHash | KeepOrWindow) and channel.outputs == len(reports)


def _position(values: Domain, rule: str | None) -> int | None:
    if rule is None or rule in ("clip", "drop"):  # ranges clip and sets drop by themselves
        return None
    position = values.position(rule.removeprefix("as:"))
    if position is None:
        raise InvalidParameter("a rule names a value that is not in the domain", "write 'as:' and a declared value")
    return position
