"""DuckDB's own connection behind the wrappers of other libraries, such as SQLAlchemy with duckdb-engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from threading import Lock
from typing import Any
from weakref import ref

import duckdb
from duckdb import DuckDBPyConnection

from ldpsql.engine.functions import GUARD_MACRO
from ldpsql.errors import ConnectionRefused
from ldpsql.quoting import quoted


def duckdb_of(con: Any) -> DuckDBPyConnection:
    """Return the DuckDB connection that a connection of another library wraps, or the connection itself if it is DuckDB's.

    SQLAlchemy's connection holds one of the driver, whose cursors pass attributes that they do not have to DuckDB's connection.
    """
    if isinstance(con, DuckDBPyConnection):
        return con
    try:
        pooled = con if hasattr(con, "driver_connection") else getattr(con, "connection", con)
        inner = getattr(pooled, "driver_connection", pooled).cursor().sql.__self__
    except Exception:  # noqa: BLE001  # another library may raise anything
        inner = None
    if not isinstance(inner, DuckDBPyConnection):
        from ldpsql.domains.columns import shown_class  # noqa: PLC0415  # no DuckDB connection needs it

        raise ConnectionRefused(
            f"a {shown_class(con)} is not an open connection of DuckDB",
            "pass duckdb.connect(...), or engine.connect() of SQLAlchemy with duckdb-engine",
        )
    return inner


@contextmanager
def transaction(cursor: DuckDBPyConnection) -> Iterator[None]:
    """Run a ``with`` block in a transaction, which an exception rolls back."""
    cursor.execute("BEGIN")
    try:
        yield
        cursor.execute("COMMIT")
    except BaseException:
        with suppress(duckdb.Error):  # a failed statement may have ended it
            cursor.execute("ROLLBACK")
        raise


_numbers = count(1)


def new_catalog() -> int:
    """Return a number for a catalog."""
    return next(_numbers)


def guard_number(cursor: DuckDBPyConnection, catalog: str) -> int | None:
    """Return the number of the guard that the macro of a catalog holds; None if it holds none."""
    ((number,),) = cursor.execute(f"SELECT {quoted(catalog)}.{GUARD_MACRO}()").fetchall()
    return number if isinstance(number, int) and number >= 0 else None


class Connections:
    """The connections that a catalog of ldpsql was attached to; they may be closed and forgotten at any time."""

    def __init__(self) -> None:
        self._connections: dict[int, list[ref[DuckDBPyConnection]]] = {}
        self._lock = Lock()

    def remember(self, catalog: int, con: DuckDBPyConnection) -> None:
        """Remember a connection of a catalog, without keeping it or its database open."""
        with self._lock:
            alive = [one for one in self._connections.get(catalog, []) if one() not in (None, con)]
            self._connections[catalog] = [*alive, ref(con)]

    def cursor(self, catalog: int) -> DuckDBPyConnection:
        """Return a cursor of one of the connections of a catalog."""
        with self._lock:
            connections = [con for one in self._connections.get(catalog, []) if (con := one()) is not None]
        for con in reversed(connections):
            with suppress(duckdb.Error):
                return con.cursor()
        raise ConnectionRefused("the connection that ldpsql was attached to is closed", "attach ldpsql to this one")

    @contextmanager
    def cursor_at(self, catalog: int, search_path: str) -> Iterator[DuckDBPyConnection]:
        """Open a cursor of the database of a catalog, with the search path of a statement.

        It sees neither temporary tables nor what the statement's own transaction has not committed.
        """
        with self.cursor(catalog) as cursor:
            if search_path:
                cursor.execute("SET search_path = ?", [search_path])
            yield cursor


CONNECTIONS = Connections()
