"""What would redraw is found, whatever way it calls the functions, and nothing else is."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path

import duckdb
import pytest
from duckdb import DuckDBPyConnection
from typer.testing import CliRunner

import ldpsql
from ldpsql import certify
from ldpsql.errors import PrivacyLeakWarning, SourceRefused
from ldpsql.functions import Scalar, registry
from ldpsql.polars import LdpExpr, LdpFrame
from ldpsql.sql.drawing import IN_PYTHON, DrawingFunctions, Draws, statements
from ldpsql.sql.lint import lint
from ldpsql.sql.scripts import MACROS
from tests.commands import app, printed

REDRAWS = {
    "plain": "CREATE VIEW v AS SELECT ldp.perturb(city, city()) FROM people",
    "quoted": 'CREATE VIEW v AS SELECT "ldp"."perturb"(city, city()) FROM people',
    "upper case": "CREATE VIEW v AS SELECT LDP.PERTURB(city, city()) FROM people",
    "through a macro": "CREATE MACRO noisy(x) AS ldp.perturb(x, city()); CREATE VIEW v AS SELECT noisy(city) FROM people",
    "through two": """CREATE MACRO noisy(x) AS ldp.perturb(x, city());
        CREATE MACRO noisier(x) AS TABLE SELECT noisy(x); CREATE VIEW v AS FROM noisier('Lima')""",
    "below": "CREATE VIEW v AS WITH r AS (SELECT ldp.perturb(city, city()) AS c FROM people) SELECT ldp.ibu(c, city()) FROM r",
    "generated": "CREATE TABLE v (city VARCHAR, report VARCHAR GENERATED ALWAYS AS (ldp.perturb(city, city())))",
    "check": "CREATE TABLE v (city VARCHAR CHECK (ldp.perturb(city, city()) = 'Lima'))",
    "temporary": "CREATE TEMP VIEW v AS SELECT ldp.perturb(city, city()) FROM people",
    "through a temporary macro": """CREATE TEMP MACRO noisy(x) AS ldp.perturb(x, city());
        CREATE TEMP VIEW v AS SELECT noisy(city) FROM people""",
    "query of a string": "CREATE VIEW v AS FROM query('SELECT ldp.perturb(city, city()) FROM people')",
    "query in a query": """CREATE VIEW v AS FROM query('FROM query(''SELECT ldp.perturb(city, city()) FROM people'')')""",
    "serialised plan": """CREATE VIEW v AS FROM
        json_execute_serialized_sql(json_serialize_sql('SELECT ldp.perturb(city, city()) FROM people'))""",
    "query of no constant": "CREATE VIEW v AS FROM query('SELECT ldp.per' || 'turb(city, city()) FROM people')",
    "query in a macro": """CREATE MACRO run(s) AS TABLE FROM query(s);
        CREATE VIEW v AS FROM run('SELECT ldp.perturb(city, city()) FROM people')""",
    "dashes in a string": "CREATE VIEW v AS SELECT '--' AS d, ldp.perturb(city, city()) FROM people",
    "macro of a table": "CREATE MACRO v() AS TABLE SELECT ldp.perturb(city, city()) FROM people",
    "temporary macro of a table": "CREATE TEMP MACRO v() AS (SELECT ldp.perturb(max(city), city()) FROM people)",
}
SOUND = {
    "estimate": "CREATE VIEW v AS SELECT ldp.ibu(city, city()) FROM people",
    "permanent": "CREATE VIEW v AS SELECT ldp.perturb_once(city, city(), 1) FROM people",
    "budget": "CREATE VIEW v AS FROM ldp.budget()",
    "text": "CREATE VIEW v AS SELECT 'ldp.perturb(city)' AS c, city AS perturb FROM people",
    "table": "CREATE TABLE v AS SELECT ldp.perturb(city, city()) AS city FROM people",
    "generated": "CREATE TABLE v (city VARCHAR, short VARCHAR GENERATED ALWAYS AS (lower(city)))",
    "default, drawn once": "CREATE TABLE v (city VARCHAR DEFAULT (ldp.perturb('Lima', city())))",
    "macro of its arguments": "CREATE MACRO v(x) AS TABLE WITH w AS (SELECT ldp.perturb(x, city()) AS y) FROM w",
    "macro of any table": "CREATE MACRO v(t) AS TABLE SELECT ldp.perturb(city, city()) FROM query_table(t)",
    "query": "CREATE VIEW v AS FROM query('SELECT city FROM people')",
    "name of a column list": """CREATE MACRO noisy(x) AS ldp.perturb(x, city());
        CREATE VIEW v AS WITH noisy(a) AS (SELECT 1) SELECT * FROM noisy""",
}
# What a file says, and the line and kind of each finding.
SCRIPTS = {
    "sorted": ("\nCREATE TABLE r AS SELECT ldp.perturb(city, m) FROM people", [(2, "statement")]),
    "shuffled": ("CREATE TABLE a.r AS (FROM people SELECT ldp.perturb(city, m)\nORDER BY random())", []),
    "sorted by another function": (
        "INSERT INTO r SELECT ldp.perturb(city, m) FROM people ORDER BY lower(city)",
        [(1, "statement")],
    ),
    "copied": ("-- '\nCOPY (SELECT '--', ldp.perturb(city, m) FROM people) TO 'r.csv'", [(2, "statement")]),
    "in place": ("UPDATE people SET city = ldp.perturb(city, m)", [(1, "statement")]),
    "one by one": ("INSERT INTO r VALUES (ldp.perturb('Lima', m)); PREPARE p AS INSERT INTO r SELECT ldp.perturb($1, m)", []),
    "prepared": ("PREPARE p AS INSERT INTO r SELECT ldp.perturb(city, m) FROM people", [(1, "prepared statement")]),
    "macro and view": (
        "CREATE MACRO noisy(x) AS ldp.perturb(x, m);\nCREATE OR REPLACE TEMP VIEW v AS SELECT noisy(city) FROM people;",
        [(2, "view")],
    ),
    "table macro": ("CREATE MACRO r() AS TABLE SELECT ldp.perturb(city, m) FROM people", [(1, "macro")]),
    "generated": ("CREATE TABLE v (city VARCHAR, r VARCHAR AS (ldp.perturb(city, m)))", [(1, "generated column or check")]),
    "default": ("CREATE TABLE v (city VARCHAR DEFAULT (ldp.perturb('Lima', m)))", []),
    "permanent": ("CREATE TABLE r AS SELECT ldp.perturb_once(city, m, id) FROM people", []),
    "beyond the parser": ("CREATE TABLE r AS PIVOT people ON city USING max(ldp.perturb(city, m))", [(1, "statement")]),
    "put together": ("FROM query('SELECT ' || x)", [(1, "statement")]),
    "broken": ("CREATE TABLE r AS SELECT ldp.perturb(city, m) FROM people WHERE city = 'Li", [(1, "statement")]),
    "only spoken of": ("/* ldp.perturb(x, m) */ SELECT 'ldp.perturb(x, m)' -- ldp.perturb(x, m)", []),
}
# What follows CREATE TABLE r AS, and how the only finding in it begins; an empty string for none.
STORED = {
    "value": ("SELECT city, ldp.perturb(city, m) AS r FROM people ORDER BY random()", "it stores the values"),
    "value by star": ("SELECT *, ldp.perturb(city, m) AS r FROM people ORDER BY random()", "it stores the values"),
    "value by COLUMNS": ("SELECT COLUMNS(*), ldp.perturb(city, m) FROM people ORDER BY random()", "it stores the values"),
    "value in an expression": (
        "SELECT lower(p.city), ldp.perturb(p.city, m) FROM people AS p ORDER BY random()",
        "it stores the values",
    ),
    "value in a subquery": (
        "FROM (SELECT id, city, ldp.perturb(city, m) AS r FROM people) ORDER BY random()",
        "it stores the values",
    ),
    "value joined again": (
        "WITH a AS (SELECT id, ldp.perturb(city, m) AS r FROM people) "
        "SELECT a.r, p.city FROM a JOIN people AS p USING (id) ORDER BY random()",
        "it stores the values",
    ),
    "value joined to rows": (
        "SELECT r.*, p.city FROM ldp.perturb_rows(people, {city: m}) AS r JOIN people AS p USING (id) ORDER BY random()",
        "it stores the values",
    ),
    "value of one of a row": (
        "SELECT age, ldp.perturb({city: city, age: age}, m) FROM people ORDER BY random()",
        "it stores the values",
    ),
    "value in a scalar subquery": (
        "SELECT p.city, (SELECT ldp.perturb(p.city, m)) FROM people AS p ORDER BY random()",
        "it stores the values",
    ),
    "left out": ("SELECT * EXCLUDE (city), ldp.perturb(city, m) FROM people ORDER BY random()", ""),
    "replaced": ("SELECT * REPLACE (ldp.perturb(city, m) AS city) FROM people ORDER BY random()", ""),
    "left out later": ("SELECT id, r FROM (SELECT *, ldp.perturb(city, m) AS r FROM people) ORDER BY random()", ""),
    "join": (
        "SELECT ldp.perturb(p.city, m) FROM people AS p JOIN visits USING (id) ORDER BY random()",
        "it perturbs rows after",
    ),
    "cross join": ("SELECT ldp.perturb(city, m) FROM people, range(2) ORDER BY random()", "it perturbs rows after"),
    "semi join": ("SELECT ldp.perturb(p.city, m) FROM people AS p SEMI JOIN visits USING (id) ORDER BY random()", ""),
    "one row": ("SELECT ldp.perturb(city, m) FROM people, (SELECT max(day) FROM visits) ORDER BY random()", ""),
    "union": (
        "FROM (SELECT ldp.perturb(city, m) FROM people UNION ALL SELECT ldp.perturb(city, m) FROM people) ORDER BY random()",
        "both sides of UNION",
    ),
    "union of two tables": (
        "FROM (SELECT ldp.perturb(city, m) FROM people UNION ALL SELECT ldp.perturb(city, m) FROM others) ORDER BY random()",
        "",
    ),
    "inlined CTE": (
        "WITH a AS NOT MATERIALIZED (SELECT id, ldp.perturb(city, m) AS r FROM people) "
        "SELECT x.r FROM a AS x JOIN a AS y USING (id) ORDER BY random()",
        "a CTE that is NOT",
    ),
    "recursive CTE": (
        "WITH RECURSIVE a AS (SELECT id, city, ldp.perturb(city, m) AS r FROM people UNION ALL SELECT id, city, r FROM a) "
        "SELECT city, r FROM a ORDER BY random()",
        "it stores the values",
    ),
    "names of a CTE": ("WITH a(v, w) AS (SELECT city, ldp.perturb(city, m) FROM people) SELECT w FROM a ORDER BY random()", ""),
    "CTE": (
        "WITH a AS (SELECT id, ldp.perturb(city, m) AS r FROM people) "
        "SELECT x.r FROM a AS x JOIN a AS y USING (id) ORDER BY random()",
        "",
    ),
    "predicate": ("SELECT ldp.perturb(city, m) FROM people WHERE city = 'Lima' ORDER BY random()", "it chooses rows"),
    "predicate in a subquery": (
        "SELECT ldp.perturb(city, m) FROM (FROM people WHERE city < 'M') ORDER BY random()",
        "it chooses rows",
    ),
    "first by value": (
        "SELECT ldp.perturb(city, m) FROM (FROM people ORDER BY city LIMIT 3) ORDER BY random()",
        "it chooses rows",
    ),
    "no NULLs": ("SELECT ldp.perturb(city, m) FROM people WHERE city IS NOT NULL AND age > 17 ORDER BY random()", ""),
    "mechanism of the value": (
        "SELECT ldp.perturb(age, ldp.krr(age / 10, range(100))) FROM people ORDER BY random()",
        "it makes a mechanism",
    ),
    "ordered by the report": ("SELECT ldp.perturb(city, m) AS r FROM people ORDER BY r", ""),
    "ordered by all": ("SELECT region, ldp.perturb(city, m) AS r FROM people ORDER BY 2, region DESC", ""),
    "not ordered by all": ("SELECT region, ldp.perturb(city, m) AS r FROM people ORDER BY r", "it stores reports in the order"),
    "a macro named like a function": ("SELECT ldp.perturb(day, day()) FROM people ORDER BY random()", ""),
}
# Texts in which a comment is not what it seems to be, or a string, or a name.
LEXED = [
    r"SELECT '\' AS a, f(x), ' '",
    "SELECT /* /* */ f(x) /* */ */ g(1)",
    "SELECT $a$ ' $a$, f(x) -- g(x)",
    "SELECT e'\\'', f(x), 'a'",
    "SELECT 1--2\n, f(x)",
    'SELECT "f" (x), "a""b"(x), `g`(x), F/* c */(x)',
    "SELECT 'é', f(x), 'ü', \u200bg\u3000(x)",
    "SELECT 'a'\n'b', x'ab', b'1', f(x), x.g(1), [h(x) FOR x IN y]",
    "SELECT 1 //* 2 */ f(x)",
    "SELECT 1 -- /* \n, f(x) -- */",
]


@pytest.fixture
def people(con: DuckDBPyConnection) -> DuckDBPyConnection:
    con.execute("CREATE TABLE people AS SELECT 'Lima' AS city")
    return con


def linted_files(folder: Path) -> list[tuple[int, str]]:
    """Return line and kind of each finding in the files of a folder."""
    rows = json.loads(printed("lint", str(folder), "--format", "json"))
    return [(row["line"], row["kind"]) for row in rows]


@pytest.mark.parametrize("statement", REDRAWS.values(), ids=REDRAWS.keys())
def test_what_redraws_is_found(people: DuckDBPyConnection, statement: str) -> None:
    people.execute(statement)
    assert [finding.name for finding in lint(people)] == ["main.v"]


@pytest.mark.parametrize("statement", SOUND.values(), ids=SOUND.keys())
def test_what_does_not_is_left_alone(people: DuckDBPyConnection, statement: str) -> None:
    people.execute(statement)
    assert lint(people) == []


def test_a_prepared_statement_of_stored_rows_is_found(people: DuckDBPyConnection) -> None:
    people.execute("PREPARE one AS SELECT ldp.perturb($1, city())")
    people.execute("PREPARE all_of_them AS SELECT ldp.perturb(city, city()) FROM people")
    assert [(finding.kind, finding.name) for finding in lint(people)] == [("prepared statement", "all_of_them")]


def test_an_open_result_is_not_ended_and_what_it_hides_is_named(people: DuckDBPyConnection) -> None:
    people.execute("CREATE VIEW v AS SELECT ldp.perturb(city, city()) FROM people")
    people.execute("SELECT 7")
    assert [finding.kind for finding in lint(people)] == ["view", "connection"]
    assert people.fetchall() == [(7,)]


@pytest.mark.parametrize("draw", ["ldp.perturb(city, city())", "noisy(city)"])
def test_duckdb_itself_refuses_triggers_and_indexes_that_perturb(people: DuckDBPyConnection, draw: str) -> None:
    people.execute("CREATE TABLE r AS FROM people; CREATE MACRO noisy(x) AS ldp.perturb(x, city())")
    with pytest.raises(duckdb.BinderException, match="different catalog"):
        people.execute(f"CREATE TRIGGER t AFTER INSERT ON people FOR EACH STATEMENT INSERT INTO r SELECT {draw} FROM people")
    with pytest.raises(duckdb.BinderException, match="side effects"):
        people.execute(f"CREATE INDEX i ON people ({draw})")


@pytest.mark.parametrize("text", LEXED)
def test_the_functions_that_a_text_calls_are_those_that_duckdb_reads(text: str) -> None:
    (serialized,) = duckdb.execute("SELECT json_serialize_sql(?)", [text]).fetchall()[0]
    called = set(re.findall(r'"function_name":"((?:\\.|[^"\\])*)"', serialized)) - {"list_apply", "/"}
    (statement,) = statements(text)
    assert statement.calls == {json.loads(f'"{name}"').lower() for name in called}


def test_a_volatile_function_of_the_registry_draws_unless_it_says_otherwise() -> None:
    volatile = [f for _, offered in registry().functions() for f in offered if isinstance(f, Scalar) and f.volatile]
    drawing = {f.name for f in volatile if DrawingFunctions().of(f"SELECT {f.name}(x)") is Draws.REPORTS}
    others = {"__ldp_budget", "__ldp_declarations", "__ldp_declare", "__ldp_order", "__ldp_parts"}
    assert {f.name for f in volatile if not f.name.startswith("__ldp_once")} - drawing == others
    assert not {f.name for f in volatile if f.name.startswith("__ldp_once")} & drawing  # permanent reports
    assert {"__ldp_perturb", "__ldp_perturb_words", "__ldp_perturb_hashed"} <= drawing


@pytest.mark.parametrize(
    ("volatile", "draws", "settled"),
    [
        (False, None, (False, False)),
        (True, None, (True, True)),
        (True, False, (True, False)),
        (False, True, (True, True)),
    ],
)
def test_what_draws_is_volatile_and_what_is_volatile_draws_unless_it_says_otherwise(
    volatile: bool, draws: bool | None, settled: tuple[bool, bool]
) -> None:
    scalar = Scalar("__ldp_made", len, "BIGINT", volatile=volatile, draws=draws)
    assert (scalar.volatile, scalar.draws) == settled


@pytest.mark.parametrize(("text", "expected"), SCRIPTS.values(), ids=SCRIPTS.keys())
def test_what_gives_values_away_is_found_in_files(tmp_path: Path, text: str, expected: list[tuple[int, str]]) -> None:
    (tmp_path / "a.sql").write_text(text, encoding="utf-8")
    assert linted_files(tmp_path) == expected


@pytest.mark.parametrize(("query", "problem"), STORED.values(), ids=STORED.keys())
@pytest.mark.parametrize("statement", ["CREATE TABLE r AS {}", "INSERT INTO r {}", "COPY ({}) TO 'r.parquet'"])
def test_values_next_to_reports_and_rows_that_are_drawn_twice_are_found(
    tmp_path: Path, statement: str, query: str, problem: str
) -> None:
    (tmp_path / "a.sql").write_text(statement.format(query))
    problems = [row["problem"] for row in json.loads(printed("lint", str(tmp_path), "--format", "json"))]
    assert [found.startswith(problem) for found in problems] == [True] * bool(problem), problems


@pytest.mark.parametrize("made", ["CREATE VIEW v AS", "CREATE MACRO v() AS TABLE"])
def test_what_stores_nothing_is_not_said_to_store_values(tmp_path: Path, made: str) -> None:
    (tmp_path / "a.sql").write_text(f"{made} SELECT city, ldp.perturb(city, m) FROM people")
    (finding,) = json.loads(printed("lint", str(tmp_path), "--format", "json"))
    assert "draws new reports" in finding["problem"]


def test_many_columns_through_many_queries_are_read_once_each(tmp_path: Path) -> None:
    columns = ", ".join(f"c{i}" for i in range(30))
    query = f"SELECT {columns}, ldp.perturb(city, m) AS r FROM people"
    for _ in range(20):
        query = f"SELECT {columns}, r FROM ({query})"
    (tmp_path / "a.sql").write_text(f"CREATE TABLE t AS {query} ORDER BY random()")
    assert linted_files(tmp_path) == []


def test_a_model_is_read_and_what_is_allowed_on_purpose_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "model.sql").write_text("SELECT city, ldp.perturb(city, m) FROM {{ ref('people') }} ORDER BY random()")
    (tmp_path / "on_purpose.sql").write_text(
        "CREATE TABLE r AS SELECT city, ldp.perturb(city, m) /* ldpsql: allow */ FROM people ORDER BY random()"
    )
    found = json.loads(printed("lint", str(tmp_path), "--format", "json"))
    assert [Path(row["file"]).name for row in found] == ["model.sql"]


def test_macros_of_one_file_are_seen_in_another_and_the_exit_code_says_so(tmp_path: Path) -> None:
    (tmp_path / "macros.sql").write_text("CREATE FUNCTION noisy(x) AS ldp.perturb(x, ldp.m.city());")
    sound = CliRunner().invoke(app, ["lint", str(tmp_path), "--format", "json"])
    assert (sound.exit_code, json.loads(sound.stdout)) == (0, [])
    (tmp_path / "reports.sql").write_text("\n\nCREATE TABLE r AS SELECT noisy(city) FROM people;")
    leaky = CliRunner().invoke(app, ["lint", str(tmp_path), "--format", "jsonl"])
    row = json.loads(leaky.stdout)
    assert (leaky.exit_code, row["file"], row["line"]) == (3, str(tmp_path / "reports.sql"), 3)
    assert row["remedy"].endswith("end the query with ORDER BY random()")


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "latin.sql").write_bytes("SELECT 'é'".encode("latin-1"))
    for path in (tmp_path / "latin.sql", tmp_path / "none.sql", tmp_path / "empty"):
        (tmp_path / "empty").mkdir(exist_ok=True)
        with pytest.raises(SourceRefused):
            printed("lint", str(path))


def test_attach_warns_of_what_is_in_the_file(tmp_path: Path) -> None:
    with ldpsql.connect(str(tmp_path / "db")) as con:
        con.execute("CREATE VIEW v AS SELECT ldp.perturb('a', ldp.krr(1, ['a', 'b']))")
    with duckdb.connect(str(tmp_path / "db"), read_only=True) as con, pytest.warns(PrivacyLeakWarning, match=r"view main\.v"):
        ldpsql.attach(con)


def test_a_large_epsilon_is_warned_of_once() -> None:
    mechanism = registry().mechanism("krr(epsilon=8.125, domain=['a', 'b', 'c'])")
    with pytest.warns(PrivacyLeakWarning, match="epsilon 8.125 protects very little"):
        certify(mechanism)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        certify(mechanism)
        certify(registry().mechanism("krr(epsilon=8, domain=['a', 'b', 'c'])"))


@pytest.mark.parametrize("mechanism", ["oue", "olh", "subset_selection"])
def test_reports_are_not_perturbed_again_if_their_type_identifies_them(con: DuckDBPyConnection, mechanism: str) -> None:
    con.execute(f"CREATE MACRO m() AS ldp.{mechanism}(1, ['a', 'b', 'c'])")
    con.execute("CREATE TABLE reports AS SELECT ldp.perturb('a', m()) AS report")
    with pytest.raises(duckdb.InvalidInputException, match="LDP304"):
        con.execute("SELECT ldp.perturb(report, m()) FROM reports").fetchall()


@pytest.mark.parametrize(
    ("sql", "kinds"),
    [
        ("SELECT ldp.perturb(city, city()) IN ('Lima', 'Oslo') FROM people", ["statement"]),
        ("SELECT ldp.perturb(city, city()) NOT IN ('Lima', 'Oslo') FROM people", ["statement"]),
        ("SELECT ldp.perturb(city, city()) IN ['Lima', 'Oslo'] FROM people", ["statement"]),
        ("SELECT nullif(ldp.perturb(city, city()), 'Lima') FROM people", ["statement"]),
        ("SELECT list_contains(['Lima', 'Oslo'], ldp.perturb(city, city())) FROM people", ["statement"]),
        ("SELECT ['Lima', 'Oslo'].list_has(ldp.perturb(city, city())) FROM people", ["statement"]),
        ("SELECT CASE ldp.perturb(city, city()) WHEN 'Lima' THEN 1 WHEN 'Oslo' THEN 2 END FROM people", ["statement"]),
        ("SELECT split_part(ldp.perturb(city, city()), 'i', 1) FROM people", ["statement"]),
        ("CREATE MACRO southern(c) AS ldp.perturb(c, city()) IN ('Lima', 'Quito')", ["macro"]),
        ("SELECT ldp.perturb(city, city()) = 'Lima' FROM people WHERE country IN ('pe', 'no')", []),
        ("SELECT ldp.perturb(nullif(city, 'none'), city()) FROM people", []),
        ("SELECT ldp.perturb(city, city()) IN (SELECT name FROM capitals) FROM people", []),
        ("SELECT ldp.perturb(city, city()) IN ('Lima') FROM people", []),
        ("SELECT CASE WHEN a THEN 1 WHEN b THEN 2 ELSE ldp.perturb(3, city()) END FROM people", []),
        ("SELECT city IN ('Lima', 'Oslo') FROM reports", []),
    ],
)
def test_draws_inside_of_expressions_that_duckdb_evaluates_several_times_are_found(
    tmp_path: Path, sql: str, kinds: list[str]
) -> None:
    (tmp_path / "q.sql").write_text(sql)
    assert [kind for _, kind in linted_files(tmp_path)] == kinds


def test_the_macros_of_duckdb_that_repeat_a_parameter_are_those_of_the_lint() -> None:
    of_the_catalog = {"format_pg_type", "format_type", "map_to_pg_oid", "map_type_id_to_pg_oid", "pg_get_constraintdef"}
    query = (
        "SELECT function_name, parameters, macro_definition FROM duckdb_functions() WHERE internal AND function_type = 'macro'"
    )
    with duckdb.connect() as con:
        repeated = {
            name
            for name, parameters, text in con.sql(query).fetchall()
            if any(len(re.findall(rf"(?<![\w.]){re.escape(parameter)}(?!\w)", text)) > 1 for parameter in parameters)
        }
    only_before_2_0_1 = {"fmod"}
    assert repeated - of_the_catalog | only_before_2_0_1 == MACROS


def test_the_python_functions_that_draw_are_listed() -> None:
    methods = {name for namespace in (LdpFrame, LdpExpr) for name in vars(namespace) if not name.startswith(("_", "estimate"))}
    assert {name for name in ldpsql.__all__ if name.startswith("perturb")} | methods == IN_PYTHON
