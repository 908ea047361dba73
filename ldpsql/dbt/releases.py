"""A charge to the ledger for every materialisation that perturbs.

dbt opens a connection for each model before it runs, and says when the model is finished: the first is where the ledger is
charged, the second where the release is published, or left charged where the model failed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from threading import Lock
from typing import Any

from duckdb import DuckDBPyConnection

from ldpsql.dbt.models import told
from ldpsql.errors import InvalidParameter, NotReleased
from ldpsql.ledger import Ledger, Release
from ldpsql.ledger.guard import Guard, people
from ldpsql.registry import registry


class Releases:
    """The open releases of one run of dbt, by model."""

    def __init__(self, ledger: Ledger, mechanisms: Mapping[str, Any]) -> None:
        self._ledger, self._mechanisms = ledger, mechanisms
        self._open: dict[str, Release | None] = {}
        self._lock = Lock()

    def begin(self, model: Any, dataset: str, run: str, cursor: DuckDBPyConnection, guard: Guard) -> None:
        """Charge what a model is about to draw: a report for each row of its dataset, in each of its columns.

        Args:
            model: the node of dbt's manifest.
            dataset: its dataset, as SQL names it: the rows that this run perturbs.
            run: what tells this run from others; where rows are charged, its rows are those of nobody else.
            cursor: a cursor to count with.
            guard: what lets the connection draw.

        Raises:
            BudgetExceeded, LedgerError: where it may not be drawn.
            NotReleased: where it was published before.

        """
        with self._lock:
            if model.unique_id in self._open:
                return
            release = told(model)
            columns = {column: registry().mechanism(self._mechanisms.get(m, m)) for column, m in release["columns"].items()}
            by_row = self._ledger.policy.privacy_unit == "row"
            rows, users = people(cursor, dataset, self._ledger.policy.privacy_unit)
            if not rows:
                self._open[model.unique_id] = None  # nothing to charge, and nothing may be drawn
                return
            part = run if by_row else ""
            charged = self._ledger.charge(release["dataset"], columns, model.relation_name, users=users, part=part)
            if charged.stored:
                raise NotReleased(f"the reports of {model.name} for these people are there", "they need not be drawn again")
            self._open[model.unique_id] = charged
            for mechanism in columns.values():
                guard.grant(Counter({mechanism: rows}))

    def finish(self, unique_id: str, guard: Guard, *, succeeded: bool) -> None:
        """End the release of a model, and publish it where its reports are stored."""
        with self._lock:
            release = self._open.pop(unique_id, None)
            if release is not None and succeeded:
                self._ledger.publish(release)
            if not self._open:
                guard.withdraw()


def relation_of(model: Any, manifest: Any) -> str:
    """Return the relation of the dataset that a model names: one of those it refers to.

    Raises:
        InvalidParameter: where it refers to none of this name.

    """
    name = told(model)["dataset"]
    for upstream in model.depends_on.nodes:
        node = manifest.nodes.get(upstream) or manifest.sources.get(upstream)
        if node is not None and node.name == name and node.relation_name:
            return str(node.relation_name)
    raise InvalidParameter(f"{model.name} refers to no stored model or source named by its dataset", "the rows it perturbs")
