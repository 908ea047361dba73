"""The columns of reports that a statement draws, with their mechanisms, so that they can be recorded next to the reports."""

from __future__ import annotations

from collections.abc import Mapping

from duckdb import DuckDBPyConnection
from sqlglot import exp

from ldpsql.mechanisms.base import Mechanism
from ldpsql.names import MECHANISM_HANDLE
from ldpsql.quoting import quoted
from ldpsql.registry.handles import MECHANISMS
from ldpsql.sql.calls import Calls
from ldpsql.sql.drawing import DrawingFunctions
from ldpsql.sql.lineage import Reader, Relation, Tables, path_of
from ldpsql.sql.structure import parsed


def drawn_columns(sql: str, drawing: DrawingFunctions) -> dict[str, str]:
    """Return the columns that a query draws, each with its mechanism as SQL; none for SQL that cannot be parsed."""
    tree = parsed(sql)
    return _columns(tree, drawing) if isinstance(tree, exp.Query) else {}


def stored_columns(sql: str, drawing: DrawingFunctions) -> tuple[str, dict[str, str]] | None:
    """Return the table that CREATE TABLE AS or INSERT fills, and the columns that it draws; None for other statements."""
    tree = parsed(sql)
    if not isinstance(tree, exp.Create | exp.Insert) or not isinstance(tree.expression, exp.Query):
        return None
    target = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    if not isinstance(target, exp.Table) or (isinstance(tree, exp.Create) and tree.kind != "TABLE"):
        return None
    names = [part.name for part in tree.this.expressions] if isinstance(tree.this, exp.Schema) else []
    if isinstance(tree, exp.Insert) and not names and not tree.args.get("by_name"):
        return None  # by position: the table has names of its own
    columns = _columns(tree.expression, drawing, names)
    return (".".join(map(quoted, path_of(target))), columns) if columns else None


def _columns(query: exp.Expr, drawing: DrawingFunctions, names: list[str] | None = None) -> dict[str, str]:
    relation: Relation = Reader(Tables(), Calls(drawing)).read(query).renamed(names or [])
    calls = {name: report.mechanism for name, report in relation.reports.items()}
    return {name: call for name, call in calls.items() if "(" in call}


def mechanisms_of(cursor: DuckDBPyConnection, columns: Mapping[str, str]) -> dict[str, Mechanism]:
    """Return the mechanisms that these calls stand for on a connection.

    Raises:
        duckdb.Error: if one of them is not a constant.

    """
    handles = {
        column: cursor.execute(f"SELECT system.main.{MECHANISM_HANDLE}({call})").fetchall()[0][0]
        for column, call in columns.items()
    }
    return {column: MECHANISMS.thing(handle) for column, handle in handles.items()}
