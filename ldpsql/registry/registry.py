"""All mechanisms, estimators and SQL functions, and the plugin that offers each.

A plugin that cannot be used is listed with the reason and changes nothing else.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import RLock
from types import FunctionType, ModuleType
from typing import Any, NamedTuple, TypeVar

import pluggy
from duckdb import DuckDBPyConnection
from pluggy import PluginValidationError

from ldpsql import settings
from ldpsql.engine.functions import Macros, Scalar
from ldpsql.errors import BadSettings, InvalidSpec, LdpError, NameClash, PluginError, UnknownName
from ldpsql.estimates.question import Question, found_by
from ldpsql.estimators.base import Estimator
from ldpsql.mechanisms.base import Mechanism, certify
from ldpsql.mechanisms.certified import refuse_overrides
from ldpsql.mechanisms.spec import Nested, Spec, bind, read_by, read_call
from ldpsql.places import SCHEMES, Place
from ldpsql.registry import documents, hookspecs
from ldpsql.registry.constructors import constructor
from ldpsql.registry.hookspecs import Plugin
from ldpsql.registry.references import check_total, planned, resolved, tables_of
from ldpsql.settings import Settings

__all__ = ["Plugin", "Registry", "registry"]

# The mechanisms of columns that the policies of tables name: ``people_city`` is the column city of ``[tables.people]``.


class WrittenPolicy(NamedTuple):
    """The policy of a table, as the settings write it, and the mechanisms of all of its columns."""

    table: str
    written: Mapping[str, Any]
    specs: tuple[Any, ...]

    def check(self, read: Callable[[Any], Mechanism]) -> None:
        """Refuse a policy whose columns spend more than its total; a column that cannot be read yet does not count."""
        claims = []
        for spec in self.specs:
            with suppress(LdpError):
                claims.append(certify(read(spec)).certificate.claim)
        check_total(self.table, self.written, claims)


def named_columns(settings: Settings, kinds: Mapping[str, type[Mechanism]]) -> tuple[dict[str, Any], dict[str, WrittenPolicy]]:
    """Return the mechanism of each column of a policy by its name, and the policy it belongs to.

    Args:
        settings: the settings. A policy that is wrong names no columns: its error is raised when it is used.
        kinds: the classes of mechanisms, by name.

    Raises:
        BadSettings: if two mechanisms have the same name.

    """
    mechanisms: dict[str, Any] = {}
    policies: dict[str, WrittenPolicy] = {}
    for table, policy in settings.tables.items():
        names = {column: f"{table}_{column}" for column in policy["columns"] if f"{table}_{column}".isidentifier()}
        _refuse_clashes(table, names.values(), {*settings.mechanisms, *mechanisms, *kinds})
        with suppress(LdpError):
            specs = planned(policy, settings.mechanisms, kinds)
            mechanisms |= {name: specs[column] for column, name in names.items()}
            policies |= dict.fromkeys(names.values(), WrittenPolicy(table, policy, tuple(specs.values())))
    return mechanisms, policies


def _refuse_clashes(table: str, names: Iterable[str], others: Iterable[str]) -> None:
    """Refuse a column whose name another mechanism has, too: nobody could see which one is drawn. SQL ignores case."""
    taken = {name.lower() for name in others}
    for name in names:
        if name.lower() in taken:
            raise BadSettings(
                f"'{name}' names a column of [tables.{table}] and another mechanism",
                "rename the mechanism, the table or the column",
            )
        taken.add(name.lower())


# Mechanisms and estimators from the ways to write them: a call in text, or a mapping of parameters.


def read(spec: S | str | Mapping[str, Any], base: type[S], kinds: Mapping[str, type[S]], named: Collection[str] = ()) -> S:
    """Return an instance of a class of this base.

    Args:
        spec: the instance itself, a call in text, or a mapping of parameters with the name under ``base.kind``.
        base: the base class.
        kinds: its classes, by name.
        named: names of the settings, each of an instance with its parameters.

    Raises:
        UnknownName, InvalidSpec, InvalidParameter: if it cannot be read.

    """
    if isinstance(spec, base):
        return spec
    if isinstance(spec, str):
        name, arguments, options = read_call(spec, base.kind)
    elif isinstance(spec, Mapping) and isinstance(spec.get(base.kind), str):
        name, arguments, options = spec[base.kind], [], {k: v for k, v in spec.items() if k != base.kind}
    else:
        raise InvalidSpec(f"this is not a {base.kind}", f"write it like a call, or name it under '{base.kind}'")
    if name not in kinds and name in named:
        hint = f"use {name} itself, or write out a mechanism, such as krr(1, ['a', 'b'])"
        raise InvalidSpec(f"'{name}' is a mechanism of the settings and takes no parameters", hint)
    if name not in kinds:
        raise UnknownName(base.kind, name, [*named, *kinds])
    return bind(kinds[name], arguments, options)  # type: ignore[return-value]  # kinds holds classes of this base


def with_domains(
    spec: Mechanism | str | Mapping[str, Any],
    kinds: Mapping[str, type[Mechanism]],
    con: DuckDBPyConnection | None,
    mechanism: Callable[[str], Mechanism],
) -> Mechanism | str | Mapping[str, Any]:
    """Return a mechanism with the domains in place of references to columns, also in the mechanisms of columns of a row.

    Raises:
        SourceRefused, InvalidDomain, OtherMechanism: if a column cannot be read.

    """

    def part(value: Any) -> Any:
        if isinstance(value, Nested):
            return mechanism(str(value))
        if isinstance(value, Mapping) and any(isinstance(inner, Nested) for inner in value.values()):
            return {name: part(inner) for name, inner in value.items()}
        return resolved(value, con)

    if isinstance(spec, str) and "{" in spec:
        name, arguments, named = read_call(spec)
        if name in kinds:
            parameters = [parameter.name for parameter in kinds[name].parameters()]
            spec = {"mechanism": name, **dict(zip(parameters, arguments, strict=False)), **named}
    return {name: part(value) for name, value in spec.items()} if isinstance(spec, Mapping) else spec


_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}", re.ASCII)
S = TypeVar("S", bound=Spec)
N = TypeVar("N", bound=Spec | Question)


class _Manager(pluggy.PluginManager):
    """A manager that does not look for hooks in what a module only imports, such as classes: that took half of the loading."""

    def parse_hookimpl_opts(self, plugin: object, name: str) -> Any:
        """Return the options of a hook; None if this is none."""
        if isinstance(plugin, ModuleType) and not isinstance(vars(plugin).get(name), FunctionType):
            return None
        return super().parse_hookimpl_opts(plugin, name)


class Registry:
    """Mechanisms and estimators by name, and the plugins they came from."""

    def __init__(self) -> None:
        self.mechanisms: dict[str, type[Mechanism]] = {}
        self.estimators: dict[str, type[Estimator]] = {}
        self.questions: dict[str, type[Question]] = {}
        self.constructors: dict[str, str] = {}  # the SQL of each mechanism, written when it was added
        self.commands: dict[str, Callable[..., Any]] = {}  # third parties' commands of `ldpsql`, by name
        self.dialects: dict[str, Any] = {}  # third parties' compilers of Ibis, by the name of their dialect
        self.databases: dict[str, Any] = {}  # third parties' classes of databases, by the scheme of their addresses
        self.plugins: list[Plugin] = []
        self.named: Mapping[str, Any] = {}  # mechanisms that the settings name, as written there
        self.policies: dict[str, WrittenPolicy] = {}  # by the names of their columns
        self._settled: dict[str, Mechanism] = {}  # those of them that have been read
        self._functions: list[tuple[Plugin, list[Scalar | Macros]]] = []  # SQL functions
        self._offering: tuple[object, ...] = ()  # what the functions were made from
        self._shipped: tuple[object, ...] = ()  # the same, of the built-in plugins
        self._owners: dict[str, str] = {}  # plugins by the name of a mechanism or an estimator
        self._sql_names: dict[str, str] = {}  # built-in plugins by the name of a SQL function
        self._manager = _Manager("ldpsql")
        self._manager.add_hookspecs(hookspecs)

    @classmethod
    def load(cls, chosen: settings.Settings | None = None) -> Registry:
        """Return a registry with the built-in plugins and the installed ones that are allowed.

        Args:
            chosen: the settings; by default, those of the current folder.

        Raises:
            BadSettings: if a settings file is wrong, or gives a mechanism the name of a plugin's.

        """
        loaded = cls()
        for plugin in hookspecs.built_in():
            loaded.add_module(plugin.name, plugin)
        # lists go by name, whichever file offers what
        loaded.mechanisms, loaded.estimators = dict(sorted(loaded.mechanisms.items())), dict(sorted(loaded.estimators.items()))
        loaded._sql_names = {
            name: plugin.name for plugin, offered in loaded.functions() for function in offered for name in function.names()
        }
        loaded._shipped = loaded._offered_by()
        chosen = chosen or settings.load()
        for module, plugin in hookspecs.installed(chosen):
            if plugin.status == "ok":
                loaded.add_module(module, plugin)
            else:
                loaded.plugins.append(plugin)
        loaded._name(chosen)
        return loaded

    def _name(self, chosen: settings.Settings) -> None:
        """Store the mechanisms that the settings name, and those of the columns of their policies."""
        if taken := chosen.mechanisms.keys() & self.mechanisms.keys():
            raise BadSettings(f"ldpsql.toml names a mechanism '{min(taken)}', as a plugin does", "choose another name there")
        if not all(name.isidentifier() for name in chosen.mechanisms):  # another might stand for a call in text
            raise BadSettings("a mechanism in ldpsql.toml needs a name of letters, digits and _", "for example city")
        columns, self.policies = named_columns(chosen, self.mechanisms)
        self.named = {**columns, **chosen.mechanisms}

    def add_module(self, module: str | Path, plugin: Plugin) -> None:
        """Import a module and add what it offers; if anything is wrong with it, only list it as broken."""
        self.plugins.append(plugin)
        imported = import_module(str(module)) if plugin.built_in else hookspecs.imported(module)
        if isinstance(imported, BaseException):
            plugin.status, plugin.reason = "broken", f"importing it raised {type(imported).__name__}: {imported}"
        else:
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
            self.refuse(plugin, str(error).replace("\n", " "))
        except LdpError as error:
            self.refuse(plugin, error.message)
        except (Exception, SystemExit) as error:  # noqa: BLE001  # a plugin may raise anything
            self.refuse(plugin, f"it raised {type(error).__name__}: {error}")

    def refuse(self, plugin: Plugin, reason: str) -> None:
        """List a plugin as broken and take back all it offered."""
        for kind, name in (offer.split(" ", 1) for offer in plugin.offers):
            del self._by_kind()[kind][name]
        plugin.status, plugin.reason, plugin.offers = "broken", reason, []
        for name in [name for name, owner in self._owners.items() if owner == plugin.name]:
            del self._owners[name]
            self.constructors.pop(name, None)
        if self._manager.has_plugin(plugin.name):
            self._manager.unregister(name=plugin.name)

    def _by_kind(self) -> dict[str, dict[str, Any]]:
        """Return what plugins offer, but functions, by kind and name."""
        return {
            "mechanism": self.mechanisms, "estimator": self.estimators, "question": self.questions,
            "command": self.commands, "dialect": self.dialects, "database": self.databases,
        }  # fmt: skip

    def _take(self, plugin: Plugin) -> None:
        """Call the hooks of one plugin, check everything it returns, then add it."""
        mechanisms = self._checked(plugin, "ldpsql_mechanisms", Mechanism)
        offers: dict[str, dict[str, Any]] = {
            "mechanism": mechanisms,
            "estimator": self._checked(plugin, "ldpsql_estimators", Estimator),
            "question": self._named(plugin, "ldpsql_questions", Question),
        }
        names = Counter(name for offered in offers.values() for name in offered)
        if clash := [name for name, times in names.items() if times > 1]:
            raise NameClash(f"{plugin.name} offers the name '{min(clash)}' twice")
        offers["command"] = self._commands_of(plugin)
        offers["dialect"] = self._pairs_of(plugin, "dialect", self.dialects, "a name and a compiler of Ibis", "to_sqlglot")
        offers["database"] = self._pairs_of(
            plugin, "database", dict.fromkeys(SCHEMES) | self.databases, "a scheme and a class derived from Database", "store"
        )
        if wrong := [scheme for scheme in offers["database"] if Place.of(f"{scheme}://table").scheme != scheme]:
            raise PluginError(f"{wrong[0]!r} is not a scheme of addresses: it needs two or more lowercase letters")
        self.constructors |= {name: constructor(name, kind, trusted=plugin.built_in) for name, kind in mechanisms.items()}
        for kind, offered in offers.items():
            self._by_kind()[kind].update(offered)
        plugin.offers = [f"{kind} {name}" for kind, offered in offers.items() for name in offered]
        if len(self._manager.get_hookcallers(self._manager.get_plugin(plugin.name)) or []) == 0:
            plugin.reason = "offers nothing: is a function missing its @hookimpl?"
        self._owners |= dict.fromkeys(names, plugin.name)

    def _commands_of(self, plugin: Plugin) -> dict[str, Callable[..., Any]]:
        new: dict[str, Callable[..., Any]] = {}
        for offered in self._offered(plugin, "ldpsql_commands"):
            name = offered.info.name if hasattr(offered, "info") else getattr(offered, "__name__", None)
            if not callable(offered) or not isinstance(name, str):
                raise PluginError("ldpsql_commands must return functions, or typer apps with a name")
            name = name.replace("_", "-")
            if name in new or name in self.commands:
                raise NameClash(f"the command '{name}' of {plugin.name} already exists")
            new[name] = offered
        return new

    def _pairs_of(self, plugin: Plugin, kind: str, known: Mapping[str, Any], what: str, needed: str) -> dict[str, Any]:
        new: dict[str, Any] = {}
        for offered in self._offered(plugin, hook := f"ldpsql_{kind}s"):
            name, thing = offered if isinstance(offered, tuple) and len(offered) == 2 else ("", None)
            if not isinstance(name, str) or not hasattr(thing, needed):
                raise PluginError(f"{hook} must return pairs of {what}")
            if name in new or name in known:
                raise NameClash(f"the {kind} '{name}' of {plugin.name} already exists")
            new[name] = thing
        return new

    def _checked(self, plugin: Plugin, hook: str, base: type[S]) -> dict[str, type[S]]:
        new = self._named(plugin, hook, base)
        for offered in new.values():
            refuse_overrides(offered)
            offered.signature()  # raises here, where its plugin is known, if a parameter is beyond description
        return new

    def _named(self, plugin: Plugin, hook: str, base: type[N]) -> dict[str, type[N]]:
        new: dict[str, type[N]] = {}
        for offered in self._offered(plugin, hook):
            name = getattr(offered, "name", None)
            if not (isinstance(offered, type) and issubclass(offered, base) and type(name) is str):
                raise PluginError(f"{hook} must return classes derived from {base.__name__}, each with a name")
            if not _NAME.fullmatch(name) or getattr(offered, "__abstractmethods__", None):
                raise PluginError(f"{base.kind} {name!r} needs a lowercase name and all methods of {base.__name__}")
            if name in new:
                raise NameClash(f"{plugin.name} offers the name '{name}' twice")
            if name in self._owners or name in self._sql_names:
                owner = self._owners.get(name) or self._sql_names[name]
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

    def functions(self) -> list[tuple[Plugin, list[Scalar | Macros]]]:
        """Return the SQL functions of each plugin, built-in ones first; a plugin that fails here is marked broken.

        The plugins are asked again only after something was added or refused.
        """
        if self._offering != self._offered_by():
            # Third parties first, so that the constructors made from the registry are those of plugins that stay in it.
            offers = [(plugin, self._functions_of(plugin)) for plugin in reversed(self.plugins) if plugin.status == "ok"]
            self._functions = [(plugin, functions) for plugin, functions in reversed(offers) if plugin.status == "ok"]
            self._offering = self._offered_by()
        return self._functions

    def _offered_by(self) -> tuple[object, ...]:
        """Return what the functions depend on: the plugins, and what hooks see of the registry."""
        working = [plugin.name for plugin in self.plugins if plugin.status == "ok"]
        return working, dict(self.mechanisms), dict(self.constructors), dict(self.estimators), dict(self.questions)

    def _functions_of(self, plugin: Plugin) -> list[Scalar | Macros]:
        try:
            offered = list(self._offered(plugin, "ldpsql_functions", known=self))
            if not all(type(function) in (Scalar, Macros) for function in offered):
                raise PluginError("ldpsql_functions must return Scalar and Macros")
            if not plugin.built_in:
                self._check_functions(plugin, offered)
        except (Exception, SystemExit) as error:  # noqa: BLE001  # a plugin may raise anything
            self.refuse(plugin, error.message if isinstance(error, LdpError) else str(error))
            return []
        return offered

    def _check_functions(self, plugin: Plugin, offered: Sequence[Scalar | Macros]) -> None:
        """Refuse functions of a third party that take the place of others, or do more than create functions."""
        for function in offered:
            function.check()
            for name in (name.lower() for name in function.names()):  # SQL does not tell upper from lower case
                owner = self._owners.get(name) or self._sql_names.get(name, plugin.name)
                if owner != plugin.name:
                    raise NameClash(f"the SQL name '{name}' is offered by both {owner} and {plugin.name}")

    @property
    def as_shipped(self) -> bool:
        """Whether the functions are those of the built-in plugins."""
        return self._offered_by() == self._shipped

    def owner(self, name: str) -> str:
        """Return the plugin that offers a mechanism or an estimator."""
        return self._owners[name]

    def mechanism(
        self, given: Mechanism | str | Mapping[str, Any], con: DuckDBPyConnection | None = None, *, files: bool = False
    ) -> Mechanism:
        """Return a mechanism from itself, its text, its name in the settings, a mapping with its name, or its document.

        Args:
            given: the mechanism; a mapping has its name under ``mechanism``, and a document may also be text. That of a name in
                the settings is read once in a process, unless its domain is in a table.
            con: the connection that reads domains in tables and files.
            files: whether domains may be in files without a connection. Only the settings may name them otherwise: other text
                may come from anywhere, and must not open files.

        Raises:
            UnknownName, InvalidSpec, InvalidParameter: if it cannot be read.
            RowBudgetExceeded: if it is a column of a policy whose columns spend more than the total of a row.
            SourceRefused, InvalidDomain, OtherMechanism: if its domain is a column that cannot be read.

        """
        if not isinstance(given, Mechanism) and (documented := self._documented(given)):
            return documented
        name = given.strip() if isinstance(given, str) else ""
        if name in self._settled:
            return self._settled[name]
        if name in self.named:
            if name in self.policies:
                self.policies[name].check(lambda spec: self.mechanism(spec, con))
            written = self.named[name]
            mechanism = self._documented(written) or self._read(self._with_domains(written, con))
            if not tables_of(written):
                self._settled[name] = mechanism
            return mechanism
        return self._read(self._with_domains(given, con) if files or con is not None else given)

    def _documented(self, given: str | Mapping[str, Any]) -> Mechanism | None:
        """Return the mechanism of a document; None if it is written in another way."""
        json = documents.parsed(given)
        if json is None or (isinstance(given, Mapping) and "format" not in given):
            return None
        return documents.check(json, self._read(documents.parameters(json)))

    def _read(self, spec: Mechanism | str | Mapping[str, Any]) -> Mechanism:
        return read(spec, Mechanism, self.mechanisms, self.named)

    def _with_domains(
        self, spec: Mechanism | str | Mapping[str, Any], con: DuckDBPyConnection | None
    ) -> Mechanism | str | Mapping[str, Any]:
        return with_domains(spec, self.mechanisms, con, lambda column: self.mechanism(column, con))

    def estimator(self, given: Estimator | str | Mapping[str, Any]) -> Estimator:
        """Return an estimator from itself, its text, or a mapping with its name under ``estimator``.

        Raises:
            UnknownName, InvalidSpec, InvalidParameter: if it cannot be read.

        """
        return read(given, Estimator, self.estimators)

    def question(self, name: str) -> type[Question]:
        """Return the question of this name."""
        if name not in self.questions:
            raise UnknownName("question", name, self.questions)
        return self.questions[name]


_LOADING = RLock()  # several threads of DuckDB may be the first to call a function


def registry() -> Registry:
    """Return the registry of this process, loaded at first use."""
    with _LOADING:
        return _of_process()


def is_loaded() -> bool:
    """Return whether this process has loaded its registry."""
    return bool(_of_process.cache_info().currsize)


@cache
def _of_process() -> Registry:
    return Registry.load(settings.of_process())


read_by(lambda spec: registry().mechanism(spec))
found_by(lambda name: registry().question(name))
