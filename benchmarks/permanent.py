"""Permanent reports of a frame: rows a second of processor time, without a ledger, new under a ledger, and charged before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa

from benchmarks.figures import Figure, cpu_clock
from ldpsql import Charge, Key, perturb_once
from ldpsql.ledger import Ledger, Policy

REPEATS = 5


def figures(quick: bool) -> list[Figure]:
    """Return the figures; each repeat begins a ledger in a temporary folder."""
    rows = 100_000 if quick else 1_000_000
    alone, new, again, later = _rates(f"krr(1, {list(range(100))})", rows)
    _, sets, _, _ = _rates(f"oue(1, {list(range(1000))})", rows // 5)
    return [
        Figure("perturb_once of k-RR without a ledger, CPU", alone, "M rows/s"),
        Figure(f"perturb_once of k-RR, {rows:,} new reports in a new ledger, CPU", new, "M rows/s"),
        Figure("the same rows again, CPU", again, "M rows/s"),
        Figure("as many people more in the same ledger, CPU", later, "M rows/s"),
        Figure(f"perturb_once of OUE, K=1,000, {rows // 5:,} new reports in a new ledger, CPU", sets, "M rows/s"),
    ]


def _rates(mechanism: str, rows: int) -> list[float]:
    """Return millions of rows a second: without a ledger, new, repeated, and of other people."""
    with TemporaryDirectory() as folder:
        rounds = [_seconds(Path(folder), mechanism, rows, number) for number in range(REPEATS + 1)][1:]  # the first warms up
    return [rows / median(times) / 1e6 for times in zip(*rounds, strict=True)]


def _seconds(folder: Path, mechanism: str, rows: int, number: int) -> list[float]:
    key = Key.create(folder / f"{number}.key")
    ledger = Ledger.open(folder / f"{number}.ledger", Policy(epsilon_budget=3, privacy_unit="id"))
    draw = partial(perturb_once, columns={"x": mechanism}, key=key, user="id")
    charged = partial(draw, charge=Charge(ledger, "people"))
    first, others = _people(rows, 0), _people(rows, rows)
    works = [partial(draw, first), partial(charged, first), partial(charged, first), partial(charged, others)]
    return [_taken(work) for work in works]


def _people(rows: int, start: int) -> pa.Table:
    ids = pa.array(np.arange(start, start + rows)).cast(pa.string())
    return pa.table({"id": ids, "x": np.arange(rows) * 7 % 100})


def _taken(work: Callable[[], object]) -> float:
    start = cpu_clock()
    work()
    return cpu_clock() - start


def check() -> Iterator[Figure]:
    """Yield the processor time of reports under a ledger against those without one."""
    with TemporaryDirectory() as folder:
        rounds = [_seconds(Path(folder), f"krr(1, {list(range(100))})", 100_000, number) for number in range(REPEATS + 1)][1:]
    alone, new, again, later = (min(times) for times in zip(*rounds, strict=True))
    yield Figure("100,000 new reports in a new ledger against those without one", new / alone)
    yield Figure("the same rows again", again / alone)
    yield Figure("as many people more", later / alone)
