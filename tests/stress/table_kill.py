"""``python -m tests.stress.table_kill [TIMES]``: SIGKILL, SIGTERM or two SIGINTs at random moments, by default 60 times.

Runs write a new table, append to a table, replace one, or write a folder or a file. After every kill: what can be read is all
of the reports or none of them, and others can read neither the staging folder nor the ledger. A run that resumes ends with one
set of reports for each charge, and leaves nothing else behind. A kill between the ledger's last line and COMMIT costs a second
charge.
"""

from __future__ import annotations

import secrets
import signal
import stat
import subprocess
import sys
import time
from collections import Counter
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb

from ldpsql.bulk.staging import staging_folder
from ldpsql.ledger import Ledger, Policy

ROWS = 300_000
CITY = f"krr(epsilon=1, domain={list(range(100))})"
SIGNALS = [[signal.SIGKILL], [signal.SIGTERM], [signal.SIGINT, signal.SIGINT]]
KINDS = ["create", "append", "replace", "folder", "file"]
OLD = 7  # rows of the table that is there before


def arguments(folder: Path, kind: str) -> list[str]:
    into = {"folder": ["out"], "file": ["out.parquet"]}.get(kind, ["out", "--table", "-d", "wh.duckdb"])
    more = [f"--{kind}"] if kind in ("append", "replace") else []
    run = ["perturb", "in.parquet", *into, *more, "-c", "city", "-m", CITY, "--keep", "id"]
    return [sys.executable, "-m", "ldpsql", *run, "--ledger", str(folder / "ledger"), "--dataset", "people"]


def prepare(folder: Path, kind: str) -> None:
    with duckdb.connect(str(folder / "wh.duckdb")) as con:
        con.execute(f"COPY (SELECT range AS id, range % 100 AS city FROM range({ROWS})) TO '{folder}/in.parquet'")
        if kind in ("append", "replace"):
            con.execute(f"CREATE TABLE out AS SELECT -1 AS id, 0::BIGINT AS city FROM range({OLD})")
    Ledger.open(folder / "ledger", Policy(epsilon_budget="2", privacy_unit="row"))


def reports(folder: Path) -> list[int]:
    """Return the number of rows and of different people at the destination, whatever it is."""
    there = [name for name in ("out", "out.parquet") if (folder / name).exists()]
    files = [str(file) for file in folder.rglob("*.parquet") if file.name != "in.parquet"]
    assert bool(there) == bool(files), "a pattern finds what is not published"
    with duckdb.connect(str(folder / "wh.duckdb")) as con:
        if files:
            con.execute("CREATE TEMP TABLE out AS SELECT id FROM read_parquet($1)", [files])
        elif not con.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = 'out'").fetchall():
            return [0, 0]
        return list(con.execute("SELECT count(*), count(DISTINCT id) FROM out WHERE id >= 0").fetchall()[0])


def check_modes(folder: Path) -> None:
    for private in (*folder.glob("ledger*"), *folder.glob(".ledger*"), *folder.glob(".out*")):
        assert not stat.S_IMODE(private.stat().st_mode) & 0o077, f"others can read {private.name}"


def charged_time(folder: Path, process: subprocess.Popen[bytes], most: float = 60.0) -> float:
    """Wait until a run is charged, then until it ends or so many seconds are over; return how long that took."""
    book = Ledger.open(folder / "ledger")
    while process.poll() is None and not book.history():
        time.sleep(0.01)
    start = time.perf_counter()
    while process.poll() is None and time.perf_counter() - start < most:
        time.sleep(0.001)
    return time.perf_counter() - start


@cache
def undisturbed(kind: str) -> float:
    """Return the seconds from the charge to the end of a run that nothing kills."""
    with TemporaryDirectory() as folder:
        prepare(Path(folder), kind)
        return charged_time(
            Path(folder), subprocess.Popen(arguments(Path(folder), kind), cwd=folder, stderr=subprocess.DEVNULL)
        )


def one_kill(folder: Path, kind: str, signals: list[signal.Signals], moment: float) -> str:
    """Kill one run some seconds after its charge, check, resume it, check; return what the kill met."""
    prepare(folder, kind)
    process = subprocess.Popen(arguments(folder, kind), cwd=folder, stderr=subprocess.DEVNULL)
    charged_time(folder, process, moment)
    for sent in signals:
        process.send_signal(sent)
        time.sleep(0.01)
    process.wait()

    book = Ledger.open(folder / "ledger")
    charged, rows = book.history(), reports(folder)
    assert rows in ([0, 0], [ROWS, ROWS]), f"half a result is readable: {rows}"
    assert not rows[0] or charged, "a release that was not charged"
    check_modes(folder)
    ended = process.returncode == 0
    met = "the end" if ended else "published" if rows[0] else "charged" if charged else "nothing charged"

    resumed = subprocess.run([*arguments(folder, kind), "--resume"], cwd=folder, capture_output=True, text=True, check=False)
    assert not staging_folder(folder / "out").exists(), resumed.stderr
    assert not staging_folder(folder / "out.parquet").exists(), resumed.stderr
    after, states = reports(folder), [row["state"] for row in book.history()]
    published = Counter(states)["published"]
    assert after == [ROWS, ROWS], f"{after}, {states}, {resumed.stderr}"
    again = kind == "replace" and charged and charged[-1]["state"] == "published"
    assert published == 1 + bool(again), f"{states}, {resumed.stderr}"
    if "charged" in states:
        return f"{met}, charged twice"
    book.check()
    return met


def main(times: int) -> None:
    met: Counter[str] = Counter()
    first = secrets.randbelow(len(KINDS) * len(SIGNALS))  # a few kills are not always the same ones
    for i in range(first, first + times):
        kind = KINDS[i % len(KINDS)]
        with TemporaryDirectory() as folder:
            moment = secrets.randbelow(1_000_000) / 1e6 * undisturbed(kind)
            met[one_kill(Path(folder), kind, SIGNALS[i % len(SIGNALS)], moment)] += 1
    print(f"{times} kills: {dict(met)}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
