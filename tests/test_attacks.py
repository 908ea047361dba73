"""Attempts to get a raw value, a second draw or a wrong value out of the SQL functions; each once worked somewhere."""

from __future__ import annotations

import datetime as dt
import threading
import traceback
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from duckdb import DuckDBPyConnection

import ldpsql
from ldpsql import Domain, KeepOrSpread
from ldpsql.errors import ConnectionRefused, InvalidDomain, LdpError, OutsideDomain, WrongType
from ldpsql.functions import registry

CANARY = "canary-7f3a"


def krr(domain: Any, epsilon: object = 30, **rules: str) -> Any:
    return registry().mechanism({"mechanism": "krr", "epsilon": epsilon, "domain": domain, **rules})


@pytest.mark.parametrize("where", ["before", "after", "temp"])
def test_a_macro_with_the_name_of_a_sampler_does_not_take_its_place(where: str, tmp_path: Path) -> None:
    con = duckdb.connect(str(tmp_path / "users.duckdb"))
    hostile = f"CREATE {'TEMP' if where == 'temp' else ''} MACRO __ldp_perturb(x, h) AS 1"
    if where == "before":
        con.execute(hostile)
    ldpsql.attach(con)
    if where != "before":
        con.execute(hostile)
    con.execute("CREATE TABLE r AS SELECT ldp.perturb('a', ldp.krr(0.001, ['a', 'b'])) AS x FROM range(2000)")
    (kept,) = con.execute("SELECT count(*) FILTER (WHERE x = 'a') FROM r").fetchone() or (0,)
    assert 800 < kept < 1200  # eight standard deviations around 1,000


def test_a_table_function_over_an_expression_that_draws_draws_once_for_each_row(
    con: DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[int] = []
    draw = KeepOrSpread.draw

    def counted(channel: KeepOrSpread, values: Any, *words: Any) -> Any:
        drawn.append(len(values))
        return draw(channel, values, *words)

    monkeypatch.setattr(KeepOrSpread, "draw", counted)
    con.execute("CREATE MACRO m() AS ldp.krr(1, [DECIMAL '1.50', DECIMAL '2.50'])")  # drawn in Python
    con.execute("CREATE TABLE people AS SELECT DECIMAL '1.50' AS price, i % 2 AS g FROM range(10000) t(i)")
    for sql in (
        "FROM ldp.estimate(people, ldp.perturb(price, m()), m())",
        "FROM ldp.estimate(people, ldp.perturb(price, m()), m(), by := g)",
        "SELECT ldp.ibu(ldp.perturb(price, m()), m()), ldp.counts(g) FROM people",
        "SELECT ldp.diagnose(ldp.perturb(price, m()), m()) FROM people",
    ):
        drawn.clear()
        con.execute(sql).fetchall()
        assert sum(drawn) == 10000, sql


@pytest.mark.parametrize("catalog", ["LDP", "Ldp"])
def test_nothing_is_written_into_a_database_that_has_the_catalogs_name(catalog: str, tmp_path: Path) -> None:
    path = tmp_path / f"{catalog}.duckdb"
    con = duckdb.connect(str(path))
    with pytest.raises(ConnectionRefused):
        ldpsql.attach(con)
    assert con.execute(
        "SELECT count(*) FROM duckdb_functions() WHERE database_name = $1 AND NOT internal", [catalog]
    ).fetchone() == (0,)


def test_a_catalog_in_memory_and_a_schema_of_the_users_are_left_alone() -> None:
    con = duckdb.connect()
    con.execute("ATTACH ':memory:' AS ldp; CREATE MACRO ldp.counts(x) AS 7")
    with pytest.raises(ConnectionRefused):
        ldpsql.attach(con)
    assert con.execute("SELECT ldp.counts(1)").fetchone() == (7,)
    other = duckdb.connect()
    other.execute("CREATE SCHEMA ldp")
    with pytest.raises(ConnectionRefused):
        ldpsql.attach(other)


def test_eight_threads_attach_at_once() -> None:
    con = duckdb.connect()
    failed: list[BaseException] = []

    def work() -> None:
        try:
            ldpsql.attach(con)
        except Exception as error:  # noqa: BLE001  # collected for the main thread
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert con.execute("SELECT ldp.perturb('a', ldp.krr(1, ['a', 'b']))").fetchone() in [("a",), ("b",)]


def test_a_domain_made_from_the_value_itself_is_refused(con: DuckDBPyConnection) -> None:
    con.execute("CREATE TABLE raw AS SELECT ['Lima', 'Oslo', 'Rome'][1 + i % 3] AS city FROM range(30) t(i)")
    with pytest.raises(duckdb.Error, match="LDP301"):
        con.execute("CREATE TABLE r AS SELECT ldp.perturb(city, ldp.krr(0.1, [city, 'none'])) AS x FROM raw")


# --- values are the same only where they are ---


@pytest.mark.parametrize("places", [1, 2, 4])
def test_a_decimal_domain_finds_the_doubles_that_round_to_it_and_back(places: int) -> None:
    decimals = [Decimal(n).scaleb(-places) for n in range(1, 10**places)]
    doubles = pa.array([float(d) for d in decimals])
    assert Domain.of(pa.array(decimals)).codes(doubles).tolist() == list(range(len(decimals)))
    assert Domain.of(doubles).codes(pa.array(decimals)).tolist() == list(range(len(decimals)))


BIG = 9007199254740992  # 2**53
DIFFERENT: list[tuple[Any, pa.Array]] = [
    (pa.array([BIG + 1, 7]), pa.array([float(BIG)])),
    (pa.array([0.1, 7.0]), pa.array([0.1], pa.float32())),
    (pa.array([-1, 2]), pa.array([2**64 - 1], pa.uint64())),
    (pa.array([1.5, 2.5]), pa.array([BIG + 1])),
    (pa.array([Decimal("0.25"), Decimal("1.50")]), pa.array([Decimal("0.2")])),
    (pa.array([300, 1], pa.int16()), pa.array([44], pa.int8())),
    (["a", "b"], pa.array(["a "])),
    (["é", "b"], pa.array(["e\u0301"])),
]


@pytest.mark.parametrize(("domain", "column"), DIFFERENT)
def test_values_that_differ_are_outside_and_follow_the_rule(domain: Any, column: pa.Array) -> None:
    values = Domain.of(domain)
    with pytest.raises(OutsideDomain):
        values.codes(column)
    assert values.codes(column, outside_code=1).tolist() == [1]


UTC = dt.UTC
INCOMPARABLE: list[tuple[pa.Array, pa.Array]] = [
    (pa.array([dt.date(2020, 1, 1), dt.date(2020, 1, 2)]), pa.array([dt.datetime(2020, 1, 1)])),
    (pa.array([dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 2)]), pa.array([dt.date(2020, 1, 1)])),
    (pa.array([dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 2)]), pa.array([dt.datetime(2020, 1, 1, tzinfo=UTC)])),
    (pa.array([True, False]), pa.array([1, 0])),
    (pa.array(["1", "2"]), pa.array([1, 2])),
    (pa.array([16777217.0, 16777216.0]).cast(pa.decimal128(10, 1)), pa.array([16777216], pa.float32())),
]


@pytest.mark.parametrize(("domain", "column"), INCOMPARABLE)
def test_kinds_of_values_that_cannot_be_compared_exactly_are_refused(domain: pa.Array, column: pa.Array) -> None:
    with pytest.raises(WrongType):
        Domain.of(domain).codes(column)


def test_instants_are_compared_whatever_their_time_zone() -> None:
    instants = pa.array([0, 3_600_000_000], pa.timestamp("us", "UTC"))
    column = pa.array([3_600_000_000, 0], pa.timestamp("us", "America/New_York"))
    assert Domain.of(instants).codes(column).tolist() == [1, 0]
    assert Domain.of(Domain.of(instants).to_json()) == Domain.of(instants)


def test_zero_has_no_sign() -> None:
    for domain in ([0.0, 1.0], [-0.0, 1.0]):
        assert Domain.of(domain).codes(pa.array([-0.0, 0.0])).tolist() == [0, 0]
    with pytest.raises(InvalidDomain):
        Domain.of([0.0, -0.0])


def test_an_unsorted_unsigned_domain_and_a_null_in_a_dictionary_are_read_right() -> None:
    assert Domain.of(pa.array([2, 1], pa.uint64())).codes(pa.array([1, 2])).tolist() == [1, 0]
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", None]))
    assert Domain.of(["a", "b"]).codes(column, null_code=1).tolist() == [0, 1]


def test_a_domain_cannot_be_changed_from_outside() -> None:
    values = np.array([1, 2])
    mechanism = krr(values)
    values[0] = 99
    assert mechanism.domain.values.to_pylist() == [1, 2]


def test_booleans_that_duckdb_hands_over_in_its_own_type_are_perturbed(con: DuckDBPyConnection) -> None:
    con.execute("SET arrow_lossless_conversion = true")
    con.execute("CREATE TABLE r AS SELECT ldp.perturb(i % 2 = 0, ldp.krr(1, [true, false])) AS x FROM range(100) t(i)")
    assert con.execute("SELECT len(ldp.ibu(x, ldp.krr(1, [true, false]))) FROM r").fetchone() == (2,)


# --- raw values stay where they are ---


@pytest.mark.parametrize("value", ["{'canary-7f3a': 1}", "[{'canary-7f3a': 'a'}]"])
def test_no_message_in_sql_shows_the_name_of_a_field(con: DuckDBPyConnection, value: str) -> None:
    with pytest.raises(duckdb.Error, match="LDP") as caught:
        con.execute(f"SELECT ldp.perturb({value}, city())").fetchall()
    assert "canary" not in str(caught.value)


RAW_COLUMNS: dict[str, Any] = {
    "mixed": [1, CANARY],
    "outside": [CANARY],
    "surrogate": ["a", "\ud800" + CANARY],
    "frame": pl.DataFrame({"x": [CANARY]}),
    "table": pa.table({"x": [CANARY]}),
    "text": CANARY,
    "number": 73313,
    "struct": pa.array([{CANARY: 1}]),
    "big": [2**80],
    "half": np.array([1.5], dtype=np.float16),
}


@pytest.mark.parametrize("name", RAW_COLUMNS)
def test_no_exception_in_python_carries_a_raw_value(name: str) -> None:
    with pytest.raises(LdpError) as caught:
        ldpsql.perturb(RAW_COLUMNS[name], krr(["a", "b"]))
    error = caught.value
    assert error.__context__ is None
    assert error.__cause__ is None
    captured = traceback.TracebackException.from_exception(error, capture_locals=True)
    (guard,) = [frame for frame in captured.stack if frame.name == "call"]  # all frames below it are gone
    assert guard is captured.stack[-1]
    assert CANARY not in str(guard.locals)
    assert CANARY not in str(error)


# --- counts ---


BAD_MERGES = [
    "SELECT ldp.counts(c) FROM (SELECT map {'a': NULL::INT} AS c)",
    "SELECT ldp.counts(c) FROM (SELECT map {'a': -1} AS c)",
    "SELECT ldp.counts(c) FROM (SELECT map {'a': 1.5} AS c)",
    "SELECT ldp.counts(c) FROM (SELECT unnest([map {'a': 9223372036854775808::UBIGINT}, map {'a': 1::UBIGINT}]) AS c)",
    "SELECT ldp.counts(c) FROM (SELECT unnest([map {'a': 9007199254740992}, map {'a': 1}]) AS c)",
]


@pytest.mark.parametrize("sql", BAD_MERGES)
def test_counts_that_cannot_be_added_exactly_are_refused(con: DuckDBPyConnection, sql: str) -> None:
    with pytest.raises(duckdb.Error, match="LDP403"):
        con.execute(sql).fetchall()


def test_counts_of_an_enum_with_labels_that_nobody_reported_merge(con: DuckDBPyConnection) -> None:
    con.execute("CREATE TYPE abc AS ENUM ('a', 'b', 'c')")
    con.execute(
        """CREATE TABLE d AS SELECT i % 2 AS g, histogram(x::abc) AS c
           FROM (VALUES (1, 'c'), (2, 'a'), (3, 'c')) t(i, x) GROUP BY g"""
    )
    assert con.execute("SELECT ldp.counts(c) FROM d").fetchone() == ({"c": 2, "a": 1},)


# --- parameters at the edge ---


@pytest.mark.parametrize(("epsilon", "size"), [("0.000000000001", 100_000), ("0.0000000001", 1_000_000)])
def test_an_epsilon_too_small_for_the_domain_is_refused_in_plain_words(epsilon: str, size: int) -> None:
    with pytest.raises(LdpError, match="too small"):
        ldpsql.certify(krr(list(range(size)), epsilon))


@pytest.mark.parametrize(
    "call",
    ["__ldp_answer_outcome([1], 1)", "__ldp_answer_outcome({{'reports': [1], 'rows': [1]}}, 1)",
     "__ldp_answer_regression({{'reports': [1], 'rows': [{{'y': 1}}]}}, 1)",
     "__ldp_values_type(NULL, NULL, 18)", "__ldp_missing(NULL, NULL, NULL)",
     "__ldp_learn([MAP {{'a': 1::UBIGINT}}], NULL, NULL)", "__ldp_learn([MAP {{'a': 1::UBIGINT}}], NULL, 'x')",
     "__ldp_learnt(-1, NULL, 12)", "__ldp_ask('tree', 1, 'ignore', 'city')",
     "__ldp_agreed({{'name': NULL, 'place': [], 'columns': NULL}}, 'STRUCT(a INTEGER)', {m})",
     "__ldp_agreed({{'name': 'a', 'place': ['b', NULL], 'columns': [NULL]}}, 'STRUCT(a INTEGER)', {m})",
     "__ldp_parts([-1])", "__ldp_parts([NULL, 1])", "__ldp_parts([18446744073709551615::UBIGINT])",
     "__ldp_order(0, [2000000000])", "__ldp_order(1, [-3])", "__ldp_order(1, [[1]])", "__ldp_call('x', 'x', 'x', 1)",
     "__ldp_call(NULL, 'x', 'x', 1, 'city', 'city')", "__ldp_call('x', 'x', 'x', 1, 5, '')",
     "__ldp_rows_query('x', ['a'], NULL)", "__ldp_bloom_shares(['x'], ['{{}}'], [NULL], 0.1)",
     "__ldp_ask(NULL, {m}, 'x', NULL, NULL, NULL)",
     "__ldp_distance([1], [1], 'emd', ['x'], 1)", "__ldp_distance([1], [1], 'mse', 1, INTERVAL 1 DAY)"],
)  # fmt: skip
def test_a_function_of_the_macros_refuses_other_options_in_one_sentence(con: DuckDBPyConnection, call: str) -> None:
    handle = "system.main.__ldp_mechanism(ldp.krr(1, ['a', 'b']))"
    with pytest.raises(duckdb.Error, match=r"\[LDP(103|201|403)\] .*\. Hint: "):
        con.execute(f"SELECT system.main.{call.format(m=handle)}").fetchall()


@pytest.mark.parametrize("call", ["__ldp_report_kind(NULL, NULL)", "__ldp_shown_type(NULL, NULL)"])
def test_a_type_that_is_null_is_any_type(con: DuckDBPyConnection, call: str) -> None:
    con.execute(f"SELECT system.main.{call}").fetchall()


@pytest.mark.parametrize("weights", ["NULL", "NULL::BIGINT[]", "[]"])
def test_no_list_of_reports_has_no_weights(con: DuckDBPyConnection, weights: str) -> None:
    for reports in ("NULL", "[]::BIGINT[][]"):
        ((found,),) = con.execute(f"SELECT system.main.__ldp_weigh({reports}, {weights})").fetchall()
        assert found is None or not any(found.values())


def test_a_question_that_a_column_names_is_not_shown(con: DuckDBPyConnection) -> None:
    with pytest.raises(duckdb.Error, match=r"\[LDP201\]") as refused:
        con.execute(f"SELECT system.main.__ldp_answer_type(x, x, x, x, x) FROM (SELECT '{CANARY}' AS x)").fetchall()
    assert CANARY not in str(refused.value).partition("LINE 1")[0]
