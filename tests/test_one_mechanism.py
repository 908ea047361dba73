"""One mechanism for a whole statement: a mechanism that is made from the value, or changes between users, is refused."""

from __future__ import annotations

import duckdb
import pytest
from duckdb import DuckDBPyConnection

from ldpsql.engine.functions import Statements
from ldpsql.errors import NotPrivate
from tests.commands import run


@pytest.fixture(params=["optimizer", "no optimizer"])
def sorted_by_city(con: DuckDBPyConnection, request: pytest.FixtureRequest) -> DuckDBPyConnection:
    """Return a connection to people whose cities change only where a vector of 2,048 rows ends."""
    con.execute("CREATE TABLE people AS SELECT i, ['Lima', 'Oslo', 'Rome'][1 + i // 4096] AS city FROM range(12288) t(i)")
    con.execute(
        "CREATE TABLE mechanisms AS SELECT 1 AS k, city() AS m UNION ALL SELECT 2, ldp.krr(2, ['Lima', 'Oslo', 'Rome'])"
    )
    if request.param == "no optimizer":
        con.execute("PRAGMA disable_optimizer")
    return con


MADE_FROM_ROWS = [
    "SELECT ldp.perturb(city, ldp.krr(0.1, [city, 'none'])) FROM people",
    "SELECT ldp.perturb(city, ldp.krr(0.1, [city, 'none'])) FROM people ORDER BY city",
    "SELECT ldp.perturb(city, ldp.krr(0.1, ['Lima', 'Oslo', 'Rome', 'none'], outside := 'as:' || city)) FROM people",
    "SELECT ldp.perturb(city, ldp.krr(CASE city WHEN 'Lima' THEN 3 ELSE 0.5 END, ['Lima', 'Oslo', 'Rome'])) FROM people",
    "SELECT ldp.perturb(city, ldp.krr((1 + i // 4096) / 10, ['Lima', 'Oslo', 'Rome'])) FROM people",
    "SELECT ldp.perturb(city, ldp.oue(0.1, [city, 'none'])) FROM people",
    "SELECT ldp.perturb(city, MAP {'a': ldp.krr(0.1, [city, 'none'])}, 'a') FROM people",
    "SELECT ldp.perturb(city, m) FROM people JOIN (SELECT c, ldp.krr(0.1, [c, 'none']) AS m "
    "FROM (VALUES ('Lima'), ('Oslo'), ('Rome')) v(c)) ON c = city",
    "SELECT ldp.perturb(city, (SELECT ldp.krr(0.1, [c, 'none']) FROM (VALUES ('Lima'), ('Oslo'), ('Rome')) v(c) "
    "WHERE c = city)) FROM people",
    "SELECT list_transform(list(city), lambda c: ldp.perturb(c, ldp.krr(0.1, [c, 'none']))) FROM people",
]


@pytest.mark.parametrize("sql", MADE_FROM_ROWS)
def test_a_mechanism_that_changes_between_vectors_is_refused_and_nothing_is_stored(
    sorted_by_city: DuckDBPyConnection, sql: str
) -> None:
    with pytest.raises(duckdb.Error, match=r"LDP301.*MAP"):
        sorted_by_city.execute(f"CREATE TABLE r AS {sql}")
    assert sorted_by_city.execute("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'r'").fetchone() == (0,)


ONE_MECHANISM = [
    "SELECT ldp.perturb(city, city()), ldp.perturb(i % 2, ldp.krr(1, [0, 1])) FROM people",
    "SELECT ldp.perturb(city, (SELECT city())) FROM people",
    "WITH one AS (SELECT city() AS m) SELECT ldp.perturb(city, one.m) FROM people, one",
    "SELECT ldp.perturb(city, (SELECT m FROM mechanisms WHERE k = 2)) FROM people",
    "SELECT ldp.perturb(city, m) FROM people JOIN mechanisms ON k = (i >= 0)::INT",
    "SELECT ldp.perturb(city, getvariable('m')) FROM people",
    "SELECT ldp.perturb(city, city()) FROM people UNION ALL "
    "SELECT ldp.perturb(city, ldp.krr(2, ['Lima', 'Oslo', 'Rome'])) FROM people",
    "SELECT ldp.perturb(city, MAP {0: city(), 1: ldp.krr(2, ['Lima', 'Oslo', 'Rome', 'Kyiv'])}, i % 2) FROM people",
    "SELECT x FROM people, LATERAL (SELECT ldp.perturb(c, city()) AS x FROM (SELECT people.city AS c))",
]


@pytest.mark.parametrize("sql", ONE_MECHANISM)
def test_one_mechanism_may_come_from_anywhere(sorted_by_city: DuckDBPyConnection, sql: str) -> None:
    sorted_by_city.execute("SET VARIABLE m = city()")
    drawn = sorted_by_city.execute(f"SELECT count(*) FROM ({sql})").fetchone()
    assert drawn in ((12288,), (24576,))


def test_a_prepared_statement_may_have_another_mechanism_each_time(sorted_by_city: DuckDBPyConnection) -> None:
    for mechanism in ("$1", "(SELECT $1)"):
        sorted_by_city.execute(f"PREPARE p AS SELECT count(ldp.perturb(city, {mechanism})) FROM people")
        for argument in ("city()", "ldp.krr(2, ['Lima', 'Oslo', 'Rome'])"):
            assert sorted_by_city.execute(f"EXECUTE p({argument})").fetchone() == (12288,)


def test_statements_remember_what_they_began_with_until_others_take_the_place() -> None:
    statements = Statements(kept=2)
    for expression in ("a", "b"):
        statements.check(expression, 1, 7)
    with pytest.raises(NotPrivate):
        statements.check("a", 1, 8)
    statements.check("a", 2, 8)  # another transaction; "b" is forgotten
    statements.check("b", 1, 9)


SETUP = "CREATE TABLE people AS SELECT 'Lima' AS city FROM range(400); CREATE MACRO city() AS ldp.krr(1, ['Lima', 'Oslo'])"
LATERAL = "SELECT count(DISTINCT x) > 1 FROM people, LATERAL (SELECT ldp.perturb(people.city, city()) AS x)"


def test_the_command_line_says_what_to_write_instead() -> None:
    explained = run("sql", ":memory:", "-c", f"{SETUP}; SELECT ldp.ibu(city, city) FROM people").stderr
    assert "[LDP104]" in explained
    assert "city()" in explained


@pytest.mark.skipif(duckdb.__version__ == "2.0.0", reason="DuckDB 2.0.0 fails")
def test_lateral_draws_for_each_row(con: DuckDBPyConnection) -> None:
    con.execute("CREATE TABLE people AS SELECT 'Lima' AS city FROM range(400)")
    assert con.execute(LATERAL).fetchall() == [(True,)]  # all 400 equal: less than 1e-54


@pytest.mark.skipif(duckdb.__version__ != "2.0.0", reason="later versions of DuckDB draw")
def test_what_duckdb_2_0_0_cannot_run_is_explained() -> None:
    explained = run("sql", ":memory:", "-c", f"{SETUP}; {LATERAL}").stderr
    assert "[LDP903]" in explained
    assert "LATERAL" in explained


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT ldp.perturb('a', city())",
        "SELECT ldp.ibu('a', city())",
        "FROM ldp.perturb_rows(people, {city: city()})",
        "SELECT ldp.perturb([{key: 'a', value: 0.5}], ratings())",
        "SELECT ldp.key_value({key: 'a', sign: 1::TINYINT}, ratings())",
    ],
)
def test_a_statement_computes_its_mechanism_once(con: DuckDBPyConnection, statement: str) -> None:
    computed: list[int] = []
    con.create_function("item", lambda n: computed.append(n) or "a", ["INTEGER"], "VARCHAR")  # type: ignore[func-returns-value]
    con.execute(
        "CREATE OR REPLACE MACRO city() AS ldp.krr(1, [item(0), 'b']); CREATE OR REPLACE TABLE people AS SELECT 'a' AS city"
    )
    con.execute("CREATE OR REPLACE MACRO ratings() AS ldp.pckv_grr(1, [item(0), 'b'], padding := 2)")
    con.execute(statement).fetchall()
    assert computed == [0]


ALIKE = [
    ("ldp.krr(1, ['a'::ENUM('a', 'b'), 'b'])", "ldp.krr(1, ['c'::ENUM('c', 'd'), 'd'])"),
    ("ldp.krr(1, [1, 2])", "ldp.krr(1, [1, 2]::DOUBLE[])"),
    ("ldp.krr(1, ['a', 'b'])", "ldp.krr(1, ['a', 'b'], nulls := 'as:a')"),
    ("ldp.krr(1, ['ab', 'c'])", "ldp.krr(1, ['a', 'bc'])"),
]


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_mechanisms_that_look_alike_are_read_apart(con: DuckDBPyConnection, one: str, other: str) -> None:
    handles = "SELECT __ldp_mechanism({}), __ldp_mechanism({}), __ldp_mechanism({})"
    first, second, again = con.execute(handles.format(one, other, one)).fetchall()[0]
    assert first == again != second


@pytest.mark.parametrize("kind", ["VARCHAR", "DOUBLE", "BIGINT", "DECIMAL(5, 2)", "ENUM ('1', '2', '3')", "TIMESTAMPTZ"])
def test_a_mechanism_of_a_row_is_never_that_of_the_row_before(con: DuckDBPyConnection, kind: str) -> None:
    value = "TIMESTAMPTZ '2026-01-01' + to_days({})" if kind == "TIMESTAMPTZ" else f"('{{}}')::{kind}"
    lists = [f"[{', '.join(map(value.format, given))}]" for given in ("12", "12", "13", "21", "123", "12", "123")]
    described = "ldp.describe(ldp.krr(1, {})).fingerprint".format
    alone = [con.execute(f"SELECT {described(one)}").fetchall()[0] for one in lists]
    con.execute(f"CREATE TABLE lists AS SELECT unnest(range({len(lists)})) AS i, unnest([{', '.join(lists)}]) AS d")
    assert con.execute(f"SELECT {described('d')} FROM lists ORDER BY i").fetchall() == alone
    assert len(set(alone)) == 4
