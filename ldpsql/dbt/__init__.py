"""The plugin for dbt-duckdb (extra ``dbt``): the functions on dbt's connections, and no draw that is not stored and charged.

The profile lists ``module: ldpsql.dbt`` below ``plugins``. Its ``config`` may hold ``mechanisms``, by name, in addition to
those of ``ldpsql.toml`` (``city`` is then ``ldp.m.city()``), ``ledger``, a path that overrides that of ``ldpsql.toml``, and
``catalog``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dbt.adapters.duckdb.plugins import BasePlugin
from dbt.adapters.factory import get_adapter_by_type
from dbt_common.events.event_manager_client import add_callback_to_manager
from dbt_common.exceptions import DbtRuntimeError
from dbt_common.invocation import get_invocation_id
from duckdb import DuckDBPyConnection

from ldpsql.dbt.models import (
    Records,
    Releases,
    StatementChecks,
    charged_at_commit,
    charged_first,
    ends_transaction,
    is_permanent,
    perturbing,
    refuse_redrawn,
    refuse_uncharged,
    relation_of,
)
from ldpsql.errors import InvalidParameter, LdpError, UnknownName
from ldpsql.ledger.guard import configured_key, configured_ledger, guard_of
from ldpsql.sql.attach import attach
from ldpsql.sql.drawing import DrawingFunctions, Draws

_OPTIONS = ("mechanisms", "ledger", "catalog")
_MATERIALISES = ("run", "build", "retry")


class Plugin(BasePlugin):
    """Attach ldpsql to dbt's connections, refuse what would draw again, and charge the other models that perturb."""

    def initialize(self, plugin_config: dict[str, Any]) -> None:
        """Read the options."""
        own = {key: value for key, value in plugin_config.items() if key not in (self.creds.settings or {})}
        self._releases: Releases | None = None
        self._con: DuckDBPyConnection | None = None
        self._drawing, self._statements, self._records = DrawingFunctions(), StatementChecks(), Records()
        self._read: tuple[Any, dict[str, Draws]] | None = None
        self._charged: set[str] = set()
        with _shown():
            if unknown := own.keys() - set(_OPTIONS):
                raise UnknownName("option of ldpsql.dbt", min(unknown), _OPTIONS)
            self._mechanisms, self._catalog = own.get("mechanisms") or {}, own.get("catalog", "ldp")
            if not isinstance(self._mechanisms, dict):
                raise InvalidParameter("mechanisms must be a mapping", "city: \"krr(epsilon=1, domain=['a', 'b'])\"")
            self._ledger = configured_ledger(Path(own["ledger"]) if "ledger" in own else None)
        add_callback_to_manager(self._heard)

    def configure_connection(self, conn: DuckDBPyConnection) -> None:
        """Attach the functions to the connection, with the ledger if there is one."""
        with _shown():
            attach(conn, name=self._catalog, mechanisms=self._mechanisms, ledger=self._ledger, key=configured_key())
            guard, self._con = guard_of(conn, self._catalog), conn
        self._releases = Releases(self._ledger, self._mechanisms, conn, guard) if self._ledger and guard else None

    def configure_cursor(self, cursor: DuckDBPyConnection) -> None:
        """Refuse the project if a part of it would draw again; charge the model of this cursor if no statement will do so."""
        adapter = get_adapter_by_type("duckdb")
        manifest = adapter.get_macro_resolver()
        if manifest is None:
            return
        with _shown():
            drawn = self._drawn(manifest, cursor)
            refuse_redrawn((manifest.nodes[name] for name in drawn), self._drawing)
            if self._releases is None:
                return
            models = [node for name, node in manifest.nodes.items() if drawn.get(name) is Draws.REPORTS or is_permanent(node)]
            models = [model for model in models if model.resource_type == "model"]
            refuse_uncharged(models)
            self._charged = {model.unique_id for model in models} if adapter.config.args.which in _MATERIALISES else set()
            connection = adapter.connections.get_if_exists()
            model = next((model for model in models if connection is not None and model.unique_id == connection.name), None)
            if model is not None and charged_first(model):
                self._begin(model)

    def _drawn(self, manifest: Any, cursor: DuckDBPyConnection) -> dict[str, Draws]:
        """Return what the nodes of a manifest draw, by their ids; each manifest is read once."""
        if self._read is None or self._read[0] is not manifest:
            self._drawing.read(cursor)  # the databases of the profile are attached by now
            self._read = manifest, perturbing(manifest, self._drawing)
        return self._read[1]

    def _heard(self, event: Any) -> None:
        """Read each statement before dbt runs it; finish the model that dbt says is finished."""
        if event.info.name == "SQLQuery":
            with _shown():
                if self._releases is not None and ends_transaction(event.data.sql):
                    self._releases.commit(event.data.conn_name, _cursor())
                node = self._statements.check(event.data.sql, event.data.conn_name, self._drawing)
                if node is not None and self._con is not None:
                    self._records.begin(node, self._con, self._drawing)
                    self._begin(node)
                elif (model := _built_by(event.data)) is not None and is_permanent(model):
                    self._begin(model)
        elif event.info.name == "NodeFinished":
            self._finish(event.data.node_info.unique_id, succeeded=event.data.run_result.status == "success")

    def _begin(self, model: Any) -> None:
        """Let a model draw what its ledger can pay for."""
        if self._releases is None or model.unique_id not in self._charged:
            return
        dataset = relation_of(model, get_adapter_by_type("duckdb").get_macro_resolver())
        within = _in_transaction() if charged_at_commit(model) else None
        self._releases.begin(model, dataset, get_invocation_id(), within)

    def _finish(self, unique_id: str, *, succeeded: bool) -> None:
        """Record the mechanisms of a model that dbt has finished, and end its release."""
        node = getattr(get_adapter_by_type("duckdb").get_macro_resolver(), "nodes", {}).get(unique_id)
        if succeeded and node is not None and self._con is not None:
            self._records.finish(node, self._con)
        if self._releases is not None:
            self._releases.finish(unique_id, succeeded=succeeded)


def _built_by(query: Any) -> Any:
    """Return the node that a statement builds; None if it builds none."""
    node = getattr(get_adapter_by_type("duckdb").get_macro_resolver(), "nodes", {}).get(query.conn_name)
    sql = (getattr(node, "compiled_code", None) or "").strip()  # a seed has none
    return node if sql and sql in query.sql else None


def _cursor() -> DuckDBPyConnection:
    """Return the cursor of DuckDB with which dbt runs the statements of this thread."""
    return get_adapter_by_type("duckdb").connections.get_thread_connection().handle.cursor()


def _in_transaction() -> DuckDBPyConnection | None:
    """Return the cursor of this thread in a transaction, which begins here if dbt would begin it later; None without one."""
    connections = get_adapter_by_type("duckdb").connections
    if not (connections.get_thread_connection().transaction_open or connections.disable_transactions):
        connections.begin()  # an incremental model draws into a temporary table before that
    cursor = _cursor()
    first, second = (cursor.execute("SELECT txid_current()").fetchall() for _ in range(2))
    return cursor if first == second else None  # without a transaction, each statement has a number of its own


@contextmanager
def _shown() -> Iterator[None]:
    """Let dbt show an error of ldpsql as its own, in one line."""
    try:
        yield
    except LdpError as error:
        raise DbtRuntimeError(str(error)) from None
