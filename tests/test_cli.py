"""The command line, through real processes."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ldpsql import __version__
from ldpsql.registry import registry

COMMAND = str(Path(sys.executable).with_name("ldpsql"))


def run(*arguments: str, stdin: str = "", cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, *arguments],
        input=stdin,
        cwd=cwd,
        env={**os.environ, "NO_COLOR": "1", **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_version() -> None:
    assert run("--version").stdout == f"ldpsql {__version__}\n"


def test_help_names_every_command_and_no_argument_shows_help() -> None:
    text = run("--help").stdout
    assert all(command in text for command in ("demo", "sql", "plugins"))
    assert "Usage" in run().stdout + run().stderr


def test_plugins_list_in_every_format() -> None:
    names = {plugin.name.removeprefix("ldpsql.") for plugin in registry().plugins}
    table = run("plugins", "list").stdout.splitlines()
    assert {line.split()[0] for line in table[1:]} == names
    assert {row["plugin"] for row in json.loads(run("plugins", "list", "--format", "json").stdout)} == names
    lines = run("plugins", "list", "--format", "jsonl").stdout.splitlines()
    assert {json.loads(line)["plugin"] for line in lines} == names
    assert {row["plugin"] for row in csv.DictReader(run("plugins", "list", "--format", "csv").stdout.splitlines())} == names


@pytest.mark.parametrize("name", [*registry().mechanisms, *registry().estimators])
def test_plugins_show_explains_every_mechanism_and_estimator(name: str) -> None:
    done = run("plugins", "show", name)
    assert done.returncode == 0
    assert f"ldp.{name}(" in done.stdout
    spec = {**registry().mechanisms, **registry().estimators}[name]
    assert all(parameter.name in done.stdout for parameter in spec.parameters())


def test_errors_are_a_line_with_code_and_hint_on_stderr_and_an_exit_code() -> None:
    done = run("plugins", "show", "kr")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error[LDP201]: there is no mechanism or estimator named 'kr'\nhint: did you mean 'krr'?\n"
    assert run("no-such-command").returncode == 2


def test_sql_runs_statements_and_writes_rows() -> None:
    done = run("sql", "-c", "CREATE TABLE t AS SELECT 7 AS x; FROM t", "-c", "SELECT x + 1 AS y FROM t", "--format", "csv")
    assert done.stdout.splitlines() == ["x", "7", "y", "8"]
    piped = run("sql", "--format", "jsonl", stdin="SELECT ldp.perturb('a', ldp.krr(1, ['a', 'b'])) AS r;")
    assert json.loads(piped.stdout)["r"] in ("a", "b")
    assert "│" in run("sql", "-c", "SELECT 1 AS one").stdout


def test_sql_keeps_a_database(tmp_path: Path) -> None:
    path = str(tmp_path / "w.duckdb")
    assert run("sql", path, "-c", "CREATE TABLE t AS SELECT 1 AS x").returncode == 0
    assert run("sql", path, "-c", "FROM t", "--format", "csv").stdout == "x\n1\n"


def test_a_refusal_inside_sql_has_the_exit_code_of_its_kind_and_shows_no_raw_value() -> None:
    done = run("sql", "-c", "SELECT ldp.perturb('canary-7f3a', ldp.krr(1, ['a', 'b']))")
    assert done.returncode == 3
    assert done.stderr.startswith("error[LDP302]: a value to be perturbed is outside the declared domain\nhint: ")
    assert "canary" not in done.stderr + done.stdout
    assert run("sql", "-c", "SELECT ldp.ibu('z', ldp.krr(1, ['a', 'b']))").returncode == 5
    assert run("sql", "-c", "SELEC 1").returncode == 1


def test_sql_in_place_of_a_file_is_refused_and_makes_no_file(tmp_path: Path) -> None:
    done = run("sql", "SELECT 1", cwd=tmp_path)
    assert done.returncode == 2
    assert "after -c" in done.stderr
    assert not list(tmp_path.iterdir())


def test_audit_computes_and_measures_epsilon() -> None:
    mechanism = "krr(epsilon=1, domain=['a', 'b', 'c'])"
    computed = run("audit", "--mechanism", mechanism, "--format", "json")
    facts = {row["fact"]: row["value"] for row in json.loads(computed.stdout)}
    assert facts["epsilon"] == pytest.approx(1, abs=1e-9)
    assert "draws" not in facts
    measured = run("audit", "--mechanism", mechanism, "--draws", "200000", "--format", "json")
    facts = {row["fact"]: row["value"] for row in json.loads(measured.stdout)}
    assert (measured.returncode, facts["passed"], facts["draws"]) == (0, True, 200000)
    assert 0.9 < facts["epsilon_at_least"] <= 1
    assert run("audit", "--mechanism", "krr(epsilon=0, domain=[1, 2])").returncode == 2


def test_the_demonstration_estimates_the_flights_and_writes_a_page_that_needs_nothing_else(tmp_path: Path) -> None:
    done = run("demo", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "336,776 flights" in done.stdout
    assert all(airport in done.stdout for airport in ("EWR", "JFK", "LGA"))
    distances = [
        float(word.strip(",")) for line in done.stdout.splitlines() if "total variation" in line for word in line.split()[6::2]
    ]
    # 16 carriers, about 1e5 reports, epsilon 1: the standard error of a share is below .01, so the distance is near .04
    assert len(distances) == 6
    assert max(distances) < 0.12
    page = (tmp_path / "ldpsql-demo.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 3
    assert "<script" not in page
    assert not [part for part in page.split('"') if part.startswith("http") and "w3.org" not in part]


def test_the_demonstration_refuses_a_bad_epsilon(tmp_path: Path) -> None:
    done = run("demo", "--epsilon", "-1", cwd=tmp_path)
    assert done.returncode == 2
    assert "LDP101" in done.stderr
    assert not list(tmp_path.iterdir())


def test_an_allowed_third_partys_plugin_is_there_from_the_command_line() -> None:
    listed = json.loads(run("plugins", "list", "--format", "json", LDPSQL_PLUGINS="0").stdout)
    assert {row["status"] for row in listed if row["plugin"] == "coin"} == {"not enabled"}
    done = run(
        "sql", "-c", "SELECT ldp.perturb('yes', ldp.coin(1, ['no', 'yes'])) AS r", "--format", "csv", LDPSQL_PLUGINS="coin"
    )
    assert done.stdout.split() in (["r", "yes"], ["r", "no"])


def test_the_third_partys_own_test_passes() -> None:
    coin = Path(__file__).parents[1] / "examples" / "ldpsql-coin"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", str(coin)],
        env={**os.environ, "LDPSQL_PLUGINS": "coin"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout
