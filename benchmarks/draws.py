"""Draws in C next to the same draws in Python: processor time in turns, one thread, random bits included."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from unittest.mock import patch

import numpy as np

import ldpsql
from benchmarks.figures import Figure, at_most, cpu_clock, in_turns
from ldpsql.bulk.orders import permutation
from ldpsql.channels import DenseChannel, IndependentBits, KeepOrSpread, OrthogonalHash, PrivateHash, native
from ldpsql.channels.base import TOTAL
from ldpsql.engine.door import open_door

K, E = 100, Fraction(27182818284, 10**10)
_KRR = KeepOrSpread.within(K, E)
_MOST = {  # the bounds that the figures may not pass
    "k-RR": (_KRR, 1.0),
    "alias tables": (DenseChannel(_KRR.weights()), 1.0),
    "unary bits": (IndependentBits(K, TOTAL // 2, 0x44E << 53), 1.3),  # nearly all of the time is that of random words
    "private hashes": (PrivateHash(K, KeepOrSpread.within(4, E)), 0.6),
    "orthogonal hashes": (OrthogonalHash(K, KeepOrSpread.within(4, E)), 0.6),
}


_TEXTS = [f"city {i}" for i in range(K)]
_COLUMNS = {  # of a table that `ldp.perturb` reads: values, mechanism, and the most that a row may cost against Python
    "krr, whole numbers": ("i % 100", "ldp.krr(1, range(100))", 0.25),  # most of it is writing the table
    "krr, strings": ("'city ' || i % 100", f"ldp.krr(1, {_TEXTS})", 0.3),
    "oue": ("i % 100", "ldp.oue(1, range(100))", 0.4),
    "olh, orthogonal seeds": ("i % 100", "ldp.olh(1, range(100))", 0.2),
    "olh, private seeds": ("i % 100", "ldp.olh(1, range(100), seeds := 'private')", 0.2),
    "stochastic_rounding, doubles": ("(i % 100) / 100", "ldp.stochastic_rounding(1, 0, 1)", 0.2),
}
_THREADS = {2: 1.2, 16: 1.2}  # the most that a row may cost with so many threads, against one
_IN_SQL = """
from sys import argv
from time import perf_counter, process_time
import ldpsql
value, mechanism, rows, threads = argv[1:]
con = ldpsql.connect()
con.execute(f"SET threads = {threads}; SET enable_progress_bar = false")
con.execute(f"CREATE TABLE people AS SELECT {value} AS x FROM range({rows}) t(i)")
con.execute(f"CREATE MACRO m() AS {mechanism}")
con.execute("CREATE TABLE first AS SELECT ldp.perturb(x, m()) AS x FROM people LIMIT 10000")
begun, cpu = perf_counter(), process_time()
con.execute("CREATE TABLE reports AS SELECT ldp.perturb(x, m()) AS x FROM people")
print(process_time() - cpu, perf_counter() - begun)
"""


def figures(quick: bool) -> list[Figure]:
    """Return the processor time of each kernel against Python; none if ldpsql was installed without a compiler."""
    if native.kernels() is None:
        return []
    values = np.resize(np.arange(K, dtype=np.int32), 200_000 if quick else 2_000_000)
    found = [
        at_most(f"{name}, C / Python", _ratio(lambda channel=channel: channel.draw(values)), most)  # type: ignore[misc]
        for name, (channel, most) in _MOST.items()
    ]
    found.append(at_most("order of 131,072 rows, C / Python", _ratio(lambda: permutation(1 << 17)), 0.5))
    rows = 2_000_000 if quick else 20_000_000
    return found if isinstance(open_door(), str) else [*found, *_in_sql(rows), *_shuffled(rows), *_hashes()]


def check() -> Iterator[Figure]:
    """Yield the same figures of fewer draws."""
    yield from (figure for figure in figures(quick=True) if figure.unit == "x")  # times depend on the machine


def _ratio(draw: Callable[[], object]) -> float:
    def in_python() -> None:
        with patch.object(native, "kernels", lambda: None):
            draw()

    own, other = in_turns(draw, in_python, repeats=7, clock=cpu_clock)
    return own / other


def _in_sql(rows: int) -> Iterator[Figure]:
    """Yield the processor time of `ldp.perturb` into a table, of processes that may draw in C against others, in turns."""
    for name, (value, mechanism, most) in _COLUMNS.items():
        own, other = _least([(value, mechanism, rows, 1, "1"), (value, mechanism, rows, 1, "0")])
        yield at_most(f"ldp.perturb into a table, {name}, C / Python", own[0] / other[0], most)
    one, *several = _least([("i % 100", "ldp.krr(1, range(100))", 5 * rows, threads, "1") for threads in (1, *_THREADS)])
    for (threads, most), (taken, _) in zip(_THREADS.items(), several, strict=True):
        yield at_most(f"ldp.perturb into a table, krr, {threads} threads / one", taken / one[0], most)
    if (os.cpu_count() or 1) > 1:
        yield at_most("ldp.perturb into a table, krr, two threads / one, seconds", several[0][1] / one[1], 0.6)


def _shuffled(rows: int) -> Iterator[Figure]:
    """Yield the processor time of a row of `ldp.perturb_rows`, in random order."""
    con = ldpsql.connect()
    con.execute(f"CREATE TABLE people AS SELECT i % 100 AS x FROM range({rows}) t(i)")
    con.execute("CREATE MACRO m() AS ldp.krr(1, range(100))")
    (taken,) = in_turns(
        lambda: con.execute("CREATE OR REPLACE TABLE reports AS FROM ldp.perturb_rows(people, {x: m()})"), clock=cpu_clock
    )
    yield at_most("ldp.perturb_rows of krr, a row in random order", 1e9 * taken / rows, 60, "ns of processor time")


def _hashes() -> Iterator[Figure]:
    """Yield the processor time of estimates from 300,000 reports of 300 values, each with a seed of its own."""
    con = ldpsql.connect()
    con.execute("CREATE MACRO m() AS ldp.olh(1, range(300), seeds := 'private')")
    con.execute("CREATE TABLE reports AS SELECT ldp.perturb(i % 300, m()) AS y FROM range(300_000) t(i)")
    for estimator, most in (("inv", 0.3), ("ibu", 0.6)):
        query = f"FROM ldp.estimate(reports, y, m(), estimator := '{estimator}')"
        (taken,) = in_turns(lambda query=query: con.execute(query).fetchall(), repeats=3, clock=cpu_clock)  # type: ignore[misc]
        yield at_most(f"OLH, private seeds, K = 300, n = 300,000: {estimator}", taken, most, "s of processor time")


def _least(runs: list[tuple[str, str, int, int, str]]) -> list[tuple[float, float]]:
    """Return the least processor time and the least seconds of processes that run in turns."""
    taken: list[list[tuple[float, float]]] = [[] for _ in runs]
    for _, (each, (value, mechanism, rows, threads, in_c)) in itertools.product(range(3), enumerate(runs)):
        command = [sys.executable, "-c", _IN_SQL, value, mechanism, str(rows), str(threads)]
        done = subprocess.run(command, check=True, capture_output=True, env={**os.environ, "LDPSQL_NATIVE": in_c})
        cpu, seconds = map(float, done.stdout.split())
        taken[each].append((cpu, seconds))
    return [(min(cpu for cpu, _ in times), min(seconds for _, seconds in times)) for times in taken]
