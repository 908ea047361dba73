"""A connection with a ledger draws only what a release was charged for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from duckdb import DuckDBPyConnection

import ldpsql
from ldpsql import Charge, Key
from ldpsql.errors import BudgetExceeded, LedgerDamaged, LedgerMissing, NotReleased, UnknownName
from ldpsql.ledger import Ledger, Policy

PERTURB = "CREATE OR REPLACE TABLE reports AS SELECT ldp.perturb(city, city()) AS city FROM people"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    Ledger.open(tmp_path / "ledger", Policy(epsilon_budget=2))
    return tmp_path / "ledger"


@pytest.fixture
def watched(path: Path) -> Iterator[DuckDBPyConnection]:
    with ldpsql.connect(ledger=path) as con:
        con.execute("CREATE MACRO city() AS ldp.krr(1.0, ['Lima', 'Oslo', 'Rome', 'Kyiv'])")
        con.execute("CREATE TABLE people AS SELECT i AS id, 'Lima' AS city FROM range(5000) t(i)")
        yield con


def refused(con: DuckDBPyConnection, sql: str = PERTURB) -> None:
    with pytest.raises(duckdb.InvalidInputException, match="LDP320"):
        con.execute(sql).fetchall()


def test_nothing_is_drawn_outside_of_a_release(watched: DuckDBPyConnection) -> None:
    refused(watched)
    refused(watched.cursor(), "SELECT ldp.perturb('Lima', city())")
    with ldpsql.release(watched, "people", {"city": "city()"}, "reports"):
        watched.execute(PERTURB)
    refused(watched)


@pytest.mark.parametrize(
    "text", ["krr('1.0', ['Lima', 'Oslo', 'Rome', 'Kyiv'])", "ldp.krr(1, ['Lima', 'Oslo', 'Rome', 'Kyiv'])"]
)
def test_a_release_reads_the_text_of_a_mechanism_as_the_rest_of_python_does(watched: DuckDBPyConnection, text: str) -> None:
    with ldpsql.release(watched, "people", {"city": text}, "reports"):
        watched.execute(PERTURB)
    refused(watched)
    with pytest.raises(UnknownName, match=r"LDP201.*town"), ldpsql.release(watched, "people", {"city": "town()"}, "reports"):
        pass


WAYS = [
    "SELECT ldp.perturb(city, MAP {0: city(), 1: city()}, id % 2) FROM people",
    "SELECT ldp.perturb(city, {'low': city()}, 'low') FROM people",
    "SELECT ldp.perturb_once(city, city(), id) FROM people",
    "SELECT ldp.perturb(city, ldp.oue(1, ['Lima', 'Oslo'])) FROM people",
    "SELECT ldp.perturb(city, ldp.olh(1, ['Lima', 'Oslo'])) FROM people",
    "SELECT ldp.perturb(MAP {'a': 0.5}, ldp.pckv_grr(1, ['a', 'b'])) FROM people",
    "SELECT ldp.perturb(MAP {'a': 0.5}, ldp.pckv_ue(1, ['a', 'b'])) FROM people",
    "SELECT ldp.perturb(city, CASE WHEN id % 2 = 0 THEN city() ELSE city() END) FROM people",
    "EXECUTE earlier",
    "EXECUTE earlier_value('Lima')",
    "FROM seen",
    "SELECT noisy('Lima')",
    "EXPLAIN ANALYZE SELECT ldp.perturb(city, city()) FROM people",
    "COPY (SELECT ldp.perturb(city, city()) FROM people) TO 'reports.csv'",
    "UPDATE people SET city = ldp.perturb(city, city())",
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ldpsql.errors.PrivacyLeakWarning")  # the view
def test_no_way_to_draw_leads_past_the_ledger(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with ldpsql.connect(key=Key.create(tmp_path / "key")) as con:
        con.execute("""
            CREATE MACRO city() AS ldp.krr(1.0, ['Lima', 'Oslo']);
            CREATE TABLE people AS SELECT i AS id, 'Lima' AS city FROM range(5) t(i);
            CREATE VIEW seen AS SELECT ldp.perturb(city, city()) FROM people;
            CREATE MACRO noisy(x) AS ldp.perturb(x, city());
            PREPARE earlier AS SELECT ldp.perturb(city, city()) FROM people;
            PREPARE earlier_value AS SELECT ldp.perturb($1::VARCHAR, city())""")
        with pytest.raises(duckdb.BinderException, match="DEFAULT value"):
            con.execute("CREATE TABLE with_default (i INTEGER, c VARCHAR DEFAULT (ldp.perturb('Lima', city())))")
        relation = con.sql("SELECT ldp.perturb(city, city()) FROM people")
        for sql in WAYS:  # without a ledger they draw
            con.execute(sql).fetchall()
        ldpsql.attach(con, ledger=path)
        for sql in WAYS:
            refused(con, sql)
        for sql in WAYS[10:]:
            refused(con.cursor(), sql)
        with pytest.raises(duckdb.InvalidInputException, match="LDP320"):
            relation.fetchall()
        con.execute("SELECT system.main.__ldp_draws(system.main.__ldp_mechanism(city()), ldp._guard())").fetchall()
        refused(con, "SELECT system.main.__ldp_perturb('Lima', -1::BIGINT)")  # what __ldp_draws may have given
        for handle in ("-1000000", "1000000", "NULL", "-9223372036854775807"):
            with pytest.raises(duckdb.InvalidInputException, match="LDP103"):
                con.execute(f"SELECT system.main.__ldp_perturb('Lima', ({handle})::BIGINT)")


def test_a_bulk_run_must_charge_the_ledger_of_its_connection(watched: DuckDBPyConnection, path: Path, tmp_path: Path) -> None:
    columns = {"city": "krr(epsilon=1, domain=['Lima', 'Oslo', 'Rome', 'Kyiv'])"}
    other = Ledger.open(tmp_path / "other", Policy(epsilon_budget=9))
    for charge in (None, Charge(other, "people")):
        with pytest.raises(NotReleased, match="its own ledger"):
            ldpsql.perturb_table(watched, "people", "reports", columns, charge=charge)
        with pytest.raises(NotReleased, match="its own ledger"):
            ldpsql.perturb_copy(watched, "people", tmp_path / "reports.parquet", columns, charge=charge)
    ldpsql.perturb_table(watched, "people", "reports", columns, charge=Charge(Ledger.open(path), "people"))
    assert [row["state"] for row in Ledger.open(path).history()] == ["published"]
    assert other.history() == []


@pytest.mark.parametrize("compared", ["nullif({}, 'Lima')", "CASE {} WHEN 'Lima' THEN 1 WHEN 'Oslo' THEN 2 END"])
def test_a_comparison_that_duckdb_makes_two_of_draws_twice_and_is_counted(watched: DuckDBPyConnection, compared: str) -> None:
    with ldpsql.release(watched, "people", {"city": "city()"}, "reports"):
        refused(watched, f"SELECT {compared.format('ldp.perturb(city, city())')} FROM people")


def test_a_release_draws_each_row_once(watched: DuckDBPyConnection) -> None:
    with ldpsql.release(watched, "people", {"city": "city()"}, "reports"):
        watched.execute(PERTURB)
        refused(watched, "SELECT ldp.perturb('Lima', city())")
    with ldpsql.release(watched, "people", {"city": "city()"}, "other"):
        refused(watched, "SELECT ldp.perturb(city, city()) FROM people, range(2)")


def test_draws_that_a_release_leaves_end_with_it(watched: DuckDBPyConnection) -> None:
    with ldpsql.release(watched, "people", {"city": "city()"}, "reports"):
        watched.execute(f"{PERTURB} LIMIT 100")
    refused(watched, f"{PERTURB} LIMIT 1")


def test_a_release_draws_no_other_mechanism(watched: DuckDBPyConnection) -> None:
    with ldpsql.release(watched, "people", {"city": "city()"}, "reports"):
        refused(watched, "SELECT ldp.perturb(city, ldp.krr(2.0, ['Lima', 'Oslo', 'Rome', 'Kyiv'])) FROM people")


def test_a_release_is_charged_before_it_draws_and_published_after(watched: DuckDBPyConnection, path: Path) -> None:
    with ldpsql.release(watched, "people", {"city": "city()"}, "reports"):
        assert [row["state"] for row in Ledger.open(path).history()] == ["charged"]
        watched.execute(PERTURB)
    assert [row["state"] for row in Ledger.open(path).history()] == ["published"]
    with pytest.raises(ZeroDivisionError), ldpsql.release(watched, "people", {"city": "city()"}, "elsewhere"):
        raise ZeroDivisionError
    assert [row["state"] for row in Ledger.open(path).history()] == ["published", "returned"]


def test_a_release_that_is_rolled_back_stays_published_and_spent(watched: DuckDBPyConnection, path: Path) -> None:
    watched.execute("BEGIN")
    with ldpsql.release(watched, "people", {"city": "city()"}, "reports"):
        watched.execute(PERTURB)
    watched.execute("ROLLBACK")
    assert watched.execute("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'reports'").fetchall() == [(0,)]
    assert [(row["state"], row["epsilon"]) for row in Ledger.open(path).history()] == [("published", "1")]
    assert Ledger.open(path).balances()[0].spent == "1"


def test_a_release_again_is_stored_and_draws_nothing(watched: DuckDBPyConnection) -> None:
    with ldpsql.release(watched, "people", {"city": "city()"}, "reports"):
        watched.execute(PERTURB)
    with ldpsql.release(watched, "people", {"city": "city()"}, "reports") as release:
        assert release.stored
        refused(watched)


def test_the_budget_ends(watched: DuckDBPyConnection) -> None:
    for destination in ("one", "two"):
        with ldpsql.release(watched, "people", {"city": "city()"}, destination):
            watched.execute(PERTURB)
    with pytest.raises(BudgetExceeded), ldpsql.release(watched, "people", {"city": "city()"}, "three"):
        watched.execute(PERTURB)
    rows = watched.execute("SELECT dataset, spent, remaining FROM ldp.budget()").fetchall()
    assert rows == [("memory.main.people", "2", "0")]


def test_one_release_at_a_time(watched: DuckDBPyConnection) -> None:
    with (
        ldpsql.release(watched, "people", {"city": "city()"}, "one"),
        pytest.raises(NotReleased, match="another release is open"),
        ldpsql.release(watched, "people", {"city": "city()"}, "two"),
    ):
        pass


def test_attaching_again_does_not_take_the_ledger_off(watched: DuckDBPyConnection) -> None:
    ldpsql.attach(watched)
    refused(watched)
    ldpsql.attach(watched, name="other")  # another catalog is another way in, and says so by its name
    watched.execute("SELECT other.perturb('Lima', city())")


@pytest.mark.parametrize("keyed", [False, True])
def test_a_transaction_that_was_open_when_the_ledger_was_attached_draws_nothing(
    path: Path, tmp_path: Path, *, keyed: bool
) -> None:
    draws = (
        "SELECT ldp.perturb(city, city()) FROM people",
        "SELECT ldp.perturb(city, {'low': city()}, 'low') FROM people",
        "SELECT ldp.perturb_once(city, city(), city) FROM people",
    )[: 3 if keyed else 2]
    with ldpsql.connect(key=Key.create(tmp_path / "key") if keyed else None) as con:
        con.execute("CREATE MACRO city() AS ldp.krr(1.0, ['Lima', 'Oslo']); CREATE TABLE people AS SELECT 'Lima' AS city")
        open_before = [con.cursor() for _ in draws]
        for cursor, sql in zip(open_before, draws, strict=True):
            cursor.execute("BEGIN")
            assert len(cursor.execute(sql).fetchall()) == 1
        ldpsql.attach(con, ledger=path)
        for cursor, sql in zip(open_before, draws, strict=True):
            refused(cursor, sql)
            cursor.execute("ROLLBACK")
        for cursor, sql in zip(open_before, draws, strict=True):
            cursor.execute("BEGIN")
            refused(cursor, sql)
            cursor.execute("ROLLBACK")
        with ldpsql.release(con, "people", {"city": "city()"}, "reports"):
            con.execute(draws[0])
    assert [row["state"] for row in Ledger.open(path).history()] == ["published"]


def test_users_are_charged_where_they_are_the_unit(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "users", Policy(epsilon_budget=2, privacy_unit="id"))
    with ldpsql.connect(ledger=ledger) as con:
        con.execute("CREATE TABLE visits AS SELECT i % 3 AS id, 'a' AS city FROM range(5) t(i)")
        with ldpsql.release(con, "visits", {"city": "ldp.krr(1, ['a', 'b'])"}, "reports"):
            con.execute("SELECT ldp.perturb(city, ldp.krr(1, ['a', 'b'])) FROM visits").fetchall()
        assert con.execute("SELECT people, spent FROM ldp.budget()").fetchall() == [(3, "2")]


def test_a_release_is_of_the_table_that_its_statements_read(watched: DuckDBPyConnection) -> None:
    watched.execute(
        "CREATE SCHEMA other; CREATE MACRO other.city() AS ldp.krr(0.5, ['Lima', 'Oslo', 'Rome', 'Kyiv']); USE other"
    )
    watched.execute("CREATE TABLE people AS SELECT 'Lima' AS city FROM range(3)")
    with ldpsql.release(watched, "people", {"city": "city()"}, "reports"):
        refused(watched, "SELECT ldp.perturb(city, city()) FROM main.people")  # 5000 rows, of which 3 are charged for,
        refused(watched, "SELECT ldp.perturb(city, city()) FROM people, range(2)")  # or 6 that are drawn at once
        watched.execute(PERTURB)
    assert watched.sql("SELECT count(*) FROM other.reports").fetchall() == [(3,)]


DRAWN = "SELECT ldp.perturb(city, city()) AS city FROM"
UNSEEN: dict[str, list[str] | None] = {
    f"EXPLAIN ANALYZE CREATE TABLE stolen AS {DRAWN} others": None,
    f"explain (analyze, format json) {DRAWN} others": None,
    f"/* EXPLAIN */ EXPLAIN ANALYZE INSERT INTO stored {DRAWN} others": None,
    f"EXPLAIN (FORMAT json /* ) SELECT 1 -- */, ANALYZE) {DRAWN} others": None,
    f"SELECT 1; EXPLAIN ANALYZE COPY ({DRAWN} others) TO 'stolen.parquet'": None,
    f"{DRAWN} query_table(?)": ["others"],
    f"{DRAWN} query_table(coalesce(?, 'people'))": ["others"],
    "FROM ldp.perturb_rows(coalesce(?, 'people'), {city: city()})": ["others"],
    f"{DRAWN} read_parquet(?)": ["others.parquet"],
    f"{DRAWN} query_table(getvariable('t'))": None,
    f"{DRAWN} query('FROM ' || coalesce(getvariable('t'), 'people'))": None,
    f"{DRAWN} json_execute_serialized_sql(coalesce(getvariable('q'), json_serialize_sql('FROM people')))": None,
    f"{DRAWN} named(_chosen())": None,
    "EXECUTE earlier": None,
    f"INSERT INTO fleeting {DRAWN} others": None,
    f"CREATE TEMP TABLE People AS FROM others; {DRAWN} people": None,
    f"CREATE TEMP VIEW people AS FROM others; CREATE TABLE reports AS {DRAWN} people": None,
    "CREATE TEMP TABLE people AS FROM others; FROM ldp.perturb_rows(people, {city: city()})": None,
    f"CREATE TEMP TABLE of_lima AS FROM others; {DRAWN} of_lima": None,
    f"BEGIN; CREATE TABLE uncommitted AS FROM others; {DRAWN} uncommitted": None,
}


@pytest.mark.parametrize("sql", UNSEEN)
def test_a_release_draws_nothing_of_which_nobody_can_see_what_it_reads(
    watched: DuckDBPyConnection, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sql: str
) -> None:
    monkeypatch.chdir(tmp_path)
    watched.execute(f"""
        CREATE TABLE others AS FROM people LIMIT 10; CREATE TABLE stored (city TEXT); CREATE TEMP TABLE fleeting (city TEXT);
        COPY others TO 'others.parquet'; SET VARIABLE t = 'others'; PREPARE earlier AS {DRAWN} others;
        SET VARIABLE q = json_serialize_sql('FROM others');
        CREATE VIEW of_lima AS FROM people WHERE city = 'Lima';
        CREATE MACRO _chosen() AS coalesce(getvariable('t'), 'people'); CREATE MACRO named(t) AS TABLE FROM query_table(t)""")
    with (
        pytest.raises(duckdb.InvalidInputException, match="LDP320"),
        ldpsql.release(watched, "people", {"city": "city()"}, "reports"),
    ):
        watched.execute(sql, UNSEEN[sql]).fetchall()
    assert [row["state"] for row in Ledger.open(path).history()] == ["returned"]


def test_a_release_reads_its_dataset_with_parameters_and_variables_that_are_no_names(watched: DuckDBPyConnection) -> None:
    watched.execute("SET VARIABLE most = 20; CREATE TEMP TABLE city AS FROM people; CREATE TEMP VIEW reports AS FROM people")
    with ldpsql.release(watched, "people", {"city": "city()"}, "reports"):
        assert len(watched.execute(f"{DRAWN} people WHERE id < ?", [10]).fetchall()) == 10
        assert len(watched.execute(f"{DRAWN} people WHERE id < getvariable('most')").fetchall()) == 20
        watched.execute(f"EXPLAIN ANALYZE CREATE TABLE reports AS {DRAWN} people WHERE id < 30")


def test_without_a_ledger_there_is_no_release(con: DuckDBPyConnection) -> None:
    with pytest.raises(NotReleased), ldpsql.release(con, "people", {"city": "city()"}, "reports"):
        pass
    with pytest.raises(duckdb.InvalidInputException, match="LDP320"):
        con.execute("FROM ldp.budget()")


def test_a_ledger_that_fails_lets_nothing_out(watched: DuckDBPyConnection, path: Path) -> None:
    path.write_bytes(b"")
    with pytest.raises(LedgerDamaged), ldpsql.release(watched, "people", {"city": "city()"}, "reports"):
        watched.execute(PERTURB)
    refused(watched)
    path.unlink()
    with pytest.raises(LedgerMissing):
        ldpsql.connect(ledger=path)


def test_threads_share_one_allowance(watched: DuckDBPyConnection) -> None:
    drawn: list[int] = []

    def draw(cursor: DuckDBPyConnection) -> None:
        for _ in range(30):
            try:
                drawn.append(len(cursor.execute("SELECT ldp.perturb(city, city()) FROM people LIMIT 100").fetchall()))
            except duckdb.InvalidInputException:
                return

    with ldpsql.release(watched, "people", {"city": "city()"}, "reports"):
        threads = [threading.Thread(target=draw, args=(watched.cursor(),)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert 0 < sum(drawn) <= 5000


def test_a_release_inside_of_another_is_refused_before_it_is_charged(watched: DuckDBPyConnection, path: Path) -> None:
    def more() -> None:
        with ldpsql.release(watched, "people", {"city": "city()"}, "more"):
            pass

    with ldpsql.release(watched, "people", {"city": "city()"}, "reports"), pytest.raises(NotReleased, match="open"):
        more()
    assert len(Ledger.open(path).history()) == 1
