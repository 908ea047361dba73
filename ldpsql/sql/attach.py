"""Puts the functions of ldpsql into an in-memory catalog of a DuckDB connection; nothing is written into the user's file."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import duckdb
from duckdb import DuckDBPyConnection
from duckdb.func import FunctionNullHandling, PythonUDFType

from ldpsql.engine.connections import CONNECTIONS, duckdb_of
from ldpsql.engine.functions import MARK, Macros, Scalar
from ldpsql.errors import ConnectionRefused, InvalidParameter, PrivacyLeakWarning
from ldpsql.ledger import Ledger
from ldpsql.ledger.guard import GUARD_MACRO, GUARDS, Guard, guard_number
from ldpsql.ledger.marks import mark, marks
from ldpsql.ledger.permanent import Key
from ldpsql.quoting import quoted
from ldpsql.registry.declared import CATALOG_NUMBER, new_catalog
from ldpsql.registry.registry import registry
from ldpsql.sql import lint, named

_ATTACHING = Lock()  # DuckDB refuses two writers of one catalog
_HELD: set[Callable[..., Any]] = set()  # every function that DuckDB may still call: DuckDB does not keep them alive
C = TypeVar("C")


def connect(
    database: str = ":memory:",
    *,
    name: str = "ldp",
    use: bool = False,
    mechanisms: Mapping[str, Any] | None = None,
    ledger: Ledger | str | Path | None = None,
    key: Key | str | Path | None = None,
    **options: Any,
) -> DuckDBPyConnection:
    """Open a DuckDB database and attach the functions; ``options`` are passed to `duckdb.connect`."""
    con = duckdb.connect(database, **options)
    return attach(con, name=name, use=use, mechanisms=mechanisms, ledger=ledger, key=key)


def attach(
    con: C,
    *,
    name: str = "ldp",
    use: bool = False,
    mechanisms: Mapping[str, Any] | None = None,
    ledger: Ledger | str | Path | None = None,
    key: Key | str | Path | None = None,
) -> C:
    """Put the SQL functions into an in-memory catalog of this connection's instance; attaching again renews them.

    Args:
        con: an open connection of DuckDB, or of SQLAlchemy with duckdb-engine; its cursors and other connections to the same
            instance see the functions, too.
        name: the name of the catalog.
        use: also put the catalog on this connection's search path, so that ``perturb(x, m)`` works without ``ldp.``.
        mechanisms: mechanisms by name, in addition to those of ``ldpsql.toml``: ``city`` is then ``ldp.m.city()``
            in SQL, and 'city' in functions that take this connection, such as `ldpsql.perturb_table`.
        ledger: a ledger; the connection then draws only what a release was charged for, see `ldpsql.release`. Attaching again
            keeps it, and restores it if it was removed.
        key: the key of permanent reports, for ``ldp.perturb_once``; `ldpsql.Key.create` makes one.

    Warns:
        PrivacyLeakWarning: for views and other objects that perturb whenever they are used (see `ldpsql.sql.lint.lint`), and
            if the guard of a ledger was removed.

    Raises:
        BadSettings: if a named mechanism cannot be read.
        ConnectionRefused: if another database or schema has that name, or this is not a connection of DuckDB.
        LedgerError, InvalidParameter: if the ledger or the key cannot be used.

    """
    guard, own = _guard(ledger, key), duckdb_of(con)
    with _ATTACHING, own.cursor() as cursor:  # an open result would block the connection itself
        existing = _Functions.of(cursor, name)
        _make_catalog(cursor, name, existing)
        ((number,),) = cursor.execute(f"SELECT {quoted(name)}.{CATALOG_NUMBER}()").fetchall()
        CONNECTIONS.remember(number, own)
        _watch(cursor, name, guard, existing)
        cursor.execute(f"USE {quoted(name)}")  # elsewhere a macro of the user's could hide a scalar function
        _create_all(cursor, name, existing)
        cursor.execute(named.macros({**registry().named, **(mechanisms or {})}, cursor).statements(name))
    if use:
        _put_on_search_path(own, name)
    lint.warn(own)
    return con


def _guard(ledger: Ledger | str | Path | None, key: Key | str | Path | None) -> Guard:
    """Return the guard of a ledger and a key, each passed as the path of its file or as the object read from it."""
    opened = Ledger.open(ledger) if isinstance(ledger, str | Path) else ledger
    read = Key.read(key) if isinstance(key, str | Path) else key
    if not isinstance(opened, Ledger | None) or not isinstance(read, Key | None):
        raise InvalidParameter("a ledger or a key must be a path or an opened object", "Ledger.open(path), Key.read(path)")
    return Guard(opened, read)


def _put_on_search_path(con: DuckDBPyConnection, catalog: str) -> None:
    """Put the catalog behind DuckDB's own functions: mean, quantile and variance stay DuckDB's, and ours are ldp.mean, ..."""
    setting = "SELECT coalesce(nullif(current_setting('search_path'), ''), concat_ws('.', current_catalog(), current_schema()))"
    ((path,),) = con.execute(setting).fetchall()  # no result stays open on the user's connection
    if not {catalog, f"{catalog}.main", quoted(catalog), f"{quoted(catalog)}.main"} & set(path.split(",")):
        con.execute("SET search_path = ?", [f"{path},system.main,{quoted(catalog)}"])


@dataclass(frozen=True)
class _Functions:
    """The functions that exist before a catalog is attached: the macros in it, and the scalar functions.

    The query takes DuckDB about 20 ms, so it runs once.
    """

    macros: frozenset[str]
    scalars: frozenset[str]

    @classmethod
    def of(cls, cursor: DuckDBPyConnection, catalog: str) -> _Functions:
        """Return what exists for a catalog of this name."""
        listed = """SELECT lower(database_name), function_type, function_name FROM duckdb_functions()
                    WHERE lower(database_name) = lower($1) OR (database_name = 'system' AND function_type = 'scalar')"""
        rows = cursor.execute(listed, [catalog]).fetchall()
        macros = frozenset(name for database, _, name in rows if database == catalog.lower())
        return cls(macros, frozenset(name for database, kind, name in rows if (database, kind) == ("system", "scalar")))


def _make_catalog(cursor: DuckDBPyConnection, name: str, existing: _Functions) -> None:
    """Attach the catalog unless it exists; a macro in it distinguishes it from a database of the user's."""
    if MARK in existing.macros:
        return
    taken = """SELECT lower(database_name) FROM duckdb_databases() UNION ALL
               SELECT lower(schema_name) FROM duckdb_schemas() WHERE database_name = current_catalog()"""
    if (name.lower(),) in cursor.execute(taken).fetchall():
        raise ConnectionRefused(
            f"a database or schema of yours has the name '{name}'",
            "rename it, or give the functions another name in Python: ldpsql.attach(con, name='dp')",
        )
    cursor.execute(f"ATTACH ':memory:' AS {quoted(name)} (READ_WRITE)")
    cursor.execute(f"CREATE MACRO {quoted(name)}.{MARK}() AS true")
    cursor.execute(f"CREATE MACRO {quoted(name)}.{CATALOG_NUMBER}() AS {new_catalog()}::BIGINT")


def _watch(cursor: DuckDBPyConnection, name: str, guard: Guard, existing: _Functions) -> None:
    """Create the macro that holds the number of the guard; a ledger or key of an earlier attach stays unless it is replaced."""
    written = guard_number(cursor, name) if GUARD_MACRO in existing.macros else None
    number = marks(existing.scalars).get(name.casefold(), written)
    if number != written:
        warnings.warn(
            "the guard of the ledger was removed from this connection, and is now restored", PrivacyLeakWarning, stacklevel=3
        )
    earlier = None if number is None else GUARDS.thing(number)
    if earlier is not None:
        guard = Guard(guard.ledger or earlier.ledger, guard.key or earlier.key)
    if earlier is None or (guard.ledger, guard.key) != (earlier.ledger, earlier.key):
        number = GUARDS.number(guard) if guard.ledger or guard.key else None
        if number is not None and guard.ledger:
            mark(cursor, name, number)
    value = "NULL" if number is None else number
    cursor.execute(f"CREATE OR REPLACE MACRO {quoted(name)}.{GUARD_MACRO}() AS {value}::BIGINT")


def _create_all(cursor: DuckDBPyConnection, catalog: str, existing: _Functions) -> None:
    """Create the functions of all plugins; a plugin of a third party whose SQL DuckDB refuses is marked broken."""
    functions = registry().functions()
    built_in_last = sorted(functions, key=lambda one: one[0].built_in)  # so that no macro of another plugin replaces ours
    for kind, ordered in ((Scalar, functions), (Macros, built_in_last)):  # macros of one plugin may call scalars of another
        for plugin, offered in ordered:
            try:
                _create(cursor, [f for f in offered if isinstance(f, kind)], existing.scalars, catalog)
            except duckdb.Error as error:
                if plugin.built_in:
                    raise
                registry().refuse(plugin, f"its SQL is refused by DuckDB: {error}")


def _create(cursor: DuckDBPyConnection, functions: Sequence[Scalar | Macros], existing: Set[str], catalog: str) -> None:
    for function in functions:
        if isinstance(function, Macros):
            cursor.execute(function.statements(catalog))
        elif function.name not in existing:
            _HELD.add(function.function)
            cursor.create_function(
                function.name,
                function.function,
                None,
                function.returns,
                type=PythonUDFType.ARROW,
                null_handling=FunctionNullHandling.SPECIAL,
                side_effects=function.volatile,
            )
