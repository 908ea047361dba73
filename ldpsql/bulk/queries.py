"""Queries over reports, for each group of the keys if there are any: what commands and Python run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from duckdb import DuckDBPyConnection

from ldpsql.bulk.sources import names_of
from ldpsql.engine.functions import struct_text
from ldpsql.errors import InvalidParameter
from ldpsql.estimates.question import Question
from ldpsql.estimators.base import Estimator
from ldpsql.inference.mixed import Mixed
from ldpsql.mechanisms.base import Mechanism
from ldpsql.names import KEYS, PEOPLE
from ldpsql.outcomes.moments import sums_sql
from ldpsql.quoting import quoted, text_literal
from ldpsql.sql.named import sql_call

_SUMS = '"ldp sums"'  # no table of a user has this name


class Reports(NamedTuple):
    """Reports that are read: the table and the expression of the reports in SQL, and what estimates them, if it is named."""

    con: DuckDBPyConnection
    table: str
    reports: str
    mechanism: Mechanism | Mixed
    estimator: Estimator | None
    weight: str | None = None

    @property
    def method(self) -> str:
        """The estimator in SQL; NULL is what SQL takes if nobody names one."""
        return "NULL" if self.estimator is None else text_literal(str(self.estimator))

    @property
    def options(self) -> str:
        """The estimator and the column of weights as the options of a call in SQL."""
        return f"estimator := {self.method}" + (f", weight := {quoted(self.weight)}" if self.weight else "")


def reports_of(columns: Sequence[str]) -> str:
    """Return the expression of the reports of a column, or of several as structs."""
    return quoted(columns[0]) if len(columns) == 1 else _by(columns)


def shares(of: Reports, keys: Sequence[str]) -> str:
    """Return the query for the share of each value."""
    by = f", by := {_by(keys)}" if keys else ""
    return _in_order(f"ldp.estimate({of.table}, {of.reports}, {sql_call(of.mechanism, of.con)}, {of.options}{by})", keys)


def raw_columns(question: type[Question], arguments: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the names of columns in the arguments that are raw columns."""
    raw = {name: arguments[name] for name in question.raw if arguments.get(name) is not None}
    columns = {name: [given] if isinstance(given, str) else list(names_of(given, name)) for name, given in raw.items()}
    if any(len(names) != 1 for name, names in columns.items() if question.raw[name] is None):
        raise InvalidParameter("an outcome is one column", "name one")
    return columns


def answers(
    of: Reports, question: type[Question], arguments: Mapping[str, str], keys: Sequence[str], raw: Mapping[str, list[str]]
) -> str:
    """Return the query for the answer to a question, with the groups in the order of their keys; ``raw`` are `raw_columns`."""
    columns = {name: _by(own) if question.raw[name] else quoted(own[0]) for name, own in raw.items()}
    if len(question.raw) > 1 and question.adds_up(arguments):
        of, columns = _added_up(of, [name for own in raw.values() for name in own], keys), {}
    options = ({"by": _by(keys)} if keys else {}) | ({"weight": quoted(of.weight)} if of.weight else {})
    given = _named(columns | dict(arguments) | options)
    return _in_order(f"ldp.{quoted(question.name)}({of.table}, {of.reports}, {sql_call(of.mechanism, of.con)}{given})", keys)


def _added_up(of: Reports, raw: Sequence[str], keys: Sequence[str]) -> Reports:
    """Return the sums of raw columns by report and keys, which stand in place of reports, in a temporary view."""
    sums = sums_sql(of.reports, {name: quoted(name) for name in raw}, quoted(of.weight) if of.weight else "1")
    by = "".join(f"{quoted(key)}, " for key in keys)
    query = f"SELECT {by}{sums} AS {_SUMS} FROM query_table({of.table}) GROUP BY {by}{of.reports}"  # noqa: S608  # quoted
    of.con.execute(f"CREATE OR REPLACE TEMP VIEW {_SUMS} AS {query}")
    return of._replace(table=text_literal(_SUMS), reports=_SUMS, weight=None)


def answers_of_counts(of: Reports, question: str, arguments: Mapping[str, str]) -> str:
    """Return the query for the answer to a question from one row of counts, which table functions do not take."""
    call = f"ldp.{quoted(question)}({of.reports}, {sql_call(of.mechanism, of.con)}{_named(arguments)})"
    n = f"{PEOPLE}({of.reports}) AS n"
    return f"SELECT unnest({call}, recursive := true), {n} FROM query_table({of.table})"  # noqa: S608


def answers_of_sums(of: Reports, question: type[Question], arguments: Mapping[str, str], keys: Sequence[str]) -> str:
    """Return the query for the answer to a question about raw columns from their sums, which stand in place of reports."""
    call = f"ldp.{quoted(question.name)}({of.reports}, {sql_call(of.mechanism, of.con)}{_named(arguments)}) AS answer"
    columns = [call, f"{PEOPLE}({struct_text({'reports': f'list({of.reports})', 'rows': 'NULL'})})::BIGINT AS n"]
    shown = ["unnest(answer, recursive := true)", "n"]
    if keys:
        taken = ", ".join(map(text_literal, [*question.fields, "n"]))
        columns = [f"any_value({KEYS}({_by(keys)}, [{taken}])) AS keys", *columns]
        shown = ["unnest(keys, recursive := true)", *shown]
    grouped = f" GROUP BY {', '.join(map(quoted, keys))}" if keys else ""
    answered = f"SELECT {', '.join(columns)} FROM query_table({of.table}){grouped}"  # noqa: S608  # quoted
    return _in_order(f"(SELECT {', '.join(shown)} FROM ({answered}))", keys)  # noqa: S608  # quoted


def compared(one: Reports, other: Reports, question: str, arguments: Mapping[str, str]) -> str:
    """Return the query for the answer to a question about two groups of people."""
    weight = f", weight := {quoted(one.weight)}" if one.weight else ""
    parts = (f"(SELECT ldp.counts({each.reports}{weight}) AS c FROM query_table({each.table}))" for each in (one, other))  # noqa: S608
    call = f"ldp.{quoted(question)}(one.c, other.c, {sql_call(one.mechanism, one.con)}{_named(arguments)})"
    return f"SELECT unnest({call}) FROM {' AS one, '.join(parts)} AS other"  # noqa: S608


def _named(arguments: Mapping[str, str]) -> str:
    return "".join(f", {quoted(name)} := {value}" for name, value in arguments.items())


def _by(keys: Sequence[str]) -> str:
    return struct_text({key: quoted(key) for key in keys})


def _in_order(call: str, keys: Sequence[str]) -> str:
    """Return the query for the rows of a table function whose first columns are the keys; those of a group keep their order."""
    if not keys:
        return f"FROM {call}"
    numbered = f'SELECT *, row_number() OVER () AS "ldp place" FROM {call}'  # noqa: S608  # quoted
    order = ", ".join(map(str, range(1, len(keys) + 1)))
    return f'SELECT * EXCLUDE ("ldp place")\nFROM ({numbered})\nORDER BY {order}, "ldp place"'
