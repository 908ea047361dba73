"""``ldp.perturb_rows``: whole tables in SQL, drawn in lists, with the rows in random order."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from unittest.mock import Mock
from uuid import UUID

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from duckdb import DuckDBPyConnection

import ldpsql
from ldpsql.bulk import orders as drawing
from ldpsql.bulk.orders import random_arrangement, random_order, random_parts
from ldpsql.functions import text_literal
from ldpsql.ledger import Ledger, Policy
from ldpsql.testing import plausible
from tests import seeds
from tests.commands import printed

RNG = seeds.generator(__name__)  # data for the tests; no claim depends on a seed
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
    con.execute("CREATE MACRO plain(report) AS struct_extract_at(report, 1)")
    return con


@pytest.mark.filterwarnings("ignore::ldpsql.errors.PrivacyLeakWarning")
@pytest.mark.parametrize("threads", [1, 2])
def test_reports_stay_in_their_rows_and_the_rows_come_in_another_order(con: DuckDBPyConnection, threads: int) -> None:
    con.execute(f"SET threads = {threads}")
    query = "FROM ldp.perturb_rows(people, {n: n(), city: town()}, keep := ['region', 'id'])"
    rows = con.execute(f"SELECT plain(n), id, region, plain(city) FROM ({query})").fetchall()
    assert [(i, i, f"region {i % 7}") for i in range(ROWS)] == sorted(row[:3] for row in rows)
    assert {row[3] for row in rows} == {"Lima", "Oslo", "Rome"}
    assert [row[1] for row in rows] != list(range(ROWS))
    assert [name for name, *_ in con.execute(query).description or ()] == ["n", "city", "id", "region"]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let four rows need several buckets, blocks and parts."""
    for name, size in (("BUCKET_ROWS", 2), ("BLOCK_ROWS", 3), ("_PART_ROWS", 1), ("_REPEATS", 0)):
        monkeypatch.setattr(drawing, name, size)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ldpsql.errors.PrivacyLeakWarning")
@pytest.mark.usefixtures("small")
def test_every_order_of_rows_is_as_likely_as_any_other() -> None:
    draws = 1_000
    seen = Counter(tuple(random_order(4).tolist()) for _ in range(draws))
    counts = np.array(list(seen.values()))
    assert len(seen) == 24
    assert plausible(counts, draws, np.full(24, 1 / 24), 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(  # room 0 for shares that often need another draw, and 5 for shares that need none
    ("counts", "room"), [([2, 1, 1], 0), ([2, 1, 1], 5), ([0, 2, 2], 0.5), ([4], 0), ([1, 1, 1, 1], 0.5)]
)
def test_every_arrangement_of_equal_rows_is_as_likely_as_any_other(
    monkeypatch: pytest.MonkeyPatch, counts: list[int], room: float
) -> None:
    monkeypatch.setattr(drawing, "_ROOM", room)
    monkeypatch.setattr(drawing, "BUCKET_ROWS", 3)  # so that four rows need several blocks
    draws, orders = 500, 24 // math.prod(map(math.factorial, counts))
    seen = Counter(tuple(random_arrangement(np.array(counts)).tolist()) for _ in range(draws))
    assert {tuple(np.bincount(order, minlength=len(counts))) for order in seen} == {tuple(counts)}
    assert len(seen) == orders
    assert plausible(np.array(list(seen.values())), draws, np.full(orders, 1 / orders), 1e-6)


@pytest.mark.parametrize("numbers", [1, 700, 70_000])
def test_many_equal_rows_are_arranged_evenly_and_without_loss(numbers: int) -> None:
    counts = np.bincount(RNG.integers(numbers, size=300_000), minlength=numbers)
    order = random_arrangement(counts)
    assert (np.bincount(order, minlength=numbers) == counts).all()
    half, group = np.arange(150_000), min(numbers, 7)  # the bound also holds for draws without replacement
    groups = order.astype(np.int64) * group // numbers  # of neighbouring numbers, which are apart if nothing is shuffled
    seen, shares = np.bincount(groups[half], minlength=group), np.bincount(groups, minlength=group) / 300_000
    assert plausible(seen, 150_000, shares, 1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("most", [1, 2, 4])
def test_the_order_of_random_parts_is_as_likely_as_any_other(most: int) -> None:
    draws, counts = 1_000, np.array([2, 0, 1, 1])
    parts = [random_parts(counts, most) for _ in range(draws)]
    assert {len(some) for some in parts} == {most}
    first = Counter(tuple(some[0].tolist()) for some in parts)
    chances = {
        (a, 0, b, c): math.comb(2, a) * (1 / most) ** (a + b + c) * (1 - 1 / most) ** (4 - a - b - c)
        for a in range(3)
        for b in range(2)
        for c in range(2)
    }
    assert plausible(np.array([first[part] for part in chances]), draws, np.array(list(chances.values())), 1e-6)
    seen = Counter(tuple(np.concatenate([random_arrangement(part) for part in some]).tolist()) for some in parts)
    assert len(seen) == 12
    assert plausible(np.array(list(seen.values())), draws, np.full(12, 1 / 12), 1e-6)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("bit", [0, 1])
def test_each_of_many_equal_rows_has_a_bit_of_its_own(bit: int) -> None:
    counts = np.array([0, 1, 63, 64, 65, 0, 128, 1_000_000, 0])
    parts = random_parts(counts, 2, lambda count: np.full(count, bit * (2**64 - 1), dtype=np.uint64))
    assert (parts[1 - bit] == counts).all()
    assert not parts[bit].any()


@pytest.mark.parametrize(("numbers", "parts"), [(1, 1), (700, 16), (1_000_000, 1)])
def test_few_rows_make_few_parts(numbers: int, parts: int) -> None:
    assert len(random_parts(np.full(numbers, 15_000_000 // numbers if parts > 1 else 1), 16)) == parts


@pytest.fixture
def arranged(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Return what counts the calls of `random_arrangement`."""
    calls = Mock(side_effect=random_arrangement)
    monkeypatch.setattr("ldpsql.udfs.perturb_rows.random_arrangement", calls)
    return calls


@pytest.mark.filterwarnings("ignore::ldpsql.errors.PrivacyLeakWarning")
@pytest.mark.parametrize(
    ("kind", "of_digit"),
    [
        ("TINYINT", "d::TINYINT"),
        ("HUGEINT", "10::HUGEINT ** 30 + d"),
        ("DECIMAL(38,1)", "d / 2"),
        ("BOOLEAN", "d = 1"),
        ("VARCHAR", "CASE d WHEN 0 THEN 'a' WHEN 1 THEN 'A' END COLLATE NOCASE"),
        ("BLOB", "encode('é' || d)"),
        ("ENUM('a', 'it''s, (', 'b')", "['a', 'it''s, (', 'b'][d + 1]"),
        ("DATE", "DATE '2020-01-01' + d::INTEGER"),
        ("TIMESTAMP_NS", "TIMESTAMP '2020-01-01' + d * INTERVAL 1 DAY"),
        ("TIMESTAMP WITH TIME ZONE", "TIMESTAMP '2020-01-01' + d * INTERVAL 1 DAY"),
        ("UUID", "('00000000-0000-0000-0000-00000000000' || d)"),
    ],
)
def test_equal_rows_are_counted_and_returned_as_they_are(
    con: DuckDBPyConnection, arranged: Mock, kind: str, of_digit: str
) -> None:
    unchanged(con, f"CASE WHEN d < 3 THEN ({of_digit})::{kind} END")
    assert arranged.call_count == 1


@pytest.mark.filterwarnings("ignore::ldpsql.errors.PrivacyLeakWarning")
@pytest.mark.parametrize(
    "value",
    [
        "[0.0::DOUBLE, '-0.0'::DOUBLE, 'nan'::DOUBLE, 'inf'::DOUBLE][d + 1]",
        "[0.0::FLOAT, '-0.0'::FLOAT, 1.0::FLOAT, NULL][d + 1]",
        "[INTERVAL 30 DAY, INTERVAL 1 MONTH, INTERVAL 720 HOUR, NULL][d + 1]",
        "[TIMETZ '10:00:00+00', TIMETZ '11:00:00+01', NULL, NULL][d + 1]",
        "{'interval': [INTERVAL 30 DAY, INTERVAL 1 MONTH][d % 2 + 1]}",
        "[[INTERVAL 30 DAY], [INTERVAL 1 MONTH]][d % 2 + 1]",
        "['1'::BIT, '01'::BIT][d % 2 + 1]",
        "MAP {'a': d}",
    ],
)
def test_equal_values_that_may_differ_are_returned_as_they_are(con: DuckDBPyConnection, arranged: Mock, value: str) -> None:
    unchanged(con, value)
    assert not arranged.called


def unchanged(con: DuckDBPyConnection, value: str) -> None:
    """Check that the rows with this value of a digit ``d`` are those of the table, next to surely kept reports."""
    con.execute("CREATE TABLE digits AS SELECT i // 5 % 4 AS d, d + 10 * (i % 5) AS n FROM range(3000) t(i)")
    con.execute(f"CREATE TABLE kept AS SELECT n, {value} AS v FROM digits")
    rows = "SELECT n, v::VARCHAR, typeof(v), count(*) FROM {} GROUP BY ALL ORDER BY ALL"
    con.execute("CREATE TABLE out AS SELECT plain(n) AS n, v FROM ldp.perturb_rows(kept, {n: n()}, keep := ['v'])")
    assert con.execute(rows.format("out")).fetchall() == con.execute(rows.format("kept")).fetchall()


@pytest.mark.filterwarnings("ignore::ldpsql.errors.PrivacyLeakWarning")
@pytest.mark.parametrize("name", ["people", "source", "counted", "items", "lists"])  # the macro has some of these names, too
def test_many_different_rows_are_counted_and_stay_together(con: DuckDBPyConnection, arranged: Mock, name: str) -> None:
    con.execute("SET threads = 4")
    ids = "CASE WHEN i < 70_000 THEN i // 10 ELSE i // (2 + i % 3) END"
    con.execute(f"CREATE TABLE numbers AS SELECT {ids} AS id FROM range(100_000) t(i)")
    con.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT id, 'region ' || id AS region, id % 3 AS n FROM numbers")
    perturbed = f"ldp.perturb_rows({name}, {{n: ldp.krr(32, range(3))}}, keep := ['id', 'region'])"
    con.execute(f"CREATE TABLE out AS SELECT id, region, plain(n) AS n FROM {perturbed}")
    for one, other in [(name, "out"), ("out", name)]:
        assert con.execute(f"SELECT id, region, n FROM {one} EXCEPT ALL SELECT id, region, n FROM {other}").fetchall() == []
    assert arranged.call_count == 1


def test_rows_that_seldom_repeat_are_not_counted(con: DuckDBPyConnection, arranged: Mock) -> None:
    con.execute("CREATE TABLE seldom AS SELECT 'Lima' AS city, i // 7 AS id FROM range(3000) t(i)")
    rows = con.execute("FROM ldp.perturb_rows(seldom, {city: town()}, keep := ['id'])").fetchall()
    assert Counter(row[1] for row in rows) == Counter(i // 7 for i in range(3000))
    assert not arranged.called


def test_where_a_row_stands_says_nothing_about_it(con: DuckDBPyConnection, arranged: Mock) -> None:
    con.execute("CREATE TABLE sorted AS SELECT 'Lima' AS city, i // 10_000 AS tenth FROM range(100_000) t(i)")
    rows = con.execute("FROM ldp.perturb_rows(sorted, {city: town()}, keep := ['tenth'])").fetchnumpy()["tenth"]
    for part in np.split(rows, 10):
        assert plausible(np.bincount(part, minlength=10), len(part), np.full(10, 0.1), 1e-7)
    assert arranged.call_count == 1


def test_reports_of_equal_rows_are_drawn_one_by_one(con: DuckDBPyConnection) -> None:
    con.execute("CREATE TABLE alike AS SELECT 'Lima' AS city, 'Oslo' AS home FROM range(60_000)")
    pairs = "SELECT plain(city), plain(home), count(*) FROM ldp.perturb_rows(alike, {city: town(), home: town()}) GROUP BY ALL"
    counts = {(city, home): n for city, home, n in con.execute(pairs).fetchall()}
    keep, lie = np.e / (np.e + 2), 1 / (np.e + 2)
    cities = ["Lima", "Oslo", "Rome"]
    expected = np.outer([keep, lie, lie], [lie, keep, lie])
    assert plausible(np.array([counts[a, b] for a in cities for b in cities]), 60_000, expected.ravel(), 1e-6)


@pytest.mark.filterwarnings("ignore::ldpsql.errors.PrivacyLeakWarning")
def test_rows_of_many_parts_stay_together_and_are_drawn_one_by_one(
    con: DuckDBPyConnection, arranged: Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parts(counts: np.ndarray, most: int) -> list[np.ndarray]:
        """Put all equal rows into one of eight parts, which then have as many rows as there are different ones."""
        assert most == 16
        return [np.where(np.arange(len(counts)) % 8 == part, counts, 0) for part in range(8)]

    monkeypatch.setattr("ldpsql.udfs.perturb_rows.random_parts", parts)
    con.execute(
        "CREATE TABLE alike AS SELECT i // 8 AS n, 'Lima' AS city, 'region ' || i // 8 AS region FROM range(8_000) t(i)"
    )
    perturbed = "ldp.perturb_rows(alike, {n: n(), city: town()}, keep := ['region'])"
    query = f"SELECT plain(n), region, list(plain(city)) FROM {perturbed} GROUP BY ALL"
    groups = con.execute(query).fetchall()
    assert sorted((n, region) for n, region, _ in groups) == [(n, f"region {n}") for n in range(1_000)]
    assert arranged.call_count == 8
    assert {len(cities) for *_, cities in groups} == {8}
    assert sum(len(set(cities)) == 1 for *_, cities in groups) < 50  # 12 on average; 50 with probability 10^-15


def test_reports_follow_the_channel(con: DuckDBPyConnection) -> None:
    rows = 60_000
    con.execute(f"CREATE TABLE cities AS SELECT 'Lima' AS city FROM range({rows})")
    counts = dict(
        con.execute("SELECT plain(city), count(*) FROM ldp.perturb_rows(cities, {city: town()}) GROUP BY 1").fetchall()
    )
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
    query = f"SELECT typeof(plain(city)), count(*) FROM ldp.perturb_rows(people, {{city: {mechanism}}}) GROUP BY 1"
    assert con.execute(query).fetchall() == [(kind, ROWS)]


def test_sets_of_pairs_and_decimals_are_drawn(con: DuckDBPyConnection) -> None:
    con.execute("CREATE TABLE sets AS SELECT [{'key': 'a', 'value': 1.0}] AS pairs, 1.5 AS d FROM range(50)")
    mechanisms = "{pairs: ldp.pckv_grr(2, ['a', 'b'], padding := 1), d: ldp.krr(1, [1.5, 2.5])}"
    query = f"SELECT DISTINCT typeof(plain(pairs)), typeof(plain(d)) FROM ldp.perturb_rows(sets, {mechanisms})"
    assert con.execute(query).fetchall() == [('STRUCT("key" VARCHAR, sign TINYINT)', "DECIMAL(2,1)")]


def test_views_files_and_frames_are_read(con: DuckDBPyConnection, tmp_path: Path) -> None:
    frame = pl.DataFrame({"city": ["Lima"] * 9})
    arrow = pa.table({"city": ["Lima"] * 9})
    con.execute("CREATE VIEW nine AS SELECT city FROM people LIMIT 9")
    con.execute(f"COPY nine TO '{tmp_path}/nine.parquet'")
    read_once = arrow.to_reader()
    for source in ("nine", f"'{tmp_path}/nine.parquet'", "frame", "arrow", "read_once"):
        assert con.execute(f"SELECT count(city) FROM ldp.perturb_rows({source}, {{city: town()}})").fetchall() == [(9,)]
    assert len(frame) == arrow.num_rows
    assert read_once is not None


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
        ("ldp.perturb_rows(holes, {city: town()})", "LDP303.* 1 of 5 rows"),
        ("ldp.perturb_rows(rare, {city: town()}, keep := ['region'])", r"LDP302.* 2 of 3,000 rows"),
        ("ldp.perturb_rows(people, {nobody: town()})", r"LDP201\] there is no column named 'nobody'"),
        ("ldp.perturb_rows(people, {city: town(), Regoin: town()})", r"'regoin'\. Hint: did you mean 'region'"),
        ("ldp.perturb_rows(people, town())", r"LDP103\] this is a mechanism, not a struct"),
        ("ldp.perturb_rows(people, {city: NULL})", "LDP104"),
        ("ldp.perturb_rows(people, {city: town()}, keep := NULL)", "LDP103"),
    ],
)
def test_what_cannot_be_perturbed_is_refused_without_a_value(con: DuckDBPyConnection, query: str, code: str) -> None:
    con.execute("CREATE TABLE holes AS SELECT CASE WHEN i > 0 THEN 'Lima' END AS city FROM range(5) t(i)")
    con.execute("CREATE TABLE rare AS SELECT CASE WHEN id < 2 THEN 'Cusco' ELSE city END AS city, region FROM people")
    with pytest.raises(Exception, match=code) as refused:
        con.execute(f"FROM {query}").fetchall()
    assert "region 3" not in str(refused.value)


@pytest.mark.parametrize("keep", ["['nobody']", "['region', 'Region']", "['city']", "[NULL]", "NULL"])
def test_columns_that_cannot_be_kept_are_refused_before_a_row_is_read(con: DuckDBPyConnection, keep: str) -> None:
    con.execute("CREATE VIEW failing AS SELECT city, error('a row was read') AS region FROM people")
    with pytest.raises(duckdb.Error, match="LDP103"):
        con.execute(f"EXPLAIN FROM ldp.perturb_rows(failing, {{city: town()}}, keep := {keep})")


def test_thirty_columns_are_perturbed_and_recorded(con: DuckDBPyConnection) -> None:
    con.execute(f"CREATE TABLE wide AS SELECT {', '.join(f'i % 3 AS c{n}' for n in range(30))} FROM range(60) t(i)")
    columns = ", ".join(f"c{n}: ldp.krr(32, range({n % 3 + 3}))" for n in range(30))
    rows = con.sql(f"FROM ldp.perturb_rows(wide, {{{columns}}})")
    assert rows.columns == [f"c{n}" for n in range(30)]
    assert len(set(map(str, rows.types))) == 3  # of the three mechanisms
    assert {len({cell for report in row for cell in report.values()}) for row in rows.fetchall()} == {1}


@pytest.mark.parametrize("mechanism", ["krr(1, {})", "oue(1, {})", "krr(1, {}::ENUM('Lima', 'Oslo', 'Rome')[])", "olh(1, {})"])
def test_a_subquery_returns_a_domain_and_its_reports_say_that_nothing_is_recorded(
    con: DuckDBPyConnection, mechanism: str
) -> None:
    con.execute("CREATE TABLE cities AS SELECT unnest(['Lima', 'Oslo', 'Rome']) AS city")
    listed = mechanism.format("['Lima', 'Oslo', 'Rome']")
    domain = "(SELECT list(city ORDER BY city) FROM cities)"
    of_subquery = f"FROM ldp.perturb_rows(people, {{city: ldp.{mechanism.format(domain)}}}, keep := ['id'])"
    con.execute(f"CREATE TABLE reports AS {of_subquery}")
    plain = con.execute(f"SELECT typeof(ldp.perturb('Lima', ldp.{listed}))").fetchone()
    assert con.execute("SELECT typeof(city), count(DISTINCT id) FROM reports GROUP BY 1").fetchall() == [(*(plain or ()), ROWS)]
    assert con.execute(f"SELECT sum(estimate) FROM ldp.estimate(reports, city, ldp.{listed})").fetchall() == [
        (pytest.approx(1),)
    ]


@pytest.mark.parametrize(("mechanism", "value"), [("?", "krr(32, ['Lima', 'Oslo'])"), ("ldp.krr(?, ['Lima', 'Oslo'])", "32")])
def test_a_prepared_statement_records_the_mechanism_that_it_is_run_with(
    con: DuckDBPyConnection, mechanism: str, value: str
) -> None:
    con.execute(f"PREPARE drawing AS FROM ldp.perturb_rows(people, {{city: {mechanism}}})")
    rows = con.execute(f"EXECUTE drawing({text_literal(value)})").fetchall()
    (record,) = {name for (report,) in rows for name in report}
    assert "krr(epsilon='32'" in record


def test_a_statement_that_fails_leaves_no_mechanism_to_the_next_one(con: DuckDBPyConnection) -> None:
    with pytest.raises(duckdb.Error, match="keep"):
        con.execute("FROM ldp.perturb_rows(people, {city: ldp.krr(32, ['Lima', 'Oslo'])}, keep := 1)")
    rows = con.sql("FROM ldp.perturb_rows(people, {n: ldp.krr(32, (SELECT list(n) FROM people))})")
    assert (rows.columns, list(map(str, rows.types))) == (["n"], ["BIGINT"])


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
    files = {
        "stored": f"CREATE TABLE r AS {call};",
        "view": f"CREATE VIEW r AS {call};",
        "macro": f"CREATE MACRO r() AS TABLE {call};",
    }
    for name, sql in files.items():
        (tmp_path / f"{name}.sql").write_text(sql)
    found = {Path(row["file"]).stem for row in json.loads(printed("lint", str(tmp_path), "--format", "json"))}
    assert found == {"view", "macro"}
    con.execute(f"CREATE VIEW redrawn AS {call}")
    assert con.execute("SELECT name FROM ldp.lint()").fetchall() == [("main.redrawn",)]


@pytest.mark.parametrize("name", ["_ldpsql_places", "_ldpsql_count", "_LDPSQL_places", "_ldpsql_x"])
def test_a_column_with_a_name_that_the_macro_uses_is_refused(con: DuckDBPyConnection, name: str) -> None:
    con.execute(f"CREATE TABLE hostile AS SELECT 'Lima' AS city, i::INTEGER AS {name} FROM range(1, 300) t(i)")
    with pytest.raises(duckdb.Error, match="LDP103"):
        con.execute(f"FROM ldp.perturb_rows(hostile, {{city: town()}}, keep := ['{name}'])").fetchall()
    with pytest.raises(duckdb.Error, match=r"LDP103.*_ldpsql_ cannot be perturbed"):
        con.execute(f"FROM ldp.perturb_rows(hostile, {{{name}: n()}})").fetchall()
    assert len(con.execute("FROM ldp.perturb_rows(hostile, {city: town()})").fetchall()) == 299


def test_an_error_about_a_value_names_its_column(con: DuckDBPyConnection) -> None:
    for repeated in ("people", "(SELECT 'x' AS city FROM range(100))"):  # drawn in lists, and rows that are counted
        con.execute(f"CREATE OR REPLACE VIEW v AS SELECT 'Lima' AS region, city FROM {repeated}")
        with pytest.raises(duckdb.Error, match=r"LDP302\] column 'city': a value"):
            con.execute("FROM ldp.perturb_rows(v, {region: town(), city: ldp.krr(1, ['Lima', 'Rome'])})").fetchall()


@pytest.mark.parametrize("keep", ["'region'", "region", "[region]", "REGION"])
def test_columns_may_be_kept_by_their_names_alone(con: DuckDBPyConnection, keep: str) -> None:
    rows = con.sql(f"FROM ldp.perturb_rows(people, {{city: town()}}, keep := {keep})").to_arrow_table()
    assert (rows.num_rows, set(rows.column_names)) == (ROWS, {"city", "region"})


def test_a_map_of_mechanisms_is_refused_with_what_to_write(con: DuckDBPyConnection) -> None:
    with pytest.raises(duckdb.Error, match=r"LDP103\] the mechanisms of columns must be a struct\. Hint: write FROM"):
        con.execute("FROM ldp.perturb_rows(people, MAP {'city': town()})")


def test_a_folder_of_parquet_files_is_a_table_and_never_hides_one(
    con: DuckDBPyConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "people/day=1").mkdir(parents=True)
    con.execute("COPY (SELECT 'Lima' AS city FROM range(50)) TO 'people/day=1/a.parquet'")
    for folder in ("./people", f"{tmp_path}/people/", "people/day=1"):
        assert con.execute(f"SELECT count(*) FROM ldp.perturb_rows('{folder}', {{city: town()}})").fetchone() == (50,)
        assert con.execute(f"SELECT sum(n) / 3 FROM ldp.estimate('{folder}', city, town())").fetchone() == (50,)
    for table in ("people", "'people'"):
        assert con.execute(f"SELECT count(*) FROM ldp.perturb_rows({table}, {{city: town()}})").fetchone() == (ROWS,)


def test_a_mechanism_that_changes_from_row_to_row_is_refused_before_one_is_read(
    con: DuckDBPyConnection,
) -> None:
    with pytest.raises(duckdb.Error, match=r"LDP301.*changes from row to row"):  # LDP101 if the epsilon of 0 had been read
        con.execute("SELECT ldp.perturb(city, ldp.krr(id, ['Lima', 'Oslo', 'Rome'])) FROM people").fetchall()


@pytest.mark.parametrize("kind", ["UUID", "JSON"])
def test_a_domain_of_a_type_that_no_domain_has_is_one_of_text(con: DuckDBPyConnection, kind: str) -> None:
    ids = {"UUID": [f"{UUID(int=1)}", f"{UUID(int=2)}"], "JSON": ["1", "2"]}[kind]
    con.execute(f"CREATE MACRO ids() AS ldp.krr(20, {ids}::{kind}[])")
    con.execute(f"CREATE TABLE ids AS SELECT {ids}[1 + i % 2]::{kind} AS id FROM range(100) t(i)")
    con.execute("CREATE TABLE drawn AS FROM ldp.perturb_rows(ids, {id: ids()})")
    shares = con.execute("SELECT value, estimate FROM ldp.estimate(drawn, id) ORDER BY value").fetchall()
    assert shares == [(one, pytest.approx(0.5, abs=0.01)) for one in ids]
