"""PostgreSQL, ClickHouse and DataFusion count reports in one query, and the estimates are those of DuckDB."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import ldpsql
from ldpsql.errors import OtherMechanism
from ldpsql.functions import fingerprint, registry
from tests import exported
from tests.warehouses import CITY, answers, differences, flat_reports, repeated_differences, reports

ibis: Any = pytest.importorskip("ibis")
KINDS = {"string": "text", "date32[day]": "date", "double": "double precision", "int32": "integer", "int64": "bigint"}


@pytest.fixture
def postgres(server: str) -> Iterator[Any]:
    backend = ibis.postgres.connect(host=server, user="test", database="postgres")
    yield backend
    backend.disconnect()


def in_postgres(backend: Any, table: pa.Table) -> Any:
    columns = ", ".join(f'"{field.name}" {KINDS[str(field.type)]}' for field in table.schema)
    backend.raw_sql(f"DROP TABLE IF EXISTS counted; CREATE TABLE counted ({columns})").close()
    with backend.con.cursor() as cursor, cursor.copy("COPY counted FROM STDIN") as copy:
        for row in table.to_pylist():
            copy.write_row(tuple(row.values()))
    return backend.table("counted")


def in_clickhouse(table: pa.Table) -> Any:
    backend = ibis.clickhouse.from_connection(pytest.importorskip("clickhouse_connect").get_client(interface="chdb"))
    kinds = {"string": "String", "date32[day]": "Date", "double": "Float64", "int32": "Int32", "int64": "Int64"}
    columns = ", ".join(f'"{field.name}" Nullable({kinds[str(field.type)]})' for field in table.schema)
    backend.raw_sql(f"CREATE OR REPLACE TABLE counted ({columns}) ENGINE = Memory")
    backend.con.insert("counted", [list(row.values()) for row in table.to_pylist()])
    return backend.table("counted")


def in_datafusion(table: pa.Table) -> Any:
    pytest.importorskip("datafusion")
    backend = ibis.datafusion.connect()
    backend.con.register_record_batches("counted", [table.to_batches()])
    return backend.table("counted")


def check_all(table: Any) -> None:
    assert max(differences(table)) <= 1e-12
    assert max(differences(table, "FURTHER")) <= 1e-12
    assert list(repeated_differences(table)) == [0.0]


def test_postgresql_gives_the_answers_of_duckdb(postgres: Any) -> None:
    check_all(in_postgres(postgres, flat_reports()))


def test_clickhouse_gives_the_answers_of_duckdb() -> None:
    check_all(in_clickhouse(flat_reports()))


def test_datafusion_gives_the_answers_of_duckdb() -> None:
    check_all(in_datafusion(reports()))


def test_comments_of_postgresql_and_clickhouse_record_the_mechanism(postgres: Any) -> None:
    comment = fingerprint(registry().mechanism(CITY)).replace("'", "''")
    made = {
        "postgres": (in_postgres(postgres, flat_reports()), f"COMMENT ON COLUMN counted.city IS '{comment}'"),
        "clickhouse": (in_clickhouse(flat_reports()), f"ALTER TABLE counted COMMENT COLUMN city '{comment}'"),
    }
    for table, statement in made.values():
        table.get_backend().raw_sql(statement)
        assert ldpsql.estimate(table, column="city").to_arrow().equals(answers()[0])
        with pytest.raises(OtherMechanism):
            ldpsql.estimate(table.filter(table.day.notnull()), "krr(2, ['a', 'b'])", column="city")


def test_types_that_only_postgresql_has_are_read_or_refused(postgres: Any) -> None:
    in_postgres(postgres, flat_reports())
    postgres.raw_sql("""DROP TABLE IF EXISTS typed; DROP TYPE IF EXISTS towns;
        CREATE TYPE towns AS ENUM ('Lima', 'O''slo', 'Rome');
        CREATE TABLE typed AS SELECT city::towns AS town, city::char(8) AS padded, score::numeric(10, 0) AS score,
        age_seed::numeric AS age_seed, age_y FROM counted""").close()
    table = postgres.table("typed")
    assert ldpsql.estimate(table, CITY, column="town").to_arrow().equals(answers()[0])
    same = ldpsql.estimate(table, "square_wave(2, 0, 50, bins := 10)", column="score", question="diagnose").to_arrow()
    assert same["reports"] == answers()[9]["reports"]
    mean = ldpsql.estimate(table, f"olh(1, {list(range(50))})", column="age", question="mean").to_arrow()
    assert mean["n"].to_pylist() == [3000]
    with pytest.raises(ldpsql.LdpError):
        ldpsql.estimate(table, CITY, column="padded")


def _rows(engine: str, table: pa.Table, view: str) -> list[tuple[Any, ...]]:
    if engine == "clickhouse":
        backend = in_clickhouse(table).get_backend()
        for statement in ("CREATE OR REPLACE VIEW exported AS SELECT * FROM counted", "DROP VIEW IF EXISTS shares", view):
            backend.raw_sql(statement)
        return list(backend.raw_sql("SELECT * FROM shares").result_rows)
    context = pytest.importorskip("datafusion").SessionContext()
    context.register_record_batches("exported", [table.to_batches()])
    context.sql(view.rstrip().rstrip(";"))
    return [tuple(row.values()) for row in context.sql("SELECT * FROM shares").to_arrow_table().to_pylist()]


@pytest.mark.parametrize("engine", ["clickhouse", "datafusion"])
@pytest.mark.parametrize(("text", "weight"), exported.ASKED)
def test_a_view_returns_the_inversion_of_ldpsql(engine: str, text: str, weight: str | None) -> None:
    exported.check(text, weight, _rows(engine, exported.reports(text)[0], exported.view(text, engine, weight)))


@pytest.mark.parametrize("engine", ["clickhouse", "datafusion"])
@pytest.mark.parametrize(("text", "weight", "question"), exported.QUESTIONS)
def test_means_and_outcomes_are_those_of_ldpsql(engine: str, text: str, weight: str | None, question: str) -> None:
    rows = _rows(engine, exported.reports(text)[0], exported.view(text, engine, weight, question))
    exported.check_question(text, weight, question, rows)


@pytest.mark.parametrize(("text", "weight", "question"), exported.QUESTIONS)
def test_means_and_outcomes_of_postgresql_are_those_of_ldpsql(postgres: Any, text: str, weight: str, question: str) -> None:
    in_postgres(postgres, exported.reports(text)[0])
    postgres.raw_sql("ALTER TABLE counted RENAME TO exported; DROP VIEW IF EXISTS shares").close()
    postgres.raw_sql(exported.view(text, "postgres", weight, question)).close()
    with postgres.con.cursor() as cursor:
        rows = cursor.execute("SELECT * FROM shares").fetchall()
    postgres.raw_sql("DROP TABLE exported CASCADE").close()
    exported.check_question(text, weight, question, rows)


@pytest.mark.parametrize(("text", "weight"), [asked for asked in exported.ASKED if asked[1]])
def test_a_weighted_view_of_postgresql_returns_the_inversion_of_ldpsql(postgres: Any, text: str, weight: str) -> None:
    in_postgres(postgres, exported.reports(text)[0])
    postgres.raw_sql("ALTER TABLE counted RENAME TO exported; DROP VIEW IF EXISTS shares").close()
    postgres.raw_sql(exported.view(text, "postgres", weight)).close()
    with postgres.con.cursor() as cursor:
        rows = cursor.execute("SELECT * FROM shares").fetchall()
    postgres.raw_sql("DROP TABLE exported CASCADE").close()
    exported.check(text, weight, rows)
