"""The hooks of ldpsql: what a plugin may offer, and where plugins come from. Every hook returns a list.

A third party's plugin is a module with any of these functions, marked with `hookimpl`, and an entry point in the group
``ldpsql`` that names it.
"""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ldpsql.hooks import hookspec
from ldpsql.settings import Settings, short_name

if TYPE_CHECKING:
    from ldpsql.engine.functions import Macros, Scalar
    from ldpsql.estimates.question import Question
    from ldpsql.estimators.base import Estimator
    from ldpsql.mechanisms.base import Mechanism
    from ldpsql.registry.registry import Registry


@hookspec
def ldpsql_mechanisms() -> list[type[Mechanism]]:
    """Offer mechanisms: classes, not instances."""
    return []


@hookspec
def ldpsql_estimators() -> list[type[Estimator]]:
    """Offer estimators: classes, not instances."""
    return []


@hookspec
def ldpsql_questions() -> list[type[Question]]:
    """Offer questions about the values behind reports: classes, not instances."""
    return []


@hookspec
def ldpsql_functions(known: Registry) -> list[Scalar | Macros]:  # noqa: ARG001  # named for pluggy
    """Offer SQL functions; ``known`` holds all mechanisms, estimators and questions."""
    return []


@hookspec
def ldpsql_commands() -> list[Callable[..., Any]]:
    """Offer commands of ``ldpsql``: functions as typer takes them, or typer apps with a name."""
    return []


@hookspec
def ldpsql_dialects() -> list[tuple[str, Any]]:
    """Offer dialects of ``ldpsql export-sql``: names, each with a compiler of Ibis (``SQLGlotCompiler``)."""
    return []


@hookspec
def ldpsql_databases() -> list[tuple[str, type]]:
    """Offer databases that runs read and write: the schemes of addresses, each with a class derived from ``Database``."""
    return []


# Where plugins come from: modules of ldpsql itself, and installed ones as far as the allow-list names them.
#
# Built-in plugins are found by name in ``ldpsql.plugins`` and ``ldpsql.udfs``, installed ones by the entry points ``ldpsql``.
# The environment variable LDPSQL_PLUGINS also names loose files, or folders of them; settings files, which may be part of a
# download, do not.

_BUILT_IN = ("ldpsql.plugins", "ldpsql.udfs")
PATIENCE = 30.0  # seconds for the import of somebody's plugin


Status: TypeAlias = Literal["ok", "broken", "not enabled", "not installed"]


@dataclass
class Plugin:
    """One plugin: its name, where it came from, whether it can be used, and what it offers."""

    name: str
    package: str
    version: str
    status: Status
    reason: str = ""
    offers: list[str] = field(default_factory=list)

    @property
    def built_in(self) -> bool:
        """Whether it came with ldpsql."""
        return self.package == "ldpsql"


def built_in() -> list[Plugin]:
    """Return the plugins that come with ldpsql, each named like its module."""
    from ldpsql import __version__  # noqa: PLC0415  # the package imports this module lazily

    modules = []
    for package in _BUILT_IN:
        folder = import_module(package)
        modules += [m.name for m in pkgutil.walk_packages(folder.__path__, f"{package}.") if not m.ispkg]
    return [Plugin(module, "ldpsql", __version__, "ok") for module in sorted(modules)]


def installed(chosen: Settings) -> Iterator[tuple[str | Path, Plugin]]:
    """Yield the module or the file of each plugin of a third party with the plugin; only those with status "ok" may be loaded.

    Names on the allow-list that belong to no plugin come last, as "not installed".
    """
    for path in chosen.files:
        files = sorted(path.glob("[!_]*.py")) if path.is_dir() else [path]
        yield from ((file, loose(file)) for file in files)
    allowed = chosen.allowed  # by package: any package may choose the name of a trusted one for its entry point
    points = sorted(entry_points(group="ldpsql"), key=lambda p: p.name)
    for point in points:
        yield point.value, _described(point, allowed)
    for name in sorted(allowed - {"*", *(short_name(package_of(point)) for point in points)}):
        yield "", Plugin(name, "-", "-", "not installed", "it is allowed, but no package of this name has a plugin")


def loose(file: Path) -> Plugin:
    """Return the plugin of a file."""
    known = file.is_file()
    reason = "" if known else "there is no such file"
    return Plugin(file.stem, str(file), "-", "ok" if known else "not installed", reason)


def _described(point: EntryPoint, allowed: frozenset[str]) -> Plugin:
    version = point.dist.version if point.dist else ""
    package = package_of(point)
    if "*" in allowed or short_name(package) in allowed:
        return Plugin(point.name, package, version, "ok")
    return Plugin(point.name, package, version, "not enabled", f"allow its package: ldpsql plugins enable {package}")


def package_of(point: EntryPoint) -> str:
    """Return the name of the package that an entry point belongs to."""
    return point.dist.name if point.dist else point.value


def packages_of(name: str) -> list[str]:
    """Return the packages that this names, or that have a plugin of this name."""
    points = entry_points(group="ldpsql")
    return sorted({package_of(p) for p in points if name == p.name or short_name(name) == short_name(package_of(p))})


def imported(module: str | Path) -> object:
    """Return a module, or what its import raised; the import runs in its own thread, so that one that hangs blocks nothing."""
    done: SimpleQueue[object] = SimpleQueue()

    def work() -> None:
        try:
            done.put(import_module(module) if isinstance(module, str) else _of_file(module))
        except BaseException as error:  # noqa: BLE001  # a plugin may raise anything
            done.put(error)

    Thread(target=work, name=f"import {module}", daemon=True).start()
    try:
        return done.get(timeout=PATIENCE)
    except Empty:
        return TimeoutError(f"it was not done after {PATIENCE:g} seconds")


def _of_file(file: Path) -> object:
    """Return the module that a file is, under a name that no package has."""
    name = f"ldpsql_loose_{file.stem}"
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError("it is not a Python file")
    sys.modules[name] = module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
