"""``ldp.perturb_rows``: whole tables in SQL, drawn in lists, with the rows in random order."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from duckdb import DuckDBPyConnection

import ldpsql
from ldpsql.bulk.writing import shuffling
from ldpsql.bulk.writing.shuffling import random_order
from ldpsql.ledger import Ledger, Policy
from ldpsql.mechanisms.sampling import plausible
from ldpsql.sql.drawing import Drawing, Draws
from ldpsql.sql.lint import lint
from ldpsql.sql.scripts import lint_files

ROWS = 3_000
SURE = "ldp.krr(32, range(3000))"  # keeps all but one value in 10^10


@pytest.fixture
def con(con: DuckDBPyConnection) -> DuckDBPyConnection:
    con.execute(
        f"""CREATE TABLE people AS SELECT i AS id, 'region ' || (i % 7) AS region, ['Lima', 'Oslo'][1 + i % 2] AS city, i AS n
            FROM range({ROWS}) t(i)"""
    )
    con.execute("CREATE MACRO town() AS ldp.krr(1, ['Lima', 'Oslo', 'Rome'])")
    con.execute(f"CREATE MACRO n() AS {SURE}")
    return con


@pytest.mark.filterwarnings("ignore::ldpsql.errors.PrivacyLeakWarning")
@pytest.mark.parametrize("threads", [1, 2])
def test_reports_stay_in_their_rows_and_the_rows_come_in_another_order(con: DuckDBPyConnection, threads: int) -> None:
    con.execute(f"SET threads = {threads}")
    query = "FROM ldp.perturb_rows(people, {n: n(), city: town()}, keep := ['region', 'id'])"
    rows = con.execute(f"SELECT n, id, region, city FROM ({query})").fetchall()
    assert [(i, i, f"region {i % 7}") for i in range(ROWS)] == sorted(row[:3] for row in rows)
    assert {row[3] for row in rows} == {"Lima", "Oslo", "Rome"}
    assert [row[1] for row in rows] != list(range(ROWS))
    assert [name for name, *_ in con.execute(query).description or ()] == ["n", "city", "id", "region"]


@pytest.mark.filterwarnings("ignore::ldpsql.errors.PrivacyLeakWarning")
def test_every_order_of_rows_is_as_likely_as_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shuffling, "BUCKET_ROWS", 2)  # so that four rows need several buckets,
    monkeypatch.setattr(shuffling, "BLOCK_ROWS", 3)  # and several blocks
    draws = 1_000
    seen = Counter(tuple(random_order(4).tolist()) for _ in range(draws))
    counts = np.array(list(seen.values()))
    assert len(seen) == 24
    assert plausible(counts, draws, np.full(24, 1 / 24), 1e-6)


def test_many_rows_are_ordered_without_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shuffling, "BLOCK_ROWS", shuffling.BUCKET_ROWS)
    order = random_order(3 * shuffling.BUCKET_ROWS + 5)
    assert (np.sort(order) == np.arange(len(order))).all()
    assert abs(np.corrcoef(order, np.arange(len(order)))[0, 1]) < 5 / np.sqrt(len(order))


def test_reports_follow_the_channel(con: DuckDBPyConnection) -> None:
    rows = 60_000
    con.execute(f"CREATE TABLE cities AS SELECT 'Lima' AS city FROM range({rows})")
    counts = dict(con.execute("SELECT city, count(*) FROM ldp.perturb_rows(cities, {city: town()}) GROUP BY 1").fetchall())
    keep = np.e / (np.e + 2)
    expected = np.array([keep, (1 - keep) / 2, (1 - keep) / 2])
    assert plausible(np.array([counts[c] for c in ("Lima", "Oslo", "Rome")]), rows, expected, 1e-6)


@pytest.mark.parametrize(
    ("mechanism", "kind"),
    [
        ("ldp.oue(1, ['Lima', 'Oslo'])", "UBIGINT[]"),
        ("ldp.olh(1, ['Lima', 'Oslo'])", "STRUCT(seed UBIGINT, y UINTEGER)"),
        ("ldp.krr(1, ['Lima', 'Oslo']::ENUM('Oslo', 'Lima')[])", "ENUM('Oslo', 'Lima')"),
        ("'krr(1, [''Lima'', ''Oslo''])'", "VARCHAR"),
    ],
)
def test_all_forms_of_reports_are_drawn(con: DuckDBPyConnection, mechanism: str, kind: str) -> None:
    query = f"SELECT typeof(city), count(*) FROM ldp.perturb_rows(people, {{city: {mechanism}}}) GROUP BY 1"
    assert con.execute(query).fetchall() == [(kind, ROWS)]


def test_sets_of_pairs_and_decimals_are_drawn(con: DuckDBPyConnection) -> None:
    con.execute("CREATE TABLE sets AS SELECT [{'key': 'a', 'value': 1.0}] AS pairs, 1.5 AS d FROM range(50)")
    mechanisms = "{pairs: ldp.pckv_grr(2, ['a', 'b'], padding := 1), d: ldp.krr(1, [1.5, 2.5])}"
    query = f"SELECT DISTINCT typeof(pairs), typeof(d) FROM ldp.perturb_rows(sets, {mechanisms})"
    assert con.execute(query).fetchall() == [('STRUCT("key" VARCHAR, sign TINYINT)', "DECIMAL(2,1)")]


def test_views_files_and_frames_are_read(con: DuckDBPyConnection, tmp_path: Path) -> None:
    frame = pl.DataFrame({"city": ["Lima"] * 9})
    arrow = pa.table({"city": ["Lima"] * 9})
    con.execute("CREATE VIEW nine AS SELECT city FROM people LIMIT 9")
    con.execute(f"COPY nine TO '{tmp_path}/nine.parquet'")
    for source in ("nine", f"'{tmp_path}/nine.parquet'", "frame", "arrow"):
        assert con.execute(f"SELECT count(city) FROM ldp.perturb_rows({source}, {{city: town()}})").fetchall() == [(9,)]
    assert len(frame) == arrow.num_rows


def test_no_row_and_one_row(con: DuckDBPyConnection) -> None:
    con.execute("CREATE TABLE few AS FROM people LIMIT 1")
    query = "FROM ldp.perturb_rows(few, {city: town()}, keep := ['id'])"
    assert [row[1] for row in con.execute(query).fetchall()] == [0]
    con.execute("DELETE FROM few")
    assert con.execute(query).fetchall() == []


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("ldp.perturb_rows(people, {city: town()}, keep := ['CITY'])", "LDP103"),
        ("ldp.perturb_rows(people, {city: town()}, keep := ['id', 'nobody'])", "LDP103"),
        ("ldp.perturb_rows(people, {city: town()}, keep := ['id', 'id'])", "LDP103"),
        (
            "ldp.perturb_rows(people, {id: n(), n: n(), city: town(), a: n(), b: n(), c: n(), d: n()})",
            "LDP201",
        ),
        ("ldp.perturb_rows(people, {city: ldp.krr(1, ['Lima', 'Rome'])})", "LDP302"),
        ("ldp.perturb_rows((SELECT 'Lima' AS city UNION ALL SELECT NULL), {city: town()})", "LDP|Parser|Binder"),
        ("ldp.perturb_rows(holes, {city: town()})", "LDP303"),
        ("ldp.perturb_rows(people, {nobody: town()})", r"LDP201\] there is no column named 'nobody'"),
        ("ldp.perturb_rows(people, {city: town(), Regoin: town()})", r"'regoin'\. Hint: did you mean 'region'"),
        ("ldp.perturb_rows(people, town())", r"LDP103\] this is a mechanism, not a struct"),
        ("ldp.perturb_rows(people, {city: NULL})", "LDP104"),
        ("ldp.perturb_rows(people, {city: town()}, keep := NULL)", "LDP103"),
    ],
)
def test_what_cannot_be_perturbed_is_refused_without_a_value(con: DuckDBPyConnection, query: str, code: str) -> None:
    con.execute("CREATE TABLE holes AS SELECT CASE WHEN i > 0 THEN 'Lima' END AS city FROM range(5) t(i)")
    with pytest.raises(Exception, match=code) as refused:
        con.execute(f"FROM {query}").fetchall()
    assert "region 3" not in str(refused.value)


@pytest.mark.parametrize("keep", ["['nobody']", "['region', 'Region']", "['city']", "[NULL]", "NULL"])
def test_columns_that_cannot_be_kept_are_refused_before_a_row_is_read(con: DuckDBPyConnection, keep: str) -> None:
    con.execute("CREATE VIEW failing AS SELECT city, error('a row was read') AS region FROM people")
    with pytest.raises(duckdb.Error, match="LDP103"):
        con.execute(f"EXPLAIN FROM ldp.perturb_rows(failing, {{city: town()}}, keep := {keep})")


def test_more_columns_than_places_are_refused(con: DuckDBPyConnection) -> None:
    con.execute("CREATE TABLE wide AS SELECT 1 AS a, 1 AS b, 1 AS c, 1 AS d, 1 AS e, 1 AS f, 1 AS g")
    columns = ", ".join(f"{name}: ldp.krr(1, range(3))" for name in "abcdefg")
    with pytest.raises(Exception, match="at most 6"):
        con.execute(f"FROM ldp.perturb_rows(wide, {{{columns}}})").fetchall()
    columns = ", ".join(f"{name}: ldp.krr(1, range(3))" for name in "abcdef")
    assert len(con.execute(f"FROM ldp.perturb_rows(wide, {{{columns}}}, keep := ['g'])").fetchall()[0]) == 7


def test_a_null_is_drawn_by_its_rule(con: DuckDBPyConnection) -> None:
    con.execute("CREATE TABLE holes AS SELECT NULL::VARCHAR AS city FROM range(5)")
    rule = "ldp.krr(1, ['Lima', 'Rome'], nulls := 'as:Lima')"
    assert con.execute(f"SELECT count(city) FROM ldp.perturb_rows(holes, {{city: {rule}}})").fetchall() == [(5,)]


def test_a_ledger_lets_only_a_release_draw(con: DuckDBPyConnection, tmp_path: Path) -> None:
    Ledger.open(tmp_path / "ledger", Policy(epsilon_budget=2))
    ldpsql.attach(con, ledger=tmp_path / "ledger")
    query = "CREATE OR REPLACE TABLE r AS FROM ldp.perturb_rows(people, {city: town()}, keep := ['region'])"
    with pytest.raises(Exception, match="LDP320"):
        con.execute(query)
    with ldpsql.release(con, "people", {"city": "town()"}, "r"):
        con.execute(query)
        with pytest.raises(Exception, match="LDP320"):  # each row once
            con.execute(query)


def test_names_of_columns_do_not_meet_those_of_the_macro(con: DuckDBPyConnection) -> None:
    names = ["keep", "columns", "t", "x", "m", "c", "places", "name"]
    con.execute(f"CREATE TABLE odd AS SELECT {', '.join(f'city AS {name}' for name in names)} FROM people LIMIT 9")
    rows = con.execute(f"FROM ldp.perturb_rows(odd, {{x: town()}}, keep := {[n for n in names if n != 'x']})").fetchall()
    assert all(len(set(row[1:])) == 1 for row in rows)
    assert len(rows) == 9


def test_lint_knows_that_it_perturbs_and_that_the_order_is_random(con: DuckDBPyConnection, tmp_path: Path) -> None:
    call = "FROM ldp.perturb_rows(people, {city: town()})"
    assert Drawing.of_registry().of(call) is Draws.REPORTS
    files = {
        "stored": f"CREATE TABLE r AS {call};",
        "view": f"CREATE VIEW r AS {call};",
        "macro": f"CREATE MACRO r() AS TABLE {call};",
    }
    for name, sql in files.items():
        (tmp_path / f"{name}.sql").write_text(sql)
    found = {Path(place.file).stem for place in lint_files([tmp_path])}
    assert found == {"view", "macro"}
    con.execute(f"CREATE VIEW redrawn AS {call}")
    assert [finding.name for finding in lint(con)] == ["main.redrawn"]


@pytest.mark.parametrize("name", ["_ldpsql_places", "_ldpsql_count", "_LDPSQL_places", "_ldpsql_x"])
def test_a_column_with_a_name_that_the_macro_uses_is_not_kept(con: DuckDBPyConnection, name: str) -> None:
    con.execute(f"CREATE TABLE hostile AS SELECT 'Lima' AS city, i::INTEGER AS {name} FROM range(1, 300) t(i)")
    with pytest.raises(duckdb.Error, match="LDP103"):
        con.execute(f"FROM ldp.perturb_rows(hostile, {{city: town()}}, keep := ['{name}'])").fetchall()
    assert len(con.execute("FROM ldp.perturb_rows(hostile, {city: town()})").fetchall()) == 299
