"""Permanent reports under a ledger: each person pays once for each value of a column, exactly, whatever happens in between."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import ClassVar

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from duckdb import DuckDBPyConnection

import ldpsql
from ldpsql import Channel, Charge, DenseChannel, Epsilon, KeepOrSpread, Key, certify
from ldpsql.errors import (
    BudgetExceeded,
    ChangedReports,
    InvalidParameter,
    KeyUnusable,
    LedgerDamaged,
    MissingValue,
    NotPrivate,
    OutsideDomain,
    UnchargedReports,
    UnknownName,
)
from ldpsql.functions import text_literal
from ldpsql.ledger import Ledger, Policy
from ldpsql.ledger.guard import warn_once
from ldpsql.ledger.people import id_bytes
from ldpsql.ledger.permanent import Reported, charge_columns_once
from ldpsql.mechanisms import TOTAL, CategoricalMechanism, HashReports, PureLdp, RepeatedHash
from tests.spending import report_forever

CITY = "krr(epsilon=1, domain=['a', 'b', 'c', 'd', 'e'])"
LOLOHA = "loloha(permanent=1, once=0.5, domain=['a', 'b', 'c', 'd', 'e'], symbols=2)"
PEOPLE = 300


@pytest.fixture
def key(tmp_path: Path) -> Key:
    Key.create(tmp_path / "key")
    return Key.read(tmp_path / "key")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(tmp_path / "budget.ledger", Policy(epsilon_budget=9, privacy_unit="id"))


def spent(ledger: Ledger) -> list[tuple[int | None, str]]:
    ledger.check()
    return [(balance.people, balance.spent) for balance in ledger.balances()]


def day(key: Key, ledger: Ledger | None, values: list[str], mechanism: str = CITY, people: int = 4) -> pa.Table:
    frame = pl.DataFrame({"id": np.arange(len(values)) % people, "city": values})
    charge = None if ledger is None else Charge(ledger, "people", user="id")
    return ldpsql.perturb_once(frame, {"city": mechanism}, key=key, user="id", charge=charge)


def test_daily_reports_of_one_value_cost_one_epsilon(key: Key, ledger: Ledger) -> None:
    first = day(key, ledger, ["a"] * 4)
    for _ in range(5):
        assert day(key, ledger, ["a"] * 4) == first
    assert spent(ledger) == [(4, "1")]
    assert [row["reports"] for row in ledger.history()] == [4, 0, 0, 0, 0, 0]
    assert {row["state"] for row in ledger.history()} == {"published"}


@pytest.mark.parametrize(("mechanism", "least", "most"), [(CITY, 5, 5), (LOLOHA, 1, 2)])
def test_values_cost_an_epsilon_each_and_symbols_of_loloha_do(
    key: Key, ledger: Ledger, mechanism: str, least: int, most: int
) -> None:
    """With two symbols all five values of a person cost at most two."""
    for value in "abcdeab":
        day(key, ledger, [value] * PEOPLE, mechanism, PEOPLE)
    ((people, largest),) = spent(ledger)
    assert people == PEOPLE
    assert largest == str(most)
    costs = [int(row["reports"]) for row in ledger.history()]
    assert PEOPLE * least <= sum(costs) <= PEOPLE * most
    assert costs[5:] == [0, 0]  # nothing is new the second time


def test_rows_of_one_person_are_charged_for_their_different_values(key: Key, ledger: Ledger) -> None:
    day(key, ledger, ["a", "a", "b", "a", "c"], people=1)
    assert spent(ledger) == [(1, "3")]
    assert ledger.history()[0]["users"] == 1


def test_nothing_is_charged_beyond_the_budget_and_nothing_is_drawn(
    key: Key, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = Ledger.open(tmp_path / "small.ledger", Policy(epsilon_budget=2, privacy_unit="id"))
    day(key, small, ["a", "b"], people=1)
    monkeypatch.setattr(Key, "draw", pytest.fail)
    with pytest.raises(BudgetExceeded):
        day(key, small, ["c", "c"], people=2)  # the second person could pay
    assert spent(small) == [(1, "2")]
    monkeypatch.undo()
    day(key, small, ["b", "a"], people=1)  # what was paid can be reported for ever
    assert spent(small) == [(1, "2")]


def test_another_column_epsilon_or_domain_is_charged_again(key: Key, ledger: Ledger) -> None:
    day(key, ledger, ["a"], people=1)
    frame = pl.DataFrame({"id": [0], "home": ["a"]})
    ldpsql.perturb_once(frame, {"home": CITY}, key=key, user="id", charge=Charge(ledger, "people"))
    for text in ("krr(epsilon=2, domain=['a', 'b', 'c', 'd', 'e'])", "krr(epsilon=1, domain=['a', 'b', 'c', 'd'])"):
        with pytest.warns(ChangedReports, match="the column 'city' were charged for another mechanism before"):
            day(key, ledger, ["a"], text, people=1)
        day(key, ledger, ["a"], text, people=1)
    day(key, ledger, ["a"], "krr(epsilon=1, domain=['e', 'd', 'c', 'b', 'a'], nulls='as:b')", people=1)  # the first channel
    assert spent(ledger) == [(1, "5")]


def test_a_domain_in_another_order_is_no_change(key: Key, ledger: Ledger) -> None:
    day(key, ledger, ["a"], people=1)
    day(key, ledger, ["b"], "krr(epsilon=1, domain=['e', 'd', 'c', 'b', 'a'], nulls='as:b')", people=1)  # a warning would fail
    assert spent(ledger) == [(1, "2")]


def test_a_warning_of_a_change_that_is_an_error_charges_nothing(key: Key, ledger: Ledger) -> None:
    day(key, ledger, ["a"], people=1)
    with pytest.raises(ChangedReports):
        day(key, ledger, ["a"], "krr(epsilon=2, domain=['a', 'b', 'c', 'd', 'e'])", people=1)
    assert spent(ledger) == [(1, "1")]


def test_values_by_the_rules_of_a_mechanism_are_charged_as_what_they_stand_for(key: Key, ledger: Ledger) -> None:
    day(key, ledger, ["b"], people=1)
    ruled = "krr(epsilon=1, domain=['a', 'b', 'c', 'd', 'e'], outside='as:b')"
    day(key, ledger, ["elsewhere"], ruled, people=1)
    assert spent(ledger) == [(1, "1")]


def test_python_gives_the_reports_of_sql(key: Key) -> None:
    frame = pd.DataFrame({"id": range(500), "city": ["a", "b"] * 250, "year": 2025})
    reports = ldpsql.perturb_once(frame, {"city": CITY}, key=key, user="id", keep=["year"])
    assert reports.column_names == ["city", "year"]
    with ldpsql.connect(key=key) as con:
        call = "ldp.krr(1, ['a', 'b', 'c', 'd', 'e'])"
        sql = f"SELECT ldp.perturb_once(city, {call}, id, column_name := 'city') AS city FROM frame ORDER BY id"
        assert [row[0] for row in con.sql(sql).fetchall()] == reports.column("city").to_pylist()


def test_a_frame_of_polars_has_permanent_reports_in_any_order(key: Key, ledger: Ledger) -> None:
    frame, options = pl.DataFrame({"id": range(50), "city": ["a", "b"] * 25}), {"key": key, "user": "id", "keep": ["id"]}
    charge = Charge(ledger, "people")
    shuffled = frame.ldp.perturb_once({"city": CITY}, **options, charge=charge)  # type: ignore[attr-defined]
    kept = frame.ldp.perturb_once({"city": CITY}, **options, charge=charge, order="keep")  # type: ignore[attr-defined]
    assert shuffled.sort("id").equals(kept)
    assert not shuffled.equals(kept)  # 50 rows stay in their order once in 10 ** 64
    assert spent(ledger) == [(50, "1")]


def test_the_ledger_of_the_settings_is_charged_by_name_or_missed(
    key: Key, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warn_once.cache_clear()
    (tmp_path / "ldpsql.toml").write_text("[ledger]\npath = 'b.ledger'\nepsilon_budget = '3'\nprivacy_unit = 'id'\n")
    monkeypatch.chdir(tmp_path)
    with pytest.warns(UnchargedReports):
        day(key, None, ["a"])
    warn_once.cache_clear()
    ldpsql.perturb_once(pl.DataFrame({"id": [1], "city": ["a"]}), {"city": CITY}, key=key, user="id", charge="people")
    assert spent(Ledger.open(tmp_path / "b.ledger")) == [(1, "1")]


def test_what_cannot_be_charged_is_refused(key: Key, ledger: Ledger, tmp_path: Path) -> None:
    by_row = Ledger.open(tmp_path / "rows.ledger", Policy(epsilon_budget=2))
    frame = pl.DataFrame({"id": [1], "city": ["a"]})
    with pytest.raises(InvalidParameter, match="charges by row"):
        ldpsql.perturb_once(frame, {"city": CITY}, key=key, user="id", charge=Charge(by_row, "people"))
    with pytest.raises(InvalidParameter, match="the people who give them"):
        ldpsql.perturb_once(frame, {"city": CITY}, key=key, user="id", charge=Charge(ledger, "people", user="other"))
    with pytest.raises(InvalidParameter, match="over all parts"):
        ldpsql.perturb_once(frame, {"city": CITY}, key=key, user="id", charge=Charge(ledger, "people", part="monday"))
    with pytest.raises(UnknownName):
        ldpsql.perturb_once(frame, {"city": CITY}, key=key, user="person")
    for city, error in ((None, MissingValue), ("Secret", OutsideDomain)):
        with pytest.raises(error) as refusal:
            ldpsql.perturb_once(pl.DataFrame({"id": [1], "city": [city]}, {"id": pl.Int64, "city": pl.String}), {"city": CITY},
                                key=key, user="id", charge=Charge(ledger, "people"))  # fmt: skip
        assert "Secret" not in str(refusal.value)
    assert spent(ledger) == []


class Generous(Epsilon):
    """An epsilon that says more than it is."""

    def exp_below(self) -> Fraction:
        return Fraction(10**9)


class Keeping(CategoricalMechanism):
    """A mechanism whose permanent response breaks its epsilon, while each of its reports keeps its own."""

    name = "keeping"
    bad: ClassVar[tuple[Epsilon, KeepOrSpread]]

    @property
    def permanent(self) -> Epsilon:
        return self.bad[0]

    def claim(self) -> PureLdp:
        return PureLdp(self.epsilon)

    def alphabet(self) -> HashReports:
        return HashReports(2)

    def channel(self) -> RepeatedHash:
        return RepeatedHash(len(self.domain), self.bad[1], KeepOrSpread.within(2, Fraction(11, 10)))


RARELY = KeepOrSpread(2, TOTAL // 1000, TOTAL - TOTAL // 1000)  # the other symbol is 999 times as likely
USUALLY = KeepOrSpread(2, TOTAL - TOTAL // 1000, TOTAL // 1000)


@pytest.mark.parametrize(
    "bad", [(Epsilon.parse(1), USUALLY), (Epsilon.parse(1), RARELY), (Generous(Fraction(1)), USUALLY), (1.0, USUALLY)]
)
def test_a_permanent_response_that_breaks_its_epsilon_is_not_charged(
    key: Key, ledger: Ledger, bad: tuple[Epsilon, KeepOrSpread], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Keeping, "bad", bad, raising=False)
    certified, people = certify(Keeping(epsilon=1, domain=["a", "b", "c"])), id_bytes(pa.array([1]))
    fingerprints = key.fingerprints(certified, pa.array(["a"]), people, "x")
    with pytest.raises(NotPrivate):
        charge_columns_once(ledger, "people", {"x": Reported(certified, fingerprints, people)}, "memory")
    assert spent(ledger) == []


def test_a_key_is_a_path_or_an_opened_key(key: Key, tmp_path: Path) -> None:
    frame = pl.DataFrame({"id": [1], "city": ["a"]})
    reports = [ldpsql.perturb_once(frame, {"city": CITY}, key=one, user="id") for one in (key, tmp_path / "key")]
    assert reports[0] == reports[1]
    with pytest.raises(InvalidParameter, match="a path or an opened key"):
        ldpsql.perturb_once(frame, {"city": CITY}, key=None, user="id")  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match="need the column of user ids"):
        ldpsql.perturb_once(frame, {"city": CITY}, key=key, user=None)  # type: ignore[arg-type]


class Earlier(CategoricalMechanism):
    """A mechanism of a plugin; ``Later`` is the next version of it, which draws otherwise from the same parameters."""

    name = "versioned"
    ratio: ClassVar[Fraction] = Fraction(5, 2)

    def claim(self) -> PureLdp:
        return PureLdp(self.epsilon)

    def channel(self) -> Channel:
        return KeepOrSpread.within(len(self.domain), self.ratio)


class Later(Earlier):
    ratio = Fraction(2)


class Alike(Later):
    """A version with the same largest ratio, whose reports have other names."""

    def channel(self) -> Channel:
        rows = KeepOrSpread.within(len(self.domain), self.ratio).rows(np.arange(len(self.domain), dtype=np.int32))
        return DenseChannel(np.roll(rows, 1, axis=1))


def test_a_plugin_that_draws_otherwise_draws_a_new_report(key: Key) -> None:
    values, people = pa.array(["a"] * 50), pa.array([b"%d" % i for i in range(50)], pa.binary())
    versions = [certify(kind(epsilon=1, domain=["a", "b"])) for kind in (Earlier, Later, Later, Alike)]
    first, second, again, alike = (key.fingerprints(version, values, people, "city").tolist() for version in versions)
    assert second == again
    assert not {*first} & {*second}
    assert versions[2].certificate.ratio == versions[3].certificate.ratio
    assert not {*second} & {*alike}


def test_no_rows_cost_nothing(key: Key, ledger: Ledger) -> None:
    assert len(day(key, ledger, [])) == 0
    assert spent(ledger) == []


def test_a_fingerprint_that_was_changed_or_removed_is_noticed(key: Key, ledger: Ledger) -> None:
    import sqlite3  # noqa: PLC0415  # only a planted fault needs it

    day(key, ledger, ["a"])
    with sqlite3.connect(ledger.path) as db:
        db.execute("DELETE FROM spent WHERE account = (SELECT id FROM account WHERE currency = 'permanent reports')")
    with pytest.raises(LedgerDamaged):
        day(key, ledger, ["a"])


@pytest.mark.slow
def test_people_of_a_run_that_is_killed_pay_each_value_once(key: Key, ledger: Ledger, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    started = context.Event()
    worker = context.Process(target=report_forever, args=(ledger.path, tmp_path / "key", started))
    worker.start()
    assert started.wait(100)
    os.kill(worker.pid or 0, signal.SIGKILL)
    worker.join()
    day(key, ledger, list("abcde") * 50, people=50)
    assert spent(ledger) == [(50, "5")]


def test_two_threads_charge_a_value_once(key: Key, ledger: Ledger) -> None:
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: day(key, ledger, ["a", "b"] * 4), range(8)))
    assert spent(ledger) == [(4, "1")]


ONCE = f"ldp.perturb_once(city, {text_literal(CITY)}, id, 'city')"


def released(con: DuckDBPyConnection, query: str, mechanism: str = CITY) -> list[tuple[object, ...]]:
    with ldpsql.release(con, "people", {"city": text_literal(mechanism)}, "reports", permanent=True):
        return con.execute(query).fetchall()


@pytest.fixture
def people(key: Key, ledger: Ledger) -> Iterator[DuckDBPyConnection]:
    with duckdb.connect() as con:
        ldpsql.attach(con, ledger=ledger, key=key)
        con.execute("CREATE TABLE people AS SELECT i AS id, 'a' AS city FROM range(4) t(i)")
        yield con


def test_a_release_in_sql_charges_permanent_reports_once_and_gives_those_of_python(
    people: DuckDBPyConnection, key: Key, ledger: Ledger
) -> None:
    query = f"SELECT {ONCE} FROM people ORDER BY id"
    first = released(people, query)
    assert [released(people, query) for _ in range(3)] == [first] * 3
    assert spent(ledger) == [(4, "1")]
    assert [(report,) for report in day(key, ledger, ["a"] * 4)["city"].to_pylist()] == first
    assert spent(ledger) == [(4, "1")]
    people.execute("UPDATE people SET city = 'b' WHERE id = 2")
    released(people, query)
    assert spent(ledger) == [(4, "2")]
    assert [row["reports"] for row in ledger.history()] == [4, 0, 0, 0, 0, 1]
    assert {row["state"] for row in ledger.history()} == {"published"}


def test_loloha_is_released_in_sql_as_in_python(people: DuckDBPyConnection, ledger: Ledger) -> None:
    query = f"SELECT ldp.perturb_once(city, {text_literal(LOLOHA)}, id, 'city') FROM people"
    for _ in range(3):
        released(people, query, LOLOHA)
    assert spent(ledger) == [(4, "1")]


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT ldp.perturb(city, {text_literal(CITY)}) FROM people",
        f"SELECT ldp.perturb_once(city, {text_literal(CITY)}, id) FROM people",
        f"SELECT ldp.perturb_once(city, {text_literal(CITY)}, id + 1, 'city') FROM people",
        f"SELECT ldp.perturb_once('b', {text_literal(CITY)}, id, 'city') FROM people",
        f"SELECT ldp.perturb_once(city, {text_literal(CITY.replace('1', '2'))}, id, 'city') FROM people",
    ],
    ids=["another draw", "another column", "another person", "another value", "another mechanism"],
)
def test_a_permanent_release_draws_nothing_that_it_has_not_charged(people: DuckDBPyConnection, query: str) -> None:
    with pytest.raises(duckdb.Error, match="LDP320"):
        released(people, query)


def test_a_permanent_report_is_refused_outside_of_its_release(people: DuckDBPyConnection) -> None:
    released(people, f"SELECT {ONCE} FROM people")
    with pytest.raises(duckdb.Error, match="LDP320"):
        people.execute(f"SELECT {ONCE} FROM people").fetchall()


def test_a_permanent_release_beyond_the_budget_draws_nothing(people: DuckDBPyConnection, ledger: Ledger) -> None:
    released(people, f"SELECT {ONCE} FROM people")
    costly = "krr(epsilon=9, domain=['a', 'b'])"
    with pytest.raises(BudgetExceeded):
        released(people, "SELECT 1", costly)
    assert spent(ledger) == [(4, "1")]


def test_permanent_releases_refuse_parts_rows_and_connections_without_a_key(
    people: DuckDBPyConnection, ledger: Ledger, tmp_path: Path
) -> None:
    for options in ({"part": "monday"}, {"again": True}):
        with (
            pytest.raises(InvalidParameter, match="once to each person"),
            ldpsql.release(people, "people", {"city": text_literal(CITY)}, "reports", permanent=True, **options),
        ):
            pass
    by_row = Ledger.open(tmp_path / "rows.ledger", Policy(epsilon_budget=9))
    for opened, error in ((by_row, InvalidParameter), (ledger, KeyUnusable)):
        with duckdb.connect() as con:
            ldpsql.attach(con, ledger=opened)
            con.execute("CREATE TABLE people AS SELECT 1 AS id, 'a' AS city")
            with pytest.raises(error):
                released(con, "SELECT 1")
