"""The DuckDB file that keeps a run of PRIVIC, so that the run goes on where it was interrupted."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa
from duckdb import DuckDBPyConnection

from ldpsql.bulk.fingerprints import add_comment
from ldpsql.domains.columns import plain
from ldpsql.errors import InternalError, InvalidParameter
from ldpsql.inference.operators import Floats
from ldpsql.mechanisms.base import Mechanism
from ldpsql.mechanisms.families import PriorMechanism
from ldpsql.names import NEXT_STEP
from ldpsql.privic.step import Summary
from ldpsql.quoting import quoted, text_literal
from ldpsql.registry.handles import read_mechanism
from ldpsql.sql.named import sql_call

_RUN = "SELECT getvariable('mechanism') AS mechanism, {stop} AS stop, {pool} AS pool"

_TABLES = """
CREATE SCHEMA IF NOT EXISTS {schema};
CREATE OR REPLACE TABLE {schema}.run AS {run};
CREATE OR REPLACE TABLE {schema}.reports AS SELECT 0 AS cycle, getvariable('mechanism').reports[1] AS report LIMIT 0;
CREATE OR REPLACE TABLE {schema}.cycles AS
SELECT 0 AS cycle, getvariable('mechanism') AS mechanism, ldp.counts(report) AS counts,
       ldp.privic_step(report, getvariable('mechanism')) AS step
FROM {schema}.reports LIMIT 0"""

_REPORT = """
INSERT INTO {schema}.reports SELECT {cycle}, ldp.perturb({column}, getvariable('mechanism')) FROM {relation}"""

_COUNTS = """
SELECT cycle, counts FROM {schema}.cycles WHERE {pool}
UNION ALL SELECT {cycle}, ldp.counts(report) FROM {schema}.reports WHERE cycle = {cycle} ORDER BY cycle"""

_STEP = """
INSERT INTO {schema}.cycles
SELECT {cycle}, getvariable('mechanism'), ldp.counts(report), {step}(getvariable('mechanism'), $1)
FROM {schema}.reports WHERE cycle = {cycle}"""

_NEXT = "SET VARIABLE mechanism = (SELECT step.next FROM {schema}.cycles ORDER BY cycle DESC LIMIT 1)"


@dataclass(frozen=True)
class Cycle:
    """One finished cycle: the mechanism that drew, the estimate from its reports, and the mechanism of the next cycle."""

    number: int
    mechanism: PriorMechanism
    theta: Floats
    next: PriorMechanism
    summary: Summary


@dataclass(frozen=True)
class Values:
    """The values of all people in SQL: a column, or an expression, over a relation."""

    column: str
    relation: str


@dataclass(frozen=True)
class State:
    """The state of a run, in the database of a connection.

    The schema ``privic`` has the tables ``reports`` (cycle, report), ``cycles`` (cycle, mechanism, counts, step) and ``run``.
    The mechanism that draws is a variable of the connection, so that its prior stays exactly as it is stored.
    """

    con: DuckDBPyConnection
    schema: str
    pool: bool

    @classmethod
    def opened(cls, con: DuckDBPyConnection, mechanism: PriorMechanism, *, stop: str, pool: bool) -> State:
        """Return the state in the database of a connection; begin it with these parameters if it does not exist.

        Raises:
            InvalidParameter: if the state belongs to a run with other parameters, or is not a DuckDB file that can be written.

        """
        ((catalog,),) = con.execute("SELECT current_database()").fetchall()
        state = cls(con, f"{quoted(catalog)}.privic", pool)  # in a file that is also named privic, privic alone is ambiguous
        prior = f"{mechanism.shares.tolist()}::DOUBLE[]"
        con.execute(f"SET VARIABLE mechanism = struct_update({sql_call(mechanism, con)}, prior := {prior})")
        run = _RUN.format(stop=text_literal(stop), pool=str(pool).lower())
        if not state._begun():
            con.execute(_TABLES.format(schema=state.schema, run=run))
        elif con.execute(f"FROM {state.schema}.run EXCEPT ({run})").fetchall():
            raise InvalidParameter(
                "the state belongs to a run with other parameters", "pass the parameters it began with, or another file"
            )
        return state

    def _begun(self) -> bool:
        """Return whether there is a finished cycle.

        Raises:
            InvalidParameter: if the database is not a file that can be written, so that nothing would be kept.

        """
        stays = "SELECT path IS NOT NULL AND NOT readonly FROM duckdb_databases() WHERE database_name = current_catalog()"
        if self.con.execute(stays).fetchone() != (True,):
            raise InvalidParameter("the state must be a DuckDB file that can be written", "name a new file")
        exists = """SELECT count(*) > 0 FROM duckdb_tables()
                    WHERE database_name = current_database() AND schema_name = 'privic' AND table_name = 'cycles'"""
        if self.con.execute(exists).fetchone() != (True,):
            return False
        return self.con.execute(f"SELECT count(*) > 0 FROM {self.schema}.cycles").fetchone() == (True,)  # noqa: S608  # quoted

    def cycles(self, first: int = 1) -> list[Cycle]:
        """Return the finished cycles, from the one with a number on."""
        query = f"SELECT cycle, mechanism, step FROM {self.schema}.cycles WHERE cycle >= $1 ORDER BY cycle"  # noqa: S608  # quoted
        table = self.con.sql(query, params=[first]).to_arrow_table()
        return [_cycle(*row) for row in zip(*table.columns, strict=True)]

    def take_next_mechanism(self) -> None:
        """Let the mechanism that the latest cycle made draw from now on."""
        self.con.execute(_NEXT.format(schema=self.schema))

    def mechanism(self) -> PriorMechanism:
        """Return the mechanism that draws, with its prior as it is stored."""
        stored = self.con.sql("SELECT getvariable('mechanism') AS mechanism").to_arrow_table()["mechanism"][0]
        return _for_prior(read_mechanism(stored))

    def add_reports(self, cycle: int, values: Values) -> None:
        """Draw a report of each value."""
        self.con.execute(_REPORT.format(schema=self.schema, cycle=cycle, column=values.column, relation=values.relation))

    def counts(self, cycle: int) -> pa.MapArray:
        """Return the counts of a cycle's reports, after those of the cycles before it if their reports are pooled."""
        query = _COUNTS.format(schema=self.schema, cycle=cycle, pool=str(self.pool).lower())
        return plain(self.con.sql(query).to_arrow_table()["counts"])

    def add_step(self, cycle: int, row: dict[str, Any]) -> Cycle:
        """Add the step of a cycle, and the fingerprint of its mechanism to the column of reports; return the cycle."""
        self.con.execute(_STEP.format(schema=self.schema, cycle=cycle, step=NEXT_STEP), [row])
        (added,) = self.cycles(cycle)
        ((database,),) = self.con.execute("SELECT current_database()").fetchall()
        add_comment(self.con, (database.lower(), "privic", "reports"), "report", added.mechanism)
        return added


def _cycle(number: pa.Scalar, mechanism: pa.Scalar, step: pa.Scalar) -> Cycle:
    drew, following = _for_prior(read_mechanism(mechanism)), _for_prior(read_mechanism(step["next"]))
    theta = np.array([share["estimate"] for share in step["theta"].as_py()])
    summary = Summary(**{f.name: step[f.name].as_py() for f in fields(Summary)})
    return Cycle(number.as_py(), drew, theta, following, summary)


def _for_prior(mechanism: Mechanism) -> PriorMechanism:
    if not isinstance(mechanism, PriorMechanism):
        raise InternalError("the state holds a mechanism that is not made for a prior", "use another file")
    return mechanism
