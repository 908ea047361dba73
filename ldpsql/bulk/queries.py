"""Queries over reports, for each group of the keys if there are any: what commands and Python run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from duckdb import DuckDBPyConnection

from ldpsql.bulk.many_groups import keys_named, result_columns
from ldpsql.engine.functions import struct_text
from ldpsql.estimators.base import Estimator
from ldpsql.mechanisms.base import Mechanism
from ldpsql.quoting import quoted, text_literal
from ldpsql.sql.named import sql_call


class Reports(NamedTuple):
    """Reports that are read: the table and the expression of the reports in SQL, and what estimates them, if it is named."""

    con: DuckDBPyConnection
    table: str
    reports: str
    mechanism: Mechanism
    estimator: Estimator | None

    @property
    def method(self) -> str:
        """The estimator in SQL; NULL is what SQL takes if nobody names one."""
        return "NULL" if self.estimator is None else text_literal(str(self.estimator))


def shares(of: Reports, keys: Sequence[str]) -> str:
    """Return the query for the share of each value."""
    made, method = sql_call(of.mechanism, of.con), of.method
    if not keys:
        return f"FROM ldp.estimate({of.table}, {of.reports}, {made}, estimator := {method})"
    names = zip(keys_named(keys, result_columns(of.estimator)), keys, strict=True)
    groups = struct_text({name: quoted(key) for name, key in names})
    call = f"ldp.estimate_by({of.table}, {of.reports}, {groups}, {made}, estimator := {method})"
    # within a group the values keep the order of the domain
    numbered = f"SELECT *, row_number() OVER () AS place FROM {call} AS t(key)"  # noqa: S608  # quoted
    return f"SELECT unnest(key), * EXCLUDE (key, place)\nFROM ({numbered})\nORDER BY key, place"


def in_order(call: str, table: str, keys: Sequence[str]) -> str:
    """Return the query for the rows of an aggregate, with the groups in the order of their keys."""
    query = by_group(call, table, keys)
    if not keys:
        return query
    # the rows of a group keep their order
    numbered = f'SELECT *, row_number() OVER () AS "ldp place"\nFROM ({query})'
    return f'SELECT * EXCLUDE ("ldp place")\nFROM ({numbered})\nORDER BY {", ".join(map(quoted, keys))}, "ldp place"'


def by_group(call: str, table: str, keys: Sequence[str]) -> str:
    """Return the query for the rows of an aggregate."""
    groups = ", ".join(map(quoted, keys))
    listed = f"SELECT {groups + ', ' if groups else ''}unnest({call}, recursive := true)\nFROM query_table({table})"
    return f"{listed}\nGROUP BY {groups}" if groups else listed
