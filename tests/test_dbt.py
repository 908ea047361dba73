"""A real dbt project, built by real dbt-core and dbt-duckdb: ``make test-dbt``."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pytest

from ldpsql import Key
from ldpsql.ledger import Ledger
from tests.postgres.servers import PATH, call, running

pytest.importorskip("dbt.adapters.duckdb", reason="dbt has an environment of its own: make test-dbt")

EXAMPLE = Path(__file__).parents[1] / "examples" / "dbt"
# Each run of dbt is a process of its own, forked from one that has only imported what it needs.
FORKS = multiprocessing.get_context("forkserver")
ROOMS = {room: import_module(room).__path__ for room in ("ldpsql.plugins", "ldpsql.udfs")}
PLUGINS = [found.name for room, path in ROOMS.items() for found in walk_packages(path, f"{room}.")]
ADAPTERS = ("dbt.adapters.duckdb.impl", "dbt.adapters.postgres.impl")
FORKS.set_forkserver_preload([__name__, "dbt.cli.main", *ADAPTERS, "pandas", "ldpsql.dbt", *PLUGINS])


class Run(NamedTuple):
    """A run of dbt that has ended: its exit code, and what it printed."""

    returncode: int | None
    stdout: str


def dbt(project: Path, *arguments: str, killed_at: str = "") -> Run:
    """Run dbt; with ``killed_at``, it is killed when the ledger has done, or is about to do, what is named."""
    process = FORKS.Process(target=_run, args=(project, [*arguments, "--profiles-dir", "."], killed_at))
    process.start()
    process.join(300)
    process.kill()
    process.join()
    return Run(process.exitcode, (project / "printed").read_text(encoding="utf-8"))


def _run(project: Path, arguments: list[str], killed_at: str) -> None:
    os.chdir(project)
    printed = os.open("printed", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(printed, stream)
    os.environ["PEOPLE_DATABASE"] = "people.duckdb"
    if killed_at:
        point, _, moment = killed_at.partition(" ")
        done = getattr(Ledger, point)

        def killing(*args: Any, **options: Any) -> None:
            if moment == "after":
                done(*args, **options)
            os.kill(os.getpid(), signal.SIGKILL)

        setattr(Ledger, point, killing)
    from dbt.cli.main import cli  # noqa: PLC0415  # it has an environment of its own

    cli(["--no-use-colors", *arguments])


@pytest.fixture(scope="module")
def parsed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, and what dbt keeps of what it has read."""
    path = tmp_path_factory.mktemp("parsed") / "people"
    shutil.copytree(EXAMPLE, path, ignore=shutil.ignore_patterns("target", "logs", "*.duckdb", "*.ledger*"))
    assert dbt(path, "parse").returncode == 0
    return path


@pytest.fixture
def project(parsed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(parsed, tmp_path / "people"))


def settle(project: Path, *options: str) -> str:
    command = [sys.executable, "-m", "ldpsql", "budget", "settle", "--database", "people.duckdb", *options]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=300, check=True).stdout


def add_people(project: Path, numbers: range, city: str = "Lima") -> None:
    with (project / "seeds" / "people.csv").open("a", encoding="utf-8") as people:
        people.writelines(f"{i},south,{city}\n" for i in numbers)


def check_paid(project: Path, people: int) -> list[tuple[int, str]]:
    """Check that each person has one report and paid for it once, and return the people and the state of each release."""
    ledger = Ledger.open(project / "people.ledger")
    ledger.check()
    assert rows(project, "SELECT count(*), count(DISTINCT person_id) FROM reports") == [(people, people)]
    (balance,) = ledger.balances()
    history = [(entry["users"], entry["state"]) for entry in ledger.history()]
    assert balance.spent == "2"
    assert sum(users for users, state in history if state == "published") == people
    return history


def rows(project: Path, query: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(project / "people.duckdb"), read_only=True) as con:
        return con.execute(query).fetchall()


def test_the_example_builds_charges_the_ledger_and_perturbs_every_person_once(project: Path) -> None:
    built = dbt(project, "build")
    assert built.returncode == 0, built.stdout
    assert "PASS=17 WARN=0 ERROR=0" in built.stdout
    record = "SELECT column_name, comment FROM duckdb_columns() WHERE comment IS NOT NULL"
    ((column, comment),) = rows(project, record)
    assert (column, comment.split(" ", 1)[1]) == ("city", "krr(epsilon='2', domain=['Lima', 'Oslo', 'Rome', 'Kyiv'])")
    first = rows(project, "FROM reports ORDER BY person_id")
    assert len(first) == 2000
    with (project / "seeds" / "people.csv").open("a", encoding="utf-8") as people:
        people.writelines(f"{i},south,Lima\n" for i in range(2001, 2101))
    again = dbt(project, "build", "--full-refresh")
    assert again.returncode == 0, again.stdout
    second = rows(project, "FROM reports ORDER BY person_id")
    assert rows(project, record) == [(column, comment)]
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
    refused = dbt(project, "show", "--select", "reports", "--full-refresh")
    assert refused.returncode != 0 or "Lima" not in refused.stdout  # nobody is left to be drawn, and nothing is released


def test_what_would_overspend_or_failed_is_not_published(project: Path) -> None:
    settings = project / "ldpsql.toml"
    original = settings.read_text(encoding="utf-8")
    settings.write_text(original.replace("epsilon=2", "epsilon=3").replace("epsilon = 2\n", "epsilon = 3\n"), encoding="utf-8")
    refused = dbt(project, "build")
    assert "[LDP311]" in refused.stdout
    assert Ledger.open(project / "people.ledger").history() == []
    settings.write_text(original, encoding="utf-8")
    model = project / "models" / "reports.sql"
    text = model.read_text(encoding="utf-8")
    stopped, hooked = f"{text}\nwhere error('stopped') is null", project / "models" / "hooked.sql"
    model.write_text(stopped, encoding="utf-8")
    hooked.write_text(stopped.replace("meta=", "post_hook='select 1', meta="), encoding="utf-8")  # charged before it draws
    assert dbt(project, "build").returncode != 0
    states = {entry["destination"]: entry["state"] for entry in Ledger.open(project / "people.ledger").history()}
    assert states == {'"people"."main"."hooked"': "charged"}  # the transaction of the other was rolled back
    hooked.unlink()
    model.write_text(text.replace("meta={'ldp'", "meta={'pdl'"), encoding="utf-8")
    silent = dbt(project, "build")
    assert "[LDP320] these models perturb, and do not say what their ledger is to charge: reports" in silent.stdout


RUN = ("run", "--select", "new_people", "reports")


def test_a_bad_value_blocks_nobody_and_a_renamed_model_finds_its_reports(project: Path) -> None:
    for command in (("seed",), RUN):
        assert dbt(project, *command).returncode == 0
    first = rows(project, "FROM reports ORDER BY person_id")
    original = (project / "seeds" / "people.csv").read_text(encoding="utf-8")
    add_people(project, range(2001, 2101))
    add_people(project, range(2101, 2102), "Atlantis")
    dbt(project, "seed")
    bad = dbt(project, *RUN)
    assert "[LDP302] column 'city': a value to be perturbed is outside the declared domain" in bad.stdout
    assert "model reports" in bad.stdout
    assert "Atlantis" not in bad.stdout
    assert [entry["users"] for entry in Ledger.open(project / "people.ledger").history()] == [2000]
    (project / "seeds" / "people.csv").write_text(original, encoding="utf-8")
    add_people(project, range(2001, 2101))
    add_people(project, range(3001, 3201))
    dbt(project, "seed")
    assert dbt(project, *RUN).returncode == 0
    assert check_paid(project, 2300) == [(2000, "published"), (300, "published")]
    assert rows(project, "FROM reports WHERE person_id <= 2000 ORDER BY person_id") == first

    (project / "models" / "reports.sql").rename(project / "models" / "city_reports.sql")
    new_people = project / "models" / "new_people.sql"
    new_people.write_text(new_people.read_text(encoding="utf-8").replace("'reports'", "'city_reports'"), encoding="utf-8")
    for model in ("shares", "trust"):
        (project / "models" / f"{model}.sql").unlink()
    (project / "models" / "schema.yml").unlink()
    for test in (project / "tests").iterdir():
        test.unlink()
    add_people(project, range(4001, 4002))
    dbt(project, "seed")
    run = ("run", "--select", "new_people", "city_reports")
    refused = dbt(project, *run).stdout
    remedy = 'ALTER TABLE "people"."main"."reports" RENAME TO its new name'
    assert "[LDP311]" in refused
    assert remedy in refused
    with duckdb.connect(str(project / "people.duckdb")) as con:
        con.execute(remedy.replace("its new name", "city_reports"))
    built = dbt(project, *run)
    assert built.returncode == 0, built.stdout
    with duckdb.connect(str(project / "people.duckdb")) as con:
        con.execute("CREATE VIEW reports AS FROM city_reports")  # whose rows `check_paid` counts
    assert check_paid(project, 2301)[-1] == (1, "published")


def test_a_build_that_is_killed_anywhere_is_made_good_by_one_command(project: Path) -> None:
    dbt(project, "seed")
    ledger = project / "people.ledger"
    for moment, states in {
        "charge before": [],
        "charge after": ["charged"],
        "drawn after": ["returned", "charged"],  # the build gave back what nobody had seen
    }.items():
        assert dbt(project, *RUN, killed_at=moment).returncode == -signal.SIGKILL
        assert rows(project, "SELECT * FROM duckdb_tables() WHERE table_name = 'reports'") == []
        assert (not ledger.exists() and not states) or [e["state"] for e in Ledger.open(ledger).history()] == states
    add_people(project, range(5001, 5011))
    dbt(project, "seed")
    refused = dbt(project, *RUN).stdout
    assert "2000 of the users were charged at" in refused
    assert "ldpsql budget settle --database" in refused
    assert "if nobody can have seen them, add --unseen" in settle(project)
    assert "given back: nobody has seen its reports" in settle(project, "--unseen")
    assert dbt(project, *RUN, killed_at="publish before").returncode == -signal.SIGKILL
    assert [e["state"] for e in Ledger.open(ledger).history()] == ["returned", "returned", "charged"]
    assert rows(project, "SELECT count(*) FROM reports") == [(2010,)]
    assert dbt(project, *RUN).returncode == 0  # with nobody to draw
    assert check_paid(project, 2010) == [(2000, "returned"), (2000, "returned"), (2010, "published")]


@pytest.mark.parametrize("materialized", ["view", "ephemeral"])
def test_a_model_that_would_draw_again_at_every_read_stops_the_project(project: Path, materialized: str) -> None:
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


PEOPLE = "from {{ ref('people') }}"
ONCE = "materialized='incremental', unique_key='person_id', full_refresh=false"
MACROS = """
{% macro noisy(c) %}ldp.perturb({{ c }}, ldp.m.city()){% endmacro %}
{% macro noisier(c) %}{{ noisy(c) }}{% endmacro %}
{% macro into_a_table() %}create or replace table hooked as select {{ noisy("'Lima'") }} as city{% endmacro %}
"""
FUNCTIONS = [
    "create or replace macro db_noisy(x) as ldp.perturb(x, ldp.m.city())",
    "create or replace macro db_noisier(x) as db_noisy(x)",
]


def having(options: str, sql: str) -> str:
    return f"{{{{ config({options}) }}}} {sql}"


NOISY = f"select person_id, db_noisy(city) as city {PEOPLE}"
# What is said of each model, and its text.
REDRAWN = {
    "dashes (table)": f"select '--' as d, ldp.perturb(city, ldp.m.city()) as city {PEOPLE}",
    "dbt_macros (table)": f"select {{{{ noisier('city') }}}} as city {PEOPLE}",
    "database_macros (table)": f"select db_noisier(city) as city {PEOPLE}",
    "a_string (table)": "from query('select ldp.perturb(city, ldp.m.city()) as city from people')",
    "keyless (incremental without unique_key)": having("materialized='incremental'", NOISY),
    "refreshed (incremental without full_refresh=false)": having("materialized='incremental', unique_key='person_id'", NOISY),
    "in_a_file (external)": having("materialized='external'", NOISY),
    "hooked (in a hook)": having(f'{ONCE}, post_hook="create table h as select db_noisy(1)"', "select 1 as person_id"),
}
SOUND = {
    "kept": having(ONCE, f"select person_id, {{{{ noisy('city') }}}} as city {PEOPLE} order by random()"),
    "on_purpose": having("meta={'ldp': {'redraw': true}}", f"{NOISY} order by random()"),
    "only_spoken_of": "select 'ldp.perturb(city, m)' as city /* ldp.perturb(city, m) */ -- ldp.perturb(city, m)",
}
HIDDEN = "{% set f = 'per' ~ 'turb' %}"


def without_ledger(project: Path, models: dict[str, str]) -> None:
    """Make a project of these models, whose macros and hooks perturb."""
    settings = (project / "ldpsql.toml").read_text(encoding="utf-8")
    (project / "ldpsql.toml").write_text(settings.partition("# Every materialisation")[0])
    for file in [*(project / "models").iterdir(), *(project / "tests").iterdir()]:
        file.unlink()
    for name, text in models.items():
        (project / "models" / f"{name.partition(' ')[0]}.sql").write_text(text)
    (project / "macros").mkdir()
    (project / "macros" / "macros.sql").write_text(MACROS)
    with (project / "dbt_project.yml").open("a") as hooks:
        hooks.write(f"\non-run-start: {json.dumps(FUNCTIONS)}\n")


def test_whatever_dbt_would_draw_again_stops_the_project(project: Path) -> None:
    without_ledger(project, REDRAWN | SOUND)
    python = "def model(dbt, session):\n    return session.sql('''select ldp.perturb('Lima', ldp.m.city()) as city''')\n"
    (project / "models" / "python.py").write_text(python)
    (project / "tests" / "drawn.sql").write_text(f"select 1 {PEOPLE} where db_noisy(city) is null")
    (project / "snapshots").mkdir()
    snapshot = "config(unique_key='person_id', strategy='check', check_cols=['city'])"
    (project / "snapshots" / "snapped.sql").write_text(
        f"{{% snapshot snapped %}}{{{{ {snapshot} }}}} select person_id, db_noisy(city) as city {PEOPLE}{{% endsnapshot %}}"
    )
    with (project / "dbt_project.yml").open("a") as file:
        file.write("on-run-end: [\"insert into hooked select db_noisy('Lima')\"]\n")
    others = ["drawn (test)", "people-on-run-end-0 (operation)", "python (table)", "snapped (snapshot)"]
    redrawn = ", ".join(sorted([*REDRAWN, *others]))
    assert f"[LDP309] these perturb again whenever dbt runs them: {redrawn}. Hint:" in dbt(project, "build").stdout
    assert not (project / "people.duckdb").exists() or rows(project, "SELECT * FROM duckdb_tables()") == []


def test_what_jinja_puts_together_is_read_before_it_runs(project: Path) -> None:
    select = f"select person_id, ldp.{{{{ f }}}}(city, ldp.m.city()) as city {PEOPLE}"
    hidden = {
        "hidden": f"{HIDDEN}{select}",
        "hook": having(f"{ONCE}, post_hook='{{{{ into_a_table() }}}}'", "select 1 as person_id, db_noisy('Lima') as city"),
        "sorted_like_people": having(ONCE, f"{HIDDEN}{select}"),
    }
    without_ledger(project, hidden | SOUND)
    (project / "tests" / "hidden_test.sql").write_text(f"{HIDDEN}select * from ({select}) where city is null")
    assert dbt(project, "seed").returncode == 0
    ran = dbt(project, "run")
    assert "[LDP309] these perturb again whenever dbt runs them: hidden (table)." in ran.stdout
    assert "[LDP309] a hook of hook perturbs whenever dbt runs it." in ran.stdout
    assert "ldpsql adapter: sorted_like_people: it stores reports in the order of the rows" in ran.stdout
    assert "ERROR=2" in ran.stdout
    assert not any(f"{name}: it stores reports" in ran.stdout for name in SOUND)
    assert rows(project, "SELECT table_name FROM duckdb_tables() WHERE table_name LIKE 'h%'") == []
    assert "whenever dbt runs them: hidden_test (test)." in dbt(project, "test").stdout
    assert "[LDP309] dbt show perturbs at every run" in dbt(project, "show", "--select", "kept").stdout


def test_a_wrong_profile_or_mechanism_is_one_line(project: Path) -> None:
    profile = project / "profiles.yml"
    text = profile.read_text(encoding="utf-8")
    profile.write_text(text + "          config: {mechanisms: {town: 'kr(1, [1, 2])'}}\n")
    done = dbt(project, "run")
    assert (
        "[LDP105] the mechanism 'town' in the settings: there is no mechanism named 'kr'. Hint: did you mean 'krr'?"
        in done.stdout
    )
    profile.write_text(text + "          config: {mechanism: {}}\n")
    done = dbt(project, "run")
    assert "[LDP201]" in done.stdout
    assert "did you mean 'mechanisms'?" in done.stdout
    assert "Traceback" not in done.stdout


def test_a_model_charges_and_draws_what_the_policy_of_a_table_says(project: Path) -> None:
    settings = project / "ldpsql.toml"
    before, ledger = settings.read_text(encoding="utf-8").split("[mechanisms]")[0], "[ledger]\npath = 'people.ledger'\n"
    city = "columns = { city = \"krr(domain=['Lima', 'Oslo', 'Rome', 'Kyiv'])\" }\nunit = 'person_id'\n"
    ledger += "privacy_unit = 'person_id'\nepsilon_budget = 2\n"
    settings.write_text(f"{before}[tables.people]\nepsilon = 1.5\n{city}{ledger}", encoding="utf-8")
    for model in (project / "models").glob("*.sql"):
        text = model.read_text(encoding="utf-8").replace("'columns': {'city': 'city'}", "'table': 'people'")
        model.write_text(text.replace("ldp.m.city()", "ldp.m.people_city()"), encoding="utf-8")
    built = dbt(project, "build")
    assert built.returncode == 0, built.stdout
    assert [entry["epsilon"] for entry in Ledger.open(project / "people.ledger").history()] == ["1.5"]
    more = city.replace("domain", "epsilon=2, domain")
    settings.write_text(f"{before}[tables.people]\nepsilon = 1.5\n{more}{ledger}", encoding="utf-8")
    with (project / "seeds" / "people.csv").open("a", encoding="utf-8") as people:
        people.write("2001,south,Lima\n")
    assert "[LDP308]" in dbt(project, "build").stdout


DAILY = """{{ config(materialized='table', meta={'ldp': {
    'dataset': 'people', 'columns': {'city': 'city'}, 'permanent': true}}) }}
SELECT person_id, ldp.perturb_once(city, ldp.m.city(), person_id, 'city') AS city FROM {{ ref('people') }}"""


def permanent(project: Path) -> None:
    """Give the project a key of permanent reports."""
    settings = project / "ldpsql.toml"
    Key.create(project / "people.key")
    settings.write_text(
        settings.read_text(encoding="utf-8").replace("[ledger]", "[ledger]\nkey = 'people.key'"), encoding="utf-8"
    )


def test_a_model_of_permanent_reports_draws_the_same_reports_and_charges_them_once(project: Path) -> None:
    permanent(project)
    (project / "models" / "daily.sql").write_text(DAILY)
    days = []
    for command in (("seed",), ("run", "--select", "daily"), ("run", "--select", "daily")):
        built = dbt(project, *command)
        assert built.returncode == 0, built.stdout
        if command[0] == "run":
            days.append(rows(project, "FROM daily ORDER BY person_id"))
    assert days[0] == days[1]
    assert len(days[0]) == 2000
    ledger = Ledger.open(project / "people.ledger")
    assert [(entry["reports"], entry["state"]) for entry in ledger.history()] == [(2000, "published"), (0, "published")]
    assert [balance.spent for balance in ledger.balances()] == ["2"]


def test_a_model_of_permanent_reports_that_fails_charges_nobody_unless_its_reports_can_be_seen_before(project: Path) -> None:
    permanent(project)
    model, hooked = project / "models" / "daily.sql", project / "models" / "hooked.sql"
    failing = f"{DAILY} WHERE error('stopped') IS NULL"
    model.write_text(failing)
    hooked.write_text(failing.replace("materialized='table'", "materialized='table', post_hook='select 1'"))
    assert dbt(project, "seed").returncode == 0
    failed = dbt(project, "run", "--select", "daily", "hooked")
    assert "stopped" in failed.stdout
    ledger = Ledger.open(project / "people.ledger")
    history = [(entry["destination"], entry["reports"], entry["state"]) for entry in ledger.history()]
    assert history == [('"people"."main"."hooked"', 2000, "charged")]  # the transaction of the other was rolled back
    hooked.unlink()
    (project / "people.ledger").unlink()
    assert "stopped" in dbt(project, "run", "--select", "daily").stdout
    assert Ledger.open(project / "people.ledger").history() == []
    model.write_text(DAILY)
    built = dbt(project, "run", "--select", "daily")
    assert built.returncode == 0, built.stdout
    ledger = Ledger.open(project / "people.ledger")
    assert [(entry["reports"], entry["state"]) for entry in ledger.history()] == [(2000, "published")]
    ledger.check()
    killed = dbt(project, "run", "--select", "daily", killed_at="publish before")
    assert killed.returncode == -signal.SIGKILL
    assert [balance.spent for balance in ledger.balances()] == ["2"]


def test_a_model_that_draws_new_reports_of_a_table_of_permanent_ones_is_refused(project: Path) -> None:
    permanent(project)
    settings, model = project / "ldpsql.toml", project / "models" / "reports.sql"
    text = settings.read_text(encoding="utf-8")
    settings.write_text(text.replace("[tables.people]", "[tables.people]\npermanent = true"), encoding="utf-8")
    original = model.read_text(encoding="utf-8")
    for columns in ("'columns': {'city': 'people_city'}", "'table': 'people'"):
        model.write_text(original.replace("'columns': {'city': 'city'}", columns), encoding="utf-8")
        built = dbt(project, "build")
        assert built.returncode != 0
        assert "[tables.people] declares permanent reports, and this run would draw new ones" in built.stdout
        assert Ledger.open(project / "people.ledger").history() == []
    model.write_text(original, encoding="utf-8")
    daily = DAILY.replace("'city': 'city'", "'city': 'people_city'").replace("ldp.m.city()", "ldp.m.people_city()")
    (project / "models" / "daily.sql").write_text(daily, encoding="utf-8")
    built = dbt(project, "run", "--select", "daily")
    assert built.returncode == 0, built.stdout
    assert rows(project, "SELECT count(*) FROM daily") == [(2000,)]


WAREHOUSES = (EXAMPLE.parents[1] / "docs" / "guides" / "dbt-warehouses.md").read_text(encoding="utf-8")


def in_a_warehouse(path: Path, server: str) -> list[str]:
    """Make the project of the page about other warehouses, with a second target of DuckDB, and return the page's commands."""
    for name in ("dbt_project.yml", "ldpsql.toml", "seeds/people.csv", "models/new_people.sql"):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        text = (EXAMPLE / name).read_text(encoding="utf-8").replace("materialized='view'", "materialized='table'")
        (path / name).write_text(text, encoding="utf-8")
    for name, text in re.findall(r"^```\w+\n(?:#|--) (\S+)\n(.*?)^```", WAREHOUSES, re.DOTALL | re.MULTILINE):
        (path / name).write_text(text.replace("{{ env_var('PGHOST') }}", server), encoding="utf-8")
    with (path / "profiles.yml").open("a", encoding="utf-8") as profile:
        profile.write("    dev: {type: duckdb, path: people.duckdb, schema: analytics}\n")
    (path / "macros").mkdir()
    commands = "".join(re.findall(r"^```text\n(.*?)^```", WAREHOUSES, re.DOTALL | re.MULTILINE)).splitlines()
    address = f"postgresql:///shop?host={server}&user=test"
    return [command.replace("postgresql://host/shop", address) for command in commands]


def test_the_project_for_postgresql_builds_as_printed_and_its_macro_returns_the_same_in_duckdb(tmp_path: Path) -> None:
    if shutil.which("initdb", path=PATH) is None:
        pytest.skip("there is no PostgreSQL")
    with running() as server:

        def query(text: str, database: str = "shop") -> list[list[str]]:
            lines = call("psql", "-h", server, "-U", "test", "-d", database, "-At", "-F", "\t", "-c", text).splitlines()
            return [line.split("\t") for line in lines]

        def run(command: str) -> None:
            program, *arguments = shlex.split(command.replace("--profiles-dir .", ""))
            if program == "dbt":
                built = dbt(tmp_path, *arguments)
                assert built.returncode == 0, built.stdout
            else:
                subprocess.run([sys.executable, "-m", program, *arguments], cwd=tmp_path, check=True, timeout=300)

        query("CREATE DATABASE shop", "postgres")
        export, choose, perturb, estimate = in_a_warehouse(tmp_path, server)
        for command in (export, choose, perturb, estimate):
            run(command)
        first = query("SELECT * FROM analytics.reports ORDER BY person_id")
        assert len(first) == 2000
        add_people(tmp_path, range(2001, 2101))
        for command in (choose, perturb):  # the next day
            run(command)
        again = query("SELECT * FROM analytics.reports ORDER BY person_id")
        assert again[:2000] == first  # 2,000 reports of 4 values: by chance never
        assert len(again) == 2100
        history = Ledger.open(tmp_path / "people.ledger").history()
        assert [(entry["users"], entry["state"]) for entry in history] == [(2000, "published"), (100, "published")]
        shares = query("SELECT * FROM analytics.shares")

    with duckdb.connect(str(tmp_path / "people.duckdb")) as con:
        con.execute("CREATE SCHEMA analytics; CREATE TABLE analytics.reports (person_id INTEGER, region VARCHAR, city VARCHAR)")
        con.executemany("INSERT INTO analytics.reports VALUES (?, ?, ?)", first)
    run("dbt run --select shares --target dev")
    own = rows(tmp_path, "FROM analytics.shares")
    assert [row[:2] for row in own] == [tuple(row[:2]) for row in shares]
    numbers = [[*map(float, row[2:])] for row in (*own, *shares)]
    assert len(own) == 8
    np.testing.assert_allclose(numbers[:8], numbers[8:], rtol=0, atol=1e-12)
