"""A table of PostgreSQL: estimating next to the server's own GROUP BY, perturbing next to a copy by the same driver.

It starts a server of its own (Debian's package postgresql), and needs the extras ``ibis`` and ``adbc`` and the driver psycopg.
``.venv-warehouses/bin/python -m benchmarks warehouse`` takes two minutes, and exits 1 if a bound is missed.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from statistics import median
from time import perf_counter
from typing import Any

import ibis

import ldpsql
from benchmarks.figures import Figure, at_most, peak_mebibytes
from tests.postgres.servers import PATH, running

CITY = f"krr(1, {list(range(20))})"
GROUPS, REPEATS = 100, 5
_START = """
from adbc_driver_postgresql import dbapi
import duckdb, ldpsql
uri, mechanism = sys.argv[1:]"""
_COPY = """
start = time.perf_counter()
with dbapi.connect(uri) as source, dbapi.connect(uri) as sink, source.cursor() as read, sink.cursor() as written:
    read.execute("SELECT region, city FROM people")
    written.execute("DROP TABLE IF EXISTS out")
    written.adbc_ingest("out", read.fetch_record_batch(), mode="create")
    sink.commit()
seconds = time.perf_counter() - start"""
_PERTURB = """
start = time.perf_counter()
ldpsql.perturb_table(duckdb.connect(), uri + "#people", uri + "#out", {"city": mechanism}, keep=["region"], replace=True)
seconds = time.perf_counter() - start"""


def figures(quick: bool) -> list[Figure]:
    """Return all figures; none if there is no PostgreSQL, or no driver for Ibis."""
    if shutil.which("initdb", path=PATH) is None or find_spec("psycopg") is None:
        print("warehouse: there is no PostgreSQL, or no psycopg (make test-postgres)", file=sys.stderr)
        return []
    with running() as folder:
        return [*_figures(folder, 1 if quick else 10)]


def _figures(folder: str, millions: int) -> Iterator[Figure]:
    con = ibis.postgres.connect(host=folder, user="test", database="postgres")
    rows = f"generate_series(1, {millions} * 1000000) AS t(i)"
    con.raw_sql(f"CREATE TABLE people AS SELECT i % {GROUPS} AS region, floor(random() * 20)::int AS city FROM {rows}").close()
    con.con.commit()
    con.con.autocommit = True  # VACUUM is no part of a transaction
    con.raw_sql("VACUUM ANALYZE people").close()
    table = con.table("people")
    # The server may have other work to do: each pair is one after the other, and the median of the pairs counts.
    own, estimated = zip(*((_taken(_grouped, con), _taken(_estimated, table)) for _ in range(REPEATS)), strict=True)
    above = [ours - 1.2 * theirs for ours, theirs in zip(estimated, own, strict=True)]
    yield Figure(f"GROUP BY of {millions} M rows, fetched", median(own), "s")
    yield Figure(f"estimate of {millions} M rows by {GROUPS} groups", median(estimated), "s")
    yield at_most("the estimate beyond 1.2 x the GROUP BY", median(above), 0.2, "s")
    copy, ours = partial(_run, _COPY, folder), partial(_run, _PERTURB, folder)
    rounds = [(copy(), ours()) for _ in range(1 if millions == 1 else 3)]
    yield Figure(f"copy {millions} M rows by the driver", median(one[1] for one, _ in rounds), "s")
    yield Figure(f"perturb {millions} M rows, table to table", median(two[1] for _, two in rounds), "s")
    yield at_most("perturb against the copy", median(two[1] / one[1] for one, two in rounds), 2.0)
    yield at_most("perturb, peak memory", max(two[0] for _, two in rounds), 500, "MiB")


def _run(code: str, folder: str) -> tuple[float, float, float]:
    return peak_mebibytes(_START + code, f"postgresql:///postgres?host={folder}&user=test", CITY)


def _grouped(con: Any) -> None:
    with con.con.cursor() as cursor:
        cursor.execute("SELECT region, city, count(*) FROM people GROUP BY region, city").fetchall()


def _estimated(table: Any) -> None:
    ldpsql.estimate(table, CITY, column="city", by="region")


def _taken(work: Any, argument: Any) -> float:
    start = perf_counter()
    work(argument)
    return perf_counter() - start


def check() -> Iterator[Figure]:
    """Yield nothing: the figures need a server, and are times of the wall."""
    yield from ()
