"""The functions of a connection: scalar functions in Python, and macros copied from a file that an earlier process made.

DuckDB takes .4 s to read the SQL of all macros, and .03 s to copy them from a database file. So the first process makes that
file in the user's cache folder, with a list of the functions in Python, which are imported when SQL first calls one of them.
The name of the list is a digest of what the functions are made from, and it contains the digest of the file. If the folder
cannot be used, or other users might write into it, each connection reads the SQL.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

import duckdb
from duckdb import DuckDBPyConnection
from duckdb.func import FunctionNullHandling, PythonUDFType

import ldpsql
from ldpsql import settings, system
from ldpsql.engine import door
from ldpsql.engine.functions import ALLOWED_MACRO, CATALOG_NUMBER, GUARD_MACRO, HISTOGRAM_MACRO, Macros, Scalar, guarded
from ldpsql.quoting import quoted, text_literal
from ldpsql.sql.drawing import DrawingFunctions

if TYPE_CHECKING:
    from ldpsql.registry.registry import Registry

_REGISTRY = "ldpsql.registry.registry"
_MADE = quoted("ldpsql macros")  # the file, while it is attached
# Macros that the others call, and that are not in the file, each with its parameters.
_OF_CONNECTION = {
    GUARD_MACRO: "()", CATALOG_NUMBER: "()", ALLOWED_MACRO: "(handle, drawn)", HISTOGRAM_MACRO: "(report, keep)"
}  # fmt: skip
_KEPT = 16  # lists and files in the cache folder
_DAY = 86_400.0
_HELD: set[Callable[..., Any]] = set()  # every function that DuckDB may still call: DuckDB does not keep them alive


def offer(make: str | None = None) -> frozenset[str]:
    """Give every database that is opened from now on the functions in C, if this or an earlier process has listed them.

    Args:
        make: the name of a catalog for which the list is made if there is none.

    Returns:
        The names of the functions.

    """
    if not door.offered() and (made := _saved(state(make or "ldp")) or (_make(make) if make else None)):
        registry, scalars = _offered(), made.scalars
        if registry is not None:  # DuckDB reads the types of the plugins of others
            own = {
                name for plugin, offered in registry.functions() if plugin.built_in for one in offered for name in one.names()
            }
            scalars = [one for one in scalars if one.name in own]
        door.offer(scalars)
    return door.offered()


def put(cursor: DuckDBPyConnection, catalog: str, macros: Set[tuple[str, str]], scalars: Set[str]) -> DrawingFunctions:
    """Create all functions in a catalog, in place of those that it has; return which of them draw.

    Args:
        cursor: a connection that uses the catalog.
        catalog: the name of the catalog.
        macros: the macros that it has, each as the kind and the name.
        scalars: the scalar functions that the instance has.

    """
    made = _saved(state(catalog)) or _make(catalog)
    if made is not None:
        offered = _offered()
        _create(cursor, made.scalars if offered is None else _of(offered, Scalar), scalars)
        if _copied(cursor, catalog, made, macros):
            return DrawingFunctions(made.drawing, made.running)
    _create_all(cursor, catalog, scalars | {one.name for one in (made.scalars if made else ())})
    return DrawingFunctions.of_registry()


def drawing(catalog: str) -> DrawingFunctions:
    """Return which functions of a catalog of this name draw, as the file says that an earlier process made."""
    made = _saved(state(catalog))
    return DrawingFunctions.of_registry() if made is None else DrawingFunctions(made.drawing, made.running)


def registered() -> Registry | None:
    """Return the registry; None if this process has not loaded it and the settings add nothing to what comes with ldpsql."""
    chosen, module = settings.of_process(), sys.modules.get(_REGISTRY)
    loaded = module is not None and module.is_loaded()
    return _loaded() if loaded or chosen.allowed or chosen.files or chosen.mechanisms or chosen.tables else None


def _loaded() -> Registry:
    """Return the registry, loaded at first use."""
    registry: Registry = import_module(_REGISTRY).registry()
    return registry


def _offered() -> Registry | None:
    """Return the registry if it offers other functions than those that come with ldpsql."""
    registry = registered()
    return None if registry is None or registry.as_shipped else registry


def _of(registry: Registry, kind: type[Scalar] | type[Macros]) -> list[Any]:
    return [one for _, functions in registry.functions() for one in functions if isinstance(one, kind)]


@dataclass(frozen=True)
class _Made:
    """What an earlier process made: the scalar functions, the names of all that draw or run text, and the file of macros."""

    scalars: list[Scalar]
    drawing: frozenset[str]
    running: frozenset[str]
    macros: Path
    names: frozenset[str]  # of the macros


# --- the file ---


def state(catalog: str) -> str:
    """Return a digest of all that determines the functions of a catalog of this name."""
    source: Any = _sources()
    if (offered := _offered()) is not None:
        source = [one.text for one in _of(offered, Macros)], [(one.name, one.draws) for one in _of(offered, Scalar)]
    return sha256(repr((ldpsql.__version__, duckdb.__version__, catalog, source)).encode()).hexdigest()


@cache
def _sources() -> list[tuple[str, int, int]]:
    """Return the files of ldpsql with their sizes and the times at which they were written."""
    own = Path(__file__).parents[1]
    beside = [Path(folder, name) for folder in ldpsql.__path__ for name in ("plugins", "udfs")]
    found = [entry for folder in (own, *beside) if folder.is_dir() for entry in _files(str(folder))]
    return sorted({(entry.path, entry.stat().st_mtime_ns, entry.stat().st_size) for entry in found})


def _files(folder: str) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _files(entry.path) if entry.name != "__pycache__" else ()
            elif entry.name.endswith((".py", ".sql")):
                yield entry


def _folder() -> Path | None:
    """Return the folder of the files; None if there is none, or other users might write into it."""
    folder = system.cache_folder() / "ldpsql"
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if system.is_safe(folder):
            return folder
    return None


def _saved(key: str) -> _Made | None:
    """Return what an earlier process made under a key; None if there is nothing, or it is damaged or not this user's."""
    if (folder := _folder()) is None:
        return None
    try:
        digest, _, listed = system.private_bytes(folder / f"{key}.json").partition(b"\n")
        if sha256(listed).hexdigest().encode() != digest:
            return None
        made = json.loads(listed)
        macros = folder / f"{made['macros']}.duckdb"
        if sha256(system.private_bytes(macros)).hexdigest() != made["macros"]:
            return None
        scalars = [Scalar(name, _late(name), returns, volatile, draws) for name, returns, volatile, draws in made["scalars"]]
        return _Made(scalars, frozenset(made["drawing"]), frozenset(made["running"]), macros, frozenset(made["names"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _make(catalog: str) -> _Made | None:
    """Make the file and the list for a catalog of this name; None if they cannot be written."""
    if (folder := _folder()) is None:
        return None
    try:
        scratch = Path(mkdtemp(prefix="making-", dir=folder))
    except OSError:
        return None
    existing = door.offered()
    try:
        with duckdb.connect() as con:
            con.execute(f"ATTACH {text_literal(str(scratch / 'made'))} AS {quoted(catalog)}; USE {quoted(catalog)}")
            con.execute("".join(f"CREATE MACRO {name}{given} AS NULL::BIGINT;" for name, given in _OF_CONNECTION.items()))
            _create_all(con, catalog, existing)
            con.execute("".join(f"DROP MACRO {name};" for name in _OF_CONNECTION) + f"USE memory; DETACH {quoted(catalog)}")
        key = state(catalog)  # without the plugins whose SQL DuckDB refused
        digest = sha256((scratch / "made").read_bytes()).hexdigest()
        listed = json.dumps(_listed(digest))
        (scratch / "list").write_text(f"{sha256(listed.encode()).hexdigest()}\n{listed}", encoding="utf-8")
        for name, final in (("made", f"{digest}.duckdb"), ("list", f"{key}.json")):
            (scratch / name).chmod(0o600)
            (scratch / name).replace(folder / final)
    except (OSError, duckdb.Error):
        return None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    _tidy(folder)
    return _saved(key)


def _listed(digest: str) -> dict[str, Any]:
    """Return the list of the functions that the registry offers, whose macros are in the file with this digest."""
    registry = registered() or _loaded()
    drawing = DrawingFunctions.of_registry()
    return {
        "macros": digest,
        "names": sorted({name for one in _of(registry, Macros) for name in one.names()}),
        "scalars": [(one.name, one.returns, one.volatile, one.draws) for one in _of(registry, Scalar)],
        "drawing": sorted(drawing.drawing),
        "running": sorted(drawing.running),
    }


def _tidy(folder: Path) -> None:
    """Remove all but the newest files, and what a killed process left; others may do so at the same time."""
    with suppress(OSError):
        made = sorted(folder.glob("*.*"), key=lambda file: file.stat().st_mtime, reverse=True)
        for file in made[2 * _KEPT :]:
            file.unlink(missing_ok=True)
        for scratch in folder.glob("making-*"):
            if scratch.stat().st_mtime < time.time() - _DAY:
                shutil.rmtree(scratch, ignore_errors=True)


# --- the connection ---


def _copied(cursor: DuckDBPyConnection, catalog: str, made: _Made, macros: Set[tuple[str, str]]) -> bool:
    """Copy the macros of a file into a catalog in place of those of the same names; return False if DuckDB refuses that."""
    names = {name.lower() for name in made.names}
    drops = [f"DROP MACRO {kind} {quoted(catalog)}.{quoted(name)};" for kind, name in macros if name.lower() in names]
    try:
        cursor.execute(f"ATTACH {text_literal(str(made.macros))} AS {_MADE} (READ_ONLY)")
    except duckdb.Error:  # an instance that may not read files
        return False
    try:
        cursor.execute("BEGIN")
        cursor.execute(f"{''.join(drops)}COPY FROM DATABASE {_MADE} TO {quoted(catalog)}; COMMIT")
    except BaseException as error:
        cursor.execute("ROLLBACK")
        if not isinstance(error, duckdb.Error):
            raise
        return False
    finally:
        cursor.execute(f"DETACH {_MADE}")
    return True


def _create_all(cursor: DuckDBPyConnection, catalog: str, existing: Set[str]) -> None:
    """Create the functions of all plugins; a plugin of a third party whose SQL DuckDB refuses is marked broken."""
    registry = registered() or _loaded()
    functions = registry.functions()
    built_in_last = sorted(functions, key=lambda one: one[0].built_in)  # so that no macro of another plugin replaces ours
    for kind, ordered in ((Scalar, functions), (Macros, built_in_last)):  # macros of one plugin may call scalars of another
        for plugin, offered in ordered:
            try:
                if kind is Scalar:
                    _create(cursor, [one for one in offered if isinstance(one, Scalar)], existing)
                for macros in (one for one in offered if isinstance(one, Macros) and kind is Macros):
                    cursor.execute(macros.statements(catalog))
            except duckdb.Error as error:
                if plugin.built_in:
                    raise
                registry.refuse(plugin, f"its SQL is refused by DuckDB: {error}")


def _create(cursor: DuckDBPyConnection, scalars: Sequence[Scalar], existing: Set[str]) -> None:
    types: dict[str, Any] = {}  # each is read once
    for one in scalars:
        door.FUNCTIONS.setdefault(one.name, one.function)
        if one.name not in existing:
            _HELD.add(one.function)
            cursor.create_function(
                one.name,
                one.function,
                None,
                types.get(one.returns) or types.setdefault(one.returns, cursor.dtype(one.returns)),
                type=PythonUDFType.ARROW,
                null_handling=FunctionNullHandling.SPECIAL,
                side_effects=one.volatile,
            )


@cache
def _late(name: str) -> Callable[..., Any]:
    """Return a function that imports the one of this name when it is first called."""

    def call(*columns: Any) -> Any:
        return _implementations()[name](*columns)

    call.__name__ = name
    return guarded(call)


@cache
def _implementations() -> dict[str, Callable[..., Any]]:
    """Return the functions that come with ldpsql, by name."""
    return {one.name: one.function for one in _of(_loaded(), Scalar)}
