"""Tables that are written: their names, whether they are there, what they are read from."""

from __future__ import annotations

import re

import duckdb
from duckdb import DuckDBPyConnection

from ldpsql.interrupting import cursor_of
from ldpsql.sql import quoted, text_literal


def table_name(into: str) -> str:
    """Return a name such as ``schema.name`` as SQL writes it, whatever is in its parts."""
    return ".".join(quoted(part) for part in into.split("."))


def is_there(con: DuckDBPyConnection, name: str) -> bool:
    """Whether there is a table or a view of this name, as SQL writes it."""
    try:
        with cursor_of(con) as cursor:
            cursor.table(name)
    except duckdb.CatalogException:
        return False
    return True


def read_from(con: DuckDBPyConnection, name: str) -> set[str]:
    """Return the tables that a table or a view is read from, by the names in DuckDB's plan."""
    with cursor_of(con) as cursor:
        ((_, plan),) = cursor.execute(f"EXPLAIN (FORMAT json) FROM query_table({text_literal(name)})").fetchall()
    return set(re.findall(r'"Table": (".*")', plan))


def database_of(con: DuckDBPyConnection) -> str:
    """Return the file of the current database, nothing for one in memory."""
    with cursor_of(con) as cursor:
        rows = cursor.execute("SELECT path FROM duckdb_databases() WHERE database_name = current_database()").fetchall()
    return rows[0][0] or ""
