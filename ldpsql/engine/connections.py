"""DuckDB's own connection behind the wrappers of other libraries, such as SQLAlchemy with duckdb-engine."""

from __future__ import annotations

from typing import Any

from duckdb import DuckDBPyConnection

from ldpsql.domains.arrays import shown_class
from ldpsql.errors import ConnectionRefused


def duckdb_of(con: Any) -> DuckDBPyConnection:
    """Return the DuckDB connection that a connection of another library wraps, or the connection itself if it is DuckDB's.

    SQLAlchemy's connection holds one of the driver, whose cursors pass attributes that they do not have to DuckDB's connection.

    Raises:
        ConnectionRefused: if there is no DuckDB connection behind it, or it is closed.

    """
    if isinstance(con, DuckDBPyConnection):
        return con
    try:
        pooled = con if hasattr(con, "driver_connection") else getattr(con, "connection", con)
        inner = getattr(pooled, "driver_connection", pooled).cursor().sql.__self__
    except Exception:  # noqa: BLE001  # another library may raise anything
        inner = None
    if not isinstance(inner, DuckDBPyConnection):
        raise ConnectionRefused(
            f"a {shown_class(con)} is not an open connection of DuckDB",
            "pass duckdb.connect(...), or engine.connect() of SQLAlchemy with duckdb-engine",
        )
    return inner
