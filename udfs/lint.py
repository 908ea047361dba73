"""The lint for the database of a statement: what draws again, and what uses reports as if they were the values."""

from __future__ import annotations

from typing import Annotated, Any

import pyarrow as pa

from ldpsql.functions import (
    Column,
    Finding,
    Macros,
    Object,
    Scalar,
    Takes,
    guarded,
    hookimpl,
    lint_objects,
    lists_of,
    plain,
    recorded_tables,
    struct_type,
    structs_with,
)

_Objects = Annotated[Column, Takes("the objects of a database", lists_of(structs_with(*Object.__annotations__)))]
_Tables = Annotated[Column, Takes("the tables of a database", lists_of(structs_with("path", "columns")))]


@guarded
def lint(objects: _Objects, tables: _Tables) -> pa.Array:
    """Return the findings about the views and macros of a database."""
    rows = zip(plain(objects).to_pylist(), plain(tables).to_pylist(), strict=True)
    return pa.array([_findings(listed or [], recorded or []) for listed, recorded in rows])


def _findings(listed: list[dict[str, str]], recorded: list[dict[str, Any]]) -> list[dict[str, str]]:
    tables = recorded_tables((*table["path"], table["columns"]) for table in recorded)
    findings = lint_objects((Object(**one) for one in listed), tables)
    return [vars(finding) for finding in findings]


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer ``ldp.lint()``."""
    return [Scalar("__ldp_lint", lint, f"{struct_type(Finding)}[]"), Macros.beside(__file__)]
