"""The macros that tests copy are those that an attach creates."""

from __future__ import annotations

import re
from typing import Any

import duckdb
import pytest

import ldpsql
from ldpsql.sql import attach
from tests import attaching

LISTED = """SELECT * EXCLUDE (database_name, database_oid, function_oid) FROM duckdb_functions()
            WHERE database_name = 'ldp' AND function_name NOT IN ('_catalog', '_guard') ORDER BY ALL"""


def functions(**options: Any) -> list[tuple[Any, ...]]:
    with ldpsql.connect(**options) as con:
        return [tuple(map(in_order, row)) for row in con.execute(LISTED).fetchall()]


def in_order(field: Any) -> Any:
    """Sort the columns of EXCLUDE, which DuckDB prints in any order."""
    if not isinstance(field, str):
        return field
    return re.sub(r"EXCLUDE \(([^)]*)\)", lambda match: str(sorted(match[1].split(", "))), field)


def test_copied_macros_are_those_that_the_statements_create(monkeypatch: pytest.MonkeyPatch) -> None:
    copied = functions()
    monkeypatch.setattr(attach, "_create_all", attaching._OWN)
    monkeypatch.setattr(attaching, "_copied", None)
    assert copied == functions()
    assert len(copied) > 300


def test_where_no_file_may_be_read_the_statements_run() -> None:
    assert functions(config={"enable_external_access": False}) == functions()


def test_macros_of_other_plugins_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(attaching.VARIABLE, "/nowhere")
    with duckdb.connect() as con:
        assert not attaching._copied(con)
