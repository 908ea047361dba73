"""A charge to the ledger for every materialisation that perturbs.

dbt opens a connection for each model before it runs, and emits an event when the model is finished. The ledger is charged at
the first; at the second the release is published, or stays charged if the model failed.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from threading import Lock
from typing import Any

from duckdb import DuckDBPyConnection

from ldpsql.bulk.releases import charge_permanent, people, permanent_columns, refuse_others
from ldpsql.dbt.models import is_permanent, ldp_meta
from ldpsql.engine.identity import identity_of
from ldpsql.errors import InvalidParameter, NotReleased
from ldpsql.ledger import Ledger, Release
from ldpsql.ledger.guard import Guard
from ldpsql.ledger.policy import ROW
from ldpsql.mechanisms.base import Mechanism
from ldpsql.registry.registry import registry
from ldpsql.registry.tables import check_new_reports, table_policy

_LOG = logging.getLogger("ldpsql")


class Releases:
    """The open releases of one run of dbt, by model."""

    def __init__(self, ledger: Ledger, mechanisms: Mapping[str, Any]) -> None:
        self._ledger, self._mechanisms = ledger, mechanisms
        self._open: dict[str, tuple[list[Release], Callable[[], None]] | None] = {}
        self._lock = Lock()

    def begin(self, model: Any, dataset: str, run: str, con: DuckDBPyConnection, guard: Guard) -> None:
        """Charge what a model is about to draw: a report for each row of its dataset, in each of its columns.

        Permanent reports are charged once for each person and value, whenever they are first drawn.

        Args:
            model: the node of dbt's manifest.
            dataset: its dataset, as SQL names it: the rows that this run perturbs.
            run: the id of this run; if rows are charged, its rows are distinct from those of other runs.
            con: the connection whose cursors dbt works with; it is open when they are closed.
            guard: what lets the connection draw.

        Raises:
            BudgetExceeded, LedgerError: if it may not be drawn.
            NotReleased: if it was published before.

        """
        with self._lock:
            if model.unique_id in self._open:
                return
            columns = self._columns(ldp_meta(model), con)
            by_row = self._ledger.policy.privacy_unit == ROW
            unit = self._ledger.policy.privacy_unit
            with con.cursor() as cursor:
                rows, users = people(cursor, dataset, unit)
                data = identity_of(cursor, dataset, rows=by_row)
            if not rows:
                self._open[model.unique_id] = None  # nothing to charge, and nothing may be drawn
                return
            if is_permanent(model):
                with con.cursor() as cursor:
                    table = permanent_columns(cursor, dataset, columns, unit)
                charged, allowed = charge_permanent(guard, data, columns, model.relation_name, table)
                self._open[model.unique_id] = charged, _nothing
                guard.grant_permanent(allowed)
                return
            part = run if by_row else ""
            release = self._ledger.charge(data, columns, model.relation_name, users=users, part=part)
            if release.stored:
                raise NotReleased(
                    f"the reports of {model.name} for these people are already published", "do not draw them again"
                )
            self._open[model.unique_id] = [release], partial(_refuse_others, con, dataset, unit, users)
            for mechanism in columns.values():
                guard.grant(Counter({mechanism: rows}))

    def _columns(self, release: Mapping[str, Any], con: DuckDBPyConnection) -> dict[str, Mechanism]:
        """Return the mechanism of each column that a model draws, as its config or the policy of a table says."""
        if "table" not in release:
            named = {column: self._mechanisms.get(m, m) for column, m in release["columns"].items()}
            if release.get("permanent") is not True:
                check_new_reports(named.values())
            return {column: registry().mechanism(mechanism) for column, mechanism in named.items()}
        policy, unit = table_policy(release["table"], con), self._ledger.policy.privacy_unit
        if policy.unit != unit:
            raise InvalidParameter(
                f"the privacy unit of [tables.{policy.name}] is {policy.unit}, and that of the ledger is {unit}",
                "write the same unit into both",
            )
        policy.check_reports(permanent=release.get("permanent") is True)
        return dict(policy.mechanisms)

    def finish(self, unique_id: str, guard: Guard, *, succeeded: bool) -> None:
        """End the release of a model, and publish it if its reports are stored and are of the people who were charged."""
        with self._lock:
            opened = self._open.pop(unique_id, None)
            if not self._open:
                guard.withdraw()
            if opened is not None and succeeded:
                releases, check = opened
                try:
                    check()
                except NotReleased as error:  # dbt has finished the model: the error can only be logged
                    _LOG.error("%s: %s", unique_id, error)
                else:
                    for release in releases:
                        self._ledger.publish(release)


def _nothing() -> None:
    """Check nothing: each permanent report was compared with those that were charged when it was drawn."""


def _refuse_others(con: DuckDBPyConnection, dataset: str, unit: str, users: Any) -> None:
    with con.cursor() as cursor:
        refuse_others(cursor, dataset, unit, users)


def relation_of(model: Any, manifest: Any) -> str:
    """Return the relation of the dataset that a model names: one of those it refers to.

    Raises:
        InvalidParameter: if it refers to none of this name.

    """
    name = ldp_meta(model)["dataset"]
    for upstream in model.depends_on.nodes:
        node = manifest.nodes.get(upstream) or manifest.sources.get(upstream)
        if node is not None and node.name == name and node.relation_name:
            return str(node.relation_name)
    raise InvalidParameter(f"{model.name} refers to no stored model or source named by its dataset", "the rows it perturbs")
