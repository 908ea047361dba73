"""A real dbt project, built by real dbt-core and dbt-duckdb: ``make test-dbt``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

from ldpsql.ledger import Ledger

pytest.importorskip("dbt.adapters.duckdb", reason="dbt has an environment of its own: make test-dbt")

EXAMPLE = Path(__file__).parents[1] / "examples" / "dbt"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return Path(
        shutil.copytree(EXAMPLE, tmp_path / "people", ignore=shutil.ignore_patterns("target", "logs", "*.duckdb", "*.ledger*"))
    )


def dbt(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("dbt")), "--no-use-colors", *arguments, "--profiles-dir", "."]
    environment = {**os.environ, "PEOPLE_DATABASE": "people.duckdb"}
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=300, check=False)


def rows(project: Path, query: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(project / "people.duckdb"), read_only=True) as con:
        return con.execute(query).fetchall()


def test_the_example_builds_charges_the_ledger_and_perturbs_every_person_once(project: Path) -> None:
    built = dbt(project, "build")
    assert built.returncode == 0, built.stdout
    assert "PASS=13 WARN=0 ERROR=0" in built.stdout
    first = rows(project, "FROM reports ORDER BY person_id")
    assert len(first) == 2000
    with (project / "seeds" / "people.csv").open("a", encoding="utf-8") as people:
        people.writelines(f"{i},south,Lima\n" for i in range(2001, 2101))
    again = dbt(project, "build", "--full-refresh")
    assert again.returncode == 0, again.stdout
    second = rows(project, "FROM reports ORDER BY person_id")
    assert second[:2000] == first  # 2,000 reports of 4 values: by chance never
    assert len(second) == 2100
    history = Ledger.open(project / "people.ledger").history()
    assert [(entry["users"], entry["epsilon"], entry["state"]) for entry in history] == [
        (2000, "2", "published"),
        (100, "2", "published"),
    ]
    # 1,000 reports of each region at epsilon 2: a standard error below 0.04, and 0.25 is more than six of them.
    ((share,),) = rows(project, "SELECT estimate FROM shares WHERE region = 'south' AND value = 'Lima'")
    assert abs(share - 0.75) < 0.25
    assert rows(project, "SELECT count(*) FROM duckdb_functions() WHERE NOT internal") == [(0,)]  # nothing stays in the file
    shown = dbt(project, "show", "--select", "reports", "--full-refresh")
    assert shown.returncode != 0 or "Lima" not in shown.stdout  # nobody is left to be drawn, and nothing is released


def test_what_would_overspend_or_failed_is_not_published(project: Path) -> None:
    settings = project / "ldpsql.toml"
    told = settings.read_text(encoding="utf-8")
    settings.write_text(told.replace("epsilon=2", "epsilon=3"), encoding="utf-8")
    refused = dbt(project, "build")
    assert "[LDP311]" in refused.stdout
    assert Ledger.open(project / "people.ledger").history() == []
    settings.write_text(told, encoding="utf-8")
    model = project / "models" / "reports.sql"
    text = model.read_text(encoding="utf-8")
    model.write_text(text + "\nwhere error('stopped') is null", encoding="utf-8")
    assert dbt(project, "build").returncode != 0
    assert [entry["state"] for entry in Ledger.open(project / "people.ledger").history()] == ["charged"]
    model.write_text(text.replace("meta={'ldp'", "meta={'pdl'"), encoding="utf-8")
    silent = dbt(project, "build")
    assert "[LDP320] these models perturb, and do not say what their ledger is to charge: reports" in silent.stdout


@pytest.mark.parametrize("materialized", ["view", "ephemeral"])
def test_a_model_that_would_draw_anew_at_every_read_stops_the_project(project: Path, materialized: str) -> None:
    (project / "macros").mkdir()
    called = "ldp.PERTURB " if materialized == "view" else '"ldp"."perturb"'
    (project / "macros" / "noisy.sql").write_text(f"{{% macro noisy(c) %}}{called}({{{{ c }}}}, ldp.m.city()){{% endmacro %}}")
    leaky = (
        f"{{{{ config(materialized='{materialized}') }}}} select {{{{ noisy('city') }}}} as city from {{{{ ref('people') }}}}"
    )
    (project / "models" / "leaky.sql").write_text(leaky.replace("KIND", materialized))
    built = dbt(project, "build")
    assert built.returncode != 0
    assert f"[LDP309] these models perturb, but are not stored: leaky ({materialized})" in built.stdout
    assert not (project / "people.duckdb").exists() or rows(project, "SELECT * FROM duckdb_tables()") == []
    if materialized == "view":
        (project / "models" / "leaky.sql").write_text("-- ldp.perturb(x, m) is only spoken of here\nselect 1 as x")
        assert dbt(project, "run", "--select", "leaky").returncode == 0


def test_a_wrong_profile_or_mechanism_is_one_line(project: Path) -> None:
    profile = project / "profiles.yml"
    told = profile.read_text(encoding="utf-8")
    profile.write_text(told + "          config: {mechanisms: {town: 'kr(1, [1, 2])'}}\n")
    done = dbt(project, "run")
    assert (
        "[LDP105] the mechanism 'town' of the settings: there is no mechanism named 'kr'. Hint: did you mean 'krr'?"
        in done.stdout
    )
    profile.write_text(told + "          config: {mechanism: {}}\n")
    done = dbt(project, "run")
    assert "[LDP201]" in done.stdout
    assert "did you mean 'mechanisms'?" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
