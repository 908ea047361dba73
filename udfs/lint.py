"""The lint for the database of a statement: what draws again, and what uses reports as if they were the values."""

from __future__ import annotations

from typing import Annotated, Any

from ldpsql.functions import (
    Column,
    Finding,
    Macros,
    Object,
    Scalar,
    Takes,
    by_row,
    hookimpl,
    lint_objects,
    lists_of,
    recorded_tables,
    struct_type,
    structs_with,
)

_Objects = Annotated[Column, Takes("the objects of a database", lists_of(structs_with(*Object.__annotations__)))]
_Tables = Annotated[Column, Takes("the tables of a database", lists_of(structs_with("path", "columns")))]


@by_row(_Objects, _Tables)
def lint(listed: list[dict[str, str]] | None, recorded: list[dict[str, Any]] | None) -> list[dict[str, str]]:
    """Return the findings about the views and macros of a database."""
    tables = recorded_tables((*table["path"], table["columns"]) for table in recorded or [])
    return [vars(finding) for finding in lint_objects((Object(**one) for one in listed or []), tables)]


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer ``ldp.lint()``."""
    return [Scalar("__ldp_lint", lint, f"{struct_type(Finding)}[]"), Macros.beside(__file__)]
