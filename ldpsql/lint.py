"""What in a database would draw a person's report anew at every read: views and generated columns that perturb."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from ldpsql.errors import PrivacyLeakWarning
from ldpsql.registry import registry
from ldpsql.sql import Scalar

_NO_CODE = re.compile(r"'(?:[^']|'')*'|--[^\n]*|/\*.*?\*/", re.DOTALL)
_CALLED = re.compile(r'(?:"((?:[^"]|"")+)"|(\w+))\s*\(')
_DEFINED = """
    SELECT 'view', schema_name || '.' || view_name, sql FROM duckdb_views() WHERE NOT internal
    UNION ALL
    SELECT 'generated column of table', schema_name || '.' || table_name, sql FROM duckdb_tables()
    WHERE NOT internal AND sql LIKE '%GENERATED ALWAYS AS%'"""
_DRAWS_NOTHING_NEW = ("__ldp_once", "__ldp_budget")  # volatile for other reasons


@dataclass(frozen=True)
class Finding:
    """One thing to mend: what it is, its name, what is wrong with it, and what to do."""

    kind: str
    name: str
    problem: str
    remedy: str


def lint(con: DuckDBPyConnection) -> list[Finding]:
    """Return the views and generated columns of a connection that perturb; also through macros of the user's."""
    with con.cursor() as cursor:
        found = cursor.execute(_DEFINED).fetchall()
        drawing = _drawing_macros(cursor) if found else set()
    return [
        Finding(kind, name, "it perturbs, so every read draws new reports", "perturb once, INTO a table or a file")
        for kind, name, sql in found
        if drawing & _calls(sql)
    ]


def warn(con: DuckDBPyConnection) -> None:
    """Warn of what `lint` finds."""
    for finding in lint(con):
        text = f"the {finding.kind} {finding.name}: {finding.problem}; {finding.remedy}"
        warnings.warn(text, PrivacyLeakWarning, stacklevel=3)


def _drawing_macros(cursor: DuckDBPyConnection) -> set[str]:
    """Return the names of all functions that draw, by themselves or through others."""
    drawing = {
        function.name
        for _, offered in registry().functions()
        for function in offered
        if isinstance(function, Scalar) and function.volatile and not function.name.startswith(_DRAWS_NOTHING_NEW)
    }
    macros = cursor.execute(
        """SELECT lower(function_name), macro_definition FROM duckdb_functions()
           WHERE macro_definition IS NOT NULL AND NOT internal"""
    ).fetchall()
    called = [(name, _calls(definition)) for name, definition in macros]
    while True:
        more = {name for name, calls in called if calls & drawing} - drawing
        if not more:
            return drawing
        drawing |= more


def _calls(sql: str) -> set[str]:
    """Return the names of the functions that a statement calls."""
    return {(quoted or plain).lower() for quoted, plain in _CALLED.findall(_NO_CODE.sub(" ", sql))}
