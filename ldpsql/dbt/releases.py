"""A charge to the ledger for every materialisation that perturbs.

    first statement that draws: check that everybody can pay -> the transaction draws -> COMMIT: charge, sign the table
    -> dbt says that the model is finished: publish

A model that fails before COMMIT charges nobody. A model whose reports can be seen before, such as one in Python or with a hook
after it, is charged before it draws.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Any

import pyarrow as pa
from duckdb import DuckDBPyConnection

from ldpsql.bulk.charging import return_charge
from ldpsql.bulk.fingerprints import Marking
from ldpsql.bulk.releases import marking_of_query, people, permanent_columns, permanent_reports, refuse_others
from ldpsql.bulk.sinks import write_token, written_tokens
from ldpsql.dbt.models import is_permanent, ldp_meta
from ldpsql.engine.identity import Identity, identity_of
from ldpsql.errors import InvalidParameter, LdpError, NotReleased
from ldpsql.ledger import Ledger, Release
from ldpsql.ledger.guard import Guard
from ldpsql.ledger.permanent import Reported, charge_columns_once
from ldpsql.ledger.policy import ROW
from ldpsql.mechanisms.base import Mechanism
from ldpsql.registry.registry import registry
from ldpsql.registry.tables import check_policies, table_policy
from ldpsql.sql.drawing import DrawingFunctions

_LOG = logging.getLogger("ldpsql")


@dataclass
class _Building:
    """What one model draws: for whom, and the releases once they are charged; ``at_commit`` if COMMIT is to charge them."""

    columns: dict[str, Mechanism]
    dataset: Identity
    destination: str
    part: str = ""
    users: pa.ChunkedArray | None = None
    permanent: dict[str, Reported] = field(default_factory=dict)
    at_commit: bool = False
    unseen: bool = False  # whether nothing but the COMMIT that charged them shows the reports
    releases: list[Release] = field(default_factory=list)
    check: Callable[[], None] = lambda: None


class Releases:
    """The open releases of one run of dbt, by model."""

    def __init__(self, ledger: Ledger, mechanisms: Mapping[str, Any], con: DuckDBPyConnection, guard: Guard) -> None:
        """Open no release yet.

        Args:
            ledger: the ledger to charge.
            mechanisms: the mechanisms of the profile, by name.
            con: the connection whose cursors dbt works with; it is open when they are closed.
            guard: what lets the connection draw.

        """
        self._ledger, self._mechanisms, self._con, self._guard = ledger, mechanisms, con, guard
        self._open: dict[str, _Building] = {}
        self._lock = Lock()

    def begin(self, model: Any, dataset: str, run: str, within: DuckDBPyConnection | None) -> None:
        """Let a model draw a report for each row of its dataset, in each of its columns, if everybody can pay.

        Permanent reports are charged once for each person and value, when they are first drawn.

        Args:
            model: the node of dbt's manifest.
            dataset: its dataset, as SQL names it: the rows that this run perturbs.
            run: the id of this run; if rows are charged, its rows are distinct from those of other runs.
            within: the cursor that draws, if all that it writes can be seen only after its COMMIT, which then charges.

        Raises:
            BudgetExceeded, LedgerError: if it may not be drawn.
            NotReleased: if it was published before.

        """
        with self._lock:
            if model.unique_id in self._open:
                return
            for release in self._ledger.unpublished():  # of an earlier build that was killed
                if release.release in written_tokens(self._con):
                    self._ledger.publish(self._ledger.release_of(release.release))
                elif release.destination == model.relation_name and release.returnable and not release.drawn:
                    self._ledger.give_back(release.release)
            (columns, policy), unit = self._columns(ldp_meta(model)), self._ledger.policy.privacy_unit
            with self._con.cursor() as cursor:
                rows, users = people(within or cursor, dataset, unit)
                data = identity_of(cursor, dataset, rows=unit == ROW)
            check_policies(data, columns, permanent=is_permanent(model), policy=policy, con=self._con)
            building = _Building(columns, data, model.relation_name, run if unit == ROW else "", users)
            if rows and is_permanent(model):
                with self._con.cursor() as cursor:
                    table = permanent_columns(within or cursor, dataset, columns, unit)
                building.permanent = permanent_reports(self._guard, columns, table)
                charged = charge_columns_once(
                    self._ledger, data, building.permanent, model.relation_name, trial=within is not None
                )
                building.releases, building.at_commit = charged, within is not None
                self._guard.grant_permanent({(columns[name], name): r.fingerprints for name, r in building.permanent.items()})
            elif rows:
                options: dict[str, Any] = {"users": users, "part": building.part}
                if within is None:
                    building.releases = [self._charged(building, drawn=True)]
                    building.check = partial(_refuse_others, self._con, dataset, unit, users)
                else:
                    self._ledger.check_charge(data, columns, model.relation_name, **options)
                    building.at_commit = True
                self._guard.name_columns(columns)
                for mechanism in columns.values():
                    self._guard.grant(Counter({mechanism: rows}))
            self._open[model.unique_id] = building

    def _charged(self, building: _Building, *, drawn: bool = False) -> Release:
        """Charge what a model draws."""
        release = self._ledger.charge(
            building.dataset, building.columns, building.destination, users=building.users, part=building.part, drawn=drawn
        )
        if release.stored:
            raise NotReleased(
                f"the reports at {building.destination} for these people are already published", "do not draw them again"
            )
        return release

    def commit(self, unique_id: str, cursor: DuckDBPyConnection) -> None:
        """Charge what a model has drawn, and sign its table, within the transaction that dbt is about to commit.

        Raises:
            BudgetExceeded, LedgerError: if it cannot be charged; then the transaction must not be committed.

        """
        with self._lock:
            building = self._open.get(unique_id)
        if building is None or not building.at_commit or building.releases:
            return
        if building.permanent:
            data, destination = building.dataset, building.destination
            building.releases = charge_columns_once(self._ledger, data, building.permanent, destination)
        else:
            building.releases = [self._charged(building)]
            (release,) = building.releases
            write_token(cursor, building.destination, release.token)
            self._ledger.drawn(release.token, once=True)
            building.unseen = True

    def _columns(self, release: Mapping[str, Any]) -> tuple[dict[str, Mechanism], str | None]:
        """Return the mechanism of each column that a model draws, and the policy of a table that has them, if any."""
        if "table" not in release:
            named = {column: self._mechanisms.get(m, m) for column, m in release["columns"].items()}
            return {column: registry().mechanism(mechanism) for column, mechanism in named.items()}, None
        policy, unit = table_policy(release["table"], self._con), self._ledger.policy.privacy_unit
        if policy.unit != unit:
            raise InvalidParameter(
                f"the privacy unit of [tables.{policy.name}] is {policy.unit}, and that of the ledger is {unit}",
                "write the same unit into both",
            )
        return dict(policy.mechanisms), policy.name

    def finish(self, unique_id: str, *, succeeded: bool) -> None:
        """End the release of a model: publish it if its reports are stored, or give back its charge if nobody has seen them."""
        with self._lock:
            building = self._open.pop(unique_id, None)
            if not self._open:
                self._guard.withdraw()
        if building is None:
            return
        try:
            if succeeded:
                building.check()
            for release in building.releases:
                if succeeded:
                    self._ledger.publish(release)
                else:
                    return_charge(partial(written_tokens, self._con), self._ledger, release.token, unseen=building.unseen)
        except LdpError as error:  # dbt has finished the model: the error can only be logged
            _LOG.error("%s: %s", unique_id, error)


def _refuse_others(con: DuckDBPyConnection, dataset: str, unit: str, users: Any) -> None:
    with con.cursor() as cursor:
        refuse_others(cursor, dataset, unit, users)


def relation_of(model: Any, manifest: Any) -> str:
    """Return the relation of the dataset that a model names: one of those it refers to."""
    name = ldp_meta(model)["dataset"]
    for upstream in model.depends_on.nodes:
        node = manifest.nodes.get(upstream) or manifest.sources.get(upstream)
        if node is not None and node.name == name and node.relation_name:
            return str(node.relation_name)
    raise InvalidParameter(f"{model.name} refers to no stored model or source named by its dataset", "the rows it perturbs")


# The record of mechanisms in the comments of the tables that models draw into.


class Records:
    """What will be recorded of the models of one run, by their ids."""

    def __init__(self) -> None:
        self._markings: dict[str, Marking | None] = {}
        self._lock = Lock()

    def begin(self, node: Any, con: DuckDBPyConnection, drawing: DrawingFunctions) -> None:
        """Read which columns a model draws, and the comments of its table, before its first statement that draws."""
        with self._lock:
            if node.unique_id not in self._markings and node.relation_name:
                sql = node.compiled_code or ""
                self._markings[node.unique_id] = marking_of_query(con, node.relation_name, sql, drawing)

    def finish(self, node: Any, con: DuckDBPyConnection) -> None:
        """Write the comments of the table of a model that succeeded."""
        with self._lock:
            marking = self._markings.pop(node.unique_id, None)
        if marking is not None:
            with con.cursor() as cursor:
                marking.write_if_there(cursor, appended=str(node.config.materialized) == "incremental")
