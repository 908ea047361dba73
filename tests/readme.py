"""The tables of README.md, made from the registry: ``python -m tests.readme`` writes them anew."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

os.environ["LDPSQL_PLUGINS"] = "0"

import ldpsql
from ldpsql.registry import registry
from ldpsql.spec import Spec

README = Path(__file__).parents[1] / "README.md"


def rows_of(specs: Iterable[type[Spec]]) -> list[str]:
    return [f"| `{spec.signature()}` | {spec.summary()} |" for spec in sorted(specs, key=lambda spec: spec.name)]


def functions() -> list[str]:
    """List the public macros that are neither a mechanism nor an estimator, as DuckDB knows them."""
    generated = {*registry().mechanisms, *registry().estimators, *(f"{name}_counts" for name in registry().estimators)}
    with ldpsql.connect() as con:
        found = con.execute(
            """SELECT function_name, parameters, comment FROM duckdb_functions()
               WHERE database_name = 'ldp' AND NOT starts_with(function_name, '_') ORDER BY function_name"""
        ).fetchall()
    return [f"| `ldp.{name}({', '.join(given)})` | {comment} |" for name, given, comment in found if name not in generated]


def tables() -> dict[str, str]:
    known = registry()
    bodies = {
        "mechanisms": rows_of(known.mechanisms.values()),
        "estimators": rows_of(known.estimators.values()),
        "functions": functions(),
    }
    return {name: "\n".join([f"| {name[:-1]} | what it is |", "|---|---|", *body]) for name, body in bodies.items()}


def with_tables(text: str) -> str:
    for name, table in tables().items():
        marked = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        text = marked.sub(lambda match, table=table: f"{match[1]}{table}\n{match[2]}", text)  # type: ignore[misc]
    return text


if __name__ == "__main__":
    README.write_text(with_tables(README.read_text(encoding="utf-8")), encoding="utf-8")
