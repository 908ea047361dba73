"""Whole files and tables: what comes out, and that it is all of it or nothing, drawn once and charged once."""

from __future__ import annotations

import datetime
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from duckdb import DuckDBPyConnection
from typer.testing import CliRunner

import ldpsql
from ldpsql import Charge, perturb_batches, perturb_copy, perturb_table
from ldpsql.bulk.staging import Staging
from ldpsql.errors import (
    DestinationExists,
    DestinationRefused,
    InvalidParameter,
    MissingValue,
    NotReleased,
    OutsideDomain,
    SourceRefused,
    UnfinishedRun,
    UnknownName,
    WrongType,
)
from ldpsql.ledger import Ledger, Policy
from tests import commands
from tests.commands import app, printed

COMMAND = str(Path(sys.executable).with_name("ldpsql"))
CITIES = ["Lima", "Oslo", "Rome", "Kyiv"]
CITY = f"krr(epsilon=1, domain={CITIES})"
AGE = "square_wave(epsilon=1, low=0, high=100, bins=20)"
ROWS = 60_000


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DuckDBPyConnection]:
    """Give people: three days, cities with shares 1/2, 1/4, 1/8, 1/8, an age and a secret that no test asks for."""
    monkeypatch.chdir(tmp_path)
    with duckdb.connect("people.duckdb") as con:
        con.execute(
            f"""CREATE TABLE people AS SELECT i % 3 AS day, {CITIES}[[1, 1, 1, 1, 2, 2, 3, 4][1 + i // 3 % 8]] AS city,
                       20.0 + i % 40 AS age, 'secret ' || i AS secret FROM range({ROWS}) t(i)"""
        )
        yield con


SWAPPED: dict[str, Callable[[DuckDBPyConnection], object]] = {
    "the destination must be a path or the name of a table, not duckdb.DuckDBPyRelation": lambda con: perturb_copy(
        con,
        "reports.parquet",
        con.table("people"),  # type: ignore[arg-type]
        {"city": CITY},
    ),
    "the destination must be a path or the name of a table, not dict": lambda con: perturb_table(
        con,
        "people",
        {"city": CITY},  # type: ignore[arg-type]
        "reports",
    ),
    "keep must be a list of names of columns": lambda con: perturb_table(con, "people", "reports", {"city": CITY}, keep="day"),
    "partition_by must be a list of names of columns": lambda con: perturb_copy(
        con, "people", "reports", {"city": CITY}, keep=["day"], partition_by="day"
    ),
    "the names of columns must be strings": lambda con: perturb_table(con, "people", "reports", {1: CITY}),  # type: ignore[dict-item]
}


@pytest.mark.parametrize("message", SWAPPED)
def test_arguments_in_the_place_of_others_are_refused_by_name(db: DuckDBPyConnection, message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        SWAPPED[message](db)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(tmp_path / "budget.ledger", Policy(epsilon_budget="2", privacy_unit="row"))


def spent(ledger: Ledger) -> int:
    return len(ledger.history())


def rows(con: DuckDBPyConnection, sql: str) -> list[tuple[Any, ...]]:
    with con.cursor() as cursor:
        return cursor.execute(sql).fetchall()


def is_estimate(con: DuckDBPyConnection, reports: str) -> None:
    fits(con.cursor().sql(f"SELECT city FROM {reports}").to_arrow_table()["city"])


def fits(reports: pa.ChunkedArray) -> None:
    """Check the shares of the cities; |z| < 5.5 for four of them fails honest reports with probability 1.5e-7."""
    estimate = ldpsql.estimate(reports, CITY, "inv")
    for share, error, truth in zip(estimate.estimate, estimate.std_error, [1 / 2, 1 / 4, 1 / 8, 1 / 8], strict=True):
        assert abs(share - truth) < 5.5 * error


# --- what comes out ---


STARTS, ENDS = (
    ["table", "parquet", "csv", "arrow", "frame", "polars", "pattern"],
    ["parquet", "csv", "csv.gz", "arrow", "folder"],
)


@pytest.mark.parametrize(("start", "end"), [(start, ENDS[i % len(ENDS)]) for i, start in enumerate(STARTS)])
def test_every_form_goes_in_and_comes_out(db: DuckDBPyConnection, start: str, end: str) -> None:
    source: Any = {"table": "people", "pattern": "in*.parquet"}.get(start, f"in.{start}")
    frame = db.cursor().sql("FROM people").to_arrow_table()
    if start in ("parquet", "csv"):
        db.execute(f"COPY people TO '{source}'")
    elif start == "pattern":
        db.execute("COPY (FROM people WHERE day < 1) TO 'in1.parquet'")
        db.execute("COPY (FROM people WHERE day >= 1) TO 'in2.parquet'")
    elif start == "arrow":
        with pa.ipc.new_file(source, frame.schema) as writer:
            writer.write_table(frame, 10_000)
    elif start in ("frame", "polars"):
        source = frame if start == "frame" else pl.from_arrow(frame)
    out = "out" if end == "folder" else f"out.{end}"
    run = perturb_copy(db, source, out, {"city": CITY, "age": AGE}, keep=["day"])
    assert (run.rows, run.resumed) == (ROWS, 0)
    if end == "arrow":
        result = pa.ipc.open_file(out).read_all()
    else:
        result = db.cursor().sql(f"FROM '{out}/*.parquet'" if end == "folder" else f"FROM '{out}'").to_arrow_table()
    assert result.schema.names == ["day", "city", "age"]
    assert result.schema.field("age").type == pa.int64()  # bins
    assert result["day"].to_pylist().count(2) == ROWS // 3
    fits(result["city"])
    for file in [Path(out)] if Path(out).is_file() else Path(out).iterdir():
        assert b"secret" not in file.read_bytes()
    assert not [name for name in os.listdir() if name.startswith(".")]


@pytest.mark.parametrize(
    ("out", "begins"),
    [
        ("o.csv", b"day,city\n"),
        ("o.tsv", b"day\tcity\n"),
        ("o.tsv.gz", b"\x1f\x8b"),
        ("o.json.gz", b"\x1f\x8b"),
        ("o.csv.zst", b"\x28\xb5\x2f\xfd"),
        ("o.json.zst", b"\x28\xb5\x2f\xfd"),
    ],
)
def test_text_is_what_its_name_says_and_is_read_back(db: DuckDBPyConnection, out: str, begins: bytes) -> None:
    perturb_copy(db, "people", out, {"city": CITY}, keep=["day"])
    assert Path(out).read_bytes().startswith(begins)
    perturb_copy(db, out, "again.parquet", {"city": CITY}, keep=["day"])
    assert rows(db, "SELECT count(*), sum(day) FROM 'again.parquet'") == [(ROWS, ROWS)]


def test_reports_stay_in_the_rows_they_belong_to(db: DuckDBPyConnection) -> None:
    db.execute("COPY (SELECT i AS id, i % 2 AS x FROM range(400_000) t(i)) TO 'in.parquet'")
    perturb_copy(db, "in.parquet", "out.parquet", {"x": "krr(epsilon=20, domain=[0, 1])"}, keep=["id"])
    # at epsilon 20 a report lies with probability 2e-9, so one lie in 400,000 has probability 8e-4, and three 1e-10
    assert rows(db, "SELECT count(*) FILTER (WHERE id % 2 <> x) < 3, count(DISTINCT id) FROM 'out.parquet'") == [
        (True, 400_000)
    ]
    perturb_copy(db, "in.parquet", "out.parquet", {"x": "krr(1, [0, 1])"}, keep=["id"], order="keep", replace=True)
    assert rows(db, "SELECT bool_and(id >= before) FROM (SELECT id, lag(id, 1, 0) OVER () AS before FROM 'out.parquet')") == [
        (True,)
    ]


def test_partitions_are_folders_that_duckdb_reads_back(db: DuckDBPyConnection) -> None:
    run = perturb_copy(db, "people", "out", {"city": CITY}, keep=["day"], partition_by=["day"])
    assert run.rows == ROWS
    stored = rows(
        db, "SELECT day, count(*) FROM read_parquet('out/**/*.parquet', hive_partitioning := true) GROUP BY ALL ORDER BY day"
    )
    assert stored == [(day, ROWS // 3) for day in range(3)]
    perturb_copy(db, "out", "again.parquet", {"city": CITY}, keep=["day"])  # and ldpsql does
    assert rows(db, "SELECT count(DISTINCT day) FROM 'again.parquet'") == [(3,)]


def test_a_table_is_there_at_once_and_keeps_the_type_of_the_reports(db: DuckDBPyConnection) -> None:
    db.execute("CREATE SCHEMA s")
    run = perturb_table(
        db, "people", "s.reports", {"city": CITY, "age": "oue(epsilon=1, domain=[20.0, 21.0], outside='as:20')"}
    )
    assert run.rows == ROWS
    assert rows(db, "SELECT column_name, column_type FROM (DESCRIBE s.reports)") == [("city", "VARCHAR"), ("age", "UBIGINT[]")]
    is_estimate(db, "s.reports")
    with pytest.raises(DestinationExists):
        perturb_table(db, "people", "s.reports", {"city": CITY})
    perturb_table(db, "people", "s.reports", {"city": CITY}, append=True)
    assert rows(db, "SELECT count(*), count(age) FROM s.reports") == [(2 * ROWS, ROWS)]
    perturb_table(db, "people", "s.reports", {"city": CITY}, replace=True)
    assert rows(db, "SELECT count(*) FROM s.reports") == [(ROWS,)]


def test_batches_are_perturbed_when_they_are_read(db: DuckDBPyConnection) -> None:
    table = pa.table({"x": [0, 1] * 50, "y": range(100), "z": ["a"] * 100})
    made = perturb_batches(table, {"x": "krr(epsilon=1, domain=[0, 1])"}, keep=["y"])
    assert made.schema.names == ["x", "y"]
    assert made.read_all()["y"].to_pylist() == list(range(100))
    with pytest.raises(WrongType):
        perturb_batches([1, 2], {"x": "krr(epsilon=1, domain=[0, 1])"})
    for columns, keep in (({}, ()), ({"x": CITY}, ("x",))):
        with pytest.raises(InvalidParameter):
            perturb_batches(table, columns, keep=keep)


# --- all or nothing ---


@pytest.mark.parametrize("out", ["out.parquet", "out.csv", "out.arrow", "out"])
@pytest.mark.parametrize(
    ("change", "refusal"),
    [("'Turin'", OutsideDomain), ("NULL", MissingValue)],
)
def test_one_bad_value_at_the_end_leaves_nothing(
    db: DuckDBPyConnection, out: str, change: str, refusal: type[Exception]
) -> None:
    db.execute(f"COPY (FROM people UNION ALL SELECT 0, {change}, 1, 'x') TO 'in.parquet'")
    before = sorted(os.listdir())
    with pytest.raises(refusal) as caught:
        perturb_copy(db, "in.parquet", out, {"city": CITY})
    assert "Turin" not in str(caught.value)
    assert caught.value.__context__ is None
    assert sorted(os.listdir()) == before
    with pytest.raises(refusal):
        perturb_table(db, "in.parquet", "reports", {"city": CITY})
    assert rows(db, "SELECT count(*) FROM duckdb_tables() WHERE table_name = 'reports'") == [(0,)]


@pytest.mark.parametrize(
    ("source", "into"), [("people", "PEOPLE"), ("people.main.people", "people"), ("recent", "main.people")]
)
def test_a_table_is_not_put_in_the_place_of_what_it_was_perturbed_from(db: DuckDBPyConnection, source: str, into: str) -> None:
    db.execute("CREATE VIEW recent AS FROM people WHERE day < 2; CREATE SCHEMA other; CREATE TABLE other.people AS FROM people")
    for option in ("replace", "append"):
        with pytest.raises(DestinationRefused):
            perturb_table(db, source, into, {"city": CITY}, **{option: True})  # type: ignore[arg-type]
    assert rows(db, "SELECT count(secret), count(*) FROM people") == [(ROWS, ROWS)]
    perturb_table(db, source, "other.people", {"city": CITY}, replace=True)


def test_a_broken_csv_is_refused_without_its_text(db: DuckDBPyConnection) -> None:
    lines = ["city,age"] + [f"Lima,{i % 100}" for i in range(50_000)] + ["Lima,Turin 77"]
    Path("in.csv").write_text("\n".join(lines))
    with pytest.raises(SourceRefused) as caught:
        perturb_copy(db, "in.csv", "out.parquet", {"age": AGE})
    assert "Turin" not in repr(caught.value) + str(caught.value)
    assert caught.value.__context__ is None
    assert not Path("out.parquet").exists()


def test_every_form_that_is_written_can_be_read_by_estimates(db: DuckDBPyConnection) -> None:
    for out in ("out.parquet", "out.pq", "out.csv.gz", "out.json", "out.arrow", "out.feather", "out"):
        perturb_copy(db, "people", out, {"city": CITY})
        assert len(json.loads(printed("estimate", out, "city", "-m", CITY, "--format", "json"))) == 4
        with pytest.raises(UnknownName):
            printed("estimate", out, "cty", "-m", CITY)


@pytest.mark.parametrize("at", [0, ROWS - 1])
def test_a_view_that_cannot_be_read_is_the_source_and_not_the_disk(db: DuckDBPyConnection, at: int) -> None:
    db.execute(
        f"CREATE VIEW broken AS SELECT city, CASE WHEN rowid = {at} THEN secret ELSE '1' END::INTEGER AS age FROM people"
    )
    with pytest.raises(SourceRefused):
        perturb_copy(db, "broken", "out.parquet", {"city": CITY}, keep=["age"])
    with pytest.raises(SourceRefused):
        perturb_table(db, "broken", "reports", {"city": CITY}, keep=["age"])


def test_a_variable_of_python_is_not_taken_for_the_file(db: DuckDBPyConnection) -> None:
    parquet = pa.table({"city": ["Oslo"]})
    db.execute("COPY people TO 'in.parquet'")
    for source in ("in.parquet", "*.parquet"):
        assert perturb_copy(db, source, "out.csv", {"city": CITY}, replace=True).rows == ROWS
    del parquet


def test_the_names_in_a_text_file_are_not_shown(db: DuckDBPyConnection) -> None:
    Path("in.csv").write_text("Canary 7,Canary 8\nTurin,Bari\n")
    with pytest.raises(UnknownName) as caught:
        perturb_copy(db, "in.csv", "out.parquet", {"Canary 9": CITY})
    assert "Canary 7" not in str(caught.value)


def test_what_cannot_be_done_is_refused_before_anything_is_drawn(db: DuckDBPyConnection) -> None:
    Path("taken.parquet").write_text("mine")
    for source, out, columns, options, refusal in (
        ("people", "taken.parquet", {"city": CITY}, {}, DestinationExists),
        ("people", "nowhere/out.parquet", {"city": CITY}, {}, DestinationRefused),
        ("people", "out.xlsx", {"city": CITY}, {}, DestinationRefused),
        ("people", "-", {"city": CITY}, {}, DestinationRefused),
        ("people", "out.parquet", {"city": CITY}, {"partition_by": ["city"]}, DestinationRefused),
        ("people", "out.arrow.gz", {"city": CITY}, {}, DestinationRefused),
        ("people", "out", {"city": CITY}, {"partition_by": ["day"]}, InvalidParameter),
        ("people", "out", {"city": CITY}, {"partition_by": ["city"]}, InvalidParameter),
        ("people", "out.parquet", {"city": CITY}, {"keep": ["city"]}, InvalidParameter),
        ("people", "out.parquet", {"town": CITY}, {}, UnknownName),
        ("nobody", "out.parquet", {"city": CITY}, {}, SourceRefused),
        ("nobody.parquet", "out.parquet", {"city": CITY}, {}, SourceRefused),
        ("taken.parquet", "out.parquet", {"city": CITY}, {}, SourceRefused),
        ("people", "out.parquet", {"secret": AGE}, {}, WrongType),
        ("people", "out.csv", {"city": f"oue(1, {CITIES})"}, {}, DestinationRefused),
    ):
        with pytest.raises(refusal):
            perturb_copy(db, source, out, columns, **options)  # type: ignore[arg-type]
    assert Path("taken.parquet").read_text() == "mine"
    assert sorted(os.listdir()) == ["people.duckdb", "people.duckdb.wal", "taken.parquet"]


def test_replacing_needs_to_be_said_and_is_complete(db: DuckDBPyConnection) -> None:
    for out in ("out.parquet", "out"):
        perturb_copy(db, "people", out, {"city": CITY})
        with pytest.raises(DestinationExists):
            perturb_copy(db, "people", out, {"city": CITY})
        perturb_copy(db, "people", out, {"city": CITY}, keep=["day"], replace=True)
        source = f"'{out}/*.parquet'" if out == "out" else f"'{out}'"
        assert rows(db, f"SELECT count(*), max(day) FROM {source}") == [(ROWS, 2)]
    Path("plain").write_text("a file in the way of a folder")
    perturb_copy(db, "people", "plain", {"city": CITY}, replace=True)
    assert rows(db, "SELECT count(*) FROM 'plain/*.parquet'") == [(ROWS,)]


def test_names_mean_what_they_mean_on_the_connection(db: DuckDBPyConnection) -> None:
    db.execute("""ATTACH ':memory:' AS lake; CREATE SCHEMA lake."raw.data"; USE lake."raw.data" """)
    db.execute("CREATE TABLE people AS SELECT 'Oslo' AS city FROM range(7)")
    assert perturb_table(db, "people", "reports", {"city": CITY}).rows == 7
    assert perturb_copy(db, "people", "reports.parquet", {"city": CITY}).rows == 7
    where = "SELECT database_name, schema_name FROM duckdb_tables() WHERE table_name = 'reports'"
    assert rows(db, where) == [("lake", "raw.data")]


def test_nothing_to_perturb_is_an_empty_result(db: DuckDBPyConnection) -> None:
    perturb_copy(db, db.sql("FROM people LIMIT 0").to_arrow_table(), "none.parquet", {"city": CITY, "age": AGE})
    perturb_copy(db, "none.parquet", "none", {"city": CITY})
    assert rows(db, "SELECT column_name, column_type FROM (DESCRIBE FROM 'none.parquet')") == [
        ("city", "VARCHAR"),
        ("age", "BIGINT"),
    ]
    assert rows(db, "SELECT count(*) FROM 'none/*.parquet'") == [(0,)]


@pytest.mark.parametrize(
    ("columns", "keep"), [({"City": CITY, "city": CITY}, []), ({"City": CITY}, ["city"]), ({"n": CITY}, ["City", "city"])]
)
def test_columns_whose_names_differ_only_in_case_are_refused(
    db: DuckDBPyConnection, columns: dict[str, str], keep: list[str]
) -> None:
    source = pa.table(dict.fromkeys(("City", "city", "n"), CITIES))
    for draw in (
        lambda: perturb_table(db, source, "t", columns, keep=keep),
        lambda: perturb_copy(db, source, "t.parquet", columns, keep=keep),
        lambda: perturb_batches(source, columns, keep=keep),
    ):
        with pytest.raises(InvalidParameter, match="two columns have names that differ only in case"):
            draw()


def test_names_and_types_of_any_kind_pass_through(db: DuckDBPyConnection) -> None:
    db.execute(
        "CREATE TABLE odd AS SELECT 'a'::ENUM('a', 'b') AS \"it's\", 1 AS day, {'k': [1, 2]} AS s, DATE '2020-01-01' AS d"
    )
    perturb_copy(db, "odd", "o'ut", {"it's": "krr(1, ['a', 'b'])"}, keep=["day", "s", "d"], partition_by=["day"])
    stored = rows(db, "SELECT day, s, d FROM read_parquet('o''ut/*/*.parquet', hive_partitioning := true)")
    assert stored == [(1, {"k": [1, 2]}, datetime.date(2020, 1, 1))]


KEPT = """
    (md5_number('a') | (1::UHUGEINT << 127)) AS pseudonym, '10101'::BIT AS flags, TIMETZ '12:34:56+02' AS at, uuid() AS id,
    '{"a": 1}'::JSON AS told, 'POINT (1 2)'::GEOMETRY AS place, 7::VARIANT AS thing, INTERVAL 1 MONTH AS span, true AS sure,
    [uuid()] AS ids, TIMESTAMPTZ '2024-01-01 00:00:00+00' AS seen, '12:34:56.123456789'::TIME_NS AS exact,
    1.25::DECIMAL(30, 4) AS fee
"""


def test_kept_columns_have_the_types_and_values_that_duckdb_itself_would_give_them(db: DuckDBPyConnection) -> None:
    db.execute(f"CREATE TABLE odd AS SELECT 'a' AS x, {KEPT}")
    names = [name for (name,) in rows(db, "SELECT column_name FROM (DESCRIBE odd)")]
    mechanism, kept = {"x": "krr(1, ['a', 'b'])"}, names[1:]
    perturb_table(db, "odd", "reports", mechanism, keep=kept)
    perturb_copy(db, "odd", "reports.parquet", mechanism, keep=kept)
    db.execute("COPY odd TO 'odd.parquet'")
    for name in kept:
        query = f'SELECT typeof("{name}"), "{name}"::VARCHAR FROM'
        assert rows(db, f"{query} reports") == rows(db, f"{query} odd")
        assert rows(db, f"{query} 'reports.parquet'") == rows(db, f"{query} 'odd.parquet'")


@pytest.mark.parametrize(
    ("kind", "domain"),
    [
        ("UUID", [f"00000000-0000-4000-8000-00000000000{i}" for i in (1, 2)]),
        ("JSON", ["1", "2"]),
        ("UHUGEINT", [1, 2]),
        ("HUGEINT", [-1, 2]),
        ("BOOLEAN", [True, False]),
    ],
)
def test_columns_of_types_that_no_domain_has_are_perturbed_by_the_values_they_show(
    db: DuckDBPyConnection, kind: str, domain: list[Any]
) -> None:
    db.execute(f"CREATE TABLE odd AS SELECT '{domain[0]}'::{kind} AS x FROM range(100)")
    perturb_table(db, "odd", "reports", {"x": f"krr(1, {domain})"})
    assert {report for (report,) in rows(db, "FROM reports")} <= set(domain)


# --- resuming ---


def interrupt_after(calls: int) -> Any:
    left = [calls]

    def progress(done: int, total: int | None) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt

    return progress


@pytest.fixture
def three_files(db: DuckDBPyConnection) -> str:
    for day in range(3):
        db.execute(f"COPY (FROM people WHERE day = {day}) TO 'in{day}.parquet'")
    return "in*.parquet"


def test_a_resumed_run_draws_only_what_is_missing_and_is_charged_once(
    db: DuckDBPyConnection, three_files: str, ledger: Ledger, tmp_path: Path
) -> None:
    charge = Charge(ledger, "people")
    with pytest.raises(KeyboardInterrupt):
        perturb_copy(db, three_files, "out", {"city": CITY}, charge=charge, progress=interrupt_after(3))
    assert not Path("out").exists()
    assert rows(db, "SELECT count(*) FROM glob('**/*.parquet') WHERE file NOT LIKE 'in%'") == [(0,)]
    drawn = {p: p.read_bytes() for p in (tmp_path / ".out.ldpsql").rglob("part-*") if p.is_file()}
    assert len(drawn) == 2
    held: dict[Path, bytes] = {}
    with pytest.raises(UnfinishedRun, match="not finished"):
        perturb_copy(db, three_files, "out", {"city": CITY}, charge=charge)
    with pytest.raises(UnfinishedRun, match="mechanisms"):
        perturb_copy(db, three_files, "out", {"city": CITY.replace("1", "2")}, charge=charge, resume=True)
    with pytest.raises(UnfinishedRun, match="ledger"):
        perturb_copy(db, three_files, "out", {"city": CITY}, resume=True)
    look = lambda *_: held.update({p: p.read_bytes() for p in drawn})  # noqa: E731
    run = perturb_copy(db, three_files, "out", {"city": CITY}, charge=charge, resume=True, progress=look)
    assert (run.parts, run.resumed, run.rows) == (1, 2, ROWS // 3)
    assert held == drawn
    is_estimate(db, "'out/*.parquet'")
    assert [row["state"] for row in ledger.history()] == ["published"]
    assert not (tmp_path / ".out.ldpsql").exists()


def test_a_large_file_is_resumed_by_its_row_groups(db: DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ldpsql.bulk.sources.PART_ROWS", 20_000)
    db.execute("COPY (SELECT *, [day] AS days FROM people) TO 'in.parquet' (ROW_GROUP_SIZE 10_240)")
    for keep in ("day", "days"):  # a list is read by DuckDB, not by Arrow
        with pytest.raises(KeyboardInterrupt):
            perturb_copy(db, "in.parquet", "out", {"city": CITY}, keep=[keep], progress=interrupt_after(3))
        run = perturb_copy(db, "in.parquet", "out", {"city": CITY}, keep=[keep], resume=True, replace=True)
        assert run.resumed > 0
        assert run.parts > 0
        total = "sum(day)" if keep == "day" else "sum(days[1])"
        assert rows(db, f"SELECT count(*), {total} FROM 'out/*.parquet'") == [(ROWS, ROWS)]
        Path("out").rename(f"out_{keep}")


def test_a_changed_input_is_not_resumed(db: DuckDBPyConnection, three_files: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        perturb_copy(db, three_files, "out", {"city": CITY}, progress=interrupt_after(3))
    db.execute("COPY (FROM people WHERE day = 0 LIMIT 7) TO 'in0.parquet'")
    with pytest.raises(UnfinishedRun):
        perturb_copy(db, three_files, "out", {"city": CITY}, resume=True)
    run = perturb_copy(db, three_files, "out", {"city": CITY}, replace=True)
    assert (run.resumed, run.rows) == (0, 7 + 2 * ROWS // 3)


def test_two_runs_to_one_destination_do_not_meet(db: DuckDBPyConnection) -> None:
    seen: list[tuple[int, int | None]] = []

    def progress(done: int, total: int | None) -> None:
        if not seen:
            with pytest.raises(UnfinishedRun, match="another run"):
                perturb_copy(db, "people", "out.parquet", {"city": CITY})
            seen.append((done, total))

    perturb_copy(db, "people", "out.parquet", {"city": CITY}, progress=progress)
    assert seen == [(ROWS, ROWS)]


# --- the ledger ---


def test_a_run_is_charged_before_it_draws_and_published_after(db: DuckDBPyConnection, ledger: Ledger) -> None:
    charge, states = Charge(ledger, "people"), []
    progress = lambda done, total: states.append(ledger.history()[-1]["state"])  # noqa: E731
    run = perturb_copy(db, "people", "out.parquet", {"city": CITY}, charge=charge, progress=progress)
    assert set(states) == {"charged"}
    assert ledger.release_of(run.release).state == "published"
    Path("out.parquet").unlink()
    with pytest.raises(DestinationExists, match="published there before"):  # drawing again is not free
        perturb_copy(db, "people", "out.parquet", {"city": CITY}, charge=charge)
    perturb_copy(db, "people", "out.parquet", {"city": CITY}, charge=charge, replace=True)
    with pytest.raises(ldpsql.LdpError, match="LDP31"):  # 2 of 2 are spent
        perturb_copy(db, "people", "other.parquet", {"city": CITY}, charge=charge)
    assert not Path("other.parquet").exists()
    assert spent(ledger) == 2


def test_tables_are_charged_by_part_and_a_table_that_is_there_is_never_drawn_free_of_charge(
    db: DuckDBPyConnection, ledger: Ledger
) -> None:
    for day in range(3):
        db.execute(f"CREATE VIEW day{day} AS FROM people WHERE day = {day}")
        perturb_table(db, f"day{day}", "reports", {"city": CITY}, charge=Charge(ledger, "people", f"{day}"), append=True)
    assert spent(ledger) == 3
    assert rows(db, "SELECT count(*) FROM reports") == [(ROWS,)]
    with pytest.raises(DestinationExists, match="published there before"):
        perturb_table(db, "day0", "reports", {"city": CITY}, charge=Charge(ledger, "people", "0"), append=True, resume=True)
    assert rows(db, "SELECT count(*) FROM reports") == [(ROWS,)]


def test_users_are_charged_where_the_ledger_charges_by_user(db: DuckDBPyConnection, tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "users.ledger", Policy(epsilon_budget="3", privacy_unit="user"))
    db.execute("CREATE VIEW visits AS SELECT city, i % 30_000 AS who FROM (SELECT city, row_number() OVER () AS i FROM people)")
    run = perturb_copy(db, "visits", "out.parquet", {"city": CITY}, charge=Charge(ledger, "people", user="who"))
    assert run.rows == ROWS
    with pytest.raises(ldpsql.LdpError, match="LDP31"):  # two reports each at epsilon 1 are spent, two more are too many
        perturb_copy(db, "visits", "more.parquet", {"city": CITY}, charge=Charge(ledger, "people", user="who"))
    stream = db.cursor().sql("FROM visits").to_arrow_reader(1000)
    with pytest.raises(SourceRefused, match="twice"):
        perturb_copy(db, stream, "x.parquet", {"city": CITY}, charge=Charge(ledger, "people", user="who"))


def test_a_table_that_cannot_be_written_is_not_charged_for(db: DuckDBPyConnection, ledger: Ledger) -> None:
    db.execute("CREATE TABLE narrow (city VARCHAR); ATTACH 'other.duckdb' AS other; DETACH other")
    db.execute("ATTACH 'other.duckdb' AS other (READ_ONLY)")
    for into, append in (("nowhere.reports", False), ("other.main.reports", False), ("narrow", True)):
        with pytest.raises(DestinationRefused):
            perturb_table(db, "people", into, {"city": CITY}, keep=["day"], append=append, charge=Charge(ledger, "people"))
    assert spent(ledger) == 0


def test_a_connection_with_a_ledger_draws_nothing_that_is_not_charged(ledger: Ledger, db: DuckDBPyConnection) -> None:
    ldpsql.attach(db, ledger=ledger, name="other_name")
    with pytest.raises(NotReleased):
        perturb_copy(db, "people", "out.parquet", {"city": CITY})
    with pytest.raises(NotReleased):
        perturb_table(db, "people", "reports", {"city": CITY})
    perturb_copy(db, "people", "out.parquet", {"city": CITY}, charge=Charge(ledger, "people"))


# --- the command ---


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return commands.run("perturb", *arguments)


def test_the_command_perturbs_files_and_tables(db: DuckDBPyConnection, ledger: Ledger) -> None:
    db.execute("COPY people TO 'in.parquet'")
    db.close()
    done = command(
        "in.parquet", "out", "-c", "city", "-m", CITY, "-c", "age", "-m", AGE, "--keep", "day", "--partition-by", "day"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", f"perturbed {ROWS:,} rows; no ledger was charged\n")
    charged = ("--ledger", str(ledger.path), "--dataset", "people")
    done = command("people", "reports", "-c", "city", "-m", CITY, "--table", "-d", "people.duckdb", *charged)
    assert (done.returncode, done.stderr) == (0, f"perturbed {ROWS:,} rows; charged to {ledger.path}\n")
    assert spent(ledger) == 1
    with duckdb.connect("people.duckdb") as con:
        is_estimate(con, "reports")
    done = command("in.parquet", "x.csv", "-c", "city", "-m", "krr(epsilon=1, domain=['Lima', 'Oslo'])")
    assert (done.returncode, done.stdout, Path("x.csv").exists()) == (3, "", False)


def test_options_of_the_command_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    call = ("perturb", "in.parquet", "out.parquet", "-c", "a", "-m", CITY)
    for options in ("-c b", "-c a -m krr(1,[1,2])", "--append", "--table --partition-by a", "--dataset people"):
        with pytest.raises(InvalidParameter):
            printed(*call, *options.split())
    with pytest.raises(SourceRefused):
        printed(*call, "-d", str(tmp_path / "nothing.duckdb"))


@pytest.mark.slow
def test_control_c_ends_the_command_with_130_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with duckdb.connect("many.duckdb") as con:
        con.execute("CREATE VIEW many AS SELECT i % 100 AS x FROM range(1_000_000_000) t(i)")
    mechanism = f"krr(1, {list(range(100))})"
    arguments = [COMMAND, "perturb", "many", "out.parquet", "-d", "many.duckdb", "-c", "x", "-m", mechanism]
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True)
    staged = (tmp_path / ".out.parquet.ldpsql") / "drawn-00000.tmp"
    while not staged.exists() and process.poll() is None:
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (130, "interrupted: nothing was published\n")
    assert not [name for name in os.listdir() if "out" in name]


@pytest.mark.parametrize("there", [False, True])
def test_control_c_after_the_end_does_not_say_that_nothing_was_published(
    db: DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    db.execute("COPY people TO 'in.parquet'")
    if there:
        Path("out.parquet").write_bytes(b"older")

    def removed(staging: Staging) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Staging, "remove", removed)
    done = CliRunner().invoke(app, ["perturb", "in.parquet", "out.parquet", "-c", "city", "-m", CITY, "--replace"])
    assert done.exit_code == 130
    assert done.stderr.startswith("interrupted: the reports were published")
    assert db.execute("SELECT count(*) FROM 'out.parquet'").fetchall() == [(ROWS,)]


@pytest.mark.parametrize(("how", "committed"), [("", False), ("--replace", True), ("--append", False), ("--append", True)])
def test_control_c_says_of_a_table_whether_its_reports_are_there(
    db: DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch, how: str, committed: bool
) -> None:
    db.execute("COPY people TO 'in.parquet'")
    with duckdb.connect("tables.duckdb") as con:
        con.execute("CREATE TABLE Reports (city VARCHAR)" if how else "SELECT 1")

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"ldpsql.bulk.run.{'Run' if committed else 'Drawing'}", interrupted)
    call = ["perturb", "in.parquet", "reports", "-c", "city", "-m", CITY, "--table", "-d", "tables.duckdb", *how.split()]
    done = CliRunner().invoke(app, call)
    outcome = "the reports were published" if committed else "nothing was published"
    assert (done.exit_code, done.stderr) == (130, f"interrupted: {outcome}\n")


@pytest.mark.parametrize("text", ["city,n\nLima,1\nOslo,2,3\nRome\n", "n;city\n1;Lima\n2\n3;4;5\n"])
def test_a_csv_file_that_is_ragged_is_refused_as_such(db: DuckDBPyConnection, text: str) -> None:
    Path("in.csv").write_text(text)
    with pytest.raises((SourceRefused, UnknownName), match=r"every line (must )?have as many fields") as caught:
        ldpsql.perturb_copy(db, "in.csv", "out.parquet", {"city": CITY})
    assert "Lima" not in str(caught.value)


def test_a_refused_source_is_named_by_its_file_and_no_folder(db: DuckDBPyConnection) -> None:
    for city in ("Lima", "Oslo"):
        Path(f"in/home={city}").mkdir(parents=True)
        db.execute(f"COPY (SELECT 'Lima' AS city, 1 AS age) TO 'in/home={city}/{city[0]}.parquet'")
    Path("in/odd.csv").write_text("city,age\n" + "Lima,1\n" * 60_000 + "Lima,many\n")
    Path("in/other.json").write_text('{"city": "Lima", "age": 1}')
    for source, file in {"in/odd.csv": "odd.csv", "in/o*": "other.json"}.items():
        with pytest.raises(SourceRefused, match=file) as caught:
            perturb_copy(db, source, "out", {"city": CITY, "age": "krr(epsilon=1, domain=[1, 2])"})
        assert "many" not in str(caught.value)


def test_the_raw_file_is_never_the_destination(tmp_path: Path) -> None:
    con = duckdb.connect()
    for place in ("raw/people.parquet", "raw/deeper/more.parquet"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        con.execute(f"COPY (SELECT 'Lima' AS city FROM range(10)) TO '{tmp_path / place}'")
    (tmp_path / "other.parquet").symlink_to(tmp_path / "raw/people.parquet")
    raw = (tmp_path / "raw/people.parquet").read_bytes()
    mechanism = {"city": "krr(epsilon=1, domain=['Lima', 'Oslo'])"}
    for source, destination in (
        ("raw/people.parquet", "raw/people.parquet"),
        ("raw/people.parquet", "other.parquet"),
        ("other.parquet", "raw/people.parquet"),
        ("raw", "raw"),
        ("raw/deeper/more.parquet", "raw"),
    ):
        with pytest.raises(DestinationRefused):
            perturb_copy(con, str(tmp_path / source), tmp_path / destination, mechanism, replace=True)
    assert (tmp_path / "raw/people.parquet").read_bytes() == raw


@pytest.mark.parametrize("setting", ["SET memory_limit = '-1'", "SET memory_limit = '200 MB'; SET threads = 1"])
def test_files_are_written_with_the_memory_and_the_threads_of_the_connection(db: DuckDBPyConnection, setting: str) -> None:
    db.execute(setting)
    perturb_copy(db, "people", "out.parquet", {"city": CITY})
    assert db.execute("SELECT count(*) FROM 'out.parquet'").fetchall() == [(ROWS,)]


def test_files_are_written_only_where_the_connection_may_write(db: DuckDBPyConnection, tmp_path: Path) -> None:
    (tmp_path / "allowed").mkdir()
    db.execute("SET allowed_directories = ?", [[str(tmp_path / "allowed")]])
    db.execute("SET enable_external_access = false")
    perturb_copy(db, "people", "allowed/out.parquet", {"city": CITY})
    assert db.execute(f"SELECT count(*) FROM '{tmp_path}/allowed/out.parquet'").fetchall() == [(ROWS,)]
    with pytest.raises(DestinationRefused):
        perturb_copy(db, "people", "out.parquet", {"city": CITY})
    assert not Path("out.parquet").exists()


def test_quotes_around_a_destination_are_not_part_of_its_name(db: DuckDBPyConnection) -> None:
    for into, name in (
        ('"my reports"', "my reports"),
        ('main."a.b"', "a.b"),
        ("two words", "two words"),
        ('"it ""is"""', 'it "is"'),
    ):
        perturb_table(db, "people", into, {"city": CITY})
        assert (name,) in db.execute("SELECT table_name FROM duckdb_tables()").fetchall()


LIKE_OTHERS = {
    "nothing": ["", "a"],
    "answers": ["yes", "no"],
    "days": ["2024-01-01", "2024-01-02"],
    "numbers": ["1e5", "3"],
    "digits": ["01", "1"],
}


@pytest.mark.parametrize("suffix", ["csv", "json"])
def test_text_that_looks_like_another_type_is_read_back_from_a_file(suffix: str, db: DuckDBPyConnection) -> None:
    texts = ", ".join(f"{values}[1 + i % 2] AS {name}" for name, values in LIKE_OTHERS.items())
    db.execute(f"CREATE TABLE texts AS SELECT {texts}, i // 2 % 2 AS g FROM range(200) t(i)")
    columns, file = {name: f"krr(20, {values})" for name, values in LIKE_OTHERS.items()}, f"reports.{suffix}"
    perturb_copy(db, "texts", f"raw.{suffix}", columns, keep=["g"])  # at epsilon 20 as good as a copy
    perturb_copy(db, f"raw.{suffix}", file, columns, keep=["g"])
    ldpsql.attach(db)
    for name, mechanism in columns.items():
        ldpsql.estimate_groups(db, file, name, report=name, keys=["g"], mechanism=mechanism)
        answers: list[pl.DataFrame] = [
            ldpsql.estimate(file, mechanism, column=name).to_polars(),
            ldpsql.estimate(file, mechanism, column=name, by="g").to_polars(),
            ldpsql.estimate(file, mechanism, column=name, weight="g").to_polars(),
            db.table(name).pl(),
            pl.DataFrame(json.loads(printed("estimate", file, name, "-m", mechanism, "--format", "json"))),
        ]
        for answer in answers:
            assert set(answer["value"]) == set(LIKE_OTHERS[name])
            assert answer["estimate"].to_list() == pytest.approx([0.5] * len(answer), abs=0.01)
