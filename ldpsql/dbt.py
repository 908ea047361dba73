"""The plugin for dbt-duckdb (extra ``dbt``): the functions on every connection of dbt, and no model that would draw anew.

In the profile:

    plugins:
      - module: ldpsql.dbt
        config:
          mechanisms:
            city: "krr(epsilon=1, domain=['Lima', 'Oslo', 'Rome', 'Kyiv'])"

``ldp.m.city()`` is then the mechanism in SQL. Those of the project's ``ldpsql.toml`` are there as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from dbt.adapters.duckdb.plugins import BasePlugin
from dbt.adapters.factory import get_adapter_by_type
from dbt_common.exceptions import DbtRuntimeError
from duckdb import DuckDBPyConnection

from ldpsql.duck import attach
from ldpsql.errors import InvalidParameter, LdpError, Redrawn, UnknownName

STORED = ("table", "incremental", "external", "seed", "snapshot")  # what is drawn once and kept
_OPTIONS = ("mechanisms", "catalog")
_DRAWS = re.compile(r"\bperturb(_once)?\s*\(", re.IGNORECASE)
_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/|\{#.*?#\}", re.DOTALL)


class Plugin(BasePlugin):
    """Attach ldpsql to dbt's connections, and refuse models that perturb at every read."""

    def initialize(self, plugin_config: dict[str, Any]) -> None:
        """Read ``mechanisms``, by name, and ``catalog``, by default ldp."""
        own = {key: value for key, value in plugin_config.items() if key not in (self.creds.settings or {})}
        with _shown():
            if unknown := own.keys() - set(_OPTIONS):
                raise UnknownName("option of ldpsql.dbt", min(unknown), _OPTIONS)
            self._mechanisms, self._catalog = own.get("mechanisms") or {}, own.get("catalog", "ldp")
            if not isinstance(self._mechanisms, dict):
                raise InvalidParameter(
                    "mechanisms in the profile must be a mapping", "name: \"krr(epsilon=1, domain=['a', 'b'])\""
                )

    def configure_connection(self, conn: DuckDBPyConnection) -> None:
        """Put the functions on the connection."""
        with _shown():
            attach(conn, name=self._catalog, mechanisms=self._mechanisms)

    def configure_cursor(self, cursor: DuckDBPyConnection) -> None:  # noqa: ARG002  # dbt calls it before any model runs
        """Refuse the project where one of its models would draw anew."""
        manifest = get_adapter_by_type("duckdb").get_macro_resolver()
        if manifest is not None:
            with _shown():
                refuse_redrawn(manifest.nodes.values(), manifest.macros)


def refuse_redrawn(nodes: Iterable[Any], macros: Mapping[str, Any]) -> None:
    """Refuse models that perturb and are not stored: a view or an ephemeral model would draw anew at every read.

    Args:
        nodes: the nodes of dbt's manifest.
        macros: its macros, which may perturb for the models that call them.

    Raises:
        Redrawn: naming the models.

    """
    redrawn = [
        f"{node.name} ({node.config.materialized})"
        for node in nodes
        if node.resource_type == "model" and node.config.materialized not in STORED and _perturbs(node, macros, set())
    ]
    if redrawn:
        raise Redrawn(
            f"these models perturb, but are not stored: {', '.join(sorted(redrawn))}",
            "every read would draw anew and cost privacy: materialize them as incremental or table",
        )


def _perturbs(node: Any, macros: Mapping[str, Any], seen: set[str]) -> bool:
    """Tell whether a model, or a macro that it calls however indirectly, perturbs."""
    text: str = getattr(node, "macro_sql", "") or getattr(node, "raw_code", "")
    if _DRAWS.search(_COMMENT.sub(" ", text)):
        return True
    called = [name for name in node.depends_on.macros if name not in seen and name in macros]
    seen.update(called)
    return any(_perturbs(macros[name], macros, seen) for name in called)


@contextmanager
def _shown() -> Iterator[None]:
    """Let dbt show an error of ldpsql as its own, in one line."""
    try:
        yield
    except LdpError as error:
        raise DbtRuntimeError(str(error)) from None
