"""``python -m tests.stress.dbt_kill [TIMES]``: SIGKILL of ``dbt run`` at random moments, by default 10 times.

After every kill, the next run continues; only if it was killed while it committed, ``ldpsql budget settle --unseen`` comes
first. In the end everybody has one report, and has paid for it once.
"""

from __future__ import annotations

import secrets
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb

from ldpsql.ledger import Ledger

EXAMPLE = Path(__file__).parents[2] / "examples" / "dbt"
RUN = ("run", "--select", "new_people", "reports")
PEOPLE = 2000


def dbt(project: Path, *arguments: str) -> subprocess.Popen[bytes]:
    command = [str(Path(sys.executable).with_name("dbt")), *arguments, "--profiles-dir", "."]
    return subprocess.Popen(command, cwd=project, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def one_kill(project: Path, moment: float) -> str:
    """Kill one run some seconds after its start, make it good, check, and return what the kill met."""
    process = dbt(project, *RUN)
    time.sleep(moment)
    process.kill()
    process.wait()
    path = project / "people.ledger"
    left = Ledger.open(path).unpublished() if path.exists() else []
    met = "nothing charged" if not left else "about to commit" if left[0].drawn else "charged"
    if dbt(project, *RUN).wait():
        assert left, "a run that charged nobody blocks the next one"
        settle = [sys.executable, "-m", "ldpsql", "budget", "settle", "--database", "people.duckdb", "--unseen"]
        subprocess.run(settle, cwd=project, check=True, capture_output=True)
        assert dbt(project, *RUN).wait() == 0
        met += ", settled"
    ledger = Ledger.open(path)
    ledger.check()
    with duckdb.connect(str(project / "people.duckdb")) as con:
        assert con.execute("SELECT count(*), count(DISTINCT person_id) FROM reports").fetchall() == [(PEOPLE, PEOPLE)]
    assert sum(row["users"] for row in ledger.history() if row["state"] == "published") == PEOPLE
    assert [balance.spent for balance in ledger.balances()] == ["2"]
    assert not ledger.unpublished()
    return met


def main(times: int) -> None:
    met: Counter[str] = Counter()
    with TemporaryDirectory() as folder:
        seeded = Path(shutil.copytree(EXAMPLE, Path(folder, "seeded"), ignore=shutil.ignore_patterns("*.duckdb", "*.ledger*")))
        assert dbt(seeded, "seed").wait() == 0
        started = time.perf_counter()
        dbt(Path(shutil.copytree(seeded, Path(folder, "whole"))), *RUN).wait()
        whole = time.perf_counter() - started
        for i in range(times):
            project = Path(shutil.copytree(seeded, Path(folder, str(i))))
            met[one_kill(project, (0.5 + secrets.randbelow(500_000) / 1e6) * whole)] += 1
    print(f"{times} kills: {dict(met)}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
