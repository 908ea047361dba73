"""The command line, through real processes."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import ldpsql
from ldpsql import Key, __version__
from ldpsql.cli.options import Format, write_rows
from ldpsql.errors import SourceRefused
from ldpsql.functions import registry
from tests.commands import ROOT, printed, run

COMMAND = str(Path(sys.executable).with_name("ldpsql"))


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


def test_plugins_show_explains_every_mechanism_and_estimator() -> None:
    assert "ldp.krr(epsilon, domain" in run("plugins", "show", "krr").stdout
    for name, spec in {**registry().mechanisms, **registry().estimators}.items():
        shown = printed("plugins", "show", name)  # a process for each would take half a minute
        assert f"ldp.{name}(" in shown
        assert all(parameter.name in shown for parameter in spec.parameters())
        assert spec.kind == "estimator" or "\nclaim      " in shown


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


def test_two_columns_of_one_name_are_both_written(tmp_path: Path) -> None:
    assert run("sql", "-c", "SELECT 1 AS a, 2 AS a", "--format", "csv").stdout == "a,a_1\n1,2\n"
    (tmp_path / "reports.csv").write_text("n,city\n" + "7,Lima\n8,Oslo\n8,Oslo\n", encoding="utf-8")
    options = ("-c", "city", "-m", "krr(1, ['Lima', 'Oslo'])", "--by", "n", "--format", "json")
    rows = json.loads(run("estimate", "reports.csv", *options, cwd=tmp_path).stdout)
    assert {(row["n_1"], row["n"]) for row in rows} == {(7, 1), (8, 2)}


def test_numbers_that_json_does_not_have_are_null() -> None:
    query = "SELECT 'inf'::DOUBLE AS a, ['nan'::DOUBLE, 0.5] AS b, {'c': '-inf'::DOUBLE} AS d"
    for form in ("json", "jsonl"):
        (row,) = [json.loads(run("sql", "-c", query, "--format", form).stdout, parse_constant=pytest.fail)]
        assert (row if form == "jsonl" else row[0]) == {"a": None, "b": [None, 0.5], "d": {"c": None}}


def test_sql_keeps_a_database(tmp_path: Path) -> None:
    path = str(tmp_path / "w.duckdb")
    assert run("sql", path, "-c", "CREATE TABLE t AS SELECT 1 AS x").returncode == 0
    assert run("sql", path, "-c", "FROM t", "--format", "csv").stdout == "x\n1\n"


def test_a_refusal_inside_sql_has_the_exit_code_of_its_kind_and_shows_no_raw_value() -> None:
    done = run("sql", "-c", "SELECT ldp.perturb('canary-7f3a', ldp.krr(1, ['a', 'b']))")
    assert done.returncode == 3
    assert done.stderr.startswith("error[LDP302]: a value to be perturbed is outside the declared domain: ")
    assert "canary" not in done.stderr + done.stdout
    assert run("sql", "-c", "SELECT ldp.ibu('z', ldp.krr(1, ['a', 'b']))").returncode == 5
    assert run("sql", "-c", "SELEC 1").returncode == 1


def test_a_domain_in_a_missing_table_is_refused_with_its_hint(tmp_path: Path) -> None:
    domain = "domain = {table = 'items', column = 'item'}"
    (tmp_path / "ldpsql.toml").write_text(f"[mechanisms.item]\nmechanism = 'krr'\nepsilon = 1\n{domain}\n")
    done = run("sql", "-c", "SELECT ldp.perturb('a', ldp.m.item())", cwd=tmp_path)
    assert "LDP520" in done.stderr
    assert "attach ldpsql again" in done.stderr
    assert run("sql", "-c", "SELECT error('[LDP520] Lima. Hint: Oslo')").stderr.count("LDP901") == 1


def test_an_option_that_belongs_to_the_estimator_is_pointed_out() -> None:
    for call in ("ldp.top(x, ldp.krr(1, [1, 2]), 2, deadline := 3)", "ldp.diagnose(x, ldp.krr(1, [1, 2]), stop := 9)"):
        done = run("sql", "-c", f"SELECT {call} FROM (SELECT 1 AS x)")
        assert "hint: options of the estimator" in done.stderr
    assert "options of the estimator" not in run("sql", "-c", "SELECT ldp.top(1)").stderr


def test_the_missing_mechanism_of_a_table_function_with_a_condition_is_pointed_out() -> None:
    statement = "CREATE TABLE t(city VARCHAR, day INT); FROM ldp.estimate(t, city, by := day{});"
    done = run("sql", "-c", statement.format(", keep := day > 1"))
    assert "hint: with keep, pass the mechanism too" in done.stderr
    assert "pass the mechanism too" not in run("sql", "-c", statement.format("")).stderr


@pytest.mark.parametrize(
    "call",
    ["ldp.krr(epsilon = 1, domain = ['a', 'b'])", "ldp.krr(1, domain = ['a', 'b'])", "ldp.ibu('a', m(), estimator = 'inv')"],
)
def test_an_argument_with_an_equals_sign_is_explained(call: str) -> None:
    macro = "CREATE MACRO m() AS ldp.krr(1, ['a', 'b']);"
    assert "hint: named arguments are written with :=, such as" in run("sql", "-c", f"{macro} SELECT {call}").stderr
    refused = run("sql", "-c", f"{macro} SELECT ldp.perturb('a', m()) WHERE town = 'a'").stderr
    assert "town" in refused
    assert "named arguments" not in refused


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
    policy = tomllib.loads((ROOT / "examples" / "data" / "flights.toml").read_text("utf-8"))["tables"]["flights"]
    assert policy["columns"]["carrier"].replace("epsilon=", "").replace("domain=", "") in done.stdout
    assert all(airport in done.stdout for airport in ("EWR", "JFK", "LGA"))
    covered = [int(line.split()[-3]) for line in done.stdout.splitlines() if "hold the truth" in line]
    # Of 16 intervals, 6 miss with a probability below 1e-4 even if they were independent of each other; three airports.
    assert len(covered) == 3
    assert sum(covered) > 48 - 16
    page = (tmp_path / "ldpsql-demo.html").read_text(encoding="utf-8")
    assert page.count('class="group"') == 3
    assert page.count("<script") == 1  # its own; test_pages.py reads it
    assert "default-src 'none'" in page
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
    tossed = run("toss", "yes", LDPSQL_PLUGINS="coin")
    assert tossed.stdout in ("yes\n", "no\n"), tossed.stderr
    assert run("toss", "yes", LDPSQL_PLUGINS="0").returncode == 2
    assert run("toss", "perhaps", LDPSQL_PLUGINS="coin").returncode == 3


def test_a_loose_file_offers_its_mechanism_in_sql(tmp_path: Path) -> None:
    guide = (Path(__file__).parents[1] / "docs" / "guides" / "plugins.md").read_text(encoding="utf-8")
    (tmp_path / "coin.py").write_text(guide.partition("```text\n")[2].partition("```")[0])
    select = "SELECT ldp.perturb('tea', ldp.coin(1, ['tea', 'coffee'])) AS r"
    done = run("sql", "-c", select, "--format", "csv", cwd=tmp_path, LDPSQL_PLUGINS="./coin.py")
    assert done.stdout.split() in (["r", "tea"], ["r", "coffee"]), done.stderr


@pytest.mark.slow
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
    assert "8 passed" in done.stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with settings that name a mechanism, and 20,000 of its reports by region."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "ldpsql.toml").write_text("""# reviewed by Ada\n[mechanisms]\ncity = "krr(2, ['Lima', 'Oslo', 'Rome'])"\n""")
    rows = "SELECT ['n', 's'][1 + i % 2] AS \"re'gion\", ldp.perturb(['Lima', 'Oslo'][1 + i % 2], ldp.m.city()) AS city"
    command = f"COPY ({rows} FROM range(20000) t(i)) TO 'reports.parquet'"
    assert run("sql", "-c", command, cwd=folder).returncode == 0
    return folder


def test_estimate_reads_a_file_and_a_table_and_keeps_the_order_of_the_domain(project: Path) -> None:
    done = run("estimate", "reports.parquet", "-c", "city", "-m", "city", "--by", "re'gion", "--format", "json", cwd=project)
    rows = json.loads(done.stdout)
    assert [(row["re'gion"], row["value"]) for row in rows] == [(g, v) for g in "ns" for v in ("Lima", "Oslo", "Rome")]
    assert [round(row["estimate"], 1) for row in rows] == [1, 0, 0, 0, 1, 0]
    (project / "folder").mkdir()
    (project / "folder" / "part.parquet").write_bytes((project / "reports.parquet").read_bytes())
    from_folder = run("estimate", "folder", "-c", "city", "-m", "city", "--by", "re'gion", "--format", "json", cwd=project)
    assert from_folder.stdout == done.stdout
    assert run("sql", "w.duckdb", "-c", "CREATE TABLE t AS FROM 'reports.parquet'", cwd=project).returncode == 0
    done = run(
        "estimate", "t", "-d", "w.duckdb", "-c", "city", "-m", "city", "--estimator", "inv", "--format", "csv", cwd=project
    )
    assert [line.split(",")[0] for line in done.stdout.splitlines()] == ["value", "Lima", "Oslo", "Rome"]


def test_perturb_shuffles_unless_it_is_asked_to_keep_the_order(tmp_path: Path) -> None:
    rows = "".join(f"{i},Lima\n" for i in range(1000))
    (tmp_path / "people.csv").write_text(f"id,city\n{rows}", encoding="utf-8")
    for options, kept in (([], False), (["--order", "keep"], True)):
        asked = [
            "perturb",
            "people.csv",
            "out.csv",
            "-c",
            "city",
            "-m",
            "krr(1, ['Lima', 'Oslo'])",
            "--keep",
            "id",
            "--replace",
        ]
        assert run(*asked, *options, cwd=tmp_path).returncode == 0
        written = (tmp_path / "out.csv").read_text(encoding="utf-8").splitlines()
        place = written[0].split(",").index("id")
        assert ([int(line.split(",")[place]) for line in written[1:]] == [*range(1000)]) is kept


def test_estimate_shows_the_most_frequent_values_of_each_group(project: Path) -> None:
    options = ("-c", "city", "-m", "city", "--by", "re'gion", "--most", "2", "--format", "json")
    done = run("ask", "top", "reports.parquet", *options, cwd=project)
    rows = json.loads(done.stdout)
    assert [row["rank"] for row in rows] == [1, 2, 1, 2]
    assert [round(row["estimate"]) for row in rows] == [1, 0, 1, 0]
    assert run("ask", "top", "reports.parquet", "-c", "city", "-m", "city", "--most", "0", cwd=project).returncode == 2


def test_estimate_reads_what_perturb_writes_for_arrow(project: Path) -> None:
    mechanism = "krr(20, ['Lima', 'Oslo', 'Rome'])"
    options = ["-c", "city", "-m", mechanism]
    wrote = run("perturb", "reports.parquet", "out.arrow", *options, "--keep", "re'gion", cwd=project)
    assert wrote.returncode == 0, wrote.stderr
    done = run("estimate", "out.arrow", *options, "--by", "re'gion", "--format", "json", cwd=project)
    assert [row["n"] for row in json.loads(done.stdout)] == [10000] * 6, done.stderr


@pytest.mark.parametrize(
    ("source", "column", "exit_code", "code"),
    [("no.parquet", "city", 5, "LDP520"), ("reports.parquet", "cty", 2, "LDP201")],
)
def test_a_failure_has_one_code_whatever_the_command(
    source: str, column: str, exit_code: int, code: str, project: Path
) -> None:
    one = run("estimate", source, "-c", column, "-m", "city", cwd=project)
    other = run("perturb", source, "out.parquet", "-c", column, "-m", "city", cwd=project)
    page = run("report", source, "-c", column, "-o", "page.html", cwd=project)  # the reports say what drew them
    assert (one.returncode, one.stderr) == (other.returncode, other.stderr) == (page.returncode, page.stderr)
    assert one.returncode == exit_code
    assert one.stderr.startswith(f"error[{code}]: ")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["estimate", "reports.parquet", "-c", "cty", "-m", "city"], 2, "did you mean 'city'?"),
        (["estimate", "reports.parquet", "-c", "city", "-m", "cty"], 2, "did you mean 'city'?"),
        (["estimate", "t", "-d", "no.duckdb", "-c", "city", "-m", "city"], 5, "--database takes a DuckDB file"),
        (["estimate", "reports.parquet", "-c", "city", "-m", "krr(1, ['Lima', 'Oslo'])"], 5, "error[LDP401]"),
        (["report", "reports.parquet", "-c", "city", "-m", "city", "-o", "page.pdf"], 2, ".html, .svg or .png"),
        (
            ["estimate", "reports.parquet", "-c", "city", "-m", "krr(1, [DATE '2026-01-01'])"],
            2,
            "write a date or a timestamp as a string",
        ),
        (["plan", "-n", "100"], 2, "--values"),
        (["plan", "-n", "100", "-k", "9", "-m", "krr(1, [1, 2])"], 2, "leave out --values"),
        (["plan", "-n", "100", "-k", "9", "--epsilon", "1", "--table", "a,b"], 2, "--column education=16"),
        (["export-sql", "-m", "hierarchy(1, 0, 7, step := 1)"], 2, "no relational SQL"),
        (["plugins", "check", "no-such"], 2, "error[LDP201]"),
        (["plugins", "disable", "no-such"], 2, "ldpsql plugins list"),
        (["demo", "--page", "missing/page.html"], 1, "error[LDP523]: the file missing/page.html cannot be written"),
        (["export-sql", "-m", "city", "-o", "missing/city.sql"], 1, "its folder must exist"),
        (["perturb", "reports.parquet", "reports.parquet", "-c", "city", "-m", "city", "--replace"], 1, "somewhere else"),
        (["plugins", "enable", "con"], 2, "did you mean 'coin'?"),
        (["plugins", "new", "Bad-Name"], 2, "lowercase letters"),
    ],
)
def test_failures_say_what_is_wrong_and_what_to_do(arguments: list[str], code: int, said: str, project: Path) -> None:
    done = run(*arguments, cwd=project)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert done.stderr.startswith("error[LDP")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_flag_goes_before_the_environment_before_the_project_before_the_user(project: Path, tmp_path: Path) -> None:
    user = tmp_path / "user.toml"
    user.write_text("[defaults]\nformat = 'csv'\n")
    plan = ["plan", "-n", "10", "-m", "city", "--epsilon", "1"]
    assert run(*plan, cwd=project, LDPSQL_CONFIG=str(user)).stdout.startswith("mechanism,epsilon,")
    inner = project / "inner"
    inner.mkdir()
    (inner / "ldpsql.toml").write_text("[defaults]\nformat = 'json'\n[mechanisms]\ncity = 'krr(1, [1, 2])'\n")
    assert run(*plan, cwd=inner, LDPSQL_CONFIG=str(user)).stdout.startswith("[\n")
    done = run(*plan, cwd=inner, LDPSQL_CONFIG=str(user), LDPSQL_FORMAT="jsonl")
    assert done.stdout.startswith('{"mechanism": "krr"')
    done = run(*plan, "--format", "table", cwd=inner, LDPSQL_CONFIG=str(user), LDPSQL_FORMAT="jsonl")
    assert done.stdout.startswith("mechanism  epsilon")
    (inner / "ldpsql.toml").write_text("[defaults\n")
    broken = run("plugins", "list", cwd=inner)
    assert (broken.returncode, broken.stdout) == (2, "")
    assert "error[LDP105]" in broken.stderr


def test_doctor_reports_what_works(tmp_path: Path) -> None:
    done = run("doctor", "--format", "json", cwd=tmp_path)
    statuses = {row["check"]: row["status"] for row in json.loads(done.stdout)}
    assert done.returncode == 0
    assert statuses.keys() >= {"packages", "settings", "random source", "plugins", "SQL", "extra report", "extra dbt"}
    assert {statuses[check] for check in ("packages", "settings", "random source", "plugins", "SQL")} == {"ok"}
    broken = run("doctor", cwd=tmp_path, LDPSQL_PLUGINS="no-such-plugin")
    assert broken.returncode == 1
    assert "no-such-plugin" in broken.stdout


def test_doctor_looks_at_the_ledger_and_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ldpsql.toml").write_text("[ledger]\npath = 'budget.ledger'\nkey = 'people.key'\nepsilon_budget = '1'\n")
    monkeypatch.chdir(tmp_path)

    def found() -> tuple[int, str, str]:
        done = run("doctor", "--format", "json", cwd=tmp_path)
        assert "UnchargedReports" not in done.stderr
        ledger = next(row for row in json.loads(done.stdout) if row["check"] == "ledger")
        return done.returncode, ledger["status"], ledger["finding"]

    assert "there is no key file" in found()[2]
    Key.create("people.key")
    assert found()[:2] == (0, "ok")
    assert not Path("budget.ledger").exists()
    Path("people.key").chmod(0o644)
    assert "read by others" in found()[2]
    Path("people.key").chmod(0o600)
    Path("budget.ledger").write_text("no ledger")
    code, status, finding = found()
    assert (code, status, finding[:8]) == (1, "failed", "[LDP313]")


def test_export_sql_writes_a_query_that_a_client_without_ldpsql_runs(project: Path) -> None:
    options = ["-m", "city", "-c", "city", "--table", "people"]
    assert run("export-sql", *options, "-o", "city.sql", cwd=project).returncode == 0
    text = (project / "city.sql").read_text(encoding="utf-8")
    with duckdb.connect() as con:
        con.execute(f"CREATE TABLE people AS FROM '{project / 'reports.parquet'}'")
        assert [row[0] for row in con.execute(text).fetchall()] == ["Lima", "Oslo", "Rome"]
    assert run("export-sql", *options, cwd=project).stdout == text


def test_a_plan_says_why_the_error_of_a_mechanism_is_empty(project: Path) -> None:
    empty = run("plan", "-n", "1000", "-m", "square_wave(1, 0, 100)", "--epsilon", "1", cwd=project)
    assert "fewer bins or a larger epsilon" in empty.stderr
    full = run("plan", "-n", "1000", "-m", "krr(1, ['a', 'b'])", "--epsilon", "1", cwd=project)
    assert "fewer bins" not in full.stderr


def test_report_and_plan_draw(project: Path) -> None:
    done = run("report", "reports.parquet", "-c", "city", "-m", "city", "--by", "re'gion", "-o", "page.html", cwd=project)
    assert done.returncode == 0, done.stderr
    page = (project / "page.html").read_text(encoding="utf-8")
    assert page.count('class="group"') == 2
    assert page.count('class="plot"') == 3  # other epsilons, two of steps
    assert page.count('class="heat"') == 1  # the channel
    assert page.count("<script") == 1  # its own; test_pages.py reads it
    assert "default-src 'none'" in page
    assert not [part for part in page.split('"') if part.startswith("http") and "w3.org" not in part]
    done = run("plan", "-n", "1000", "-k", "4", "-o", "plan.png", "--format", "csv", cwd=project)
    assert len(done.stdout.splitlines()) == 1 + 4 * 5
    assert (project / "plan.png").read_bytes().startswith(b"\x89PNG")


def test_disable_revokes_in_every_folder_what_enable_granted(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, elsewhere = project / "own.toml", tmp_path / "elsewhere"
    elsewhere.mkdir()
    own.write_text("# mine\n[defaults]\nformat = 'json'\n", encoding="utf-8")
    before = (project / "ldpsql.toml").read_text(encoding="utf-8")
    monkeypatch.delenv("LDPSQL_PLUGINS")

    def plugins(*arguments: str, cwd: Path = project) -> subprocess.CompletedProcess[str]:
        return run("plugins", *arguments, cwd=cwd, LDPSQL_CONFIG=str(own))

    assert plugins("enable", "coin").returncode == 0
    assert own.read_text(encoding="utf-8").startswith("# mine")
    assert 'allow = ["coin"]' in own.read_text(encoding="utf-8")
    assert (project / "ldpsql.toml").read_text(encoding="utf-8") == before
    for folder in (project, elsewhere):
        assert "mechanism  coin" in plugins("show", "coin", cwd=folder).stdout
    assert plugins("disable", "coin", cwd=elsewhere).returncode == 0
    for folder in (project, elsewhere):
        assert "not enabled" in plugins("show", "coin", cwd=folder).stderr
    (elsewhere / "ldpsql.toml").write_text("[plugins]\nallow = ['another']\n", encoding="utf-8")
    assert "allows other plugins only" in plugins("enable", "coin", cwd=elsewhere).stderr
    own.write_text("[plugins]\nallow = ['*']\n", encoding="utf-8")
    refused = plugins("disable", "coin")
    assert (refused.returncode, "allows all plugins" in refused.stderr) == (2, True)


def test_the_first_words_load_no_engine() -> None:
    """Loading DuckDB alone takes longer than to print the help, and the others take longer still."""
    slow = {"duckdb", "numpy", "polars", "pyarrow", "pydantic", "scipy"}
    program = f"import sys, ldpsql.cli\ntry: ldpsql.cli.main()\nfinally: print(*{slow} & {{*sys.modules}}, file=sys.stderr)"
    for argument in ("--version", "--help"):
        done = subprocess.run([sys.executable, "-c", program, argument], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "\n")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completion_names_the_commands(shell: str) -> None:
    asked = {
        "_LDPSQL_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": "ldpsql pl",
        "COMP_CWORD": "1",
        "_TYPER_COMPLETE_ARGS": "ldpsql pl",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    done = subprocess.run([COMMAND], env={**os.environ, **asked}, capture_output=True, text=True, timeout=60, check=False)
    assert "plugins" in done.stdout
    assert "plan" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "endless",
    [
        "SELECT count(*) FROM range(100000000000) t(i) WHERE sin(i) > 2",
        "SELECT ldp.ibu(i % 50, ldp.krr(1, range(50)), stop := 9000000, misfit := 'allow') FROM range(100) t(i)",
    ],
)
def test_an_interrupt_leaves_with_130(endless: str) -> None:
    command = [COMMAND, "sql", "--format", "csv", "-c", "SELECT 'begun' AS state", "-c", endless]
    unbuffered = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, env=unbuffered, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as one:
        assert one.stdout is not None
        assert one.stdout.readline() == "state\n"
        time.sleep(0.5)  # the second statement is begun right after
        one.send_signal(signal.SIGINT)
        try:
            _, said = one.communicate(timeout=60)
        finally:
            one.kill()
    assert (one.returncode, said) == (130, "error: interrupted\n")


def test_doctor_sees_a_package_that_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "duckdb-1.4.3.dist-info").mkdir()
    (tmp_path / "duckdb-1.4.3.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: duckdb\nVersion: 1.4.3\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert "duckdb 1.4.3 is older than 2.0" in printed("doctor", "--format", "json")


@pytest.mark.parametrize("form", [Format.JSON, Format.JSONL, Format.CSV])
def test_rows_are_written_one_after_the_other(form: Format, capsys: pytest.CaptureFixture[str]) -> None:
    written = []

    def rows() -> Iterator[dict[str, int]]:
        for number in range(3):
            written.append(capsys.readouterr().out)
            yield {"number": number}

    write_rows(rows(), form)
    assert all(written[1:])  # each row before the next one is asked for


def test_closed_streams_stop_no_command_and_no_file_gets_their_numbers(tmp_path: Path) -> None:
    (tmp_path / "closed.csv").write_text("city\n" + "Lima\n" * 50)
    perturb = (
        f"""{sys.executable} -m ldpsql perturb closed.csv closed.parquet -c city -m "krr(1, ['Lima', 'Oslo'])" <&- >&- 2>&-"""
    )
    assert subprocess.run(["sh", "-c", perturb], cwd=tmp_path, check=False).returncode == 0
    assert duckdb.execute(f"SELECT count(*) FROM '{tmp_path}/closed.parquet'").fetchall() == [(50,)]
    version = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m ldpsql --version >&-"], cwd=tmp_path, check=False, capture_output=True, text=True
    )
    assert (version.returncode, version.stderr) == (0, "")


def test_the_address_of_a_table_is_not_read_for_reports() -> None:
    for mechanism in (["-m", "krr(1, ['a', 'b'])"], []):
        done = run("estimate", "sqlite:///shop.db#answers", "city", *mechanism)
        assert "error[LDP520]: the address of a table in another database can only be perturbed" in done.stderr
        assert "ldpsql export-sql" in done.stderr
    for keys in ([], ["region"]):
        with pytest.raises(SourceRefused, match="the address of a table in another database can only be perturbed"):
            ldpsql.estimate("sqlite:///shop.db#answers", "krr(1, ['a', 'b'])", column="city", by=keys)
