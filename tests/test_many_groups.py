"""Very many groups, some at a time."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from duckdb import DuckDBPyConnection
from typer.testing import CliRunner

import ldpsql
from ldpsql.errors import DestinationExists, ImpossibleReport, InvalidParameter, SourceRefused, UnfinishedRun, UnknownName
from tests.commands import app, python, run

CITY = "krr(epsilon=1, domain=['Lima', 'Oslo', 'Rome', 'Kyiv'])"


@pytest.fixture
def reports(con: DuckDBPyConnection) -> DuckDBPyConnection:
    con.execute(
        """CREATE TABLE reports AS SELECT i % 500 AS "the day", CASE WHEN i % 3 > 0 THEN i % 3 END AS kind,
                  CASE WHEN i % 500 > 0 THEN ldp.perturb('Lima', city()) END AS city FROM range(150_000) t(i)"""
    )
    return con


def rows(con: DuckDBPyConnection, sql: str) -> list[tuple[Any, ...]]:
    return con.execute(sql).fetchall()


@pytest.fixture
def in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let few groups need several steps."""
    monkeypatch.setattr("ldpsql.bulk.many_groups.CELLS_AT_ONCE", 50)
    monkeypatch.setattr("ldpsql.bulk.many_groups.ROWS_AT_ONCE", 50)


@pytest.mark.usefixtures("in_steps")
@pytest.mark.parametrize("estimator", ["ibu", "inv(confidence=0.9)"])
def test_groups_in_steps_are_the_groups_of_one_statement(reports: DuckDBPyConnection, estimator: str) -> None:
    options: dict[str, Any] = {"report": "city", "keys": ["the day", "kind"], "mechanism": CITY, "estimator": estimator}
    assert ldpsql.estimate_groups(reports, "reports", "found", **options) == 499 * 3  # NULL is a kind; day 0 has no report
    name, _, arguments = estimator.rstrip(")").partition("(")
    call = f"ldp.{name}(city, city(){', ' + arguments.replace('=', ' := ') if arguments else ''})"
    expected = f"""SELECT "the day", kind, unnest({call}, recursive := true), count(city) AS n
                   FROM reports GROUP BY "the day", kind HAVING count(city) > 0 ORDER BY ALL"""
    assert rows(reports, "FROM found ORDER BY ALL") == rows(reports, expected)


@pytest.mark.usefixtures("in_steps")
@pytest.mark.parametrize("key", ["step", "N", "report"])
def test_a_key_may_have_any_name(reports: DuckDBPyConnection, key: str) -> None:
    reports.execute(f'CREATE TABLE named AS SELECT "the day" % 50 AS "{key}", city FROM reports')
    expected = rows(reports, 'SELECT "the day" % 50, count(city) FROM reports GROUP BY ALL')
    assert ldpsql.estimate_groups(reports, "named", "found", report="city", keys=[key], mechanism=CITY) == 50
    assert {(row[0], row[-1]) for row in rows(reports, "FROM found")} == set(expected)
    by = rows(reports, f'FROM ldp.estimate(named, city, city(), by := "{key}")')
    assert {(row[0], row[-1]) for row in by} == set(expected)


def test_a_table_says_how_much_each_group_borrowed(reports: DuckDBPyConnection) -> None:
    options: dict[str, Any] = {"report": "city", "keys": ["kind"], "mechanism": CITY, "replace": True}
    prior = "(SELECT ldp.prior(counts, city()) FROM (SELECT ldp.counts(city) AS counts FROM reports GROUP BY kind))"
    diagnosed = (
        f"SELECT kind, ldp.diagnose(city, city(), estimator := 'shared', prior := {prior}).borrowed FROM reports GROUP BY kind"
    )
    # Kinds are numbers, and by chance neighbours predict each other better than all groups do; `ldp.prior` knows no order.
    for estimator in ('shared(neighbours="ignore")', 'shared(errors="shared", neighbours="ignore")'):
        ldpsql.estimate_groups(reports, "reports", "found", estimator=estimator, **options)
        assert set(rows(reports, "SELECT kind, borrowed FROM found")) == set(rows(reports, diagnosed))
    ldpsql.estimate_groups(reports, "reports", "found", **options)
    with pytest.raises(duckdb.BinderException, match="borrowed"):
        rows(reports, "SELECT borrowed FROM found")


@pytest.mark.parametrize(("estimator", "key"), [("ibu", "borrowed"), ("shared", "kind"), ("shared", "borrowed")])
def test_sql_returns_the_columns_of_the_table_of_all_groups(reports: DuckDBPyConnection, estimator: str, key: str) -> None:
    reports.execute(f'CREATE TABLE named AS SELECT kind AS "{key}", city FROM reports')
    ldpsql.estimate_groups(reports, "named", "found", report="city", keys=[key], mechanism=CITY, estimator=estimator)
    call = f"""ldp.estimate(named, city, city(), by := "{key}", estimator := '{estimator}')"""
    reports.execute(f"CREATE TABLE grouped AS FROM {call}")
    described = [rows(reports, f"SELECT column_name, column_type FROM (DESCRIBE {table})") for table in ("found", "grouped")]
    assert described[0] == described[1]
    assert (described[1][-1][0] == "borrowed") == (estimator == "shared")
    assert rows(reports, "FROM found ORDER BY ALL") == rows(reports, "FROM grouped ORDER BY ALL")


def test_the_columns_of_a_parameter_are_those_of_its_estimator(reports: DuckDBPyConnection) -> None:
    for estimator, last in (("shared", "borrowed"), ("ibu", "n"), (None, "n")):
        found = reports.execute("FROM ldp.estimate(reports, city, city(), by := kind, estimator := $1)", [estimator])
        assert found.description is not None
        assert found.description[-1][0] == last


@pytest.mark.parametrize("key", ["Value", "n"])
def test_a_key_that_is_named_like_a_column_of_the_result_leaves_it_the_name(reports: DuckDBPyConnection, key: str) -> None:
    reports.execute(f'CREATE TABLE named AS SELECT kind AS "{key}", city FROM reports')
    ldpsql.estimate_groups(reports, "named", "found", report="city", keys=[key], mechanism=CITY)
    reports.execute(f'CREATE TABLE grouped AS FROM ldp.estimate(named, city, city(), by := "{key}")')
    right = rows(reports, "SELECT kind, value, estimate, n FROM ldp.estimate(reports, city, city(), by := kind) ORDER BY ALL")
    for table in ("found", "grouped"):
        assert rows(reports, f'SELECT "{key}_1", value, estimate, n FROM {table} ORDER BY ALL') == right


@pytest.mark.parametrize("into", ["Found", "main.found", "a view"])
def test_whatever_has_the_name_stays(reports: DuckDBPyConnection, into: str) -> None:
    reports.execute('CREATE TABLE found AS SELECT 1 AS mine; CREATE VIEW "a view" AS SELECT 1')
    with pytest.raises(DestinationExists):
        ldpsql.estimate_groups(reports, "reports", into, report="city", keys=["kind"], mechanism=CITY)
    assert rows(reports, "FROM found") == [(1,)]


def test_a_table_of_that_name_in_another_schema_does_not_matter(reports: DuckDBPyConnection) -> None:
    reports.execute("CREATE SCHEMA other; CREATE TABLE found AS SELECT 1")
    assert ldpsql.estimate_groups(reports, "reports", "other.found", report="city", keys=["kind"], mechanism=CITY) == 3
    assert rows(reports, "SELECT count(*) FROM other.found") == [(12,)]


def test_a_table_that_is_there_stays_unless_it_is_to_be_replaced(reports: DuckDBPyConnection) -> None:
    reports.execute("CREATE TABLE found AS SELECT 1 AS mine")
    with pytest.raises(DestinationExists):
        ldpsql.estimate_groups(reports, "reports", "found", report="city", keys=["kind"], mechanism=CITY)
    with pytest.raises(ImpossibleReport):  # the kind is no city
        ldpsql.estimate_groups(
            reports, "reports", "found", report="the day", keys=["kind"], mechanism="krr(1, [1, 2])", replace=True
        )
    assert rows(reports, "FROM found") == [(1,)]
    assert ldpsql.estimate_groups(reports, "reports", "found", report="city", keys=["kind"], mechanism=CITY, replace=True) == 3
    assert rows(reports, "SELECT sum(n) // 4 FROM found") == [(150_000 - 300,)]


def test_what_makes_no_sense_is_refused(reports: DuckDBPyConnection) -> None:
    with pytest.raises(InvalidParameter):
        ldpsql.estimate_groups(reports, "reports", "found", report="city", keys=[], mechanism=CITY)
    with pytest.raises(InvalidParameter, match="named twice"):
        ldpsql.estimate_groups(reports, "reports", "found", report="city", keys=["kind", "KIND"], mechanism=CITY)
    with pytest.raises(UnknownName):
        ldpsql.estimate_groups(reports, "reports", "found", report="city", keys=["kind"], mechanism=CITY, estimator="ibo")
    with pytest.raises(duckdb.CatalogException):
        ldpsql.estimate_groups(reports, "nothing", "found", report="city", keys=["kind"], mechanism=CITY)


def test_arguments_in_another_order_are_explained(reports: DuckDBPyConnection) -> None:
    with pytest.raises(TypeError, match=r"estimate_groups\(\): missing a required argument: 'report'"):
        ldpsql.estimate_groups(reports, "reports", "krr(1, ['a', 'b'])")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"perturb_table\(\): missing a required argument: 'into'"):
        ldpsql.perturb_table(reports, "reports")  # type: ignore[call-arg]
    for report, keys in ((5, ["kind"]), ("city", "kind"), ("city", 5), ("city", [5])):
        with pytest.raises(InvalidParameter, match="names of columns"):
            ldpsql.estimate_groups(reports, "reports", "estimates", report=report, keys=keys)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match=r"not polars.DataFrame"):
        ldpsql.estimate_groups(reports, pl.DataFrame(), "found", report="city", keys=["kind"])  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match="the destination must be"):
        ldpsql.estimate_groups(reports, "reports", None, report="city", keys=["kind"], mechanism=CITY)  # type: ignore[arg-type]


KILLED = """
import os, signal, sys
import ldpsql, ldpsql.bulk.many_groups, ldpsql.bulk.many_groups
ldpsql.bulk.many_groups.CELLS_AT_ONCE = ldpsql.bulk.many_groups.ROWS_AT_ONCE = 40
def progress(done, groups):
    if done >= 20:
        os.kill(os.getpid(), signal.SIGKILL)
with ldpsql.connect(sys.argv[1]) as con:
    ldpsql.estimate_groups(con, "reports", "found", report="city", keys=["day"], mechanism=sys.argv[2], progress=progress)
"""
DAYS = "CREATE TABLE reports AS SELECT i % {} AS day, ['Lima', 'Oslo', 'Rome'][1 + i % 3] AS city FROM range(500) t(i)"
OPTIONS: dict[str, Any] = {"report": "city", "keys": ["day"], "mechanism": CITY}
UNFINISHED = ["found ldp cells", "found ldp estimates", "found ldp run"]


def tables(con: DuckDBPyConnection) -> list[str]:
    return [name for (name,) in rows(con, "SELECT table_name FROM duckdb_tables() ORDER BY ALL")]


@pytest.mark.slow
def test_a_run_that_was_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    database = str(tmp_path / "warehouse.duckdb")
    with ldpsql.connect(database) as con:
        con.execute(DAYS.format(60))
    killed = python(KILLED, database, CITY)
    assert killed.returncode == -signal.SIGKILL
    with ldpsql.connect(database) as con:
        assert tables(con) == [*UNFINISHED, "reports"]
        (written,) = rows(con, 'SELECT count(DISTINCT day) FROM "found ldp estimates"')[0]
        assert 20 <= written < 60
        with pytest.raises(UnfinishedRun, match="not finished"):
            ldpsql.estimate_groups(con, "reports", "found", **OPTIONS)
        for other in ({"estimator": "inv"}, {"mechanism": CITY.replace("1", "2")}):
            with pytest.raises(UnfinishedRun, match="other columns"):
                ldpsql.estimate_groups(con, "reports", "found", resume=True, **{**OPTIONS, **other})
        con.execute("UPDATE reports SET city = 'Kyiv' WHERE rowid = 7")
        with pytest.raises(UnfinishedRun, match="have changed"):
            ldpsql.estimate_groups(con, "reports", "found", resume=True, **OPTIONS)
        con.execute("UPDATE reports SET city = 'Rome' WHERE rowid = 7")  # as it was: 7 % 3 = 1 is Oslo
        with pytest.raises(UnfinishedRun, match="have changed"):
            ldpsql.estimate_groups(con, "reports", "found", resume=True, **OPTIONS)
        con.execute("UPDATE reports SET city = 'Oslo' WHERE rowid = 7")
        seen: list[tuple[int, int | None]] = []
        resumed = lambda done, groups: seen.append((done, groups))  # noqa: E731
        assert ldpsql.estimate_groups(con, "reports", "found", resume=True, progress=resumed, **OPTIONS) == 60
        assert seen == [(60, 60)]
        assert tables(con) == ["found", "reports"]
        whole = "FROM ldp.estimate(reports, city, ldp.krr(1, ['Lima', 'Oslo', 'Rome', 'Kyiv']), by := day) ORDER BY ALL"
        assert rows(con, "FROM found ORDER BY ALL") == rows(con, whole)


@pytest.mark.parametrize(("report", "key"), [("s.city", "kind"), ("city", "s.kind"), ("none", "kind")])
def test_a_column_that_does_not_exist_is_refused_by_name(reports: DuckDBPyConnection, report: str, key: str) -> None:
    reports.execute("CREATE TABLE nested AS SELECT {'city': city, 'kind': kind} AS s, city, kind FROM reports")
    hint = "CREATE VIEW" if "." in report + key else "spelling"
    with pytest.raises(UnknownName, match=f"'({report}|{key})'.*{hint}"):
        ldpsql.estimate_groups(reports, "nested", "found", report=report, keys=[key], mechanism=CITY)
    call = "ldp.estimate(nested, s.city, city(), by := s.kind)"  # SQL reads fields
    expected = "FROM ldp.estimate(reports, city, city(), by := kind)"
    assert rows(reports, f"FROM {call} ORDER BY ALL") == rows(reports, f"{expected} ORDER BY ALL")


def test_groups_that_take_long_are_written_a_few_at_a_time(con: DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    drew = "square_wave(epsilon=1.0, low=0, high=16, bins=16)"
    made = "ldp.perturb((i % 16)::DOUBLE, ldp.square_wave(1.0, 0, 16, bins := 16))"
    con.execute(f"CREATE TABLE reports AS SELECT i % 40 AS g, {made} AS report FROM range(4000) t(i)")
    monkeypatch.setattr("ldpsql.bulk.many_groups._SLOW", 1)
    expected = {1e9: [(40, 40)], -1.0: [(16, 40), (32, 40), (40, 40)]}
    for seconds, progress in expected.items():
        monkeypatch.setattr("ldpsql.bulk.many_groups.SECONDS", seconds)
        seen: list[tuple[int, int | None]] = []
        options: dict[str, Any] = {"report": "report", "keys": ["g"], "mechanism": drew, "estimator": "shared"}
        ldpsql.estimate_groups(con, "reports", f"found{len(progress)}", progress=lambda *both: seen.append(both), **options)  # noqa: B023
        assert seen == [(16, None), (32, None), (40, None), *progress]  # first it learns what groups have in common
    assert rows(con, "FROM found1 ORDER BY ALL") == rows(con, "FROM found3 ORDER BY ALL")


def test_an_unfinished_run_can_be_replaced_and_a_stopped_one_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ldpsql.bulk.many_groups.ROWS_AT_ONCE", 40)

    def stop(done: int, _: int | None) -> None:
        if done > 20:
            raise KeyboardInterrupt

    with ldpsql.connect(str(tmp_path / "warehouse.duckdb")) as con:
        con.execute(DAYS.format(50))
        again: list[dict[str, Any]] = [{}, {"replace": True}, {"resume": True}]
        for options in again:
            with pytest.raises(KeyboardInterrupt):
                ldpsql.estimate_groups(con, "reports", "found", progress=stop, **options, **OPTIONS)
            assert tables(con) == [*UNFINISHED, "reports"]
        assert ldpsql.estimate_groups(con, "reports", "found", replace=True, **OPTIONS) == 50
        assert tables(con) == ["found", "reports"]
        assert rows(con, "SELECT count(DISTINCT day), count(*) FROM found") == [(50, 200)]


def test_a_run_over_no_reports_goes_on_after_it_was_stopped(tmp_path: Path) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with ldpsql.connect(str(tmp_path / "warehouse.duckdb")) as con, pytest.MonkeyPatch.context() as patch:
        con.execute(DAYS.format(1) + "; DELETE FROM reports")
        patch.setattr("ldpsql.bulk.many_groups.GroupRun.publish", stop)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                ldpsql.estimate_groups(con, "reports", "found", resume=True, **OPTIONS)
        patch.undo()
        assert ldpsql.estimate_groups(con, "reports", "found", resume=True, **OPTIONS) == 0
        assert tables(con) == ["found", "reports"]


@pytest.mark.usefixtures("in_steps")
def test_the_order_of_rows_does_not_depend_on_settings(reports: DuckDBPyConnection) -> None:
    reports.execute("SET preserve_insertion_order = false")
    assert ldpsql.estimate_groups(reports, "reports", "found", report="city", keys=["the day", "kind"], mechanism=CITY) == 1497


def test_a_deadline_is_for_all_groups(reports: DuckDBPyConnection) -> None:
    method = "ibu(stop='held_out', deadline=1e-9)"
    assert (
        ldpsql.estimate_groups(reports, "reports", "found", report="city", keys=["kind"], mechanism=CITY, estimator=method) == 3
    )
    assert rows(reports, "SELECT count(*), max(abs(estimate - 0.25)) < 1e-9 FROM found") == [(12, True)]  # where steps begin


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--resume"], "are for --into"),
        (["--replace"], "are for --into"),
        (["--into", "found", "--format", "json"], "--format"),
    ],
)
def test_the_command_ignores_no_option(options: list[str], words: str) -> None:
    done = CliRunner().invoke(app, ["estimate", "reports", "city", "--by", "day", "-d", "some.duckdb", *options])
    assert isinstance(done.exception, InvalidParameter)
    assert words in str(done.exception)


def test_the_command_writes_a_table(tmp_path: Path) -> None:
    with ldpsql.connect(str(tmp_path / "warehouse.duckdb")) as con:
        con.execute("CREATE TABLE reports AS SELECT i % 5 AS day, ['Lima', 'Oslo'][1 + i % 2] AS city FROM range(400) t(i)")
    command = ["estimate", "reports", "city", "--by", "day", "-m", CITY, "--into", "found"]
    refused = run(*command, cwd=tmp_path)
    assert (refused.returncode, "LDP103" in refused.stderr) == (2, True)
    missing = run(*command, "--by", "dy", "--database", "warehouse.duckdb", cwd=tmp_path)
    assert "LDP201" in missing.stderr
    assert "did you mean 'day'" in missing.stderr
    made = run(*command, "--database", "warehouse.duckdb", cwd=tmp_path)
    assert (made.returncode, made.stdout, "estimated 5 groups" in made.stderr) == (0, "", True)
    again = run(*command, "--database", "warehouse.duckdb", cwd=tmp_path)
    assert (again.returncode, "--replace" in again.stderr) == (1, True)
    with ldpsql.connect(str(tmp_path / "warehouse.duckdb")) as con:
        assert rows(con, "SELECT count(*), count(DISTINCT day) FROM found") == [(20, 5)]


def test_the_command_makes_the_database_for_reports_of_a_file(tmp_path: Path) -> None:
    file, database = str(tmp_path / "reports.parquet"), str(tmp_path / "new.duckdb")
    duckdb.sql(f"COPY (SELECT i % 5 AS day, ['Lima', 'Oslo'][1 + i % 2] AS city FROM range(400) t(i)) TO '{file}'")
    command = ["estimate", file, "city", "-m", CITY, "--into", "found", "--database", database]
    missing = CliRunner().invoke(app, [*command, "--by", "dy"])
    assert isinstance(missing.exception, UnknownName)
    assert not Path(database).exists()  # nothing is left of it
    absent = CliRunner().invoke(app, ["estimate", "reports", *command[2:], "--by", "day"])
    assert isinstance(absent.exception, SourceRefused)
    assert not Path(database).exists()
    assert CliRunner().invoke(app, [*command, "--by", "day"]).exit_code == 0
    with duckdb.connect(database) as con:
        assert con.execute("SELECT count(*), count(DISTINCT day) FROM found").fetchall() == [(20, 5)]
