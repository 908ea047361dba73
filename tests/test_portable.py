"""An exported database can be imported by DuckDB without ldpsql and with it, and holds nothing raw."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import ldpsql
from tests.commands import python, run

KRR = "krr(8, ['Lima', 'Oslo'])"
IMPORT = "import sys, duckdb, ldpsql\ncon = {}.connect()\ncon.execute(\"IMPORT DATABASE 'shared'\")\n"
LDPSQL = "con.execute(open('shared/ldpsql.sql').read())\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a database of raw rows, reports, macros and views, and its export."""
    folder = tmp_path_factory.mktemp("travel")
    with ldpsql.connect(str(folder / "w.duckdb")) as con:
        con.execute("CREATE SCHEMA lake; CREATE TYPE secret AS ENUM ('canary7f3a', 'x'); CREATE TYPE side AS ENUM ('n', 's')")
        con.execute("CREATE TYPE city AS ENUM ('canary7f3a')")
        con.execute(
            "CREATE TABLE people AS SELECT 'Lima' AS city, 'canary7f3a'::secret AS name, 'n'::side AS region FROM range(300)"
        )
        for table in ("reports", "lake.reports"):
            ldpsql.perturb_table(con, "people", table, {"city": KRR}, keep=["region"])
        con.execute(f"CREATE MACRO city() AS ldp.{KRR}")
        con.execute("CREATE MACRO twice(n, times := 2) AS n * times")
        con.execute("CREATE VIEW a_over AS SELECT 'over'; CREATE OR REPLACE VIEW shares AS FROM ldp.estimate(reports, city)")
        con.execute("CREATE VIEW named AS FROM ldp.estimate(reports, city, city())")
        con.execute("CREATE OR REPLACE VIEW a_over AS SELECT value, estimate FROM named")
        con.execute("CREATE VIEW plain AS SELECT region, twice(count(*)) AS n FROM lake.reports GROUP BY region")
        con.execute("CREATE SEQUENCE ids; CREATE TABLE z(id INTEGER PRIMARY KEY DEFAULT nextval('ids'), d INTEGER AS (id * 2))")
        con.execute("CREATE TABLE a(id INTEGER REFERENCES z(id)); INSERT INTO z VALUES (1); INSERT INTO a VALUES (1)")
        con.execute("CREATE VIEW sided AS SELECT 'n'::side AS side")
        con.execute("CREATE VIEW raw AS SELECT name FROM people")
    done = run("export-database", "w.duckdb", "shared", "-t", "a", "-t", "z", cwd=folder)
    assert done.returncode == 0, done.stderr
    (folder / "said").write_text(done.stdout)
    return folder


def imported(folder: Path, module: str, *statements: str) -> str:
    """Return what queries of an import return, in another process, with DuckDB alone or with ldpsql."""
    script = IMPORT.format(module) + (LDPSQL if module == "ldpsql" else "")
    script += "for query in sys.argv[1:]: print(con.sql(query).fetchall())"
    return python(script, *statements, cwd=folder).stdout


@pytest.mark.parametrize("module", ["duckdb", "ldpsql"])
def test_an_import_in_another_process_has_the_reports_their_records_and_what_any_client_can_use(
    folder: Path, module: str
) -> None:
    records = "SELECT count(*) FROM duckdb_columns() WHERE column_name = 'city' AND comment LIKE 'ldpsql:%'"
    done = imported(
        folder,
        module,
        "SELECT count(*) FROM reports",
        records,
        "FROM plain JOIN sided ON region = side",
        "FROM a JOIN z USING (id)",
    )
    assert done.splitlines() == ["[(300,)]", "[(2,)]", "[('n', 600, 'n')]", "[(1, 2)]"]


def test_an_import_in_ldpsql_has_the_same_estimates(folder: Path) -> None:
    queries = ["FROM shares", "FROM named", "FROM a_over", "FROM ldp.estimate('shared/reports.parquet', city)"]
    there = imported(folder, "ldpsql", *queries).splitlines()
    with ldpsql.connect(str(folder / "w.duckdb"), read_only=True) as con:
        here = [str(con.sql(f"FROM {view}").fetchall()) for view in ("shares", "named", "a_over", "shares")]
    assert there == here


def test_no_raw_row_and_no_type_made_from_one_is_exported(folder: Path) -> None:
    assert sorted(path.name for path in (folder / "shared").iterdir()) == [
        "a.parquet", "lake_reports.parquet", "ldpsql.sql", "load.sql", "reports.parquet", "schema.sql", "z.parquet"
    ]  # fmt: skip
    assert not any(b"canary7f3a" in path.read_bytes() for path in (folder / "shared").iterdir())


def test_the_export_says_what_it_leaves_out_and_what_is_in_the_clear(folder: Path) -> None:
    said = (folder / "said").read_text()
    for kind, name, outcome in (
        ("table", "reports", "exported"),
        ("view", "plain", "exported"),
        ("view", "shares", "in ldpsql.sql"),
        ("view", "raw", "left out"),
        ("table", "people", "left out"),
    ):
        assert any(line.split()[:2] == [kind, name] and outcome in line for line in said.splitlines()), name
    assert "reports: city; in the clear: region" in said


def test_doctor_and_lint_name_the_objects_that_need_ldpsql(folder: Path) -> None:
    done = run("lint", "--database", "w.duckdb", "--portable", "--format", "csv", cwd=folder)
    assert done.returncode == 3
    needing = [line.split(",")[2] for line in done.stdout.splitlines() if "needs ldpsql" in line]
    assert sorted(needing) == ["macro city", "view a_over", "view named", "view shares"]
    finding = run("doctor", "w.duckdb", cwd=folder).stdout
    assert all(name in finding for name in needing)


def test_an_export_is_whole_or_refused(folder: Path) -> None:
    before = sorted(path.name for path in folder.iterdir())
    for arguments, message in (
        (("w.duckdb", "shared"), "must not exist"),
        (("w.duckdb", "other", "-t", "nothing"), "no table nothing"),
        (("missing.duckdb", "other"), "no database"),
    ):
        done = run("export-database", *arguments, cwd=folder)
        assert done.returncode != 0
        assert message in done.stderr
    with duckdb.connect(str(folder / "empty.duckdb")) as con:
        con.execute("CREATE TABLE people AS SELECT 'Lima' AS city")
    assert "no table records" in run("export-database", "empty.duckdb", "other", cwd=folder).stderr
    assert sorted(path.name for path in folder.iterdir()) == sorted([*before, "empty.duckdb"])
