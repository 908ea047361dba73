"""Estimates of very many groups: counts are written as rows (group, report, n), then estimated some groups at a time.

An aggregate such as ``ldp.ibu(x, m)`` under a GROUP BY holds the counts of every group in memory at once, as lists that
DuckDB cannot spill: about ten million cells (group, report) fit into 1 GiB. Rows of counts do spill, so here only the groups of
one step are held, and the limit is the disk.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from time import monotonic
from typing import TypeAlias

import duckdb
import numpy as np
import pyarrow as pa
from duckdb import DuckDBPyConnection
from numpy.typing import NDArray

from ldpsql.bulk.columns import text_reports
from ldpsql.bulk.fingerprints import agreed, of_source
from ldpsql.bulk.orders import Progress
from ldpsql.bulk.sinks import destination_of, is_there, table_name
from ldpsql.bulk.sources import check_columns, sql_of
from ldpsql.bulk.staging import already_exists
from ldpsql.domains.columns import finite_or_null, plain, shown_class
from ldpsql.domains.domain import Domain
from ldpsql.engine.connections import cursor_of, stops_with_connection, transaction, until_stopped
from ldpsql.engine.files import check_unquoted, format_of, pattern_at
from ldpsql.engine.groups import GROUPS_AT_ONCE, GROUPS_SEEN, in_order, learnt_of, learnt_of_order, one_thread
from ldpsql.engine.identity import split
from ldpsql.errors import Interrupted, InvalidParameter, LdpError, UnfinishedRun
from ldpsql.errors.boundary import withheld
from ldpsql.estimates.estimate import Estimates, estimated, refuse_pairs
from ldpsql.estimators.base import Estimator
from ldpsql.inference.counting import operator_of
from ldpsql.inference.counts import GroupedCounts, whole_numbers
from ldpsql.inference.limits import soonest, until
from ldpsql.mechanisms.base import Mechanism, certify_values
from ldpsql.names import IBU, KIND
from ldpsql.places import Place
from ldpsql.quoting import quoted, text_literal
from ldpsql.registry.documents import fingerprint
from ldpsql.registry.registry import registry
from ldpsql.sql.named import sql_call

CELL, PLACE = "ldp cell", "ldp place"  # the number of the group, and the position of the value in the domain
COLUMNS = ("value", "estimate", "std_error", "low", "high", "n")  # of the result, after the keys
BORROWED = "borrowed"  # the column after these, if the estimator shares anything between groups


def check_keys(report: str, keys: Sequence[str]) -> None:
    """Check the names of the column of reports and of the columns that define the groups."""
    if isinstance(keys, str) or not isinstance(keys, Sequence) or not all(isinstance(name, str) for name in (report, *keys)):
        raise InvalidParameter("the column of the reports and the keys must be names of columns", "keys=['region']")
    if not keys:
        raise InvalidParameter("at least one column must define the groups", "for one estimate use ldp.estimate")
    if len({name.casefold() for name in keys}) < len(keys):
        raise InvalidParameter("a key is named twice", "name each column once")


def result_columns(estimator: Estimator | None) -> tuple[str, ...]:
    """Return the names of the columns of the result, after the keys; None is the estimator if nobody names one."""
    return (*COLUMNS, BORROWED) if estimator is not None and estimator.borrows else COLUMNS


def numbers_of(estimator: Estimator) -> list[pa.Field]:
    """Return the columns of the result after the value."""
    return [pa.field(name, pa.int64() if name == "n" else pa.float64()) for name in result_columns(estimator)[1:]]


def keys_named(keys: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Return the names of the keys in the result, as in SQL: one named like a column of the result becomes ``value_1``."""
    return [f"{key}_1" if key.casefold() in columns else key for key in keys]


def schema_of(estimator: Estimator) -> pa.Schema:
    """Return the schema of what `rows_of` returns."""
    return pa.schema([(CELL, pa.int64()), (PLACE, pa.int32()), *numbers_of(estimator)])


def rows_of(counts: GroupedCounts, groups: NDArray[np.int64], estimates: Estimates, schema: pa.Schema) -> pa.Table:
    """Return a row for each of these groups and each value, with this `schema_of`."""
    errors, shape = estimates.intervals, estimates.fit.theta.shape
    n = np.bincount(counts.group, weights=counts.numbers)[np.searchsorted(counts.groups, groups)].astype(np.int64)
    cells = [np.repeat(groups, shape[1]), np.tile(np.arange(shape[1], dtype=np.int32), shape[0])]
    shares = [finite_or_null(part.ravel()) for part in (estimates.fit.theta, errors.std_error, errors.low, errors.high)]
    columns = [*cells, *shares, np.repeat(n, shape[1])]
    if BORROWED in schema.names:
        columns.append(np.repeat(np.array(estimates.fit.borrowed or np.zeros(shape[0])), shape[1]))
    return pa.table(columns, schema=schema)


# Counts of reports in very many groups are a sorted table of cells (keys, report, n), which is read some groups at a time. The
# cells of a group are neighbours, and groups come in the order of a hash of their keys: the first groups are a random choice. A
# group is known by the row number of its first cell; its keys never leave DuckDB.


CELLS_AT_ONCE = 1 << 20
REPORT, N, FIRST = map(quoted, ("ldp report", "ldp n", "ldp first"))  # keys may have any name


def reading(reports: str, report: str, keys: Sequence[str], what: str) -> str:
    """Return the query for something about the reports that are not NULL; ``reports`` is SQL that ``query_table`` takes."""
    source, column = f"query_table({reports})", quoted(report)
    return f"SELECT {what} FROM (SELECT {_names(keys)}, {column} AS {REPORT} FROM {source}) WHERE {REPORT} IS NOT NULL"  # noqa: S608  # quoted


def _names(keys: Sequence[str]) -> str:
    return ", ".join(map(quoted, keys))


def digest(keys: Sequence[str], number: str) -> str:
    """Return the SQL of a digest of reports and groups that does not depend on their order; each row stands for ``number``."""
    return f"concat(sum({number}), ' ', sum(hash({_names(keys)}, {REPORT})::HUGEINT * {number}))"


@dataclass(frozen=True)
class CountTable:
    """The table of the counts of all groups, sorted by group; ``name`` is what SQL calls it."""

    name: str
    keys: tuple[str, ...]

    def write(self, cursor: DuckDBPyConnection, reports: str, report: str) -> None:
        """Count the reports into the table.

        Raises:
            UnknownName: if the reports have no such columns.

        """
        existing = cursor.sql(f"FROM query_table({reports}) LIMIT 0").columns
        lowercase = [name.lower() for name in existing]
        check_columns([name for name in (report, *self.keys) if name.lower() not in lowercase], existing, hint_names=False)
        names = _names(self.keys)
        counted = reading(reports, report, self.keys, f"{names}, {REPORT}, count(*) AS {N}") + " GROUP BY ALL"
        new = f"row({names}) IS DISTINCT FROM lag(row({names})) OVER ()"
        cursor.execute(
            f"""CREATE TABLE {self.name} AS SELECT *, {new} AS {FIRST}
                FROM (SELECT * FROM ({counted}) ORDER BY hash({names}), {names})"""  # noqa: S608  # quoted
        )

    def size(self, cursor: DuckDBPyConnection, done: int) -> tuple[int, int, int]:
        """Return how many cells there are, how many groups, and how many of these among the first cells that are ``done``."""
        query = f"SELECT count(*), count(*) FILTER ({FIRST}), count(*) FILTER ({FIRST} AND rowid < {done}) FROM {self.name}"  # noqa: S608  # quoted
        ((cells, groups, groups_done),) = cursor.execute(query).fetchall()
        return cells, groups, groups_done

    def digest(self, cursor: DuckDBPyConnection) -> str:
        """Return the digest of the reports that were counted."""
        ((made,),) = cursor.execute(f"SELECT {digest(self.keys, N)} FROM {self.name}").fetchall()  # noqa: S608  # quoted
        return str(made)

    def pooled(self, cursor: DuckDBPyConnection, most: int) -> GroupedCounts | None:
        """Return the counts of all groups together; None if there are more than ``most`` different reports."""
        query = f"SELECT {REPORT}, sum({N})::UBIGINT AS {N} FROM {self.name} GROUP BY ALL LIMIT {most + 1}"  # noqa: S608  # quoted
        table = cursor.sql(query).to_arrow_table()
        return None if table.num_rows > most else GroupedCounts.of(plain(table.column(0)), plain(table.column(1)))

    def in_order(self, cursor: DuckDBPyConnection) -> NDArray[np.int64]:
        """Return the numbers of all groups in the order of their keys."""
        order = f"SELECT rowid FROM {self.name} WHERE {FIRST} ORDER BY {_names(self.keys)}"  # noqa: S608  # quoted
        return cursor.execute(order).fetchnumpy()["rowid"]

    def first_of(self, begin: int, end: int) -> str:
        """Return the query for the number of the first cell of each group in some rows, and its keys."""
        return f"SELECT rowid AS {quoted(CELL)}, {_names(self.keys)} FROM {self._rows(begin, end)} AND {FIRST}"  # noqa: S608  # quoted

    def _rows(self, begin: int, end: int) -> str:
        return f"{self.name} WHERE rowid >= {begin} AND rowid < {end}"

    def groups(self, cursor: DuckDBPyConnection, begin: int, cells: int, at_once: int) -> Iterator[tuple[int, GroupedCounts]]:
        """Yield counts of at most ``at_once`` groups, and the row after their last cell.

        Args:
            cursor: it is free for other statements between two counts.
            begin: the first cell of a group.
            cells: how many cells there are.
            at_once: how many groups are held together at most.

        """
        while begin < cells:
            table, ends = self._whole_groups(cursor, begin, cells)
            for some in range(0, len(ends) - 1, at_once):
                of_some = ends[some : some + at_once + 1]
                yield begin + int(of_some[-1]), _counts(table.slice(of_some[0], of_some[-1] - of_some[0]), of_some, begin)
            begin += int(ends[-1])

    def _whole_groups(self, cursor: DuckDBPyConnection, begin: int, cells: int) -> tuple[pa.Table, NDArray[np.int64]]:
        """Return the cells of the next whole groups, at least one, and where these begin and end."""
        most = CELLS_AT_ONCE
        while True:
            query = f"SELECT {REPORT}, {N}, {FIRST} FROM {self._rows(begin, begin + most)} ORDER BY rowid"  # noqa: S608  # quoted
            table = cursor.sql(query).to_arrow_table()
            starts = np.flatnonzero(plain(table.column(2)).to_numpy(zero_copy_only=False))
            if begin + most >= cells:
                return table, np.append(starts, table.num_rows)
            if len(starts) > 1:
                return table, starts
            most *= 2


def _counts(table: pa.Table, ends: NDArray[np.int64], begin: int) -> GroupedCounts:
    """Return the counts in the cells of groups that begin and end at these rows; ``begin`` is the number of the row 0."""
    group = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
    return GroupedCounts(plain(table.column(0)), whole_numbers(plain(table.column(1))), group, begin + ends[:-1])


# The tables next to the destination of `estimate_groups`, from which a run goes on after it was killed:
#
#     NAME ldp cells        the counts of all groups
#     NAME ldp estimates    the estimates so far; it is renamed to NAME at the end, in one transaction with the rest
#     NAME ldp run          one row: what was asked for, a digest of the reports, and how many cells are done
#
# Estimates and the number of cells that are done are written in one transaction. A database that DuckDB does not store itself
# keeps no row numbers, so the tables for it are temporary, and the estimates are copied at the end.


_BEGIN_AGAIN = "begin again: --replace, in Python replace=True"
_ROWS = "__ldp_group_rows"
_CATALOG = """SELECT type, path IS NOT NULL FROM duckdb_databases() WHERE database_name IN ($1, current_database())
              ORDER BY database_name = $1 DESC LIMIT 1"""

Select: TypeAlias = Callable[[str, str], str]  # a table of estimates, a query for the keys of its groups -> a query


@dataclass(frozen=True)
class Task:
    """What is asked for: ``reports`` is SQL that ``query_table`` takes, ``how`` the text of the mechanism and the estimator."""

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
            with transaction(self.cursor):
                self._drop()
                self.cells.write(self.cursor, self.task.reports, self.task.report)
                made = f"{text_literal(str(self.task))} AS task, {text_literal(self.cells.digest(self.cursor))} AS digest"
                self.cursor.execute(f"CREATE TABLE {self._run} AS SELECT {made}, 0::BIGINT AS done")
        self.size, self.groups, self.groups_done = self.cells.size(self.cursor, self.done)

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
        """Write the estimates of the next groups, and that their cells are done."""
        self.cursor.register(_ROWS, rows)
        try:
            with transaction(self.cursor):
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
        with transaction(self.cursor):
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
                with transaction(self.cursor):
                    self._drop()
            raise


@dataclass(frozen=True)
class Learned:
    """The estimators that have seen all groups, and which of these each group has; ``groups`` rise. By default, the first."""

    estimators: list[Estimator]
    groups: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    runs: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @classmethod
    def of(cls, run: GroupRun, drew: Mechanism, method: Estimator, at_once: int, progress: Progress | None) -> Learned:
        """Return the estimator with what groups have in common; of very many groups it sees a part, and all reports."""
        if not method.needs_groups:
            return cls([method])
        at_once = min(at_once, GROUPS_SEEN)
        seen = _few(run.cells.groups(run.cursor, 0, run.size, at_once), progress)
        keys = run.cursor.sql(f"FROM ({run.cells.first_of(0, 0)}) LIMIT 0").to_arrow_table().schema
        if run.groups <= GROUPS_SEEN and in_order(keys.field(len(keys) - 1).type):
            order = run.cells.in_order(run.cursor)
            ranked = np.argsort(order)
            runs, estimators = learnt_of_order(drew, GroupedCounts.joined(list(seen)).in_order(order), method)
            return cls(estimators, order[ranked], runs[ranked])
        total = run.cells.pooled(run.cursor, CELLS_AT_ONCE)
        if total is None:
            some = GroupedCounts.joined(list(seen))
            total = GroupedCounts.of(some.reports, pa.array(some.numbers))
            seen = _few(run.cells.groups(run.cursor, 0, run.size, at_once), progress)
        return cls([learnt_of(drew, total, seen, method)])

    def parts(self, counts: GroupedCounts) -> Iterator[tuple[GroupedCounts, Estimator]]:
        """Yield the counts of the groups that have the same estimator, and it."""
        if len(self.estimators) == 1:
            yield counts, self.estimators[0]
            return
        runs = self.runs[np.searchsorted(self.groups, counts.groups)][counts.group]
        yield from ((counts.select(np.flatnonzero(runs == run)), self.estimators[run]) for run in np.unique(runs))


def _few(groups: Iterator[tuple[int, GroupedCounts]], progress: Progress | None) -> Iterator[GroupedCounts]:
    """Yield the counts of the first `GROUPS_SEEN` groups, and the rest of the part that has the last of them."""
    seen = 0
    for _, counts in groups:
        seen += len(counts.groups)
        if progress:
            progress(seen, None)
        yield counts
        if seen >= GROUPS_SEEN:
            return


ROWS_AT_ONCE = 5 << 18  # of estimates: mostly those of all groups that are read at once
SECONDS = 5.0  # after which the estimates so far are written
_SLOW, _FEW = 1 << 25, 16  # if groups take long: most values x reports x groups at once, and fewest groups


@withheld
@stops_with_connection
def estimate_groups(
    con: DuckDBPyConnection,
    reports: str | os.PathLike[str],
    into: str,
    *,
    report: str,
    keys: Sequence[str],
    mechanism: Mechanism | str | None = None,
    estimator: Estimator | str = IBU,
    replace: bool = False,
    resume: bool = False,
    progress: Progress | None = None,
) -> int:
    """Estimate every group of a table of reports into a table: the keys, value, estimate, std_error, low, high and n.

    If the estimator learns from all groups, there is also ``borrowed``: which part of the estimate of a group, from 0 to 1, is
    from the reports of other groups.

    The table appears when it is complete. Until then the run keeps its counts and estimates in three tables next to it, named
    ``into`` and ``ldp cells``, ``ldp estimates`` and ``ldp run``. If the process is killed, a run with ``resume`` goes on from
    them.

    Args:
        con: a connection with ldpsql attached as ``ldp``; a cursor of it does the work, in transactions of its own.
        reports: what ``query_table`` takes: a table, a view, a Parquet, CSV or JSON file, a pattern, or a URL of these.
        into: the name of the table to make, ``name`` or ``schema.name``.
        report: the column of the reports; NULL reports are left out, and so are groups that have only these.
        keys: the columns that define the groups.
        mechanism: what drew the reports; a name may be one that the connection was attached with. By default the mechanism that
            the table or the files record.
        estimator: any estimator, with its options. A deadline is for all groups together.
        replace: replace the table if it exists, and an unfinished run.
        resume: go on with an unfinished run of the same reports, columns, mechanism and estimator; begin one if there is none.
        progress: called with the number of groups that are done, and of all. If the estimator learns from all groups first, it
            is called with the number of those that it has read, and None.

    Returns:
        The number of groups.

    Raises:
        DestinationExists: if the table exists and ``replace`` is false.
        UnfinishedRun: if an unfinished run is neither to be resumed nor replaced, or had other reports, columns, mechanism or
            estimator.
        InvalidParameter: unless the keys are names of different columns, and the reports have a name.
        OtherMechanism: if the table or the files record that another mechanism drew the reports.
        MechanismUnrecorded: if no mechanism is passed, and none is recorded.

    """
    check_keys(report, keys)
    source = _named(con, reports)
    drew, method = agreed(of_source(con, source, report), mechanism, con), registry().estimator(estimator)
    refuse_pairs(drew)
    with cursor_of(con) as cursor:
        check_unquoted(cursor, source)
        files = format_of(Place.of(source).path)  # they may become a view of the cursor
        table = sql_of(cursor, source, (), text_reports([report], drew)) if files else text_literal(source)
        run = GroupRun(cursor, Task(table, report, tuple(keys), (fingerprint(drew), str(method))), destination_of(into))
        run.begin(replace=replace, resume=resume)
        limited = until(soonest(method.deadline)) if method.deadline else nullcontext()
        with run.unless_stopped(), one_thread, limited:
            at_once = groups_at_once(drew, method)
            learned = Learned.of(run, drew, method, at_once, progress) if run.size else Learned([method])
            for done in _written(con, run, drew, learned):
                if progress:
                    progress(done, run.groups)
            run.publish()
    return run.groups


def _named(con: DuckDBPyConnection, reports: object) -> str:
    """Return the name of a table or the path of files."""
    if not isinstance(reports, str | os.PathLike):
        raise InvalidParameter(
            f"the reports must be a table or files, not {shown_class(reports)}", "name a frame: con.register('reports', frame)"
        )
    place = Place.of(reports)
    place.open_to(con)
    return pattern_at(place).text if place.is_url or "/" in place.text else place.text


def _written(con: DuckDBPyConnection, run: GroupRun, drew: Mechanism, learned: Learned) -> Iterator[int]:
    """Estimate the groups that are not done, write many rows at a time, and yield how many groups are done."""
    select, groups, schema = _joined(run, drew, learned.estimators[0]), run.groups_done, schema_of(learned.estimators[0])
    waiting, written = [schema.empty_table()], monotonic()
    at_once = groups_at_once(drew, learned.estimators[0])
    for end, counts in until_stopped(con, run.cells.groups(run.cursor, run.done, run.size, at_once)):
        for some, method in learned.parts(counts):
            waiting += [rows_of(some, *part, schema) for part in estimated(drew, some, method)]
        groups += len(counts.groups)
        if end == run.size or sum(map(len, waiting)) >= ROWS_AT_ONCE or monotonic() - written > SECONDS:
            run.append(pa.concat_tables(waiting), select, end)
            waiting, written = [schema.empty_table()], monotonic()
            yield groups
    if not run.size:
        run.append(schema.empty_table(), select, 0)


def groups_at_once(drew: Mechanism, method: Estimator) -> int:
    """Return how many groups are estimated together: more if there are few values, and each can be reported.

    Groups that borrow from others take long if their reports are not votes, so few of them are estimated between two writes.
    """
    certified = certify_values(drew)
    values, reports = len(certified.values), certified.reports
    if not isinstance(reports, Domain):
        return max(1, min(GROUPS_AT_ONCE, ROWS_AT_ONCE // values))
    most = max(1, ROWS_AT_ONCE // max(values, len(reports)))
    slow = method.borrows and operator_of(drew).votes is None
    return min(most, max(_FEW, _SLOW // (values * len(reports)))) if slow else most


def _joined(run: GroupRun, drew: Mechanism, method: Estimator) -> Select:
    """Return the query for the rows of the destination, from a table as `rows_of` makes it and the keys of its groups."""
    values = certify_values(drew).values.written
    run.cursor.register("__ldp_group_texts", pa.table({"place": np.arange(len(values), dtype=np.int32), "value": values}))
    typed = f"SELECT place AS {quoted(PLACE)}, cast_to_type(value, ({KIND}({sql_call(drew, run.cursor)}))[1]) AS value"
    run.cursor.execute(f"CREATE OR REPLACE TEMP TABLE __ldp_group_values AS {typed} FROM __ldp_group_texts")
    run.cursor.unregister("__ldp_group_texts")
    made = result_columns(method)
    names = zip(run.cells.keys, keys_named(run.cells.keys, made), strict=True)
    keys, numbers = (f"g.{quoted(key)} AS {quoted(name)}" for key, name in names), (f"r.{name}" for name in made[1:])
    columns, values_of = ", ".join([*keys, "v.value", *numbers]), f"JOIN temp.__ldp_group_values AS v USING ({quoted(PLACE)})"
    return lambda rows, groups: f"SELECT {columns} FROM {rows} AS r JOIN ({groups}) AS g USING ({quoted(CELL)}) {values_of}"  # noqa: S608  # quoted
