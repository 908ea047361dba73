"""The page about orchestrators: what it prints runs, if its tool is installed; ``make test-orchestrators`` installs three."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pytest

from ldpsql.ledger import Ledger

PAGE = Path(__file__).parents[1] / "docs" / "guides" / "orchestrators.md"
SECTIONS = dict(re.findall(r"^## ([\w ]+)\n(.*?)(?=^## |\Z)", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE))
DAILY = "A daily run that retries safely"
MODULES = {"Airflow": "airflow.sdk", "Dagster": "dagster", "dlt": "dlt"}  # that run the daily task
# Whether a tool tries again by itself after these faults; a person does it otherwise.
TRIES_AGAIN = {
    "Airflow": {"killed": False, "failed": True},
    "Dagster": {"killed": True},
    "dlt": {"killed": False, "failed": False},
}
ALONE = {"Ibis": "ibis", "SQLMesh": "sqlmesh"}
# Each process of a tool stops in the middle of a run, once the reports are drawn, if there is a file that says how.
FAULT = """
import os, signal
from pathlib import Path
from ldpsql.ledger import Ledger

drawn, fault = Ledger.drawn, Path(os.environ["FAULT"])

def failing(*args, **options):
    drawn(*args, **options)
    if fault.exists():
        how = fault.read_text()
        fault.unlink()
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError("the disk is gone")

Ledger.drawn = failing
"""


def printed(section: str, language: str) -> str:
    return "".join(re.findall(rf"^```{language}\n(.*?)^```", SECTIONS[section], re.DOTALL | re.MULTILINE))


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    own = {"DO_NOT_TRACK": "1", "LDPSQL_PLUGINS": "0", "PYTHONPATH": str(folder / "faults"), "FAULT": str(folder / "fault")}
    own |= {"AIRFLOW_HOME": str(folder), "AIRFLOW__CORE__DAGS_FOLDER": str(folder), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    own |= {"DAGSTER_HOME": str(folder / "dagster"), "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(command, cwd=folder, env=os.environ | own, capture_output=True, text=True, timeout=300, check=False)


def daily(folder: Path) -> Ledger:
    """Write the files of the page, run the daily task as the page does, and return its ledger."""
    for name in ("faults", "dagster"):
        (folder / name).mkdir()
    (folder / "faults" / "sitecustomize.py").write_text(FAULT, encoding="utf-8")
    (folder / "daily.py").write_text(printed(DAILY, "python"), encoding="utf-8")
    done = run([sys.executable, "daily.py"], folder)
    assert done.returncode == 0, done.stderr
    first, *others = done.stdout.splitlines()
    assert "Lima" in first
    assert others == [first, first]
    return Ledger.open(folder / "collected" / "people.ledger")


def test_every_tool_has_a_recipe_in_python() -> None:
    assert SECTIONS.keys() == {DAILY, *MODULES, *ALONE}
    for tool in SECTIONS:
        compile(printed(tool, "python"), tool, "exec")


@pytest.mark.slow
def test_a_daily_task_that_is_killed_is_resumed_and_charged_once(tmp_path: Path) -> None:
    ledger = daily(tmp_path)
    (tmp_path / "fault").write_text("killed")
    task = [sys.executable, "-c", "import daily; print(len(daily.shares(daily.perturb('2026-01-02'))))"]
    assert run(task, tmp_path).returncode < 0
    assert [row["state"] for row in ledger.history()] == ["published", "charged"]
    assert run(task, tmp_path).stdout == "4\n"
    assert [row["state"] for row in ledger.history()] == ["published", "published"]


@pytest.mark.slow
def test_one_of_several_attempts_at_the_same_time_draws_and_the_others_find_its_reports(tmp_path: Path) -> None:
    ledger = daily(tmp_path)
    task = [sys.executable, "-c", "import daily; daily.perturb('2026-01-02')"]
    with ThreadPoolExecutor() as pool:
        attempts = [pool.submit(run, task, tmp_path) for _ in range(4)]
    failed = [done.stderr for attempt in attempts if (done := attempt.result()).returncode]
    assert len(failed) < len(attempts)
    assert all("LDP522" in error for error in failed), failed
    assert run(task, tmp_path).returncode == 0
    assert [row["state"] for row in ledger.history()] == ["published", "published"]
    assert [one.spent for one in ledger.balances()] == ["2"]


@pytest.mark.parametrize("tool", MODULES)
def test_a_tool_draws_each_day_once_whatever_happens_to_its_attempts(tool: str, tmp_path: Path) -> None:
    pytest.importorskip(MODULES[tool], reason="make test-orchestrators installs it")
    ledger = daily(tmp_path)
    (tmp_path / "cities.py").write_text(printed(tool, "python").replace("minutes=1", "seconds=1"), encoding="utf-8")
    if tool == "Airflow":
        assert run(["airflow", "db", "migrate"], tmp_path).returncode == 0
    (command,) = printed(tool, "text").splitlines()

    def on(day: str, fault: str = "") -> subprocess.CompletedProcess[str]:
        if fault:
            (tmp_path / "fault").write_text(fault)
        return run(shlex.split(command.replace("2026-01-01", day)), tmp_path)

    def spent() -> list[str]:
        return [f"{row['state']} {row['users']}" for row in ledger.history()] + [one.spent for one in ledger.balances()]

    assert (done := on("2026-01-01")).returncode == 0, done.stdout + done.stderr  # daily.py drew it
    assert spent() == ["published 2000", "1"]
    for fault, tries_again in TRIES_AGAIN[tool].items():
        done = on("2026-01-02", fault)
        assert (done.returncode == 0) == tries_again, done.stdout + done.stderr
        assert spent() == ["published 2000", "published 2000" if tries_again else "charged 2000", "2"]
    assert (done := on("2026-01-02")).returncode == 0, done.stdout + done.stderr
    reports = tmp_path / "collected" / "reports-2026-01-02.parquet"
    once = reports.read_bytes()
    assert (done := on("2026-01-02")).returncode == 0, done.stdout + done.stderr
    assert reports.read_bytes() == once
    assert spent() == ["published 2000", "published 2000", "2"]
    refused = on("2026-01-03")
    assert "LDP311" in refused.stdout + refused.stderr
    assert not (tmp_path / "collected" / "reports-2026-01-03.parquet").exists()
    assert spent() == ["published 2000", "published 2000", "2"]
    if tool == "dlt":
        with duckdb.connect(str(tmp_path / "collected" / "warehouse.duckdb")) as con:
            loaded = con.execute("SELECT day, count(*), count(DISTINCT city) FROM lake.reports GROUP BY ALL").fetchall()
        assert sorted(loaded) == [("2026-01-01", 2000, 4), ("2026-01-02", 2000, 4)]


@pytest.mark.parametrize("tool", ALONE)
def test_a_script_of_its_own_runs(tool: str, tmp_path: Path) -> None:
    pytest.importorskip(ALONE[tool], reason=f"{tool} is not installed")
    (tmp_path / "script.py").write_text(printed(tool, "python"), encoding="utf-8")
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Lima" in done.stdout
