"""Certified mechanisms: a mechanism with its certificate, and copies of all that drawing and reading its reports needs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels import AnyChannel, Channel, Codes, Drawn, KeyValue, Letters, Levels, Prefixes, Sets
from ldpsql.channels.costs import HELD, VECTOR, Cost
from ldpsql.channels.randomness import Words, random_words
from ldpsql.domains.domain import Domain
from ldpsql.domains.pair_sets import PairSets
from ldpsql.domains.strings import Strings
from ldpsql.errors import NOT_PERTURBED, InternalError, InvalidParameter
from ldpsql.errors.boundary import withheld
from ldpsql.mechanisms.trees import node_reports
from ldpsql.privacy.certificate import Certificate
from ldpsql.reports import Alphabet, NodeReports, PrefixReports

if TYPE_CHECKING:
    from ldpsql.mechanisms.base import Mechanism

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
        return _by_block(lambda block: self.channel.draw(self._inputs(block), words), column)

    @withheld
    def check(self, column: pa.Array | pa.ChunkedArray) -> None:
        """Check that each value can be perturbed; nothing is drawn.

        Raises:
            MissingValue, OutsideDomain, WrongType: if one cannot.

        """
        for start in range(0, max(1, len(column)), _BLOCK):
            self._inputs(column.slice(start, _BLOCK))

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
    def _inputs(self, column: pa.Array | pa.ChunkedArray) -> Any:
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
        return self.reports.texts[report] if isinstance(self.reports, Domain) else self.reports.text(report)

    def shown(self, drawn: Drawn) -> pa.Array:
        """Return drawn positions or words as a column of reports."""
        if isinstance(self.reports, Domain):
            return self.reports.taken(pa.array(drawn))
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
        """The event of the response."""
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

    def _inputs(self, column: pa.Array | pa.ChunkedArray) -> Codes:
        return self.codes(column)

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
        """Return the symbols of the pairs of a set."""
        return self.channel.symbols_of(place)

    def text(self, place: int) -> str:
        """Return the set of a symbol."""
        return self.values.text(self.channel.extreme(place))

    def draw_value(self, place: int, count: int) -> Drawn:
        """Draw reports of the set of a symbol."""
        return self.channel.draw(self.channel.extreme(place).repeated(count))

    def _inputs(self, column: pa.Array | pa.ChunkedArray) -> Sets:
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
        """Draw reports of a string of the certificate."""
        return self.channel.draw(np.tile(self.channel.extreme(place), (count, 1)))

    def _inputs(self, column: pa.Array | pa.ChunkedArray) -> Letters:
        letters = self.values.codes(column, null=self.null_letters, outside=self.outside_letters)
        _check_codes(letters.ravel(), self.channel.letters + 1)
        return letters


def _by_block(draw: Callable[[Any], Drawn], items: pa.Array | pa.ChunkedArray | Codes) -> Drawn:
    """Return what a function draws for each of some items, a block at a time."""
    if len(items) <= _BLOCK:
        return draw(items)
    return np.concatenate([draw(items[start : start + _BLOCK]) for start in range(0, len(items), _BLOCK)])


def _check_codes(codes: Codes | Letters, size: int) -> None:
    """Refuse a position that the channel does not have: its report would be drawn from memory that was not certified.

    Raises:
        InternalError: if a position is out of range.

    """
    if len(codes) and int(codes.view(f"u{codes.itemsize}").max()) >= size:  # a negative one becomes a large one
        raise InternalError("a domain gave a position that it does not have", "please report the type of the column")
