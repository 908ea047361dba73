"""Where a command finds reports: a file, or a table of a database, which is opened for reading only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from ldpsql.estimators.base import Estimator
    from ldpsql.mechanisms.base import Mechanism


@contextmanager
def compared(con: DuckDBPyConnection, source: str, column: str, mechanism: Mechanism) -> Iterator[None]:
    """Refuse reports that another mechanism drew; after a block that succeeds, say on stderr if nothing says which one did.

    Raises:
        OtherMechanism: if another one did.

    """
    from ldpsql.bulk.fingerprints import of_source
    from ldpsql.registry.fingerprint import NONE, REMEDY, UNMARKED, check

    fingerprints = of_source(con, source, column)
    check(fingerprints or NONE, mechanism)
    yield
    if fingerprints is not None and not fingerprints:
        typer.echo(f"note: {UNMARKED}: {REMEDY}", err=True)


@contextmanager
def opened(database: str) -> Iterator[DuckDBPyConnection]:
    """Open a database for reading, or one in memory, with the functions attached.

    Raises:
        SourceRefused: where there is none.

    """
    import ldpsql
    from ldpsql.engine.interrupting import interruptible

    with ldpsql.connect(existing(database), read_only=database != ":memory:") as con, interruptible(con):
        yield con


def existing(database: str) -> str:
    """Return the name of a database that is there.

    Raises:
        SourceRefused: where there is no such file: DuckDB would make one.

    """
    from ldpsql.errors import SourceRefused

    if database != ":memory:" and not Path(database).is_file():
        raise SourceRefused(
            "there is no database of this name", "--database takes a DuckDB file; a new one is made by ldpsql sql NAME"
        )
    return database


def estimating(
    con: DuckDBPyConnection, table: str, column: str, keys: list[str], mechanism: Mechanism, estimator: Estimator
) -> str:
    """Return the query that estimates a column of reports, in each group of the keys where there are any."""
    from ldpsql.engine.functions import struct_text
    from ldpsql.quoting import quoted, text_literal
    from ldpsql.sql.named import sql_call

    made, method = sql_call(mechanism, con), text_literal(str(estimator))
    if not keys:
        return f"FROM ldp.estimate({table}, {quoted(column)}, {made}, estimator := {method})"
    groups = struct_text({key: quoted(key) for key in keys})
    call = f"ldp.estimate_by({table}, {quoted(column)}, {groups}, {made}, estimator := {method})"
    # within its group a value keeps its place in the domain
    numbered = f"SELECT *, row_number() OVER () AS place FROM {call} AS t(key)"
    return f"SELECT unnest(key), * EXCLUDE (key, place)\nFROM ({numbered})\nORDER BY key, place"


def estimating_top(
    con: DuckDBPyConnection, table: str, column: str, keys: list[str], mechanism: Mechanism, estimator: Estimator, most: int
) -> str:
    """Return the query for the most frequent values of a column of reports, by group."""
    from ldpsql.quoting import quoted, text_literal
    from ldpsql.sql.named import sql_call

    call = f"ldp.top({quoted(column)}, {sql_call(mechanism, con)}, {most}, estimator := {text_literal(str(estimator))})"
    return f"{_by_group(call, table, keys)}\nORDER BY ALL"  # the keys, then the rank


def estimating_keys(
    con: DuckDBPyConnection, table: str, column: str, keys: list[str], mechanism: Mechanism, estimator: Estimator
) -> str:
    """Return the query that estimates frequency and mean of every key in a column of key-value reports, by group."""
    from ldpsql.quoting import quoted, text_literal
    from ldpsql.sql.named import sql_call

    call = f"ldp.key_value({quoted(column)}, {sql_call(mechanism, con)}, estimator := {text_literal(str(estimator))})"
    order = ", ".join(map(quoted, keys))
    return _by_group(call, table, keys) + (f"\nORDER BY {order}" if keys else "")


def _by_group(call: str, table: str, keys: list[str]) -> str:
    """Return the query for the rows of an aggregate, in each group of the keys if there are any."""
    from ldpsql.quoting import quoted

    groups = ", ".join(map(quoted, keys))
    listed = f"SELECT {groups + ', ' if groups else ''}unnest({call}, recursive := true)\nFROM query_table({table})"
    return f"{listed}\nGROUP BY {groups}" if groups else listed
