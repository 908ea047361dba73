"""All mechanisms, estimators and SQL functions there are, and which plugin each came from.

Built-in plugins are found by name in ``ldpsql.plugins`` and ``ldpsql.udfs``; installed ones by the entry-point group
``ldpsql``, as far as the allow-list names them. A plugin that cannot be used is listed with the reason and changes nothing
else.
"""

from __future__ import annotations

import os
import pkgutil
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, TypeVar

import pluggy
from pluggy import PluginValidationError

from ldpsql import hookspecs
from ldpsql.errors import InvalidSpec, LdpError, NameClash, PluginError, UnknownName
from ldpsql.estimator import Estimator
from ldpsql.mechanism import Mechanism
from ldpsql.spec import Spec, bind, read_call
from ldpsql.sql import Macros, Scalar

_BUILT_IN = ("ldpsql.plugins", "ldpsql.udfs")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}", re.ASCII)
S = TypeVar("S", bound=Spec)


@dataclass
class Plugin:
    """One plugin: its name, where it came from, whether it can be used, and what it offers."""

    name: str
    package: str
    version: str
    status: str  # "ok", "broken" or "not enabled"
    reason: str = ""
    offers: list[str] = field(default_factory=list)


class Registry:
    """Mechanisms and estimators by name, and the plugins they came from."""

    def __init__(self) -> None:
        self.mechanisms: dict[str, type[Mechanism]] = {}
        self.estimators: dict[str, type[Estimator]] = {}
        self.plugins: list[Plugin] = []
        self._functions: list[Scalar | Macros] = []
        self._owners: dict[str, str] = {}
        self._manager = pluggy.PluginManager("ldpsql")
        self._manager.add_hookspecs(hookspecs)

    @classmethod
    def load(cls) -> Registry:
        """Return a registry with the built-in plugins and the installed ones that are allowed."""
        from ldpsql import __version__  # noqa: PLC0415  # the package imports this module lazily

        found = cls()
        for name in _built_in():
            found.add_module(name, Plugin(name, "ldpsql", __version__, "ok"))
        allowed = _allow_list()
        for point in sorted(entry_points(group="ldpsql"), key=lambda p: p.name):
            found._add_installed(point, allowed)
        return found

    def _add_installed(self, point: EntryPoint, allowed: set[str]) -> None:
        version = point.dist.version if point.dist else ""
        package = point.dist.name if point.dist else point.value
        plugin = Plugin(point.name, package, version, "ok")
        if allowed & {"*", point.name, package}:
            self.add_module(point.value, plugin)
        else:
            plugin.status, plugin.reason = "not enabled", f"allow it: LDPSQL_PLUGINS={point.name}, or in ldpsql.toml"
            self.plugins.append(plugin)

    def add_module(self, module: str, plugin: Plugin) -> None:
        """Import a module and add what it offers; if anything is wrong with it, only list it as broken."""
        self.plugins.append(plugin)
        try:
            imported: object = import_module(module)
        except Exception as error:  # noqa: BLE001  # a plugin may raise anything
            plugin.status, plugin.reason = "broken", f"importing it raised {type(error).__name__}: {error}"
            return
        self.add(imported, plugin)

    def add(self, module: object, plugin: Plugin) -> None:
        """Add what a plugin offers, all of it or nothing."""
        if plugin not in self.plugins:
            self.plugins.append(plugin)
        try:
            self._manager.register(module, plugin.name)
            self._manager.check_pending()
            self._take(plugin)
        except PluginValidationError as error:
            self._refuse(plugin, str(error).replace("\n", " "))
        except LdpError as error:
            self._refuse(plugin, error.message)
        except Exception as error:  # noqa: BLE001  # a plugin may raise anything
            self._refuse(plugin, f"it raised {type(error).__name__}: {error}")

    def _refuse(self, plugin: Plugin, reason: str) -> None:
        plugin.status, plugin.reason = "broken", reason
        if self._manager.has_plugin(plugin.name):
            self._manager.unregister(name=plugin.name)

    def _take(self, plugin: Plugin) -> None:
        """Call the hooks of one plugin, check everything it returns, then add it."""
        mechanisms = self._checked(plugin, "ldpsql_mechanisms", Mechanism, self.mechanisms)
        estimators = self._checked(plugin, "ldpsql_estimators", Estimator, self.estimators)
        self.mechanisms |= mechanisms
        self.estimators |= estimators
        plugin.offers = [*(f"mechanism {n}" for n in mechanisms), *(f"estimator {n}" for n in estimators)]
        self._owners |= dict.fromkeys([*mechanisms, *estimators], plugin.name)

    def _checked(self, plugin: Plugin, hook: str, base: type[S], known: Mapping[str, type[S]]) -> dict[str, type[S]]:
        new: dict[str, type[S]] = {}
        for offered in self._offered(plugin, hook):
            name = getattr(offered, "name", None)
            if not (isinstance(offered, type) and issubclass(offered, base) and isinstance(name, str)):
                raise PluginError(f"{hook} must return classes derived from {base.__name__}, each with a name")
            if not _NAME.fullmatch(name) or getattr(offered, "__abstractmethods__", None):
                raise PluginError(f"{base.kind} {name!r} needs a lower-case name and all methods of {base.__name__}")
            if name in known or name in new or name in self._owners:
                owner = self._owners.get(name, plugin.name)
                raise NameClash(f"the name '{name}' is offered by both {owner} and {plugin.name}")
            new[name] = offered
        return new

    def _offered(self, plugin: Plugin, hook: str, **arguments: Any) -> Iterator[Any]:
        for implementation in getattr(self._manager.hook, hook).get_hookimpls():
            if implementation.plugin_name == plugin.name:
                offered = implementation.function(*(arguments[name] for name in implementation.argnames))
                if not isinstance(offered, list):
                    raise PluginError(f"{hook} must return a list")
                yield from offered

    def functions(self) -> list[Scalar | Macros]:
        """Return the SQL functions of all plugins; a plugin that fails here is marked broken and left out."""
        found: list[Scalar | Macros] = []
        for plugin in [p for p in self.plugins if p.status == "ok"]:
            try:
                offered = list(self._offered(plugin, "ldpsql_functions", registry=self))
                if not all(isinstance(function, Scalar | Macros) for function in offered):
                    raise PluginError("ldpsql_functions must return Scalar and Macros")
            except Exception as error:  # noqa: BLE001  # a plugin may raise anything
                self._refuse(plugin, str(error))
            else:
                found += offered
        return found

    def owner(self, name: str) -> str:
        """Return the plugin that offers a mechanism or an estimator."""
        return self._owners[name]

    def mechanism(self, given: Mechanism | str | Mapping[str, Any]) -> Mechanism:
        """Return a mechanism from itself, its text, or a mapping with its name under ``mechanism``.

        Raises:
            UnknownName, InvalidSpec, InvalidParameter: where it cannot be read.

        """
        return _read(given, Mechanism, self.mechanisms)

    def estimator(self, given: Estimator | str | Mapping[str, Any]) -> Estimator:
        """Return an estimator from itself, its text, or a mapping with its name under ``estimator``.

        Raises:
            UnknownName, InvalidSpec, InvalidParameter: where it cannot be read.

        """
        return _read(given, Estimator, self.estimators)


def _read(given: S | str | Mapping[str, Any], base: type[S], known: Mapping[str, type[S]]) -> S:
    if isinstance(given, base):
        return given
    if isinstance(given, str):
        name, arguments, named = read_call(given)
    elif isinstance(given, Mapping) and isinstance(given.get(base.kind), str):
        name, arguments, named = given[base.kind], [], {k: v for k, v in given.items() if k != base.kind}
    else:
        raise InvalidSpec(f"this is not a {base.kind}", f"write it like a call, or name it under '{base.kind}'")
    if name not in known:
        raise UnknownName(base.kind, name, known)
    return bind(known[name], arguments, named)  # type: ignore[return-value]  # known holds classes of this base


def _built_in() -> list[str]:
    """Return the names of all built-in plugin modules."""
    names = []
    for package in _BUILT_IN:
        folder = import_module(package)
        names += [m.name for m in pkgutil.walk_packages(folder.__path__, f"{package}.") if not m.ispkg]
    return sorted(names)


def _allow_list() -> set[str]:
    """Return the installed plugins that may be loaded: LDPSQL_PLUGINS, else ``[plugins] allow`` of ldpsql.toml."""
    told = os.environ.get("LDPSQL_PLUGINS")
    if told is not None:
        return {name.strip() for name in told.split(",")} - {"", "0"}
    for folder in (Path.cwd(), *Path.cwd().parents):
        if (settings := folder / "ldpsql.toml").is_file():
            allowed = tomllib.loads(settings.read_text(encoding="utf-8")).get("plugins", {}).get("allow", [])
            return {str(name) for name in allowed}
    return set()


@cache
def registry() -> Registry:
    """Return the registry of this process, loaded at first use."""
    return Registry.load()
