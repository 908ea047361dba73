"""DuckDB connections with the functions of ldpsql in an attached in-memory catalog; nothing is written into the user's file."""

from __future__ import annotations

from typing import Any

import duckdb
from duckdb import DuckDBPyConnection
from duckdb.func import FunctionNullHandling, PythonUDFType

from ldpsql.errors import ConnectionRefused
from ldpsql.registry import registry
from ldpsql.sql import Macros, Scalar


def connect(database: str = ":memory:", *, name: str = "ldp", use: bool = False, **options: Any) -> DuckDBPyConnection:
    """Open a DuckDB database with the functions attached; ``options`` go to `duckdb.connect`."""
    return attach(duckdb.connect(database, **options), name=name, use=use)


def attach(con: DuckDBPyConnection, *, name: str = "ldp", use: bool = False) -> DuckDBPyConnection:
    """Put the SQL functions into an in-memory catalog of this connection's instance; attaching again renews them.

    Args:
        con: an open connection; cursors of it and other connections to the same instance see the functions too.
        name: the catalog, by default ``ldp``.
        use: also put the catalog on this connection's search path, so that ``perturb(x, m)`` works unqualified.

    Raises:
        ConnectionRefused: where a catalog of that name belongs to somebody else.

    """
    functions = registry().functions()
    cursor = con.cursor()  # a result that is still open on `con` would block it
    try:
        _make_catalog(cursor, name)
        _create_scalars(cursor, [f for f in functions if isinstance(f, Scalar)])
        for macros in (f for f in functions if isinstance(f, Macros)):
            cursor.execute(macros.statements(name))
    finally:
        cursor.close()
    if use:
        row = con.execute("SELECT current_setting('search_path'), current_catalog(), current_schema()").fetchone()
        path = (row and row[0]) or (f'"{row[1]}"."{row[2]}"' if row else "")
        if f'"{name}"' not in path:
            con.execute("SET search_path = ?", [f'{path},"{name}"'])
    return con


def _make_catalog(cursor: DuckDBPyConnection, name: str) -> None:
    found = cursor.execute("SELECT path IS NULL FROM duckdb_databases() WHERE database_name = ?", [name]).fetchone()
    if found == (False,) or name in ("memory", "system", "temp"):
        raise ConnectionRefused(f"the catalog '{name}' is a database of yours", "choose another: attach(con, name=...)")
    quoted = '"' + name.replace('"', '""') + '"'
    cursor.execute(f"ATTACH IF NOT EXISTS ':memory:' AS {quoted} (READ_WRITE)")


def _create_scalars(cursor: DuckDBPyConnection, scalars: list[Scalar]) -> None:
    known = {row[0] for row in cursor.execute("SELECT function_name FROM duckdb_functions()").fetchall()}
    for scalar in scalars:
        if scalar.name in known:
            continue
        try:
            cursor.create_function(
                scalar.name,
                scalar.function,
                None,
                scalar.returns,
                type=PythonUDFType.ARROW,
                null_handling=FunctionNullHandling.SPECIAL,
                side_effects=scalar.volatile,
            )
        except duckdb.Error:  # another thread may have been faster; if it was anything else, the function is not there
            if not cursor.execute("FROM duckdb_functions() WHERE function_name = ?", [scalar.name]).fetchone():
                raise
