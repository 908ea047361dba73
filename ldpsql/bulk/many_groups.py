"""Estimates of very many groups: counts are written as rows (group, report, n), then estimated some groups at a time.

An aggregate such as ``ldp.ibu(x, m)`` under a GROUP BY holds the counts of every group in memory at once, as lists that
DuckDB cannot spill: about ten million cells (group, report) fit into 1 GiB. Rows of counts do spill, so here only the groups of
one step are held, and the limit is the disk.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from time import monotonic

import numpy as np
import pyarrow as pa
from duckdb import DuckDBPyConnection

from ldpsql.bulk.fingerprints import agreed, of_source
from ldpsql.bulk.groups.learning import Learned
from ldpsql.bulk.groups.rows import CELL, PLACE, check_keys, keys_named, result_columns, rows_of, schema_of
from ldpsql.bulk.groups.runs import GroupRun, Select, Task
from ldpsql.bulk.meter import Progress
from ldpsql.bulk.prepared import destination_of
from ldpsql.bulk.reading.files import pattern_at
from ldpsql.domains.arrays import shown_class
from ldpsql.domains.domain import Domain
from ldpsql.engine.groups import GROUPS_AT_ONCE, estimated, refuse_pairs
from ldpsql.engine.interrupting import cursor_of, stops_with_connection, until_stopped
from ldpsql.engine.threads import one_thread
from ldpsql.errors import InvalidParameter
from ldpsql.errors.boundary import withheld
from ldpsql.estimators.base import Estimator
from ldpsql.inference.counting import operator_of
from ldpsql.inference.deadline import soonest, until
from ldpsql.mechanisms.base import Mechanism, certify_values
from ldpsql.names import IBU, KIND
from ldpsql.places import Place
from ldpsql.quoting import quoted
from ldpsql.registry.fingerprint import fingerprint
from ldpsql.registry.registry import registry
from ldpsql.sql.named import sql_call

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
        reports: what ``query_table`` takes: a table, a view, a Parquet file, a pattern, or a URL of these.
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
        run = GroupRun(cursor, Task(source, report, tuple(keys), (fingerprint(drew), str(method))), destination_of(into))
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
