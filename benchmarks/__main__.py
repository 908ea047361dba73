"""``python -m benchmarks [--quick] [NAME ...]``: run the benchmarks, print their figures, write ``benchmarks/results.json``.

Figures of other benchmarks on the same machine stay in that file. ``--record`` also writes the figures that have a bound into
``README.md``.

A benchmark is a module of this folder with a function ``figures(quick: bool) -> list[Figure]``; it is not listed anywhere.
``--only WORDS`` measures the lines of a long benchmark that contain all the words, and keeps the other lines of earlier runs. A
benchmark with such lines has a function ``summary(figures) -> list[Figure]`` of means over all its lines.
Linear algebra runs in one thread: more threads gain nothing on small matrices, and compete with other work.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sys
from dataclasses import asdict
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from pkgutil import iter_modules
from time import perf_counter

from benchmarks.figures import ONLY, Figure, table

HERE = Path(__file__).parent
PACKAGES = (
    "ldpsql", "duckdb", "polars", "pyarrow", "numpy", "scipy", "pyspark", "multi-freq-ldpy", "pure-ldp", "ldp-toolbox"
)  # fmt: skip


def names() -> list[str]:
    """Return the modules that may be benchmarks."""
    return sorted(module.name for module in iter_modules([str(HERE)]) if module.name not in ("__main__", "figures"))


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


def earlier(out: Path, *, quick: bool) -> dict[str, list[Figure]]:
    """Return the figures of earlier runs on this machine with these versions, by benchmark."""
    rows: dict[str, list[Figure]] = {}
    body = json.loads(out.read_text("utf-8")) if out.is_file() else {}
    if body.get("machine") == machine() and body["quick"] == quick:
        for row in body["figures"]:
            name, _ = row.pop("benchmark"), row.pop("met")
            rows.setdefault(name, []).append(Figure(**row))
    return rows


def write(out: Path, rows: dict[str, list[Figure]], *, quick: bool) -> None:
    """Write all figures, with the machine and the versions."""
    written = [{"benchmark": name, **asdict(figure), "met": figure.met} for name in sorted(rows) for figure in rows[name]]
    body = {"machine": machine(), "quick": quick, "figures": written}
    out.write_text(json.dumps(body, indent=2) + "\n", encoding="utf-8")


def record(rows: dict[str, list[Figure]]) -> None:
    """Write the figures that have a bound into the README of this folder, in the place of older ones."""
    measured_on = machine()
    versions = ", ".join(f"{package} {measured_on[package]}" for package in PACKAGES if measured_on[package])
    lines = [f"Measured on {measured_on['cores']} cores with Python {measured_on['python']}, {versions}."]
    for name in sorted(rows):
        asked = [figure for figure in rows[name] if figure.met is not None]
        if not asked:
            continue
        summary = f"{name}: {sum(bool(figure.met) for figure in asked)} of {len(asked)} figures as asked"
        lines += ["", f"<details><summary>{summary}</summary>", "", "| figure | value | asked | met |", "|---|---|---|---|"]
        for figure in asked:
            met = "yes" if figure.met else "**no**"
            lines.append(f"| {figure.what} | {figure.value:.3g} {figure.unit} | {figure.asked} | {met} |")
        lines += ["", "</details>"]
    readme = HERE / "README.md"
    marked = re.compile(r"(<!-- results -->\n).*?(<!-- /results -->)", re.DOTALL)
    body = "\n".join(lines) + "\n"
    readme.write_text(marked.sub(lambda match: match[1] + body + match[2], readme.read_text("utf-8")), "utf-8")


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("names", nargs="*", help=f"of: {', '.join(names())}")
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows: for a first impression, not for the record")
    parser.add_argument(
        "--only", default="", metavar="WORDS", help="the lines of a long benchmark that contain all these words"
    )
    parser.add_argument("--record", action="store_true", help="write the figures that have a bound into README.md")
    parser.add_argument("--out", type=Path, default=HERE / "results.json")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(names())
    if unknown:
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    os.environ[ONLY] = arguments.only
    for library in ("OPENBLAS", "OMP", "MKL"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")  # before NumPy is imported
    rows = earlier(arguments.out, quick=arguments.quick)
    for name in arguments.names or names():
        start = perf_counter()
        if measured := run(name, quick=arguments.quick):
            rows[name] = with_earlier(name, measured, rows.get(name, []))
            took = (perf_counter() - start) / 60
            print(f"\n{name}, {took:.1f} minutes\n{table([(name, figure) for figure in measured])}", flush=True)
            write(arguments.out, rows, quick=arguments.quick)
    if arguments.record:
        record(rows)
    missed = [figure.what for measured in rows.values() for figure in measured if figure.met is False]
    print(f"\nwrote {arguments.out.name}" + "".join(f"\nmissed: {what}" for what in missed))


if __name__ == "__main__":
    main()
