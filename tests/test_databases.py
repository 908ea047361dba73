"""Tables of SQLite are sources and sinks of runs: all or nothing, charged by what they are, not by their address."""

from __future__ import annotations

import re
import sqlite3
import types
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import ibis
import pytest
import sqlglot

import ldpsql
from ldpsql.bulk.databases import database_at
from ldpsql.errors import (
    BudgetExceeded,
    DestinationExists,
    DestinationRefused,
    InvalidParameter,
    LdpError,
    OtherMechanism,
    OutsideDomain,
    SourceRefused,
)
from ldpsql.functions import Staged, rows_of
from ldpsql.hooks import hookimpl
from ldpsql.ledger import Ledger, Policy
from ldpsql.registry.registry import registry
from tests.commands import run

CITY = "krr(1, ['a', 'b', 'c'])"
AGE = f"olh(1, {list(range(20))})"
SETS = f"oue(1, {list(range(70))})"


@pytest.fixture
def people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    with sqlite3.connect("shop.db") as con:
        con.execute('CREATE TABLE people (id INTEGER, "the city" TEXT, age INTEGER, word INTEGER)')
        con.executemany("INSERT INTO people VALUES (?, ?, ?, ?)", [(i, "abc"[i % 3], i % 20, i % 70) for i in range(3000)])
        con.execute("CREATE VIEW seen AS SELECT * FROM people")
    con.close()
    return "sqlite:///shop.db#people"


def rows(sql: str) -> list[tuple[object, ...]]:
    with sqlite3.connect("shop.db") as con:
        found = con.execute(sql).fetchall()
    con.close()
    return found


def test_reports_go_from_a_table_to_a_table_and_are_estimated_there(people: str) -> None:
    columns = {"the city": CITY, "age": AGE, "word": SETS}
    with duckdb.connect() as con:
        done = ldpsql.perturb_table(con, people, "sqlite:///shop.db#reports", columns, keep=["id"])
    assert done.rows == 3000
    assert rows("SELECT count(*), count(DISTINCT id), count(age_seed), min(length(word)), max(length(word)) FROM reports") == [
        (3000, 3000, 3000, 70, 70)
    ]
    assert rows("SELECT id FROM reports LIMIT 5") != [(i,) for i in range(5)]  # false alarm: 4e-18
    backend = ibis.sqlite.connect("shop.db")
    table = backend.table("reports")
    for column, mechanism in columns.items():
        assert ldpsql.estimate(table, mechanism, column=column).diagnosis.reports == 3000
        assert ldpsql.estimate(table, column=column).diagnosis.record == "recorded"
        with pytest.raises(OtherMechanism):
            ldpsql.estimate(table, "krr(2, ['a', 'b', 'c'])", column=column)
    backend.disconnect()


def test_the_same_rows_under_another_address_cost_again(people: str) -> None:
    ledger = Ledger.open("ledger", Policy(epsilon_budget="1", privacy_unit="row"))
    Path("link.db").symlink_to("shop.db")
    others = ["sqlite:///./shop.db#PEOPLE", f"sqlite:///{Path('shop.db').absolute()}#main.people", "sqlite:///link.db#seen"]
    with duckdb.connect() as con:
        ldpsql.perturb_table(con, people, "sqlite:///out.db#r", {"the city": CITY}, charge=ldpsql.Charge(ledger, "people"))
        for number, address in enumerate(others):
            with pytest.raises(BudgetExceeded):
                ldpsql.perturb_copy(con, address, f"{number}.csv", {"the city": CITY}, charge=ldpsql.Charge(ledger, "others"))


def test_a_value_outside_of_the_domain_leaves_nothing(people: str) -> None:
    ledger = Ledger.open("ledger", Policy(epsilon_budget="1", privacy_unit="row"))
    for order in ("random", "keep"):
        with duckdb.connect() as con, pytest.raises(OutsideDomain):
            ldpsql.perturb_table(con, people, "sqlite:///shop.db#r", {"age": "krr(1, [0, 1])"}, order=order)
    charge = ldpsql.Charge(ledger, "people")
    with duckdb.connect() as con, pytest.raises(OutsideDomain):
        ldpsql.perturb_table(con, people, "sqlite:///shop.db#r", {"age": "krr(1, [0, 1])"}, charge=charge)
    assert rows("SELECT name FROM sqlite_master WHERE name IN ('r', 'ldpsql_records')") == []
    assert not ledger.history()


def test_a_table_is_added_to_and_replaced_only_by_its_mechanism(people: str) -> None:
    into = "sqlite:///shop.db#r"
    with duckdb.connect() as con:
        ldpsql.perturb_table(con, people, into, {"the city": CITY})
        with pytest.raises(DestinationExists):
            ldpsql.perturb_table(con, people, into, {"the city": CITY})
        ldpsql.perturb_table(con, people, into, {"the city": CITY}, append=True)
        assert rows("SELECT count(*) FROM r") == [(6000,)]
        with pytest.raises(OtherMechanism):
            ldpsql.perturb_table(con, people, into, {"the city": "krr(2, ['a', 'b', 'c'])"}, append=True)
        ldpsql.perturb_table(con, people, into, {"the city": "krr(2, ['a', 'b', 'c'])"}, replace=True)
        assert rows("SELECT count(*) FROM r") == [(3000,)]


def test_an_address_without_a_table_or_a_file_is_refused(people: str) -> None:
    with duckdb.connect() as con:
        for address in ("sqlite:///shop.db#nothing", "sqlite:///nothing.db#people"):
            with pytest.raises(SourceRefused):
                ldpsql.perturb_copy(con, address, "r.csv", {"city": CITY})
        with pytest.raises(InvalidParameter):
            ldpsql.perturb_copy(con, "sqlite:///shop.db", "r.csv", {"city": CITY})
    assert not Path("nothing.db").exists()


def test_the_command_perturbs_from_address_to_address(people: str) -> None:
    done = run("perturb", people, "sqlite:///shop.db#r", "-c", "the city", "-m", CITY, "--keep", "id")
    assert "perturbed 3,000 rows" in done.stderr
    assert rows("SELECT count(DISTINCT id) FROM r") == [(3000,)]


def class_of_the_page() -> type[Staged]:
    """The database that the guide for plugins shows: a file of DuckDB, published as tables in the cloud are."""
    page = (Path(__file__).parents[1] / "docs/guides/plugins.md").read_text()
    found: dict[str, Any] = {}
    exec(re.search(r"## Offer a database.*?```python\n(.*?)```", page, re.DOTALL).group(1), found)  # type: ignore[union-attr]
    return found["Duck"]


Duck = class_of_the_page()


@pytest.fixture
def duck(people: str) -> Iterator[str]:  # the folder
    module, plugin = types.ModuleType("duck"), replace(registry().plugins[0], name="duck", offers=[])
    vars(module)["ldpsql_databases"] = hookimpl(lambda: [("duck", Duck)], specname="ldpsql_databases")
    registry().add(module, plugin)
    assert plugin.offers == ["database duck"]
    yield "duck:///out.duckdb"
    registry().refuse(plugin, "the test is over")
    registry().plugins.remove(plugin)


def in_duck(sql: str) -> list[tuple[object, ...]]:
    with duckdb.connect("out.duckdb") as con:
        return con.execute(sql).fetchall()


def test_a_plugin_offers_a_database_whose_tables_are_published_at_once(people: str, duck: str) -> None:
    columns, ledger = {"the city": CITY, "age": AGE}, Ledger.open("ledger", Policy(epsilon_budget="3", privacy_unit="row"))
    with duckdb.connect() as con:
        ldpsql.perturb_table(con, people, f"{duck}#r", columns, keep=["id"])
        with pytest.raises(DestinationExists):
            ldpsql.perturb_table(con, people, f"{duck}#r", columns)
        ldpsql.perturb_table(con, people, f"{duck}#r", columns, keep=["id"], append=True)
        with pytest.raises(OtherMechanism):
            ldpsql.perturb_table(con, people, f"{duck}#r", {"the city": "krr(2, ['a', 'b', 'c'])"}, append=True)
        with pytest.raises(DestinationRefused, match="replaced at once"):
            ldpsql.perturb_table(con, people, f"{duck}#r", columns, replace=True, charge=ldpsql.Charge(ledger, "people"))
        assert not ledger.history()
        ldpsql.perturb_copy(con, f"{duck}#r", "again.csv", {"the city": CITY}, charge=ldpsql.Charge(ledger, "people"))
        in_duck("CREATE VIEW seen AS FROM r; CREATE TABLE others AS FROM r LIMIT 99")
        spent: Any = pytest.raises(BudgetExceeded)  # 3 of 3 under r, whatever the part; others are other rows
        runs = [("r", nullcontext()), ("r", nullcontext()), ("r", spent), ("others", nullcontext())]
        for number, (table, outcome) in enumerate(runs):
            charge = ldpsql.Charge(ledger, f"part {number}")
            with outcome:
                ldpsql.perturb_copy(con, f"{duck}#{table}", f"{number}.csv", {"the city": CITY}, charge=charge)
        with pytest.raises(SourceRefused, match="view"):
            ldpsql.perturb_copy(con, f"{duck}#seen", "seen.csv", {"the city": CITY}, charge=ldpsql.Charge(ledger, "others"))
    assert in_duck("SELECT count(*), count(DISTINCT id), count(age_seed) FROM r") == [(6000, 3000, 6000)]
    assert in_duck("FROM (SHOW TABLES)") == [("ldpsql_records",), ("others",), ("r",), ("seen",)]


def test_tables_of_another_schema_are_other_tables(people: str, duck: str) -> None:
    in_duck("CREATE TABLE r AS SELECT 'a' AS x, 'b' AS y; CREATE SCHEMA old; CREATE TABLE old.r AS SELECT 'c' AS y")
    ledger = Ledger.open("ledger", Policy(epsilon_budget="1", privacy_unit="row"))
    spent: Any = pytest.raises(BudgetExceeded)
    runs = [("r", nullcontext()), ("main.r", spent), ("old.r", nullcontext()), ("old.r", spent)]
    with duckdb.connect() as con:
        for number, (table, outcome) in enumerate(runs):
            charge = ldpsql.Charge(ledger, f"part {number}")
            with outcome:
                ldpsql.perturb_table(con, f"{duck}#{table}", f"{duck}#old.reports_{number}", {"y": CITY}, charge=charge)
    assert in_duck("SELECT table_name FROM duckdb_tables() WHERE schema_name = 'old' ORDER BY ALL") == [
        ("ldpsql_records",),
        ("r",),
        ("reports_0",),
        ("reports_2",),
    ]


def test_a_change_is_seen_where_nobody_knows_when_a_table_was_changed(people: str, duck: str) -> None:
    in_duck("CREATE TABLE r AS SELECT 'a' AS city")
    database = database_at(f"{duck}#r")
    with database.connect() as con:
        before = database.stamp(con)
        assert database.stamp(con) == before
        rows_of(con, "UPDATE r SET city = 'b'")
        assert database.stamp(con) != before


@pytest.mark.parametrize("append", [False, True])
def test_what_stops_before_it_is_published_leaves_nothing_and_is_resumed(
    people: str, duck: str, monkeypatch: pytest.MonkeyPatch, append: bool
) -> None:
    ledger = Ledger.open("ledger", Policy(epsilon_budget="3", privacy_unit="row"))
    written, charge = {"the city": CITY}, ldpsql.Charge(ledger, "people")
    with duckdb.connect() as con:
        if append:
            ldpsql.perturb_table(con, people, f"{duck}#r", written)
        with monkeypatch.context() as broken:
            broken.setattr(Staged, "drop", lambda *_: None)  # as if the process had been killed
            broken.setattr(Duck, "renamed", lambda *_: "ALTER TABLE nothing RENAME TO r")
            broken.setattr(Duck, "added", lambda *_: "INSERT INTO nothing VALUES (1)")
            with pytest.raises(LdpError):
                ldpsql.perturb_table(con, people, f"{duck}#r", written, append=append, charge=charge)
        assert in_duck("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'r'") == [(int(append),)]
        done = ldpsql.perturb_table(con, people, f"{duck}#r", written, append=append, resume=True, charge=charge)
    assert (done.rows, in_duck("SELECT count(*) FROM r")) == (3000, [(3000 + 3000 * append,)])
    assert [row["state"] for row in ledger.history()].count("published") == 1


@pytest.mark.parametrize(
    ("address", "dialect", "name"),
    [
        ("snowflake://me@acme-eu/SHOP/PUBLIC?warehouse=SMALL&role=ANALYST#PEOPLE", "snowflake", '"PEOPLE"'),
        ("snowflake://me@acme-eu/SHOP#RAW.PEOPLE", "snowflake", '"RAW"."PEOPLE"'),
        ("bigquery://shop-1/raw#people", "bigquery", "`shop-1`.`raw`.`people`"),
    ],
)
def test_statements_for_warehouses_in_the_cloud_are_in_their_dialects(address: str, dialect: str, name: str) -> None:
    """Nothing here runs in Snowflake or BigQuery."""
    database = database_at(address)
    assert database.name == name
    assert isinstance(database, Staged)
    sqlglot.parse_one(database.renamed("ldpsql_1"), dialect=dialect, error_level=sqlglot.ErrorLevel.RAISE)
    for text in ("it's", "a\\'b\n", '"quoted"', "ünï"):
        assert sqlglot.parse_one(f"SELECT {database.literal(text)}", dialect=dialect).expressions[0].this == text
    options = database.arguments()["db_kwargs"]
    assert "SMALL" not in address or options["adbc.snowflake.sql.warehouse"] == "SMALL"
