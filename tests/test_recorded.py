"""Estimates without a mechanism: it is read from what is recorded next to the reports."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from duckdb import DuckDBPyConnection
from typer.testing import CliRunner

import ldpsql
from ldpsql import Mechanism
from ldpsql.engine.connections import Connections
from ldpsql.errors import ConnectionRefused, InvalidParameter, LdpError, MechanismUnrecorded
from ldpsql.functions import fingerprint, registry, text_literal
from ldpsql.sql.drawing import DrawingFunctions
from ldpsql.sql.lineage import stored_columns
from tests.commands import app

CITIES = ["Kyiv", "Lima", "Oslo", "Rome"]
DREW, OTHER = f"krr(1, {CITIES})", f"krr(2, {CITIES})"
PEOPLE = pa.table({"city": CITIES * 100, "region": ["north", "south"] * 200})
SPECS = [
    {"mechanism": "krr", "epsilon": "0.333333333333", "domain": ["é", "\n", "'\""], "nulls": "as:é"},
    {"mechanism": "krr", "epsilon": 1, "domain": [True, False]},
    {"mechanism": "krr", "epsilon": 1, "domain": pa.array([date(2026, 1, 1), date(2026, 1, 2)])},
    {"mechanism": "krr", "epsilon": 1, "domain": pa.array([0, 1], pa.timestamp("us"))},
    {"mechanism": "oue", "epsilon": "0.5", "domain": pa.array([Decimal("1.50"), Decimal("2.00")])},
    {"mechanism": "olh", "epsilon": 1, "domain": list(range(3000))},
    {"mechanism": "square_wave", "epsilon": 1, "low": 0, "high": 100},
    {"mechanism": "planar_geometric", "epsilon": 1, "columns": 5, "rows": 5, "side": 2},
    {"mechanism": "pem", "epsilon": 1},
    {"mechanism": "pckv_grr", "epsilon": 1, "keys": ["a", "b"]},
]


pytestmark = pytest.mark.usefixtures("unsaid")


@pytest.fixture
def reports(con: DuckDBPyConnection) -> DuckDBPyConnection:
    ldpsql.perturb_table(con, PEOPLE, "reports", {"city": DREW}, keep=["region"])
    con.execute(f"CREATE MACRO drew() AS ldp.krr(1, {CITIES}); CREATE MACRO other() AS ldp.krr(2, {CITIES})")
    return con


@pytest.mark.parametrize("function", ["estimate", "margin"])
def test_the_record_of_a_column_is_not_that_of_an_expression(reports: DuckDBPyConnection, function: str) -> None:
    for expression in ("upper(city)", "city || ''", "[city]", "{a: upper(city), b: region}", "city.a", "reports.city"):
        with pytest.raises(duckdb.Error, match=r"LDP103.*must be columns"):
            reports.execute(f"FROM ldp.{function}(reports, {expression})")
    assert reports.execute(f"FROM ldp.{function}(reports, (CITY))").fetchall()


def test_groups_are_estimated_with_the_recorded_mechanism(reports: DuckDBPyConnection) -> None:
    for keys in ("region", "(REGION)", "{'where': region}"):
        without, passed = (f"FROM ldp.estimate(reports, city, {m}by := {keys}) ORDER BY ALL" for m in ("", "drew(), "))
        answer = reports.sql(without).to_arrow_table()
        assert answer == reports.sql(passed).to_arrow_table()
        assert answer.num_rows == 8


def test_the_record_of_a_view_is_read_without_its_rows(reports: DuckDBPyConnection) -> None:
    reports.execute(
        "CREATE VIEW costly AS FROM reports WHERE (SELECT count(*) FILTER (WHERE error('run') IS NULL) FROM range(3)) = 0"
    )
    assert reports.execute("SELECT ldp.mechanism('costly', 'city').mechanism").fetchall() == [("krr",)]


def test_groups_by_a_column_of_reports_are_refused_wherever_it_is_recorded(con: DuckDBPyConnection, tmp_path: Path) -> None:
    people = pa.table({"city": CITIES * 100, "home": CITIES * 100, "region": ["north", "south"] * 200})
    columns = {"city": DREW, "home": DREW}
    ldpsql.perturb_table(con, people, "commented", columns, keep=["region"])
    ldpsql.perturb_copy(con, people, file := str(tmp_path / "reports.parquet"), columns, keep=["region"])
    con.execute(
        f"CREATE TABLE typed AS FROM ldp.perturb_rows(commented, {{home: ldp.krr(1, {CITIES})}}, keep := [city, region])"
    )
    for reports in ("commented", f"'{file}'", "typed"):
        for by in ("home", "{a: region, b: home}"):
            with pytest.raises(duckdb.Error, match=r"LDP103.*holds reports"):
                con.execute(f"FROM ldp.estimate({reports}, city, {f'ldp.{DREW}, ' * (reports == 'typed')}by := {by})")
    for data in (file, con.table("commented"), con.table("typed").to_arrow_table()):
        with pytest.raises(InvalidParameter, match="holds reports"):
            ldpsql.estimate(data, DREW, column="city", by="home")
        assert ldpsql.estimate(data, DREW, column="city", by="region").to_arrow().num_rows == 8


def test_plain_reports_are_grouped_once_for_an_estimate(con: DuckDBPyConnection) -> None:
    con.execute("CREATE TABLE plain AS SELECT i % 3 AS region, ldp.perturb('Lima', city()) AS city FROM range(9000) r(i)")
    plan = str(con.execute("EXPLAIN SELECT region, ldp.ibu(city, city()) FROM plain GROUP BY region").fetchall())
    assert "Group By" in plan
    assert "Join" not in plan


def test_nothing_is_recorded_for_null(reports: DuckDBPyConnection) -> None:
    for call in ("estimate(NULL, city)", "margin(NULL, city)", "estimate(NULL, city, by := region)"):
        with pytest.raises(duckdb.Error, match=r"LDP103.*that of a table or a file"):
            reports.execute(f"FROM ldp.{call}")


def test_the_record_names_no_groups_that_are_expressions(reports: DuckDBPyConnection) -> None:
    keys = ("upper(region)", "[region]", "1", "region.a", "{'a': region.a}")
    for columns in (*(f"city, by := {key}" for key in keys), "upper(city), by := region", "city, weight := [region]"):
        with pytest.raises(duckdb.Error, match=r"LDP103.*must be columns"):
            reports.execute(f"FROM ldp.estimate(reports, {columns})")


def test_a_column_may_have_a_dot_in_its_name(con: DuckDBPyConnection) -> None:
    people = PEOPLE.rename_columns(["home.city", "home.region"])
    ldpsql.perturb_table(con, people, "dotted", {"home.city": DREW}, keep=["home.region"])
    for keys in ('"Home.Region"', "{'at': \"home.region\"}"):
        assert con.execute(f'FROM ldp.estimate(dotted, "home.city", by := {keys})').fetchall()


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: str(spec["mechanism"]))
def test_every_mechanism_is_read_back_from_its_fingerprint(spec: dict[str, object]) -> None:
    mechanism = registry().mechanism(spec)
    assert recorded(ldpsql.connect(), fingerprint(mechanism)) == fingerprint(mechanism)


def recorded(con: DuckDBPyConnection, line: str) -> str:
    """The fingerprint of the mechanism that the comment of a column records."""
    con.execute(f"CREATE OR REPLACE TABLE reports AS SELECT 1 AS x; COMMENT ON COLUMN reports.x IS {text_literal(line)}")
    ((found,),) = con.execute("SELECT ldp.describe(ldp.mechanism('reports', 'x')).fingerprint").fetchall()
    return str(found)


def test_a_mechanism_with_a_long_domain_is_found_where_it_is_declared(con: DuckDBPyConnection) -> None:
    long: Mechanism = registry().mechanism({"mechanism": "krr", "epsilon": "1.25", "domain": pa.array(range(7, 30_007))})
    line = fingerprint(long)
    assert "'length': 30000" in line
    assert len(line) < 200
    with pytest.raises(duckdb.Error, match="none that is declared here"):
        recorded(con, line)
    con.execute("SELECT ldp.declare('numbers', ldp.krr(1.25, range(7, 30007)))")
    assert recorded(con, line) == line


@pytest.mark.parametrize("name", ["out.parquet", "out", "out.arrow"])
def test_files_are_estimated_without_a_mechanism_in_python_and_on_the_command_line(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    with duckdb.connect() as con:
        ldpsql.perturb_copy(con, PEOPLE, path, {"city": DREW}, keep=["region"])
    from_file = ldpsql.estimate(path, column="city")
    assert from_file.estimate.tolist() == ldpsql.estimate(str(path), DREW, column="city").estimate.tolist()
    assert list(from_file.values.texts) == CITIES
    for arguments in (["city"], ["--column", "city"]):
        ran = CliRunner().invoke(app, ["estimate", str(path), *arguments, "--format", "csv"])
        assert (ran.exit_code, ran.stderr) == (0, "")
        assert [line.split(",")[0] for line in ran.stdout.splitlines()] == ["value", *CITIES]
    for arguments in ([], ["city", "--column", "city"]):
        assert isinstance(CliRunner().invoke(app, ["estimate", str(path), *arguments]).exception, InvalidParameter)


def test_text_files_record_no_mechanism(tmp_path: Path) -> None:
    with duckdb.connect() as con:
        ldpsql.perturb_copy(con, PEOPLE, tmp_path / "out.csv", {"city": DREW})
    with pytest.raises(MechanismUnrecorded):
        ldpsql.estimate(tmp_path / "out.csv", column="city")
    assert ldpsql.estimate(tmp_path / "out.csv", DREW, column="city").estimate.sum() == pytest.approx(1)
    refused = CliRunner().invoke(app, ["estimate", str(tmp_path / "out.csv"), "city"]).exception
    assert isinstance(refused, MechanismUnrecorded)


def test_tables_counts_and_groups_are_estimated_without_a_mechanism(reports: DuckDBPyConnection) -> None:
    counts = ldpsql.partial_counts(reports.table("reports"), "city")
    expected = ldpsql.estimate(counts, DREW).estimate.tolist()
    assert ldpsql.estimate(counts).estimate.tolist() == expected
    assert ldpsql.estimate(reports.table("reports"), column="city").estimate.tolist() == expected
    assert ldpsql.estimate(reports.table("reports"), estimator="inv", column="city").estimate.sum() == pytest.approx(1)
    assert ldpsql.estimate_groups(reports, "reports", "out", report="city", keys=["region"]) == 2
    for column in (["Lima"], reports.table("reports").select("city").to_arrow_table()["city"]):
        with pytest.raises(MechanismUnrecorded, match="mechanism=m"):
            ldpsql.estimate(column)


def test_sql_reads_the_mechanism_from_the_comment_of_the_column(reports: DuckDBPyConnection) -> None:
    ldpsql.perturb_table(reports.execute("CREATE SCHEMA s"), PEOPLE, "s.copied", {"city": OTHER}, keep=["region"])
    reports.execute("CREATE VIEW north AS FROM reports WHERE region = 'north'")
    reports.execute("CREATE VIEW c AS FROM ldp.estimate(reports, city)")
    answers = {
        name: reports.execute(f"FROM ldp.estimate({name}, city, {mechanism}())").fetchall()
        for name, mechanism in (("reports", "drew"), ("s.copied", "other"), ("north", "drew"))
    }
    names = {
        "'reports'": "reports",
        '"REPORTS"': "reports",
        "memory.main.reports": "reports",
        **{name: name for name in answers},
    }
    for name, same in names.items():
        assert reports.execute(f"FROM ldp.estimate({name}, city)").fetchall() == answers[same], name
    assert reports.execute("FROM c").fetchall() == answers["reports"]
    typed = reports.execute("SELECT typeof(ldp.mechanism('reports', 'city').domain), typeof(drew().domain)").fetchall()
    assert typed == [("VARCHAR[]", "VARCHAR[]")]


def test_sql_reads_the_mechanism_from_files(reports: DuckDBPyConnection, tmp_path: Path) -> None:
    path = str(tmp_path / "it's.parquet").replace("'", "''")
    ldpsql.perturb_copy(reports, "reports", tmp_path / "it's.parquet", {"city": OTHER}, keep=["region"])
    without = reports.execute(f"FROM ldp.estimate('{path}', city)").fetchall()
    assert without == reports.execute(f"FROM ldp.estimate('{path}', city, other())").fetchall()
    aggregate = f"SELECT region, ldp.ibu(city, ldp.mechanism('{path}', 'city')) FROM '{path}' GROUP BY region"
    assert len(reports.execute(aggregate).fetchall()) == 2
    with pytest.raises(duckdb.Error, match="LDP408"):
        reports.execute(f"FROM ldp.estimate('{path}', city, drew())")


CALLS = (
    "estimate(reports, city, {})",
    "estimate(reports, city, {}, by := region)",
    "estimate(reports, city, {}, estimator := 'inv')",
    "top(reports, city, {}, 2)",
    "margin(reports, city, {})",
    "margin(reports, {{a: city, b: region}}, ldp.row({{a: {}, b: region()}}))",
    'estimate(reports, {{b: "region", a: "city"}}, ldp.row({{a: {}, b: region()}}))',
)


def test_sql_refuses_a_mechanism_that_differs_from_the_recorded_one(reports: DuckDBPyConnection) -> None:
    reports.execute("CREATE MACRO region() AS ldp.krr(1, ['north', 'south'])")
    for call in CALLS:
        assert reports.execute(f"FROM ldp.{call.format('drew()')}").fetchall()
        with pytest.raises(duckdb.Error, match=r"LDP408.*krr"):
            reports.execute(f"FROM ldp.{call.format('other()')}")
    reports.execute("COMMENT ON COLUMN reports.city IS NULL")
    for call in CALLS:
        assert reports.execute(f"FROM ldp.{call.format('other()')}").fetchall()  # nothing is recorded: nothing to compare
    reports.execute("CREATE TEMP TABLE reports AS SELECT 'Lima' AS city, 'north' AS region")
    for call in CALLS[:5:2]:
        assert reports.execute(f"FROM ldp.{call.format('other()')}").fetchall()


@pytest.mark.parametrize("function", ["estimate", "margin"])
def test_sql_reads_the_mechanisms_of_a_row_from_the_comments_of_its_columns(function: str, con: DuckDBPyConnection) -> None:
    people = PEOPLE.append_column("a b", PEOPLE["region"])
    ldpsql.perturb_table(con, people, "reports", {"city": DREW, "a b": "krr(1, ['north', 'south'])"}, keep=["region"])
    row = f"ldp.row({{c: ldp.krr(1, {CITIES}), r: ldp.krr(1, ['north', 'south'])}})"
    query = f'FROM ldp.{function}(reports, {{c: city, r: "a b"}}'
    assert con.execute(f"{query})").fetchall() == con.execute(f"{query}, {row})").fetchall()
    with pytest.raises(duckdb.Error, match="LDP409"):
        con.execute(f"FROM ldp.{function}(reports, {{c: city, r: region}})")
    with pytest.raises(duckdb.Error, match=r"LDP103.*name the column"):
        con.execute(f"FROM ldp.{function}(reports, city IS NULL)")


def test_what_another_connection_cannot_see_is_refused_and_not_taken_from_a_namesake(reports: DuckDBPyConnection) -> None:
    reports.execute("BEGIN; CREATE TABLE new AS FROM reports")
    with pytest.raises(duckdb.Error, match="LDP409"):
        reports.execute("FROM ldp.estimate(new, city)")
    reports.execute("ROLLBACK; CREATE TEMP TABLE reports AS SELECT 'Lima' AS city")
    with pytest.raises(duckdb.Error, match="LDP409"):
        reports.execute("FROM ldp.estimate(reports, city)")
    for query in ("FROM ldp.estimate(main.reports, city)", "SELECT ldp.mechanism('people', 'city')"):
        with pytest.raises(duckdb.Error, match="LDP409"):
            reports.execute(query)


def test_an_expression_in_an_estimate_is_drawn_once(tmp_path: Path) -> None:
    ldpsql.Ledger.open(tmp_path / "ledger", ldpsql.Policy(epsilon_budget=1))
    with ldpsql.connect(ledger=tmp_path / "ledger") as con:
        con.execute(f"CREATE MACRO city() AS ldp.krr(1, {CITIES})")
        con.execute("CREATE TABLE people AS SELECT 'Lima' AS city FROM range(500)")
        with ldpsql.release(con, "people", {"city": "city()"}, "reports"):  # it allows 500 draws
            query = "SELECT any_value(n) FROM ldp.estimate(people, ldp.perturb(city, city()), city())"
            assert con.execute(query).fetchall() == [(500,)]


def test_a_view_over_a_recorded_mechanism_is_not_taken_for_one_that_perturbs(reports: DuckDBPyConnection) -> None:
    reports.execute("CREATE VIEW shares AS FROM ldp.estimate(reports, city)")
    assert reports.execute("FROM ldp.lint()").fetchall() == []
    reports.execute("CREATE VIEW hidden AS FROM query('FROM ' || 'reports')")
    assert reports.execute("SELECT name FROM ldp.lint()").fetchall() == [("main.hidden",)]


def test_a_catalog_does_not_keep_its_connection_open() -> None:
    connections, con = Connections(), duckdb.connect()
    connections.remember(1, con)
    assert connections.cursor(1).execute("SELECT 7").fetchall() == [(7,)]
    con.close()
    with pytest.raises(ConnectionRefused):
        connections.cursor(1)
    del con
    with pytest.raises(LdpError):
        connections.cursor(1)


def test_statements_of_the_prompt_record_what_they_draw(tmp_path: Path) -> None:
    statements = f"""CREATE MACRO city() AS ldp.krr(1, {CITIES});
        CREATE TABLE people AS SELECT 'Lima' AS city FROM range(50);
        CREATE TABLE reports AS SELECT ldp.perturb(city, city()) AS city FROM people ORDER BY random();
        INSERT INTO reports (city) SELECT ldp.perturb(city, city()) FROM people ORDER BY random();
        CREATE TABLE shuffled AS FROM ldp.perturb_rows(people, {{city: ldp.krr(2, {CITIES})}});
        CREATE TABLE raw AS FROM people;
        INSERT INTO raw BY NAME SELECT ldp.perturb(city, city()) AS city FROM people ORDER BY random()"""
    ran = CliRunner().invoke(app, ["sql", str(tmp_path / "a.duckdb"), "-c", statements])
    assert ran.exit_code == 0, ran.output
    with ldpsql.connect(str(tmp_path / "a.duckdb")) as con:
        comments = dict(con.execute("SELECT table_name, comment FROM duckdb_columns() WHERE comment IS NOT NULL").fetchall())
        assert comments == {
            name: fingerprint(registry().mechanism(text)) for name, text in (("reports", DREW), ("shuffled", OTHER))
        }
        assert len(con.execute("FROM ldp.estimate(reports, city)").fetchall()) == 4


@pytest.mark.parametrize(
    ("statement", "columns"),
    [
        ("CREATE TABLE r AS SELECT ldp.perturb(x, ldp.m.a()) AS x FROM p", {"x": "ldp.m.a()"}),
        ("INSERT INTO r (y) WITH q AS (SELECT ldp.perturb(x, a()) AS x FROM p) FROM q", {"y": "a()"}),
        ("INSERT INTO r SELECT ldp.perturb(x, a()) AS y, 1 AS x FROM p", None),  # columns by position
        ("CREATE VIEW r AS SELECT ldp.perturb(x, a()) AS x FROM p", None),
        ("CREATE TABLE r AS SELECT ldp.perturb(x, MAP {'low': a()}, level) AS x FROM p", None),
        ("CREATE TABLE r AS SELECT lower(x) AS x FROM p", None),
        ("CREATE TABLE r AS SELECT x FROM (SELECT ldp.perturb(x, a()) AS x FROM p)", {"x": "a()"}),
        ("CREATE TABLE r AS SELECT lower(x) AS x FROM (SELECT ldp.perturb(x, a()) AS x FROM p)", None),
        ("CREATE TABLE r AS SELECT coalesce(q.x, p.x) AS x FROM p, (SELECT ldp.perturb(x, a()) AS x FROM p) AS q", None),
        ("CREATE TABLE r AS SELECT q.x AS y FROM (SELECT ldp.perturb(p, a()) AS q FROM p)", None),  # a field of a report
        ("CREATE TABLE r AS SELECT ldp.perturb(x, a()) AS x FROM p UNION ALL SELECT ldp.perturb(x, a()) FROM p", {"x": "a()"}),
        ("CREATE TABLE r AS SELECT ldp.perturb(x, a()) AS x FROM p UNION ALL SELECT ldp.perturb(x, b()) FROM p", None),
        ("CREATE TABLE r AS SELECT ldp.perturb(x, a()) AS x FROM p UNION ALL SELECT x FROM p", None),
        ("CREATE TABLE r AS SELECT ldp.perturb(x, a()) AS x FROM p UNION ALL FROM p", None),
        ("CREATE TABLE r AS SELECT x FROM p UNION ALL BY NAME SELECT ldp.perturb(x, a()) AS x FROM p", None),
        ("CREATE TABLE r AS SELECT x FROM p EXCEPT SELECT ldp.perturb(x, a()) FROM p", None),
        ("CREATE TABLE r AS SELECT ldp.perturb(x, a( FROM p", None),
    ],
)
def test_the_columns_that_a_statement_draws_are_those_that_name_a_mechanism(
    statement: str, columns: dict[str, str] | None
) -> None:
    assert stored_columns(statement, DrawingFunctions.of_registry()) == (None if columns is None else ('"r"', columns))
