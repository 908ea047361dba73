"""The parts of a benchmark: figures, the bounds that they must keep, and measurements in turns."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np

from ldpsql.inference.solver.mle import _SOLVED

Work = Callable[[], object]
ONLY = "LDPSQL_BENCHMARK_ONLY"  # words of the lines to measure; see `wanted`
DATA = Path(os.environ.get("LDPSQL_BENCHMARK_DATA", Path(__file__).parents[2] / "shared" / "data"))  # public files


@dataclass(frozen=True)
class Figure:
    """One figure; most are ratios, which can be compared between machines. ``asked`` is the bound that it must keep, if any."""

    what: str
    value: float
    unit: str = "x"
    asked: str = ""
    most: float | None = None
    least: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether the figure keeps its bound; None if it has none."""
        if self.most is None and self.least is None:
            return None
        return bool((self.most is None or self.value <= self.most) and (self.least is None or self.value >= self.least))


def at_most(what: str, value: float, most: float, unit: str = "x") -> Figure:
    """Return a figure with an upper bound."""
    return Figure(what, value, unit, f"at most {most:g} {unit}", most=most)


def at_least(what: str, value: float, least: float, unit: str = "x") -> Figure:
    """Return a figure with a lower bound."""
    return Figure(what, value, unit, f"at least {least:g} {unit}", least=least)


def near(what: str, ratio: float, within: float) -> Figure:
    """Return a ratio that should be close to one."""
    return Figure(what, ratio, "x", f"within {within:.1%} of 1", most=1 + within, least=1 - within)


def wanted(line: str) -> bool:
    """Whether a line is to be measured: ``--only WORDS`` measures those that contain all of the words, for long benchmarks."""
    return all(word in line for word in os.environ.get(ONLY, "").split())


def public_file(name: str) -> Path | None:
    """Return a file of the folder of public data; if it is absent, print a note and return None."""
    if (file := DATA / name).is_file():
        return file
    print(f"{name} is not in the folder LDPSQL_BENCHMARK_DATA: figures left out", file=sys.stderr)
    return None


def cpu_clock() -> float:
    """Return the processor time of this process, its threads and the children that have ended."""
    return sum(u.ru_utime + u.ru_stime for u in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


def in_turns(*works: Work, repeats: int = 5, clock: Callable[[], float] = perf_counter) -> list[float]:
    """Return the median seconds of each work; they run in turns, so that all suffer the same disturbances."""

    def taken(work: Work) -> float:
        start = clock()
        work()
        return clock() - start

    rounds = [[taken(work) for work in works] for _ in range(repeats)]
    return [median(times) for times in zip(*rounds, strict=True)]


def against(what: str, work: Work, reference: Work | None = None, repeats: int = 5) -> Figure:
    """Return the processor time of some work against that of a reference, by default `yardstick`, after a run to warm up."""
    other = reference or yardstick
    rounds = [[_anew(work), _anew(other)] for _ in range(repeats + 1)][1:]
    return Figure(what, min(own for own, _ in rounds) / min(beside for _, beside in rounds))


def _anew(work: Work) -> float:
    """Return the processor time of some work that finds no maximum of an earlier run in memory."""
    _SOLVED.clear()
    start = cpu_clock()
    work()
    return cpu_clock() - start


def yardstick() -> None:
    """Do the same work on any machine: sorting, arithmetic and dictionaries, about a tenth of a second."""
    numbers = np.arange(1 << 19, dtype=np.float64)
    for _ in range(2):
        numbers = np.sort(np.sin(numbers * 12.9898) * 43758.5453 % 1.0)
    seen: dict[int, int] = {}
    for i in range(200_000):
        seen[i & 1023] = seen.get(i & 1023, 0) + i


def peak_mebibytes(code: str, *arguments: str) -> tuple[float, float, float]:
    """Run Python code in a new process; return its peak memory in MiB, the ``seconds`` that it measured, and its CPU time."""
    # Not ru_maxrss, which a new process takes over from the one that started it.
    peak = "next(int(line.split()[1]) for line in open('/proc/self/status') if line.startswith('VmHWM')) / 1024"
    report = f"import resource as r; u = r.getrusage(r.RUSAGE_SELF); print({peak}, seconds, u.ru_utime + u.ru_stime)"
    whole = f"import sys, time\n{code}\n{report}"
    done = subprocess.run([sys.executable, "-c", whole, *arguments], check=True, capture_output=True, text=True)
    peak, seconds, cpu = map(float, done.stdout.split()[-3:])
    return peak, seconds, cpu


def table(rows: Sequence[tuple[str, Figure]]) -> str:
    """Return figures as aligned lines."""
    width = max(len(figure.what) for _, figure in rows)
    lines = []
    for _, figure in rows:
        judged = {True: "ok", False: "MISSED", None: ""}[figure.met]
        lines.append(f"{figure.what:<{width}}  {figure.value:>10.4g} {figure.unit:<10} {figure.asked:<24} {judged}".rstrip())
    return "\n".join(lines)
