"""``python -m tests.mutants [--changed] [WORD ...]``: plant faults, run the tests that should find them, and print which did.

``--log FILE`` keeps what became of each fault: the same command goes on where an earlier one ended. ``--minutes N`` plants no
fault later than that, and says how many are left.

Each worker has a copy of the project, so nothing is written into this one. The tests that find faults must pass without one.
WORDs choose the faults whose file or description contains one of them. ``--changed`` chooses at most ten of those of which the
file or a file of tests has changed since the branch left main (``--since COMMIT``), or, on main, since the last tag.

Exits 1 if a fault survives twice for which the table gives no reason, and if one is found for which it does: a test of random
draws may miss a fault once.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Self

from tests.mutants.mutant import ROOT, Mutant, table
from tests.mutants.worker import SKIPPED

SAMPLE = 10  # the most faults of a change
LATE = 65  # the code of a fault for which there was no time


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("words", nargs="*", help="only faults whose file or description contains one of these")
    parser.add_argument("--changed", action="store_true", help="only faults whose files have changed")
    parser.add_argument("--since", default="", metavar="COMMIT", help="changed since this commit")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at a time")
    parser.add_argument("--log", type=Path, metavar="FILE", help="keep results here, and leave out faults that have one")
    parser.add_argument("--minutes", type=float, default=math.inf, help="start no fault later than this")
    asked = parser.parse_args()
    chosen = [one for one in table() if not asked.words or any(word in str(one) for word in asked.words)]
    if asked.changed or asked.since:
        chosen = of_changed(chosen, asked.since)
    sys.exit(run(chosen, asked.jobs, asked.log, asked.minutes))


def of_changed(mutants: list[Mutant], since: str) -> list[Mutant]:
    """Return the faults of files that differ from a commit, at most `SAMPLE` of them, which the commit at hand chooses."""
    head = _git("rev-parse", "HEAD")
    left = next((base for main in ("origin/main", "main") if (base := _git("merge-base", "HEAD", main))), head)
    before = left if left != head else _git("describe", "--tags", "--abbrev=0", "HEAD~1") or "HEAD~1"
    changed = set(_git("diff", "--name-only", since or before).splitlines())
    mutants = [one for one in mutants if changed & {one.file, *(test.split("::")[0] for test in one.tests.split())}]
    chosen = random.Random(head).sample(range(len(mutants)), min(SAMPLE, len(mutants)))
    return [mutants[at] for at in sorted(chosen)]


def run(mutants: list[Mutant], jobs: int, log: Path | None, minutes: float) -> int:
    """Print what became of each fault; return the exit code."""
    start, results = time.monotonic(), logged(mutants, log)
    left = [one for one in mutants if str(one) not in results]
    with (
        tempfile.TemporaryDirectory(prefix="ldpsql-mutants-") as folder,
        Workers(Path(folder), min(jobs, len(left)), start + 60 * minutes, log) as workers,
    ):
        for one, result in zip(left, workers.all(left), strict=True):
            results[str(one)] = result
        found_by = sorted({result.by for one in left if (result := results[str(one)]).found and result.by})
        sound = workers.tried(None, found_by) if found_by else None
    for where, ones in groupby(sorted(mutants, key=lambda one: one.room), lambda one: one.room):
        of_room = [results[str(one)].found for one in ones]
        print(f"{where:12} {sum(of_room):3} of {len(of_room):3}")
    pairs = [(one, results[str(one)]) for one in mutants if results[str(one)].code not in (SKIPPED, LATE)]
    if late := sum(result.code == LATE for result in results.values()):
        print(f"{late} were not planted within {minutes:g} minutes")
    for one, result in pairs:
        if not result.found:
            print(f"survived: {one}: {one.survives or 'no test found it'}")
        elif one.survives:
            print(f"no survivor any more: {one}")
    if sound is not None and sound.code != 0:
        print(f"{sound.log}\nthese tests fail without a fault, too")
    minutes = (time.monotonic() - start) / 60
    print(f"{sum(result.found for _, result in pairs)} of {len(pairs)} killed in {minutes:.1f} minutes")
    return any(result.found == bool(one.survives) for one, result in pairs) or (sound is not None and sound.code != 0)


def key(one: Mutant) -> tuple[str, str, str]:
    """Return what a result in a log is the result of: a fault, its text, and the tests that should find it."""
    return str(one), one.new, one.tests


def logged(mutants: list[Mutant], log: Path | None) -> dict[str, Result]:
    """Return the results in a log of faults whose text and tests are the same."""
    rows = map(json.loads, log.read_text("utf-8").splitlines() if log and log.is_file() else [])
    earlier = {tuple(row[:3]): Result(**row[3]) for row in rows}
    return {str(one): earlier[key(one)] for one in mutants if key(one) in earlier}


@dataclass(frozen=True)
class Result:
    """What became of a fault: the exit code of pytest, None if it did not end; the test that failed; what was printed."""

    code: int | None
    by: str
    seconds: float
    log: str

    @property
    def found(self) -> bool:
        """Whether a test failed, or none ended."""
        return self.code in (1, 2, None)

    @property
    def word(self) -> str:
        """What became of the fault."""
        if self.found:
            return "killed" if self.by else "no end"
        return "left out" if self.code in (SKIPPED, LATE) else "SURVIVED"


class Workers:
    """Processes, each in a copy of the project, that plant faults."""

    def __init__(self, folder: Path, number: int, end: float, log: Path | None) -> None:
        self._end, self._log = end, log
        self._free: SimpleQueue[Worker] = SimpleQueue()
        self._all = [Worker(folder / str(place)) for place in range(number)]
        for worker in self._all:
            self._free.put(worker)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._all:
            worker.end()

    def all(self, mutants: list[Mutant]) -> list[Result]:
        """Plant all faults, and print each as soon as it is known what becomes of it."""
        with ThreadPoolExecutor(len(self._all) or 1) as threads:
            return list(threads.map(self.twice, mutants))

    def twice(self, one: Mutant) -> Result:
        """Plant a fault, again if it survives without a reason."""
        result = self.tried(one, one.tests.split())
        if result.code == 0 and not one.survives and (again := self.tried(one, one.tests.split())).code != LATE:
            return again
        return result

    def tried(self, one: Mutant | None, tests: list[str]) -> Result:
        """Run tests with a fault or, as a check of the tests, without one."""
        worker = self._free.get()
        if one and time.monotonic() > self._end:
            self._free.put(worker)
            return Result(LATE, "", 0.0, "")
        try:
            result = Result(**worker.tried(one.file if one else None, one.planted() if one else "", tests))
        finally:
            self._free.put(worker)
        if result.code not in (0, 1, 2, None, SKIPPED):
            raise SystemExit(f"{result.log}\n{one}: pytest cannot run {' '.join(tests)}")
        if one and self._log:
            with self._log.open("a", encoding="utf-8") as kept:
                kept.write(json.dumps([*key(one), asdict(result)]) + "\n")
        if one:
            print(f"{result.word:8} {result.seconds:4.0f} s  {one}  {result.by}", flush=True)
        return result


class Worker:
    """A process in a copy of the project; what is not in the history, but not ignored either, is copied too."""

    def __init__(self, copy: Path) -> None:
        tree = copy / "ldpsql"
        for file in _git("ls-files", "--cached", "--others", "--exclude-standard").splitlines():
            if (ROOT / file).is_file():
                (tree / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / file, tree / file)
        if (shared := ROOT.parent / "shared").is_dir():
            (copy / "shared").symlink_to(shared.resolve())
        own = {"PYTHONPATH": str(tree), "OPENBLAS_NUM_THREADS": "1", "LDPSQL_PLUGINS": "0", "LDPSQL_CONFIG": os.devnull}
        own["LDPSQL_PYTHON_OF_DBT"] = str(ROOT / ".venv-dbt" / "bin" / "python")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.mutants.worker"],
            cwd=tree,
            env=os.environ | own,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tried(self, file: str | None, faulty: str, tests: list[str]) -> dict[str, Any]:
        """Run tests with a faulty file, and return what `worker.tried` does."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"file": file, "faulty": faulty, "tests": tests}) + "\n")
        self._process.stdin.flush()
        return dict(json.loads(self._process.stdout.readline()))

    def end(self) -> None:
        """End the process."""
        self._process.communicate()


def _git(*arguments: str) -> str:
    """Return what Git writes; nothing if it fails."""
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    main()
