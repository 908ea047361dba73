"""The cycles of PRIVIC over a source of values, kept in a DuckDB file so that a run goes on where it was interrupted."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TypeVar

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
from duckdb import DuckDBPyConnection

from ldpsql.bulk.charging import Charge
from ldpsql.bulk.fingerprints import add_comment
from ldpsql.bulk.sources import sql_of
from ldpsql.engine.interrupting import interruptible
from ldpsql.errors import DataError, DestinationExists, InternalError, InvalidParameter, NoReports
from ldpsql.inference.operators import Floats
from ldpsql.ledger import Release
from ldpsql.ledger.datasets import dataset_of
from ldpsql.mechanisms.families import MAX_CELLS, PriorMechanism
from ldpsql.privic.step import STEPS, Summary, full_prior
from ldpsql.quoting import quoted, text_literal
from ldpsql.registry.handles import read_mechanism
from ldpsql.registry.registry import registry
from ldpsql.sql.attach import connect
from ldpsql.sql.named import sql_call

_RUN = "SELECT getvariable('mechanism') AS mechanism, {stop} AS stop, {pool} AS pool"

_TABLES = """
CREATE SCHEMA IF NOT EXISTS {state};
CREATE OR REPLACE TABLE {state}.run AS {run};
CREATE OR REPLACE TABLE {state}.reports AS SELECT 0 AS cycle, getvariable('mechanism').reports[1] AS report LIMIT 0;
CREATE OR REPLACE TABLE {state}.cycles AS
SELECT 0 AS cycle, getvariable('mechanism') AS mechanism, ldp.counts(report) AS counts,
       ldp.privic_step(report, getvariable('mechanism')) AS step
FROM {state}.reports LIMIT 0"""

_REPORT = """
INSERT INTO {state}.reports SELECT {cycle}, ldp.perturb({column}, getvariable('mechanism')) FROM {source}"""

_STEP = """
INSERT INTO {state}.cycles
SELECT max(cycle), arg_max(mechanism, cycle), arg_max(counts, cycle),
       ldp.privic_step_pooled(counts, mechanism, cycle, stop := {stop})
FROM (SELECT cycle, mechanism, counts FROM {state}.cycles WHERE {pool}
      UNION ALL SELECT {cycle}, getvariable('mechanism'), ldp.counts(report) FROM {state}.reports WHERE cycle = {cycle})"""

T = TypeVar("T")
_TAKEN = "temp.main.__ldpsql_source"
_LATEST = "FROM {state}.cycles ORDER BY cycle DESC LIMIT 1"


@dataclass(frozen=True)
class Cycle:
    """One finished cycle: the mechanism that drew, what its reports gave, and the mechanism of the next cycle."""

    number: int
    mechanism: PriorMechanism
    theta: Floats
    next: PriorMechanism
    summary: Summary


def start(
    beta: object,
    domain: Sequence[object],
    *,
    columns: int | None = None,
    prior: Sequence[float] | None = None,
    iterations: int = STEPS,
    **options: object,
) -> PriorMechanism:
    """Return the mechanism of the first cycle: Blahut-Arimoto for the uniform prior or the one given.

    Args:
        beta: loss parameter per unit of distance.
        domain: the values; on a grid its cells, row by row.
        columns: number of columns of the grid; without a grid pass ``distances``.
        prior: positive shares of the values that sum to 1, public.
        iterations: steps of Blahut-Arimoto.
        options: ``mixing``, ``side``, ``distances`` and others of the mechanism ``blahut_arimoto``.

    Raises:
        InvalidParameter, InvalidEpsilon: where they are not what they must be.

    """
    if len(domain) > MAX_CELLS:
        raise InvalidParameter(f"a metric space may have at most {MAX_CELLS} values", "use larger cells")
    told = {"beta": beta, "domain": domain, "columns": columns, "iterations": iterations, **options}
    made = registry().mechanism({"mechanism": "blahut_arimoto", "prior": full_prior(prior, len(domain)), **told})
    if not isinstance(made, PriorMechanism):
        raise InvalidParameter(f"{made.name} is not made for a prior", "allow the plugin that comes with ldpsql")
    return made


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
    charge: Charge | None = None,
) -> list[Cycle]:
    """Run cycles until so many are finished, and return all; everybody in the source reports once in each.

    The reports of a cycle and its step are written in one transaction, so a cycle is finished or has not begun: its reports
    are never drawn again and never there in part. Called again, a run goes on after the last finished cycle.
    The source may be another one each time. The file holds, in the schema ``privic``, the tables ``reports`` (cycle, report),
    ``cycles`` (cycle, mechanism, counts, step) and ``run``. Each cycle spends its own epsilon: a user's reports of all cycles
    together spend their sum.

    Args:
        source: a Parquet, CSV, JSON or Arrow file, or a frame, with the true values; or a query in brackets, with ``column``
            any SQL.
        state: a DuckDB file; made where there is none.
        mechanism: of the first cycle, as `start` makes it.
        column: the column of values, or a SQL expression over the columns of the source.
        cycles: how many are to be finished.
        stop: steps of IBU in each cycle, or 'certified'.
        pool: use the reports of all cycles for each estimate, instead of the last cycle's.
        finished: called after each cycle that this call finishes.
        charge: the ledger that is charged for every cycle before it is drawn, as for a column ``cell``.

    Raises:
        InvalidParameter: for a state that belongs to a run with other parameters.
        BudgetExceeded: where a cycle would cost somebody too much. The cycles before it are finished.
        DestinationExists: for a cycle that the ledger knows to be published, and the state does not have.
        NoReports: for an empty source.
        DataError: for a source that breaks off, without the reason, which may quote a value.
        SourceRefused: for a source that is not there, or cannot be read.
        duckdb.Error: with our own message for a value that cannot be perturbed.

    """
    with connect(str(state)) as con, interruptible(con):
        words = {"stop": text_literal(str(stop)), "pool": str(pool).lower(), "column": column, "source": _relation(con, source)}
        words["state"] = _schema(con)
        _open_run(con, mechanism, words)
        done = _read(con)
        while len(done) < cycles:
            taken = _with_users(con, words, charge.user) if charge and charge.user else words
            release = _charged(
                con, charge, done[-1].next if done else mechanism, taken, f"{Path(state).absolute()} cycle {len(done) + 1}"
            )
            then = partial(charge.ledger.drawn, release.token) if charge and release else lambda: None
            done.append(_unquoted(partial(_run_cycle, con, len(done) + 1, taken, then)))
            if charge and release:
                charge.ledger.publish(release)
            if finished:
                finished(done[-1])
        return done


def _with_users(con: DuckDBPyConnection, words: dict[str, str], user: str) -> dict[str, str]:
    """Take the values and the user ids of a source into a table of this connection, so that who is charged is who is drawn."""
    values = f"SELECT {words['column']} AS __ldpsql_value, {quoted(user)} FROM {words['source']}"  # noqa: S608  # quoted
    _unquoted(lambda: con.execute(f"CREATE OR REPLACE TEMP TABLE {_TAKEN} AS {values}"))
    return words | {"column": "__ldpsql_value", "source": _TAKEN}


def _charged(
    con: DuckDBPyConnection, charge: Charge | None, mechanism: PriorMechanism, words: dict[str, str], destination: str
) -> Release | None:
    """Charge for a cycle before it is drawn; one that was interrupted left no report, and is not charged again."""
    if charge is None:
        return None
    users = None
    if charge.user is not None:
        ids = f"SELECT {quoted(charge.user)} FROM {words['source']}"  # noqa: S608  # quoted
        users = _unquoted(lambda: con.sql(ids).to_arrow_table().column(0))
    with con.cursor() as cursor:
        data = dataset_of(cursor, charge.dataset)
    release = charge.ledger.charge(data, {"cell": mechanism}, destination, users=users, part=charge.part, resume=True)
    if release.stored:
        raise DestinationExists(
            "the reports of this cycle were published, and this state lacks them",
            "find the state that has them; in a file of another name cycles are charged and drawn anew",
        )
    return release


def _run_cycle(con: DuckDBPyConnection, number: int, words: dict[str, str], then: Callable[[], None]) -> Cycle:
    """Draw and step in one transaction; call ``then`` before its end."""
    if number > 1:
        con.execute(f"SET VARIABLE mechanism = (SELECT step.next {_LATEST.format(**words)})")
    con.execute("BEGIN")
    try:
        con.execute(_REPORT.format(cycle=number, **words))
        con.execute(_STEP.format(cycle=number, **words))
        if con.execute(f"SELECT step IS NULL {_LATEST.format(**words)}").fetchall() == [(True,)]:
            raise NoReports("there is not a single value to report", "is the source empty?")
        (cycle,) = _read(con, number)
        ((database,),) = con.execute("SELECT current_database()").fetchall()
        add_comment(con, (database.lower(), "privic", "reports"), "report", cycle.mechanism)
        then()
        con.execute("COMMIT")
    except BaseException:
        con.execute("ROLLBACK")
        raise
    return cycle


def _unquoted(read: Callable[[], T]) -> T:
    """Read the source; say nothing of an error that may quote it."""
    try:
        return read()
    except duckdb.Error as error:
        if _quotable(error):
            raise
    # Raised outside of the handler, so that the error that quotes does not come along.
    raise DataError(
        "the source could not be read to its end",
        "has it the column that is asked for? More is withheld: it may quote a location",
    )


def _quotable(error: duckdb.Error) -> bool:
    """Tell whether an error is ours or speaks of our names only: others quote lines of a file, values, and its own columns.

    In a CSV file without a line of names, its columns are named by the first person's values.
    """
    if "Candidate bindings" in str(error):
        return False
    names_only = isinstance(error, duckdb.BinderException | duckdb.CatalogException | duckdb.IOException)
    return names_only or re.search(r"executing the UDF: \w+: \[LDP\d{3}\]", str(error)) is not None


def _open_run(con: DuckDBPyConnection, mechanism: PriorMechanism, words: dict[str, str]) -> None:
    """Make the tables, or see that they belong to this run."""
    prior = f"{mechanism.shares.tolist()}::DOUBLE[]"
    con.execute(f"SET VARIABLE mechanism = struct_update({sql_call(mechanism, con)}, prior := {prior})")
    run = _RUN.format(**words)
    if not _begun(con):
        con.execute(_TABLES.format(run=run, **words))
    elif con.execute(f"FROM {words['state']}.run EXCEPT ({run})").fetchall():
        raise InvalidParameter(
            "the state belongs to a run with other parameters", "give the parameters it began with, or another file"
        )


def _schema(con: DuckDBPyConnection) -> str:
    """Return the schema of the state with its catalog: in a file that is also named privic, one name would be ambiguous."""
    ((catalog,),) = con.execute("SELECT current_database()").fetchall()
    return f"{quoted(catalog)}.privic"


def _begun(con: DuckDBPyConnection) -> bool:
    """Tell whether there is a finished cycle.

    Raises:
        InvalidParameter: for a state that is no database of DuckDB, where nothing would stay.

    """
    stays = "SELECT path IS NOT NULL AND NOT readonly FROM duckdb_databases() WHERE database_name = current_catalog()"
    if con.execute(stays).fetchone() != (True,):
        raise InvalidParameter("the state must be a DuckDB file that can be written", "name a new file")
    there = """SELECT count(*) > 0 FROM duckdb_tables()
               WHERE database_name = current_database() AND schema_name = 'privic' AND table_name = 'cycles'"""
    if con.execute(there).fetchone() != (True,):
        return False
    return con.execute(f"SELECT count(*) > 0 FROM {_schema(con)}.cycles").fetchone() == (True,)  # noqa: S608  # quoted


def _relation(con: DuckDBPyConnection, source: str | pl.DataFrame | pa.Table) -> str:
    if isinstance(source, str):
        return source if source.startswith("(") else f"query_table({sql_of(con, source)})"
    con.register("source_of_values", source)
    return quoted("source_of_values")


def _read(con: DuckDBPyConnection, first: int = 1) -> list[Cycle]:
    """Return the finished cycles from one on."""
    query = f"SELECT cycle, mechanism, step FROM {_schema(con)}.cycles WHERE cycle >= $1 ORDER BY cycle"  # noqa: S608  # quoted
    table = con.sql(query, params=[first]).to_arrow_table()
    return [_cycle(*row) for row in zip(*table.columns, strict=True)]


def _cycle(number: pa.Scalar, mechanism: pa.Scalar, step: pa.Scalar) -> Cycle:
    drew, following = read_mechanism(mechanism), read_mechanism(step["next"])
    if not isinstance(drew, PriorMechanism) or not isinstance(following, PriorMechanism):
        raise InternalError("the state holds a mechanism that is not made for a prior", "use another file")
    theta = np.array([share["estimate"] for share in step["theta"].as_py()])
    summary = Summary(**{f.name: step[f.name].as_py() for f in fields(Summary)})
    return Cycle(number.as_py(), drew, theta, following, summary)
