"""Estimates of groups in Spark on one and two cores, and the same in DuckDB.

Each group has about 100 reports through k-RR about 16 values. NumPy draws the reports with a fixed seed, as only estimation
is measured, by the clock: executors are processes of their own. The first run of each session only starts the workers. Sessions
on one and on two cores alternate, and the best of them counts, as other work on the machine only adds to the time.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import ldpsql
import ldpsql.spark
from benchmarks.figures import Figure

VALUES, PER_GROUP, CORES, ROUNDS = 16, 100, (1, 2), 3
ESTIMATORS = ("ibu", "shared")
NAMES = [f"v{i:02}" for i in range(VALUES)]
MECHANISM = f"krr(epsilon=2, domain={NAMES})"


def write_reports(path: Path, groups: int) -> None:
    """Write reports whose values fall like 1/rank."""
    draw, lie = np.random.default_rng(1), 1.0 / (np.exp(2.0) + VALUES - 1)
    shares = 1.0 / np.arange(1, VALUES + 1)
    chances = lie + (1.0 - VALUES * lie) * shares / shares.sum()
    n = groups * PER_GROUP
    reports = pa.DictionaryArray.from_arrays(draw.choice(VALUES, n, p=chances).astype(np.int8), NAMES).cast(pa.string())
    pq.write_table(pa.table({"g": draw.integers(0, groups, n), "report": reports}), path, row_group_size=1 << 18)


def written(frame: DataFrame) -> float:
    """Return how many seconds it takes to compute a frame."""
    start = perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return perf_counter() - start


def in_spark(path: Path, cores: int) -> dict[str, float]:
    """Return the seconds to count the reports of each group, and to count and estimate each group."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = SparkSession.builder.master(f"local[{cores}]").config("spark.ui.enabled", "false")
    spark = session.config("spark.sql.shuffle.partitions", "4").getOrCreate()
    try:
        frame = spark.read.parquet(str(path))
        written(ldpsql.spark.estimate_groups(frame.limit(1000), "report", ["g"], MECHANISM))
        frames = {name: ldpsql.spark.estimate_groups(frame, "report", ["g"], MECHANISM, name) for name in ESTIMATORS}
        return {name: written(each) for name, each in {"counts": frame.groupBy("g", "report").count(), **frames}.items()}
    finally:
        spark.stop()


def in_turn(path: Path, rounds: int) -> dict[int, dict[str, float]]:
    """Return the least seconds of several sessions on each number of cores, which alternate."""
    best: dict[int, dict[str, float]] = {cores: {} for cores in CORES}
    for _ in range(rounds):
        for cores in CORES:
            for name, seconds in in_spark(path, cores).items():
                best[cores][name] = min(seconds, best[cores].get(name, seconds))
    return best


def in_duckdb(path: Path) -> float:
    """Return the seconds of the same in DuckDB."""
    with ldpsql.connect() as con:
        start = perf_counter()
        ldpsql.estimate_groups(con, str(path), "made", report="report", keys=["g"], mechanism=MECHANISM)
        return perf_counter() - start


def figures(quick: bool) -> list[Figure]:
    """Return the seconds on one and on two cores."""
    groups, out = 10_000 if quick else 100_000, []
    with TemporaryDirectory() as folder:
        path = Path(folder, "reports.parquet")
        write_reports(path, groups)
        what = f"{groups:,} groups, {groups * PER_GROUP:,} reports"
        best = in_turn(path, 1 if quick else ROUNDS)
        for name in best[CORES[0]]:
            out += [Figure(f"{what}: Spark, {cores} core(s), {name}", best[cores][name], "s") for cores in CORES]
            out.append(Figure(f"{what}: Spark, {name}, one core against two", best[1][name] / best[2][name]))
        out.append(Figure(f"{what}: DuckDB, 2 cores, ibu", in_duckdb(path), "s"))
    return out
