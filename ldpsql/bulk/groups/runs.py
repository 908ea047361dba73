"""The tables next to the destination of `estimate_groups`, from which a run goes on after it was killed.

    NAME ldp cells        the counts of all groups
    NAME ldp estimates    the estimates so far; it is renamed to NAME at the end, in one transaction with the rest
    NAME ldp run          one row: what was asked for, a digest of the reports, and how many cells are done

Estimates and the number of cells that are done are written in one transaction. A database that DuckDB does not store itself
keeps no row numbers, so the tables for it are temporary, and the estimates are copied at the end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import duckdb
import pyarrow as pa
from duckdb import DuckDBPyConnection

from ldpsql.bulk.groups.cells import CountTable, digest, reading
from ldpsql.bulk.writing.staging import already_exists
from ldpsql.bulk.writing.tables import is_there, table_name
from ldpsql.engine.identity import split
from ldpsql.errors import Interrupted, LdpError, UnfinishedRun
from ldpsql.quoting import quoted, text_literal

_BEGIN_AGAIN = "begin again: --replace, in Python replace=True"
_ROWS = "__ldp_group_rows"
_CATALOG = """SELECT type, path IS NOT NULL FROM duckdb_databases() WHERE database_name IN ($1, current_database())
              ORDER BY database_name = $1 DESC LIMIT 1"""
Select: TypeAlias = Callable[[str, str], str]  # a table of estimates, a query for the keys of its groups -> a query


@dataclass(frozen=True)
class Task:
    """What is asked for: ``reports`` is what ``query_table`` takes, and ``how`` the text of the mechanism and the estimator."""

    reports: str
    report: str
    keys: tuple[str, ...]
    how: tuple[str, ...]

    def __str__(self) -> str:
        return json.dumps([self.report, self.keys, self.how])


class GroupRun:
    """The tables of a run; ``cursor`` writes them."""

    def __init__(self, cursor: DuckDBPyConnection, task: Task, into: str) -> None:
        self.cursor, self.task, self._into = cursor, task, table_name(into)
        *place, name = split(into)
        ((kind, self._kept),) = cursor.execute(_CATALOG, [place[0] if place else ""]).fetchall()
        self._stored = kind == "duckdb"
        folder = place if self._stored else ["temp"]
        cells, self._estimates, self._run = (
            ".".join(map(quoted, [*folder, f"{name} ldp {what}"])) for what in ("cells", "estimates", "run")
        )
        self.cells, self._name = CountTable(cells, task.keys), quoted(name)
        self.done = self.size = self.groups = self.groups_done = 0

    def begin(self, *, replace: bool, resume: bool) -> None:
        """Count the reports, unless an earlier run that is to be resumed has counted them.

        Raises:
            DestinationExists: if the destination exists and is not to be replaced.
            UnfinishedRun: if an earlier run is neither to be resumed nor replaced, or asked for something else.

        """
        unfinished = is_there(self.cursor, self._run)
        if unfinished and not resume and not replace:
            hint = "continue it: --resume, resume=True; or begin again: --replace, replace=True"
            raise UnfinishedRun("an earlier run to this table was not finished", hint)
        if not replace and is_there(self.cursor, self._into):
            raise already_exists(self._into)
        if unfinished and resume:
            self.done = self._resumed()
        else:
            self._count()
        self.size, self.groups, self.groups_done = self.cells.size(self.cursor, self.done)

    def _count(self) -> None:
        with self._transaction():
            self._drop()
            self.cells.write(self.cursor, self.task.reports, self.task.report)
            made = f"{text_literal(str(self.task))} AS task, {text_literal(self.cells.digest(self.cursor))} AS digest"
            self.cursor.execute(f"CREATE TABLE {self._run} AS SELECT {made}, 0::BIGINT AS done")

    def _resumed(self) -> int:
        """Return how many cells are done."""
        ((task, before, done),) = self.cursor.execute(f"SELECT task, digest, done FROM {self._run}").fetchall()  # noqa: S608  # quoted
        if task != str(self.task):
            raise UnfinishedRun("the unfinished run had other columns, another mechanism or another estimator", _BEGIN_AGAIN)
        query = reading(self.task.reports, self.task.report, self.task.keys, digest(self.task.keys, "1"))
        if self.cursor.execute(query).fetchall() != [(before,)]:
            raise UnfinishedRun("the reports have changed since the unfinished run counted them", _BEGIN_AGAIN)
        return int(done)

    def append(self, rows: pa.Table, select: Select, end: int) -> None:
        """Write the estimates of the next groups, and that their cells are done.

        Args:
            rows: the estimates.
            select: the query for them, which joins the keys of the groups.
            end: the cell after their last one.

        Raises:
            UnfinishedRun: if another thread continues the same run.

        """
        self.cursor.register(_ROWS, rows)
        try:
            with self._transaction():
                moved = self.cursor.execute(f"UPDATE {self._run} SET done = {end} WHERE done = {self.done}").fetchall()  # noqa: S608  # quoted
                if moved != [(1,)]:
                    raise UnfinishedRun("another thread continues this run", "wait for it")
                verb = f"INSERT INTO {self._estimates}" if self.done else f"CREATE OR REPLACE TABLE {self._estimates} AS"
                self.cursor.execute(f"{verb} {select(_ROWS, self.cells.first_of(self.done, end))}")
        finally:
            self.cursor.unregister(_ROWS)
        self.done = end

    def publish(self) -> None:
        """Make the estimates the table that was asked for, and delete what was needed on the way."""
        with self._transaction():
            if self._stored:
                self.cursor.execute(f"DROP TABLE IF EXISTS {self._into}")
                self.cursor.execute(f"ALTER TABLE {self._estimates} RENAME TO {self._name}")
            else:
                self.cursor.execute(f"CREATE OR REPLACE TABLE {self._into} AS FROM {self._estimates}")
            self._drop()

    def _drop(self) -> None:
        for table in (self._run, self._estimates, self.cells.name):
            self.cursor.execute(f"DROP TABLE IF EXISTS {table}")

    @contextmanager
    def unless_stopped(self) -> Iterator[None]:
        """Delete the tables after an error within a ``with`` block, unless the run was stopped and can go on."""
        try:
            yield
        except (LdpError, duckdb.Error, KeyboardInterrupt) as error:
            stopped = isinstance(error, KeyboardInterrupt | Interrupted | duckdb.InterruptException)
            if not (stopped and self._stored and self._kept):
                with self._transaction():
                    self._drop()
            raise

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self.cursor.execute("BEGIN")
        try:
            yield
            self.cursor.execute("COMMIT")
        except BaseException:
            self.cursor.execute("ROLLBACK")
            raise
