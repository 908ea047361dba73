"""Speed of the SQL functions, as ratios against plain DuckDB on the same rows in the same run.

``python benchmarks/sql.py [MILLIONS]``: one report table of so many million rows (default 100), K = 100 values, 100 groups.
Prints a table and writes ``benchmarks/sql.json``. The machine may be shared: each figure is the median of five runs, in turns.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from statistics import median
from time import perf_counter

from duckdb import DuckDBPyConnection

import ldpsql

REPEATS = 5


def seconds(con: DuckDBPyConnection, sql: str) -> float:
    """Return how long a statement takes."""
    start = perf_counter()
    con.execute(sql).fetchall()
    return perf_counter() - start


def in_turns(con: DuckDBPyConnection, *statements: str) -> list[float]:
    """Return the median time of each statement, run one after the other so that all meet the same disturbances."""
    rounds = [[seconds(con, sql) for sql in statements] for _ in range(REPEATS)]
    return [median(times) for times in zip(*rounds, strict=True)]


def main(millions: int) -> None:
    """Measure, print and write."""
    con = ldpsql.connect()
    con.execute("CREATE MACRO m() AS ldp.krr(1.0, range(100))")
    rows: list[dict[str, object]] = []

    def record(what: str, took: float, plain: float, asked: str) -> None:
        rows.append(
            {"what": what, "seconds": round(took, 3), "plain": round(plain, 3), "ratio": round(took / plain, 2), "asked": asked}
        )

    con.execute("CREATE TABLE people AS SELECT range % 100 AS x FROM range(10_000_000)")
    plain, perturbed = in_turns(
        con,
        "CREATE OR REPLACE TABLE c AS SELECT x FROM people",
        "CREATE OR REPLACE TABLE c AS SELECT ldp.perturb(x, m()) AS x FROM people",
    )
    record(f"perturb 10 M rows ({10 / perturbed:.1f} M rows/s)", perturbed, plain, "at least 8 M rows/s")

    con.execute(
        f"""CREATE TABLE r AS SELECT (range // 10) % 100 AS g, ldp.perturb(range % 100, m()) AS x
            FROM range({millions} * 1_000_000)"""
    )
    plain, estimated = in_turns(
        con,
        "CREATE OR REPLACE TABLE c AS SELECT g, x, count(*) FROM r GROUP BY g, x",
        "CREATE OR REPLACE TABLE c AS SELECT g, ldp.ibu(x, m()) FROM r GROUP BY g",
    )
    record(f"ibu over {millions} M reports, 100 groups", estimated, plain, "at most 1.3 x")
    plain, estimated = in_turns(con, "SELECT x, count(*) FROM r GROUP BY x", "SELECT ldp.ibu(x, m()) FROM r")
    record(f"ibu over {millions} M reports, one group", estimated, plain, "")

    con.execute(
        "CREATE OR REPLACE TABLE r AS SELECT range % 100_000 AS g, ldp.perturb(range % 97, m()) AS x FROM range(10_000_000)"
    )
    plain, estimated = in_turns(
        con,
        "CREATE OR REPLACE TABLE c AS SELECT g, histogram(x) FROM r GROUP BY g",
        "CREATE OR REPLACE TABLE c AS SELECT g, ldp.ibu(x, m()) FROM r GROUP BY g",
    )
    record("ibu in 100,000 groups against histogram", estimated, plain, "at most 2 x")

    for row in rows:
        print(f"{row['what']:<48} {row['seconds']:>8} s  plain {row['plain']:>7} s  {row['ratio']:>6} x  {row['asked']}")
    versions = {name: version(name) for name in ("ldpsql", "duckdb", "numpy", "pyarrow")}
    machine = {"python": platform.python_version(), "machine": platform.machine(), "cores": os.cpu_count(), **versions}
    Path(__file__).with_suffix(".json").write_text(json.dumps({"machine": machine, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
