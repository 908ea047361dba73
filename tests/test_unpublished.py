"""Releases that were charged and not published: nobody pays for a report that nobody saw, and none is published uncharged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from duckdb import DuckDBPyConnection

import ldpsql
from ldpsql import Charge, Key
from ldpsql.errors import BudgetExceeded, LdpError, OutsideDomain, UnfinishedRun
from ldpsql.ledger import Ledger, Policy
from tests import commands
from tests.spending import krr

COLUMNS = {"city": "krr(epsilon=2, domain=['Lima', 'Oslo'])"}
PEOPLE = pl.DataFrame({"id": range(100), "city": ["Lima", "Oslo"] * 50})
BAD = pl.concat([PEOPLE, pl.DataFrame({"id": [100], "city": ["Atlantis"]})])


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(tmp_path / "budget.ledger", Policy(epsilon_budget=2, privacy_unit="id"))


def states(ledger: Ledger) -> list[str]:
    ledger.check()
    return [row["state"] for row in ledger.history()]


def into_table(con: DuckDBPyConnection, charge: Charge, people: pl.DataFrame, _: Path) -> None:
    ldpsql.perturb_table(con, people, "reports", COLUMNS, charge=charge)


def from_stream(con: DuckDBPyConnection, charge: Charge, people: pl.DataFrame, _: Path) -> None:
    ldpsql.perturb_batches(people.rechunk().to_arrow().to_reader(), COLUMNS, charge=charge).read_all()


def into_file(con: DuckDBPyConnection, charge: Charge, people: pl.DataFrame, folder: Path) -> None:
    people.write_parquet(folder / "people.parquet")
    ldpsql.perturb_copy(con, folder / "people.parquet", folder / "reports.parquet", COLUMNS, charge=charge)


def in_memory(con: DuckDBPyConnection, charge: Charge, people: pl.DataFrame, _: Path) -> None:
    ldpsql.perturb_batches(people, COLUMNS, charge=charge).read_all()


def once(con: DuckDBPyConnection, charge: Charge, people: pl.DataFrame, folder: Path) -> None:
    key = folder / "key"
    ldpsql.perturb_once(people, COLUMNS, key=Key.read(key) if key.exists() else Key.create(key), user="id", charge=charge)


@pytest.mark.parametrize("perturb", [into_table, from_stream, into_file, in_memory, once])
def test_a_bad_value_charges_nobody_and_the_others_can_be_perturbed_without_it(
    perturb: Callable[[DuckDBPyConnection, Charge, pl.DataFrame, Path], None], ledger: Ledger, tmp_path: Path
) -> None:
    charge = Charge(ledger, "people", user="id")
    with duckdb.connect() as con:
        with pytest.raises(OutsideDomain, match="column 'city': a value to be perturbed is outside") as refused:
            perturb(con, charge, BAD, tmp_path)
        assert "Atlantis" not in str(refused.value)
        assert ledger.history() == []
        perturb(con, charge, PEOPLE, tmp_path)
    assert states(ledger) == ["published"]
    assert [(balance.people, balance.spent) for balance in ledger.balances()] == [(100, "2")]


def test_a_release_in_sql_that_drew_nothing_is_given_back_and_one_that_drew_is_not(ledger: Ledger) -> None:
    con = ldpsql.connect(ledger=ledger)
    con.execute("CREATE MACRO city() AS ldp.krr(2, ['Lima', 'Oslo'])")
    con.register("bad", BAD)
    con.execute("CREATE TABLE people AS FROM bad")

    def draw(then: Callable[[], None]) -> None:
        with ldpsql.release(con, "people", {"city": "city()"}, "reports"):
            con.execute("CREATE TABLE reports AS SELECT id, ldp.perturb(city, city()) AS city FROM people ORDER BY random()")
            then()

    with pytest.raises(duckdb.Error, match="column 'city': a value"):
        draw(lambda: None)
    assert states(ledger) == ["returned"]
    con.execute("DELETE FROM people WHERE id = 100")
    with pytest.raises(ZeroDivisionError):
        draw(lambda: print(1 // 0))
    assert states(ledger) == ["returned", "charged"]
    with pytest.raises(BudgetExceeded, match=r"100 of the users were charged at .* by a release for reports that was not"):
        ledger.charge("people", {"city": krr("2")}, "elsewhere", users=PEOPLE["id"])


def test_the_release_of_a_table_that_was_renamed_is_recognised(ledger: Ledger) -> None:
    con = ldpsql.connect(ledger=ledger)
    con.execute("CREATE MACRO city() AS ldp.krr(2, ['Lima', 'Oslo'])")
    con.register("all_people", PEOPLE)
    con.execute("CREATE TABLE people AS FROM all_people")
    with ldpsql.release(con, "people", {"city": "city()"}, "reports"):
        con.execute("CREATE TABLE reports AS SELECT id, ldp.perturb(city, city()) AS city FROM people ORDER BY random()")
    for name in ("cities", "towns"):
        with (
            pytest.raises(BudgetExceeded, match=rf"reports were published at reports before, and none at {name}.*RENAME TO"),
            ldpsql.release(con, "people", {"city": "city()"}, name),
        ):
            pass
    for name in ("cities", "towns"):
        con.execute(f"ALTER TABLE {'reports' if name == 'cities' else 'cities'} RENAME TO {name}")
        with ldpsql.release(con, "people", {"city": "city()"}, name) as release:
            assert release.stored
    assert states(ledger) == ["published"]


def test_what_is_given_back_can_be_spent_again_and_is_never_published(ledger: Ledger) -> None:
    users = [*range(10), 3]
    first = ledger.charge("people", {"city": krr("1")}, "reports", users=users)
    (listed,) = ledger.unpublished()
    assert (listed.release, listed.people, listed.columns, listed.drawn) == (first.token, 10, "city", False)
    ledger.drawn(first.token)
    with pytest.raises(UnfinishedRun, match="was about to publish"):
        ledger.give_back(first.token)
    ledger.give_back(first.token, unseen=True)
    assert [(balance.people, balance.spent) for balance in ledger.balances()] == [(10, "0")]
    for use in (ledger.publish, lambda one: ledger.drawn(one.token), lambda one: ledger.give_back(one.token, unseen=True)):
        with pytest.raises(UnfinishedRun):
            use(first)
    second = ledger.charge("people", {"city": krr("1")}, "reports", users=users, resume=True)
    assert second.token != first.token
    ledger.publish(second)
    assert states(ledger) == ["returned", "published"]
    with pytest.raises(BudgetExceeded, match="1 of the users epsilon 1, and 0 of 2 is left"):
        ledger.charge("people", {"city": krr("1")}, "more", users=[3])
    assert ledger.unpublished() == []


def test_a_charge_on_trial_is_refused_as_the_charge_is_and_writes_nothing(ledger: Ledger) -> None:
    both: dict[str, Any] = {"city": krr("1"), "age": krr("1.5")}
    before = ledger.path.read_bytes()
    for charge in (ledger.check_charge, ledger.charge):
        with pytest.raises(BudgetExceeded, match=r"costs 2 of the users epsilon 2\.5, and 2 of 2 is left"):
            charge("people", both, "reports", users=["a", "b"])
    ledger.check_charge("people", {"city": krr("2")}, "reports", users=["a", "b"])
    assert not ledger.history()
    assert not ledger.balances()
    assert ledger.path.read_bytes() == before


def test_settling_publishes_what_is_in_a_table_and_gives_back_what_nobody_saw(ledger: Ledger, tmp_path: Path) -> None:
    database, city = tmp_path / "wh.duckdb", {"city": krr("0.1")}
    with duckdb.connect(str(database)) as con:
        con.execute("CREATE TABLE old (city VARCHAR)")
        written = ledger.charge("people", city, f"{database} reports", users=range(3))
        con.execute(f"COMMENT ON TABLE old IS 'ldpsql release {written.token}'")
        con.execute("ALTER TABLE old RENAME TO renamed")
    undrawn = ledger.charge("people", city, "wh.main.other", users=range(3))
    here = ledger.charge("people", city, '"wh"."main"."reports"', users=range(3), drawn=True)
    elsewhere = ledger.charge("people", city, "/data/other.duckdb reports", users=range(3), drawn=True)

    def settled(*options: str) -> dict[str, str]:
        run = commands.run("budget", "settle", "--ledger", str(ledger.path), "-d", str(database), "--format", "csv", *options)
        return {line.split(",")[0]: line.rpartition(",")[2] for line in run.stdout.splitlines()[1:]}

    first = settled()
    assert "published" in first[written.token]
    assert states(ledger) == ["published", "returned", "charged", "charged"]
    assert first.keys() == {written.token, undrawn.token, here.token, elsewhere.token}
    assert settled("--unseen").keys() == {here.token, elsewhere.token}
    assert states(ledger) == ["published", "returned", "returned", "charged"]
    settled("--unseen", "--release", elsewhere.token)
    assert states(ledger) == ["published", "returned", "returned", "returned"]
    assert [balance.spent for balance in ledger.balances()] == ["0.1"]


def test_a_table_that_cannot_be_committed_charges_nobody(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    charge = Charge(ledger, "people", user="id")
    with duckdb.connect(str(tmp_path / "wh.duckdb")) as con:
        monkeypatch.setattr("ldpsql.bulk.sinks.table_of", lambda *_: 1 / 0)  # in the transaction, after the draw
        with pytest.raises(LdpError):
            into_table(con, charge, PEOPLE, tmp_path)
        monkeypatch.undo()
        assert states(ledger) == ["returned"]
        into_table(con, charge, PEOPLE, tmp_path)
    assert states(ledger) == ["returned", "published"]
