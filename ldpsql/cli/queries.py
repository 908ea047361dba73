"""The queries of commands that estimate and ask: SQL over reports, for each group of the keys if there are any."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from ldpsql.bulk.queries import Reports, by_group, in_order
from ldpsql.cli.estimate import Sides
from ldpsql.domains.columns import family
from ldpsql.domains.domain import Domain
from ldpsql.domains.product import Product
from ldpsql.engine.functions import struct_text
from ldpsql.engine.sql_struct import domain_type
from ldpsql.errors import InvalidParameter
from ldpsql.estimates.conditions import column_place, values_of
from ldpsql.estimates.question import REQUIRED
from ldpsql.mechanisms.base import Mechanism
from ldpsql.mechanisms.spec import sql_literal
from ldpsql.quoting import quoted, text_literal
from ldpsql.registry.registry import registry
from ldpsql.sql.named import sql_call


def top_values(of: Reports, keys: Sequence[str], most: int) -> str:
    """Return the query for the most frequent values."""
    call = f"ldp.top({of.reports}, {sql_call(of.mechanism, of.con)}, {most}, estimator := {of.method})"
    return f"{by_group(call, of.table, keys)}\nORDER BY ALL"  # the keys, then the rank


def rectangles(of: Reports, keys: Sequence[str], on: Sides) -> str:
    """Return the query for the shares of rectangles of a map."""
    low, high = (f"[{', '.join(points)}]" for points in on.corners())
    call = f"""ldp.range_shares({of.reports}, {sql_call(of.mechanism, of.con)}, {low}, {high},
    estimator := {of.method}, grid := {on.grid(of.mechanism)})"""
    groups = "".join(f"{quoted(key)}, " for key in keys)
    listed = f"SELECT {groups}unnest([{', '.join(on.listed())}], recursive := true), unnest({call}, recursive := true)"
    order = f"\nGROUP BY {groups[:-2]}\nORDER BY {groups[:-2]}" if keys else ""
    return f"FROM (\n{listed}\nFROM query_table({of.table}){order}\n)\nWHERE estimate IS NOT NULL"


def top_strings(table: str, reports: str, made: str, keys: Sequence[str], most: int, *, certain: bool) -> str:
    """Return the query for the most frequent strings, without a list of them; ``made`` is the SQL of the mechanism."""
    call = f"ldp.heavy_hitters({reports}, {made}, {most}, certain := {certain})"
    order = ", ".join([*map(quoted, keys), "estimate DESC"])
    return f"SELECT * FROM (\n{by_group(call, table, keys)}\n)\nORDER BY {order}"


def frequencies_and_means(of: Reports, keys: Sequence[str]) -> str:
    """Return the query for the frequency and the mean of each key of key-value reports."""
    call = f"ldp.key_value({of.reports}, {sql_call(of.mechanism, of.con)}, estimator := {of.method})"
    return in_order(call, of.table, keys)


_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)", re.ASCII)
_RANGE = ".."
_COMPARED = {"share", "mean"}  # of which differences have p-values


@dataclass(frozen=True)
class ConditionalQuestion:
    """A question: what is asked, of which columns or values, and the conditions."""

    kind: str
    of: str | Sequence[str]
    given: Sequence[str]
    versus: Sequence[str]
    apart: bool  # whether two groups of people are compared
    arguments: Sequence[str] = ()  # of a question that is named

    @classmethod
    def asked(
        cls,
        options: Mapping[str, str | list[str] | None],
        given: Sequence[str],
        versus: Sequence[str] | None,
        apart: bool,
        arguments: Sequence[str] = (),
    ) -> ConditionalQuestion:
        """Return the question that options ask.

        Raises:
            InvalidParameter: unless exactly one question is asked, with conditions that it takes.

        """
        kinds = [kind for kind, of in options.items() if of]
        if len(kinds) != 1:
            names = ", ".join(f"--{kind}" for kind in options)
            raise InvalidParameter("exactly one question can be asked", f"one of {names}")
        kind = kinds[0]
        if (versus or apart) and kind not in _COMPARED:
            raise InvalidParameter("--versus and --against compare shares and means", "add --share or --mean")
        if versus and (apart or not given):
            raise InvalidParameter("--versus compares two conditions on the same reports", "add --given, without --against")
        if given and kind == "independence":
            raise InvalidParameter("--independence has no condition", "leave out --given")
        if arguments and kind != "question":
            raise InvalidParameter("--argument is one of a question that is named", "add --question quantiles")
        return cls(kind, options[kind] or "", given, versus or (), apart, arguments)

    def query(self, read: Sequence[Reports], column: str, keys: Sequence[str]) -> str:
        """Return the query; ``column`` is the name of the only column of a mechanism of one column.

        Raises:
            InvalidParameter: if a column or a condition does not fit the mechanism.

        """
        one = read[0]
        name = str(self.of) if self.kind == "question" else {"table": "margin"}.get(self.kind, self.kind)
        estimator = [f"estimator := {one.method}"] if one.estimator else []
        if estimator and "estimator" not in registry().question(name).options:
            raise InvalidParameter("no estimator answers this question", "leave out --estimator")
        arguments = ", ".join(
            [sql_call(one.mechanism, one.con), *self._arguments(Conditions(one.mechanism, column)), *estimator]
        )
        if not self.apart:
            name = "difference" if self.versus else registry().question(name).name
            return in_order(f"ldp.{name}({one.reports}, {arguments})", one.table, keys)
        if keys:
            raise InvalidParameter("--against compares all reports of two sources", "leave out --by")
        parts = (f"(SELECT ldp.counts({each.reports}) AS c FROM query_table({each.table}))" for each in read)
        return f"SELECT unnest(ldp.compare(one.c, other.c, {arguments})) FROM {' AS one, '.join(parts)} AS other"

    def _arguments(self, on: Conditions) -> list[str]:
        """Return what follows the mechanism in a call."""
        if self.kind in ("table", "independence"):
            given = [on.names(",".join(self.given))] if self.given else []
            return [on.names(str(self.of)), *(f"given := {names}" for names in given)]
        conditions = {"given": self.given, "versus": self.versus}
        if self.kind == "question":
            given = [f"given := {on.sql(self.given)}"] if self.given else []
            arguments = [*map(_argument, self.arguments), *given]
            self._check({one.partition(" := ")[0] for one in arguments})
            return arguments
        of = on.sql(self.of) if self.kind == "share" else on.name(str(self.of))
        return [f"of := {of}", *(f"{name} := {on.sql(each)}" for name, each in conditions.items() if each)]

    def _check(self, names: set[str]) -> None:
        """Refuse arguments that the question that is named does not take, or that lack one that it needs."""
        question = registry().question(str(self.of))
        own = question.parameters()
        needed = {name for name, default in own.items() if default is REQUIRED}
        if not needed <= names or not names <= own.keys() | question.options.keys():
            takes = ", ".join(name + " (needed)" * (name in needed) for name in [*own, *question.options])
            raise InvalidParameter(f"'{self.of}' does not take these arguments", f"it takes {takes or 'none'}")


@dataclass(frozen=True)
class Conditions:
    """Conditions and names of columns as options write them, for the values of a mechanism."""

    source: Mechanism
    column: str

    @cached_property
    def values(self) -> Domain:
        """The values, or the cells of a table of several columns."""
        return values_of(self.source)

    def sql(self, texts: str | Sequence[str]) -> str:
        """Return conditions as one SQL condition: a struct for a table, else a list of values or a range."""
        parts = dict(self._one(text) for text in ([texts] if isinstance(texts, str) else texts))
        return struct_text(parts) if isinstance(self.values, Product) else next(iter(parts.values()))

    def names(self, text: str) -> str:
        """Return names with commas between them as an SQL list."""
        return "[" + ", ".join(text_literal(name.strip()) for name in text.split(",")) + "]"

    def name(self, text: str) -> str:
        """Return the name of a column; NULL for the only one."""
        return "NULL" if not isinstance(self.values, Product) and text == self.column else text_literal(text)

    def _one(self, text: str) -> tuple[str, str]:
        name, equals, values = text.partition("=")
        if not equals:
            raise InvalidParameter("a condition names a column and its values", "city=Lima, city=Lima,Oslo or age=18..65")
        own = self._domain(name.strip())
        if _RANGE in values and family(own.values.type) != "text":
            ends = zip(("low", "high"), values.split(_RANGE, 1), strict=True)
            return name.strip(), struct_text({end: _end(own, value) for end, value in ends if value.strip()})
        return name.strip(), "[" + ", ".join(_value(own, value) for value in values.split(",")) + "]"

    def _domain(self, name: str) -> Domain:
        if isinstance(self.values, Product):
            return self.values.parts[column_place(self.values, name)]
        if name != self.column:
            raise InvalidParameter("the reports are of one column, and the condition names another", f"{self.column}=...")
        return self.values


def _argument(text: str) -> str:
    """Return an argument of a question as SQL, from its name and its value as JSON; what is not JSON is text."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip().isidentifier():
        raise InvalidParameter("an argument has a name and a value", "q=0.9, qs=[0.25,0.75] or of=age")
    try:
        plain = json.loads(value)
    except ValueError:
        plain = value
    return f"{name.strip()} := {sql_literal(plain)}"


def _value(own: Domain, text: str) -> str:
    """Return a value in the type of a domain; NULL, which conditions refuse, if it has no such value."""
    return f"TRY_CAST({text_literal(text.strip())} AS {json.loads(domain_type(own))})"


def _end(own: Domain, text: str) -> str:
    """Return the end of a range.

    Raises:
        InvalidParameter: if it is neither a number nor a date or time.

    """
    number = family(own.values.type) == "number"
    if number and _NUMBER.fullmatch(text.strip()):
        return text.strip()
    try:
        pa.scalar(text.strip()).cast(own.values.type)
        fits = not number
    except pa.ArrowException:
        fits = False
    if not fits:
        raise InvalidParameter("the end of a range is not a number, date or time", "age=18..65 or day=2013-01-01..2013-01-31")
    return _value(own, text)
