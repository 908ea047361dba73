"""Spark with one core and with two: the time of perturbing rows and of counting the reports, and what the driver gets.

A session has as many cores as it uses: with one, the JVM and its Python workers share it. It needs pyspark and Java, on a
machine that does nothing else, for four minutes: ``.venv-spark/bin/python -m benchmarks spark`` exits 1 if a bound is missed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from statistics import median

from benchmarks.figures import Figure, at_least, at_most

_SESSION = """
import json, os, sys, time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

cores, rows = map(int, sys.argv[1:])
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])  # before there is a JVM
from pyspark.sql import SparkSession
from ldpsql import spark as ldp

builder = SparkSession.builder.master(f"local[{cores}]").config("spark.ui.enabled", "false")
builder = builder.config("spark.sql.shuffle.partitions", "2").config("spark.sql.execution.arrow.maxRecordsPerBatch", "100000")
session = builder.config("spark.driver.memory", "3g").getOrCreate()
session.sparkContext.setLogLevel("ERROR")
mechanisms = {"city": f"krr(1, {list(range(100))})"}

def people(rows, tasks):
    return session.range(0, rows, 1, tasks).selectExpr("id % 100 AS city")

def children(pid):
    return [int(child) for file in Path(f"/proc/{pid}/task").glob("*/children") for child in file.read_text().split()]

def used():  # seconds of the JVM and of the Python workers below it
    seconds, waiting = Counter(jvm=0, workers=0), children(os.getpid())
    while waiting:
        pid = waiting.pop()
        waiting += children(pid)
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
        jvm = "(java" in name
        ticks = rest.split()[11 : 13 if jvm else 15]  # with those of workers that have ended
        seconds["jvm" if jvm else "workers"] += sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
    return seconds

def taken(work):
    session.sparkContext.setJobGroup(work.__name__, "")
    before, start = used(), time.perf_counter()
    result = work()
    wall, after = time.perf_counter() - start, used()
    return result, {"wall": wall, **{name: after[name] - before[name] for name in after}, "sent": sent(work.__name__)}

def sent(group):  # bytes of the results that the tasks of a group sent to the driver
    context = session.sparkContext
    store, jobs = context._jsc.sc().statusStore(), context.statusTracker()
    stages = [stage for job in jobs.getJobIdsForGroup(group) for stage in jobs.getJobInfo(job).stageIds]
    tasks = [tasks.apply(i) for stage in stages for tasks in [store.taskList(stage, 0, 1000)] for i in range(tasks.size())]
    return sum(task.taskMetrics().get().resultSize() for task in tasks)

with TemporaryDirectory() as folder:
    people(rows, 4).write.parquet(f"{folder}/people.parquet")
    frame = session.read.parquet(f"{folder}/people.parquet")

    def perturb():
        return ldp.perturb(frame, mechanisms, f"{folder}/out.parquet", order="keep")

    def count():
        return ldp.counts(reports, "city")

    ldp.perturb(people(1000, cores), mechanisms, f"{folder}/warm.parquet", order="keep")  # each worker imports ldpsql
    reports, perturbed = taken(perturb)
    counts, counted = taken(count)
    assert sum(counts.numbers.to_pylist()) == rows
    print(json.dumps({"perturb": perturbed, "count": counted}))
session.stop()
"""


def figures(quick: bool) -> list[Figure]:
    """Return all figures; none without pyspark, or with one core only."""
    if find_spec("pyspark") is None or len(os.sched_getaffinity(0)) < 2:
        print("spark: there is no pyspark (make test-spark), or one core only", file=sys.stderr)
        return []
    return list(_figures(5_000_000 if quick else 50_000_000, 1 if quick else 3))


def _figures(rows: int, repeats: int) -> Iterator[Figure]:
    # The cores may have other work to do: one core and two take turns.
    rounds = [(_session(1, rows), _session(2, rows)) for _ in range(repeats)]
    millions = rows // 1_000_000
    for work in ("perturb", "count"):
        one, two = ([each[place][work] for each in rounds] for place in (0, 1))
        yield Figure(f"{work} {millions} M rows with one core", median(each["wall"] for each in one), "s")
        yield Figure(f"{work} {millions} M rows with two cores", median(each["wall"] for each in two), "s")
        ratio = median(a["wall"] / b["wall"] for a, b in zip(one, two, strict=True))
        yield at_least(f"{work}, one core against two", ratio, 1.6)
        for part, name in (("jvm", "the JVM"), ("workers", "the Python workers")):
            yield Figure(f"{work}, CPU of {name}", median(each[part] for each in one) / rows * 1e9, "ns/row")
    most = max(two["count"]["sent"] for _, two in rounds)
    yield at_most(f"sent to the driver to count {millions} M rows", most, 20_000, "bytes")


def _session(cores: int, rows: int) -> dict[str, dict[str, float]]:
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    command = [sys.executable, "-c", _SESSION, str(cores), str(rows)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    print(f"load {os.getloadavg()[0]:.1f}, {cores} cores: {done.stdout.splitlines()[-1]}", file=sys.stderr)
    result: dict[str, dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
    return result


def check() -> Iterator[Figure]:
    """Yield nothing: the figures need Spark, and are times of the wall."""
    yield from ()
