"""The cycles of PRIVIC over a source of values: each is charged, drawn and estimated in turn."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
from duckdb import DuckDBPyConnection

from ldpsql.bulk.charging import Charge, Charged, charge_of, return_charge
from ldpsql.bulk.sources import sql_of
from ldpsql.engine.identity import Identity, digest_of, identity_of, identity_of_statement
from ldpsql.engine.interrupting import interruptible
from ldpsql.engine.threads import one_thread
from ldpsql.errors import DataError, DestinationExists, NoReports
from ldpsql.inference.counting import aligned
from ldpsql.inference.counts import GroupedCounts
from ldpsql.ledger import Release
from ldpsql.ledger.policy import ROW
from ldpsql.mechanisms.families import PriorMechanism
from ldpsql.privic.state import Cycle, State, Values
from ldpsql.privic.step import STEPS, step
from ldpsql.quoting import quoted
from ldpsql.sql.attach import connect

T = TypeVar("T")
_TAKEN = Values("__ldpsql_value", "temp.main.__ldpsql_source")


def collect(
    source: str | pl.DataFrame | pa.Table,
    state: str | Path,
    mechanism: PriorMechanism,
    *,
    column: str = "cell",
    cycles: int = 8,
    stop: str | int = STEPS,
    pool: bool = False,
    finished: Callable[[Cycle], None] | None = None,
    charge: Charged = None,
) -> list[Cycle]:
    """Run cycles until there are as many as asked for, and return all; everybody in the source reports once in each cycle.

    The reports of a cycle and its step are written in one transaction, so a cycle is finished or has not begun: its reports
    are never drawn again and never stored in part. Called again, a run goes on after the last finished cycle.
    The source may be another one each time. The file holds, in the schema ``privic``, the tables ``reports`` (cycle, report),
    ``cycles`` (cycle, mechanism, counts, step) and ``run``. Each cycle spends its own epsilon: a user's reports of all cycles
    together spend their sum.

    Args:
        source: a Parquet, CSV, JSON or Arrow file, or a frame, with the true values; or a query in brackets, with ``column``
            any SQL.
        state: a DuckDB file; it is created if it does not exist.
        mechanism: the mechanism of the first cycle, as `start` makes it.
        column: the column of values, or a SQL expression over the columns of the source.
        cycles: how many cycles are to be finished.
        stop: steps of IBU in each cycle, or 'certified'.
        pool: use the reports of all cycles for each estimate, instead of the last cycle's.
        finished: called after each cycle that this call finishes.
        charge: the ledger that is charged for every cycle before it is drawn, as for a column ``cell``; or the name of the
            people, for the ledger of ``ldpsql.toml``.

    Raises:
        InvalidParameter: if the state belongs to a run with other parameters.
        BudgetExceeded: if a cycle would cost somebody too much. The cycles before it are finished.
        DestinationExists: if the ledger has a cycle as published, and the state does not have it.
        NoReports: if the source is empty.
        DataError: if the source breaks off. The reason is withheld, because it may quote a value.
        SourceRefused: if the source does not exist or cannot be read.
        duckdb.Error: with our own message, if a value cannot be perturbed.

    """
    charge = charge_of(charge)
    with connect(str(state)) as con, interruptible(con):
        values = Values(column, _relation(con, source))
        run = State.opened(con, mechanism, stop=str(stop), pool=pool)
        done, data = run.cycles(), _whose(con, charge, values) if charge else None
        while len(done) < cycles:
            taken = _with_users(con, values, charge.user) if charge and charge.user else values
            name = f"{Path(state).absolute()} cycle {len(done) + 1}"
            release = _charged(con, charge, data, done[-1].next if done else mechanism, taken, destination=name)
            then = partial(charge.ledger.drawn, release.token) if charge and release else lambda: None
            try:
                done.append(_unquoted(partial(_run_cycle, run, done, taken, stop=str(stop), then=then)))
            except BaseException:
                if charge and release:
                    return_charge(con, charge.ledger, release.token, unseen=False)
                raise
            if charge and release:
                charge.ledger.publish(release)
            if finished:
                finished(done[-1])
        return done


def _relation(con: DuckDBPyConnection, source: str | pl.DataFrame | pa.Table) -> str:
    """Return the SQL of a source."""
    if isinstance(source, str):
        return source if source.startswith("(") else f"query_table({sql_of(con, source)})"
    con.register("source_of_values", source)
    return quoted("source_of_values")


def _with_users(con: DuckDBPyConnection, values: Values, user: str) -> Values:
    """Copy values and user ids into a table of this connection, so that exactly those who are charged are drawn."""
    query = f"SELECT {values.column} AS {_TAKEN.column}, {quoted(user)} FROM {values.relation}"  # noqa: S608  # quoted
    _unquoted(lambda: con.execute(f"CREATE OR REPLACE TEMP TABLE {_TAKEN.relation} AS {query}"))
    return _TAKEN


def _whose(con: DuckDBPyConnection, charge: Charge, values: Values) -> Identity:
    """Return whose rows the values are of, under the name of the charge: that name is charged too."""
    query = f"SELECT {values.column} FROM {values.relation}"  # noqa: S608  # quoted
    with con.cursor() as cursor:
        read = identity_of_statement(cursor, query) or Identity("", ())
        rows = digest_of(cursor, query) if read.base and charge.ledger.policy.privacy_unit == ROW else ""
        return replace(read, rows=rows).called(identity_of(cursor, charge.dataset))


def _charged(
    con: DuckDBPyConnection,
    charge: Charge | None,
    data: Identity | None,
    mechanism: PriorMechanism,
    values: Values,
    *,
    destination: str,
) -> Release | None:
    """Charge for a cycle before it is drawn; a cycle that was interrupted left no report, and is not charged again."""
    if charge is None or data is None:
        return None
    users = None
    if charge.user is not None:
        ids = f"SELECT {quoted(charge.user)} FROM {values.relation}"  # noqa: S608  # quoted
        users = _unquoted(lambda: con.sql(ids).to_arrow_table().column(0))
    release = charge.ledger.charge(data, {"cell": mechanism}, destination, users=users, part=charge.part, resume=True)
    if release.stored:
        raise DestinationExists(
            "the reports of this cycle were published, and this state lacks them",
            "use the state that has them; in a file of another name the cycles are charged and drawn again",
        )
    return release


def _run_cycle(run: State, earlier: list[Cycle], values: Values, *, stop: str, then: Callable[[], None]) -> Cycle:
    """Draw and step in one transaction; call ``then`` before its end."""
    number = len(earlier) + 1
    if earlier:
        run.take_next_mechanism()
    run.con.execute("BEGIN")
    try:
        run.add_reports(number, values)
        mechanisms = [cycle.mechanism for cycle in earlier if run.pool]
        cycle = run.add_step(number, _stepped(run.counts(number), [*mechanisms, run.mechanism()], stop))
        then()
        run.con.execute("COMMIT")
    except BaseException:
        run.con.execute("ROLLBACK")
        raise
    return cycle


@one_thread
def _stepped(counts: pa.MapArray, mechanisms: list[PriorMechanism], stop: str) -> dict[str, Any]:
    """Return the step from the counts of each cycle, oldest first.

    Raises:
        NoReports: if the last cycle has none.

    """
    if not counts[len(counts) - 1].is_valid:
        raise NoReports("there is not a single value to report", "is the source empty?")
    cells = aligned(GroupedCounts.of_maps(counts, np.arange(len(counts))), mechanisms[-1])
    return step(list(zip(mechanisms, cells, strict=True)), stop).row()


def _unquoted(read: Callable[[], T]) -> T:
    """Read the source; withhold the message of an error that may quote it."""
    try:
        return read()
    except duckdb.Error as error:
        if not _may_quote(error):
            raise
    # Raised outside of the handler, so that the error that quotes is not attached.
    raise DataError(
        "the source could not be read to its end",
        "does it have the column? More is withheld, because it may quote a location",
    )


def _may_quote(error: duckdb.Error) -> bool:
    """Return whether an error may quote lines of a file, values or columns: not if it is ours or about our names only.

    The columns of a CSV file without a header line are named by the first person's values.
    """
    if "Candidate bindings" in str(error):
        return True
    names_only = isinstance(error, duckdb.BinderException | duckdb.CatalogException | duckdb.IOException)
    return not names_only and re.search(r"executing the UDF: \w+:\s+\[LDP\d{3}\]", str(error)) is None
