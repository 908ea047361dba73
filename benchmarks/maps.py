"""Maps of up to 160,000 cells: drawing, certifying and reading them, next to the same on 24 x 16 cells.

CPU seconds in one thread. People are at a few dozen places of different size; a million people, a quick run takes a tenth.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from time import process_time

import numpy as np
import pyarrow as pa

import ldpsql
from benchmarks.figures import Figure, against, at_least, at_most, in_turns, peak_mebibytes
from ldpsql.estimates.estimate import Estimate
from ldpsql.functions import registry
from ldpsql.mechanisms import certify, certify_values
from ldpsql.testing import estimate_counts

SMALL, LARGE = "planar_geometric(0.2, 24, 16)", "planar_geometric(0.2, 300, 300)"
PLACES = 40


def figures(quick: bool) -> list[Figure]:
    """Return all figures."""
    people = 100_000 if quick else 1_000_000
    return [*drawing(people), *certifying(), *reading(people), memory()]


def crowd(columns: int, rows: int) -> np.ndarray:
    """Return shares of the cells: people around places of different size."""
    draw = np.random.default_rng(11)
    row, column = np.mgrid[:rows, :columns]
    out = np.zeros((rows, columns))
    for _ in range(PLACES):
        (x, y), spread = draw.random(2) * (columns, rows), draw.uniform(0.01, 0.08) * columns
        out += draw.uniform(0.2, 1) * np.exp(-((column - x) ** 2 + (row - y) ** 2) / (2 * spread**2)) / spread**2
    return np.asarray(out / out.sum()).ravel()


def drawing(people: int) -> Iterator[Figure]:
    """Measure what a row costs, in a frame and in SQL, where a statement over many cells also has a cost of its own."""
    con, frames, statements, single = ldpsql.connect(), [], [], []
    con.execute("SET threads = 1; SET enable_progress_bar = false")
    for number, text in enumerate((LARGE, SMALL)):
        certified = certify_values(registry().mechanism(text))
        column = pa.array(np.random.default_rng(5).integers(0, certified.channel.inputs, people))
        con.register(f"source{number}", pa.table({"cell": column}))
        con.execute(f"CREATE TABLE people{number} AS FROM source{number}")
        frames.append(partial(certified.perturb, column))
        sql = f"SELECT count(ldp.perturb(cell, ldp.{text})) FROM people{number}"
        statements.append(partial(con.execute, sql))
        single.append(partial(con.execute, f"{sql} WHERE rowid = 0"))
    large, small = in_turns(*frames, clock=process_time)
    yield at_most("perturb a row in a frame, 300x300 against 24x16 cells", large / small, 1.3)
    large, small, alone, alone_small = in_turns(*statements, *single, clock=process_time)
    yield at_most("perturb a row in SQL, 300x300 against 24x16 cells", (large - alone) / (small - alone_small), 1.3)
    yield Figure("the same with what the statement itself costs", large / small, "x")
    yield Figure("a statement that perturbs one of 300x300 cells", alone, "s")


def certifying() -> Iterator[Figure]:
    """Measure how long building and certifying a channel takes."""
    for text in (LARGE, "planar_laplace(0.2, 400, 400)", "planar_geometric(0.2, 45, 45)"):
        start = process_time()
        certify(registry().mechanism(text))
        yield Figure(f"{text}: certificate", process_time() - start, "s")
    rows = np.random.default_rng(3).integers(10**8, 10**9, (300, 300))
    texts = [[f"{part}/{sum(row)}" for part in row] for row in rows.tolist()]
    start = process_time()
    certify(registry().mechanism({"mechanism": "matrix", "domain": list(range(300)), "rows": texts}))
    yield Figure("matrix of 300 x 300 fractions: read and certified", process_time() - start, "s")


def reading(people: int) -> Iterator[Figure]:
    """Measure estimates of a map, and how much closer to the truth than the reports they are."""
    yield from estimated(LARGE, 300, 300, people)
    yield from estimated("planar_geometric(0.2, 400, 400)", 400, 400, people)
    yield from estimated("planar_geometric(1, 150, 150)", 150, 150, people)


def estimated(text: str, columns: int, rows: int, people: int) -> Iterator[Figure]:
    """Measure the estimates of one map."""
    mechanism, truth = registry().mechanism(text), crowd(columns, rows)
    values = np.random.default_rng(7).choice(len(truth), people, p=truth).astype(np.int32)
    drawn = certify_values(mechanism).channel.draw(values)
    counts = np.bincount(drawn, minlength=len(truth))[None].astype(np.float64)

    def timed(estimator: str) -> tuple[float, Estimate]:
        start = process_time()
        one = estimate_counts(mechanism, counts, registry().estimator(estimator))[0]
        return process_time() - start, one

    def distance(one: Estimate) -> float:
        return float(np.abs(one.estimate - truth).sum()) / 2

    raw = distance(timed("observed")[1])
    seconds, one = timed("ibu(stop='held_out')")
    yield Figure(f"{text}: ibu, held out", seconds, "s")
    yield at_least(f"{text}: distance to the truth, reports against ibu", raw / distance(one), 1.5)
    seconds, one = timed("best")
    yield Figure(f"{text}: best", seconds, "s")
    yield Figure(f"{text}: distance to the truth of best", distance(one), "")
    seconds, one = timed("ibu")
    yield at_most(f"{text}: certified gap of the maximum", one.diagnosis.gap, 1e-9, "")
    yield Figure(f"{text}: this maximum", seconds, "s")


def memory() -> Figure:
    """Measure the peak memory of a process that draws and reads 400 x 400 cells."""
    code = """
import numpy as np, ldpsql
from ldpsql.mechanisms import certify_values
from ldpsql.functions import registry
from ldpsql.testing import estimate_counts
mechanism = registry().mechanism("planar_laplace(0.2, 400, 400)")
drawn = certify_values(mechanism).channel.draw(np.arange(200_000, dtype=np.int32) % 160_000)
counts = np.bincount(drawn, minlength=160_000)[None].astype(float)
estimate_counts(mechanism, counts, registry().estimator("ibu(stop='held_out', max_iterations=20)"))
seconds = 0
"""
    return at_most("planar_laplace 400x400, drawn and read: peak memory", peak_mebibytes(code)[0], 800, "MiB")


def check() -> Iterator[Figure]:
    """Yield the processor time of drawing, certifying and reading a map of 100 x 100 cells."""
    text, people = "planar_geometric(0.2, 100, 100)", np.random.default_rng(7)
    mechanism, truth = registry().mechanism(text), crowd(100, 100)
    large, small = (certify_values(registry().mechanism(one)) for one in (text, SMALL))
    columns = [pa.array(people.integers(0, one.channel.inputs, 300_000)) for one in (large, small)]
    works = [partial(one.perturb, column) for one, column in zip((large, small), columns, strict=True)]
    yield against("perturb a row in a frame, 100x100 against 24x16 cells", *works)
    yield against(f"{text}: certificate", lambda: certify(mechanism.__class__(**mechanism.given())), repeats=3)
    drawn = large.channel.draw(people.choice(len(truth), 100_000, p=truth).astype(np.int32))
    counts = np.bincount(drawn, minlength=len(truth))[None].astype(np.float64)
    held_out = registry().estimator("ibu(stop='held_out')")
    yield against(f"{text}: ibu, held out", partial(estimate_counts, mechanism, counts, held_out), repeats=1)
