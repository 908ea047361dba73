"""``frame.ldp``, ``lazy_frame.ldp`` and ``pl.col("city").ldp`` of Polars, which load ldpsql on first use.

Polars is not imported here. If it is imported later than ldpsql, they are there after its import.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_NAMESPACES = {"dataframe": "LdpFrame", "lazyframe": "LdpFrame", "expr": "LdpExpr"}


def _of(name: str, owner: Any) -> Any:
    return getattr(import_module("ldpsql.polars"), name)(owner)


def _register(polars: Any) -> None:
    for kind, name in _NAMESPACES.items():
        getattr(polars.api, f"register_{kind}_namespace")("ldp")(partial(_of, name))


class _Finder:
    """Finds Polars where Python does, and registers the namespaces once it is imported."""

    @classmethod
    def find_spec(cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the spec of Polars; None for any other module."""
        if name != "polars":
            return None
        found = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not cls)
        spec = next(filter(None, found), None)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                if cls in sys.meta_path:
                    sys.meta_path.remove(cls)
                    _register(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def register() -> None:
    """Register the namespaces, now or once Polars is imported."""
    if polars := sys.modules.get("polars"):
        _register(polars)
    else:
        sys.meta_path.insert(0, _Finder)
