"""The SQL surface, on a real DuckDB."""

from __future__ import annotations

import threading
from itertools import cycle
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from duckdb import DuckDBPyConnection

import ldpsql
from ldpsql.errors import ConnectionRefused, PrivacyLeakWarning
from ldpsql.functions import once_a_run, registry

CITIES = ["Lima", "Oslo", "Rome", "Kyiv"]
ESTIMATORS = sorted(
    name
    for name in registry().estimators.keys() - {"ems"}  # cities have no neighbours to smooth over
    if not registry().estimator(name).needs_groups
)

KINDS = ["ibu", "inv", "best", "uniform"]  # one of each base: tests/laws/test_roads.py takes every estimator along these roads

# SQL type -> two values of it, and the domain
TYPES = {
    "VARCHAR": ("'a'", "['a', 'b', 'c']"),
    "ENUM('a', 'b', 'c')": ("'a'", "['a', 'b', 'c']::ENUM('a', 'b', 'c')[]"),
    "TINYINT": ("1", "[1, 2, 3]::TINYINT[]"),
    "INTEGER": ("1", "[1, 2, 3]"),
    "BIGINT": ("1", "[1, 2, 3]::BIGINT[]"),
    "HUGEINT": ("1", "[1, 2, 3]::HUGEINT[]"),
    "DECIMAL(4,2)": ("1.25", "[1.25, 2.5]::DECIMAL(4,2)[]"),
    "DOUBLE": ("1.5", "[1.5, 2.5]::DOUBLE[]"),
    "BOOLEAN": ("true", "[true, false]"),
    "DATE": ("'2020-01-01'", "[DATE '2020-01-01', DATE '2021-01-01']"),
    "TIMESTAMP": ("'2020-01-01'", "[TIMESTAMP '2020-01-01', TIMESTAMP '2021-01-01']"),
}


def fill(con: DuckDBPyConnection, rows: int = 8000) -> None:
    con.execute(
        f"""CREATE TABLE people AS
            SELECT ['north', 'south'][1 + i % 2] AS region, ['Lima', 'Oslo', 'Rome', 'Kyiv'][1 + least(3, i % 7)] AS city
            FROM range({rows}) t(i)"""
    )
    con.execute("CREATE TABLE reports AS SELECT region, ldp.perturb(city, city()) AS city FROM people")


def one(con: DuckDBPyConnection, sql: str, parameters: object = None) -> Any:
    rows = con.execute(sql, parameters).fetchall()  # no result stays open
    return rows[0][0]


def error_of(con: DuckDBPyConnection, sql: str) -> str:
    with pytest.raises(duckdb.Error) as caught:
        con.execute(sql).fetchall()
    message = str(caught.value)
    assert message.count("\n") <= 1, message  # what DuckDB says, then the sentence
    assert "Traceback" not in message
    return message


# --- perturbing ---


@pytest.mark.parametrize("sql_type", TYPES)
def test_reports_and_estimates_keep_the_type_of_the_domain(con: DuckDBPyConnection, sql_type: str) -> None:
    value, domain = TYPES[sql_type]
    con.execute(f"CREATE TABLE t AS SELECT {value}::{sql_type} AS x FROM range(3000)")
    con.execute(f"CREATE MACRO m() AS ldp.krr(4, {domain})")
    con.execute("CREATE TABLE r AS SELECT ldp.perturb(x, m()) AS x FROM t")
    assert con.execute("SELECT DISTINCT typeof(x) FROM r").fetchall() == [(sql_type,)]
    rows = con.execute("SELECT unnest(ldp.ibu(x, m()), recursive := true) FROM r")
    assert [str(rows.description[0][1])] == [str(con.sql("SELECT x FROM t").types[0])]
    shares = rows.fetchall()
    assert shares[0][1] > 0.9
    # reports of the mechanism come from its alphabet, and lying happens: 1-(e^4/(e^4+2))^3000 misses with probability e^-54
    assert one(con, "SELECT count(DISTINCT x) FROM r") == len(shares)


def test_every_row_and_every_call_draws_a_new_report_and_only_one(con: DuckDBPyConnection) -> None:
    con.execute("CREATE MACRO coin() AS ldp.krr(0.000001, [0, 1])")
    twice = con.execute("SELECT ldp.perturb(0, coin()) AS a, ldp.perturb(0, coin()) AS b FROM range(1000)").fetchall()
    assert {(0, 0), (0, 1), (1, 0), (1, 1)} == set(twice)  # each missing with probability (3/4)^1000
    # a report used twice in one row is one draw
    rows = con.execute("SELECT r, r FROM (SELECT ldp.perturb(0, coin()) AS r FROM range(1000))").fetchall()
    assert all(a == b for a, b in rows)


def test_a_mechanism_can_be_a_macro_a_variable_or_a_parameter(con: DuckDBPyConnection) -> None:
    con.execute("SET VARIABLE m = city()")
    assert one(con, "SELECT ldp.perturb('Lima', getvariable('m'))") in CITIES
    spec = one(con, "SELECT city()")
    assert one(con, "SELECT ldp.perturb('Lima', $m)", {"m": spec}) in CITIES


def test_the_same_macro_in_two_cursors_and_eight_threads_gives_the_right_counts(con: DuckDBPyConnection) -> None:
    fill(con)
    errors: list[float] = []

    def work() -> None:
        cursor = con.cursor()
        cursor.execute("CREATE TEMP TABLE mine AS SELECT ldp.perturb(city, city()) AS city FROM people")
        shares = one(cursor, "SELECT ldp.inv(city, city()) FROM mine")
        errors.extend((s["estimate"] - t) / s["std_error"] for s, t in zip(shares, [1 / 7, 1 / 7, 1 / 7, 4 / 7], strict=True))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) == 32
    assert max(map(abs, errors)) < 5.5  # 32 values beyond that many standard errors: 1e-6


# --- estimating ---


@pytest.mark.parametrize("name", KINDS)
def test_an_aggregate_works_under_group_by_rollup_and_having(con: DuckDBPyConnection, name: str) -> None:
    fill(con)
    grouped = con.execute(f"SELECT region, ldp.{name}(city, city()) FROM reports GROUP BY ROLLUP (region)").fetchall()
    assert {row[0] for row in grouped} == {"north", "south", None}
    for _, shares in grouped:
        assert [share["value"] for share in shares] == CITIES
        assert sum(share["estimate"] for share in shares) == pytest.approx(1)
    total = dict(grouped)[None]
    assert total == one(con, f"SELECT ldp.{name}(city, city()) FROM reports")
    kept = con.execute(
        f"SELECT region FROM reports GROUP BY region HAVING ldp.{name}(city, city())[4].estimate > 0.3 ORDER BY region"
    ).fetchall()
    if name != "uniform":  # a baseline, far from the truth
        assert kept == [("north",), ("south",)]  # the true share of the fourth city is 4/7
    assert list(grouped[0][1][0]) == ["value", "estimate", "std_error", "low", "high"]


@pytest.mark.parametrize("name", KINDS)
def test_counts_filters_windows_and_tables_agree_with_the_aggregate(con: DuckDBPyConnection, name: str) -> None:
    fill(con)
    north = one(con, f"SELECT ldp.{name}(city, city()) FROM reports WHERE region = 'north'")
    for sql in (
        f"SELECT ldp.{name}(city, city(), keep := region = 'north') FROM reports",
        f"SELECT ldp.{name}(ldp.counts(city, keep := region = 'north'), city()) FROM reports",
        f"SELECT ldp.{name}(histogram(city) FILTER (WHERE region = 'north'), city()) FROM reports",
        f"SELECT ldp.{name}(map(list(city), list(n)), city()) FROM "
        "(SELECT city, count(*) AS n FROM reports WHERE region = 'north' GROUP BY city)",
        f"SELECT DISTINCT ldp.{name}(histogram(city) OVER (PARTITION BY region), city()) FROM reports QUALIFY region = 'north'",
    ):
        assert one(con, sql) == north, sql
    con.execute("CREATE VIEW only_north AS FROM reports WHERE region = 'north'")
    rows = con.execute(f"FROM ldp.estimate(only_north, city, city(), estimator := '{name}')").fetchall()
    assert [row[:5] for row in rows] == [tuple(share.values()) for share in north]
    assert {row[5] for row in rows} == {4000}
    by = con.execute(f"FROM ldp.estimate(reports, city, city(), by := region, estimator := '{name}') WHERE region = 'north'")
    assert [row[1:6] for row in by.fetchall()] == [tuple(share.values()) for share in north]


def test_equal_neighbours_are_estimated_once() -> None:
    seen = []

    @once_a_run
    def lengths(maps: pa.Array, handles: pa.Array) -> pa.Array:
        seen.append(maps.to_pylist())
        return pa.array([handle.as_py() for handle in handles])

    a, b, reordered, none = [("x", 1), ("y", 2)], [("x", 1), ("y", 3)], [("y", 2), ("x", 1)], None
    rows = [a, a, b, b, reordered, none, none, [], [], a, a]
    maps = pa.chunked_array([pa.array(rows, pa.map_(pa.string(), pa.uint64()))])
    handles = pa.chunked_array([pa.array([0] * 10 + [1])])
    assert lengths(maps, handles).to_pylist() == handles.to_pylist()
    assert seen == [[a, b, reordered, none, none, [], [], a, a]]  # the last one has another handle


def test_estimates_read_tables_parquet_polars_arrow_and_ctes(con: DuckDBPyConnection, tmp_path: Path) -> None:
    fill(con)
    expected = con.execute("FROM ldp.estimate(reports, city, city())").fetchall()
    con.execute(f"COPY reports TO '{tmp_path}/reports.parquet'")
    polars_frame = con.sql("FROM reports").pl()
    lazy_frame = polars_frame.lazy()
    arrow_table = con.sql("FROM reports").to_arrow_table()
    assert (polars_frame.height, arrow_table.num_rows) == (8000, 8000)
    assert lazy_frame.select(pl.len()).collect().item() == 8000
    for source in (f"'{tmp_path}/reports.parquet'", "polars_frame", "lazy_frame", "arrow_table"):
        assert con.execute(f"FROM ldp.estimate({source}, city, city())").fetchall() == expected, source
    with_cte = "WITH r AS (SELECT city AS code FROM reports) FROM ldp.estimate(r, code, city())"
    assert con.execute(with_cte).fetchall() == expected
    in_polars = ldpsql.estimate(polars_frame["city"], "krr(1, ['Lima', 'Oslo', 'Rome', 'Kyiv'])")
    assert in_polars.estimate.tolist() == [row[1] for row in expected]


def test_options_reach_the_estimator(con: DuckDBPyConnection) -> None:
    fill(con)
    narrow = one(con, "SELECT ldp.ibu(city, city(), confidence := 0.6) FROM reports")
    wide = one(con, "SELECT ldp.ibu(city, city(), confidence := 0.999) FROM reports")
    assert all(a["low"] > b["low"] and a["high"] < b["high"] for a, b in zip(narrow, wide, strict=True))
    stepped = one(con, "SELECT ldp.diagnose(city, city(), estimator := 'ibu(stop=7)') FROM reports")
    assert (stepped["iterations"], stepped["status"]) == (7, "stopped")
    assert "LDP103" in error_of(con, "SELECT ldp.ibu(city, city(), stop := 'soon') FROM reports")
    with pytest.raises(duckdb.Error, match="did you mean 'ibu'"):  # while it is planned, so DuckDB shows the statement, too
        con.execute("FROM ldp.estimate(reports, city, city(), estimator := 'ibuu')")


def test_empty_groups_are_null_and_null_reports_are_left_out(con: DuckDBPyConnection) -> None:
    fill(con)
    assert one(con, "SELECT ldp.ibu(city, city()) FROM reports WHERE false") is None
    assert one(con, "SELECT ldp.ibu(NULL, city()) FROM reports") is None
    assert one(con, "SELECT ldp.diagnose(city, city()) FROM reports WHERE false") is None
    assert con.execute("SELECT ldp.ibu(city, city()) FROM reports WHERE false GROUP BY region").fetchall() == []
    plain = one(con, "SELECT ldp.ibu(city, city()) FROM reports")
    con.execute("INSERT INTO reports SELECT 'north', NULL FROM range(100)")
    con.execute("INSERT INTO reports SELECT 'empty', NULL FROM range(100)")
    assert one(con, "SELECT ldp.ibu(city, city()) FROM reports") == plain
    groups = dict(con.execute("SELECT region, ldp.ibu(city, city()) FROM reports GROUP BY region").fetchall())
    assert groups["empty"] is None
    assert groups["north"] is not None


def test_daily_counts_add_up_to_the_same_estimate_bit_by_bit(con: DuckDBPyConnection) -> None:
    fill(con)
    con.execute("CREATE TABLE days AS SELECT row_number() OVER () % 5 AS day, city FROM reports")
    con.execute("INSERT INTO days SELECT 9, NULL")
    con.execute("CREATE TABLE daily AS SELECT day, ldp.counts(city) AS c FROM days GROUP BY day")
    assert one(con, "SELECT ldp.counts(c) FROM daily") == one(con, "SELECT ldp.counts(city) FROM reports")
    merged = one(con, "SELECT ldp.ibu(ldp.counts(c), city()) FROM daily")
    assert merged == one(con, "SELECT ldp.ibu(city, city()) FROM reports")
    assert one(con, "SELECT ldp.counts(c) FROM daily WHERE false") is None
    kept = "SELECT ldp.counts(c, keep := day < 5) = (SELECT ldp.counts(c) FROM daily WHERE day < 5) FROM daily"
    assert one(con, kept) is True
    with pytest.raises(duckdb.Error, match="LDP403"):
        con.execute("SELECT ldp.counts(c, weight := 2) FROM daily")
    by_parity = dict(con.execute("SELECT day % 2, ldp.counts(c) FROM daily WHERE day < 5 GROUP BY 1").fetchall())
    assert sum(sum(counts.values()) for counts in by_parity.values()) == 8000


@pytest.mark.parametrize("sql_type", TYPES)
def test_counts_of_every_type_merge(con: DuckDBPyConnection, sql_type: str) -> None:
    value, domain = TYPES[sql_type]
    con.execute(f"CREATE MACRO m() AS ldp.krr(1, {domain})")
    con.execute(f"CREATE TABLE r AS SELECT i % 3 AS g, ldp.perturb({value}::{sql_type}, m()) AS x FROM range(300) t(i)")
    assert one(con, "SELECT ldp.counts(c) = (SELECT ldp.counts(x) FROM r) FROM (SELECT ldp.counts(x) AS c FROM r GROUP BY g)")


def test_many_groups_are_estimated_in_one_query(con: DuckDBPyConnection) -> None:
    con.execute("CREATE MACRO m() AS ldp.krr(1, [0, 1, 2, 3])")
    con.execute("CREATE TABLE r AS SELECT i % 20000 AS g, ldp.perturb(i % 4, m()) AS x FROM range(200000) t(i)")
    rows = con.execute(
        """SELECT count(*), count(DISTINCT g), min(s), max(s) FROM (
             SELECT g, list_sum(list_transform(ldp.ibu(x, m()), lambda e: e.estimate)) AS s
             FROM r GROUP BY g)"""
    ).fetchone()
    assert rows is not None
    assert rows[:2] == (20000, 20000)
    assert rows[2:] == pytest.approx((1, 1))


def test_diagnose_shows_how_good_the_estimate_is(con: DuckDBPyConnection) -> None:
    fill(con)
    diagnosis = one(con, "SELECT ldp.diagnose(city, city()) FROM reports")
    assert diagnosis["reports"] == 8000
    assert diagnosis["gap"] <= 1e-9
    assert (diagnosis["status"], diagnosis["unique"]) == ("certified", True)
    assert diagnosis["fit_p_value"] > 1e-9
    p, q = np.e / (np.e + 3), 1 / (np.e + 3)
    assert diagnosis["influence"] == pytest.approx(1 / (8000 * (p - q)))
    assert [share["value"] for share in diagnosis["identified"]] == CITIES
    raw = one(con, "SELECT ldp.diagnose(city, city()) FROM people")
    assert raw["fit_p_value"] < 1e-12
    assert "raw column" in raw["remedy"]
    con.execute(
        """CREATE MACRO seven() AS
           ldp.matrix([1, 2, 3], [['1/2', '1/3', '1/6'], ['1/3', '1/3', '1/3'], ['1/6', '1/3', '1/2']])"""
    )
    seven = one(con, "SELECT ldp.diagnose(x, seven()) FROM (VALUES (1), (2), (3)) t(x)")
    assert not seven["unique"]
    assert [share["high"] for share in seven["identified"]] == pytest.approx([0.5, 1, 0.5], abs=1e-7)


# --- what there is ---


def test_the_catalog_lists_the_registry(con: DuckDBPyConnection) -> None:
    assert {row[0] for row in con.execute("SELECT name FROM ldp.mechanisms()").fetchall()} == set(registry().mechanisms)
    assert {row[0] for row in con.execute("SELECT name FROM ldp.estimators()").fetchall()} == set(registry().estimators)
    description = one(con, "SELECT ldp.describe(city())")
    assert (description["mechanism"], description["claim"], description["inputs"], description["outputs"]) == (
        "krr",
        "1-LDP",
        4,
        4,
    )
    assert description["realised_epsilon"] == pytest.approx(1, abs=1e-12)


# --- refusals: one line, a code, a hint, no raw value, nothing written ---

BAD_MECHANISMS = {
    **{f"ldp.krr({e}, ['a', 'b'])": "LDP101" for e in ("0", "-1", "'nan'::DOUBLE", "'inf'::DOUBLE", "'1e3'", "1000", "''")},
    "ldp.krr(NULL, ['a', 'b'])": "LDP103",
    "ldp.krr(1, NULL)": "LDP103",
    "ldp.krr(1, ['a'])": "LDP102",
    "ldp.krr(1, [])": "LDP102",
    "ldp.krr(1, ['a', 'a'])": "LDP102",
    "ldp.krr(1, ['a', NULL])": "LDP102",
    "ldp.krr(1, []::VARCHAR[])": "LDP102",
    "ldp.krr(1, [['a'], ['b']])": "LDP102",
    "ldp.krr(1, ['a', 'b'], nulls := 'maybe')": "LDP103",
    "ldp.krr(1, ['a', 'b'], nulls := 'as:c')": "LDP103",
    "ldp.matrix(['a', 'b'], [[1, 0], [0, 1]])": "LDP301",
    "ldp.matrix(['a', 'b'], [[0.9, 0.1], [0.1, 0.9]], epsilon := 1)": "LDP301",
    "ldp.matrix(['a', 'b'], [[0.9, 0.2], [0.1, 0.9]])": "LDP103",
    "{'mechanism': 'kr', 'reports': ['a']}": "LDP201",
    "{'reports': ['a']}": "LDP104",
}


@pytest.mark.parametrize("mechanism", BAD_MECHANISMS)
def test_a_bad_mechanism_is_refused_and_nothing_is_written(con: DuckDBPyConnection, mechanism: str) -> None:
    message = error_of(con, f"CREATE TABLE r AS SELECT ldp.perturb('canary-7f3a', {mechanism}) AS x")
    assert f"[{BAD_MECHANISMS[mechanism]}]" in message
    assert "canary" not in message
    assert one(con, "SELECT count(*) FROM duckdb_tables() WHERE table_name = 'r'") == 0


BAD_VALUES = {
    "'canary-7f3a'": "LDP302",
    "NULL": "LDP303",
    "CASE WHEN i = 4999 THEN NULL ELSE 'Lima' END": "LDP303",
    "CASE WHEN i = 4999 THEN 'canary-7f3a' ELSE 'Lima' END": "LDP302",
    "'canary-7f3a'::ENUM('canary-7f3a')": "LDP302",
    "73313": "LDP304",
    "DATE '1973-03-13'": "LDP304",
    "['canary-7f3a']": "LDP304",
    "{'x': 'canary-7f3a'}": "LDP304",
    "'canary-7f3a'::BLOB": "LDP304",
}


@pytest.mark.parametrize("value", BAD_VALUES)
def test_a_value_that_must_not_be_perturbed_is_refused_without_naming_it(con: DuckDBPyConnection, value: str) -> None:
    con.execute("CREATE TABLE log (x VARCHAR)")
    message = error_of(con, f"INSERT INTO log SELECT ldp.perturb({value}, city()) FROM range(5000) t(i)")
    assert f"[{BAD_VALUES[value]}]" in message
    assert "Hint: " in message
    assert not any(canary in message for canary in ("canary", "73313", "1973"))
    assert one(con, "SELECT count(*) FROM log") == 0


BAD_REPORTS = {
    "SELECT ldp.ibu(x, city()) FROM (VALUES ('canary-7f3a')) t(x)": "LDP401",
    "SELECT ldp.ibu(x, city()) FROM (VALUES (73313)) t(x)": "LDP304",
    "SELECT ldp.ibu(x, city()) FROM (VALUES ('infinity'::DATE)) t(x)": "LDP304",
    "SELECT ldp.ibu(city, city()) FROM people": "LDP305",
    "SELECT region, ldp.inv_n(city, city()) FROM people GROUP BY region": "LDP305",
    "SELECT ldp.ibu(map(['Lima'], [-1]), city())": "LDP403",
    "SELECT ldp.ibu(map(['Lima'], [1.5]), city())": "LDP403",
    "SELECT ldp.ibu(map(['Lima'], [0]), city())": "LDP404",
    "SELECT ldp.ibu(map(['Lima'], ['many']), city())": "LDP403",
}


@pytest.mark.parametrize("sql", BAD_REPORTS)
def test_what_cannot_be_reports_is_refused(con: DuckDBPyConnection, sql: str) -> None:
    con.execute(
        "CREATE TABLE people AS SELECT 'north' AS region, CASE WHEN i % 10 = 0 THEN 'Oslo' ELSE 'Lima' END AS city "
        "FROM range(20000) t(i)"
    )
    message = error_of(con, sql)
    assert f"[{BAD_REPORTS[sql]}]" in message
    assert not any(canary in message for canary in ("canary", "73313"))


# --- attaching ---


def test_nothing_is_written_into_the_users_file_and_others_can_still_open_it(tmp_path: Path) -> None:
    path = str(tmp_path / "warehouse.duckdb")
    with ldpsql.connect(path) as con:
        con.execute("CREATE TABLE r AS SELECT ldp.perturb('a', ldp.krr(1, ['a', 'b'])) AS x FROM range(100)")
    with duckdb.connect(path) as plain:
        assert plain.execute("SELECT count(*) FROM r").fetchone() == (100,)
        assert one(plain, "SELECT count(*) FROM duckdb_functions() WHERE NOT internal AND database_name = 'warehouse'") == 0


def test_a_read_only_database_can_be_estimated_from(tmp_path: Path) -> None:
    path = str(tmp_path / "warehouse.duckdb")
    with ldpsql.connect(path) as con:
        con.execute("CREATE TABLE r AS SELECT ldp.perturb('a', ldp.krr(1, ['a', 'b'])) AS x FROM range(1000)")
    with ldpsql.connect(path, read_only=True) as con:
        assert len(one(con, "SELECT ldp.ibu(x, ldp.krr(1, ['a', 'b'])) FROM r")) == 2
        with pytest.raises(duckdb.Error):
            con.execute("CREATE TABLE other AS SELECT 1")


@pytest.mark.slow
def test_attaching_again_while_a_result_is_open_and_under_another_name(con: DuckDBPyConnection) -> None:
    fill(con, 5000)
    streaming = con.execute("FROM people")
    assert streaming.fetchone() is not None
    for name in ("ldp", "privacy", 'odd "name"'):
        with pytest.warns(PrivacyLeakWarning, match="it has an open result"):
            ldpsql.attach(con, name=name)
    con.execute("CREATE MACRO other() AS privacy.krr(1, ['Lima', 'Oslo'])")
    assert one(con, "SELECT privacy.perturb('Lima', other())") in ("Lima", "Oslo")
    odd = '"odd ""name"""'
    assert one(con, f"SELECT {odd}.perturb('Lima', other())") in ("Lima", "Oslo")
    assert one(con.cursor(), "SELECT ldp.perturb('Lima', city())") in CITIES


def test_a_catalog_of_the_users_is_not_taken(tmp_path: Path) -> None:
    con = duckdb.connect()
    con.execute(f"ATTACH '{tmp_path}/mine.duckdb' AS ldp")
    with pytest.raises(ConnectionRefused, match="yours"):
        ldpsql.attach(con)
    with pytest.raises(ConnectionRefused):
        ldpsql.attach(con, name="memory")


@pytest.mark.parametrize("name", ["ldp", 'odd "name"'])
def test_the_catalog_can_be_put_on_the_search_path(name: str) -> None:
    with ldpsql.connect(name=name, use=True) as con:
        con.execute("CREATE TABLE t AS SELECT perturb('a', krr(1, ['a', 'b'])) AS x FROM range(100)")
        assert len(one(con, "SELECT ibu(x, krr(1, ['a', 'b'])) FROM t")) == 2
        path = one(con, "SELECT current_setting('search_path')")
        ldpsql.attach(con, name=name, use=True)
        assert one(con, "SELECT current_setting('search_path')") == path
        assert one(con, "SELECT count(*) FROM t") == 100
        assert one(con, "SELECT database_name FROM duckdb_tables() WHERE table_name = 't'") == "memory"


def test_raw_values_are_swapped_for_reports_in_one_statement(con: DuckDBPyConnection) -> None:
    fill(con, 1000)
    con.execute("CREATE TABLE safe (city VARCHAR)")
    con.execute("INSERT INTO safe SELECT ldp.perturb(city, city()) FROM people")
    con.execute("DELETE FROM people")
    assert one(con, "SELECT count(*) FROM safe") == 1000


def test_arrow_columns_of_every_text_type_are_perturbed(con: DuckDBPyConnection) -> None:
    for kind in (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())):
        frame = pa.table({"x": pa.array(["Lima", "Oslo"] * 10).cast(kind)})
        assert frame.num_rows == 20
        assert con.execute("SELECT count(ldp.perturb(x, city())) FROM frame").fetchall() == [(20,)]


@pytest.mark.slow
def test_every_estimator_reads_a_table_after_from(con: DuckDBPyConnection, tmp_path: Path) -> None:
    con.execute("CREATE MACRO m() AS ldp.krr(3, range(4))")
    con.execute("CREATE TABLE r AS SELECT i % 2 AS n, ldp.perturb(i % 4, m()) AS x FROM range(300) t(i)")
    file = tmp_path / "r.parquet"
    con.sql("FROM r").write_parquet(str(file))
    frame = con.sql("FROM r").pl()
    assert frame.height == 300
    for name, source in zip(ESTIMATORS, cycle(("r", f"'{file}'", "frame"))):
        expected = con.execute(f"SELECT unnest(ldp.{name}(x, m()), recursive := true), 300 FROM r").fetchall()
        assert con.execute(f"FROM ldp.estimate({source}, x, m(), estimator := '{name}')").fetchall() == expected, name
    some = con.execute("SELECT unnest(ldp.ibu(x, m()), recursive := true), 150 FROM r WHERE n = 1").fetchall()
    assert con.execute("FROM ldp.estimate(r, x, m(), keep := n = 1)").fetchall() == some
    assert len(con.execute("FROM ldp.top(r, x, m(), 2)").fetchall()) == 2
    assert con.execute("FROM ldp.estimate(r, x, m(), keep := false)").fetchall() == []


@pytest.mark.parametrize(
    ("function", "mechanism", "value", "options"),
    [
        ("key_value", "ldp.pckv_grr(2, ['a', 'b'], padding := 2)", "MAP {'a': 0.5}", ""),
        ("key_value_density", "ldp.pckv_pm(2, ['a', 'b'], padding := 2, bins := 4)", "MAP {'a': 0.5}", ""),
        ("quantile", "ldp.laplace(2, 0, 10, bins := 8)", "i // 2 % 10", ", [0.25, 0.5]"),
        ("range_share", "ldp.laplace(2, 0, 10, bins := 8)", "i // 2 % 10", ", [0, 4], [3, 9]"),
        ("heavy_hitters", "ldp.pem(8, 4)", "['ab', 'cd'][1 + i // 2 % 2]", ", certain := false"),
    ],
)
def test_every_aggregate_of_rows_and_its_table_function_take_a_condition(
    con: DuckDBPyConnection, function: str, mechanism: str, value: str, options: str
) -> None:
    con.execute(f"CREATE MACRO m() AS {mechanism}")
    con.execute(f"CREATE TABLE r AS SELECT i % 2 AS n, ldp.perturb({value}, m()) AS x FROM range(600) t(i)")
    aggregate = f"SELECT unnest(ldp.{function}(x, m(){options}, keep := n = 1), recursive := true), 300 FROM r"
    expected = con.execute(aggregate).fetchall()
    assert len(expected) >= 2
    assert con.execute(f"FROM ldp.{function}(r, x, m(){options}, keep := n = 1)").fetchall() == expected


@pytest.mark.parametrize(
    "call",
    [
        "counts(report, keep := 'report > 1')",
        "counts(report, ldp.krr(1, range(3)))",
        "ibu(report, ldp.oue(1, range(3)), keep := ['best'])",
        "counts(report, keep := 0.5)",
    ],
)
def test_what_is_not_a_condition_is_refused(con: DuckDBPyConnection, call: str) -> None:
    with pytest.raises(duckdb.Error, match=r"\[LDP103\] keep must be a condition.*estimator := 'best'"):
        con.execute(f"SELECT ldp.{call} FROM (SELECT unnest([1, 2]) AS report)").fetchall()


@pytest.mark.parametrize(
    "keep", ["report > 1", "report - 1", "(report - 1)::UTINYINT", "sum(report - 1) OVER (PARTITION BY report)"]
)
def test_conditions_may_be_whole_numbers(con: DuckDBPyConnection, keep: str) -> None:
    query = (
        f"SELECT ldp.counts(report, keep := held) FROM (SELECT report, {keep} AS held FROM (SELECT unnest([1, 2]) AS report))"
    )
    assert con.execute(query).fetchall() == [({2: 1},)]
    assert con.execute("SELECT ldp.counts(1, keep := NULL)").fetchall() == [(None,)]
