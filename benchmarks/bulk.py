"""Whole files: perturbing next to a plain copy, counting, memory, and estimates whose cost does not depend on the rows."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
from duckdb import DuckDBPyConnection

import ldpsql
from benchmarks.figures import Figure, against, at_most, cpu_clock, in_turns, peak_mebibytes

K = 100
KRR = f"krr(1, {list(range(K))})"
MEBIBYTES = 1024

_BULK = """
import duckdb
from ldpsql import perturb_copy
start = time.perf_counter()
perturb_copy(duckdb.connect(), sys.argv[1], sys.argv[2], {"x": sys.argv[3]}, replace=True)
seconds = time.perf_counter() - start"""
_SQL = """
import ldpsql
con = ldpsql.connect()
start = time.perf_counter()
con.execute(f"COPY (SELECT ldp.perturb(x, ldp.krr(1, range(100))) AS x FROM '{sys.argv[1]}') TO '{sys.argv[2]}'")
seconds = time.perf_counter() - start"""


def figures(quick: bool) -> list[Figure]:
    """Return all figures; the files are made in a temporary folder."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        return [
            *_files(folder, 5 if quick else 50),
            *_memory(folder, 10 if quick else 100),
            *_sets(quick=quick),
            *_flat(quick=quick),
        ]


def _written(con: DuckDBPyConnection, file: Path, millions: int, value: str = "(random() * 1e9)::BIGINT % 100") -> str:
    con.execute(f"COPY (SELECT {value} AS x FROM range({millions} * 1_000_000)) TO '{file}'")
    return str(file)


def _files(folder: Path, millions: int) -> list[Figure]:
    """Parquet -> perturb -> Parquet, and what comes after it, in processor time against a plain copy."""
    con = ldpsql.connect()
    out, copy = str(folder / "out.parquet"), str(folder / "copy.parquet")
    numbers = _written(con, folder / "in.parquet", millions)
    words = _written(con, folder / "words.parquet", millions // 5, "'city ' || (random() * 1e9)::BIGINT % 100")
    octets = _written(con, folder / "octets.parquet", millions, "((random() * 1e9)::BIGINT % 100)::UTINYINT")
    cities = f"krr(1, {[f'city {i}' for i in range(K)]})"
    con.execute(f"CREATE MACRO m() AS ldp.krr(1, range({K}))")
    frame = pl.scan_parquet(numbers).select(pl.col("x").ldp.perturb(KRR))  # type: ignore[attr-defined]
    reports = ldpsql.perturb_copy(con, numbers, out, {"x": KRR}) and out
    plain, kept, perturbed, counted, polars = in_turns(
        partial(con.execute, f"COPY (FROM '{numbers}') TO '{copy}'"),
        partial(ldpsql.perturb_copy, con, numbers, copy, {"x": KRR}, replace=True, order="keep"),
        partial(ldpsql.perturb_copy, con, numbers, copy, {"x": KRR}, replace=True),
        partial(con.execute, f"CREATE OR REPLACE TABLE c AS SELECT ldp.ibu(x, m()) FROM '{reports}'"),
        partial(frame.sink_parquet, copy),
        clock=cpu_clock,
    )
    narrow, kept_narrow, perturbed_narrow = in_turns(
        partial(con.execute, f"COPY (FROM '{octets}') TO '{copy}'"),
        partial(ldpsql.perturb_copy, con, octets, copy, {"x": KRR}, replace=True, order="keep"),
        partial(ldpsql.perturb_copy, con, octets, copy, {"x": KRR}, replace=True),
        clock=cpu_clock,
    )
    text, kept_text, perturbed_text = in_turns(
        partial(con.execute, f"COPY (FROM '{words}') TO '{copy}'"),
        partial(ldpsql.perturb_copy, con, words, copy, {"x": cities}, replace=True, order="keep"),
        partial(ldpsql.perturb_copy, con, words, copy, {"x": cities}, replace=True),
        clock=cpu_clock,
    )
    return [
        at_most(f"Parquet -> perturb -> Parquet, {millions} M BIGINT, order kept, CPU against a copy", kept / plain, 1.6),
        at_most(f"the same, {millions} M UTINYINT, order kept, CPU against a copy", kept_narrow / narrow, 2.5),
        at_most(f"the same, {millions // 5} M VARCHAR, order kept, CPU against a copy", kept_text / text, 0.9),
        at_most(f"the same, shuffled against unshuffled, {millions} M numbers, CPU", perturbed / kept, 1.6),
        at_most(f"the same, shuffled against unshuffled, {millions // 5} M texts, CPU", perturbed_text / kept_text, 1.6),
        at_most(f"Parquet -> perturb -> Parquet, {millions} M BIGINT, shuffled, CPU against a copy", perturbed / plain, 2),
        at_most(f"the same, {millions} M UTINYINT, shuffled, CPU against a copy", perturbed_narrow / narrow, 2.7),
        at_most(f"the same, {millions // 5} M VARCHAR, shuffled, CPU against a copy", perturbed_text / text, 1.2),
        at_most(f"read, count and estimate {millions} M reports, CPU against a copy", counted / plain, 1.0),
        Figure(f"the same from Polars, streaming, {millions} M numbers, CPU against a copy", polars / plain),
    ]


def _memory(folder: Path, millions: int) -> list[Figure]:
    """Peak memory and time of whole runs, each in a process of its own."""
    with duckdb.connect() as con:
        file = _written(con, folder / "large.parquet", millions)
    bulk, bulk_seconds, bulk_cpu = peak_mebibytes(_BULK, file, str(folder / "o.parquet"), KRR)
    sql, sql_seconds, sql_cpu = peak_mebibytes(_SQL, file, str(folder / "o.parquet"))
    return [
        Figure(f"perturb_copy, {millions} M rows, CPU with start and imports", bulk_cpu / millions * 1e3, "ns/row"),
        Figure(f"ldp.perturb in SQL, {millions} M rows, CPU with start and imports", sql_cpu / millions * 1e3, "ns/row"),
        at_most(f"perturb_copy, {millions} M rows, peak memory", bulk, MEBIBYTES, "MiB"),
        Figure(f"perturb_copy, {millions} M rows", millions / bulk_seconds, "M rows/s"),
        at_most(f"ldp.perturb in SQL, {millions} M rows, peak memory", sql, MEBIBYTES, "MiB"),
        Figure(f"ldp.perturb in SQL, {millions} M rows", sql_seconds, "s"),
    ]


def _sets(*, quick: bool) -> list[Figure]:
    """Bit vectors by histograms of bytes, and hashed reports that DuckDB counts."""
    rows = 200_000 if quick else 1_000_000
    oue = f"oue(1, {list(range(K))})"
    values = pa.array(range(K)).take(pa.array([i % K for i in range(rows)]))
    bits = pa.table({"x": ldpsql.perturb(values, oue)})
    con = ldpsql.connect()
    con.register("bits", bits)
    expanded = " , ".join(f"sum((x[{1 + i // 64}] >> {i % 64}) & 1)" for i in range(K))
    counted, in_sql = in_turns(
        partial(ldpsql.partial_supports, bits, "x", oue),
        partial(con.execute, f"CREATE OR REPLACE TABLE c AS SELECT {expanded} FROM bits"),
        clock=cpu_clock,
    )
    con.execute(f"CREATE MACRO m() AS ldp.olh(1, range({K}))")
    con.execute(f"CREATE TABLE drawn AS SELECT ldp.perturb(range % {K}, m()) AS x FROM range({rows})")
    con.execute("CREATE TABLE r AS SELECT x FROM drawn, range(100)")
    millions = rows // 10_000
    con.execute("CREATE TABLE counts AS SELECT ldp.counts(x) AS counts FROM r")
    grouped, estimated = in_turns(
        partial(con.execute, "CREATE OR REPLACE TABLE c AS SELECT ldp.counts(x) AS counts FROM r"),
        partial(con.execute, "CREATE OR REPLACE TABLE c AS SELECT ldp.inv(counts, m(), misfit := 'allow') FROM counts"),
        repeats=3,
        clock=cpu_clock,
    )
    return [
        Figure(f"OUE, K={K}: bytes counted against {K} sums of bits in SQL", in_sql / counted),
        Figure(f"OUE, K={K}: counting the bits of one report", counted / rows * 1e9, "ns"),
        Figure(f"OLH, {millions} M reports counted inside DuckDB, CPU", grouped / millions * 1e3, "ns/report"),
        Figure(f"OLH, estimate from the counts of {millions} M reports, CPU", estimated * 1e3, "ms"),
    ]


def _flat(*, quick: bool) -> list[Figure]:
    """The time of an estimate from the counts of 10^5 .. 10^8 reports; drawn into ``flat.svg`` where the extra report is."""
    con = ldpsql.connect()
    con.execute(f"CREATE MACRO m() AS ldp.krr(1, range({K}))")
    part = pa.table({"x": pa.array([i % 37 for i in range(100_000)])})
    sizes = [10**5, 10**6, 10**7] if quick else [10**5, 10**6, 10**7, 10**8]
    for size in sizes:
        drawn = (ldpsql.partial_counts(ldpsql.perturb_batches(part, {"x": KRR}), "x") for _ in range(size // len(part)))
        con.register("counted", ldpsql.merge(drawn).to_arrow())
        con.execute(f"CREATE TABLE c{size} AS SELECT map(list(report), list(n)) AS counts FROM counted")
    estimate = "CREATE OR REPLACE TABLE e AS SELECT ldp.ibu(counts, m()) FROM c{}"
    times = in_turns(*(partial(con.execute, estimate.format(size)) for size in sizes), repeats=25, clock=cpu_clock)
    if not quick:
        _draw(sizes, times)
    what = f"estimate from the counts of {sizes[0]:.0e} .. {sizes[-1]:.0e} reports, CPU, slowest against fastest"
    return [at_most(what, max(times) / min(times), 1.2)]


def _draw(sizes: list[int], times: list[float]) -> None:
    if importlib.util.find_spec("altair") is None:
        return
    import altair as alt  # noqa: PLC0415  # an extra

    frame = pl.DataFrame({"reports": sizes, "milliseconds": [1e3 * t for t in times]})
    title = "An estimate from counts takes the same time for any number of reports"
    chart: Any = alt.Chart(frame, title=title).mark_line(point=True)
    chart = chart.encode(
        x=alt.X("reports:Q", scale=alt.Scale(type="log")),
        y=alt.Y("milliseconds:Q", scale=alt.Scale(domain=[0, 2e3 * max(times)])),
    )
    chart.save(Path(__file__).with_name("flat.svg"))


def check() -> Iterator[Figure]:
    """Yield the processor time of perturbing and counting a file against copying it."""
    con = ldpsql.connect()
    con.execute(f"CREATE MACRO m() AS ldp.krr(1, range({K}))")
    with TemporaryDirectory() as name:
        numbers, out, copy = (
            _written(con, Path(name, "in.parquet"), 4),
            str(Path(name, "out.parquet")),
            str(Path(name, "copy.parquet")),
        )
        plain = partial(con.execute, f"COPY (FROM '{numbers}') TO '{copy}'")
        kept = partial(ldpsql.perturb_copy, con, numbers, out, {"x": KRR}, replace=True, order="keep")
        yield against("4 M BIGINT, order kept, against a copy", kept, plain)
        shuffled = partial(ldpsql.perturb_copy, con, numbers, out, {"x": KRR}, replace=True)
        yield against("4 M BIGINT, shuffled, against a copy", shuffled, plain)
        counted = partial(con.execute, f"CREATE OR REPLACE TABLE c AS SELECT ldp.ibu(x, m()) FROM '{out}'")
        yield against("4 M reports read, counted and estimated, against a copy", counted, plain)
