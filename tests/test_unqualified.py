"""Names without ``ldp.``: the catalog on the search path, what it hides, and the clauses that only DuckDB's aggregates take."""

from __future__ import annotations

import re
from collections.abc import Iterator

import duckdb
import pytest
from duckdb import DuckDBPyConnection

import ldpsql
from ldpsql.errors import PrivacyLeakWarning
from tests.commands import run

FORMS = ["krr", "oue", "olh", "subset_selection", "square_wave"]
RANGE = {"square_wave": "0, 3"}


@pytest.fixture(scope="module")
def con() -> Iterator[DuckDBPyConnection]:
    with ldpsql.connect(use=True) as con:
        con.execute("CREATE TABLE people AS SELECT i % 3 AS region, i % 4 AS city FROM range(300) t(i)")
        for form in FORMS:
            con.execute(f"CREATE MACRO {form}_of_city() AS {form}(1, {RANGE.get(form, '[0, 1, 2, 3]')})")
            con.execute(f"CREATE TABLE {form}s AS SELECT region, perturb(city, {form}_of_city()) AS city FROM people")
        yield con


@pytest.mark.parametrize("form", FORMS)
def test_case_in_an_aggregate_does_what_filter_would_do(con: DuckDBPyConnection, form: str) -> None:
    filtered = con.sql(f"SELECT ibu(CASE WHEN region = 1 THEN city END, {form}_of_city()) FROM {form}s").fetchall()
    assert filtered == con.sql(f"SELECT ibu(city, {form}_of_city()) FROM {form}s WHERE region = 1").fetchall()


def test_functions_of_duckdb_and_of_the_user_go_before_those_of_the_catalog(con: DuckDBPyConnection) -> None:
    functions = "SELECT DISTINCT function_name FROM duckdb_functions() WHERE database_name = '{}'"
    both = con.sql(f"{functions.format('ldp')} INTERSECT {functions.format('system')} ORDER BY ALL").fetchall()
    assert [name for (name,) in both] == ["mean", "median", "quantile", "row", "variance"]
    assert con.execute("SELECT mean(i), row(i, 1) FROM (SELECT 4 AS i) GROUP BY i").fetchone() == (4, (4, 1))
    with con.cursor() as own:
        own.execute("CREATE TEMP MACRO information(x) AS x + 1")
        assert own.execute("SELECT information(1)").fetchone() == (2,)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("ldp.ibu(city, city()) FILTER (WHERE region = 1)", "CASE WHEN c THEN report END"),
        ("ldp.ibu(DISTINCT city, city())", "DISTINCT, FILTER and ORDER BY"),
        ("ldp.counts(city) OVER (PARTITION BY region)", "GROUP BY k"),
    ],
)
def test_clauses_that_only_aggregates_of_duckdb_take_are_explained(call: str, said: str) -> None:
    setup = (
        "CREATE MACRO city() AS ldp.krr(1, range(4)); CREATE TABLE r AS SELECT i AS region, i % 4 AS city FROM range(9) t(i)"
    )
    explained = run("sql", ":memory:", "-c", f"{setup}; SELECT {call} FROM r").stderr
    assert "[LDP903]" in explained
    assert said in explained


def test_macros_of_the_user_named_like_functions_of_duckdb_change_no_answer() -> None:
    names = "any_value cast_to_type error from_json histogram len list lower map map_keys map_values sum typeof"
    with ldpsql.connect() as con:
        con.execute("CREATE TABLE people AS SELECT ['a', 'b'][1 + i % 2] AS city, i // 9 AS day, i AS paid FROM range(90) t(i)")
        con.execute(
            "CREATE MACRO city() AS ldp.krr(1, ['a', 'b']); CREATE TABLE r AS FROM ldp.perturb_rows(people, {city: city()})"
        )
        con.execute("CREATE TABLE days AS SELECT ldp.perturb(city, city()) AS city, day, paid FROM people")
        asked = [
            "SELECT ldp.counts(c) FROM (SELECT ldp.counts(city) AS c FROM days GROUP BY day)",
            "FROM ldp.estimate(days, city, city())",
            "SELECT ldp.outcome(city, city(), paid) FROM days",
            "SELECT ldp.ibu(city) FROM r",
        ]
        before = [con.execute(statement).fetchall() for statement in asked]
        for name in names.split():
            con.execute(f"CREATE MACRO {name}(x, y := 1) AS 'of the user'")
        assert [con.execute(statement).fetchall() for statement in asked] == before
        assert len(con.execute("FROM ldp.perturb_rows(people, {city: city()})").fetchall()) == 90


def test_macros_call_every_function_of_duckdb_by_its_qualified_name() -> None:
    """DuckDB itself writes lists, structs and comprehensions as calls, and a macro cannot hide its table functions."""
    written = {"list_value", "struct_pack", "list_filter", "unnest"}
    with ldpsql.connect() as con:
        known = (
            "SELECT DISTINCT function_name FROM duckdb_functions() WHERE internal AND function_type IN ('scalar', 'aggregate')"
        )
        names = {name for (name,) in con.execute(known).fetchall()} - written
        kept = "SELECT macro_definition FROM duckdb_functions() WHERE database_name = 'ldp' AND macro_definition IS NOT NULL"
        texts = [re.sub("'[^']*'", "''", text) for (text,) in con.execute(kept).fetchall()]
    called = {name.lower() for text in texts for name in re.findall(r'(?<![\w."])"?(\w+)"?\(', text)}
    assert sorted(called & names) == []


@pytest.mark.parametrize(
    "name", ["list_value", "LIST_VALUE", "struct_pack", "struct_extract", "array_extract", "||", "<<", "contains"]
)
def test_attaching_warns_of_a_macro_that_duckdb_calls_by_itself(name: str) -> None:
    with duckdb.connect() as con:
        con.execute(f'CREATE MACRO "{name}"(x, y) AS 1; CREATE MACRO map_of(x) AS x')
        with pytest.warns(PrivacyLeakWarning, match=rf"the macro main\.{re.escape(name)}: .*another name") as warned:
            ldpsql.attach(con)
        assert len(warned) == 1


def test_lint_lists_a_macro_that_duckdb_calls_by_itself(con: DuckDBPyConnection) -> None:
    with con.cursor() as own:
        own.execute("CREATE MACRO len(x) AS 3")
        assert ("macro", "main.len") in own.sql("SELECT kind, name FROM ldp.lint()").fetchall()
        own.execute("DROP MACRO len")
