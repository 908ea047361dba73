"""``python -m benchmarks [--quick] [NAME ...]``: run the benchmarks, print their figures, write ``benchmarks/results.json``.

It exits 1 if a figure misses its bound. Figures of other benchmarks on the same machine stay in that file. ``--check`` measures
the short figures of each benchmark, and exits 1 if one is beyond its bound; see `benchmarks.checking`.

A benchmark is a module of this folder with the functions ``figures(quick: bool) -> list[Figure]`` and ``check() ->
Iterator[Figure]``; it is not listed anywhere.
``--only WORDS`` measures the lines of a long benchmark that contain all the words, and keeps the other lines of earlier runs. A
benchmark with such lines has a function ``summary(figures) -> list[Figure]`` of means over all its lines.
Linear algebra runs in one thread: more threads gain nothing on small matrices, and compete with other work.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from pkgutil import iter_modules
from time import perf_counter

for library in ("OPENBLAS", "OMP", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")  # before NumPy is imported

from benchmarks import checking  # noqa: E402
from benchmarks.figures import ONLY, Figure, table  # noqa: E402

HERE = Path(__file__).parent
PACKAGES = (
    "ldpsql", "duckdb", "polars", "pyarrow", "numpy", "scipy", "multi-freq-ldpy", "pure-ldp", "ldp-toolbox"
)  # fmt: skip


def names() -> list[str]:
    """Return the modules that may be benchmarks."""
    return sorted(module.name for module in iter_modules([str(HERE)]) if module.name not in ("__main__", "checking", "figures"))


def run(name: str, *, quick: bool) -> list[Figure]:
    """Return the figures of one module; an empty list if a package that it compares with is not installed."""
    try:
        module = import_module(f"benchmarks.{name}")
    except ModuleNotFoundError as error:
        print(f"{name}: skipped, {error.name} is not installed (pip install 'ldpsql[peers]')", file=sys.stderr)
        return []
    if not hasattr(module, "figures"):
        raise SystemExit(f"benchmarks/{name}.py has no function figures(quick: bool) -> list[Figure]")
    return list(module.figures(quick))


def with_earlier(name: str, measured: list[Figure], before: list[Figure]) -> list[Figure]:
    """Return these figures, those of other lines that an earlier run measured, and the summary of all."""
    summary = getattr(import_module(f"benchmarks.{name}"), "summary", lambda _: [])
    kept = before if os.environ.get(ONLY) else []
    lines = {figure.what: figure for figure in [*kept, *measured]}
    return list((lines | {figure.what: figure for figure in summary(list(lines.values()))}).values())


def machine() -> dict[str, object]:
    """Return what the figures depend on: versions, processor, cores."""
    versions: dict[str, object] = {"python": platform.python_version(), "machine": platform.machine(), "cores": os.cpu_count()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    return versions


def stamp() -> str:
    """Return the day, and the commit that was measured."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=HERE, capture_output=True, text=True, check=False
    )
    return f"{datetime.now(UTC):%Y-%m-%d} at commit {described.stdout.strip() or 'unknown'}"


def earlier(out: Path, *, quick: bool) -> tuple[dict[str, list[Figure]], dict[str, str]]:
    """Return the figures of earlier runs on this machine with these versions, and when they were measured, by benchmark."""
    rows: dict[str, list[Figure]] = {}
    body = json.loads(out.read_text("utf-8")) if out.is_file() else {}
    if body.get("machine") != machine() or body["quick"] != quick or "measured" not in body:
        return {}, {}
    for row in body["figures"]:
        name, _ = row.pop("benchmark"), row.pop("met")
        rows.setdefault(name, []).append(Figure(**row))
    return rows, body["measured"]


def write(out: Path, rows: dict[str, list[Figure]], measured: dict[str, str], *, quick: bool) -> None:
    """Write all figures, with the machine, the versions, and when they were measured."""
    written = [{"benchmark": name, **asdict(figure), "met": figure.met} for name in sorted(rows) for figure in rows[name]]
    body = {"machine": machine(), "quick": quick, "measured": measured, "figures": written}
    out.write_text(json.dumps(body, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("names", nargs="*", help=f"of: {', '.join(names())}")
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows: for a first impression, not for the record")
    parser.add_argument(
        "--only", default="", metavar="WORDS", help="the lines of a long benchmark that contain all these words"
    )
    parser.add_argument("--check", action="store_true", help="short figures against their record: exits 1 beyond a bound")
    parser.add_argument(
        "--record", action="store_true", help="write the record of the short figures, at a commit without changes"
    )
    parser.add_argument("--out", type=Path, default=HERE / "results.json")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(names())
    if unknown:
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    os.environ[ONLY] = arguments.only
    if arguments.record:
        checking.record(arguments.names or names(), machine())
        return
    if arguments.check:
        sys.exit(checking.check(arguments.names or names()))
    rows, measured = earlier(arguments.out, quick=arguments.quick)
    for name in arguments.names or names():
        start = perf_counter()
        if figures := run(name, quick=arguments.quick):
            rows[name] = with_earlier(name, figures, rows.get(name, []))
            measured[name] = stamp()
            took = (perf_counter() - start) / 60
            print(f"\n{name}, {took:.1f} minutes\n{table([(name, figure) for figure in figures])}", flush=True)
            write(arguments.out, rows, measured, quick=arguments.quick)
    missed = [figure.what for name in arguments.names or names() for figure in rows.get(name, []) if figure.met is False]
    print(f"\nwrote {arguments.out.name}" + "".join(f"\nmissed: {what}" for what in missed))
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
