"""Mistakes of a newcomer in SQL: each is answered in one sentence, which comes first, with a remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from duckdb import DuckDBPyConnection

import ldpsql
from ldpsql.cli.failures import failure
from ldpsql.engine.door import open_door
from tests.commands import run

# Each statement, what DuckDB itself shows, and the remedy: in the same message, or in DuckDB's words with that of `ldpsql sql`.
MISTAKES: dict[str, tuple[str, str, str]] = {
    "an equals sign for a named argument": (
        "SELECT ldp.perturb(city, ldp.krr(epsilon = 1, domain = ['Lima', 'Oslo'])) FROM people",
        'Referenced column "epsilon"',
        "named arguments are written with :=, such as epsilon := ...",
    ),
    "an equals sign for the name of a distance": (
        "SELECT ldp.distance_between([0.5, 0.5], [0.4, 0.6], metric = 'emd')",
        'Referenced column "metric"',
        "named arguments are written with :=, such as metric := ...",
    ),
    "an equals sign before a keyword of SQL": (
        "FROM ldp.estimate(reports, city, by = 'age')",
        'syntax error at or near "="',
        "named arguments are written with :=, such as by := ...",
    ),
    "an equals sign for a list": (
        "FROM ldp.perturb_rows(people, {city: city()}, keep = ['age'])",
        "can't be cast to the destination type VARCHAR[]",
        "named arguments are written with :=, such as keep := ...",
    ),
    "a column and its mechanism without braces": (
        "FROM ldp.perturb_rows(people, city, city())",
        'Referenced column "city"',
        "columns stand in braces, each with its mechanism",
    ),
    "a column that equals its mechanism": (
        "FROM ldp.perturb_rows(people, city = city())",
        'Referenced column "city"',
        "columns stand in braces, each with its mechanism",
    ),
    "an expression as the key of groups without a mechanism": (
        "FROM ldp.estimate(reports, city, by := age // 10)",
        "Could not convert string 'age'",
        "with an expression as the key, pass the mechanism too",
    ),
    "rows in the place of a value": (
        "SELECT ldp.perturb_rows(people, {city: city()})",
        "is a table function but it was used as a scalar function",
        "write it after FROM",
    ),
    "a misspelt table as a string": ("FROM ldp.estimate('report', city)", 'Did you mean "reports"', 'Did you mean "reports"'),
    "no mechanism": (
        "SELECT ldp.perturb(city) FROM people",
        "[LDP103] perturb needs a mechanism",
        "write ldp.perturb(city, ldp.krr(1, ['Lima', 'Oslo']))",
    ),
    "the parameters of a mechanism next to its name": (
        "SELECT ldp.perturb(city, 'krr', 1) FROM people",
        "[LDP103] perturb takes a value and a mechanism",
        "write ldp.perturb(city, ldp.krr(1, ['Lima', 'Oslo']))",
    ),
    "epsilon and domain without a mechanism": (
        "SELECT ldp.perturb(city, 'krr', 1, ['Lima', 'Oslo']) FROM people",
        "[LDP103] perturb takes a value and a mechanism",
        "write ldp.perturb(city, ldp.krr(1, ['Lima', 'Oslo']))",
    ),
    "rows in the place of a list": (
        "SELECT ldp.perturb(city, ldp.krr(1, (SELECT DISTINCT city FROM people))) FROM people",
        "More than one row returned by a subquery",
        "write (SELECT list(city) FROM cities)",
    ),
    "a quotation mark in the name of a table": (
        'FROM ldp.perturb_rows("my ""own"" table", {city: city()})',
        "Unexpected quote in the middle of a qualified name component",
        "write the name as a string, with its quotes",
    ),
    "a text file of recorded reports": (
        "FROM ldp.estimate('reports.csv', city, city())",
        "[LDP401] the reports are text that a file such as CSV made of recorded reports",
        "write Parquet, which keeps the record",
    ),
    "a missing domain": (
        "SELECT ldp.perturb(city, ldp.krr(1)) FROM people",
        "[LDP103] krr needs domain",
        "write ldp.krr(epsilon, domain)",
    ),
    "a column of another type": ("SELECT ldp.perturb(age, city()) FROM people", "[LDP304]", "cast the column"),
    "mechanism and column exchanged": (
        "SELECT ldp.perturb(city(), city) FROM people",
        "[LDP104]",
        "the column comes first, and a macro has brackets",
    ),
    "a number in the place of the mechanism": (
        "SELECT ldp.perturb(age, age) FROM people",
        "[LDP104]",
        "the column comes first, and a macro has brackets",
    ),
    "brackets of a macro forgotten": (
        "SELECT ldp.ibu(city, city) FROM people",
        "[LDP104]",
        "the column comes first, and a macro has brackets",
    ),
    "brackets forgotten after a column of recorded reports": (
        "SELECT ldp.ibu(city, city) FROM reports",
        'column "city" must appear in the GROUP BY clause',
        'column "city" must appear in the GROUP BY clause',
    ),
    "a date beyond those of Python as an option": (
        "SELECT ldp.ibu(city, city(), confidence := 'infinity'::DATE) FROM reports",
        "[LDP104]",
        "years 1 to 9999",
    ),
    "a date beyond those of Python for the name of a column": (
        "SELECT ldp.regression(city, city(), 1, of := 'infinity'::DATE) FROM reports",
        "[LDP103]",
        "such as of := 'age'",
    ),
    "a date beyond those of Python as a number of values": (
        "SELECT ldp.top(city, city(), 'infinity'::DATE) FROM reports",
        "[LDP104]",
        "years 1 to 9999",
    ),
    "a misspelt value in the domain": (
        "SELECT ldp.perturb(city, ldp.krr(1, ['Lima', 'Olso', 'Rome'])) FROM people",
        "[LDP302]",
        "add it, or write outside := 'as:VALUE'",
    ),
    "a raw column instead of reports": ("SELECT ldp.ibu(city, city()) FROM people", "[LDP305]", "was a raw column passed"),
    "reports of another epsilon": (
        "SELECT ldp.ibu(city, ldp.krr(3, ['Lima', 'Oslo', 'Rome', 'Kyiv'])) FROM reports",
        "[LDP408]",
        "estimate with the mechanism that drew them",
    ),
    "epsilon 0": ("SELECT ldp.krr(0, ['a', 'b'])", "[LDP101]", "1 is a common choice"),
    "a negative epsilon": ("SELECT ldp.krr(-1, ['a', 'b'])", "[LDP101]", "above 0, at most 32"),
    "a word as epsilon": ("SELECT ldp.krr('one', ['a', 'b'])", "[LDP101]", "above 0, at most 32"),
    "a misspelt function": ("SELECT ldp.purturb(city, city()) FROM people", 'Did you mean "perturb"', 'Did you mean "perturb"'),
    "a function without its catalog": (
        "SELECT perturb(city, city()) FROM people",
        'Did you mean "ldp.perturb"',
        'Did you mean "ldp.perturb"',
    ),
    "a subquery as the table": (
        "FROM ldp.estimate((SELECT city FROM reports), city)",
        "Table function cannot contain subqueries",
        "WITH t AS (SELECT ...) FROM ldp.estimate(t, city)",
    ),
    "a reader as the table": (
        "FROM ldp.estimate(read_csv('reports.csv'), city, city())",
        'Function "read_csv" is a table function',
        "write the path itself",
    ),
    "a misspelt column to be kept": (
        "FROM ldp.perturb_rows(people, {city: city()}, keep := ['aeg'])",
        "[LDP103] there is no column named 'aeg' to be kept",
        "names columns of the table",
    ),
    "reports as a raw column": (
        "FROM ldp.outcome(reports, city, outcome := city)",
        "[LDP403]",
        "for a raw column of reports pass ldp.unbiased(reports, mechanism)",
    ),
    "an unbiased outcome without the mechanism of the reports": (
        "FROM ldp.outcome(reports, city, outcome := ldp.unbiased(city, ldp.krr(1, [1, 2])))",
        "[LDP304]",
        "after FROM, pass the mechanism of the reports too",
    ),
    "the mean of booleans": (
        "SELECT ldp.mean(x, ldp.krr(1, [true, false])) FROM (SELECT true AS x)",
        "[LDP102] the values of this domain have no order",
        "ask for ldp.share(..., of := true), or cast booleans to 0 and 1 before they are perturbed",
    ),
    "the mechanism of a whole row": (
        "FROM ldp.perturb_rows(people, ldp.joint_krr(1, {city: ['Lima', 'Oslo'], age: [1, 2]}))",
        "[LDP103]",
        "that of a whole row needs a view in which the row is one column",
    ),
    "one mechanism for a whole row": (
        "FROM ldp.perturb_rows(people, city())",
        "[LDP103]",
        "write FROM ldp.perturb_rows(",
    ),
}


TUTORIAL = (Path(__file__).parents[1] / "docs" / "tutorial.md").read_text(encoding="utf-8")


TABLES = """
CREATE TABLE people AS SELECT ['Lima', 'Oslo', 'Rome'][1 + i % 3] AS city, i AS age FROM range(300) t(i);
CREATE MACRO city() AS ldp.krr(1, ['Lima', 'Oslo', 'Rome', 'Kyiv']);
CREATE TABLE reports AS FROM ldp.perturb_rows(people, {city: city()});"""


def answer_of_commands(statement: str, folder: Path) -> str:
    """What ``ldpsql sql`` says about a statement over these tables, in one line."""
    done = run("sql", ":memory:", "-c", f"{TABLES}\n{statement}", cwd=folder)
    return " ".join(done.stderr.split())


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DuckDBPyConnection]:
    """Lend a plain connection of DuckDB with people and their reports."""
    if isinstance(reason := open_door(), str):
        pytest.skip(f"DuckDB puts words before errors of functions in Python: {reason}")
    ldpsql.connect().close()  # lists the functions for all databases that are opened after it
    with duckdb.connect() as con:
        ldpsql.attach(con)
        con.execute(TABLES)
        folder = tmp_path_factory.mktemp("files")
        con.execute(f"COPY reports TO '{folder}/reports.csv'; SET file_search_path = '{folder}'")
        yield con


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_answered_in_one_sentence_with_a_remedy(plain: DuckDBPyConnection, mistake: str) -> None:
    statement, shown, remedy = MISTAKES[mistake]
    with pytest.raises(duckdb.Error) as refused:
        plain.execute(statement).fetchall()
    message = str(refused.value)
    assert shown in message
    if shown.startswith("[LDP"):
        ours = message.removeprefix("Invalid Input Error: ").partition("\n\nLINE ")[0]
        assert ours.startswith(shown)
        assert re.fullmatch(r"\[LDP\d{3}\] (?:(?!\. ).)+\. Hint: .*[.?]", ours)
        assert remedy in ours
    else:
        assert len(message) < 300 + len(statement)
        assert f"`{shown}`" in TUTORIAL  # says what to do
    answer = failure(refused.value, statement)
    assert remedy in f"{answer.message}\n{answer.hint}"


@pytest.mark.parametrize(
    ("call", "named"),
    [("top(reports, city, 3)", "most"), ("quantile(reports, city, 0.5)", "q"), ("share(reports, city, true)", "of")],
)
def test_an_argument_without_its_name_after_recorded_reports_is_answered_with_it(
    plain: DuckDBPyConnection, call: str, named: str, tmp_path: Path
) -> None:
    with pytest.raises(duckdb.BinderException) as refused:
        plain.execute(statement := f"FROM ldp.{call}")
    assert (shown := "does not support the supplied arguments") in str(refused.value)
    assert f"`{shown}`" in TUTORIAL
    assert f"if the reports record their mechanism, name the argument: {named} := ..." in answer_of_commands(
        statement, tmp_path
    )


def test_a_function_as_the_key_without_a_mechanism_is_answered_with_one(plain: DuckDBPyConnection, tmp_path: Path) -> None:
    statement = "FROM ldp.estimate(reports, city, by := floor(age))"
    with pytest.raises(duckdb.BinderException) as refused:
        plain.execute(statement)
    assert (shown := 'function call "floor(STRING_LITERAL)"') in str(refused.value)
    assert f"`{shown}`" in TUTORIAL
    assert "with an expression as the key, pass the mechanism too" in answer_of_commands(statement, tmp_path)


def test_a_folder_without_a_slash_is_answered_with_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "people").mkdir()
    statement = "FROM ldp.perturb_rows('{}', {{city: ldp.krr(1, ['Lima', 'Oslo'])}})"
    with ldpsql.connect() as con:
        con.execute("COPY (SELECT 'Lima' AS city FROM range(9)) TO 'people/1.parquet'")
        assert len(con.execute(statement.format("people/")).fetchall()) == 9
        with pytest.raises(duckdb.CatalogException):
            con.execute(statement.format("people"))
        assert "with a slash, 'people/'" in run("sql", ":memory:", "-c", statement.format("people"), cwd=tmp_path).stderr
        con.execute("CREATE TEMP TABLE people AS SELECT 'Oslo' AS city")
        assert len(con.execute(statement.format("people")).fetchall()) == 1  # no folder hides a table


def test_counting_reports_as_if_they_were_values_is_found_by_lint_and_comparing_them_is_refused(
    plain: DuckDBPyConnection,
) -> None:
    with plain.cursor() as con:
        con.execute("CREATE VIEW cities AS SELECT city, count(*) AS n FROM reports GROUP BY city")
        assert con.execute("SELECT remedy FROM ldp.lint() WHERE name = 'main.cities'").fetchall()[0][0].count("ldp.estimate")
        con.execute("DROP VIEW cities")
        with pytest.raises(duckdb.ConversionException):
            con.execute("SELECT count(*) FROM reports WHERE city = 'Lima'")
