"""Estimates of groups in Spark on one and on two cores, and the same in DuckDB.

Each group has about 100 reports through k-RR about 16 values, which fall like 1/rank. Spark makes them from hashes, as only
estimation is measured. Each session is a process of its own, which the system keeps on one or on two cores, with its JVM and
its workers. Otherwise a session of one task would use the second core too, for its compiler and its workers. A session first
runs each query on one of the files. Sessions alternate, and the least seconds of each query count, as other work on the machine
only adds to the time.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING

import ldpsql
import ldpsql.spark
from benchmarks.figures import Figure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VALUES, PER_GROUP, CORES, ROUNDS, FILES = 16, 100, (1, 2), 3, 16
QUERIES = ("counts", "ibu", "shared", "em_mr")
NAMES = [f"v{i:02}" for i in range(VALUES)]
MECHANISM = f"krr(epsilon=2, domain={NAMES})"


def session(cores: int) -> SparkSession:
    """Return a session that has only these cores."""
    from pyspark.sql import SparkSession  # noqa: PLC0415  # an extra, which DuckDB's part does not need

    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    options = {"spark.ui.enabled": "false", "spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "8"}
    return SparkSession.builder.master(f"local[{cores}]").config(map=options).getOrCreate()


def write_reports(spark: SparkSession, folder: str, groups: int) -> None:
    """Write the reports of all groups."""
    share = "(shiftrightunsigned(xxhash64(id, {}L), 11) / 9007199254740992D)".format
    true, any_value = f"least({VALUES - 1}, floor(pow({VALUES + 1}, {share(1)}) - 1))", f"floor({share(2)} * {VALUES})"
    kept = f"{share(3)} < (exp(2D) - 1) / (exp(2D) + {VALUES - 1})"
    report = f"format_string('v%02d', if({kept}, {true}, {any_value})) AS report"
    rows = spark.range(0, groups * PER_GROUP, 1, FILES)
    rows.selectExpr(f"pmod(xxhash64(id, 4L), {groups}) AS g", report).write.parquet(folder)


def query(frame: DataFrame, name: str) -> DataFrame:
    """Return the counts of the reports of each group, or the estimates of an estimator."""
    if name == "counts":
        return frame.groupBy("g", "report").count()
    return ldpsql.spark.estimate_groups(frame, "report", ["g"], MECHANISM, name)


def computed(frame: DataFrame, name: str) -> float:
    """Return how many seconds it takes to compute a query."""
    start = perf_counter()
    query(frame, name).write.format("noop").mode("overwrite").save()
    return perf_counter() - start


def run(folder: str, cores: str, groups: str = "") -> None:
    """Write the reports of groups, or print the seconds of each query and the memory of the driver's Python in MiB."""
    spark = session(int(cores))
    if groups:
        write_reports(spark, folder, int(groups))
        return
    for name in QUERIES:
        computed(spark.read.parquet(str(next(Path(folder).glob("*.parquet")))), name)
    seconds = {name: computed(spark.read.parquet(folder), name) for name in QUERIES}
    print(json.dumps({**seconds, "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


def step(*words: str) -> str:
    """Return what a process of its own prints last."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.spark_groups", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout.strip().rpartition("\n")[2]


def in_turn(folder: str, rounds: int) -> dict[int, dict[str, float]]:
    """Return the least of several sessions on each number of cores, which alternate."""
    best: dict[int, dict[str, float]] = {cores: {} for cores in CORES}
    for _ in range(rounds):
        for cores in CORES:
            for name, number in json.loads(step(folder, str(cores))).items():
                best[cores][name] = min(number, best[cores].get(name, number))
    return best


def in_duckdb(folder: str) -> float:
    """Return the seconds of the same in DuckDB."""
    with ldpsql.connect() as con:
        start = perf_counter()
        ldpsql.estimate_groups(con, f"{folder}/*.parquet", "made", report="report", keys=["g"], mechanism=MECHANISM)
        return perf_counter() - start


def figures(quick: bool) -> list[Figure]:
    """Return the seconds on one and on two cores."""
    groups, out = 10_000 if quick else 100_000, []
    with TemporaryDirectory() as parent:
        folder = str(Path(parent, "reports"))
        step(folder, str(CORES[-1]), str(groups))
        what = f"{groups:,} groups, {groups * PER_GROUP:,} reports"
        best = in_turn(folder, 1 if quick else ROUNDS)
        for name in QUERIES:
            out += [Figure(f"{what}: Spark, {cores} core(s), {name}", best[cores][name], "s") for cores in CORES]
            out.append(Figure(f"{what}: Spark, {name}, one core against two", best[1][name] / best[2][name]))
        out.append(Figure(f"{what}: Spark, memory of the driver's Python", best[2]["memory"], "MiB"))
        out.append(Figure(f"{what}: DuckDB, 2 cores, ibu", in_duckdb(folder), "s"))
    return out


if __name__ == "__main__":
    run(*sys.argv[1:])
