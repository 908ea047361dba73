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

from benchmarks.figures import Figure, at_most, cpu_clock, in_turns
from ldpsql.bulk.orders import permutation
from ldpsql.channels import DenseChannel, IndependentBits, KeepOrSpread, PrivateHash, native
from ldpsql.channels.base import TOTAL
from ldpsql.engine.door import open_door

K, E = 100, Fraction(27182818284, 10**10)
_KRR = KeepOrSpread.within(K, E)
_MOST = {  # the bounds that the figures may not pass
    "k-RR": (_KRR, 1.0),
    "alias tables": (DenseChannel(_KRR.weights()), 1.0),
    "unary bits": (IndependentBits(K, TOTAL // 2, 0x44E << 53), 1.3),  # nearly all of the time is that of random words
    "private hashes": (PrivateHash(K, KeepOrSpread.within(4, E)), 0.6),
}


_COLUMNS = {  # of a table that `ldp.perturb` reads, and the most that a row may cost against drawing it in Python
    "whole numbers": ("i % 100", "range(100)", 0.3),
    "text": ("'city ' || i % 100", "(SELECT list('city ' || i) FROM range(100) t(i))", 0.6),
}
_IN_SQL = """
from sys import argv
from time import process_time
import ldpsql
con = ldpsql.connect()
con.execute("SET threads = 1; SET enable_progress_bar = false")
con.execute(f"CREATE TABLE people AS SELECT {argv[1]} AS x FROM range({argv[3]}) t(i)")
con.execute(f"CREATE MACRO m() AS ldp.krr(1, {argv[2]})")
con.execute("CREATE TABLE first AS SELECT ldp.perturb(x, m()) AS x FROM people LIMIT 10000")
begun = process_time()
con.execute("CREATE TABLE reports AS SELECT ldp.perturb(x, m()) AS x FROM people")
print(process_time() - begun)
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
    return found if isinstance(open_door(), str) else [*found, *_in_sql(2_000_000 if quick else 20_000_000)]


def check() -> Iterator[Figure]:
    """Yield the same figures of fewer draws."""
    yield from figures(quick=True)


def _ratio(draw: Callable[[], object]) -> float:
    def in_python() -> None:
        with patch.object(native, "kernels", lambda: None):
            draw()

    own, other = in_turns(draw, in_python, repeats=7, clock=cpu_clock)
    return own / other


def _in_sql(rows: int) -> Iterator[Figure]:
    """Yield the processor time of `ldp.perturb` into a table, of processes that may draw in C against others, in turns."""
    for name, (value, domain, most) in _COLUMNS.items():
        seconds: dict[str, list[float]] = {"1": [], "0": []}
        for _, (native_or_not, taken) in itertools.product(range(3), seconds.items()):
            command, env = (
                [sys.executable, "-c", _IN_SQL, value, domain, str(rows)],
                {**os.environ, "LDPSQL_NATIVE": native_or_not},
            )
            taken.append(float(subprocess.run(command, check=True, capture_output=True, env=env).stdout))
        yield at_most(f"ldp.perturb of {name} into a table, C / Python", min(seconds["1"]) / min(seconds["0"]), most)
