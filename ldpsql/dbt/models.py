"""The models of a dbt project: which of them perturb, and whether they are stored."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ldpsql.errors import NotReleased, Redrawn

STORED = ("table", "incremental", "external")  # what is drawn once and kept
_DRAWS = re.compile(r'\bperturb(?!_once\b)\w*"?\s*\(', re.IGNORECASE)  # a report of perturb_once stays the same
_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/|\{#.*?#\}", re.DOTALL)


def perturbing(manifest: Any) -> list[Any]:
    """Return the models of dbt's manifest that perturb, by themselves or through a macro."""
    return [
        node for node in manifest.nodes.values() if node.resource_type == "model" and _perturbs(node, manifest.macros, set())
    ]


def _perturbs(node: Any, macros: Mapping[str, Any], seen: set[str]) -> bool:
    """Tell whether a model, or a macro that it calls however indirectly, perturbs."""
    text: str = getattr(node, "macro_sql", "") or getattr(node, "raw_code", "")
    if _DRAWS.search(_COMMENT.sub(" ", text)):
        return True
    called = [name for name in node.depends_on.macros if name not in seen and name in macros]
    seen.update(called)
    return any(_perturbs(macros[name], macros, seen) for name in called)


def refuse_redrawn(models: list[Any]) -> None:
    """Refuse models that perturb and are not stored: a view or an ephemeral model would draw anew at every read.

    Raises:
        Redrawn: naming the models.

    """
    redrawn = [f"{model.name} ({model.config.materialized})" for model in models if model.config.materialized not in STORED]
    if redrawn:
        raise Redrawn(
            f"these models perturb, but are not stored: {', '.join(sorted(redrawn))}",
            "every read would draw anew and cost privacy: materialize them as incremental or table",
        )


def refuse_uncharged(models: list[Any]) -> None:
    """Refuse models that perturb and do not say what to charge to the ledger.

    Raises:
        NotReleased: naming the models.

    """
    silent = [model.name for model in models if not _complete(told(model))]
    if silent:
        raise NotReleased(
            f"these models perturb, and do not say what their ledger is to charge: {', '.join(sorted(silent))}",
            "write meta={'ldp': {'dataset': 'new_people', 'columns': {'city': 'city'}}} into their config",
        )


def told(model: Any) -> Any:
    """Return what a model says below ``meta.ldp``."""
    return (model.config.meta or {}).get("ldp")


def _complete(release: Any) -> bool:
    if not isinstance(release, dict) or release.keys() - {"dataset", "columns"}:
        return False
    columns = release.get("columns")
    return isinstance(release.get("dataset"), str) and isinstance(columns, dict) and bool(columns)
