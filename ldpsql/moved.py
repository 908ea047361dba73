"""Import paths of 0.1.0: they lead to the new paths of the names, with a warning, and will be removed in version 0.3.

from ldpsql.domain import Domain   # still works, and warns; the name is in ldpsql.mechanisms
"""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

# Old path -> new paths of its names, below ldpsql.
_PATHS = {
    "audit": "mechanisms.audit mechanisms.information",
    "certificate": "privacy.certificate",
    "columns": "domains.columns",
    "counting": "inference.counting",
    "demo": "pages.demo",
    "discovery": "registry.discovery",
    "distances": "estimates.distances",
    "distinct": "domains.distinct",
    "domain": "domains.domain",
    "duck": "sql.attach",
    "estimation": "estimates.estimate estimates.fitting",
    "estimator": "estimators.base inference.outcome",
    "families": "mechanisms.families",
    "figures": "pages.figures",
    "fit": "inference.goodness",
    "frames": "bulk.frames",
    "functionals": "estimates.functionals",
    "groups": "engine.groups",
    "handles": "registry.handles",
    "hookspecs": "registry.hookspecs hooks",
    "interrupting": "engine.interrupting",
    "iteration": "estimators.iteration",
    "likelihood": "inference.likelihood",
    "lint": "sql.lint",
    "mechanism": "mechanisms.base",
    "metric": "privacy.metric",
    "mixed": "inference.mixed",
    "named": "sql.named",
    "notebook": "estimates.notebook",
    "pages": "pages.page",
    "pairs.families": "mechanisms.key_value",
    "pairs.sets": "domains.pair_sets",
    "plane": "channels.plane",
    "planning": "estimates.planning",
    "pooling": "estimators.pooling",
    "privacy": "privacy.claims channels.exact",
    "randomness": "channels.randomness",
    "ranges": "domains.ranges",
    "region": "mechanisms.region",
    "registry": "registry.registry",
    "resampling": "estimators.resampling",
    "scale": "estimates.scale",
    "score_intervals": "inference.score_intervals",
    "spec": "mechanisms.spec mechanisms.calls",
    "sql": "engine.functions quoting",
    "threads": "engine.threads",
    "uncertainty": "estimates.uncertainty",
}
_PACKAGES = {"operators": "inference.operators", "solver": "inference.solver"}


def _homes(old: str) -> str | None:
    """Return the new paths of an old one, separated by spaces."""
    package, _, module = old.partition(".")
    inside = f"{_PACKAGES[package]}.{module}".rstrip(".") if package in _PACKAGES else None
    return _PATHS.get(old, inside)


class _OldPaths(MetaPathFinder, Loader):
    """Finds modules under the paths of 0.1.0."""

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        """Return the spec of a path of 0.1.0, None for any other."""
        old = fullname.removeprefix("ldpsql.")
        if fullname == old or _homes(old) is None:
            return None
        return ModuleSpec(fullname, self, is_package=old in _PACKAGES)

    def exec_module(self, module: ModuleType) -> None:
        """Look names up at their new paths."""
        module.__getattr__ = names_of(module.__name__.removeprefix("ldpsql."))  # type: ignore[method-assign]


class _Names:
    """Looks the names of an old path up at their new paths; the first look-up warns."""

    def __init__(self, old: str) -> None:
        self._old, self._warned = old, False

    def __call__(self, name: str) -> object:
        for home in (_homes(self._old) or "").split():
            moved = None if name.startswith("__") else getattr(import_module(f"ldpsql.{home}"), name, None)
            if moved is not None and not isinstance(moved, ModuleType):  # a module may be one of the package's own
                self._warn(home)
                return moved
        raise AttributeError(f"module 'ldpsql.{self._old}' has no attribute '{name}'")

    def _warn(self, home: str) -> None:
        if not self._warned:
            self._warned = True
            text = f"ldpsql.{self._old} is now ldpsql.{home}; the old path goes with version 0.3"
            warnings.warn(text, DeprecationWarning, stacklevel=3)


def names_of(old: str) -> _Names:
    """Return the ``__getattr__`` of a module whose names have moved."""
    return _Names(old)


def install() -> None:
    """Add the old paths to the import system."""
    if not any(isinstance(finder, _OldPaths) for finder in sys.meta_path):
        sys.meta_path.append(_OldPaths())
