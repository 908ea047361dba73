"""The ledger: budgets renew at the microsecond that the policy says, and no other clock, policy, process or row is trusted."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import ldpsql
from ldpsql import Key, Ledger, Policy
from ldpsql.errors import BudgetExceeded, LedgerDamaged, PolicyMismatch
from ldpsql.functions import registry

KRR = {"city": registry().mechanism("krr(1, ['Lima', 'Oslo'])")}
HOUR = 3600 * 10**9  # nanoseconds
MICRO = 1000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "budget.ledger"


def at(monkeypatch: pytest.MonkeyPatch, now: int) -> None:
    """Set the machine's clock, in nanoseconds."""
    monkeypatch.setattr(time, "time_ns", lambda: now)


@pytest.mark.parametrize("unit", ["row", "id"])
def test_a_budget_renews_when_the_window_has_passed_and_not_a_microsecond_before(
    path: Path, monkeypatch: pytest.MonkeyPatch, unit: str
) -> None:
    began = time.time_ns() // MICRO * MICRO
    users = None if unit == "row" else pa.array(["ann", "bob"])
    at(monkeypatch, began)
    ledger = Ledger.open(path, Policy(epsilon_budget=1, budget_window="1 hour", privacy_unit=unit))
    ledger.charge("people", KRR, "one", users=users)
    for late in (MICRO, HOUR // 2, HOUR // 2 + MICRO, HOUR - MICRO, HOUR - 1):
        at(monkeypatch, began + late)
        with pytest.raises(BudgetExceeded):
            ledger.charge("people", KRR, "two", users=users)
        assert [balance.remaining for balance in ledger.balances()] == ["0"]
    at(monkeypatch, began + HOUR)
    assert [balance.remaining for balance in ledger.balances()] == ["1"]
    ledger.charge("people", KRR, "two", users=users)
    at(monkeypatch, began + 2 * HOUR - MICRO)  # the new window began with the new charge
    with pytest.raises(BudgetExceeded):
        ledger.charge("people", KRR, "three", users=users)
    ledger.check()


class Meanwhile:
    """User ids whose reading lets another process do something."""

    def __init__(self, then: Any) -> None:
        self._then = then

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        self._then()
        return pa.array(["ann", "bob"]).__arrow_c_array__(requested_schema)


def test_a_charge_under_a_policy_that_changed_while_people_were_read_is_refused(path: Path) -> None:
    ledger = Ledger.open(path, Policy(epsilon_budget=1, privacy_unit="id"))
    stricter = Policy(epsilon_budget="0.5", privacy_unit="id")
    with pytest.raises(PolicyMismatch, match="meanwhile"):
        ledger.charge("people", KRR, "reports", users=Meanwhile(lambda: Ledger.open(path).adopt(stricter)))
    assert Ledger.open(path).history() == []
    with pytest.raises(BudgetExceeded):
        ledger.charge("people", KRR, "reports", users=pa.array(["ann", "bob"]))


def test_a_row_that_is_added_to_any_table_of_the_file_is_found(path: Path) -> None:
    ledger = Ledger.open(path, Policy(epsilon_budget=2, privacy_unit="id"))
    ledger.publish(ledger.charge("people", KRR, "reports", users=pa.array(["ann", "bob"])))
    whole, tried = path.read_bytes(), set()
    with sqlite3.connect(path) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows = {name: db.execute(f'SELECT * FROM "{name}"').fetchall() for name in tables}  # names of tables
    db.close()
    for table, (row, *_) in ((name, found) for name, found in rows.items() if found):
        whole_numbers = [place for place, value in enumerate(row) if isinstance(value, int)]
        for places in ([place] for place in whole_numbers), [whole_numbers[:1]]:
            for changed in places:
                new = [value + 1 if place in changed else value for place, value in enumerate(row)]
                new = [f"{value}x" if isinstance(value, str) and len(value) > 20 else value for value in new]
                path.write_bytes(whole)
                with sqlite3.connect(path) as db:
                    db.execute("PRAGMA ignore_check_constraints = ON")
                    done = db.execute(f'INSERT OR IGNORE INTO "{table}" VALUES ({", ".join("?" * len(new))})', new).rowcount
                db.close()
                if done:
                    tried.add(table)
                    with pytest.raises(LedgerDamaged):
                        Ledger.open(path).check()
                if done and table in {"release", "charge", "entry"}:
                    with pytest.raises(LedgerDamaged):
                        Ledger.open(path).history()
    assert len(tried) >= len([name for name in rows if rows[name]]) - 2


@pytest.mark.parametrize("permanent", [False, True])
def test_a_forked_process_draws_nothing_of_its_parents_charge(path: Path, tmp_path: Path, permanent: bool) -> None:
    Ledger.open(path, Policy(epsilon_budget=2, privacy_unit="id"))
    key = Key.create(tmp_path / "key") if permanent else None
    draw = "ldp.perturb_once(city, city(), id, column_name := 'city')" if permanent else "ldp.perturb(city, city())"
    with ldpsql.connect(ledger=path, key=key) as con:
        con.execute("SET threads = 1")
        con.execute("CREATE MACRO city() AS ldp.krr(1, ['Lima', 'Oslo'])")
        con.execute("CREATE TABLE people AS SELECT i AS id, 'Lima' AS city FROM range(10) t(i)")
        with ldpsql.release(con, "people", {"city": "city()"}, "reports", permanent=permanent):
            child = os.fork()
            if not child:
                signal.alarm(60)
                try:
                    con.execute(f"SELECT {draw} FROM people").fetchall()
                except duckdb.Error as error:
                    os._exit(7 if "LDP320" in str(error) else 8)
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            assert len(con.execute(f"SELECT {draw} FROM people").fetchall()) == 10
