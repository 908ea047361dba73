"""The reports that a command reads: a file, or a table of a database, which is opened for reading only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from ldpsql.estimators.base import Estimator
    from ldpsql.mechanisms.base import Mechanism


@contextmanager
def compared(con: DuckDBPyConnection, source: str, column: str, mechanism: Mechanism) -> Iterator[None]:
    """Refuse reports of another mechanism; after a block that succeeds, write a note if no fingerprint names their mechanism.

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


@contextmanager
def opened(database: str) -> Iterator[DuckDBPyConnection]:
    """Open a database for reading, or one in memory, with the functions attached.

    Raises:
        SourceRefused: if the file does not exist.

    """
    import ldpsql
    from ldpsql.engine.interrupting import interruptible

    with ldpsql.connect(existing(database), read_only=database != ":memory:") as con, interruptible(con):
        yield con


def existing(database: str) -> str:
    """Return the name of a database whose file exists.

    Raises:
        SourceRefused: if the file does not exist: DuckDB would make one.

    """
    from ldpsql.errors import SourceRefused

    if database != ":memory:" and not Path(database).is_file():
        raise SourceRefused(
            "there is no database of this name", "--database takes a DuckDB file; a new one is made by ldpsql sql NAME"
        )
    return database


@dataclass(frozen=True)
class Question:
    """What is to be estimated: a column of reports, in each group of the keys, from a mechanism by an estimator."""

    column: str
    keys: list[str]
    mechanism: Mechanism
    estimator: Estimator

    @classmethod
    def of(cls, column: str, by: list[str] | None, mechanism: str, estimator: str) -> Question:
        """Return the question that the options of a command ask."""
        from ldpsql.registry.registry import registry

        return cls(column, by or [], registry().mechanism(mechanism), registry().estimator(estimator))

    def table(self, con: DuckDBPyConnection, source: str) -> str:
        """Return the string by which ``query_table`` reads a source, if it has the column and the keys."""
        from ldpsql.bulk.sources import sql_of

        return sql_of(con, source, [self.column, *self.keys])

    def query(self, con: DuckDBPyConnection, table: str) -> str:
        """Return the query that estimates the reports of a table."""
        from ldpsql.engine.functions import struct_text
        from ldpsql.quoting import quoted, text_literal
        from ldpsql.sql.named import sql_call

        column, mechanism = quoted(self.column), sql_call(self.mechanism, con)
        estimator = text_literal(str(self.estimator))
        if not self.keys:
            return f"FROM ldp.estimate({table}, {column}, {mechanism}, estimator := {estimator})"
        groups = struct_text({key: quoted(key) for key in self.keys})
        call = f"ldp.estimate_by({table}, {column}, {groups}, {mechanism}, estimator := {estimator})"
        # within a group, values stay in the order of the domain
        numbered = f"SELECT *, row_number() OVER () AS place FROM {call} AS t(key)"
        return f"SELECT unnest(key), * EXCLUDE (key, place)\nFROM ({numbered})\nORDER BY key, place"
