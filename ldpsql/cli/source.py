"""Where a command reads reports: a file, or a table of a database, which is opened for reading only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from ldpsql.cli.sides import Sides
    from ldpsql.estimators.base import Estimator
    from ldpsql.mechanisms.base import Mechanism


@contextmanager
def compared(con: DuckDBPyConnection, source: str, column: str, mechanism: Mechanism) -> Iterator[None]:
    """Refuse reports that another mechanism drew.

    If the block succeeds and the source does not record which mechanism drew the reports, write a note on stderr.

    Raises:
        OtherMechanism: if another mechanism drew them.

    """
    from ldpsql.bulk.fingerprints import of_source
    from ldpsql.registry.fingerprint import NONE, REMEDY, UNMARKED, check

    fingerprints = of_source(con, source, column)
    check(fingerprints or NONE, mechanism)
    yield
    if fingerprints is not None and not fingerprints:
        typer.echo(f"note: {UNMARKED}: {REMEDY}", err=True)


def drawn_by(con: DuckDBPyConnection, source: str, columns: list[str], text: str | None) -> Mechanism:
    """Return the mechanism that an option names or writes out, or else what the reports record: a row of several columns.

    Raises:
        MechanismUnrecorded: if neither names a mechanism.
        OtherMechanism: if the reports record several.

    """
    from ldpsql.bulk.columns import row_of
    from ldpsql.bulk.fingerprints import of_source
    from ldpsql.registry.recorded import recorded
    from ldpsql.sql.named import mechanism_of

    if text is not None:
        return mechanism_of(text, con)
    each = {column: recorded(of_source(con, source, column)) for column in columns}
    return row_of(each) if len(each) > 1 else each[columns[0]]


@contextmanager
def opened(database: str) -> Iterator[DuckDBPyConnection]:
    """Open a database for reading, or one in memory, with the functions attached.

    Raises:
        SourceRefused: if there is no such database.

    """
    import ldpsql
    from ldpsql.engine.interrupting import interruptible

    with ldpsql.connect(existing(database), read_only=database != ":memory:") as con, interruptible(con):
        yield con


def mechanism_from(text: str) -> Mechanism:
    """Return the mechanism that an option names or writes out; its domain may be a column of a file.

    Raises:
        UnknownName, InvalidSpec, InvalidParameter, SourceRefused: if it cannot be read.

    """
    import duckdb

    from ldpsql.sql.named import mechanism_of

    with duckdb.connect() as con:
        return mechanism_of(text, con)


def existing(database: str) -> str:
    """Return the name of a database after a check that it exists.

    Raises:
        SourceRefused: if there is no such file; DuckDB would create one.

    """
    from ldpsql.errors import SourceRefused

    if database != ":memory:" and not Path(database).is_file():
        raise SourceRefused(
            "there is no database of this name", "--database takes a DuckDB file; ldpsql sql NAME makes a new one"
        )
    return database


class Reading(NamedTuple):
    """Reports that a command reads: the place and the expression of the reports in SQL, and what estimates them."""

    con: DuckDBPyConnection
    table: str
    reports: str
    mechanism: Mechanism
    estimator: Estimator


@contextmanager
def reading(
    sources: list[str], columns: list[str], keys: list[str], mechanism: str | None, estimator: str, database: str
) -> Iterator[list[Reading]]:
    """Open sources of reports of one mechanism, after a check that none records another; see `drawn_by` and `compared`."""
    from ldpsql.bulk.columns import drawn_apart, row_part
    from ldpsql.bulk.sources import sql_of
    from ldpsql.engine.functions import struct_text
    from ldpsql.estimates.fitting import estimator_of_shares
    from ldpsql.quoting import quoted
    from ldpsql.registry.registry import registry

    with opened(database) as con, ExitStack() as comparisons:
        tables = [sql_of(con, source, [*columns, *keys]) for source in sources]
        made = drawn_by(con, sources[0], columns, mechanism)
        method = registry().estimator(estimator or estimator_of_shares(made))
        for source in sources:
            for name, part in drawn_apart(columns, made).items():
                comparisons.enter_context(compared(con, source, name, part))
        reports = quoted(columns[0]) if len(columns) == 1 else struct_text({name: quoted(name) for name in columns})
        yield [Reading(con, table, reports, row_part(columns, made), method) for table in tables]


def estimating(
    con: DuckDBPyConnection, table: str, reports: str, keys: list[str], mechanism: Mechanism, estimator: Estimator
) -> str:
    """Return the query that estimates a column of reports, a SQL expression, for each group if there are keys."""
    from ldpsql.bulk.groups import columns_of, keys_named
    from ldpsql.engine.functions import struct_text
    from ldpsql.quoting import quoted, text_literal
    from ldpsql.sql.named import sql_call

    made, method = sql_call(mechanism, con), text_literal(str(estimator))
    if not keys:
        return f"FROM ldp.estimate({table}, {reports}, {made}, estimator := {method})"
    names = zip(keys_named(keys, columns_of(estimator)), keys, strict=True)
    groups = struct_text({name: quoted(key) for name, key in names})
    call = f"ldp.estimate_by({table}, {reports}, {groups}, {made}, estimator := {method})"
    # within a group the values keep the order of the domain
    numbered = f"SELECT *, row_number() OVER () AS place FROM {call} AS t(key)"
    return f"SELECT unnest(key), * EXCLUDE (key, place)\nFROM ({numbered})\nORDER BY key, place"


def estimating_top(
    con: DuckDBPyConnection, table: str, reports: str, keys: list[str], mechanism: Mechanism, estimator: Estimator, most: int
) -> str:
    """Return the query for the most frequent values of a column of reports, a SQL expression, by group."""
    from ldpsql.quoting import text_literal
    from ldpsql.sql.named import sql_call

    call = f"ldp.top({reports}, {sql_call(mechanism, con)}, {most}, estimator := {text_literal(str(estimator))})"
    return f"{_by_group(call, table, keys)}\nORDER BY ALL"  # the keys, then the rank


def estimating_rectangles(
    con: DuckDBPyConnection, table: str, reports: str, keys: list[str], mechanism: Mechanism, estimator: Estimator, on: Sides
) -> str:
    """Return the query for the shares of rectangles of a map, by group."""
    from ldpsql.quoting import quoted, text_literal
    from ldpsql.sql.named import sql_call

    low, high = (f"[{', '.join(points)}]" for points in on.corners())
    call = f"""ldp.range_shares({reports}, {sql_call(mechanism, con)}, {low}, {high},
    estimator := {text_literal(str(estimator))}, grid := {on.grid(mechanism)})"""
    groups = "".join(f"{quoted(key)}, " for key in keys)
    listed = f"SELECT {groups}unnest([{', '.join(on.listed())}], recursive := true), unnest({call}, recursive := true)"
    order = f"\nGROUP BY {groups[:-2]}\nORDER BY {groups[:-2]}" if keys else ""
    return f"FROM (\n{listed}\nFROM query_table({table}){order}\n)\nWHERE estimate IS NOT NULL"


def finding(
    con: DuckDBPyConnection, table: str, column: str, keys: list[str], mechanism: Mechanism, most: int, *, certain: bool
) -> str:
    """Return the query for the most frequent strings behind a column of reports, by group."""
    from ldpsql.quoting import quoted
    from ldpsql.sql.named import sql_call

    call = f"ldp.heavy_hitters({quoted(column)}, {sql_call(mechanism, con)}, {most}, certain := {certain})"
    order = ", ".join([*map(quoted, keys), "estimate DESC"])
    return f"SELECT * FROM (\n{_by_group(call, table, keys)}\n)\nORDER BY {order}"


def estimating_keys(
    con: DuckDBPyConnection, table: str, column: str, keys: list[str], mechanism: Mechanism, estimator: Estimator
) -> str:
    """Return the query that estimates frequency and mean of every key from key-value reports, for each group."""
    from ldpsql.quoting import quoted, text_literal
    from ldpsql.sql.named import sql_call

    call = f"ldp.key_value({quoted(column)}, {sql_call(mechanism, con)}, estimator := {text_literal(str(estimator))})"
    return in_order(call, table, keys)


def in_order(call: str, table: str, keys: Sequence[str]) -> str:
    """Return the query for the rows of an aggregate, in each group of the keys and in their order if there are any."""
    from ldpsql.quoting import quoted

    order = ", ".join(map(quoted, keys))
    return _by_group(call, table, keys) + (f"\nORDER BY {order}" if keys else "")


def _by_group(call: str, table: str, keys: Sequence[str]) -> str:
    """Return the query for the rows of an aggregate, in each group of the keys if there are any."""
    from ldpsql.quoting import quoted

    groups = ", ".join(map(quoted, keys))
    listed = f"SELECT {groups + ', ' if groups else ''}unnest({call}, recursive := true)\nFROM query_table({table})"
    return f"{listed}\nGROUP BY {groups}" if groups else listed
