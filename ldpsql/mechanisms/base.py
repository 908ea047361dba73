"""The base class of mechanisms, and what the core makes of one: a certified mechanism that draws.

A mechanism only says what its channel is. The core checks the channel against the claim and does the drawing, so a plugin
can neither draw wrongly nor spend more than it says, and never sees a value.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Annotated, ClassVar, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from ldpsql.caches import ByteCache
from ldpsql.channels import (
    AnyChannel,
    Channel,
    Codes,
    Drawn,
    KeepOrWindow,
    KeyValue,
    OrthogonalHash,
    SetChannel,
    TableChannel,
    copied,
)
from ldpsql.channels.randomness import Words, random_words
from ldpsql.domains.domain import Domain, DomainField
from ldpsql.domains.pair_sets import PairSets
from ldpsql.errors import InternalError, InvalidParameter, LdpError, NotPrivate, PrivacyLeakWarning, raised_by
from ldpsql.errors.boundary import withheld
from ldpsql.mechanisms.identity import Key, Same, refuse_overrides, stored
from ldpsql.mechanisms.owned import own_alphabet, own_layout, own_values
from ldpsql.mechanisms.spec import EpsilonField, Spec
from ldpsql.privacy.certificate import Certificate, certificate
from ldpsql.privacy.claims import ApproximateLdp, Claim, Epsilon, PureLdp
from ldpsql.privacy.owned import own_claim, own_epsilon, own_fraction
from ldpsql.reports import Alphabet, SetReports, WordReports

_PROTECTS_LITTLE = 8
_BLOCK = 1 << 15  # values at a time, so that what is computed on the way stays in the cache
T = TypeVar("T")


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
    sql_reports: ClassVar[str] = Domain.sql_given("domain")  # the list of the reports in SQL, in terms of the parameters
    sql_domain: ClassVar[str | None] = None  # the list of `values` in SQL, in terms of the parameters
    nulls: Rule | None = Field(None, description="'as:VALUE': a declared value stands for NULL; else NULL is refused")
    outside: Rule | None = Field(None, description="'as:VALUE': a declared value stands for any value outside the domain")

    @abstractmethod
    def values(self) -> Domain | PairSets:
        """Return the values that may be perturbed, in the order of the channel's rows; or the sets of pairs."""

    @abstractmethod
    def claim(self) -> Claim:
        """Return the privacy that the channel is held to."""

    @abstractmethod
    def channel(self) -> AnyChannel:
        """Return P(report | value)."""

    def alphabet(self) -> Alphabet:
        """Return the reports, in the order of the channel's columns."""
        return self.values().listed

    def layout(self) -> tuple[int, ...]:
        """Return (number of values,) where neighbours in the domain are close, (rows, columns) on a grid, else ().

        By default numbers, dates and times in rising order are close to their neighbours.
        """
        values = self.values().listed
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


@dataclass(frozen=True, eq=False)
class CertifiedMechanism(ABC):
    """A mechanism with copies of what it returned, and the certificate: over listed values, or over sets of pairs.

    All but ``mechanism`` is of the core: nothing of the mechanism runs when it draws or reads reports.
    """

    mechanism: Mechanism
    channel: AnyChannel
    certificate: Certificate
    values: Domain | PairSets
    reports: Alphabet
    layout: tuple[int, ...]
    _derived: dict[object, object] = field(init=False, default_factory=dict, repr=False)

    def derived(self, make: Callable[[CertifiedMechanism], T]) -> T:
        """Return what a function makes of this, made once for as long as this is kept."""
        if make not in self._derived:
            self._derived[make] = make(self)
        return cast("T", self._derived[make])

    @property
    def name(self) -> str:
        """The name of the mechanism."""
        return self.mechanism.name

    @property
    def epsilon(self) -> float:
        """The epsilon that the certificate found."""
        return self.certificate.epsilon

    @property
    @abstractmethod
    def response(self) -> Channel:
        """What answers with a report: its inputs are what can be estimated from reports, values or symbols of pairs."""

    @abstractmethod
    def inputs_of(self, place: int) -> Codes:
        """Return what a value of the certificate is among the inputs of the response."""

    @abstractmethod
    def text(self, place: int) -> str:
        """Return a value of the certificate as text."""

    @abstractmethod
    def draw_value(self, place: int, count: int) -> Drawn:
        """Draw reports of a value of the certificate."""

    @cached_property
    def named(self) -> NDArray[np.int64] | None:
        """The value that each report is the name of, where the reports are the values of the domain."""
        return np.arange(len(self.values.listed)) if self.reports == self.values else None

    @withheld
    def draw(self, column: pa.Array | pa.ChunkedArray, words: Words = random_words) -> Drawn:
        """Draw one report for each value, in the channel's own terms: its position in the alphabet, or its words."""
        if len(column) <= _BLOCK:
            return self._draw(column, words)
        return np.concatenate([self.draw(column.slice(start, _BLOCK), words) for start in range(0, len(column), _BLOCK)])

    @abstractmethod
    def _draw(self, column: pa.Array | pa.ChunkedArray, words: Words) -> Drawn:
        """Draw one report for each value of a block."""

    @withheld
    def perturb(self, column: pa.Array | pa.ChunkedArray) -> pa.Array:
        """Draw one report for each value."""
        return self.shown(self.draw(column))

    def shown(self, drawn: Drawn) -> pa.Array:
        """Return what was drawn as a column of reports."""
        if isinstance(self.reports, Domain):
            return pc.take(self.reports.values, pa.array(drawn), boundscheck=False)
        return self.reports.to_arrow(drawn)


@dataclass(frozen=True, eq=False)
class CertifiedValues(CertifiedMechanism):
    """A mechanism over listed values, with its rules resolved to positions."""

    channel: Channel
    values: Domain
    null_code: int | None
    outside_code: int | None

    @property
    def response(self) -> Channel:
        """The channel itself."""
        return self.channel

    def inputs_of(self, place: int) -> Codes:
        """Return the position itself."""
        return np.array([place], dtype=np.int32)

    def text(self, place: int) -> str:
        """Return the value at a position."""
        return self.values.texts[place]

    def draw_value(self, place: int, count: int) -> Drawn:
        """Draw reports of the value at a position."""
        return self.channel.draw(np.full(count, place, dtype=np.int32))

    def codes(self, column: pa.Array | pa.ChunkedArray) -> Codes:
        """Return the position of every value, by the rules of the mechanism."""
        codes = self.values.codes(column, null_code=self.null_code, outside_code=self.outside_code)
        _check_codes(codes, self.channel.inputs)
        return codes

    def _draw(self, column: pa.Array | pa.ChunkedArray, words: Words) -> Drawn:
        return self.channel.draw(self.codes(column), words)


@dataclass(frozen=True, eq=False)
class CertifiedPairs(CertifiedMechanism):
    """A mechanism over sets of pairs; a value of the certificate is a set, known by a symbol of its channel."""

    channel: KeyValue
    values: PairSets

    @property
    def response(self) -> Channel:
        """The response to the symbol that was drawn from a set."""
        return self.channel.response

    def inputs_of(self, place: int) -> Codes:
        """Return the symbols of the pairs of a set."""
        return self.channel.symbols_of(place)

    def text(self, place: int) -> str:
        """Return the set of a symbol."""
        return self.values.text(self.channel.extreme(place))

    def draw_value(self, place: int, count: int) -> Drawn:
        """Draw reports of the set of a symbol."""
        return self.channel.draw(self.channel.extreme(place).repeated(count))

    def _draw(self, column: pa.Array | pa.ChunkedArray, words: Words) -> Drawn:
        sets = self.values.sets(column)
        _check_codes(sets.keys, self.channel.keys)
        return self.channel.draw(sets, words)


def certify_values(
    mechanism: Mechanism, hint: str = "estimate frequencies and means of keys with ldp.key_value"
) -> CertifiedValues:
    """Certify a mechanism over listed values; see `certify`.

    Raises:
        InvalidParameter: for one over sets of pairs.

    """
    certified = certify(mechanism)
    if not isinstance(certified, CertifiedValues):
        raise InvalidParameter(f"{mechanism.name} perturbs sets of key-value pairs, and this is for single values", hint)
    return certified


_KEYS: ByteCache[Same, Key] = ByteCache(16 << 20)
_CERTIFIED: ByteCache[Key, CertifiedMechanism] = ByteCache(128 << 20)


def certify(mechanism: Mechanism) -> CertifiedMechanism:
    """Build the channel of a mechanism and certify it; those used last are kept, with what is derived from them.

    Raises:
        NotPrivate: where the channel does not keep the claim, or something is not exactly of a type of the core.
        InvalidParameter: where channel, domain, alphabet and rules do not belong together.
        PluginError: where the mechanism raises something else.

    """
    return _CERTIFIED.remembered(_KEYS.remembered(Same(mechanism), _key), _certified)


def _key(same: Same) -> Key:
    refuse_overrides(type(same.thing))
    return Key(same.thing)


def _certified(key: Key) -> CertifiedMechanism:
    """Take over what the mechanism returns, each part once, and certify that: nobody else holds it."""
    mechanism: Mechanism = key.thing
    limits = _limits(mechanism)  # before any code of the mechanism runs
    claim, channel, values, reports, layout = _parts(mechanism)
    _check_limits(mechanism, claim, limits)
    proof = certificate(channel, claim)
    if isinstance(claim, PureLdp) and claim.epsilon.value > _PROTECTS_LITTLE:  # once a mechanism: the result is kept
        protects = f"{mechanism.name} with epsilon {claim.epsilon} protects very little: reports are nearly the values"
        warnings.warn(protects, PrivacyLeakWarning, stacklevel=4)
    if isinstance(channel, KeyValue) and isinstance(values, PairSets):
        _check_shape(mechanism, channel.keys, values.keys, channel.response, reports)
        return CertifiedPairs(mechanism, channel, proof, values, reports, ())
    if isinstance(channel, KeyValue) or isinstance(values, PairSets):
        raise InvalidParameter(f"the channel of {mechanism.name} and its values are not both of sets of pairs")
    _check_shape(mechanism, channel.inputs, values, channel, reports)
    null_code, outside_code = (_position(values, rule) for rule in (mechanism.nulls, mechanism.outside))
    return CertifiedValues(mechanism, channel, proof, values, reports, layout, null_code, outside_code)


def _check_shape(mechanism: Mechanism, size: int, values: Domain, response: Channel, reports: Alphabet) -> None:
    if size != len(values) or not _belongs(reports, response):
        raise InvalidParameter(f"the channel of {mechanism.name} does not have the shape of its domain and alphabet")


def _parts(mechanism: Mechanism) -> tuple[Claim, AnyChannel, Domain | PairSets, Alphabet, tuple[int, ...]]:
    """Return copies of claim, channel, values, alphabet and layout."""
    try:
        values = own_values(mechanism.values())  # first: too many of them are refused before a channel for them is made
        claim, channel, reports = own_claim(mechanism.claim()), copied(mechanism.channel()), own_alphabet(mechanism.alphabet())
        return claim, channel, values, reports, own_layout(mechanism.layout(), len(values.listed))
    except LdpError:
        raise
    except Exception as error:  # a plugin may raise anything; no raw value is in reach of it here
        raise raised_by("mechanism", mechanism.name, mechanism, error) from error


def _limits(mechanism: Mechanism) -> tuple[Epsilon | None, Fraction | None]:
    """Return copies of the epsilon and the delta that the mechanism was given."""
    given = stored(mechanism)
    epsilon, delta = given.get("epsilon"), given.get("delta")
    return None if epsilon is None else own_epsilon(epsilon), None if delta is None else own_fraction(delta)


def _check_limits(mechanism: Mechanism, claim: Claim, limits: tuple[Epsilon | None, Fraction | None]) -> None:
    """Refuse a claim that is larger, or of a weaker kind, than what the user gave."""
    epsilon, delta = limits
    hint = "the claim is what users rely on"
    if epsilon is not None and claim.epsilon > epsilon:
        raise NotPrivate(f"{mechanism.name} claims more than the epsilon it was given", hint)
    if isinstance(claim, ApproximateLdp) and (delta is None or claim.delta > delta):
        raise NotPrivate(f"{mechanism.name} claims a delta that it was not given", "declare delta: ShareField")
    if issubclass(type(mechanism), CategoricalMechanism) and type(claim) is not PureLdp:
        raise NotPrivate(f"{mechanism.name} is categorical and does not claim epsilon-LDP", hint)


def _belongs(reports: Alphabet, channel: Channel) -> bool:
    """Tell whether these are the reports of the channel."""
    if isinstance(reports, SetReports):
        return isinstance(channel, SetChannel) and reports.size == channel.inputs
    if isinstance(reports, WordReports):
        return isinstance(channel, SetChannel)
    return isinstance(channel, TableChannel | OrthogonalHash | KeepOrWindow) and channel.outputs == len(reports)


def _check_codes(codes: Codes, size: int) -> None:
    """Refuse a position that the channel does not have: it would be drawn from memory that was not certified.

    Raises:
        InternalError: if there is one.

    """
    if len(codes) and int(codes.view(np.uint32).max()) >= size:  # a negative one becomes a large one
        raise InternalError("a domain gave a position that it does not have", "please report the type of the column")


def _position(values: Domain, rule: str | None) -> int | None:
    if rule is None or rule == "clip":  # ranges clip by themselves
        return None
    position = values.position(rule.removeprefix("as:"))
    if position is None:
        raise InvalidParameter("a rule names a value that is not in the domain", "write 'as:' and a declared value")
    return position
