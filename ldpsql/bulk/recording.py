"""Record the mechanisms of reports that a statement of the user's draws into a table, if the statement names them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
from duckdb import DuckDBPyConnection

from ldpsql.bulk.fingerprints import Marking
from ldpsql.engine.interrupting import cursor_of
from ldpsql.errors import LdpError
from ldpsql.sql.drawing import DrawingFunctions
from ldpsql.sql.drawn import drawn_columns, mechanisms_of, stored_columns


@contextmanager
def recorded_by(con: DuckDBPyConnection, sql: str, drawing: DrawingFunctions) -> Iterator[None]:
    """Within a ``with`` block that runs a statement, record what CREATE TABLE AS or INSERT draws as comments of its columns."""
    marking = _marking_of_statement(con, sql, drawing)
    yield
    if marking is not None:
        marking.write_if_there(con, appended=sql.lstrip()[:6].lower() == "insert")


def marking_of_query(con: DuckDBPyConnection, table: str, sql: str, drawing: DrawingFunctions) -> Marking | None:
    """Return what will record the mechanisms of the columns that a query draws into a table; None if it draws none."""
    return _marking(con, table, drawn_columns(sql, drawing))


def _marking_of_statement(con: DuckDBPyConnection, sql: str, drawing: DrawingFunctions) -> Marking | None:
    stored = stored_columns(sql, drawing) if drawing.of(sql) else None
    return None if stored is None else _marking(con, *stored)


def _marking(con: DuckDBPyConnection, table: str, columns: dict[str, str]) -> Marking | None:
    if not columns:
        return None
    try:
        with cursor_of(con) as cursor:
            mechanisms = mechanisms_of(cursor, columns)
        return Marking(con, table, mechanisms)
    except (duckdb.Error, LdpError):  # the statement itself says what is wrong, or the call is not a constant
        return None
