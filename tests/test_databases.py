"""Tables of SQLite are sources and sinks of runs: all or nothing, charged by what they are, not by their address."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import duckdb
import ibis
import pytest

import ldpsql
from ldpsql.errors import BudgetExceeded, DestinationExists, InvalidParameter, OtherMechanism, OutsideDomain, SourceRefused
from ldpsql.ledger import Ledger, Policy
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
