"""Puts the functions of ldpsql into an in-memory catalog of a DuckDB connection; nothing is written into the user's file."""

from __future__ import annotations

import atexit
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

import duckdb
from duckdb import DuckDBPyConnection

from ldpsql import settings
from ldpsql.engine.connections import CONNECTIONS, duckdb_of, guard_number, new_catalog
from ldpsql.engine.door import open_door
from ldpsql.engine.functions import ALLOWED_MACRO, CATALOG_NUMBER, GUARD_MACRO, GUARD_MARK, HISTOGRAM_MACRO, MARK
from ldpsql.errors import ConnectionRefused, InvalidParameter, PrivacyLeakWarning
from ldpsql.names import ALLOWED
from ldpsql.quoting import quoted
from ldpsql.sql import lint, surface

if TYPE_CHECKING:
    from ldpsql.ledger import Ledger
    from ldpsql.ledger.guard import Guard
    from ldpsql.ledger.permanent import Key

_CATALOG = "ldp"
_IN_MEMORY = ":memory:"  # each such connection has an instance of its own
_ATTACHING = Lock()  # DuckDB refuses two writers of one catalog
_KEEPING = Lock()
_KEPT: dict[str, DuckDBPyConnection] = {}  # at most one, by the functions that it has
C = TypeVar("C")
open_door()


def connect(
    database: str = _IN_MEMORY,
    *,
    name: str = _CATALOG,
    use: bool = False,
    mechanisms: Mapping[str, Any] | None = None,
    ledger: Ledger | str | Path | None = None,
    key: Key | str | Path | None = None,
    **options: Any,
) -> DuckDBPyConnection:
    """Open a DuckDB database and attach the functions; ``options`` are passed to `duckdb.connect`."""
    scalars = surface.offer(name)
    con = duckdb.connect(database, **options)
    existing = _Functions(frozenset(), scalars) if database == _IN_MEMORY else None
    return _attached(con, con, name, mechanisms or {}, _guard(ledger, key), use=use, existing=existing)


def attach(
    con: C,
    *,
    name: str = _CATALOG,
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
    return _attached(con, duckdb_of(con), name, mechanisms or {}, _guard(ledger, key), use=use)


def kept() -> DuckDBPyConnection:
    """Return a connection to a database in memory that has the functions, and that this process keeps: to attach takes 65 ms.

    It has temporary tables and registered frames of its own, and whoever asks for it closes it; nothing else is made there.
    """
    with _KEEPING:
        state = surface.state(_CATALOG)
        if state not in _KEPT:
            _close_kept()
            _KEPT[state] = connect()
        return _KEPT[state].cursor()


@atexit.register
def _close_kept() -> None:
    while _KEPT:
        _KEPT.popitem()[1].close()


def _before_fork() -> None:
    """Close the kept database: a forked process that ends would wait for threads of DuckDB that it does not have."""
    _KEEPING.acquire()
    _close_kept()


os.register_at_fork(before=_before_fork, after_in_parent=_KEEPING.release, after_in_child=_KEEPING.release)


def _attached(
    con: C,
    own: DuckDBPyConnection,
    name: str,
    mechanisms: Mapping[str, Any],
    guard: Guard | None,
    *,
    use: bool,
    existing: _Functions | None = None,
) -> C:
    """Return a connection after attaching the functions to its instance; what exists is known if nobody has used that yet."""
    empty = existing is not None
    with _ATTACHING, own.cursor() as cursor:  # an open result would block the connection itself
        existing = existing or _Functions.of(cursor, name)
        _make_catalog(cursor, name, existing)
        ((number,),) = cursor.execute(f"SELECT {quoted(name)}.{CATALOG_NUMBER}()").fetchall()
        CONNECTIONS.remember(number, own)
        bound = _watch(cursor, name, number, guard, existing)
        cursor.execute(f"USE {quoted(name)}")  # elsewhere a macro of the user's could hide a scalar function
        known = surface.put(cursor, name, existing.macros, existing.scalars)
        if bound:
            cursor.execute(_ALLOWED.format(catalog=quoted(name)))
        _name(cursor, name, mechanisms)
    if use:
        _put_on_search_path(own, name)
    if not empty:
        lint.warn(own, known)
    return con


def _name(cursor: DuckDBPyConnection, catalog: str, mechanisms: Mapping[str, Any]) -> None:
    """Create the macros of mechanisms that the settings or these arguments name."""
    cursor.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(catalog)}.m")
    registry = surface.registered()
    if names := {**(registry.named if registry else {}), **mechanisms}:
        from ldpsql.sql import named  # noqa: PLC0415  # most connections name no mechanism

        cursor.execute(named.macros(names, cursor).statements(catalog))


def _guard(ledger: Ledger | str | Path | None, key: Key | str | Path | None) -> Guard | None:
    """Return the guard of a ledger and a key, each passed as the path of its file or as the object read from it."""
    if ledger is None and key is None:
        return None
    from ldpsql.ledger import Ledger  # noqa: PLC0415  # most connections have none
    from ldpsql.ledger.guard import Guard  # noqa: PLC0415
    from ldpsql.ledger.permanent import Key  # noqa: PLC0415

    opened = Ledger.open(ledger) if isinstance(ledger, str | Path) else ledger
    read = Key.read(key) if isinstance(key, str | Path) else key
    if not isinstance(opened, Ledger | None) or not isinstance(read, Key | None):
        raise InvalidParameter("a ledger or a key must be a path or an opened object", "Ledger.open(path), Key.read(path)")
    return Guard(opened, read)


def _put_on_search_path(con: DuckDBPyConnection, catalog: str) -> None:
    """Put the catalog behind DuckDB's own functions: mean, quantile and variance stay DuckDB's, and ours are ldp.mean, ..."""
    setting = "SELECT coalesce(nullif(current_setting('search_path'), ''), concat_ws('.', current_catalog(), current_schema()))"
    ((path,),) = con.sql(setting).fetchall()  # no result stays open on the user's connection
    if not {catalog, f"{catalog}.main", quoted(catalog), f"{quoted(catalog)}.main"} & set(path.split(",")):
        con.execute("SET search_path = ?", [f"{path},system.main,{quoted(catalog)}"])


@dataclass(frozen=True)
class _Functions:
    """The functions that exist before a catalog is attached: the macros in it, and the scalar functions.

    The query takes DuckDB about 20 ms, so it runs once.
    """

    macros: frozenset[tuple[str, str]]  # each with its kind: '', or 'TABLE'
    scalars: frozenset[str]

    def has(self, macro: str) -> bool:
        """Return whether the catalog has a macro of this name."""
        return ("", macro) in self.macros

    @classmethod
    def of(cls, cursor: DuckDBPyConnection, catalog: str) -> _Functions:
        """Return what exists for a catalog of this name."""
        listed = """SELECT lower(database_name), function_type, function_name FROM duckdb_functions()
                    WHERE (lower(database_name) = lower($1) AND schema_name = 'main')
                       OR (database_name = 'system' AND function_type = 'scalar' AND (varargs = 'ANY' OR function_name = $2))"""
        rows = cursor.execute(listed, [catalog, GUARD_MARK]).fetchall()
        kinds = {"macro": "", "table_macro": "TABLE"}
        macros = frozenset((kinds.get(kind, ""), name) for database, kind, name in rows if database == catalog.lower())
        return cls(macros, frozenset(name for database, kind, name in rows if (database, kind) == ("system", "scalar")))


_TEMPORARY = """(SELECT system.main.list(name) FROM (SELECT table_name AS name FROM system.main.duckdb_tables() WHERE temporary
    UNION ALL SELECT view_name FROM system.main.duckdb_views() WHERE temporary))"""
# Whether a statement may draw is decided by planning it again, to see what it reads. A subquery is run once, not for each row.
_ALLOWED = f"""CREATE OR REPLACE MACRO {{catalog}}.{ALLOWED_MACRO}(handle, drawn) AS (SELECT {ALLOWED}(handle, drawn, {{{{
    'sql': system.main.current_query(), 'search_path': system.main.current_setting('search_path'),
    'catalog': {{catalog}}.{CATALOG_NUMBER}(), 'guard': {{catalog}}.{GUARD_MACRO}(), 'temporary': {_TEMPORARY}}}}}))"""

_COUNTED = f"""CREATE MACRO {{catalog}}.{HISTOGRAM_MACRO}
    (report, keep) AS system.main.histogram(report) FILTER (WHERE keep)"""
# A MAP of many seeds and symbols takes DuckDB nearly all of the time of an estimate.
_COUNTED_IN_C = f"""CREATE MACRO {{catalog}}.{HISTOGRAM_MACRO}
    (report STRUCT(seed UBIGINT, y UINTEGER), keep) AS system.main.__ldp_count_hashed(report) FILTER (WHERE keep),
    (report, keep) AS system.main.histogram(report) FILTER (WHERE keep)"""


def _make_catalog(cursor: DuckDBPyConnection, name: str, existing: _Functions) -> None:
    """Attach the catalog unless it exists; a macro in it distinguishes it from a database of the user's."""
    if existing.has(MARK):
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
    try:
        cursor.execute(_COUNTED_IN_C.format(catalog=quoted(name)))
    except duckdb.CatalogException:  # the instance does not have that function: see `ldpsql.engine.door`
        cursor.execute(_COUNTED.format(catalog=quoted(name)))


def _watch(cursor: DuckDBPyConnection, name: str, catalog: int, guard: Guard | None, existing: _Functions) -> bool:
    """Create the macro that holds the number of the guard; a ledger or key of an earlier attach stays unless it is replaced.

    Returns whether anything, a guard or a policy, binds what the connection draws.
    """
    number = guard_number(cursor, name) if existing.has(GUARD_MACRO) else None
    if GUARD_MARK in existing.scalars or guard is not None or number is not None:
        number = _renewed(cursor, name, catalog, guard, number)
    value = -catalog if number is None else number
    cursor.execute(f"CREATE OR REPLACE MACRO {quoted(name)}.{GUARD_MACRO}() AS {value}::BIGINT")
    if not existing.has(ALLOWED_MACRO):  # what an earlier attach bound stays bound
        cursor.execute(f"CREATE MACRO {quoted(name)}.{ALLOWED_MACRO}(handle, drawn) AS handle")
    return number is not None or bool(settings.load().tables)


def _renewed(cursor: DuckDBPyConnection, name: str, catalog: int, guard: Guard | None, written: int | None) -> int | None:
    """Return the number of the guard: that of an earlier attach, or a new one if it adds a ledger or a key."""
    from ldpsql.ledger.guard import GUARDS, LEDGERED, Guard, mark, marked  # noqa: PLC0415  # most connections have none

    guard = guard or Guard(None, None)
    number = marked(cursor).get(name.casefold(), written)
    if number != written:
        warnings.warn(
            "the guard of the ledger was removed from this connection, and is now restored", PrivacyLeakWarning, stacklevel=5
        )
    earlier = None if number is None else GUARDS.thing(number)
    if earlier is not None:
        guard = Guard(guard.ledger or earlier.ledger, guard.key or earlier.key)
    if earlier is None or (guard.ledger, guard.key) != (earlier.ledger, earlier.key):
        number = GUARDS.number(guard) if guard.ledger or guard.key else None
        if number is not None and guard.ledger:
            mark(cursor, name, number)
    if guard.ledger:
        LEDGERED.add(catalog)
        if earlier is not None and earlier.ledger is None:  # transactions that are open go on with it
            earlier.ledger = guard.ledger
    return number
