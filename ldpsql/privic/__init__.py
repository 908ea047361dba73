"""PRIVIC: incremental collection of locations; the reports of each cycle give the mechanism of the next.

Source: Biswas, Palamidessi, "PRIVIC: a privacy-preserving method for incremental collection of location data", PETS 2024.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
from duckdb import DuckDBPyConnection

from ldpsql.bulk.charging import Charge, Charged, charge_of, return_charge
from ldpsql.bulk.fingerprints import add_comment
from ldpsql.bulk.sinks import written_tokens
from ldpsql.bulk.sources import source_of, sql_of
from ldpsql.domains.columns import plain
from ldpsql.engine.connections import interruptible, transaction
from ldpsql.engine.groups import one_thread
from ldpsql.engine.identity import Identity, digest_of, identity_of, identity_of_statement
from ldpsql.errors import DataError, DestinationExists, InvalidParameter, NoReports, NotReports
from ldpsql.errors.boundary import of_sql, withheld, without_values
from ldpsql.estimates.estimate import check_possible
from ldpsql.estimates.functionals import suspicious
from ldpsql.estimators.base import IterativeEstimator
from ldpsql.inference.counting import aligned, operator_of
from ldpsql.inference.counts import GroupedCounts
from ldpsql.inference.likelihood import Likelihood, joined
from ldpsql.inference.operators import Floats
from ldpsql.inference.outcome import Fit, Status
from ldpsql.inference.solver.mle import em_step
from ldpsql.ledger import Release
from ldpsql.ledger.policy import ROW
from ldpsql.mechanisms.audit import AnalyticAudit, analytic, average_distortion, mutual_information
from ldpsql.mechanisms.base import Mechanism
from ldpsql.mechanisms.families import MAX_CELLS, PriorMechanism
from ldpsql.names import IBU, NEXT_STEP
from ldpsql.quoting import quoted, text_literal
from ldpsql.registry.handles import read_mechanism
from ldpsql.registry.registry import registry
from ldpsql.sql.attach import connect
from ldpsql.sql.named import sql_call

STEPS = 5  # of IBU and of Blahut-Arimoto, as in the paper's tables for San Francisco
_MOST_SHARES = 10**6  # `blahut_arimoto` refuses more values, whatever the prior is
_PROBING = 50
_TINY = 1e-300  # rounding must not make a share zero
_ROUNDING = 2.0**-53


@dataclass(frozen=True)
class Summary:
    """How the estimate of a cycle was computed, and how private and how exact the next mechanism is.

    ``gap`` bounds the distance of theta from the maximum of the likelihood, as in `Likelihood.gap`. ``mutual_information``
    (nats) and ``average_distortion`` (units of the metric) are those of the next mechanism under theta. ``tight_epsilon`` is
    the epsilon per unit of distance of its channel in doubles, ``realised_epsilon`` that of the channel in whole numbers, which
    draws.
    """

    reports: int
    iterations: int
    status: str
    gap: float
    mutual_information: float
    average_distortion: float
    tight_epsilon: float
    realised_epsilon: float


@dataclass(frozen=True)
class Step:
    """The result of a cycle: the estimate, shape (values,), and the next mechanism with the certificate of its privacy."""

    theta: Floats
    next: PriorMechanism
    summary: Summary
    certificate: AnalyticAudit

    def row(self) -> dict[str, Any]:
        """Return the estimate, the summary and the certificate as SQL takes them."""
        return {"theta": self.theta.tolist(), **asdict(self.summary), "certificate": asdict(self.certificate)}


def step(cycles: Sequence[tuple[Mechanism, Floats]], stop: str = str(STEPS)) -> Step:
    """Update the estimate from the reports of a cycle, or of several together, and make the next mechanism.

    IBU starts at the prior of the last cycle's mechanism. The likelihoods of several cycles are multiplied: their channels are
    stacked, each with the share of its reports.

    Args:
        cycles: the mechanism of each cycle, oldest first, and the counts of its reports, shape (reports of the alphabet,).
        stop: a number of steps of IBU, or 'certified' for the maximum of the likelihood.

    Raises:
        InvalidParameter: if a mechanism is not made for a prior, or the cycles have different values.
        NoReports, ImpossibleReport, NotReports: if the counts cannot be those of the mechanisms' reports.

    """
    last = _made_for_prior(cycles[-1][0])
    earlier = [_made_for_prior(mechanism).with_prior(last.shares) for mechanism, _ in cycles[:-1]]
    if earlier and set(earlier) != {last.with_prior(last.shares)}:
        raise InvalidParameter("the mechanisms of the cycles differ in more than their priors", "pool the cycles of one run")
    parts = [Likelihood(operator_of(mechanism), counts[None]) for mechanism, counts in cycles]
    for part in parts:
        check_possible(part)
    pooled = joined(parts)
    fit = _updated(pooled, last, stop)
    theta = fit.theta
    if not all(_plausible(part, theta) for part in parts):
        raise NotReports(
            "these reports were not drawn by this cycle's mechanism: no distribution explains them",
            "pass the reports of one cycle with the mechanism that drew them",
        )
    following = last.with_prior(theta[0])
    audit = analytic(following)
    summary = Summary(
        reports=int(pooled.n[0]),
        iterations=int(fit.iterations[0]),
        status=fit.status[0].value,
        gap=max(0.0, float(pooled.gap(theta)[0])),
        mutual_information=mutual_information(following, theta[0]),
        average_distortion=average_distortion(following, theta[0]),
        tight_epsilon=following.tight(),
        realised_epsilon=audit.epsilon,
    )
    return Step(theta[0], following, summary, audit)


def _made_for_prior(mechanism: Mechanism, hint: str = "start with ldp.privic_start") -> PriorMechanism:
    if not isinstance(mechanism, PriorMechanism):
        raise InvalidParameter(f"{mechanism.name} is not made for a prior", hint)
    return mechanism


class _FromPrior(IterativeEstimator):
    """IBU from the prior ``start``, with ``stop`` steps."""

    name = IBU

    def fit(self, likelihood: Likelihood) -> Fit:
        """Take the steps."""
        return self.stepped(likelihood, Status.STOPPED)


def _updated(likelihood: Likelihood, mechanism: PriorMechanism, stop: str) -> Fit:
    """Return the estimate of IBU that starts at the mechanism's prior."""
    prior = mechanism.shares
    if stop == "certified":
        prior = 0.999 * prior + 0.001 / len(prior)  # a share of zero would stay zero
    else:
        if not (stop.isdecimal() and stop.isascii() and 1 <= len(stop) <= 6 and int(stop)):
            raise InvalidParameter("stop must be 'certified' or a number of steps", f"the default is {STEPS}")
        stop = str(int(stop))
    if not prior.all():
        raise InvalidParameter("the prior of some value is zero, and steps of IBU leave it zero", "start with a full prior")
    fit = _FromPrior(stop=stop, start=tuple(np.clip(prior, _TINY, 1.0 - _ROUNDING).tolist())).fit(likelihood)
    return replace(fit, theta=np.maximum(fit.theta, _TINY)) if fit.status == (Status.STOPPED,) else fit


def _plausible(likelihood: Likelihood, theta: Floats) -> bool:
    """Return whether some distribution explains the reports; a few more steps show it sooner than the maximum does."""
    for _ in range(_PROBING):
        theta = em_step(likelihood, theta)
    return not suspicious(likelihood, theta).any()


def full_prior(prior: Sequence[object] | None, size: int) -> list[float]:
    """Return the shares of a prior as floats; None stands for the uniform prior.

    Raises:
        InvalidParameter: if it does not hold a positive share for each value, they do not sum to 1, or there are too many.

    """
    if size > _MOST_SHARES:
        raise InvalidParameter(f"a prior may have at most {_MOST_SHARES:,} shares", "use larger cells")
    if prior is None:
        return [1.0 / size for _ in range(size)]  # none of no values
    try:
        shares = [float(share) for share in prior]  # type: ignore[arg-type]
    except (TypeError, ValueError):
        shares = []
    if len(shares) != size or not all(share > 0 for share in shares) or not abs(sum(shares) - 1.0) <= 1e-9:
        raise InvalidParameter(
            f"the first prior must hold {size} positive shares that sum to 1", "leave it out for the uniform one"
        )
    return shares


def start(
    beta: object,
    domain: Sequence[object],
    *,
    columns: int | None = None,
    prior: Sequence[float] | None = None,
    iterations: int = STEPS,
    mechanism: str | None = None,
    **options: object,
) -> PriorMechanism:
    """Return the mechanism of the first cycle, made for ``prior`` or for the uniform prior.

    Args:
        beta: the loss parameter per unit of distance.
        domain: the values; for a grid its cells, row by row.
        columns: the number of columns of the grid; without a grid pass ``distances``.
        prior: positive shares of the values that sum to 1; they must be public.
        iterations: steps of Blahut-Arimoto.
        mechanism: the name of a mechanism that is made for a prior, by default the first one registered: Blahut-Arimoto.
        options: ``mixing``, ``side``, ``distances`` and other parameters of the mechanism.

    Raises:
        InvalidParameter, InvalidEpsilon: if a parameter is out of range, or the mechanism is not made for a prior.

    """
    if len(domain) > MAX_CELLS:
        raise InvalidParameter(f"a metric space may have at most {MAX_CELLS} values", "use larger cells")
    arguments = {"beta": beta, "domain": domain, "columns": columns, "iterations": iterations, **options}
    name = mechanism or next((name for name, kind in registry().mechanisms.items() if issubclass(kind, PriorMechanism)), None)
    if name is None:
        raise InvalidParameter("no mechanism is made for a prior", "allow the plugin that comes with ldpsql")
    made = registry().mechanism({"mechanism": name, "prior": full_prior(prior, len(domain)), **arguments})
    return _made_for_prior(made, "allow the plugin that comes with ldpsql")


_RUN = "SELECT getvariable('mechanism') AS mechanism, {stop} AS stop, {pool} AS pool"

_TABLES = """
CREATE SCHEMA IF NOT EXISTS {schema};
CREATE OR REPLACE TABLE {schema}.run AS {run};
CREATE OR REPLACE TABLE {schema}.reports AS SELECT 0 AS cycle, getvariable('mechanism')."domain"[1] AS report LIMIT 0;
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
        """Return the state in the database of a connection; begin it with these parameters if it does not exist."""
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
        """Return whether there is a finished cycle."""
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

    def mechanism(self) -> PriorMechanism:
        """Return the mechanism that draws, with its prior as it is stored."""
        stored = self.con.sql("SELECT getvariable('mechanism') AS mechanism").to_arrow_table()["mechanism"][0]
        return _made_for_prior(read_mechanism(stored), "use another file")

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
    drew, following = (_made_for_prior(read_mechanism(one), "use another file") for one in (mechanism, step["next"]))
    theta = np.array([share["estimate"] for share in step["theta"].as_py()])
    summary = Summary(**{f.name: step[f.name].as_py() for f in fields(Summary)})
    return Cycle(number.as_py(), drew, theta, following, summary)


T = TypeVar("T")
_TAKEN = Values("__ldpsql_value", "temp.main.__ldpsql_source")


@withheld
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
        OutsideDomain, MissingValue: if a value cannot be perturbed.

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
                    return_charge(partial(written_tokens, con), charge.ledger, release.token, unseen=False)
                raise
            if charge and release:
                charge.ledger.publish(release)
            if finished:
                finished(done[-1])
        return done


def _relation(con: DuckDBPyConnection, source: str | pl.DataFrame | pa.Table) -> str:
    """Return the SQL of a source."""
    if isinstance(source, str):
        if source.startswith("("):
            return source
        query = source_of(con, source).query
        return f"({query})" if query else f"query_table({sql_of(con, source)})"
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
        run.con.execute(_NEXT.format(schema=run.schema))  # its mechanism draws from now on
    with transaction(run.con):
        run.add_reports(number, values)
        mechanisms = [cycle.mechanism for cycle in earlier if run.pool]
        cycle = run.add_step(number, _stepped(run.counts(number), [*mechanisms, run.mechanism()], stop))
        then()
    return cycle


@one_thread
def _stepped(counts: pa.MapArray, mechanisms: list[PriorMechanism], stop: str) -> dict[str, Any]:
    """Return the step from the counts of each cycle, oldest first."""
    if not counts[len(counts) - 1].is_valid:
        raise NoReports("there is not a single value to report", "is the source empty?")
    cells = aligned(GroupedCounts.of_maps(counts, np.arange(len(counts))), mechanisms[-1])
    return step(list(zip(mechanisms, cells, strict=True)), stop).row()


def _unquoted(read: Callable[[], T]) -> T:
    """Read the source; replace an error that may quote it."""
    try:
        return read()
    except duckdb.Error as error:
        if of_sql(error) or without_values(error, "") is not None:
            raise
    raise DataError(
        "the source could not be read to its end",
        "does it have the column? More is withheld, because it may quote a location",
    )


__all__ = ["STEPS", "Cycle", "Step", "Summary", "collect", "full_prior", "start", "step"]
