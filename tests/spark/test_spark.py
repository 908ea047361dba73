"""Spark on two local workers: the same reports give the same counts and estimates, and nothing is drawn twice."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from duckdb import DuckDBPyConnection
from scipy.stats import chi2_contingency

import ldpsql
from ldpsql import Charge, Key
from ldpsql import spark as ldp_spark
from ldpsql.bulk.many_groups import result_columns
from ldpsql.errors import (
    BudgetExceeded,
    DestinationExists,
    InvalidParameter,
    NotReleased,
    OtherMechanism,
    OutsidePolicy,
    SparkRefused,
    UnknownName,
)
from ldpsql.functions import Registry, registry
from ldpsql.ledger import Ledger, Policy
from tests.warehouses import differences, flat_reports, repeated_differences

pyspark_sql = pytest.importorskip("pyspark.sql")
if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 200_000
MECHANISMS = {
    "krr": "krr(epsilon=1, domain=['Lima', 'Oslo', 'Rome', 'Kyiv'])",
    "olh": "olh(epsilon=1, domain=['Lima', 'Oslo', 'Rome', 'Kyiv'])",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    session = (
        pyspark_sql.SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def people(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("people") / "people.parquet")
    with ldpsql.connect() as con:
        con.execute(
            f"""COPY (SELECT i AS id, ['Lima', 'Oslo', 'Rome', 'Kyiv'][1 + least(3, i % 7)] AS city, 'secret' AS secret
                      FROM range({ROWS}) t(i)) TO '{path}' (ROW_GROUP_SIZE 20_480)"""
        )
    return path


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_same_reports_give_exactly_the_counts_and_estimates_of_duckdb(
    spark: SparkSession, people: str, con: DuckDBPyConnection, tmp_path: Path, name: str
) -> None:
    mechanism, out = MECHANISMS[name], str(tmp_path / "reports")
    made = ldp_spark.perturb(spark.read.parquet(people), {"city": mechanism}, out, keep=["id"])
    assert made.columns == ["id", "city"]
    arguments = mechanism.partition("(")[2].replace("=", " := ")
    con.execute(f"CREATE MACRO m() AS ldp.{name}({arguments}")
    files = f"'{out}/*.parquet'"
    in_duckdb = con.sql(f"SELECT city AS report, count(*) AS n FROM {files} GROUP BY city").to_arrow_table()
    expected = ldpsql.Counts.from_arrow(in_duckdb).to_arrow().to_pylist()
    key = lambda row: str(row["report"])  # noqa: E731
    assert sorted(ldp_spark.counts(made, "city").to_arrow().to_pylist(), key=key) == sorted(expected, key=key)
    for estimator in ("ibu", "inv"):
        estimates = ldp_spark.estimate(made, mechanism, estimator, column="city").to_arrow().to_pylist()
        assert estimates == con.execute(f"SELECT ldp.{estimator}(city, m()) FROM {files}").fetchall()[0][0]
    assert con.execute(f"SELECT count(*), count(DISTINCT id) FROM {files}").fetchall() == [(ROWS, ROWS)]


def test_a_table_of_ibis_on_spark_gives_the_answers_of_duckdb(spark: SparkSession) -> None:
    spark.createDataFrame(flat_reports()).createOrReplaceTempView("counted")
    table = pytest.importorskip("ibis").pyspark.connect(spark).table("counted")
    assert max(differences(table)) <= 1e-12
    assert max(differences(table, "FURTHER")) <= 1e-12
    assert list(repeated_differences(table)) == [0.0]


def test_a_table_of_ibis_on_spark_reads_what_perturb_recorded(spark: SparkSession, people: str, tmp_path: Path) -> None:
    made = ldp_spark.perturb(spark.read.parquet(people), {"city": MECHANISMS["krr"]}, str(tmp_path / "reports"))
    made.createOrReplaceTempView("recorded")
    table = pytest.importorskip("ibis").pyspark.connect(spark).table("recorded")
    assert ldpsql.estimate(table, column="city").to_arrow().equals(ldp_spark.estimate(made, column="city").to_arrow())
    with pytest.raises(OtherMechanism):
        ldpsql.estimate(table, MECHANISMS["krr"].replace("epsilon=1", "epsilon=2"), column="city")


def test_what_was_written_stays_when_it_is_read_again(spark: SparkSession, people: str, tmp_path: Path) -> None:
    made = ldp_spark.perturb(spark.read.parquet(people), {"city": MECHANISMS["krr"]}, str(tmp_path / "reports"))
    first, again = (ldp_spark.counts(made, "city").to_arrow() for _ in range(2))
    assert first.equals(again)
    with pytest.raises(DestinationExists):
        ldp_spark.perturb(spark.read.parquet(people), {"city": MECHANISMS["krr"]}, str(tmp_path / "reports"))


def test_fresh_draws_agree_with_those_of_duckdb(
    spark: SparkSession, people: str, con: DuckDBPyConnection, tmp_path: Path
) -> None:
    """Chi-square of the two tables of (value, report); honest draws fail with probability 1e-6 for each of the two."""
    con.execute("CREATE MACRO m() AS ldp.krr(1, ['Lima', 'Oslo', 'Rome', 'Kyiv'])")
    con.execute(f"CREATE TABLE r AS SELECT id, ldp.perturb(city, m()) AS report FROM '{people}'")
    ldp_spark.perturb(spark.read.parquet(people), {"city": MECHANISMS["krr"]}, str(tmp_path / "a"), keep=["id"])
    ldp_spark.register(spark, {"city": MECHANISMS["krr"]})
    spark.read.parquet(people).createOrReplaceTempView("people")
    spark.sql("SELECT id, ldp_perturb_city(city) AS city FROM people").write.parquet(str(tmp_path / "b"))

    def table(reports: str) -> list[int]:
        joined = f"SELECT p.city, r.report, count(*) FROM '{people}' p JOIN {reports} r USING (id) GROUP BY ALL ORDER BY ALL"
        return [n for *_, n in con.execute(joined).fetchall()]

    in_duckdb = table("r")
    for folder in "ab":
        in_spark = table(f"(SELECT id, city AS report FROM '{tmp_path}/{folder}/*.parquet')")
        assert len(in_spark) == len(in_duckdb) == 16
        assert chi2_contingency(np.array([in_duckdb, in_spark])).pvalue > 1e-6


def test_what_would_draw_twice_or_has_no_type_is_refused(spark: SparkSession, people: str, tmp_path: Path) -> None:
    frame, out = spark.read.parquet(people), str(tmp_path / "out")
    for mechanism in ("oue(epsilon=1, domain=['Lima', 'Oslo'])", "olh(epsilon=1, domain=['a', 'b'], seeds='private')"):
        with pytest.raises(SparkRefused):
            ldp_spark.perturb(frame, {"city": mechanism}, out)
    with pytest.raises(UnknownName):
        ldp_spark.perturb(frame, {"town": MECHANISMS["krr"]}, out)
    spark.sparkContext._conf.set("spark.speculation", "true")
    try:
        with pytest.raises(SparkRefused, match="twice"):
            ldp_spark.perturb(frame, {"city": MECHANISMS["krr"]}, out)
        with pytest.raises(SparkRefused, match="twice"):
            ldp_spark.register(spark, {"city": MECHANISMS["krr"]})
    finally:
        spark.sparkContext._conf.set("spark.speculation", "false")


def test_a_value_outside_of_the_domain_stops_the_job_and_is_not_shown(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame([("Turin 77",)], ["city"])
    with pytest.raises(Exception, match="LDP302") as caught:
        ldp_spark.perturb(frame, {"city": MECHANISMS["krr"]}, str(tmp_path / "out"))
    assert "Turin" not in str(caught.value)
    assert not list((tmp_path / "out").glob("*.parquet"))


EXACT = "krr(epsilon=30, domain=[0, 1, 2, 3])"  # which lies for one value in 10^12: reports show where values went


@pytest.fixture(scope="session")
def sorted_by_value(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a file of 40,000 rows in four row groups of one value each."""
    path = str(tmp_path_factory.mktemp("sorted") / "sorted.parquet")
    with ldpsql.connect() as con:
        rows = "SELECT i // 10_000 AS value, i AS at FROM range(40_000) t(i)"
        con.execute(f"COPY ({rows}) TO '{path}' (ROW_GROUP_SIZE 10_240)")
    return path


def _in_order(folder: Path) -> pl.DataFrame:
    """Return the reports file by file, as they were written."""
    return pl.concat(pl.read_parquet(file).with_columns(file=pl.lit(file.name)) for file in sorted(folder.glob("*.parquet")))


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_neither_files_nor_rows_show_where_in_the_source_a_report_was(
    spark: SparkSession, sorted_by_value: str, tmp_path: Path, adaptive: str
) -> None:
    """Both tests of random order fail with probability 1e-6: of values and files, and of neighbours alike."""
    spark.conf.set("spark.sql.adaptive.enabled", adaptive)
    try:
        frame = spark.read.parquet(sorted_by_value).repartitionByRange(4, "value").sortWithinPartitions("at")
        made = ldp_spark.perturb(frame, {"value": EXACT}, str(tmp_path / "out"), keep=["at"])
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")
    reports = _in_order(tmp_path / "out")
    assert reports.columns == ["value", "at", "file"]
    assert made.columns == ["value", "at"]
    assert sorted(reports["at"]) == list(range(40_000))
    assert (reports["value"] == reports["at"] // 10_000).all()
    if reports["file"].n_unique() > 1:
        files = reports.group_by("file", "value").len().pivot("value", index="file", values="len").fill_null(0)
        assert chi2_contingency(files.drop("file").to_numpy()).pvalue > 1e-6
    alike = int((reports["value"][1:] == reports["value"][:-1]).sum())
    assert abs(alike - 10_000) < 5 * np.sqrt(40_000 * 3 / 16)
    assert not list(tmp_path.glob(".*ldpsql*"))  # nothing waits next to the reports


def test_what_waits_to_be_shuffled_is_deleted_if_the_job_fails(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame([("Turin 77",)], ["city"])
    with pytest.raises(Exception, match="LDP302"):
        ldp_spark.perturb(frame, {"city": MECHANISMS["krr"]}, str(tmp_path / "out"))
    assert not list(tmp_path.iterdir())


def test_order_keep_leaves_rows_where_they_are(spark: SparkSession, sorted_by_value: str, tmp_path: Path) -> None:
    frame = spark.read.parquet(sorted_by_value).coalesce(1)
    ldp_spark.perturb(frame, {"value": EXACT}, str(tmp_path / "out"), keep=["at"], order="keep")
    assert _in_order(tmp_path / "out")["at"].to_list() == list(range(40_000))
    with pytest.raises(InvalidParameter, match="order"):
        ldp_spark.perturb(frame, {"value": EXACT}, str(tmp_path / "other"), order="kept")  # type: ignore[arg-type]


def test_each_value_is_drawn_once_although_spark_sorts_and_reads_again(spark: SparkSession, tmp_path: Path) -> None:
    """The frame counts its own evaluations; a sort of what draws would evaluate it twice, once to sample keys."""
    evaluated = spark.sparkContext.accumulator(0)

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            evaluated.add(batch.num_rows)
            yield batch

    frame = spark.range(1000, numPartitions=4).selectExpr("id % 4 AS value").mapInArrow(count, "value long")
    made = ldp_spark.perturb(frame, {"value": EXACT}, str(tmp_path / "out"))
    assert made.count() == made.sort("value").count() == pc.sum(ldp_spark.counts(made, "value").numbers).as_py() == 1000
    assert evaluated.value == 1000


def test_a_folder_that_the_frame_reads_is_never_replaced(spark: SparkSession, sorted_by_value: str, tmp_path: Path) -> None:
    spark.read.parquet(sorted_by_value).write.parquet(str(tmp_path / "raw"))
    frame = spark.read.parquet(str(tmp_path / "raw"))
    for order in ("random", "keep"):
        with pytest.raises(SparkRefused, match="reads"):
            ldp_spark.perturb(frame, {"value": EXACT}, str(tmp_path / "raw"), replace=True, order=order)
    assert frame.count() == 40_000
    ldp_spark.perturb(frame, {"value": EXACT}, str(tmp_path / "out"))
    ldp_spark.perturb(frame.limit(7), {"value": EXACT}, str(tmp_path / "out"), replace=True)
    assert spark.read.parquet(str(tmp_path / "out")).count() == 7


def test_a_frame_without_rows_gives_a_folder_without_reports(spark: SparkSession, sorted_by_value: str, tmp_path: Path) -> None:
    frame = spark.read.parquet(sorted_by_value).where("at < 0")
    assert ldp_spark.perturb(frame, {"value": EXACT}, str(tmp_path / "out")).count() == 0


def test_a_frame_is_charged_before_it_is_drawn(spark: SparkSession, people: str, tmp_path: Path) -> None:
    frame, ledger = spark.read.parquet(people), Ledger.open(tmp_path / "rows.ledger", Policy(epsilon_budget=1))
    columns = {"city": MECHANISMS["krr"]}
    ldp_spark.perturb(frame, columns, str(tmp_path / "once"), charge=Charge(ledger, "people"))
    assert [(row["state"], row["users"]) for row in ledger.history()] == [("published", ROWS)]
    with pytest.raises(BudgetExceeded):
        ldp_spark.perturb(frame, columns, str(tmp_path / "twice"), charge=Charge(ledger, "people"))
    assert not (tmp_path / "twice").exists()


def test_a_value_outside_of_the_domain_charges_nobody(spark: SparkSession, people: str, tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "users.ledger", Policy(epsilon_budget=2, privacy_unit="id"))
    city = "CASE id WHEN 7 THEN 'Atlantis' ELSE city END AS city"
    frame = spark.read.parquet(people).limit(1000).selectExpr("id % 500 AS id", city)
    with pytest.raises(Exception, match="LDP302"):
        ldp_spark.perturb(frame, {"city": MECHANISMS["krr"]}, str(tmp_path / "r"), charge=Charge(ledger, "people", user="id"))
    assert ledger.history() == []
    assert not (tmp_path / "r").exists()


def test_users_are_charged_for_each_of_their_rows(spark: SparkSession, people: str, tmp_path: Path) -> None:
    frame = spark.read.parquet(people).limit(1000).selectExpr("id % 500 AS id", "city")
    ledger = Ledger.open(tmp_path / "users.ledger", Policy(epsilon_budget=2, privacy_unit="id"))
    charge, city = Charge(ledger, "people", user="id"), {"city": MECHANISMS["krr"]}
    assert ldp_spark.perturb(frame.where("false"), city, str(tmp_path / "nobody"), charge=charge).count() == 0
    assert ledger.history() == []
    ldp_spark.perturb(frame, city, str(tmp_path / "reports"), charge=charge)
    assert [(balance.people, balance.spent) for balance in ledger.balances()] == [(500, "2")]


def test_a_column_with_a_dot_in_its_name_is_refused_in_one_sentence(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(3).selectExpr("'Lima' AS city", "id AS `a.b`")
    ldp_spark.perturb(frame, {"city": MECHANISMS["krr"]}, str(tmp_path / "without"))
    with pytest.raises(SparkRefused, match=r"dot in its name.*'a\.b', 'a_b'"):
        ldp_spark.perturb(frame, {"city": MECHANISMS["krr"]}, str(tmp_path / "with"), keep=["a.b"])


@pytest.mark.parametrize("name", MECHANISMS)
def test_estimates_of_groups_are_exactly_those_of_duckdb(
    spark: SparkSession, con: DuckDBPyConnection, tmp_path: Path, name: str
) -> None:
    path, mechanism, keys = str(tmp_path / "people.parquet"), MECHANISMS[name], ["the day", "kind"]
    cities = "['Lima', 'Oslo', 'Rome', 'Kyiv'][1 + least(3, i % 7)]"
    kind = "CASE WHEN i % 3 > 0 THEN i % 3 END AS kind"  # NULL is a kind
    con.execute(f"""COPY (SELECT i % 300 AS "the day", {kind}, {cities} AS city FROM range(20_000) t(i)) TO '{path}'""")
    made = ldp_spark.perturb(spark.read.parquet(path), {"city": mechanism}, str(tmp_path / "reports"), keep=keys)
    con.execute(f"CREATE MACRO m() AS ldp.{name}({mechanism.partition('(')[2].replace('=', ' := ')}")
    for estimator in ("ibu", "inv", "shared"):
        in_spark = ldp_spark.estimate_groups(made, "city", keys, estimator=estimator)
        con.register("in_spark", in_spark.toArrow())
        keyed = f"""FROM ldp.estimate('{tmp_path}/reports/*.parquet', city, m(),
            by := {{'day': "the day", 'kind': kind}}, estimator := '{estimator}')"""
        expected = con.execute(f"{keyed} ORDER BY ALL").fetchall()
        assert in_spark.columns == [*keys, *result_columns(registry().estimator(estimator))]
        assert len(expected) == 1200
        assert con.execute("FROM in_spark ORDER BY ALL").fetchall() == expected
        options: dict[str, Any] = {"report": "city", "keys": keys, "estimator": estimator, "replace": True}
        ldpsql.estimate_groups(con, f"{tmp_path}/reports/*.parquet", "made", **options)
        assert con.execute("FROM in_spark ORDER BY ALL").fetchall() == con.execute("FROM made ORDER BY ALL").fetchall()


def test_reports_whose_type_records_their_mechanism_are_estimated_with_no_other(
    spark: SparkSession, con: DuckDBPyConnection, tmp_path: Path
) -> None:
    con.execute("CREATE TABLE people AS SELECT ['Lima', 'Oslo', 'Rome'][1 + i % 3] AS city, i % 2 AS day FROM range(900) t(i)")
    drawn = "ldp.perturb_rows(people, {city: ldp.krr(1, ['Lima', 'Oslo', 'Rome'])}, keep := ['day'])"
    con.execute(f"COPY (FROM {drawn}) TO '{tmp_path}/reports.parquet'")
    reports = spark.read.parquet(f"{tmp_path}/reports.parquet")
    con.register("in_spark", ldp_spark.estimate_groups(reports, "city", ["day"]).toArrow())
    expected = con.execute(f"FROM ldp.estimate('{tmp_path}/reports.parquet', city, by := day) ORDER BY ALL").fetchall()
    assert con.execute("FROM in_spark ORDER BY ALL").fetchall() == expected
    assert ldp_spark.estimate(reports, column="city").diagnosis.record == "recorded"
    other = "krr(3, ['Lima', 'Oslo', 'Rome'])"
    with pytest.raises(OtherMechanism):
        ldp_spark.estimate(reports, other, column="city")
    with pytest.raises(OtherMechanism):
        ldp_spark.estimate_groups(reports, "city", ["day"], other)


def test_neighbours_in_spark_are_exactly_those_of_duckdb(spark: SparkSession, con: DuckDBPyConnection, tmp_path: Path) -> None:
    path, day = str(tmp_path / "reports.parquet"), "CASE WHEN i % 300 > 0 THEN DATE '2026-01-01' + (i % 300)::INTEGER END"
    city = "['Lima', 'Oslo', 'Rome', 'Kyiv'][1 + (i % 300 + i // 300 % 30) // 90 % 4]"  # which one is frequent drifts
    con.execute(f"COPY (SELECT {day} AS day, ldp.perturb({city}, city()) AS city FROM range(90_000) t(i)) TO '{path}'")
    options: dict[str, Any] = {"report": "city", "keys": ["day"], "mechanism": MECHANISMS["krr"], "replace": True}
    made = {}
    for estimator in ("shared", 'shared(neighbours="ignore")'):
        ldpsql.estimate_groups(con, path, "made", estimator=estimator, **options)
        frame = ldp_spark.estimate_groups(spark.read.parquet(path), "city", ["day"], MECHANISMS["krr"], estimator)
        con.register("in_spark", frame.toArrow())
        made[estimator] = con.execute("FROM made ORDER BY ALL").fetchall()
        assert con.execute("FROM in_spark ORDER BY ALL").fetchall() == made[estimator]
    assert made["shared"] != made['shared(neighbours="ignore")']


def in_order(frame: DataFrame) -> pa.Table:
    return frame.toArrow().sort_by([("g", "ascending"), ("value", "ascending")])


@pytest.fixture(scope="session")
def grouped(spark: SparkSession) -> DataFrame:
    return spark.range(60_000).selectExpr(
        "cast(id % 300 AS string) AS g", "array('Lima', 'Oslo', 'Rome', 'Kyiv')[pmod(hash(id), 4)] AS city"
    )


@pytest.mark.parametrize("estimator", ["ibu", "shared"])
def test_groups_are_estimated_in_two_tasks_a_core_and_neither_tasks_nor_batches_change_a_number(
    spark: SparkSession, grouped: DataFrame, monkeypatch: pytest.MonkeyPatch, estimator: str
) -> None:
    made = ldp_spark.estimate_groups(grouped, "city", ["g"], MECHANISMS["krr"], estimator)
    assert made.selectExpr("spark_partition_id()").distinct().count() == 4
    expected = in_order(made)
    assert len(expected) == 1200
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "7")
    try:
        assert in_order(made) == expected
        monkeypatch.setattr(ldp_spark, "_tasks", lambda _: 1)
        one_task = ldp_spark.estimate_groups(grouped, "city", ["g"], MECHANISMS["krr"], estimator)
        assert one_task.selectExpr("spark_partition_id()").distinct().count() == 1
        assert in_order(one_task) == expected
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


def test_groups_are_read_together_from_batches_of_any_size() -> None:
    for sizes in ([1], [3, 3, 3], [10], [0, 25, 0, 1], [1] * 9):
        batches = [pa.record_batch({"g": pa.array(range(size), pa.int64())}) for size in sizes]
        parts = list(ldp_spark._together(iter(batches), 4))
        assert pa.concat_tables(parts) == pa.Table.from_batches(batches)
        assert all(len(part) >= 4 for part in parts[:-1])
        assert max(map(len, parts)) < 8


def test_of_very_many_groups_some_are_seen_and_of_very_many_different_reports_those_of_these(
    spark: SparkSession, grouped: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = grouped, "city", ["g"], MECHANISMS["krr"], "shared"
    expected = in_order(ldp_spark.estimate_groups(*arguments))
    monkeypatch.setattr(ldp_spark, "CELLS_AT_ONCE", 3)
    assert in_order(ldp_spark.estimate_groups(*arguments)) == expected
    monkeypatch.setattr(ldp_spark, "GROUPS_SEEN", 100)
    some = in_order(ldp_spark.estimate_groups(*arguments))
    assert some.select(["g", "value", "n"]) == expected.select(["g", "value", "n"])
    assert some != expected
    np.testing.assert_allclose(some["estimate"].to_numpy(), expected["estimate"].to_numpy(), atol=0.1)


def test_times_can_be_kept_and_be_keys_in_any_time_zone(spark: SparkSession, con: DuckDBPyConnection, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.session.timeZone", "America/Lima")
    try:
        rows = spark.range(3000).selectExpr(
            "timestamp_seconds(1767225600 + 3600 * (id % 30)) AS hour", "if(id % 7 < 3, 'Lima', 'Oslo') AS city"
        )
        out = str(tmp_path / "reports")
        made = ldp_spark.perturb(rows, {"city": MECHANISMS["krr"]}, out, keep=["hour"])
        assert made.groupBy("hour").count().exceptAll(rows.groupBy("hour").count()).count() == 0
        renamed = made.withColumnRenamed("hour", "a.`t")
        for estimator in ("ibu", "shared"):
            frame = ldp_spark.estimate_groups(renamed, "city", ["a.`t"], estimator=estimator)
            con.register("in_spark", frame.toArrow())
            options: dict[str, Any] = {"report": "city", "keys": ["hour"], "estimator": estimator, "replace": True}
            ldpsql.estimate_groups(con, f"{out}/*.parquet", "made", **options)
            assert frame.columns[0] == "a.`t"
            in_spark = con.execute('SELECT epoch("a.`t"), * EXCLUDE ("a.`t") FROM in_spark ORDER BY ALL').fetchall()
            assert in_spark == con.execute("SELECT epoch(hour), * EXCLUDE (hour) FROM made ORDER BY ALL").fetchall()
    finally:
        spark.conf.unset("spark.sql.session.timeZone")


@pytest.mark.parametrize("key", ["value", "N", "borrowed"])
def test_a_key_that_is_named_like_a_column_of_the_result_leaves_it_the_name(spark: SparkSession, key: str) -> None:
    frame = spark.createDataFrame([(1, "Lima"), (2, "Oslo")], f"`{key}` int, city string")
    made = ldp_spark.estimate_groups(frame, "city", [key], MECHANISMS["krr"], "shared")
    assert made.columns == [f"{key}_1", "value", "estimate", "std_error", "low", "high", "n", "borrowed"]
    assert {(row[f"{key}_1"], row["value"], row["n"]) for row in made.collect()} == {
        (day, city, 1) for day in (1, 2) for city in ("Lima", "Oslo", "Rome", "Kyiv")
    }


def test_groups_in_order_have_the_neighbours_of_duckdb(spark: SparkSession, con: DuckDBPyConnection, tmp_path: Path) -> None:
    city = "CASE WHEN hash(i) % 100 < 20 + 4 * day THEN 'Rome' ELSE 'Lima' END AS city"  # Lima moves to Rome
    con.execute(f"COPY (SELECT day, {city} FROM (SELECT i, i % 16 AS day FROM range(4800) t(i))) TO '{tmp_path}/r.parquet'")
    frame, mechanism = spark.read.parquet(f"{tmp_path}/r.parquet"), "krr(2, ['Lima', 'Rome'])"
    for estimator in ("shared", 'shared(neighbours="ignore")'):
        con.register("in_spark", ldp_spark.estimate_groups(frame, "city", ["day"], mechanism, estimator).toArrow())
        expected = con.execute(
            f"""FROM ldp.estimate('{tmp_path}/r.parquet', city, ldp.krr(2, ['Lima', 'Rome']),
            by := day, estimator := '{estimator}') ORDER BY ALL"""
        ).fetchall()
        assert con.execute("FROM in_spark ORDER BY ALL").fetchall() == expected


def test_groups_without_reports_are_left_out_and_wrong_arguments_refused(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, "Lima"), (1, "Oslo"), (2, None)], "day int, city string")
    for estimator in ("ibu", "shared"):
        days = ldp_spark.estimate_groups(frame, "city", ["day"], MECHANISMS["krr"], estimator).toArrow()["day"]
        assert days.to_pylist() == [1] * 4
        empty = frame.where("day = 2")
        assert ldp_spark.estimate_groups(empty, "city", ["day"], MECHANISMS["krr"], estimator).count() == 0
    for keys in ([], ["day", "day"]):
        with pytest.raises(InvalidParameter):
            ldp_spark.estimate_groups(frame, "city", keys, MECHANISMS["krr"])
    with pytest.raises(Exception, match="LDP401") as caught:
        ldp_spark.estimate_groups(frame, "city", ["day"], "krr(1, ['Turin', 'Rome'])").collect()
    assert "Lima" not in str(caught.value)


def test_permanent_reports_are_those_of_python_and_charged_once(spark: SparkSession, people: str, tmp_path: Path) -> None:
    key, ledger = Key.create(tmp_path / "key"), Ledger.open(tmp_path / "ledger", Policy(epsilon_budget=5, privacy_unit="id"))
    frame, city, outs = (
        spark.read.parquet(people).limit(500),
        {"city": MECHANISMS["krr"]},
        [str(tmp_path / one) for one in "ab"],
    )
    frame.write.parquet(str(tmp_path / "people"))
    frame = spark.read.parquet(str(tmp_path / "people"))
    options: dict[str, Any] = {"charge": Charge(ledger, "people"), "permanent": True, "key": tmp_path / "key", "keep": ["id"]}
    drawn = [ldp_spark.perturb(frame, city, out, **options).toArrow().sort_by("id").to_pylist() for out in outs]
    expected = ldpsql.perturb_once(frame.toArrow(), city, key=key, user="id", keep=["id"]).sort_by("id").to_pylist()
    assert drawn == [expected, expected]
    assert [(balance.people, balance.spent) for balance in ledger.balances()] == [(500, "1")]
    assert [(entry["reports"], entry["state"]) for entry in ledger.history()] == [(500, "published"), (0, "published")]
    with pytest.raises(InvalidParameter, match="from its file"):
        ldp_spark.perturb(frame, city, str(tmp_path / "c"), permanent=True, user="id")


def test_new_reports_of_a_table_of_permanent_ones_are_refused(
    spark: SparkSession, people: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = f"""[tables.people]\nepsilon = 1\nunit = "id"\npermanent = true\ncolumns = {{ city = "{MECHANISMS["krr"]}" }}\n"""
    (tmp_path / "ldpsql.toml").write_text(policy, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    loaded = Registry.load()
    for name in ("named", "policies"):
        monkeypatch.setattr(registry(), name, getattr(loaded, name))
    monkeypatch.setattr(registry(), "_settled", {})
    frame, out = spark.read.parquet(people), str(tmp_path / "out")
    with pytest.raises(NotReleased, match=r"the privacy unit of \[tables.people\] is id"):
        ldp_spark.perturb(frame, policy="people", into=out)
    for run in (
        lambda: ldp_spark.perturb(frame, {"city": "people_city"}, out),
        lambda: ldp_spark.register(spark, {"city": "people_city"}),
    ):
        with pytest.raises(OutsidePolicy, match=r"\[tables.people\] declares permanent reports, .* would draw new ones"):
            run()
    assert not (tmp_path / "out").exists()
