"""Spark on two local workers: the same reports give the same counts and estimates, and nothing is drawn twice."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from duckdb import DuckDBPyConnection
from scipy.stats import chi2_contingency

import ldpsql
from ldpsql import spark as ldp_spark
from ldpsql.errors import SparkRefused, UnknownName

pyspark_sql = pytest.importorskip("pyspark.sql")
if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
        found = ldp_spark.estimate(made, "city", mechanism, estimator).to_arrow().to_pylist()
        assert found == con.execute(f"SELECT ldp.{estimator}(city, m()) FROM {files}").fetchall()[0][0]
    assert con.execute(f"SELECT count(*), count(DISTINCT id) FROM {files}").fetchall() == [(ROWS, ROWS)]


def test_what_was_written_stays_when_it_is_read_again(spark: SparkSession, people: str, tmp_path: Path) -> None:
    made = ldp_spark.perturb(spark.read.parquet(people), {"city": MECHANISMS["krr"]}, str(tmp_path / "reports"))
    first, again = (ldp_spark.counts(made, "city").to_arrow() for _ in range(2))
    assert first.equals(again)
    with pytest.raises(Exception, match="PATH_ALREADY_EXISTS"):
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


def test_a_value_outside_of_the_domain_stops_the_job_without_being_told(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame([("Turin 77",)], ["city"])
    with pytest.raises(Exception, match="LDP302") as caught:
        ldp_spark.perturb(frame, {"city": MECHANISMS["krr"]}, str(tmp_path / "out"))
    assert "Turin" not in str(caught.value)
    assert not list((tmp_path / "out").glob("*.parquet"))
