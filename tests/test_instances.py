"""Databases that tests lend to one another: what one test leaves behind, the next one does not see."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

import ldpsql
from tests.instances import Instance


@pytest.fixture(params=[True, False], ids=["a version of the catalog", "none"])
def instance(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Instance]:
    """Return an instance, with a DuckDB that has the version of its catalog or has none."""
    if not request.param:
        monkeypatch.setattr(Instance, "_catalog_version", lambda _: None)
    with closing(Instance()) as made:
        yield made


def test_tables_views_and_macros_are_dropped(instance: Instance) -> None:
    for statement in ("SELECT 1", "CREATE TABLE t AS SELECT 1", "CREATE VIEW v AS SELECT 1", "CREATE MACRO f() AS 1"):
        instance.connection().execute(statement)
        assert instance.tidied()
    with instance.connection() as con:
        assert con.execute("FROM duckdb_tables()").fetchall() == []
        assert con.execute("FROM duckdb_functions() WHERE function_name = 'f'").fetchall() == []


OTHERS = ("SET GLOBAL memory_limit = '1GB'", "CREATE SCHEMA s", "CREATE TYPE e AS ENUM ('a')", "ATTACH ':memory:' AS o")


@pytest.mark.parametrize("change", OTHERS)
def test_other_changes_are_noticed(instance: Instance, change: str) -> None:
    instance.connection().execute(change)
    assert not instance.tidied()


def test_attaching_again_is_noticed(instance: Instance) -> None:
    with instance.connection() as con:
        ldpsql.attach(con)
    assert not instance.tidied()


def test_changed_functions_and_settings_are_noticed(instance: Instance) -> None:
    assert instance.has_its_own()
    instance.connection().execute("CREATE OR REPLACE MACRO ldp.rate() AS 1")
    assert not instance.has_its_own()
    with closing(Instance()) as other:
        other.connection().create_function("one", lambda: 1, [], "BIGINT")
        assert not other.has_its_own()
    with closing(Instance()) as other:
        other.connection().execute("SET GLOBAL default_null_order = 'nulls_first'")
        assert not other.has_its_own()
