"""The lint for the database of a statement: what draws again, and what uses reports as if they were the values."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ldpsql.functions import (
    Finding,
    Macros,
    Object,
    Scalar,
    guarded,
    hookimpl,
    lint_objects,
    plain,
    recorded_tables,
    struct_type,
)


@guarded
def lint(objects: pa.ChunkedArray, tables: pa.ChunkedArray) -> pa.Array:
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
