"""Runs into PostgreSQL that are killed at random moments: never half a table, never one twice, and nothing uncharged."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

from ldpsql.ledger import Ledger, Policy
from tests.postgres.test_postgres import psql
from tests.stress.table_kill import charged_time

ROWS = 100_000
KILLS = int(os.environ.get("KILLS", "4"))
CITY = f"krr(epsilon=1, domain={list(range(100))})"


def test_a_run_that_is_killed_leaves_all_or_nothing_and_is_resumed(server: str, tmp_path: Path) -> None:
    psql(
        server,
        "DROP TABLE IF EXISTS raw; CREATE TABLE raw AS SELECT i AS id, i % 100 AS city FROM generate_series(1, 100000) AS t(i)",
    )
    longest, met = one_kill(server, tmp_path / "none", 60.0)[0], {"nothing": 0, "all": 0}
    for number in range(KILLS):
        (tmp_path / str(number)).mkdir()
        moment = secrets.randbelow(1_000_000) / 1e6 * longest
        met[one_kill(server, tmp_path / str(number), moment)[1]] += 1
    print(f"{KILLS} kills within {longest:.1f} s met {met}")


def one_kill(server: str, folder: Path, moment: float) -> tuple[float, str]:
    """Kill a run so many seconds after its charge, check, resume it, check; return how long it ran, and what was there."""
    folder.mkdir(exist_ok=True)
    psql(server, "DROP TABLE IF EXISTS out")
    book = Ledger.open(folder / "ledger", Policy(epsilon_budget="2", privacy_unit="row"))
    address = f"postgresql:///postgres?host={server}&user=test"
    command = [sys.executable, "-m", "ldpsql", "perturb", f"{address}#raw", f"{address}#out", "-c", "city", "-m", CITY]
    command += ["--keep", "id", "--ledger", str(folder / "ledger"), "--dataset", "people"]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL)
    lasted = charged_time(folder, process, moment)
    process.send_signal(signal.SIGKILL)
    process.wait()
    time.sleep(0.3)  # the server ends what the client began
    rows, charged = found(server), book.history()
    assert rows in ([0, 0], [ROWS, ROWS]), f"half a result: {rows}"
    assert not rows[0] or charged, "reports without a charge"
    resumed = subprocess.run([*command, "--resume"], cwd=folder, capture_output=True, text=True, check=False)
    states = [row["state"] for row in book.history()]
    if process.returncode == 0:
        assert states == ["published"]
    assert found(server) == [ROWS, ROWS], f"{rows}, {states}, {resumed.stderr}"
    assert states.count("published") == 1, f"{rows}, {states}, {resumed.stderr}"
    return lasted, "all" if rows[0] else "nothing"


def found(server: str) -> list[int]:
    """Return how many rows and people there are in the table, 0 if there is none."""
    if psql(server, "SELECT to_regclass('out') IS NULL") == [["t"]]:
        return [0, 0]
    return [int(number) for number in psql(server, "SELECT count(*), count(DISTINCT id) FROM out")[0]]
