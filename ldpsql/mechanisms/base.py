"""The base class of mechanisms, and `certify`, which builds the certified mechanism that draws reports.

A mechanism only describes its channel. The core checks the channel against the claim and draws the reports, so a plugin
can neither draw wrongly nor spend more than it claims, and never sees a value.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from fractions import Fraction
from typing import Annotated, ClassVar, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from ldpsql.caches import ByteCache
from ldpsql.channels import (
    AnyChannel,
    Channel,
    KeepOrWindow,
    KeyValue,
    Levels,
    OrthogonalHash,
    Prefixes,
    SetChannel,
    TableChannel,
    copied,
)
from ldpsql.domains.composite import PairSets
from ldpsql.domains.domain import Domain, DomainField
from ldpsql.domains.unlisted import Strings
from ldpsql.errors import InvalidParameter, LdpError, NotPrivate, PrivacyLeakWarning, raised_by
from ldpsql.mechanisms.certified import (
    CertifiedMechanism,
    CertifiedOne,
    CertifiedPairs,
    CertifiedRow,
    CertifiedStrings,
    CertifiedValues,
    Same,
    SpecKey,
    certified_row,
    own_alphabet,
    own_layout,
    own_values,
    refuse_overrides,
    stored,
)
from ldpsql.mechanisms.spec import EpsilonField, Parts, Spec, mechanism_of
from ldpsql.privacy.certificate import certificate
from ldpsql.privacy.claims import ApproximateLdp, Claim, Epsilon, NoClaim, PureLdp, own_claim, own_epsilon, own_fraction
from ldpsql.reports import Alphabet, PrefixReports, RowReports, SetReports, WordReports

__all__ = [
    "CategoricalMechanism",
    "CertifiedMechanism",
    "CertifiedOne",
    "CertifiedPairs",
    "CertifiedRow",
    "CertifiedStrings",
    "CertifiedValues",
    "Mechanism",
    "certify",
    "certify_values",
]

_PROTECTS_LITTLE = 8
_SINGLE = "give each column a mechanism over single values, such as ldp.krr or ldp.square_wave"


def _rule(rule: object) -> str:
    if not isinstance(rule, str) or not rule.startswith("as:"):
        raise InvalidParameter("a rule must say which declared value is meant", "write 'as:' and the value, such as 'as:Lima'")
    return rule


Rule = Annotated[str, BeforeValidator(_rule)]


class Mechanism(Spec):
    """A local mechanism: declared parameters, a privacy claim, and a channel that keeps it.

    An implementation sets ``name``, its parameters and `channel`. If it does not keep epsilon-LDP of its parameter
    ``epsilon``, it also sets `claim`; if its reports are not values of the domain, `alphabet` and ``sql_reports``; if no
    parameter ``domain`` lists the values, `values` and ``sql_domain``.
    """

    kind = "mechanism"
    sql_reports: ClassVar[str] = Domain.sql_given("domain")  # the list of the reports in SQL, in terms of the parameters
    sql_domain: ClassVar[str | None] = None  # the list of `values` in SQL, in terms of the parameters
    per_distance: ClassVar[bool] = False  # whether the parameter epsilon is a privacy parameter per unit of distance
    nulls: Rule | None = Field(None, description="'as:VALUE': a declared value stands for NULL; else NULL is refused")
    outside: Rule | None = Field(None, description="'as:VALUE': a declared value stands for any value outside the domain")

    def values(self) -> Domain | PairSets | Strings:
        """Return the values that may be perturbed, in the order of the channel's rows, or the sets of pairs, or the strings.

        By default, the parameter ``domain`` lists them.
        """
        declared: Domain = self.domain  # type: ignore[attr-defined]  # an implementation has it, or overrides this
        return declared

    def claim(self) -> Claim | NoClaim:
        """Return the privacy guarantee that the channel must keep: epsilon-LDP; `NoClaim` if nothing is drawn."""
        return PureLdp(self.epsilon)  # type: ignore[attr-defined]  # an implementation has it, or overrides this

    @abstractmethod
    def channel(self) -> AnyChannel:
        """Return P(report | value)."""

    def alphabet(self) -> Alphabet:
        """Return the reports, in the order of the channel's columns."""
        return self.values().listed

    def readings(self) -> NDArray[np.float64] | None:
        """Return a number for each report whose expectation is the value, or None.

        Values count from 0 at the lower end of their interval to 1 at the upper one. The mean of these numbers over the reports
        is ``ldp.mean(..., estimator := 'inv')``.
        """
        return None

    def layout(self) -> tuple[int, ...]:
        """Return (number of values,) if neighbours in the domain are close, (rows, columns) for a grid, else ().

        By default, numbers, dates and times in rising order are close to their neighbours.
        """
        values = self.values().listed
        return (len(values),) if values.rising else ()


class CategoricalMechanism(Mechanism):
    """An epsilon-LDP mechanism over declared values: an implementation only adds ``name`` and `channel`."""

    epsilon: EpsilonField = Field(description="privacy parameter: no value makes a report more than e^epsilon times likelier")
    domain: DomainField = Field(description="the values that may occur, in a fixed order; at most 16,777,216")


def certify_values(mechanism: Mechanism, pairs: str = CertifiedPairs.remedy) -> CertifiedValues:
    """Return a certified mechanism over listed values; see `certify`.

    Args:
        mechanism: the mechanism.
        pairs: what to do instead with a mechanism over sets of pairs.

    Raises:
        InvalidParameter: for a mechanism over sets of pairs, or over strings that are not listed.

    """
    certified = certify(mechanism)
    if not isinstance(certified, CertifiedValues):
        hint = pairs if isinstance(certified, CertifiedPairs) else certified.remedy
        raise InvalidParameter(f"{mechanism.name} perturbs {certified.over}, and this is for single values", hint)
    return certified


_KEYS: ByteCache[Same, SpecKey] = ByteCache(16 << 20)
_CERTIFIED: ByteCache[SpecKey, CertifiedMechanism] = ByteCache(128 << 20)


def certify(mechanism: Mechanism | str) -> CertifiedMechanism:
    """Return a mechanism with its channel, certified. Those used last are cached, with everything derived from them.

    Args:
        mechanism: the mechanism, its text, or its name in the settings.

    Raises:
        InvalidSpec, UnknownName: if the text cannot be read.
        NotPrivate: if the channel does not keep the claim, or an object does not have exactly a type of the core.
        InvalidParameter: if channel, domain, alphabet and rules do not belong together.
        PluginError: if the mechanism raises any other error.

    """
    given = mechanism_of(mechanism) if isinstance(mechanism, str) else mechanism
    return _CERTIFIED.remembered(_KEYS.remembered(Same(given), _key), _certified)


def _key(same: Same) -> SpecKey:
    refuse_overrides(type(same.thing))
    return SpecKey(same.thing)


def _certified(key: SpecKey) -> CertifiedMechanism:
    """Ask the mechanism for each part once, and certify copies of the parts: nobody else holds a reference to them."""
    mechanism: Mechanism = key.thing
    columns = stored(mechanism).get("columns")
    if type(columns) is Parts:  # the core draws and checks each column by itself, so no code of the mechanism runs
        single = bool(getattr(type(mechanism), "single", False))
        return certified_row(mechanism, columns, [certify_values(part, _SINGLE) for part in columns.mechanisms], single=single)
    limits = _limits(mechanism)  # before any code of the mechanism runs
    claim, channel, values, reports, layout = _parts(mechanism)
    _check_limits(mechanism, claim, limits)
    proof = certificate(channel, claim)
    if isinstance(claim, PureLdp) and claim.epsilon.value > _PROTECTS_LITTLE:  # once a mechanism: the result is kept
        warning = f"{mechanism.name} with epsilon {claim.epsilon} protects very little: reports are nearly the values"
        warnings.warn(warning, PrivacyLeakWarning, stacklevel=4)
    if isinstance(channel, KeyValue) and isinstance(values, PairSets):
        _check_shape(mechanism, channel.keys, values.keys, channel.response, reports)
        return CertifiedPairs(mechanism, channel, proof, values, reports, ())
    if isinstance(channel, Prefixes) and isinstance(values, Strings):
        own = _check_strings(mechanism, channel, values, reports)
        null, outside = (_position(values, rule) for rule in (mechanism.nulls, mechanism.outside))
        return CertifiedStrings(mechanism, channel, proof, values, own, (), null, outside)
    if isinstance(channel, KeyValue | Prefixes) or isinstance(values, PairSets | Strings):
        raise InvalidParameter(f"the channel of {mechanism.name} and its values are not both of sets of pairs, or of strings")
    _check_shape(mechanism, channel.inputs, values, channel, reports)
    null_code, outside_code = (_position(values, rule) for rule in (mechanism.nulls, mechanism.outside))
    return CertifiedValues(mechanism, channel, proof, values, reports, layout, null_code, outside_code)


def _check_shape(mechanism: Mechanism, size: int, values: Domain, response: Channel, reports: Alphabet) -> None:
    if size != len(values) or not _belongs(reports, response):
        raise InvalidParameter(f"the channel of {mechanism.name} does not have the shape of its domain and alphabet")


def _check_strings(mechanism: Mechanism, channel: Prefixes, values: Strings, reports: Alphabet) -> PrefixReports:
    fits = channel.length == values.length and channel.letters == len(values.alphabet)
    if not fits or not isinstance(reports, PrefixReports) or reports != PrefixReports(channel.levels, channel.response.size):
        raise InvalidParameter(f"the channel of {mechanism.name} does not have the shape of its strings and reports")
    return reports


def _parts(mechanism: Mechanism) -> tuple[Claim | NoClaim, AnyChannel, Domain | PairSets | Strings, Alphabet, tuple[int, ...]]:
    """Return copies of claim, channel, values, alphabet and layout."""
    try:
        theirs = mechanism.values()
        values = own_values(theirs)  # first: a domain that is too large is refused before its channel is computed
        claim, channel, alphabet = own_claim(mechanism.claim()), copied(mechanism.channel()), mechanism.alphabet()
        reports = values if isinstance(values, Domain) and alphabet is theirs else own_alphabet(alphabet)
        return claim, channel, values, reports, own_layout(mechanism.layout(), len(values.listed))
    except LdpError:
        raise
    except Exception as error:  # a plugin may raise anything; it cannot reach a raw value here
        raise raised_by("mechanism", mechanism.name, mechanism, error) from error


def _limits(mechanism: Mechanism) -> tuple[Epsilon | None, Fraction | None]:
    """Return copies of the epsilon and the delta that the user set."""
    parameters = stored(mechanism)
    epsilon, delta = parameters.get("epsilon"), parameters.get("delta")
    return None if epsilon is None else own_epsilon(epsilon), None if delta is None else own_fraction(delta)


def _check_limits(mechanism: Mechanism, claim: Claim | NoClaim, limits: tuple[Epsilon | None, Fraction | None]) -> None:
    """Refuse a claim that is larger, or of a weaker kind, than the limits that the user set."""
    epsilon, delta = limits
    hint = "the claim is what users rely on"
    if isinstance(claim, NoClaim):
        if epsilon is not None or issubclass(type(mechanism), CategoricalMechanism):
            raise NotPrivate(f"{mechanism.name} takes an epsilon and claims none", hint)
        return
    if epsilon is not None and claim.epsilon > epsilon:
        raise NotPrivate(f"{mechanism.name} claims more than the epsilon it was given", hint)
    if isinstance(claim, ApproximateLdp) and (delta is None or claim.delta > delta):
        raise NotPrivate(f"{mechanism.name} claims a delta that it was not given", "declare delta: ShareField")
    if issubclass(type(mechanism), CategoricalMechanism) and type(claim) is not PureLdp:
        raise NotPrivate(f"{mechanism.name} is categorical and does not claim epsilon-LDP", hint)


def _belongs(reports: Alphabet, channel: Channel) -> bool:
    """Return whether these are the reports of the channel."""
    if isinstance(reports, SetReports):
        return isinstance(channel, SetChannel) and reports.size == channel.inputs
    if isinstance(reports, WordReports):
        return isinstance(channel, SetChannel)
    if isinstance(reports, RowReports):
        return False
    return isinstance(channel, TableChannel | OrthogonalHash | KeepOrWindow | Levels) and channel.outputs == len(reports)


P_co = TypeVar("P_co", covariant=True)


class _Positions(Protocol[P_co]):
    """Values of which single ones can be named."""

    def position(self, text: str) -> P_co | None: ...


def _position(values: _Positions[P_co], rule: str | None) -> P_co | None:
    if rule is None or rule == "clip":  # ranges clip by themselves
        return None
    position = values.position(rule.removeprefix("as:"))
    if position is None:
        raise InvalidParameter("a rule names a value that is not in the domain", "declare this value, or name a declared one")
    return position
