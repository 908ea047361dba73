"""``python -m tests.stress.bulk_kill [TIMES]``: kill -9 at random moments of a bulk run, by default 50 times.

After every kill: no pattern finds a report unless all of them are there, nothing is there that the ledger was not charged for,
and a run that resumes draws no complete part again, ends with all rows, and is not charged a second time.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import pyarrow as pa

from ldpsql.bulk.staging import staging_folder
from ldpsql.ledger import Ledger, Policy

ROWS, FILES = 6_000_000, 6
CITY = f"krr(epsilon=1, domain={list(range(100))})"


def arguments(out: Path, ledger: Path) -> list[str]:
    words = ["perturb", str(out.parent / "in" / "*.parquet"), str(out), "-c", "city", "-m", CITY, "--keep", "id"]
    return [sys.executable, "-m", "ldpsql", *words, "--ledger", str(ledger), "--dataset", "people"]


def make_input(folder: Path) -> None:
    (folder / "in").mkdir()
    with duckdb.connect() as con:
        for i in range(FILES):
            select = f"SELECT range AS id, range % 100 AS city FROM range({i * ROWS // FILES}, {(i + 1) * ROWS // FILES})"
            con.execute(f"COPY ({select}) TO '{folder}/in/{i}.parquet'")


def published_rows(folder: Path) -> int:
    """Return how many different reports any pattern finds, hidden folders included, apart from the input."""
    files = [str(file) for file in folder.rglob("*") if file.suffix in (".parquet", ".csv") and file.parent.name != "in"]
    if not files:
        return 0
    with duckdb.connect() as con:
        return int(con.execute("SELECT count(DISTINCT id) FROM read_parquet($1)", [files]).fetchall()[0][0])


def drawn_reports(staged: Path) -> pa.Table:
    """Return the reports of complete parts; they wait as positions in the domain, which here are the values."""
    parts = [pa.ipc.open_file(file).read_all() for file in staged.glob("drawn-?????/*")]
    return pa.concat_tables(parts) if parts else pa.table({"id": [], "city": []})


def drawing_time(out: Path, process: subprocess.Popen[bytes], most: float = 60.0) -> float:
    """Wait until a run draws, then until it ends or so many seconds are over; return how long that took."""
    while not staging_folder(out).exists() and process.poll() is None:
        time.sleep(0.001)
    start = time.perf_counter()
    while process.poll() is None and time.perf_counter() - start < most:
        time.sleep(0.001)
    return time.perf_counter() - start


def one_kill(folder: Path, name: str, longest: float) -> str:
    """Kill one run, check, resume it, check; return what the kill met."""
    out, ledger = folder / name, folder / f"{name}.ledger"
    book = Ledger.open(ledger, Policy(epsilon_budget="1", privacy_unit="row"))
    process = subprocess.Popen(arguments(out, ledger), stderr=subprocess.DEVNULL)
    drawing_time(out, process, secrets.randbelow(1_000_000) / 1e6 * longest)
    process.send_signal(signal.SIGKILL)
    process.wait()

    charged, published = len(book.history()), published_rows(folder)
    assert published in (0, ROWS), f"half a result is readable: {published} rows"
    assert published == 0 or charged == 1, "a release that was not charged"
    drawn = drawn_reports(staging_folder(out)) if not out.exists() else pa.table({"id": [], "city": []})
    met = "published" if out.exists() else f"{len(drawn):,} reports" if staging_folder(out).exists() else "nothing staged"

    done = subprocess.run([*arguments(out, ledger), "--resume"], capture_output=True, text=True, check=False)
    finished = out.exists() and not staging_folder(out).exists()
    assert finished, done.stderr
    assert done.returncode == 0 or "destination already exists" in done.stderr, done.stderr
    assert published_rows(folder) == ROWS
    assert [row["state"] for row in book.history()] == ["published"], "charged twice, or not written down"
    with duckdb.connect() as con:
        con.register("drawn", drawn)
        source = out if out.is_file() else out / "*.parquet"
        same = con.execute(f"SELECT count(*) FROM drawn JOIN '{source}' USING (id, city)").fetchall()
    assert same == [(len(drawn),)], "a complete part was drawn again"
    return met


def main(times: int) -> None:
    met: dict[str, int] = {}
    with TemporaryDirectory() as name:
        folder = Path(name)
        make_input(folder)
        warm_up = folder / "warm.parquet"
        Ledger.open(folder / "warm.ledger", Policy(epsilon_budget="1", privacy_unit="row"))
        longest = drawing_time(warm_up, subprocess.Popen(arguments(warm_up, folder / "warm.ledger"), stderr=subprocess.DEVNULL))
        warm_up.unlink()
        for i in range(times):
            out = "out" if i % 2 else "out.parquet"
            moment = one_kill(folder, out, longest)
            met[moment] = met.get(moment, 0) + 1
            for left in (folder / out, folder / f"{out}.ledger"):
                subprocess.run(["rm", "-rf", "--", str(left), f"{left}-wal", f"{left}-shm"], check=True)
    print(f"{times} kills: never half a result, never an uncharged release, no part drawn twice. The kills met:")
    for moment, count in sorted(met.items()):
        print(f"  {moment:<20} {count}")


if __name__ == "__main__":
    os.environ["LDPSQL_PLUGINS"] = "0"
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50)
