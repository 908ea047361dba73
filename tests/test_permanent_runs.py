"""Permanent reports of whole tables and files: those of SQL and of frames, paid once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from duckdb import DuckDBPyConnection

import ldpsql
from ldpsql import Charge, Key, certify
from ldpsql.bulk.columns import Ahead, Permanent
from ldpsql.bulk.staging import Staging
from ldpsql.errors import BudgetExceeded, InvalidParameter, KeyUnusable, SourceRefused, UnfinishedRun, WrongType
from ldpsql.functions import registry
from ldpsql.ledger import Ledger, Policy
from tests.commands import printed

COLUMNS = {"city": "krr(epsilon=1, domain=['a', 'b', 'c'])", "age": "oue(epsilon=1, domain=[0, 1, 2])"}
PEOPLE = 30


@pytest.fixture
def key(tmp_path: Path) -> Key:
    return Key.create(tmp_path / "key")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(tmp_path / "budget.ledger", Policy(epsilon_budget=3, privacy_unit="id"))


@pytest.fixture
def con() -> DuckDBPyConnection:
    opened = duckdb.connect()
    opened.execute(
        f"CREATE TABLE people AS SELECT i AS id, substr('abc', 1 + i % 3, 1) AS city, i % 3 AS age FROM range({PEOPLE}) t(i)"
    )
    return opened


def spent(ledger: Ledger) -> list[str]:
    ledger.check()
    return [balance.spent for balance in ledger.balances()]


def test_tables_files_and_frames_have_the_same_permanent_reports_and_pay_once(
    con: DuckDBPyConnection, key: Key, ledger: Ledger, tmp_path: Path
) -> None:
    charge = Charge(ledger, "people")
    frame = con.table("people").to_arrow_table()
    reports = ldpsql.perturb_once(frame, COLUMNS, key=key, user="id", keep=["id"], charge=charge)
    run_into = ldpsql.perturb_table(con, "people", "reports", COLUMNS, keep=["id"], charge=charge, permanent=True, key=key)
    ldpsql.perturb_copy(con, "people", tmp_path / "kept.parquet", COLUMNS, keep=["id"], permanent=True, key=key, user="id")
    ldpsql.perturb_copy(
        con, "people", tmp_path / "all", COLUMNS, keep=["id"], charge=charge, permanent=True, key=tmp_path / "key", order="keep"
    )
    for source in ("reports", f"'{tmp_path}/kept.parquet'", f"'{tmp_path}/all/*.parquet'"):
        assert con.sql(f"FROM {source} ORDER BY id").to_arrow_table().to_pylist() == reports.to_pylist()
    assert spent(ledger) == ["2"]  # one of each column
    assert [row["reports"] for row in ledger.history()] == [PEOPLE, PEOPLE, 0, 0, 0, 0]
    assert {row["state"] for row in ledger.history()} == {"published"}
    ((comment,),) = con.execute("SELECT comment FROM duckdb_tables() WHERE table_name = 'reports'").fetchall()
    assert all(token in comment for token in run_into.release.split())
    assert len(run_into.release.split()) == 2


def test_a_run_that_stops_is_resumed_and_pays_once(con: DuckDBPyConnection, key: Key, ledger: Ledger, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for part in (0, 1):
        con.execute(f"COPY (FROM people WHERE id % 2 = {part}) TO '{tmp_path}/in/{part}.parquet'")
    options: dict[str, Any] = {
        "keep": ["id"],
        "charge": Charge(ledger, "people"),
        "permanent": True,
        "key": key,
        "order": "keep",
    }

    def stop(done: int, _: int | None) -> None:
        if done > PEOPLE // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ldpsql.perturb_copy(con, tmp_path / "in", tmp_path / "out", COLUMNS, progress=stop, **options)
    with pytest.raises(KeyboardInterrupt):
        ldpsql.perturb_copy(con, tmp_path / "in", tmp_path / "out", COLUMNS, resume=True, progress=stop, **options)
    assert ldpsql.perturb_copy(con, tmp_path / "in", tmp_path / "out", COLUMNS, resume=True, **options).resumed == 1
    assert {row["state"] for row in ledger.history()} == {"published"}
    frame = con.table("people").to_arrow_table()
    expected = ldpsql.perturb_once(frame, COLUMNS, key=key, user="id", keep=["id"])
    drawn = con.sql(f"FROM '{tmp_path}/out/*.parquet' ORDER BY id").to_arrow_table()
    assert drawn.to_pylist() == expected.to_pylist()
    assert spent(ledger) == ["2"]


def test_a_run_without_rows_that_stops_is_resumed_with_the_same_ledger(
    con: DuckDBPyConnection, key: Key, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    con.execute("DELETE FROM people")
    options: dict[str, Any] = {"permanent": True, "key": key, "user": "id", "order": "keep"}
    charge, to = Charge(ledger, "people"), tmp_path / "out.parquet"
    monkeypatch.setattr(Staging, "publish", stop)
    with pytest.raises(KeyboardInterrupt):
        ldpsql.perturb_copy(con, "people", to, COLUMNS, charge=charge, **options)
    monkeypatch.undo()
    with pytest.raises(UnfinishedRun, match="other inputs, columns, mechanisms or options"):
        ldpsql.perturb_copy(con, "people", to, COLUMNS, resume=True, **options)
    assert ldpsql.perturb_copy(con, "people", to, COLUMNS, resume=True, charge=charge, **options).resumed == 1
    assert con.sql(f"SELECT count(*) FROM '{to}'").fetchall() == [(0,)]
    assert spent(ledger) == []


def stop(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_columns_beyond_the_budget_are_not_charged_in_part(con: DuckDBPyConnection, key: Key, tmp_path: Path) -> None:
    small = Ledger.open(tmp_path / "small.ledger", Policy(epsilon_budget=1, privacy_unit="id"))
    with pytest.raises(BudgetExceeded):
        ldpsql.perturb_table(con, "people", "reports", COLUMNS, charge=Charge(small, "people"), permanent=True, key=key)
    assert spent(small) == []
    assert con.execute("SHOW TABLES").fetchall() == [("people",)]


def test_columns_with_the_same_values_have_reports_of_their_own(key: Key, ledger: Ledger) -> None:
    """Their words are kept between the charge and the draw by the content of a batch."""
    mechanism = "krr(epsilon=1, domain=[0, 1])"
    frame = pa.table({"id": range(100), "home": [0, 1] * 50, "work": [0, 1] * 50})
    names = ["home", "work"]
    together = ldpsql.perturb_once(frame, dict.fromkeys(names, mechanism), key=key, user="id", charge=Charge(ledger, "people"))
    for name in names:
        assert together[name].equals(ldpsql.perturb_once(frame, {name: mechanism}, key=key, user="id")[name])
    assert together["home"] != together["work"]  # equal by chance once in 10**21
    assert spent(ledger) == ["2"]


def test_words_that_are_kept_for_the_draw_have_a_limit_and_are_dropped_when_they_are_used() -> None:
    words = np.zeros((10, 8), dtype=np.uint64)
    ahead = Ahead(2 * words.nbytes)
    for content in (b"one", b"one", b"two", b"three"):
        ahead.put(content, words)
    assert ahead.take(b"one") is ahead.take(b"two") is words
    assert ahead.take(b"one") is ahead.take(b"three") is None


def test_dictionaries_with_the_same_numbers_have_reports_of_their_own_values(key: Key, ledger: Ledger) -> None:
    """The numbers of two batches are equal, and their words are not."""
    numbers = pa.array([0] * 100, pa.int8())
    home, away = (pa.DictionaryArray.from_arrays(numbers, pa.array(values)) for values in (["a", "b"], ["b", "a"]))
    frame = pa.table({"id": [*range(100)] * 2, "city": pa.chunked_array([home, away])})
    columns = {"city": COLUMNS["city"]}
    charged = ldpsql.perturb_once(frame, columns, key=key, user="id", charge=Charge(ledger, "people"))
    assert charged.equals(ldpsql.perturb_once(frame, columns, key=key, user="id"))
    assert spent(ledger) == ["2"]


@pytest.mark.parametrize("ahead", [None, Ahead()])
def test_a_report_that_was_not_charged_is_not_drawn(key: Key, ahead: Ahead | None) -> None:
    certified, people = certify(registry().mechanism(COLUMNS["city"])), pa.array([b"1", b"2"], pa.large_binary())
    permanent, values = Permanent(key, "id", ahead=ahead), pa.array(["a", "a"])
    permanent.charged["city"] = np.unique(permanent.fingerprints(certified, values[:1], people[:1], "city"))
    assert len(permanent.draw(certified, values[:1], people[:1], "city")) == 1
    with pytest.raises(SourceRefused, match="changed while it was read"):
        permanent.draw(certified, values, people, "city")
    permanent.charged["city"] = np.array([], dtype="S16")  # of a source that had no rows
    with pytest.raises(SourceRefused):
        permanent.draw(certified, values, people, "city")
    counted, changed = (pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array([value])) for value in "ab")
    permanent.charged["city"] = np.unique(permanent.fingerprints(certified, counted, people[:1], "city"))
    with pytest.raises(SourceRefused, match="changed while it was read"):  # a dictionary that changed
        permanent.draw(certified, changed, people[:1], "city")


def test_a_column_of_the_wrong_type_is_refused_before_it_is_charged(con: DuckDBPyConnection, key: Key, ledger: Ledger) -> None:
    con.execute("CREATE TABLE mixed AS SELECT id, city, 'young' AS age FROM people")
    charge = Charge(ledger, "people")
    for run in (
        lambda: ldpsql.perturb_table(con, "mixed", "reports", COLUMNS, charge=charge, permanent=True, key=key),
        lambda: ldpsql.perturb_once(con.table("mixed"), COLUMNS, key=key, user="id", charge=charge),
    ):
        with pytest.raises(WrongType, match="column 'age'"):
            run()
    assert ledger.history() == []


def test_what_has_no_permanent_reports_is_refused(con: DuckDBPyConnection, key: Key, ledger: Ledger) -> None:
    con.execute("CREATE TABLE ids AS SELECT uuid() AS id, 'a' AS city FROM range(2)")
    city = {"city": COLUMNS["city"]}
    for options, error, message in (
        ({"key": key}, InvalidParameter, "are for permanent reports"),
        ({"permanent": True, "key": key}, InvalidParameter, "need the column of user ids"),
        ({"permanent": True, "user": "id"}, KeyUnusable, "no key"),
        ({"permanent": True, "key": key, "charge": Charge(ledger, "people", part="may")}, InvalidParameter, "leave out part"),
        ({"permanent": True, "key": key, "user": "id", "keep": ["id"]}, WrongType, "cast the column of user ids"),
    ):
        with pytest.raises(error, match=message):
            ldpsql.perturb_table(con, "ids", "reports", city, **options)
    ldpsql.perturb_table(con, "ids", "reports", city, permanent=True, key=key, user="id")


def test_the_command_line_gives_permanent_reports(con: DuckDBPyConnection, key: Key, tmp_path: Path) -> None:
    con.execute(f"COPY people TO '{tmp_path}/people.parquet'")
    city, reports = COLUMNS["city"], f"{tmp_path}/reports.parquet"
    options = ("--permanent", "--key", f"{tmp_path}/key", "--user", "id", "--keep", "id")
    printed("perturb", f"{tmp_path}/people.parquet", reports, "-c", "city", "-m", city, *options)
    frame = con.table("people").to_arrow_table()
    expected = ldpsql.perturb_once(frame, {"city": city}, key=key, user="id", keep=["id"])
    assert con.sql(f"FROM '{reports}' ORDER BY id").to_arrow_table().to_pylist() == expected.to_pylist()
