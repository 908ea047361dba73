"""Databases that tests lend to one another: what one test leaves behind, the next one does not see."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.instances import Instance


@pytest.fixture(params=[True, False], ids=["a version of the catalog", "none"])
def instance(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Instance]:
    """Return an instance, with a DuckDB that has the version of its catalog or has none."""
    if not request.param:
        monkeypatch.setattr(Instance, "_catalog_version", lambda _: None)
    with closing(Instance()) as made:
        yield made


def test_tables_views_and_macros_are_dropped_and_other_changes_are_noticed(instance: Instance) -> None:
    for statement in ("SELECT 1", "CREATE TABLE t AS SELECT 1", "CREATE VIEW v AS SELECT 1", "CREATE MACRO f() AS 1"):
        instance.connection().execute(statement)
        assert instance.tidied()
    with instance.connection() as con:
        assert con.execute("FROM duckdb_tables()").fetchall() == []
        assert con.execute("FROM duckdb_functions() WHERE function_name = 'f'").fetchall() == []
    instance.connection().execute("SET GLOBAL memory_limit = '1GB'")
    assert not instance.tidied()
