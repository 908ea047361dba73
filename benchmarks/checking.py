"""``python -m benchmarks --check``: short figures of every benchmark, each against its record.

A figure is a ratio within one run, and smaller is better: processor time against that of other work, done in turns, or an error
against another one on the same reports. So it hardly depends on the machine. Its bound is `ROOM` times its record. A benchmark
with a figure beyond its bound is measured again, and fails if the figure is beyond it again.
The record, ``record.json``, is written by ``--check --record``, at a commit without changes only.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from time import perf_counter

from benchmarks.figures import Figure

ROOM = 1.3
RECORD = Path(__file__).with_name("record.json")


@dataclass(frozen=True)
class Record:
    """The short figures of a benchmark: when, at which commit, on what machine under what load they were measured."""

    day: str
    commit: str
    machine: dict[str, object]
    load: float
    figures: dict[str, float]


def records() -> dict[str, Record]:
    """Return the record of each benchmark; none before the first is made."""
    recorded = json.loads(RECORD.read_text("utf-8")) if RECORD.is_file() else {}
    return {name: Record(**record) for name, record in recorded.items()}


def measured(name: str) -> dict[str, float]:
    """Return the short figures of a benchmark; none if it needs a file or a package that is absent."""
    figures: list[Figure] = list(import_module(f"benchmarks.{name}").check())
    return {figure.what: figure.value for figure in figures}


def check(names: list[str]) -> int:
    """Print the short figures of benchmarks next to their bounds; return 1 if one is beyond its bound or has no record."""
    kept, begun, bad = records(), perf_counter(), []
    for name in names:
        start, record = perf_counter(), kept[name].figures if name in kept else {}
        figures = measured(name)
        if beyond(figures, record):
            again = measured(name)
            figures = {what: min(value, again[what]) for what, value in figures.items()}
        for what, value in figures.items():
            bound = f"{ROOM * record[what]:.3g}" if what in record else "no record"
            print(f"{name}: {what}: {value:.3g}, at most {bound}{'' if what not in beyond(figures, record) else '  BEYOND'}")
        bad += [f"{name}: {what}" for what in beyond(figures, record)]
        print(
            f"{name}: {perf_counter() - start:.0f} s{'' if figures else ', left out: a file or a package is absent'}",
            flush=True,
        )
    print(f"{(perf_counter() - begun) / 60:.1f} minutes", *(f"beyond its bound: {one}" for one in bad), sep="\n")
    return bool(bad)


def beyond(figures: dict[str, float], record: dict[str, float]) -> list[str]:
    """Return the figures that are beyond their bound, or have none."""
    return [what for what, value in figures.items() if not value <= ROOM * record.get(what, float("-inf"))]


def record(names: list[str], machine: dict[str, object]) -> None:
    """Measure the short figures of benchmarks, and write them as their record, with what they ran on.

    Raises:
        SystemExit: if the commit has changes, or git does not know it.

    """
    here = RECORD.parent
    commit, changes = (
        subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True).stdout.strip()
        for words in (["rev-parse", "--short", "HEAD"], ["status", "--porcelain"])
    )
    if changes:
        sys.exit("a record is made at a commit: commit the changes first")
    kept = records()
    for name in names:
        load, figures = os.getloadavg()[0], {what: float(f"{value:.3g}") for what, value in measured(name).items()}
        if figures:
            kept[name] = Record(f"{datetime.now(UTC):%Y-%m-%d}", commit, machine, round(load, 1), figures)
            print(name, figures, flush=True)
            written = {name: asdict(kept[name]) for name in sorted(kept)}
            RECORD.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
