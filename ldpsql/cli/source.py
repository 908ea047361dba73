"""Where a command reads reports: a file, or a table of a database, which is opened for reading only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from ldpsql.estimators.base import Estimator
    from ldpsql.mechanisms.base import Mechanism


@contextmanager
def compared(con: DuckDBPyConnection, source: str, column: str, mechanism: Mechanism) -> Iterator[bool]:
    """Refuse reports that another mechanism drew, and yield whether the source records which one did.

    If the block succeeds and the source does not, write a note on stderr.

    Raises:
        OtherMechanism: if another mechanism drew them.

    """
    from ldpsql.bulk.fingerprints import of_source
    from ldpsql.estimates.diagnosis import UNKNOWN_RECORD
    from ldpsql.registry.agreement import NONE, check_agreement

    fingerprints = of_source(con, source, column)
    check_agreement(fingerprints or NONE, mechanism)
    yield bool(fingerprints)
    if not fingerprints:
        typer.echo(f"note: {UNKNOWN_RECORD}", err=True)


def drawn_by(con: DuckDBPyConnection, source: str, columns: list[str], text: str | None) -> Mechanism:
    """Return the mechanism that an option names or writes out, or else what the reports record: a row of several columns.

    Raises:
        MechanismUnrecorded: if neither names a mechanism.
        OtherMechanism: if the reports record several.

    """
    from ldpsql.bulk.columns import row_of
    from ldpsql.bulk.fingerprints import of_source
    from ldpsql.registry.agreement import recorded
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


class Reports(NamedTuple):
    """Reports that a command reads: the table and the expression of the reports in SQL, and what estimates them."""

    con: DuckDBPyConnection
    table: str
    reports: str
    mechanism: Mechanism
    estimator: Estimator


@contextmanager
def reading(
    sources: list[str], columns: list[str], keys: list[str], mechanism: str | None, estimator: str, database: str
) -> Iterator[list[Reports]]:
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
        yield [Reports(con, table, reports, row_part(columns, made), method) for table in tables]
