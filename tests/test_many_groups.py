"""Very many groups, some at a time."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest
from duckdb import DuckDBPyConnection

import ldpsql
from ldpsql.errors import DestinationExists, InvalidParameter, UnknownName

CITY = "krr(epsilon=1, domain=['Lima', 'Oslo', 'Rome', 'Kyiv'])"


@pytest.fixture
def reports(con: DuckDBPyConnection) -> DuckDBPyConnection:
    con.execute(
        """CREATE TABLE reports AS SELECT i % 500 AS "the day", CASE WHEN i % 3 > 0 THEN i % 3 END AS kind,
                  CASE WHEN i % 500 > 0 THEN ldp.perturb('Lima', city()) END AS city FROM range(150_000) t(i)"""
    )
    return con


def rows(con: DuckDBPyConnection, sql: str) -> list[tuple[Any, ...]]:
    return con.execute(sql).fetchall()


@pytest.mark.parametrize("at_once", [10**6, 1000, 50])
@pytest.mark.parametrize("estimator", ["ibu", "inv(confidence=0.9)"])
def test_groups_in_steps_are_the_groups_of_one_statement(
    reports: DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch, at_once: int, estimator: str
) -> None:
    monkeypatch.setattr("ldpsql.bulk.many_groups.CELLS_AT_ONCE", at_once)
    options: dict[str, Any] = {"report": "city", "keys": ["the day", "kind"], "mechanism": CITY, "estimator": estimator}
    assert ldpsql.estimate_groups(reports, "reports", "found", **options) == 499 * 3  # NULL is a kind; day 0 has no report
    name, _, arguments = estimator.rstrip(")").partition("(")
    call = f"ldp.{name}(city, city(){', ' + arguments.replace('=', ' := ') if arguments else ''})"
    expected = f"""SELECT "the day", kind, unnest({call}, recursive := true), count(city) AS n
                   FROM reports GROUP BY "the day", kind HAVING count(city) > 0 ORDER BY ALL"""
    assert rows(reports, "FROM found ORDER BY ALL") == rows(reports, expected)


@pytest.mark.parametrize("key", ["step", "n", "N", "report", "counts", "domain"])
def test_a_key_may_have_any_name(reports: DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setattr("ldpsql.bulk.many_groups.CELLS_AT_ONCE", 5)
    reports.execute(f'CREATE TABLE named AS SELECT "the day" % 5 AS "{key}", city FROM reports')
    expected = rows(reports, 'SELECT "the day" % 5, count(city) FROM reports GROUP BY ALL')
    assert ldpsql.estimate_groups(reports, "named", "found", report="city", keys=[key], mechanism=CITY) == 5
    assert {(row[0], row[-1]) for row in rows(reports, "FROM found")} == set(expected)
    by = rows(reports, f'FROM ldp.estimate_by(named, city, "{key}", city())')
    assert {(row[0], row[-1]) for row in by} == set(expected)


@pytest.mark.parametrize("into", ["Found", "main.found", "a view"])
def test_whatever_has_the_name_stays(reports: DuckDBPyConnection, into: str) -> None:
    reports.execute('CREATE TABLE found AS SELECT 1 AS mine; CREATE VIEW "a view" AS SELECT 1')
    with pytest.raises(DestinationExists):
        ldpsql.estimate_groups(reports, "reports", into, report="city", keys=["kind"], mechanism=CITY)
    assert rows(reports, "FROM found") == [(1,)]


def test_a_table_of_that_name_in_another_schema_does_not_matter(reports: DuckDBPyConnection) -> None:
    reports.execute("CREATE SCHEMA other; CREATE TABLE found AS SELECT 1")
    assert ldpsql.estimate_groups(reports, "reports", "other.found", report="city", keys=["kind"], mechanism=CITY) == 3
    assert rows(reports, "SELECT count(*) FROM other.found") == [(12,)]


def test_a_table_that_is_there_stays_unless_it_is_to_be_replaced(reports: DuckDBPyConnection) -> None:
    reports.execute("CREATE TABLE found AS SELECT 1 AS mine")
    with pytest.raises(DestinationExists):
        ldpsql.estimate_groups(reports, "reports", "found", report="city", keys=["kind"], mechanism=CITY)
    with pytest.raises(duckdb.Error, match="LDP401"):  # the kind is no city
        ldpsql.estimate_groups(
            reports, "reports", "found", report="the day", keys=["kind"], mechanism="krr(1, [1, 2])", replace=True
        )
    assert rows(reports, "FROM found") == [(1,)]
    assert ldpsql.estimate_groups(reports, "reports", "found", report="city", keys=["kind"], mechanism=CITY, replace=True) == 3
    assert rows(reports, "SELECT sum(n) // 4 FROM found") == [(150_000 - 300,)]


def test_what_makes_no_sense_is_refused(reports: DuckDBPyConnection) -> None:
    with pytest.raises(InvalidParameter):
        ldpsql.estimate_groups(reports, "reports", "found", report="city", keys=[], mechanism=CITY)
    with pytest.raises(UnknownName):
        ldpsql.estimate_groups(reports, "reports", "found", report="city", keys=["kind"], mechanism=CITY, estimator="ibo")
    with pytest.raises(duckdb.CatalogException):
        ldpsql.estimate_groups(reports, "nothing", "found", report="city", keys=["kind"], mechanism=CITY)


def test_arguments_in_another_order_are_explained(reports: DuckDBPyConnection) -> None:
    with pytest.raises(TypeError, match=r"estimate_groups\(\): missing a required argument: 'report'"):
        ldpsql.estimate_groups(reports, "reports", "krr(1, ['a', 'b'])")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"perturb_table\(\): missing a required argument: 'into'"):
        ldpsql.perturb_table(reports, "reports")  # type: ignore[call-arg]
    for report, keys in ((5, ["kind"]), ("city", "kind"), ("city", 5), ("city", [5])):
        with pytest.raises(InvalidParameter, match="names of columns"):
            ldpsql.estimate_groups(reports, "reports", "estimates", report=report, keys=keys)  # type: ignore[arg-type]
