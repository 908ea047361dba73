"""Certified mechanisms: with a certificate, a key for caches, and copies of all that drawing and reading reports needs."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from fractions import Fraction
from functools import cached_property, partial
from math import prod
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import BaseModel

from ldpsql.channels import AnyChannel, Channel, Codes, Drawn, KeyValue, Letters, Levels, OneOfRows, Prefixes, Rows, Sets
from ldpsql.channels.costs import HELD, VECTOR, Cost
from ldpsql.channels.randomness import Words, random_words
from ldpsql.domains.columns import copied, family
from ldpsql.domains.composite import PairSets, Product
from ldpsql.domains.domain import Domain
from ldpsql.domains.unlisted import Strings
from ldpsql.errors import NOT_PERTURBED, InternalError, InvalidDomain, InvalidParameter, PluginError, of_column
from ldpsql.errors.boundary import withheld
from ldpsql.mechanisms.spec import Parts, Spec
from ldpsql.mechanisms.trees import node_reports
from ldpsql.privacy.certificate import Certificate, of_one, of_rows
from ldpsql.privacy.claims import ApproximateLdp, Claim, Epsilon, PureLdp, core_type, of_core, own_fraction
from ldpsql.reports import Alphabet, NodeReports, PrefixReports, RowReports
from ldpsql.reports.base import FormedReports

if TYPE_CHECKING:
    from ldpsql.mechanisms.base import Mechanism


_PLAIN = (int, str, float, bool, NoneType, Fraction, Domain)
_FINAL = ("__init__", "__eq__", "__hash__", "given", "to_json", "__str__", "parameters", "model_fields")


class SpecKey:
    """An object compared by its class and parts. The key keeps the object alive, so that no other object gets its id."""

    __slots__ = ("_hash", "_parts", "thing")

    def __init__(self, thing: Any) -> None:
        self.thing = thing
        self._parts = _parts(thing)
        self._hash = hash(self._parts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return type(other) is SpecKey and (self.thing is other.thing or self._parts == other._parts)


class Same:
    """An object compared by identity."""

    __slots__ = ("thing",)

    def __init__(self, thing: Any) -> None:
        self.thing = thing

    def __hash__(self) -> int:
        return id(self.thing)

    def __eq__(self, other: object) -> bool:
        return type(other) is Same and self.thing is other.thing


def stored(spec: Spec) -> dict[str, Any]:
    """Return the stored parameters by name, whatever the class makes of its attributes.

    For a class from outside the core it returns everything that is stored: such a class could misstate its fields.
    """
    own: dict[str, Any] = BaseModel.__dict__["__dict__"].__get__(spec)
    kept = type(spec).model_fields if of_core(type(spec)) else own.keys() - {"_hash"}
    return {name: part for name, part in own.items() if name in kept}


def refuse_overrides(kind: type[Spec]) -> None:
    """Refuse a class that changes how its specs are compared and written: caches and budgets rely on both."""
    for name in _FINAL:
        if inspect.getattr_static(kind, name) is not inspect.getattr_static(Spec, name):
            raise PluginError(f"the {Spec.kind} class {kind.__name__} has its own {name}", "leave it to ldpsql")


def _parts(thing: Any) -> Any:
    if isinstance(thing, Spec):
        return id(type(thing)), *((name, _leaf(part, thing)) for name, part in sorted(stored(thing).items()))
    if type(thing) is tuple:
        return tuple(_parts(part) for part in thing)
    if is_dataclass(thing) and type(thing).__eq__ is not object.__eq__:
        return id(type(thing)), *(_parts(getattr(thing, part.name)) for part in fields(thing))
    return thing


def _leaf(value: Any, spec: Spec) -> Any:
    """Return a parameter as part of a key; a parameter whose type is not plain makes its spec equal to itself only."""
    if type(value) is Epsilon:
        return value.value.numerator, value.value.denominator
    if type(value) is tuple and (items := _items(value)) is not None:
        return items
    if type(value) is Product:
        return Product, value
    if type(value) is Parts:
        return tuple((part.column, _parts(part.mechanism)) for part in value)
    return (type(value).__name__, value) if type(value) in _PLAIN else Same(spec)


def _items(value: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return plain items, with the class and two whole numbers for a fraction, whose hash is slow; None if one is not plain."""
    items: list[Any] = []
    for item in value:
        kind = type(item)
        if kind is Fraction:
            items += (Fraction, *item.as_integer_ratio())
        elif kind is tuple and (inner := _items(item)) is not None:
            items.append((tuple, inner))
        elif kind in _PLAIN:
            items.append(item)
        else:
            return None
    return tuple(items)


# Copies of what a mechanism returns, made of objects of the core that nobody else holds.
#
# A class from outside the core could show one channel to the certificate and another to the sampler, or see the values that
# are perturbed. So claims, epsilons, metrics, domains and alphabets must have exactly the types of the core, and are built
# again from their numbers and arrays: a method set on an object, a result put into its cache, or a later change has no effect.

_NUMBERS = (bool, int, float, str, NoneType)


def own_values(values: Domain | PairSets | Strings) -> Domain | PairSets | Strings:
    """Return a copy of a domain, or of a description of sets of pairs or strings, with arrays copied and caches empty.

    Raises:
        NotPrivate: unless its class belongs to the core: any other would see the values that are perturbed.
        InvalidDomain: if its values are not an array of at least two values without NULL.

    """
    if type(values) is PairSets:
        parts: dict[str, Any] = {part.name: _own_part(getattr(values, part.name)) for part in fields(PairSets)}
        return PairSets(**parts)
    if type(values) is Strings:
        length, alphabet = values.length, values.alphabet
        if type(length) is not int or type(alphabet) is not bytes or not 0 < len(set(alphabet)) == len(alphabet) < 256:
            raise InvalidDomain("an alphabet must hold at least one byte, and none twice")
        return Strings(length, alphabet)
    return _own_domain(cast("Domain", values))


def _own_domain(values: Domain) -> Domain:
    kind = core_type(values, Domain, "a domain")
    copy = object.__new__(kind)
    copy._in_type = {}
    for name, part in vars(values).copy().items():  # another thread may be filling a cache of this domain
        if name != "_in_type" and not hasattr(kind, name):  # an attribute that the class has too is a cache, or hides a method
            setattr(copy, name, _own_part(part))
    return copy


def _own_part(part: object) -> object:
    if isinstance(part, pa.Array):
        copy = copied(part)  # in the class that Arrow has for the type
        if len(copy) < 2 or copy.null_count or family(copy.type) is None:
            raise InvalidDomain("a domain must hold at least two values and no NULL", "make it with ldpsql.Domain.of")
        return copy
    if type(part) is np.ndarray:
        return part.copy()
    if type(part) in _NUMBERS:
        return part
    if type(part) is tuple:
        return tuple(map(_own_part, part))
    return _own_domain(part) if isinstance(part, Domain) else own_fraction(part)


def own_alphabet(reports: Alphabet) -> Alphabet:
    """Return a copy of an alphabet.

    Raises:
        NotPrivate: unless its class belongs to the core.

    """
    if isinstance(reports, Domain):
        return _own_domain(reports)
    kind = core_type(reports, FormedReports, "an alphabet")
    return cast("Alphabet", kind(**{part.name: _own_part(getattr(reports, part.name)) for part in fields(cast("Any", kind))}))


def own_layout(layout: Sequence[int], size: int) -> tuple[int, ...]:
    """Return a copy of a layout."""
    whole = type(layout) is tuple and all(type(n) is int and n > 0 for n in layout)
    if not whole or (layout and prod(layout) != size):
        raise InvalidParameter("a layout must be (), (values,) or (rows, columns)", "see ldpsql.Mechanism.layout")
    return tuple(layout)


_BLOCK = 1 << 15  # values at a time, so that what is computed on the way stays in the cache
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class CertifiedMechanism(ABC):
    """A mechanism with its certificate and copies of what it returned: over listed values, sets of pairs, or strings.

    Everything except ``mechanism`` belongs to the core: no code of the mechanism runs when reports are drawn or read.
    """

    mechanism: Mechanism
    channel: AnyChannel
    certificate: Certificate
    values: Domain | PairSets | Strings
    reports: Alphabet
    layout: tuple[int, ...]
    over: ClassVar[str]  # what the mechanism perturbs, and which function estimates it
    remedy: ClassVar[str]
    _derived: dict[object, object] = field(init=False, default_factory=dict, repr=False)

    def derived(self, make: Callable[[CertifiedMechanism], T]) -> T:
        """Return what a function computes from this object; it is computed once and kept with the object."""
        if make not in self._derived:
            self._derived[make] = make(self)
        return cast("T", self._derived[make])

    @property
    def name(self) -> str:
        """The name of the mechanism."""
        return self.mechanism.name

    @property
    def epsilon(self) -> float:
        """The epsilon that the certificate proves."""
        return self.certificate.epsilon

    @property
    @abstractmethod
    def response(self) -> Channel:
        """The channel that gives the reports; its inputs are what can be estimated: values, or symbols of pairs."""

    @abstractmethod
    def text(self, place: int) -> str:
        """Return a value of the certificate as text."""

    @abstractmethod
    def draw_value(self, place: int, count: int) -> Drawn:
        """Draw reports of a value of the certificate."""

    @abstractmethod
    def happened(self, drawn: Drawn) -> NDArray[np.bool_]:
        """Return for which reports the event happens that best distinguishes the two values of the certificate."""

    @property
    @abstractmethod
    def event(self) -> str:
        """That event, with a place for the report."""

    @property
    @abstractmethod
    def width(self) -> int:
        """Number of cells that `happened` needs for each report."""

    @cached_property
    def named(self) -> NDArray[np.int64] | None:
        """The position of the value that each report names; None unless the reports are the values of the domain."""
        return np.arange(len(self.values.listed)) if self.reports == self.values else None

    @withheld
    def draw(self, column: pa.Array | pa.ChunkedArray, words: Words = random_words) -> Drawn:
        """Draw one report for each value, in the channel's own terms: its position in the alphabet, or its words.

        Raises:
            InvalidParameter: if the reports take too much memory, or those of a vector of DuckDB too long.

        """
        self.check_cost(len(column))
        return _by_block(lambda block: self.channel.draw(self.codes(block), words), column)

    @withheld
    def check(self, column: pa.Array | pa.ChunkedArray) -> None:
        """Check that each value can be perturbed; nothing is drawn.

        Raises:
            MissingValue, OutsideDomain, WrongType: if one cannot.

        """
        for start in range(0, max(1, len(column)), _BLOCK):
            self.codes(column.slice(start, _BLOCK))

    def check_cost(self, reports: int) -> None:
        """Refuse to draw reports that take too much memory together, or too long for each vector of DuckDB.

        Raises:
            InvalidParameter: if they do.

        """
        one, together = self.channel.per_report, min(reports, VECTOR)
        Cost((one * together).seconds, one.bytes * max(reports, HELD * together)).check(
            f"drawing {reports:,} reports of {self.name}",
            "use olh, whose reports cost the same for any number of values, or fewer values or rows",
        )

    @abstractmethod
    def codes(self, column: pa.Array | pa.ChunkedArray) -> Any:
        """Return what the channel takes for each value of a block, by the rules of the mechanism."""

    @withheld
    def drawer(self, column: pa.Array) -> Callable[[Codes], Drawn]:
        """Return a function that draws one report for the value at each of some places in a column."""
        return partial(self._draw_at, column)  # a closure would show the column in its frame

    @withheld
    def _draw_at(self, column: pa.Array, places: Codes) -> Drawn:
        return self.draw(column.take(pa.array(places)))

    @withheld
    def perturb(self, column: pa.Array | pa.ChunkedArray) -> pa.Array:
        """Draw one report for each value."""
        return self.shown(self.draw(column))

    def report_text(self, report: int) -> str:
        """Return a report, given by its number, as text."""
        return self.reports.text(report)

    def shown(self, drawn: Drawn) -> pa.Array:
        """Return drawn positions or words as a column of reports."""
        return self.reports.to_arrow(drawn)


class _Responding(CertifiedMechanism):
    """A mechanism whose reports are those of a channel over inputs that can be listed."""

    @abstractmethod
    def inputs_of(self, place: int) -> Codes:
        """Return the inputs of the response that belong to a value of the certificate."""

    def happened(self, drawn: Drawn) -> NDArray[np.bool_]:
        """Return for which reports the event of the response happens."""
        own, others = self.inputs_of(self.certificate.value), self.inputs_of(self.certificate.other)
        return self.response.telling(drawn, self.certificate.report, own, others)

    @property
    def event(self) -> str:
        return self.response.event

    @property
    def width(self) -> int:
        """One bit for each input."""
        return self.response.inputs // 64 + 1


@dataclass(frozen=True, eq=False)
class CertifiedValues(_Responding):
    """A mechanism over listed values, with its rules resolved to positions."""

    channel: Channel
    values: Domain
    null_code: int | None
    outside_code: int | None
    over = "listed values"
    remedy = "estimate their shares with ldp.ibu"

    @property
    def response(self) -> Channel:
        return self.channel

    def inputs_of(self, place: int) -> Codes:
        return np.array([place], dtype=np.int32)

    def text(self, place: int) -> str:
        return str(self.values.written[place])

    def draw_value(self, place: int, count: int) -> Drawn:
        return self.channel.draw(np.full(count, place, dtype=np.int32))

    def codes(self, column: pa.Array | pa.ChunkedArray) -> Codes:
        """Return the position of every value, by the rules of the mechanism."""
        codes = self.values.codes(column, null_code=self.null_code, outside_code=self.outside_code)
        _check_codes(codes, self.channel.inputs)
        return codes

    @withheld
    def drawer(self, column: pa.Array) -> Callable[[Codes], Drawn]:
        """Return a function that draws one report for the value at each of some places: it looks values up only once."""
        try:
            codes = self.codes(column)
        except NOT_PERTURBED:
            return super().drawer(column)  # whose refusal counts the rows
        return partial(self._draw_codes, codes)

    @withheld
    def _draw_codes(self, codes: Codes, places: Codes) -> Drawn:
        self.check_cost(len(places))
        return _by_block(lambda block: self.channel.draw(codes.take(block)), places)

    @withheld
    def perturb(self, column: pa.Array | pa.ChunkedArray) -> pa.Array:
        """Draw one report for each value; those of a tree are not numbered on the way."""
        if self._tree is None:
            return super().perturb(column)
        channel, reports = self._tree
        parts = [column.slice(start, _BLOCK) for start in range(0, max(1, len(column)), _BLOCK)]
        drawn = [reports.column(*channel.draw_nodes(self.codes(part))) for part in parts]
        return drawn[0] if len(drawn) == 1 else pa.concat_arrays(drawn)

    @cached_property
    def _tree(self) -> tuple[Levels, NodeReports] | None:
        """The channel and its reports if these are the nodes that it draws."""
        if not isinstance(self.channel, Levels) or not isinstance(self.reports, NodeReports):
            return None
        return (self.channel, self.reports) if self.reports == node_reports(self.channel) else None


@dataclass(frozen=True, eq=False)
class CertifiedPairs(_Responding):
    """A mechanism over sets of pairs; a value of the certificate is a set, identified by a symbol of its channel."""

    channel: KeyValue
    values: PairSets
    over = "sets of key-value pairs"
    remedy = "estimate frequencies and means of keys with ldp.key_value"

    @property
    def response(self) -> Channel:
        """The response to the symbol that was drawn from a set."""
        return self.channel.response

    def inputs_of(self, place: int) -> Codes:
        return self.channel.symbols_of(place)

    def text(self, place: int) -> str:
        """Return the set of a symbol."""
        return self.values.text(self.channel.extreme(place))

    def draw_value(self, place: int, count: int) -> Drawn:
        return self.channel.draw(self.channel.extreme(place).repeated(count))

    def codes(self, column: pa.Array | pa.ChunkedArray) -> Sets:
        sets = self.values.sets(column)
        _check_codes(sets.keys, self.channel.keys)
        return sets


@dataclass(frozen=True, eq=False)
class CertifiedStrings(CertifiedMechanism):
    """A mechanism over strings that are not listed, with its rules resolved to letters."""

    channel: Prefixes
    values: Strings
    reports: PrefixReports
    null_letters: Letters | None
    outside_letters: Letters | None
    over = "strings that are not listed"
    remedy = "find the frequent ones with ldp.heavy_hitters"
    event = "the report supports the value and not the other"
    width = 1

    @property
    def response(self) -> Channel:
        """No channel: its inputs would be all strings.

        Raises:
            InvalidParameter: always.

        """
        raise InvalidParameter(f"these are reports of {self.over}, which have no shares one by one", self.remedy)

    def happened(self, drawn: Drawn) -> NDArray[np.bool_]:
        """Return which reports support the first letter or the empty string, and not the other one."""
        levels, seeds, symbols = drawn[:, 0].astype(np.int64), drawn[:, 1], drawn[:, 2].astype(np.int64)
        places = (self.certificate.value, self.certificate.other)
        own, other = (
            self.channel.hashes(np.tile(self.channel.extreme(place), (len(drawn), 1)), levels, seeds) == symbols
            for place in places
        )
        return np.asarray(own & ~other)

    def text(self, place: int) -> str:
        """Return a string of the certificate, in quotation marks."""
        return repr(self.values.text(self.channel.extreme(place)))

    def draw_value(self, place: int, count: int) -> Drawn:
        return self.channel.draw(np.tile(self.channel.extreme(place), (count, 1)))

    def codes(self, column: pa.Array | pa.ChunkedArray) -> Letters:
        letters = self.values.codes(column, null=self.null_letters, outside=self.outside_letters)
        _check_codes(letters.ravel(), self.channel.letters + 1)
        return letters


def _by_block(draw: Callable[[Any], Drawn], items: pa.Array | pa.ChunkedArray | Codes) -> Drawn:
    """Return what a function draws for each of some items, a block at a time."""
    if len(items) <= _BLOCK:
        return draw(items)
    return np.concatenate([draw(items[start : start + _BLOCK]) for start in range(0, len(items), _BLOCK)])


def _check_codes(codes: Codes | Letters, size: int) -> None:
    """Refuse a position that the channel does not have: its report would be drawn from memory that was not certified."""
    if len(codes) and int(codes.view(f"u{codes.itemsize}").max()) >= size:  # a negative one becomes a large one
        raise InternalError("a domain gave a position that it does not have", "please report the type of the column")


# A certified row: the certified mechanisms of its columns, which draw independently of each other.


@dataclass(frozen=True, eq=False)
class CertifiedRow(CertifiedMechanism):
    """A mechanism over rows; the values 0 and 1 of its certificate are the rows of those of its columns' certificates."""

    channel: Rows
    values: Product
    reports: RowReports
    parts: tuple[CertifiedValues, ...]
    over = "rows of several columns"
    remedy = "estimate their table with ldp.margin, or one column with its own mechanism"

    @property
    def response(self) -> Rows:
        return self.channel

    @property
    def event(self) -> str:
        """The events of all columns together."""
        texts = [part.event.format(report=part.report_text(part.certificate.report)) for part in self.parts]
        event = " and ".join(f"of {name}: {text}" for name, text in zip(self.values.names, texts, strict=True))
        return event.replace("{", "{{").replace("}", "}}")

    @property
    def width(self) -> int:
        """The sum of the widths of the columns."""
        return sum(part.width for part in self.parts)

    def text(self, place: int) -> str:
        """Return the row of the values of the columns' certificates for 0, of the other values for 1."""
        texts = [repr(part.text(_place(part, place))) for part in self.parts]
        return "{" + ", ".join(f"{name}: {text}" for name, text in zip(self.values.names, texts, strict=True)) + "}"

    def report_text(self, report: int) -> str:  # noqa: ARG002  # a row has no number
        """Return the reports of the columns' certificates."""
        texts = [part.report_text(part.certificate.report) for part in self.parts]
        return "{" + ", ".join(f"{name}: {text}" for name, text in zip(self.values.names, texts, strict=True)) + "}"

    def draw_value(self, place: int, count: int) -> Drawn:
        """Draw reports of one of the two rows of the certificate."""
        row = np.array([_place(part, place) for part in self.parts], dtype=np.int32)
        return self.channel.draw(np.tile(row, (count, 1)))

    def happened(self, drawn: Drawn) -> NDArray[np.bool_]:
        """Return for which reports the events of all columns happen."""
        each = zip(self.parts, self.reports.split(drawn), strict=True)
        return np.logical_and.reduce([part.happened(own) for part, own in each])

    def codes(self, column: pa.Array | pa.ChunkedArray) -> Codes:
        """Return the positions of the values of every row, by the rules of the columns' mechanisms; shape (rows, columns).

        An error names the column.
        """
        out = np.empty((len(column), len(self.parts)), dtype=np.int32)
        fields = zip(self.values.names, self.parts, self.values.fields(column), strict=True)
        for j, (name, part, values) in enumerate(fields):
            with of_column(name):
                out[:, j] = part.codes(values)
        return out


@dataclass(frozen=True, eq=False)
class CertifiedOne(CertifiedRow):
    """A mechanism that reports one column of a row; its certificate is that of the column with the largest ratio."""

    remedy = "estimate each column with its own mechanism: rows that do not report it are NULL there, and left out"

    @property
    def _tight(self) -> int:
        return max(range(len(self.parts)), key=lambda j: self.parts[j].epsilon)

    @property
    def event(self) -> str:
        """That the column with the largest ratio is reported, and its event."""
        part = self.parts[self._tight]
        event = part.event.format(report=part.report_text(part.certificate.report))
        return f"of {self.values.names[self._tight]}: {event}".replace("{", "{{").replace("}", "}}")

    def happened(self, drawn: Drawn) -> NDArray[np.bool_]:
        own = list(self.reports.split(drawn))[self._tight]
        return (drawn[:, 0] == self._tight) & self.parts[self._tight].happened(own)


def _place(part: CertifiedValues, place: int) -> int:
    return part.certificate.other if place else part.certificate.value


def certified_row(mechanism: Mechanism, columns: Parts, parts: Sequence[CertifiedValues], *, single: bool) -> CertifiedRow:
    """Return the certified row of certified columns: its epsilon is the sum of theirs, or the largest if one is reported.

    Raises:
        InvalidParameter: if the epsilons do not add up, or to more than an epsilon can be.

    """
    channels, claims = tuple(part.channel for part in parts), [part.certificate.claim for part in parts]
    values = Product(columns.columns, tuple(part.values for part in parts))
    reports = RowReports(columns.columns, tuple(part.reports for part in parts), single)
    proofs = [part.certificate for part in parts]
    if single:
        proof = of_one(largest_of(claims), proofs)
        return CertifiedOne(mechanism, OneOfRows(channels), proof, values, reports, (), tuple(parts))
    return CertifiedRow(mechanism, Rows(channels), of_rows(sum_of(claims), proofs), values, reports, (), tuple(parts))


def largest_of(claims: Sequence[Claim]) -> PureLdp | ApproximateLdp:
    """Return the claim of a row that reports one of columns with these claims: the largest epsilon, and the largest delta.

    Raises:
        InvalidParameter: if a claim is about distances.

    """
    for claim in claims:
        sum_of([claim])
    epsilon = max(claim.epsilon for claim in claims)
    delta = max(claim.delta for claim in claims)
    return ApproximateLdp(epsilon, delta) if delta else PureLdp(epsilon)


def sum_of(claims: Iterable[Claim]) -> PureLdp | ApproximateLdp:
    """Return the claim of a row of columns with these claims: epsilons and deltas add up."""
    epsilon, delta = Fraction(0), Fraction(0)
    for claim in claims:
        if not isinstance(claim, PureLdp | ApproximateLdp):
            raise InvalidParameter(
                "a column of a row claims an epsilon per unit of distance, which does not add up with those of other columns",
                "perturb it by itself, or choose a mechanism of epsilon-LDP",
            )
        epsilon += claim.epsilon.value
        delta += claim.delta
    if epsilon > Epsilon.maximum:
        raise InvalidParameter(
            f"the epsilons of the columns add up to more than {Epsilon.maximum}", "give each column a smaller one"
        )
    return ApproximateLdp(Epsilon(epsilon), delta) if delta else PureLdp(Epsilon(epsilon))
