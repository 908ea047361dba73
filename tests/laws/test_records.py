"""Records: reports that SQL draws say what drew them, so that no other mechanism estimates them, wherever they went."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from duckdb import DuckDBPyConnection, DuckDBPyRelation
from typer.testing import CliRunner

import ldpsql
from ldpsql.errors import ImpossibleReport, LdpError
from tests.commands import app, python

Road = Callable[[DuckDBPyConnection, Path, str | None], Any]
Diagnosed = Callable[[DuckDBPyConnection, Path, str], str]  # the record of reports that are named
RIGHT = "krr(1, ['Lima', 'Oslo', 'Rome', 'Kyiv'])"
WRONG = "krr(3, ['Lima', 'Oslo', 'Rome', 'Kyiv'])"


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a database with the SQL of the README on a plain connection, and what users make of the reports."""
    folder = tmp_path_factory.mktemp("records")
    with duckdb.connect(folder / "warehouse.duckdb") as con:
        ldpsql.attach(con)
        con.execute(
            f"""CREATE TABLE people AS
            SELECT i AS id, ['Lima', 'Oslo', 'Rome'][1 + i % 3] AS city, city AS home FROM range(900) t(i);
            CREATE MACRO city() AS ldp.{RIGHT};
            CREATE TABLE reports AS FROM ldp.perturb_rows(people, {{city: city(), home: city()}}, keep := ['id']);
            CREATE TABLE copied AS FROM reports;
            CREATE VIEW renamed AS SELECT city AS town FROM reports;
            CREATE TABLE joined AS SELECT city, home, n FROM reports JOIN (SELECT id, 1 AS n FROM people) USING (id);
            CREATE TABLE moved AS FROM reports;
            ALTER TABLE moved RENAME COLUMN city TO town;
            ALTER TABLE moved RENAME TO elsewhere;
            CREATE TABLE by_value AS SELECT id, ldp.perturb(city, city()) AS city FROM people;
            CREATE TABLE by_subquery AS FROM ldp.perturb_rows(people, {{city: (SELECT city())}}, keep := ['id']);
            COPY by_value TO '{folder}/by_value.parquet';
            COPY by_subquery TO '{folder}/by_subquery.parquet';
            COPY reports TO '{folder}/reports.parquet';
            COPY reports TO '{folder}/parts' (FORMAT parquet, PER_THREAD_OUTPUT);
            EXPORT DATABASE '{folder}/exported' (FORMAT parquet);"""
        )
        con.sql("FROM reports").pl().write_parquet(folder / "polars.parquet")
        with pa.OSFile(f"{folder}/reports.arrow", "wb") as file:
            table = con.sql("FROM reports").to_arrow_table()
            with pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
    with duckdb.connect(folder / "imported.duckdb") as con:
        ldpsql.attach(con)
        con.execute(f"IMPORT DATABASE '{folder}/exported'")
    return folder


@pytest.fixture(scope="module")
def con(warehouse: Path) -> Iterator[DuckDBPyConnection]:
    """Lend a connection that reads the database."""
    with duckdb.connect(warehouse / "warehouse.duckdb", read_only=True) as con:
        ldpsql.attach(con)
        yield con


def estimated(con: DuckDBPyConnection, source: str, m: str | None) -> list[float]:
    mechanism = "" if m is None else f", ldp.{m}"
    return [row[1] for row in con.execute(f"FROM ldp.estimate({source}{mechanism})").fetchall()]


def sql(source: str, column: str = "city") -> Road:
    return lambda con, folder, m: estimated(con, f"{source.format(folder)}, {column}", m)


def imported(_: DuckDBPyConnection, folder: Path, m: str | None) -> Any:
    with duckdb.connect(folder / "imported.duckdb", read_only=True) as other:
        ldpsql.attach(other)
        return estimated(other, "reports, city", m)


def frame(read: Callable[[Path], Any]) -> Road:
    return lambda _, folder, m: ldpsql.estimate(read(folder), m, column="city").estimate.tolist()


def series(_: DuckDBPyConnection, folder: Path, m: str | None) -> Any:
    return ldpsql.estimate(pl.read_parquet(folder / "reports.parquet")["city"], m).estimate.tolist()


def command(*source: str) -> Road:
    def road(_: DuckDBPyConnection, folder: Path, m: str | None) -> Any:
        arguments = ["estimate", *(part.format(folder) for part in source), "--format", "json"]
        done = CliRunner().invoke(app, [*arguments, *([] if m is None else ["-m", m])])
        if done.exception is not None:
            raise done.exception
        return [row["estimate"] for row in json.loads(done.stdout)]

    return road


def process(_: DuckDBPyConnection, folder: Path, m: str | None) -> Any:
    path = str(folder / "reports.parquet")
    done = python(f"import ldpsql; print(ldpsql.estimate({path!r}, {m!r}, column='city').estimate.tolist())")
    if done.returncode:
        raise LdpError(done.stderr)
    return json.loads(done.stdout)


ROADS: dict[str, Road] = {
    "table": sql("reports"),
    "copied table": sql("copied"),
    "renamed table": sql("elsewhere", "town"),
    "view that renames": sql("renamed", "town"),
    "join": sql("joined"),
    "Parquet": sql("'{}/reports.parquet'"),
    "folder of Parquet": sql("'{}/parts/*.parquet'"),
    "Parquet of Polars": sql("'{}/polars.parquet'"),
    "imported database": imported,
    "frame of Arrow": frame(lambda folder: pa.parquet.read_table(folder / "reports.parquet")),
    "frame of Polars": frame(lambda folder: pl.read_parquet(folder / "reports.parquet")),
    "lazy frame": frame(lambda folder: pl.scan_parquet(folder / "reports.parquet")),
    "frame of pandas": frame(lambda folder: pa.parquet.read_table(folder / "reports.parquet").to_pandas()),
    "Arrow file": frame(lambda folder: folder / "reports.arrow"),
    "relation": lambda con, _, m: ldpsql.estimate(
        con.sql("SELECT city FROM reports WHERE id >= 0"), m, column="city"
    ).estimate.tolist(),
    "series": series,
    "command on a file": command("{}/reports.parquet", "city"),
    "command on a table": command("reports", "city", "-d", "{}/warehouse.duckdb"),
    "another process": process,
}


@pytest.mark.parametrize("road", ROADS)
def test_another_epsilon_is_refused_on_every_road_and_none_need_be_named(
    con: DuckDBPyConnection, warehouse: Path, road: str
) -> None:
    estimate = ROADS[road]
    named = estimate(con, warehouse, RIGHT)
    assert len(named) == 4
    assert estimate(con, warehouse, None) == pytest.approx(named, abs=1e-12)
    with pytest.raises(Exception, match="LDP408"):
        estimate(con, warehouse, WRONG)


@pytest.mark.parametrize("source", ["reports", "(FROM copied SEMI JOIN joined USING (city))", "'{}/reports.parquet'"])
@pytest.mark.parametrize(
    "call",
    [
        "ldp.ibu(city, {})",
        "ldp.diagnose(city, {})",
        "ldp.top(city, {}, 2)",
        "ldp.independence({{a: city, b: home}}, ldp.row({{a: {0}, b: {0}}}))",
        "ldp.ibu(ldp.counts(city), {})",
        "ldp.ibu(ldp.counts(counts), {}) FROM (SELECT ldp.counts(city) AS counts",
        "ldp.compare(ldp.counts(city), ldp.counts(home), {}, of := 'Lima')",
        "ldp.ibu([city, home], {})",
        "ldp.weights(city, {})",
        "ldp.ibu({{level: 1, report: city}}, MAP {{1: {}}})",
        "ldp.ibu(ldp.counts({{level: 1, report: city}}), MAP {{1: {}}})",
    ],
)
def test_aggregates_refuse_another_epsilon(con: DuckDBPyConnection, warehouse: Path, source: str, call: str) -> None:
    query = f"SELECT {call} FROM {source.format(warehouse)}" + ")" * call.count(" FROM (")
    assert con.execute(query.format(f"ldp.{RIGHT}")).fetchall()
    with pytest.raises(duckdb.Error, match="LDP408"):
        con.execute(query.format(f"ldp.{WRONG}"))


def of_levels(con: DuckDBPyConnection, m: str) -> Any:
    column = con.sql("SELECT {level: 1, report: city} AS report FROM reports").to_arrow_table()["report"]
    return ldpsql.estimate(column, {1: m}).estimate.tolist()


def top(con: DuckDBPyConnection, m: str) -> Any:
    return con.execute(f"FROM ldp.top(reports, city, ldp.{m}, 4)").fetchall()


@pytest.mark.parametrize("estimate", [of_levels, top])
def test_what_always_names_a_mechanism_refuses_another_one(
    con: DuckDBPyConnection, estimate: Callable[[DuckDBPyConnection, str], Any]
) -> None:
    assert len(estimate(con, RIGHT)) == 4
    with pytest.raises(Exception, match="LDP408"):
        estimate(con, WRONG)


@pytest.mark.parametrize("source", ["reports", "joined", "'{}/reports.parquet'"])
def test_aggregates_take_the_recorded_mechanism(con: DuckDBPyConnection, warehouse: Path, source: str) -> None:
    pairs = [
        ("ldp.ibu(city)", "ldp.ibu(city, city())"),
        ("ldp.inv(city, keep := home IS NOT NULL)", "ldp.inv(city, city())"),
        ("ldp.diagnose(city)", "ldp.diagnose(city, city())"),
        ("ldp.ibu(ldp.counts(city))", "ldp.ibu(city, city())"),
        ("ldp.independence({a: city, b: home})", "ldp.independence({a: city, b: home}, ldp.row({a: city(), b: city()}))"),
        ("ldp.ibu([city, home])", "ldp.ibu([city, home], city())"),
        (
            "ldp.compare(ldp.counts(city), ldp.counts(home), of := 'Lima')",
            "ldp.compare(ldp.counts(city), ldp.counts(home), city(), of := 'Lima')",
        ),
    ]
    for recorded, named in pairs:
        row = con.execute(f"SELECT {recorded}, {named} FROM {source.format(warehouse)}").fetchall()[0]
        assert str(row[0]) == str(row[1]), recorded
    with pytest.raises(duckdb.Error, match="LDP409"):
        con.execute("SELECT ldp.ibu(city) FROM people")


def test_reports_that_only_this_statement_or_transaction_sees_need_no_mechanism(warehouse: Path) -> None:
    with duckdb.connect() as con:
        ldpsql.attach(con)
        con.execute(f"ATTACH '{warehouse}/warehouse.duckdb' AS w (READ_ONLY); USE w")
        expected = con.execute("FROM ldp.estimate(reports, city)").fetchall()
        con.execute("CREATE TEMP TABLE drawn AS FROM reports; USE memory; BEGIN; CREATE TABLE uncommitted AS FROM w.reports")
        for statement in (
            "FROM ldp.estimate(drawn, city)",
            "FROM ldp.estimate(uncommitted, city)",
            "WITH chosen AS (FROM w.reports) FROM ldp.estimate(chosen, city)",
        ):
            assert con.execute(statement).fetchall() == expected, statement
        grouped = con.execute("WITH chosen AS (FROM w.joined) FROM ldp.estimate(chosen, city, by := n)").fetchall()
        assert [(*row[1:],) for row in grouped] == expected


def diagnosed(source: str) -> Diagnosed:
    query = f"SELECT (ldp.diagnose(city, ldp.{RIGHT})).record FROM {source}"
    return lambda con, folder, drawn: con.execute(query.format(folder=folder, drawn=drawn)).fetchall()[0][0]


def estimated_from(read: Callable[[DuckDBPyRelation, Path], Any]) -> Diagnosed:
    def road(con: DuckDBPyConnection, folder: Path, drawn: str) -> str:
        return ldpsql.estimate(read(con.table(drawn), folder / f"{drawn}.parquet"), RIGHT, column="city").diagnosis.record

    return road


def noted(*source: str) -> Diagnosed:
    def road(_: DuckDBPyConnection, folder: Path, drawn: str) -> str:
        arguments = ["estimate", *(part.format(folder=folder, drawn=drawn) for part in source), "-m", RIGHT]
        return "unrecorded" if "unrecorded" in CliRunner().invoke(app, arguments).stderr else "recorded"

    return road


UNRECORDED: dict[str, Diagnosed] = {
    "table": diagnosed("{drawn}"),
    "copy that renames": diagnosed("(SELECT town AS city FROM (SELECT city AS town FROM {drawn}))"),
    "join": diagnosed("(SELECT drawn.city FROM {drawn} AS drawn JOIN people USING (id))"),
    "Parquet": diagnosed("'{folder}/{drawn}.parquet'"),
    "relation": estimated_from(lambda table, _: table),
    "frame of Arrow": estimated_from(lambda table, _: table.to_arrow_table()),
    "frame of Polars": estimated_from(lambda _, file: pl.read_parquet(file)),
    "path": estimated_from(lambda _, file: file),
    "command on a file": noted("{folder}/{drawn}.parquet", "city"),
    "command on a table": noted("{drawn}", "city", "-d", "{folder}/warehouse.duckdb"),
}


@pytest.mark.parametrize("drawn", ["by_value", "by_subquery"])
@pytest.mark.parametrize("road", UNRECORDED)
def test_reports_of_a_scalar_call_and_of_a_subquery_are_unrecorded_on_every_road(
    con: DuckDBPyConnection, warehouse: Path, road: str, drawn: str
) -> None:
    assert UNRECORDED[road](con, warehouse, drawn) == "unrecorded"


MIXING = (
    ("INSERT INTO reports SELECT city, home, id FROM people", "Conversion Error"),  # raw values
    ("INSERT INTO reports SELECT city, home, id FROM others", "at least one matching member"),
    ("UPDATE reports SET city = 'Lima'", "Conversion Error"),
    ("UPDATE reports SET city = (SELECT any_value(city) FROM others)", "at least one matching member"),
    ("SELECT count(*) FROM reports WHERE city = 'Lima'", "Conversion Error"),
    ("SELECT ldp.ibu(city, city()) FROM (SELECT city FROM reports UNION ALL SELECT city FROM others)", "LDP408"),
    ("SELECT ldp.ibu(city, city()) FROM (SELECT city FROM reports UNION ALL SELECT city FROM people)", "Conversion Error"),
    ("SELECT ldp.ibu(city::VARCHAR, city()) FROM reports", "LDP401"),
)


def test_reports_do_not_mix_with_anything_else(warehouse: Path) -> None:
    with duckdb.connect() as con:
        ldpsql.attach(con)
        con.execute(f"ATTACH '{warehouse}/warehouse.duckdb' AS w (READ_ONLY)")
        con.execute(
            f"CREATE TABLE people AS FROM w.people; CREATE TABLE reports AS FROM w.reports; CREATE MACRO city() AS ldp.{RIGHT}"
        )
        con.execute(
            f"CREATE TABLE others AS FROM ldp.perturb_rows(people, {{city: ldp.{WRONG}, home: city()}}, keep := ['id'])"
        )
        for statement, error in MIXING:
            with pytest.raises(duckdb.Error, match=error):
                con.execute(statement).fetchall()
        con.execute("INSERT INTO reports FROM ldp.perturb_rows(people, {city: city(), home: city()}, keep := ['id'])")
        assert con.execute("SELECT sum(n) / 4 FROM ldp.estimate(reports, city)").fetchall() == [(1800,)]


def test_lint_and_exports_know_reports_by_their_type(warehouse: Path, tmp_path: Path) -> None:
    with duckdb.connect() as con:
        ldpsql.attach(con)
        con.execute(f"ATTACH '{warehouse}/warehouse.duckdb' AS w (READ_ONLY)")
        con.execute(
            "CREATE TABLE reports AS FROM w.reports; CREATE VIEW counted AS SELECT city, count(*) FROM reports GROUP BY city"
        )
        assert con.execute("SELECT name FROM ldp.lint()").fetchall() == [("main.counted",)]
    exported = ["export-database", f"{warehouse}/warehouse.duckdb", str(tmp_path / "out")]
    done = CliRunner().invoke(app, exported)
    assert done.exit_code == 0, done.output


def test_what_nothing_records_is_unrecorded_on_every_surface(warehouse: Path, tmp_path: Path) -> None:
    """Where nothing can know what drew the reports, the wrong epsilon is not refused, but every answer says so."""
    plain_reports = tmp_path / "plain.csv"
    with duckdb.connect(warehouse / "warehouse.duckdb", read_only=True) as con:
        ldpsql.attach(con)
        con.execute(f"COPY (SELECT struct_extract_at(city, 1) AS city FROM reports) TO '{plain_reports}'")
        query = "SELECT d.status, d.record, d.remedy FROM (SELECT ldp.diagnose({}, ldp.{}) AS d FROM reports)"
        assert con.execute(query.format("city", RIGHT)).fetchall()[0][:2] == ("certified", "recorded")
        for m in (RIGHT, WRONG):
            status, record, remedy = con.execute(query.format("struct_extract_at(city, 1)", m)).fetchall()[0]
            assert (status, record) == ("certified", "unrecorded")
            assert "ldp.perturb_rows records it" in remedy
        kept, lost = (
            con.sql("SELECT city FROM reports"),
            con.sql("SELECT city::VARCHAR AS city FROM (SELECT struct_extract_at(city, 1) AS city FROM reports)"),
        )
        estimates = {True: ldpsql.estimate(kept, column="city"), False: ldpsql.estimate(lost.pl()["city"], RIGHT)}
        for recorded, one in estimates.items():
            assert one.diagnosis.record == ("recorded" if recorded else "unrecorded")
            assert ("unrecorded" in repr(one)) == ("unrecorded" in one._repr_html_()) == (not recorded)
    for source, recorded in ((warehouse / "reports.parquet", True), (plain_reports, False)):
        done = CliRunner().invoke(app, ["estimate", str(source), "city", "-m", RIGHT])
        assert done.exit_code == 0, done.output
        assert ("unrecorded" in done.stderr) == (not recorded)
        page = tmp_path / f"{source.stem}.html"
        assert CliRunner().invoke(app, ["report", str(source), "city", "-m", RIGHT, "--output", str(page)]).exit_code == 0
        assert (">unrecorded<" in page.read_text(encoding="utf-8")) == (not recorded)


@pytest.mark.parametrize("mechanism", ["krr(1, [1, 2])", "oue(1, [1, 2])", "olh(1, [1, 2])", "pckv_grr(1, ['a', 'b'])"])
def test_a_text_file_of_recorded_reports_is_refused_with_the_remedy(tmp_path: Path, mechanism: str) -> None:
    value = "[{'key': 'a', 'value': 0.5}]" if "pckv" in mechanism else "1"
    with duckdb.connect() as con:
        ldpsql.attach(con)
        con.execute(f"CREATE TABLE people AS SELECT {value} AS x FROM range(50)")
        con.execute(f"CREATE TABLE reports AS FROM ldp.perturb_rows(people, {{x: ldp.{mechanism}}})")
        con.execute(f"COPY reports TO '{tmp_path}/r.csv'")
        answer = "key_value" if "pckv" in mechanism else "estimate"
        with pytest.raises(duckdb.Error, match=r"LDP409.*Parquet files record it, ldp.perturb by itself and CSV files do not"):
            con.execute(f"SELECT ldp.{answer}(x) FROM '{tmp_path}/r.csv'")
        with pytest.raises(duckdb.Error, match=r"LDP401.*such as CSV made of recorded reports. Hint: write Parquet"):
            con.execute(f"SELECT ldp.{answer}(x, ldp.{mechanism}) FROM '{tmp_path}/r.csv'")
    with pytest.raises(ImpossibleReport, match="such as CSV made of recorded reports"):
        (ldpsql.key_value if "pckv" in mechanism else ldpsql.estimate)(pl.read_csv(tmp_path / "r.csv")["x"], mechanism)
