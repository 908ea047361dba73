"""Finds what draws new reports whenever it is used: views, generated columns, checks, macros, prepared statements."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import duckdb
from duckdb import DuckDBPyConnection

from ldpsql.engine.connections import when_free
from ldpsql.errors import ConnectionRefused, PrivacyLeakWarning
from ldpsql.sql.drawing import UNKNOWN, DrawingFunctions, Draws

if TYPE_CHECKING:
    from ldpsql.sql.lineage import Relation

_DEFINED = """
    SELECT 'view', schema_name || '.' || view_name, sql FROM duckdb_views() WHERE NOT internal
    UNION ALL
    SELECT 'generated column of table', schema_name || '.' || table_name, generation_expression FROM duckdb_columns()
    WHERE database_name <> 'system' AND is_generated
    UNION ALL
    SELECT 'check constraint of table', schema_name || '.' || table_name, expression FROM duckdb_constraints()
    WHERE constraint_type = 'CHECK'"""
_PREPARED = "SELECT 'prepared statement', name, statement FROM duckdb_prepared_statements()"
_DRAWN_AT = {"check constraint of table": "insert", "macro": "call", "prepared statement": "execution"}
# DuckDB writes lists, structs, subscripts and comprehensions as calls of these, operators as calls of names without letters.
_WRITTEN_AS_CALLS = re.compile(
    r"(array_extract|array_slice|contains|if|len|list_apply|list_filter|list_transform|list_value|string_split|struct_extract|struct_pack|\W+)",
    re.IGNORECASE,
)
_PERTURB_ONCE = "perturb once, INTO a table or a file"


@dataclass(frozen=True)
class Finding:
    """One object to mend: its kind, its name, what is wrong with it, and what to do."""

    kind: str
    name: str
    problem: str
    remedy: str


class Object(NamedTuple):
    """A view, a macro, a generated column or a check: its kind, its name, and the SQL that creates or computes it."""

    kind: str
    name: str
    sql: str


def lint(con: DuckDBPyConnection, known: DrawingFunctions | None = None) -> list[Finding]:
    """Return what perturbs stored rows whenever it is used: views, generated columns, checks, macros, prepared statements.

    Temporary objects belong to this connection. If a result of it is still open, or its transaction has failed, they cannot be
    read, which is then a finding of its own.

    Args:
        con: the connection.
        known: the functions of ldpsql that draw, if they are known; else its macros are read from the connection.

    """
    try:
        return when_free(lambda: _lint(con, known))
    except (duckdb.ResourceInUseException, duckdb.TransactionException, ConnectionRefused):
        with con.cursor() as cursor:
            return [*_lint(cursor, known), _UNREAD]


_UNREAD = Finding(
    "connection",
    "itself",
    "it has an open result or a failed transaction, or another thread uses it: its temporary objects were not read",
    "fetch the result or roll back, and attach again when nobody uses it",
)


def warn(con: DuckDBPyConnection, known: DrawingFunctions) -> None:
    """Warn of each finding of `lint`."""
    for finding in lint(con, known):
        text = f"the {finding.kind} {finding.name}: {finding.problem}; {finding.remedy}"
        warnings.warn(text, PrivacyLeakWarning, stacklevel=4)


def _lint(con: DuckDBPyConnection, known: DrawingFunctions | None) -> list[Finding]:
    """Return the findings about everything that this connection sees."""
    drawing = DrawingFunctions() if known is None else DrawingFunctions(known.drawing, known.running)
    macros = [("macro", name, definition) for name, definition in drawing.read(con, ours_known=known is not None)]
    hiding = [finding for kind, name, _ in macros if (finding := hidden(kind, name))]
    defined = _reported(con.sql(_DEFINED).fetchall(), drawing, (Draws.REPORTS, Draws.UNKNOWN))
    called = _reported([*macros, *con.sql(_PREPARED).fetchall()], drawing, (Draws.REPORTS,))
    return [*hiding, *defined, *(finding for finding, sql in called.items() if _reads_stored(sql))]


def hidden(kind: str, name: str) -> Finding | None:
    """Return the finding for a macro that DuckDB calls in the place of its own function for a list, a struct or an operator.

    Args:
        kind: what the object is.
        name: its name after its schema.

    """
    if kind != "macro" or not _WRITTEN_AS_CALLS.fullmatch(name.partition(".")[2]):
        return None
    return Finding(kind, name, "DuckDB calls it instead of its own function, also in what ldp does", "give it another name")


def _reads_stored(sql: str) -> bool:
    """Return whether a query reads tables, views or files."""
    from ldpsql.sql.structure import reads_stored  # noqa: PLC0415  # loads the parser

    return reads_stored(sql)


def _reported(
    rows: Iterable[tuple[str, str, str]], drawing: DrawingFunctions, reported: tuple[Draws, ...]
) -> dict[Finding, str]:
    """Return a finding for each of these objects that draws, with its SQL."""
    drawn = ((kind, name, sql, drawing.of(sql)) for kind, name, sql in rows)
    return {redrawn(kind, name, draws): sql for kind, name, sql, draws in drawn if draws in reported}


def redrawn(kind: str, name: str, draws: Draws) -> Finding:
    """Return the finding for something that draws whenever it is used."""
    if draws is Draws.UNKNOWN:
        return Finding(kind, name, UNKNOWN, "write the SQL itself")
    what = "it perturbs stored rows" if kind in ("macro", "prepared statement") else "it perturbs"
    return Finding(kind, name, f"{what}, so every {_DRAWN_AT.get(kind, 'read')} draws new reports", _PERTURB_ONCE)


def lint_objects(objects: Iterable[Object], tables: Iterable[tuple[tuple[str, ...], Relation]]) -> list[Finding]:
    """Return the findings about objects of a database: those that draw again, and those that use reports as values.

    Args:
        objects: the views, macros, generated columns and checks that the user made.
        tables: the tables that record the mechanisms of their columns.

    """
    from ldpsql.sql.recorded import of_file  # noqa: PLC0415
    from ldpsql.sql.scripts import Project  # noqa: PLC0415  # loads the parser
    from ldpsql.sql.uses import misused  # noqa: PLC0415

    listed, drawing = list(objects), DrawingFunctions.of_registry()
    drawing.define_all(";\n".join(one.sql for one in listed))
    texts = {Path(str(place)): one.sql for place, one in enumerate(listed)}
    project = Project(texts, drawing, of_file)
    for path, relation in tables:
        project.tables.define(path, relation)
    redraws = [finding for one in listed if (finding := _redrawn(one, drawing)) is not None]
    used = ((listed[int(path.name)], misused(use)) for path, _, use in project.uses())
    hiding = [finding for one in listed if (finding := hidden(one.kind, one.name)) is not None]
    return [*hiding, *redraws, *(Finding(one.kind, one.name, finding.problem, finding.remedy) for one, finding in used)]


def _redrawn(one: Object, drawing: DrawingFunctions) -> Finding | None:
    """Return the finding for an object that draws whenever it is used, or None."""
    body = one.sql.partition(" AS ")[2] if one.kind in ("macro", "view") else one.sql
    draws = drawing.of(body)
    if draws is Draws.NOTHING or (one.kind == "macro" and (draws is Draws.UNKNOWN or not _reads_stored(body))):
        return None
    return redrawn(one.kind, one.name, draws)
