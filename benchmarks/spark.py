"""Spark with one core and with two: the time of perturbing rows and of counting the reports, and what the driver does.

It needs pyspark and Java, on a machine that does nothing else: ``.venv-spark/bin/python -m benchmarks spark``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from statistics import median
from typing import Any

from benchmarks.figures import Figure, at_least, at_most

_SESSION = """
import json, os, sys, time
from pathlib import Path
from tempfile import TemporaryDirectory
from pyspark.sql import SparkSession
from ldpsql import spark as ldp

cores, rows = map(int, sys.argv[1:])
builder = SparkSession.builder.master(f"local[{cores}]").config("spark.ui.enabled", "false")
builder = builder.config("spark.sql.shuffle.partitions", "2").config("spark.sql.execution.arrow.maxRecordsPerBatch", "100000")
session = builder.config("spark.driver.memory", "3g").getOrCreate()
session.sparkContext.setLogLevel("ERROR")
mechanism = f"krr(1, {list(range(100))})"

def commands(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""

def ticks(pid):
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

def workers():
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return sum(ticks(pid) for pid in pids if b"pyspark.daemon" in commands(pid))

def taken(work):
    before, start, own = workers(), time.perf_counter(), time.process_time()
    result = work()
    return result, time.perf_counter() - start, workers() - before, time.process_time() - own

with TemporaryDirectory() as folder:
    source = f"{folder}/people.parquet"
    session.range(0, rows, 1, 4).selectExpr("id % 100 AS city").write.parquet(source)
    frame = session.read.parquet(source)
    ldp.perturb(frame.limit(1000), {"city": mechanism}, f"{folder}/warm.parquet", order="keep")
    reports, *perturbed = taken(lambda: ldp.perturb(frame, {"city": mechanism}, f"{folder}/out.parquet", order="keep"))
    counts, *counted = taken(lambda: ldp.counts(reports, "city"))
    print(json.dumps({"perturb": perturbed, "count": counted, "fetched": len(counts.reports)}))
session.stop()
"""


def figures(quick: bool) -> list[Figure]:
    """Return all figures; none without pyspark."""
    if find_spec("pyspark") is None:
        print("spark: there is no pyspark (make test-spark)", file=sys.stderr)
        return []
    return list(_figures(5_000_000 if quick else 50_000_000, 1 if quick else 3))


def _figures(rows: int, repeats: int) -> Iterator[Figure]:
    # The cores may have other work to do: one core and two take turns.
    rounds = [(_session(1, rows), _session(2, rows)) for _ in range(repeats)]
    millions = rows // 1_000_000
    for work in ("perturb", "count"):
        one, two = ([each[place][work] for each in rounds] for place in (0, 1))
        yield Figure(f"{work} {millions} M rows with one core", median(each[0] for each in one), "s")
        yield at_least(f"{work}, one core against two", median(a[0] / b[0] for a, b in zip(one, two, strict=True)), 1.6)
        yield Figure(f"{work}, CPU of the Python workers", median(each[1] for each in one) / rows * 1e9, "ns/row")
        yield Figure(f"{work}, CPU of the driver's Python", median(each[2] for each in two), "s")
    yield at_most(f"rows that the driver fetches to count {millions} M", max(two["fetched"] for _, two in rounds), 100, "rows")


def _session(cores: int, rows: int) -> dict[str, Any]:
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    command = [sys.executable, "-c", _SESSION, str(cores), str(rows)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    print(f"load {os.getloadavg()[0]:.1f}: {done.stdout.splitlines()[-1]}", file=sys.stderr)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def check() -> Iterator[Figure]:
    """Yield nothing: the figures need Spark, and are times of the wall."""
    yield from ()
