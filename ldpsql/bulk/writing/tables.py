"""The tables that a run writes: their names, whether they exist, and whether they can be written."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

import duckdb
from duckdb import DuckDBPyConnection

from ldpsql.engine.identity import split, table_of
from ldpsql.engine.interrupting import cursor_of
from ldpsql.errors import DestinationRefused
from ldpsql.quoting import quoted, text_literal

_REMARK = "ldpsql release "


def table_name(into: str) -> str:
    """Return a name such as ``schema.name`` or ``schema."my name"`` as SQL writes it, with each part quoted."""
    return ".".join(quoted(part) for part in split(into))


def is_there(con: DuckDBPyConnection, name: str) -> bool:
    """Whether a table or a view of this name, as SQL writes it, exists."""
    try:
        with cursor_of(con) as cursor:
            cursor.table(name)
    except duckdb.CatalogException:
        return False
    return True


_NUMBER = """SELECT table_oid FROM duckdb_tables()
             WHERE (lower(database_name), lower(schema_name), lower(table_name)) = ($1, $2, $3)"""


def identity(con: DuckDBPyConnection, into: str) -> tuple[int, ...] | None:
    """Return the number of a table in its database and its number of rows, as last committed; None if it does not exist."""
    name = table_name(into)
    if not is_there(con, name):
        return None
    with cursor_of(con) as cursor:
        ((rows,),) = cursor.execute(f"SELECT count(*) FROM {name}").fetchall()  # noqa: S608  # quoted
        path = table_of(cursor, name) or ()
        number = cursor.execute(_NUMBER, path).fetchone() if path else None
        return (*(number or ()), rows)


def check_writable(con: DuckDBPyConnection, verb: str, columns: Iterable[str]) -> None:
    """Check that ``CREATE TABLE name AS`` or ``INSERT INTO name BY NAME`` can write these columns, by writing zero rows.

    Raises:
        DestinationRefused: if the database is read-only, or the schema or a column does not exist.

    """
    none = ", ".join(f"NULL AS {quoted(column)}" for column in columns)
    with cursor_of(con) as cursor:
        cursor.execute("BEGIN")
        try:
            cursor.execute(f"{verb} SELECT {none} WHERE false")
        except duckdb.Error:
            refused = True
        else:
            refused = False
        cursor.execute("ROLLBACK")
    if refused:
        raise DestinationRefused(
            "the reports cannot be written into this table",
            "is the database open for writing, does the schema exist, and does an existing table have these columns?",
        )


def write_token(cursor: DuckDBPyConnection, name: str, token: str) -> None:
    """Add the tokens of releases to the comment of a table, in the transaction that writes the table.

    The comment stays with a table that is renamed. Databases of other systems keep no comments and get none.
    """
    path = table_of(cursor, name) if token else None
    query = """
        SELECT t.comment FROM duckdb_tables() t JOIN duckdb_databases() d USING (database_name) WHERE d.type = 'duckdb'
        AND lower(t.database_name) = $1 AND lower(t.schema_name) = $2 AND lower(t.table_name) = $3"""
    for (comment,) in cursor.execute(query, path).fetchall() if path else ():
        lines = [*([comment] if comment else []), *(f"{_REMARK}{one}" for one in token.split())]
        text = "\n".join(lines)
        cursor.execute(f"COMMENT ON TABLE {name} IS {text_literal(text)}")


def written_tokens(con: DuckDBPyConnection, name: str | None = None) -> set[str]:
    """Return the tokens of the releases that are in the tables of the connection, or in one, even if a table was renamed."""
    query = "SELECT comment FROM duckdb_tables() WHERE contains(comment, $1)"
    with cursor_of(con) as cursor:
        path = () if name is None else table_of(cursor, name) or ("", "", "")
        of_one = " AND (lower(database_name), lower(schema_name), lower(table_name)) = ($2, $3, $4)" if path else ""
        rows = cursor.execute(query + of_one, [_REMARK, *path]).fetchall()
    return {token for (comment,) in rows for token in re.findall(f"{_REMARK}([0-9a-f]{{32}})", comment)}


def read_from(con: DuckDBPyConnection, name: str) -> set[str]:
    """Return the tables that a table or a view reads, by their names in DuckDB's plan."""
    with cursor_of(con) as cursor:
        ((_, plan),) = cursor.execute(f"EXPLAIN (FORMAT json) FROM query_table({text_literal(name)})").fetchall()
    return set(re.findall(r'"Table": (".*")', plan))


def database_of(con: DuckDBPyConnection) -> str:
    """Return the file of the current database, an empty string for one in memory."""
    with cursor_of(con) as cursor:
        rows = cursor.execute("SELECT path FROM duckdb_databases() WHERE database_name = current_database()").fetchall()
    return rows[0][0] or ""


def scratch_folder(con: DuckDBPyConnection) -> Path | None:
    """Return a folder for temporary files: DuckDB's own, or that of the database; None for the system's default."""
    with cursor_of(con) as cursor:
        ((temporary,),) = cursor.execute("SELECT current_setting('temp_directory')").fetchall()
    database = database_of(con)
    folders = [Path(temporary or ""), Path(database).parent] if database else [Path(temporary or "")]
    return next((folder for folder in folders if folder != Path() and folder.is_dir() and os.access(folder, os.W_OK)), None)
