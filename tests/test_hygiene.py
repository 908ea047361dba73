"""A raw value that is planted in the data appears nowhere but there: in no message, traceback, plan, profile, warning or log.

Statements hold no value themselves; DuckDB's own errors, outside of any function of ours, are the command line's to withhold.
"""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from duckdb import DuckDBPyConnection
from typer.testing import CliRunner

import ldpsql
from ldpsql import Key, privic
from ldpsql.errors import LdpError, UnknownName
from ldpsql.errors.boundary import without_values
from ldpsql.functions import registry
from ldpsql.ledger import Ledger, Policy
from tests.commands import app, main

CANARY = "canary7f3a"  # a name, as that of a column or of an estimator could be
NUMBER = "90417733"
KRR = "ldp.krr(1, ['a', 'b'])"
PAIRS_TEXT = "pckv_grr(1, ['a', 'b'])"
PAIRS = "ldp.pckv_pm(1, ['a', 'b'], bins := 4)"
PRIVIC = "ldp.blahut_arimoto(1, ['a', 'b'], [0.5, 0.5], distances := [[0, 1], [1, 0]])"
VALUES = {
    "epsilon": "1", "delta": "'0.001'", "low": "0", "high": "5", "domain": "['a', 'b']", "keys": "['a', 'b']", "columns": "3",
    "rows": "3", "prior": "[0.5, 0.5]", "beta": "1",
}  # fmt: skip
# What is given in the place of a parameter; `big` is a number whose square is beyond any type.
RAW = ("city", "any_value(city)", "[city]", "{'v': city}", "n", "big")


def wrong_parameters() -> Iterator[str]:
    """Every parameter of every mechanism, given a raw column instead of a constant, and sums and products that overflow."""
    for name, mechanism in registry().mechanisms.items():
        parameters = mechanism.parameters()
        for wrong in parameters:
            for raw in ("city", "[city]"):
                arguments = [
                    f'"{p.name}" := {raw if p is wrong else VALUES.get(p.name, "1")}'
                    for p in parameters
                    if p.required or p is wrong
                ]
                yield f"SELECT ldp.perturb(city, ldp.{name}({', '.join(arguments)})) FROM raw"
    for overflows in ("planar_geometric(1, big, big)", "planar_laplace(1, big, big)", f"geometric(1, -big, big, {2**63 - 1})"):
        yield f"SELECT ldp.perturb(n, ldp.{overflows}) FROM raw"


SOUND = {
    "report": "'a'", "reports": "['a']", "m": KRR, "counts": "MAP {'a': 10}", "keep": "true", "estimator": "'ibu'",
    "level": "'l'", "mechanisms": f"MAP {{'l': {KRR}}}",
    "x": "'a'", "p": "[0.5, 0.5]", "q": "[0.4, 0.6]", "power": "1", "confidence": "0.9",
    "low": "1", "high": "3", "lon": "0.5", "lat": "0.5", "grid": "ldp.grid(0, 0, 1, 1, 2, 2)", "cell": "1", "west": "0",
    "south": "0", "east": "1", "north": "1", "columns": "2", "rows": "2", "prior": "[0.5, 0.5]", "beta": "1",
    "domain": "['a', 'b']", "distances": "[[0, 1], [1, 0]]", "iterations": "5", "mixing": "0", "side": "1", "stop": "5",
    "most": "1", "user_id": "'u'", "column_name": "'c'", "keys": "city",
}  # fmt: skip


def sound_arguments(name: str) -> dict[str, str]:
    """Return arguments that fit the parameters of a function of the catalog, by name."""
    if name in ("mean", "variance", "quantile", "range_share"):
        return SOUND | {"m": "ldp.geometric(1, 0, 5)", "report": "1", "counts": "MAP {1: 10}", "q": "0.5"}
    if name.startswith("key_value"):
        report = "{'key': 'a', 'bin': 1::SMALLINT}"
        return SOUND | {"m": PAIRS, "report": report, "counts": f"MAP {{{report}: 10}}"}
    mechanisms = {"privic_step": PRIVIC, "wasserstein": "NULL", "emd": "NULL"}
    tables = {"estimate": "raw"}
    return SOUND | {
        "m": mechanisms.get(name, KRR),
        "reports": tables.get(name, SOUND["reports"]),
    }


def wrong_arguments(con: DuckDBPyConnection) -> Iterator[str]:
    """Every parameter of every function but the constructors of mechanisms, given two raw columns in turn."""
    functions = """SELECT function_name, function_type = 'table_macro', parameters FROM duckdb_functions()
                   WHERE database_name = 'ldp' AND schema_name = 'main' AND function_name NOT LIKE '\\_%' ESCAPE '\\'"""
    estimators, in_turn = registry().estimators, cycle(RAW)
    for name, is_table, parameters in con.execute(functions).fetchall():
        if name in registry().mechanisms:
            continue
        sound = sound_arguments(name)
        for wrong in parameters:
            if name in estimators and wrong in sound and not name.startswith("ibu"):
                continue  # one estimator stands for all: their macros differ in their options only
            valid = {p: sound[p] for p in parameters if p in sound}
            for raw in (next(in_turn), next(in_turn)):
                arguments = ", ".join(f'"{p}" := {text}' for p, text in (valid | {wrong: raw}).items())
                yield f'SELECT * FROM ldp."{name}"({arguments})' if is_table else f'SELECT ldp."{name}"({arguments}) FROM raw'


def wrong_grids() -> Iterator[str]:
    """Every part of a grid, given a raw column."""
    for place in range(6):
        for raw in ("city", "[city]", "big"):
            edges = ["0", "0", "1", "1", "big" if raw == "big" else "2", "2"]
            grid = f"ldp.grid({', '.join([*edges[:place], raw, *edges[place + 1 :]])})"
            yield from (
                f"SELECT ldp.{call} FROM raw"
                for call in (f"cells({grid})", f"cell(0.5, 0.5, {grid})", f"cell_centre(1, {grid})")
            )


def wrong_values() -> Iterator[str]:
    """A raw column where each mechanism wants a value of its domain, and where each estimator wants reports."""
    texts = {
        "krr": KRR, "oue": "ldp.oue(1, ['a', 'b'])", "olh": "ldp.olh(1, ['a', 'b'])", "geometric": "ldp.geometric(1, 0, 5)",
        "laplace": "ldp.laplace(1, 0, 5)", "planar": "ldp.planar_geometric(1, 3, 3)",
    }  # fmt: skip
    for text in texts.values():
        for column in ("city", "[city]", "{'v': city}", "city::BLOB", "n", "n / 7", "CASE WHEN n > 0 THEN city END"):
            yield f"SELECT ldp.perturb({column}, {text}) FROM raw"
            yield f"SELECT ldp.perturb_once({column}, {text}, city) FROM raw"
            for estimator in registry().estimators if text == KRR else ["ibu"]:  # reports are counted before they are estimated
                yield f"SELECT ldp.{estimator}({column}, {text}) FROM raw"


WRONG_CALLS = [
    f"SELECT ldp.perturb_once('a', {KRR}, [city]) FROM raw",
    f"SELECT ldp.perturb_once('a', {KRR}, n, column_name := city) FROM raw",
    f"SELECT ldp.ibu('a', {KRR}, keep := city) FROM raw",
    f"SELECT ldp.diagnose(city, {KRR}) FROM raw",
    f"SELECT ldp.diagnose(city, {KRR}, estimator := any_value(city)) FROM raw",
    f"SELECT ldp.diagnose(city, {KRR}, estimator := 'ibu(' || any_value(city)[:6] || '=1)') FROM raw",
    f"SELECT ldp.ibu(map {{city: 1}}, {KRR}) FROM raw",
    f"SELECT ldp.ibu(city, {KRR}) FROM raw",
    f"SELECT ldp.information({KRR}, [0.5, 0.5], city) FROM raw",
    f"SELECT ldp.information({KRR}, [city]) FROM raw",
    f"SELECT ldp.information({KRR}, [n]) FROM raw",
    f"FROM ldp.estimate(raw, city, {KRR})",
    f"FROM ldp.estimate(raw, 'a', {KRR}, by := city, estimator := 'no')",
    "SELECT ldp.describe(city) FROM raw",
    "SELECT ldp.perturb(city, {'mechanism': city, 'reports': [city]}) FROM raw",
    "SELECT ldp.perturb(city, {'mechanism': 'krr', 'epsilon': city, 'reports': [city]}) FROM raw",
]


@pytest.fixture
def raw(tmp_path: Path) -> Iterator[DuckDBPyConnection]:
    key = Key.create(tmp_path / "key")
    with ldpsql.connect(key=key) as con:
        con.execute(f"CREATE TABLE raw AS SELECT '{CANARY}' AS city, {NUMBER} AS n, {NUMBER}{NUMBER} AS big")
        yield con


def clean(text: str) -> bool:
    return CANARY not in text and NUMBER not in text


def refuses_cleanly(con: DuckDBPyConnection, sql: str) -> bool:
    """Run a statement; tell whether it failed, and fail the test where its error tells too much."""
    refusal: duckdb.Error | None = None
    try:
        con.execute(sql).fetchall()
    except duckdb.Error as error:
        refusal = error
    if refusal is None:
        return False
    assert clean("".join(traceback.format_exception(refusal))), sql
    assert clean(repr((refusal.__cause__, refusal.__context__, refusal.__dict__))), sql
    return True


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("part", range(4))
def test_no_error_of_sql_shows_a_value(
    part: int, raw: DuckDBPyConnection, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    every = [*wrong_parameters(), *wrong_values(), *wrong_arguments(raw), *wrong_grids(), *WRONG_CALLS]
    assert len(every) > 1000
    statements = every[part::4]
    refused = [refuses_cleanly(raw, sql) for sql in statements]
    assert sum(refused) > 0.8 * len(statements)  # the others only look wrong: a number between 0 and 5, an empty histogram
    output = capfd.readouterr()
    assert clean(caplog.text + output.out + output.err)


def test_an_error_without_the_name_keeps_it_in_no_attribute() -> None:
    error = UnknownName("mechanism", "Alice", ["krr"]).unnamed()
    assert "Alice" not in f"{error} {error!r} {error.args} {vars(error)}"


def test_no_plan_or_profile_shows_a_value(raw: DuckDBPyConnection, tmp_path: Path) -> None:
    profile = tmp_path / "profile.json"
    raw.execute(f"PRAGMA enable_profiling = 'json'; SET profiling_output = '{profile}'")
    raw.execute("CREATE TABLE people AS SELECT 'a' AS city, * EXCLUDE city FROM raw")
    raw.execute("SET profiling_mode = 'detailed'")
    sound = [
        f"SELECT ldp.perturb(city, {KRR}) FROM people",
        f"SELECT ldp.perturb_once(city, {KRR}, n) FROM people",
        "SELECT ldp.perturb(n, ldp.laplace(1, 0, 99999999)) FROM people",
    ]
    for sql in [*WRONG_CALLS, *sound]:
        refuses_cleanly(raw, sql)
        if profile.exists():
            assert clean(profile.read_text())
            profile.unlink()
        for how in ("EXPLAIN ", "EXPLAIN ANALYZE "):
            try:
                plan = str(raw.execute(how + sql).fetchall())
            except duckdb.Error as error:
                plan = str(error)
            assert clean(plan), sql


def people(rows: int = 1) -> pl.DataFrame:
    return pl.DataFrame({"city": [CANARY] * rows, "n": [int(NUMBER)] * rows})


PYTHON: dict[str, Callable[[Path], Any]] = {
    "series outside of the domain": lambda _: ldpsql.perturb(people()["city"], "krr(1, ['a', 'b'])"),
    "numbers outside of the range": lambda _: ldpsql.perturb(people()["n"], "laplace(1, 0, 5)"),
    "another type": lambda _: ldpsql.perturb(people()["city"], "laplace(1, 0, 5)"),
    "a list of mixed types": lambda _: ldpsql.perturb([1, CANARY], "krr(1, ['a', 'b'])"),
    "a frame": lambda _: ldpsql.perturb(people(), "krr(1, ['a', 'b'])"),
    "raw values as reports": lambda _: ldpsql.estimate(people(9)["city"], "krr(1, ['a', 'b'])"),
    "raw numbers as bits": lambda _: ldpsql.estimate(people(9)["n"], "oue(1, ['a', 'b'])"),
    "structs as hashed reports": lambda _: ldpsql.estimate(pa.array([{CANARY: 1}]), "olh(1, ['a', 'b'])"),
    "an expression of Polars": lambda _: people().select(pl.col("city").ldp.perturb("krr(1, ['a', 'b'])")),  # type: ignore[attr-defined]
    "a streaming query of Polars": lambda _: (
        people(9).lazy().select(pl.col("n").ldp.perturb("laplace(1, 0, 5)")).collect(engine="streaming")  # type: ignore[attr-defined]
    ),
    "a stream": lambda _: ldpsql.perturb_batches(people(), {"city": "krr(1, ['a', 'b'])"}).read_all(),
    "keys outside of the domain": lambda _: ldpsql.perturb([[{"key": CANARY, "value": 0.5}]], PAIRS_TEXT),
    "values outside of the range": lambda _: ldpsql.perturb([[{"key": "a", "value": int(NUMBER)}]], PAIRS_TEXT),
    "values of another type": lambda _: ldpsql.perturb([[{"key": "a", "value": CANARY}]], PAIRS_TEXT),
    "a key twice": lambda _: ldpsql.perturb([[{"key": "a", "value": float(f"0.{NUMBER}")}] * 2], PAIRS_TEXT),
    "members that are no pairs": lambda _: ldpsql.perturb([[{CANARY: "a"}]], PAIRS_TEXT),
    "raw sets as reports": lambda _: ldpsql.key_value([{"key": CANARY, "sign": 1}], PAIRS_TEXT),
    "raw signs as reports": lambda _: ldpsql.key_value([{"key": "a", "sign": 77}] * 90, PAIRS_TEXT),
    "raw values as sets": lambda _: ldpsql.key_value(people(9)["city"], PAIRS_TEXT),
    "a table": lambda path: bulk(path, "krr(1, ['a', 'b'])"),
    "a table of numbers": lambda path: bulk(path, "laplace(1, 0, 5)", column="n"),
    "a table of another type": lambda path: bulk(path, "laplace(1, 0, 5)"),
    "a file": lambda path: bulk(path, "krr(1, ['a', 'b'])", into=path / "reports.parquet"),
    "folders": lambda path: bulk(path, "krr(1, ['a', 'b'])", into=path / "reports"),
    "a table of other columns": lambda path: bulk(path, "krr(1, ['a', 'b'])", append=True),
    "locations": lambda path: cycles(path, "raw.parquet", "n"),
    "locations of another type": lambda path: cycles(path, "raw.parquet", "city"),
    "a broken file of locations": lambda path: cycles(path, "broken.csv", "a"),
    "user ids of two types": lambda path: users(path, [1, CANARY]),
    "user ids with a NULL": lambda path: users(path, [CANARY, None]),
    "nested user ids": lambda path: users(path, [[CANARY]]),
    "users without budget": lambda path: users(path, [CANARY] * 9),
}


def bulk(
    path: Path, mechanism: str, *, source: str = "raw", column: str = "city", into: Path | None = None, append: bool = False
) -> None:
    with duckdb.connect(database(path)) as con:
        con.execute("CREATE TABLE reports (x INTEGER)")
        source_path = str(path / source) if "." in source else source
        if into:
            ldpsql.perturb_copy(con, source_path, into, {column: mechanism})
        else:
            ldpsql.perturb_table(con, source_path, "reports" if append else "fresh", {column: mechanism}, append=append)


def cycles(path: Path, source: str, column: str) -> None:
    database(path)
    start = privic.start(1, range(6), columns=3)
    try:
        privic.collect(str(path / source), path / "state.duckdb", start, column=column, cycles=1)
    except duckdb.Error as error:  # of SQL, with our own message
        refusal = LdpError(str(error))
    raise refusal


def users(path: Path, ids: list[Any]) -> None:
    ledger = Ledger.open(path / "ledger", Policy(epsilon_budget=1, privacy_unit="city"))
    ledger.charge("people", {"city": registry().mechanism("krr(1, ['a', 'b'])")}, "reports", users=ids)


@pytest.mark.parametrize("name", PYTHON)
def test_no_error_of_python_shows_a_value(name: str, tmp_path: Path) -> None:
    with pytest.raises(LdpError) as caught:
        PYTHON[name](tmp_path)
    error = caught.value
    assert clean("".join(traceback.format_exception(error)))
    assert clean(repr(error) + repr(error.__dict__) + repr(error.args))
    behind = (error.__cause__, error.__context__)
    assert clean(repr(behind))
    inner = traceback.TracebackException.from_exception(error, capture_locals=True).stack[-1]
    assert clean(repr(inner.locals))  # the frames that held the column are gone


def database(path: Path) -> str:
    with duckdb.connect(str(path / "raw.duckdb")) as con:
        con.execute(f"CREATE TABLE raw AS SELECT '{CANARY}' AS city, {NUMBER} AS n")
        con.execute("CREATE TABLE keys (city VARCHAR PRIMARY KEY, n INTEGER CHECK (n < 5))")
        con.execute("COPY raw TO '" + str(path / "raw.csv") + "'; COPY raw TO '" + str(path / "raw.parquet") + "'")
        con.execute(f"CREATE TYPE label AS ENUM ('{CANARY}', 'b'); CREATE TABLE labels AS SELECT 'b'::label AS k")
    (path / "raw.json").write_text(f'{{"city": "{CANARY}"')
    (path / "names.csv").write_text(f"{CANARY},{NUMBER}\nx,1\n")
    (path / "broken.csv").write_text(f"a,b\n1,2\n{CANARY},x,y,z\n")
    return str(path / "raw.duckdb")


CLI_SQL = [
    "SELECT city::INTEGER FROM raw",
    "SELECT city::DATE FROM raw",
    "SELECT n::TINYINT FROM raw",
    "SELECT city::ENUM('a', 'b') FROM raw",
    "SELECT strptime(city, '%Y') FROM raw",
    "SELECT n * 9223372036854775807 FROM raw",
    "SELECT city::JSON FROM raw",
    "SELECT error(city) FROM raw",
    "SELECT nothing FROM 'broken.csv'",
    "SELECT regexp_matches('x', city || '(') FROM raw",
    "INSERT INTO keys SELECT city, 1 FROM raw; INSERT INTO keys SELECT city, 1 FROM raw",
    "INSERT INTO keys SELECT city, n FROM raw",
    "SELECT * FROM read_csv('broken.csv', columns = {'a': 'INTEGER', 'b': 'INTEGER'})",
    "SELECT * FROM read_json('raw.json')",
    f"SELECT ldp.perturb(city, {KRR}) FROM raw",
    f"SELECT ldp.ibu(city, {KRR}) FROM raw",
    # names that come from data, in messages about statements
    "SET VARIABLE q = (SELECT city FROM raw); FROM query(getvariable('q'))",
    "SET VARIABLE q = (SELECT 'SELECT ' || city FROM raw); FROM query(getvariable('q'))",
    "SET VARIABLE q = (SELECT 'FROM ' || city FROM raw); FROM query(getvariable('q'))",
    "SET VARIABLE q = (SELECT city FROM raw); FROM query_table(getvariable('q'))",
    "SET VARIABLE q = (SELECT city FROM raw); FROM read_csv(getvariable('q'))",
    "SET VARIABLE q = (SELECT city FROM raw); SELECT current_setting(getvariable('q'))",
    "SELECT x.nothing FROM (FROM (PIVOT raw ON city USING sum(n)) t SELECT t AS x)",
    "FROM (PIVOT raw ON city USING sum(n)) SELECT nothing",
    "FROM (PIVOT raw ON city USING sum(n)) t SELECT t + 1",
    "FROM read_csv('names.csv', header = true) SELECT nothing",
    "FROM read_csv('names.csv', header = true) SELECT * GROUP BY 1",
    "FROM read_csv('names.csv', header = true) t SELECT sum(t)",
    "SELECT sum(k) FROM labels",
]


@pytest.mark.slow
@pytest.mark.parametrize("sql", CLI_SQL)
def test_no_error_of_the_command_line_shows_a_value(
    sql: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    path = database(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["ldpsql", "sql", path, "-c", sql])
    with pytest.raises(SystemExit) as stopped:
        main()
    output = capfd.readouterr()
    assert stopped.value.code != 0
    assert output.err.startswith("error")
    assert clean(output.out + output.err)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELEC 1", 'syntax error at or near "SELEC"\n\nLINE 1: SELEC 1\n        ^^^^^'),
        ("SELECT ldp.perturb(city, ldp.kr(1, ['a'])) FROM raw", 'with name kr does not exist!\nDid you mean "krr"?'),
        ("SELECT nothing FROM raw", 'Referenced column "nothing" not found in FROM clause!'),
        ("FROM raww", 'Table with name raww does not exist!\nDid you mean "raw"?'),
        ("SELECT city, count(*) FROM raw", 'column "city" must appear in the GROUP BY clause'),
        ("FROM 'nothing.parquet'", 'No files found that match the pattern "nothing.parquet"'),
        ("SELECT sum(k) FROM labels", "argument types 'sum(ENUM('…', '…'))'. You might need to add explicit type casts."),
        ("FROM (PIVOT raw ON city USING sum(n)) SELECT x", 'Referenced column "x" not found in FROM clause!'),
    ],
)
def test_what_was_typed_is_repeated(sql: str, message: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["sql", database(tmp_path), "-c", sql])
    assert message in str(done.exception)


def test_a_name_that_was_not_typed_is_left_out_also_if_it_is_a_word_of_duckdb_and_so_is_what_resembles_it() -> None:
    quoted = without_values(duckdb.CatalogException('Table with name "column" does not exist!'), "FROM people")
    assert quoted is not None
    assert "column" not in quoted
    error = duckdb.CatalogException(f'Table with name {CANARY} does not exist!\nDid you mean "{CANARY}s"?')
    assert CANARY not in (without_values(error, "FROM people") or "")
    assert CANARY in (without_values(error, f"FROM {CANARY}") or "")


CLI = [
    ["perturb", "raw.parquet", "reports.parquet", "-c", "city", "-m", "krr(1, ['a', 'b'])"],
    ["perturb", "raw.csv", "reports.csv", "-c", "n", "-m", "laplace(1, 0, 5)"],
    ["perturb", "raw.csv", "reports", "-c", "city", "-m", "pckv(1, ['a', 'b'])"],
    ["perturb", "broken.csv", "reports.parquet", "-c", "a", "-m", "krr(1, ['a', 'b'])"],
    ["perturb", "raw.json", "reports.parquet", "-c", "city", "-m", "krr(1, ['a', 'b'])"],
    ["perturb", "raw", "reports", "--table", "-d", "raw.duckdb", "-c", "city", "-m", "krr(1, ['a', 'b'])"],
    ["privic", "raw.parquet", "-s", "run.duckdb", "--beta", "1", "--columns", "3", "--rows", "2", "-c", "n"],
    ["privic", "raw.csv", "-s", "run.duckdb", "--beta", "1", "--columns", "3", "--rows", "2", "-c", "city"],
    ["privic", "broken.csv", "-s", "run.duckdb", "--beta", "1", "--columns", "3", "--rows", "2", "-c", "a"],
    ["estimate", "raw.parquet", "--column", "city", "-m", "krr(1, ['a', 'b'])"],
    ["estimate", "raw.csv", "--column", "n", "-m", "krr(1, [1, 2])"],
    ["estimate", "broken.csv", "--column", "a", "-m", "krr(1, [1, 2])"],
    ["estimate", "raw.json", "--column", "city", "-m", "krr(1, ['a', 'b'])"],
]


@pytest.mark.slow
@pytest.mark.parametrize("arguments", CLI, ids=lambda arguments: " ".join(arguments[:2]))
def test_no_command_shows_a_value(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    database(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["ldpsql", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    output = capfd.readouterr()
    assert stopped.value.code != 0
    assert clean(output.out + output.err)


def test_the_ledger_reveals_nothing_about_people(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger", Policy(epsilon_budget=1, privacy_unit="city"))
    mechanism = registry().mechanism(f"krr(1, ['{CANARY}', 'b'])")  # even a declared value stays out of it
    with ledger.release("people", {"city": mechanism}, "reports", users=[NUMBER]):
        pass
    assert clean(json.dumps([ledger.history(), ledger.policies(), [str(balance) for balance in ledger.balances()]]))
    assert all(clean(file.read_bytes().decode("latin1")) for file in tmp_path.iterdir())


@pytest.mark.parametrize("form", ["frame", "table", "file"])
def test_names_of_columns_that_come_from_data_are_not_listed(form: str, tmp_path: Path) -> None:
    """As after ``PIVOT people ON city``, or a file that was read without a line of names."""
    con = ldpsql.connect()
    con.execute("CREATE TABLE people AS SELECT 1 AS id, 7 AS n, 'canary-value' AS city")
    con.execute("CREATE TABLE pivoted AS PIVOT people ON city USING sum(n)")
    con.execute(f"COPY pivoted TO '{tmp_path / 'p.parquet'}'")
    source = {"frame": con.table("pivoted").to_arrow_table(), "table": "pivoted", "file": str(tmp_path / "p.parquet")}[form]
    with pytest.raises(ldpsql.LdpError, match="no column named 'city'") as caught:
        ldpsql.perturb_copy(con, source, tmp_path / "r.parquet", {"city": "krr(1, ['a', 'b'])"})
    assert "canary-value" not in f"{caught.value} {caught.value.args} {vars(caught.value)}"
    with pytest.raises(ldpsql.LdpError, match="did you mean 'id'"):
        ldpsql.perturb_copy(con, source, tmp_path / "r.parquet", {"idd": "krr(1, [1, 2])"})


@pytest.mark.parametrize(
    ("text", "hinted"),
    [
        ("city,hours\nLima,3\nOslo,4\n", True),
        ("city,country\nLima,Peru\nOslo,Norway\n", False),  # nothing tells the first line from the others
        ("Lima,3\nOslo,4\n", False),
    ],
)
def test_a_csv_file_suggests_a_column_only_if_its_first_line_is_a_header(text: str, hinted: bool, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text(text)
    with pytest.raises(ldpsql.LdpError) as caught:
        ldpsql.estimate(str(tmp_path / "people.csv"), "krr(1, ['a', 'b'])", column="citty" if "city" in text else "Lina")
    assert ("did you mean 'city'" in str(caught.value)) is hinted
    assert hinted or "the first line of a CSV file must name the columns" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "asked", "named"), [("city,country\nLima,Peru\n", "CITY", "city"), ("Lima,Peru\n", "lima", "Lima")]
)
def test_a_hint_may_name_a_column_in_the_case_that_a_file_of_text_has(
    text: str, asked: str, named: str, tmp_path: Path
) -> None:
    (tmp_path / "people.csv").write_text(text)
    with pytest.raises(ldpsql.LdpError, match=f"did you mean '{named}'"):
        ldpsql.estimate(str(tmp_path / "people.csv"), "krr(1, ['a', 'b'])", column=asked)
