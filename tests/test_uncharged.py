"""The ledger in every path of Python: charged before the first draw, and a warning if the ledger of the settings is not."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import ldpsql
from ldpsql import Charge
from ldpsql.bulk.sources import Frame
from ldpsql.errors import (
    BudgetExceeded,
    InvalidParameter,
    LedgerMissing,
    OutsideDomain,
    UnchargedReports,
    UnknownName,
    WrongType,
)
from ldpsql.ledger import Ledger, Policy
from ldpsql.ledger.guard import first_draw, warn_once
from ldpsql.mechanisms import CertifiedMechanism

CITY = "krr(epsilon=1, domain=['Lima', 'Oslo'])"
COLUMNS = {"city": CITY}
PEOPLE = pl.DataFrame({"id": [1, 2, 2], "city": ["Lima", "Oslo", "Lima"]})


def notice_again() -> None:
    """Forget what was noticed, so that the next uncharged reports warn again."""
    first_draw.cache_clear()
    warn_once.cache_clear()


@pytest.fixture(autouse=True)
def _noticing() -> Iterator[None]:
    notice_again()
    yield
    notice_again()


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(tmp_path / "rows.ledger", Policy(epsilon_budget=2))


@pytest.fixture
def by_user(tmp_path: Path) -> Ledger:
    return Ledger.open(tmp_path / "users.ledger", Policy(epsilon_budget=4, privacy_unit="id"))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Return what writes the settings of a project, which names the ledger ``budget.ledger``."""

    def write(unit: str = "row") -> Path:
        text = f"[ledger]\npath = 'budget.ledger'\nepsilon_budget = '4'\nprivacy_unit = '{unit}'\n"
        (tmp_path / "ldpsql.toml").write_text(text, encoding="utf-8")
        monkeypatch.chdir(tmp_path)
        return tmp_path / "budget.ledger"

    return write


def spent(path: Path | Ledger) -> list[str]:
    ledger = path if isinstance(path, Ledger) else Ledger.open(path)
    ledger.check()
    return [balance.spent for balance in ledger.balances()]


def table(charge: Charge | str | None) -> object:
    with duckdb.connect() as con:
        return ldpsql.perturb_table(con, PEOPLE, "reports", COLUMNS, replace=True, charge=charge)


WAYS: dict[str, Callable[[Charge | str | None], object]] = {
    "perturb": lambda charge: ldpsql.perturb(PEOPLE["city"], CITY, charge=charge),
    "perturb_batches": lambda charge: ldpsql.perturb_batches(PEOPLE, COLUMNS, charge=charge).read_all(),
    "a stream": lambda charge: ldpsql.perturb_batches(PEOPLE.to_arrow().to_reader(), COLUMNS, charge=charge).read_all(),
    "Polars": lambda charge: PEOPLE.ldp.perturb(COLUMNS, charge=charge),  # type: ignore[attr-defined]
    "perturb_table": table,
}


@pytest.mark.parametrize("way", WAYS)
def test_each_draw_is_charged_and_nothing_is_drawn_beyond_the_budget(
    way: str, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        WAYS[way](Charge(ledger, "people"))
        assert spent(ledger) == [str(number + 1)]
    assert {row["state"] for row in ledger.history()} == {"published"}
    monkeypatch.setattr(CertifiedMechanism, "perturb", pytest.fail)
    with pytest.raises(BudgetExceeded):
        WAYS[way](Charge(ledger, "people"))


@pytest.mark.parametrize("way", WAYS)
def test_the_name_of_the_people_charges_the_ledger_of_the_settings(way: str, project: Callable[[str], Path]) -> None:
    path = project("row")
    WAYS[way]("people")
    assert spent(path) == ["1"]


@pytest.mark.parametrize("way", WAYS)
def test_a_draw_outside_the_ledger_of_the_settings_warns_once(way: str, project: Callable[[str], Path]) -> None:
    path = project("row")
    with pytest.warns(UnchargedReports, match="drawn without charging it"):
        WAYS[way](None)
    WAYS[way](None)  # a second warning would be an error
    assert not path.exists()


def test_without_a_ledger_in_the_settings_nothing_warns_and_nothing_is_recorded() -> None:
    for draw in WAYS.values():
        draw(None)
    assert b"ldpsql.release" not in (ldpsql.perturb_batches(PEOPLE, COLUMNS).schema.metadata or {})


def test_results_tell_whether_they_were_charged(project: Callable[[str], Path], ledger: Ledger, tmp_path: Path) -> None:
    project("row")
    with pytest.warns(UnchargedReports):
        reports = ldpsql.perturb_batches(PEOPLE, COLUMNS)
    assert reports.schema.metadata[b"ldpsql.release"] == b"uncharged"
    with duckdb.connect() as con:
        assert ldpsql.perturb_table(con, PEOPLE, "reports", COLUMNS).uncharged
        assert ldpsql.perturb_copy(con, PEOPLE, tmp_path / "reports.parquet", COLUMNS).uncharged
        assert not ldpsql.perturb_table(con, PEOPLE, "charged", COLUMNS, charge="people").uncharged
    token = ldpsql.perturb_batches(PEOPLE, COLUMNS, charge=Charge(ledger, "people")).schema.metadata[b"ldpsql.release"].decode()
    assert ledger.release_of(token).state == "charged"  # until the stream was read to its end


def test_sql_and_expressions_of_polars_warn_as_well(project: Callable[[str], Path]) -> None:
    project("row")
    with ldpsql.connect() as con, pytest.warns(UnchargedReports):
        con.sql("SELECT ldp.perturb('Lima', ldp.krr(1, ['Lima', 'Oslo']))").fetchall()
    notice_again()
    with pytest.warns(UnchargedReports):
        pl.col("city").ldp.perturb(CITY)  # type: ignore[attr-defined]


def test_estimates_in_sql_do_not_warn(project: Callable[[str], Path]) -> None:
    project("row")
    with ldpsql.connect() as con:
        con.sql("SELECT ldp.inv('Lima', ldp.krr(1, ['Lima', 'Oslo']))").fetchall()


def test_a_connection_with_a_ledger_of_its_own_charges_that_by_name(project: Callable[[str], Path], ledger: Ledger) -> None:
    configured = project("row")
    with ldpsql.connect(ledger=ledger) as con:
        ldpsql.perturb_table(con, PEOPLE, "reports", COLUMNS, charge="people")
    assert spent(ledger) == ["1"]
    assert not configured.exists()


FRAMES: dict[str, Callable[[], Frame]] = {
    "Polars": lambda: PEOPLE,
    "pandas": lambda: pd.DataFrame({"id": [1, 2, 2], "city": ["Lima", "Oslo", "Lima"]}),
    "Arrow": PEOPLE.to_arrow,
    "stream": lambda: PEOPLE.to_arrow().to_reader(),
}


@pytest.mark.parametrize("frame", FRAMES)
def test_users_are_charged_for_each_of_their_rows(frame: str, by_user: Ledger) -> None:
    charge = Charge(by_user, "people", user="id")
    reports = ldpsql.perturb_batches(FRAMES[frame](), COLUMNS, charge=charge).read_all()
    assert reports.column_names == ["city"]  # the ids are read, and stay here
    assert spent(by_user) == ["2"]


def test_the_settings_name_the_column_of_users(project: Callable[[str], Path]) -> None:
    path = project("id")
    PEOPLE.ldp.perturb(COLUMNS, charge="people")  # type: ignore[attr-defined]
    assert spent(path) == ["2"]
    with pytest.raises(UnknownName, match="column named 'id'"):
        PEOPLE.drop("id").ldp.perturb(COLUMNS, charge="people")  # type: ignore[attr-defined]


def test_a_frame_is_charged_as_a_whole_or_not_at_all(by_user: Ledger) -> None:
    frame = pa.Table.from_batches([*PEOPLE.to_arrow().to_batches()] * 3)  # the second user has six rows, and budget for four
    with pytest.raises(BudgetExceeded):
        ldpsql.perturb_batches(frame, COLUMNS, charge=Charge(by_user, "people", user="id"))
    assert spent(by_user) == []


def test_a_stream_that_runs_out_of_budget_ends_with_an_error_and_charged_what_it_drew(by_user: Ledger) -> None:
    (batch,) = PEOPLE.to_arrow().to_batches()
    stream = pa.RecordBatchReader.from_batches(batch.schema, [batch] * 3)
    reports = ldpsql.perturb_batches(stream, COLUMNS, charge=Charge(by_user, "people", user="id"))
    drawn = [reports.read_next_batch(), reports.read_next_batch()]
    assert spent(by_user) == ["4"]
    with pytest.raises(BudgetExceeded):
        reports.read_next_batch()
    assert sum(one.num_rows for one in drawn) == 6
    assert spent(by_user) == ["4"]


def test_no_rows_cost_nothing(ledger: Ledger, by_user: Ledger) -> None:
    ldpsql.perturb(pl.Series("city", [], pl.String), CITY, charge=Charge(ledger, "people"))
    ldpsql.perturb_batches(PEOPLE.clear(), COLUMNS, charge=Charge(by_user, "people", user="id")).read_all()
    assert spent(ledger) == spent(by_user) == []


def test_a_run_of_nobody_costs_nothing_and_may_be_repeated_before_and_after_others(by_user: Ledger, tmp_path: Path) -> None:
    con, charge = duckdb.connect(), Charge(by_user, "people", user="id")
    for people, rows in ((PEOPLE.clear(), 0), (PEOPLE.clear(), 0), (PEOPLE, 3), (PEOPLE.clear(), 3)):
        ldpsql.perturb_table(con, people, "reports", COLUMNS, append=True, resume=True, charge=charge)
        assert con.execute("SELECT count(*) FROM reports").fetchall() == [(rows,)]
    ldpsql.perturb_copy(con, PEOPLE.clear(), tmp_path / "reports.parquet", COLUMNS, charge=charge)
    assert pl.read_parquet(tmp_path / "reports.parquet").is_empty()
    assert spent(by_user) == ["2"]
    with pytest.raises(WrongType):
        ldpsql.perturb_table(con, pl.DataFrame(schema={"id": pl.Int64, "city": pl.Float64}), "other", COLUMNS, charge=charge)


def test_a_spent_budget_names_the_reports_that_used_it_and_renames_no_file(by_user: Ledger, tmp_path: Path) -> None:
    con, charge = duckdb.connect(), Charge(by_user, "people", user="id")
    for day in (1, 2):
        ldpsql.perturb_copy(con, PEOPLE, tmp_path / f"{day}.parquet", COLUMNS, charge=charge)
    with pytest.raises(BudgetExceeded, match=r"published at \S+2\.parquet before") as refused:
        ldpsql.perturb_copy(con, PEOPLE, tmp_path / "3.parquet", COLUMNS, charge=charge)
    assert "RENAME" not in str(refused.value)
    assert "leave out the people" in str(refused.value)  # a policy without a window renews nothing
    by_user.adopt(by_user.policy.model_copy(update={"budget_window": "30 days"}))
    with pytest.raises(BudgetExceeded, match="wait for the next window"):
        ldpsql.perturb_copy(con, PEOPLE, tmp_path / "3.parquet", COLUMNS, charge=charge)


def test_a_column_alone_cannot_be_charged_by_user(by_user: Ledger) -> None:
    with pytest.raises(InvalidParameter, match="a single column has no user ids"):
        ldpsql.perturb(PEOPLE["city"], CITY, charge=Charge(by_user, "people", user="id"))


def test_a_name_without_a_ledger_is_refused() -> None:
    with pytest.raises(LedgerMissing, match="there is no ledger to charge"):
        ldpsql.perturb(PEOPLE["city"], CITY, charge="people")


def test_a_charge_must_name_ledger_and_people(ledger: Ledger) -> None:
    with pytest.raises(InvalidParameter, match="names the ledger and the people"):
        ldpsql.perturb(PEOPLE["city"], CITY, charge=ledger)  # type: ignore[call-overload]


def test_a_value_that_cannot_be_perturbed_is_not_charged_and_not_in_the_message(ledger: Ledger) -> None:
    with pytest.raises(ldpsql.LdpError) as error:
        ldpsql.perturb(["Secret"], CITY, charge=Charge(ledger, "people"))
    assert "Secret" not in str(error.value)
    assert ledger.history() == []


def test_a_column_of_the_wrong_type_is_refused_before_it_is_charged(ledger: Ledger, tmp_path: Path) -> None:
    frame, charge, con = pl.DataFrame({"city": [1.5, 2.5]}), Charge(ledger, "people"), duckdb.connect()
    frame.write_parquet(tmp_path / "people.parquet")
    con.execute("CREATE TABLE people AS SELECT 1.5 AS city")
    con.execute("CREATE VIEW costly AS SELECT error('a row was read: ' || city)::DOUBLE AS city FROM people")
    for run in (
        lambda: ldpsql.perturb(frame["city"], CITY, charge=charge),
        lambda: ldpsql.perturb_batches(frame, COLUMNS, charge=charge),
        lambda: ldpsql.perturb_batches(frame.to_arrow().to_reader(), COLUMNS, charge=charge),
        lambda: ldpsql.perturb_table(con, "people", "reports", COLUMNS, charge=charge),
        lambda: ldpsql.perturb_table(con, "costly", "reports", COLUMNS, charge=charge),
        lambda: ldpsql.perturb_table(con, frame.to_arrow().to_reader(), "reports", COLUMNS, charge=charge),
        lambda: ldpsql.perturb_copy(con, tmp_path / "people.parquet", tmp_path / "reports", COLUMNS, charge=charge),
    ):
        with pytest.raises(WrongType, match="column 'city'"):
            run()
    assert ledger.history() == []


def test_the_warning_holds_no_path(project: Callable[[str], Path], tmp_path: Path) -> None:
    project("row")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ldpsql.perturb(["Lima"], CITY)
    assert str(tmp_path) not in json.dumps([str(one.message) for one in caught])


def test_an_expression_of_polars_refuses_a_value_in_the_words_of_ldpsql() -> None:
    message = r"\A\[LDP302\] column 'city': [^\[]*\. Hint: add it, or write outside := 'as:VALUE' in the mechanism\.\Z"
    for frame in (PEOPLE, PEOPLE.lazy()):
        with pytest.raises(OutsideDomain, match=message):
            frame.select(pl.col("city").ldp.perturb("krr(1, ['Lima', 'Rome'])")).lazy().collect()  # type: ignore[attr-defined]
