"""Threads: the service of the documentation under load, and functions that several threads call on one connection."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pytest

import ldpsql
from ldpsql.errors import ConnectionRefused
from tests.stress.service import load

KRR = "krr(2, ['Lima', 'Oslo'])"


@pytest.fixture(scope="module")
def lakes() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection that uses the schema `lake`, in which a table has two rows; in `main` it has one."""
    with ldpsql.connect() as con:
        con.execute("CREATE TABLE people AS SELECT 'Lima' AS city; CREATE SCHEMA lake; USE lake")
        con.execute("CREATE TABLE people AS SELECT 'Oslo' AS city FROM range(2)")
        yield con


@pytest.mark.slow
def test_the_service_of_the_page_answers_eight_clients_rightly_and_loses_nothing(tmp_path: Path) -> None:
    assert load(tmp_path, workers=8, rounds=25).keys() == {"perturb", "insert", "estimate"}


def test_functions_on_a_shared_connection_find_the_tables_of_its_search_path(lakes: duckdb.DuckDBPyConnection) -> None:
    def perturb(number: int) -> None:
        ldpsql.perturb_table(lakes, "people", f"reports_{number}", {"city": KRR})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(perturb, range(16)))
    for number in range(16):
        assert lakes.sql(f"SELECT count(*) FROM lake.reports_{number}").fetchall() == [(2,)]


def test_a_function_is_refused_if_an_open_result_hides_in_which_schema_a_table_is(lakes: duckdb.DuckDBPyConnection) -> None:
    lakes.execute("FROM range(100000)")
    with pytest.raises(ConnectionRefused, match="its search path cannot be read"):
        ldpsql.perturb_table(lakes, "people", "hidden", {"city": KRR})
    lakes.execute("SELECT 1").fetchall()
    assert lakes.sql("SELECT 1 FROM duckdb_tables() WHERE table_name = 'hidden'").fetchall() == []


def test_an_open_result_does_not_matter_if_there_is_one_schema() -> None:
    with ldpsql.connect() as con:
        con.execute("CREATE TABLE people AS SELECT 'Lima' AS city")
        con.execute("FROM range(100000)")
        ldpsql.perturb_table(con, "people", "reports", {"city": KRR})
        assert con.cursor().execute("SELECT count(*) FROM reports").fetchall() == [(1,)]
