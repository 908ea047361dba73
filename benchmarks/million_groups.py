"""A million groups in DuckDB: CPU time and memory of ``estimate_groups``, and a run that is killed and resumed.

Each group has about 100 reports through k-RR about 16 values, which fall like 1/rank. Every step is a process of its own, so
that its CPU time and its memory can be read. DuckDB has two threads and 1 GB; its own memory counts.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

from duckdb import DuckDBPyConnection

import ldpsql
from benchmarks.figures import Figure, against, at_most

NAMES = [f"v{i:02}" for i in range(16)]
MECHANISM = f"krr(epsilon=2, domain={NAMES})"
PER_GROUP, GIB = 100, 1 << 30
KILLED = 0.4  # of the groups, after which a run is killed
MOST = {"ibu": 2.0, "shared": 3.0}


def write_reports(con: DuckDBPyConnection, groups: int) -> None:
    """Write the reports of all groups."""
    con.execute(f"CREATE TEMP MACRO m() AS ldp.krr(2.0, {NAMES})")
    place = "least(15, floor(pow(17, hash(i, 2) / 18446744073709551616) - 1))::INTEGER"
    con.execute(
        f"""CREATE TABLE reports AS SELECT g, ldp.perturb(v, m()) AS report
            FROM (SELECT (hash(i, 1) % {groups})::INTEGER AS g, {NAMES}[1 + {place}] AS v
                  FROM range({groups * PER_GROUP}) t(i))"""
    )


def count(con: DuckDBPyConnection) -> None:
    """Write the counts of each group, which is what estimates are compared with."""
    con.execute("CREATE OR REPLACE TABLE counts AS SELECT g, report, count(*) AS n FROM reports GROUP BY ALL")


def estimate(con: DuckDBPyConnection, estimator: str, into: str, share: float) -> None:
    """Estimate each group; after this share of them the process kills itself. A run that was killed before goes on."""

    def progress(done: int, groups: int | None) -> None:
        if groups and done >= share * groups:
            os.kill(os.getpid(), signal.SIGKILL)

    options = {"report": "report", "keys": ["g"], "mechanism": MECHANISM, "estimator": estimator}
    ldpsql.estimate_groups(con, "reports", into, resume=True, progress=progress, **options)


def step(database: Path, *words: str) -> dict[str, float]:
    """Return the CPU seconds and the memory of one step in a process of its own; nothing if it is killed."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.million_groups", str(database), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == -signal.SIGKILL:
        return {}
    if done.returncode:
        raise RuntimeError(done.stderr)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def run(database: str, what: str, *rest: str) -> None:
    """Do one step, and print its CPU seconds and its memory."""
    with ldpsql.connect(database) as con:
        con.execute("SET threads = 2; SET memory_limit = '1GB'")
        start = process_time()
        if what == "write":
            write_reports(con, int(rest[0]))
        elif what == "count":
            count(con)
        else:
            estimate(con, what, rest[0], float(rest[1]))
        seconds = process_time() - start
    print(json.dumps({"cpu": seconds, "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB}))


def same(database: Path, first: str, second: str) -> bool:
    """Return whether two tables have the same rows, to the last bit."""
    with ldpsql.connect(str(database)) as con:
        (different,) = con.execute(f"SELECT count(*) FROM (FROM {first} EXCEPT ALL FROM {second})").fetchall()[0]
        return not different


def figures(quick: bool) -> list[Figure]:
    """Return the CPU time against a GROUP BY, the memory, and how a run ends that is killed and resumed."""
    groups = 20_000 if quick else 1_000_000
    with TemporaryDirectory() as folder:
        database, out = Path(folder, "groups.duckdb"), []
        what = f"{groups:,} groups, {groups * PER_GROUP:,} reports"
        step(database, "write", str(groups))
        counted = step(database, "count")
        out.append(Figure(f"{what}: GROUP BY that writes the counts, CPU", counted["cpu"], "s"))
        for name, most in MOST.items():
            took = step(database, name, name, "inf")
            out += [
                at_most(f"{what}: {name}, CPU against that GROUP BY", took["cpu"] / counted["cpu"], most),
                at_most(f"{what}: {name}, memory", took["memory"], 2.0, "GiB"),
            ]
        killed = step(database, "shared", "resumed", str(KILLED))
        rest = step(database, "shared", "resumed", "inf")
        out.append(Figure(f"{what}: shared, CPU of the rest after a kill -9", rest["cpu"], "s"))
        equal = not killed and same(database, "shared", "resumed")
        out.append(at_most(f"{what}: tables that a kill changed", float(not equal), 0.0, ""))
    return out


def check() -> Iterator[Figure]:
    """Yield the processor time of 5,000 groups against a GROUP BY that writes the counts."""
    with TemporaryDirectory() as folder, ldpsql.connect(str(Path(folder, "groups.duckdb"))) as con:
        write_reports(con, 5_000)
        for name in MOST:
            options = {"report": "report", "keys": ["g"], "mechanism": MECHANISM, "estimator": name, "replace": True}
            own = partial(ldpsql.estimate_groups, con, "reports", name, **options)
            yield against(f"5,000 groups: {name} against GROUP BY", own, partial(count, con), 3)


if __name__ == "__main__":
    run(*sys.argv[1:])
