"""``ldpsql budget``, through real processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ldpsql.cli.app import app
from ldpsql.functions import registry
from ldpsql.ledger import Ledger, Policy
from tests.commands import run


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "ldpsql.toml").write_text('[ledger]\npath = "budget.ledger"\nepsilon_budget = 2\n')
    return tmp_path


def spend(project: Path) -> None:
    ledger = Ledger.open(project / "budget.ledger", Policy(epsilon_budget=2))
    with ledger.release("people", {"city": registry().mechanism("krr(epsilon=1.5, domain=['a', 'b'])")}, "reports"):
        pass


def test_the_ledger_is_shown(project: Path) -> None:
    spend(project)
    (row,) = json.loads(run("budget", "show", "--format", "json", cwd=project).stdout)
    assert (row["dataset"], row["spent"], row["remaining"]) == ("people", "1.5", "0.5")
    (row,) = json.loads(
        run("budget", "history", "--format", "json", cwd=project / "..", LDPSQL_LEDGER=str(project / "budget.ledger")).stdout
    )
    assert (row["column"], row["claim"], row["state"]) == ("city", "1.5-LDP", "published")
    assert run("budget", "check", "--ledger", str(project / "budget.ledger")).stdout.startswith("ok: 1 releases, 0 ")
    assert json.loads(run("budget", "export", cwd=project).stdout).keys() == {"policies", "balances", "history"}


@pytest.mark.parametrize(
    ("command", "note"),
    [
        ("budget history --ledger new.ledger", "no releases\n"),
        ("budget unpublished --ledger new.ledger", "no unpublished releases\n"),
        ("budget settle --ledger new.ledger", "no unpublished releases\n"),
        ("policy diff ldpsql.toml ldpsql.toml", "no differences\n"),
        ("lint clean.sql", "no findings\n"),
    ],
)
def test_a_command_without_rows_says_so_and_writes_none(
    command: str, note: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    Ledger.open("new.ledger", Policy(epsilon_budget=2))
    Path("clean.sql").write_text("SELECT 1")
    for form, out, err in (("table", "", note), ("json", "[]\n", ""), ("csv", "", "")):
        done = CliRunner().invoke(app, [*command.split(), "--format", form])
        assert (done.exit_code, done.stdout, done.stderr) == (0, out, err)


def test_a_mistyped_ledger_is_not_an_empty_one(project: Path) -> None:
    done = run("budget", "show", "--ledger", "nofile.ledger", cwd=project)
    assert (done.returncode, "LDP312" in done.stderr) == (3, True)
    assert not (project / "nofile.ledger").exists()


def test_a_table_in_memory_is_refused_and_nothing_is_charged(project: Path) -> None:
    (project / "people.csv").write_text("city\nLima\nOslo\n", encoding="utf-8")
    done = run("perturb", "people.csv", "t", "-c", "city", "-m", "krr(epsilon=1, domain=['Lima', 'Oslo'])", "--table",
               "--dataset", "people", cwd=project)  # fmt: skip
    assert (done.returncode, "LDP103" in done.stderr) == (2, True)
    assert not (project / "budget.ledger").exists()


def test_a_run_without_the_name_of_the_data_begins_no_ledger(project: Path) -> None:
    (project / "people.csv").write_text("city\nLima\nOslo\n", encoding="utf-8")
    done = run("perturb", "people.csv", "r.parquet", "-c", "city", "-m", "krr(epsilon=1, domain=['Lima', 'Oslo'])", cwd=project)
    assert (done.returncode, "--dataset people" in done.stderr) == (2, True)
    assert {path.name for path in project.iterdir()} == {"ldpsql.toml", "people.csv"}


def test_without_a_ledger_it_says_how_to_name_one(tmp_path: Path) -> None:
    done = run("budget", "show", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert "error[LDP312]" in done.stderr
    assert run("budget", "adopt", cwd=tmp_path).returncode == 3


@pytest.mark.parametrize(("entry", "code"), [("epsilon_budget = 2", 3), ('pth = "budget.ledger"', 2)])
def test_a_mistake_in_the_settings_does_not_take_the_ledger_off(tmp_path: Path, entry: str, code: int) -> None:
    (tmp_path / "ldpsql.toml").write_text(f"[ledger]\n{entry}\n")
    (tmp_path / "people.csv").write_text("city\nLima\nOslo\n", encoding="utf-8")
    command = ("perturb", "people.csv", "out.csv", "-c", "city", "-m", "krr(epsilon=1, domain=['Lima', 'Oslo'])")
    assert run(*command, cwd=tmp_path).returncode == code
    assert not (tmp_path / "out.csv").exists()
    assert run("doctor", cwd=tmp_path).returncode == 1


def test_a_damaged_ledger_fails_the_check(project: Path) -> None:
    spend(project)
    (project / "budget.ledger").write_bytes(b"rubbish" * 1000)
    done = run("budget", "check", cwd=project)
    assert (done.returncode, done.stdout) == (3, "")
    assert "error[LDP313]" in done.stderr


def test_another_policy_in_the_settings_is_adopted_on_request_only(project: Path) -> None:
    spend(project)
    (project / "ldpsql.toml").write_text('[ledger]\npath = "budget.ledger"\nepsilon_budget = 3\n')
    assert "error[LDP317]" in run("sql", "-c", "SELECT 1", cwd=project).stderr
    assert "epsilon_budget='2'" in run("budget", "show", cwd=project).stdout  # which is what that error tells to compare with
    assert run("budget", "adopt", cwd=project).returncode == 0
    assert run("sql", "-c", "SELECT 1", cwd=project).returncode == 0


def test_sql_in_a_project_with_a_ledger_draws_nothing_uncharged(project: Path) -> None:
    done = run("sql", "-c", "SELECT ldp.perturb('a', ldp.krr(1, ['a', 'b']))", cwd=project)
    assert (done.returncode, done.stdout) == (3, "")
    assert "error[LDP320]" in done.stderr


def test_a_key_is_made_and_used(project: Path) -> None:
    assert run("budget", "new-key", "permanent.key", cwd=project).stdout.startswith("fingerprint: ")
    assert "error[LDP321]" in run("budget", "new-key", "permanent.key", cwd=project).stderr
    (project / "ldpsql.toml").write_text('[ledger]\nkey = "permanent.key"\n')
    sql = "SELECT list(DISTINCT ldp.perturb_once('a', ldp.krr(1, ['a', 'b']), 7)) AS r FROM range(100)"
    first, second = (run("sql", "--format", "json", "-c", sql, cwd=project).stdout for _ in range(2))
    assert first == second
    assert len(json.loads(first)[0]["r"]) == 1
