"""The query that other engines run: what DuckDB without ldpsql returns is what ldpsql returns."""

from __future__ import annotations

import types
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import jinja2
import numpy as np
import pytest
import sqlglot
from duckdb import DuckDBPyConnection
from sqlglot import exp
from typer.testing import CliRunner

import ldpsql
from ldpsql import hookimpl
from ldpsql.errors import DestinationRefused, IllConditioned, InvalidParameter, NotApplicable
from ldpsql.functions import registry
from tests import exported
from tests.commands import app, printed
from tests.test_backends import in_sqlite

CITIES = "krr(1, ['Lima', \"O'slo\", 'Rome', 'Kyiv'])"
# Counts of four reports: inside, on the border of the simplex, and with one value only.
COUNTS = ([4000, 3000, 2000, 1000], [9000, 400, 350, 250], [0, 0, 0, 50], [1, 0, 0, 0], [5, 5, 5, 5])
FIELDS = ("estimate", "std_error", "low", "high")
DIALECTS = ("duckdb", "postgres", "sqlite", "datafusion", "clickhouse", "snowflake", "bigquery", "trino", "spark")


@cache
def query(
    text: str, table: str, column: str, *, n: str = "", by: tuple[str, ...] = (), dialect: str = "duckdb", name: str = ""
) -> str:
    """Return the query of a mechanism."""
    keys = [word for key in by for word in ("--by", key)]
    options = ["--dialect", dialect, "--table", table, "--column", column, "--counts", n, "--name", name, *keys]
    return printed("export-sql", "--mechanism", text, *options)


def reports_of(counts: list[int], text: str = CITIES) -> list[object]:
    values = registry().mechanism(text).values().listed.values.to_pylist()
    return [value for value, count in zip(values, counts, strict=True) for _ in range(count)]


def ours(reports: list[object], estimator: str, text: str = CITIES) -> np.ndarray:
    estimate = ldpsql.estimate(reports, text, f"{estimator}(misfit='allow')")
    return np.array([getattr(estimate, field) for field in FIELDS]).T


@pytest.mark.parametrize("counts", COUNTS)
def test_duckdb_without_ldpsql_returns_the_same_to_twelve_digits(counts: list[int]) -> None:
    with duckdb.connect() as con:
        con.execute("CREATE TABLE reports (city VARCHAR)")
        reports = reports_of(counts)
        con.executemany("INSERT INTO reports VALUES (?)", [[report] for report in reports[:60]] + [[None]])
        con.execute("CREATE TABLE counted (city VARCHAR, n INTEGER)")
        values = dict.fromkeys(reports)
        con.executemany("INSERT INTO counted VALUES (?, ?)", [[value, reports.count(value)] for value in values])
        rows = con.execute(query(CITIES, "counted", "city", n="n")).fetchall()
        few = con.execute(query(CITIES, "main.reports", "city")).fetchall()
    _compare(rows, reports)
    _compare(few, reports[:60])


def _compare(rows: list[tuple[object, ...]], reports: list[object]) -> None:
    assert [row[0] for row in rows] == ["Lima", "O'slo", "Rome", "Kyiv"]
    assert {row[9:] for row in rows} == {(float(len(reports)), 0.0)}
    numbers = np.array([row[1:9] for row in rows], dtype=np.float64)
    np.testing.assert_allclose(numbers[:, :4], ours(reports, "ibu"), rtol=0, atol=1e-12)
    np.testing.assert_allclose(numbers[:, 4:], ours(reports, "inv"), rtol=0, atol=1e-12)


def test_every_group_is_estimated_by_itself_also_that_of_null(con: DuckDBPyConnection) -> None:
    con.execute("CREATE TABLE grouped (region VARCHAR, city VARCHAR)")
    for region, counts in zip(["north", None, "south"], COUNTS[1:4], strict=True):
        con.execute("INSERT INTO grouped SELECT ?, unnest(?)", [region, reports_of(counts)])
    con.execute("INSERT INTO grouped VALUES ('south', 'canary')")
    rows = con.execute(query(CITIES, "grouped", "city", by=("region",))).fetchall()
    for region, counts in zip(["north", None, "south"], COUNTS[1:4], strict=True):
        own = [row[1:] for row in rows if row[0] == region]
        assert {row[10] for row in own} == {1.0 if region == "south" else 0.0}  # impossible reports, which are left out
        np.testing.assert_allclose([row[1] for row in own], ours(reports_of(counts), "ibu")[:, 0], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "text",
    ["krr(1, [10, -20, 30])", "krr(1, [0.1, 2.5])", "krr(1, [true, false])", "krr('0.1', ['2024-01-31', '2024-02-01'])"],
)
def test_values_of_every_type_are_written(con: DuckDBPyConnection, text: str) -> None:
    reports = reports_of([3, 2, 1][: 3 if "30" in text else 2], text)
    con.execute(f"CREATE TABLE typed AS SELECT unnest({reports}) AS x")
    rows = con.execute(query(text, "typed", "x")).fetchall()
    np.testing.assert_allclose([row[1] for row in rows], ours(reports, "ibu", text)[:, 0], rtol=0, atol=1e-12)


def test_the_guide_names_every_column_of_the_query() -> None:
    guide = (Path(__file__).parents[1] / "docs" / "guides" / "hand-on.md").read_text(encoding="utf-8")
    with duckdb.connect() as con:
        con.execute("CREATE TABLE reports (city VARCHAR)")
        names = con.sql(query(CITIES, "reports", "city")).columns
    assert {"value", "estimate", "inverted", "impossible"} <= set(names)
    assert [name for name in names if f"`{name}`" not in guide] == []


def test_an_empty_table_has_no_rows() -> None:
    with duckdb.connect() as con:
        con.execute("CREATE TABLE reports (city VARCHAR)")
        assert con.execute(query(CITIES, "reports", "city")).fetchall() == []


@pytest.mark.parametrize(
    ("text", "key", "dialect"),
    [
        ("hierarchy(1, 0, 7, step := 1)", "region", "postgres"),
        ("olh(1, ['a', 'b'], seeds := 'private')", "region", "postgres"),
        (f"olh(1, {list(range(9000))})", "region", "postgres"),
        ("joint_krr(1, columns := {'a': [1, 2], 'b': [1, 2]})", "region", "postgres"),
        ("pckv(1, ['a', 'b'])", "region", "postgres"),
        ("square_wave(1, 0, 1, bins := 200)", "region", "postgres"),
        ("square_wave(0.1, 0, 1, bins := 100)", "region", "postgres"),
        (CITIES, "region", "oracle"),
        (CITIES, "value", "postgres"),
        (CITIES, "Reports", "postgres"),
        (f"krr(1, {list(range(20000))})", "region", "postgres"),
    ],
)
def test_what_has_no_query_is_refused(text: str, key: str, dialect: str) -> None:
    with pytest.raises((InvalidParameter, NotApplicable, IllConditioned)):
        query(text, "r", "x", by=(key,), dialect=dialect)


def test_a_key_with_the_name_of_a_column_of_the_query_is_refused(con: DuckDBPyConnection) -> None:
    con.execute("CREATE TABLE r AS SELECT 'Lima' AS x, 1 AS place, 2 AS n")
    columns = con.sql(query(CITIES, "r", "x", by=("place", "n"))).columns
    assert columns[:3] == ["place", "n", "value"]
    for name in columns[2:]:
        with pytest.raises(InvalidParameter, match="of its own"):
            query(CITIES, "r", "x", by=(name.upper(),))


def test_the_command_writes_a_view(tmp_path: Path) -> None:
    file = tmp_path / "city.sql"
    options = ["--dialect", "duckdb", "--table", "r", "-c", "city", "--by", "region", "--name", "shares", "-o", str(file)]
    assert CliRunner().invoke(app, ["export-sql", "-m", CITIES, *options]).exit_code == 0
    with duckdb.connect() as con:
        con.execute("CREATE TABLE r AS SELECT 1 AS region, 'Lima' AS city FROM range(10)")
        con.execute(file.read_text(encoding="utf-8"))
        assert con.execute("SELECT count(*) FROM shares").fetchall() == [(4,)]


def test_a_macro_of_dbt_is_the_query_of_its_argument_whatever_the_values() -> None:
    text = "krr(1, ['{{ reports }}', '{% endmacro %}', '{# ldp', 'reports'])"
    dialects = ("duckdb", "bigquery")
    options = [word for dialect in dialects for word in ("--dialect", dialect)]
    macro = printed("export-sql", "-m", text, "-c", "city", "--by", "{{", "--macro", "shares", "--table", "given", *options)
    template = jinja2.Environment().from_string(macro)
    for dialect in dialects:
        called = getattr(template.module, f"{dialect}__shares")(exp.to_identifier("raw", quoted=True).sql(dialect))
        assert called.strip() + ";" == query(text, "raw", "city", by=("{{",), dialect=dialect).strip()


@pytest.mark.parametrize(
    "options",
    [
        ("--dialect", "duckdb", "--dialect", "postgres"),
        ("--macro", "city shares"),
        ("--macro", "shares", "--table", "lake.reports"),
        ("--macro", "shares", "--name", "view"),
    ],
)
def test_what_is_no_macro_is_refused(options: tuple[str, ...]) -> None:
    with pytest.raises(InvalidParameter, match="macro"):
        printed("export-sql", "-m", CITIES, *options)


def test_a_query_never_overwrites_a_database(tmp_path: Path) -> None:
    path = tmp_path / "people.duckdb"
    with duckdb.connect(path) as con:
        con.execute("CREATE TABLE people AS SELECT 1 AS id")
    outcome = CliRunner().invoke(app, ["export-sql", "-m", CITIES, "--dialect", "postgres", "-o", str(path)])
    assert isinstance(outcome.exception, DestinationRefused)
    with duckdb.connect(path) as con:
        assert con.sql("FROM people").fetchall() == [(1,)]


# Mechanisms whose inversion is linear in counts, and a value for each number.
LINEAR = {
    f"oue(1, {list(range(70))})": "i % 9",
    f"oue(1, {list(range(64))})": "i % 9",
    "rappor(2, ['a', 'b', 'c'])": "'abc'[1 + i % 3]",
    "subset_selection(1, [1, 2, 3, 4, 5])": "1 + i % 4",
    "encoding(1, ['a', 'b', 'c'], 'hadamard')": "'abc'[1 + i % 3]",
    "hadamard_response(2, ['a', 'b', 'c'], 2, 4)": "'abc'[1 + i % 3]",
    f"olh(1, {list(range(20))})": "i % 9",
    f"olh(2.5, {list(range(30))})": "i % 9",
    "square_wave(4, 0, 100, bins := 8)": "i % 70",
    "hybrid(3, 0, 1, bins := 6)": "(i % 7) / 10",
    "truncated_geometric(1, 0, 6)": "i % 7",
    "planar_geometric(1, columns := 3, rows := 2)": "i % 6",
    "matrix(['n', 'y'], [['.7', '.2', '.1'], ['.1', '.2', '.7']], reports := ['n', '?', 'y'])": "['n', 'y'][1 + i % 2]",
}


@pytest.mark.parametrize("text", LINEAR)
def test_every_linear_inversion_is_that_of_ldpsql_to_twelve_digits(text: str, con: DuckDBPyConnection, tmp_path: Path) -> None:
    con.execute(f"""CREATE TABLE reports AS SELECT ['north', NULL][1 + i % 3 // 2] AS region,
        ldp.perturb({LINEAR[text]}, ldp.{text}) AS x FROM range(600) t(i)""")
    con.execute(f"COPY reports TO '{tmp_path / 'r.parquet'}'")
    with duckdb.connect() as other:
        other.execute(f"CREATE TABLE reports AS FROM '{tmp_path / 'r.parquet'}'")
        rows = other.execute(query(text, "reports", "x", by=("region",))).fetchall()
    for region, test in (("north", "NOT NULL"), (None, "NULL")):
        part = con.table("reports").filter(f"region IS {test}")
        own = [row[1:] for row in rows if row[0] == region]
        assert {row[5:] for row in own} == {(float(len(part)), 0.0)}
        estimate = ldpsql.estimate(part, text, "inv(misfit='allow')", column="x")
        assert [row[0] for row in own] == estimate.values.values.to_pylist()
        theirs = np.array([getattr(estimate, field) for field in FIELDS]).T
        np.testing.assert_allclose(np.array([row[1:5] for row in own], dtype=np.float64), theirs, rtol=0, atol=1e-12)


NUMBERS = ["krr(1, [1, 2, 5])", "truncated_geometric(1, 0, 2)"]
EACH = [*NUMBERS, "rappor(2, [1, 2])", "olh(1, [1, 2, 3])"]
ABOUT: dict[str, list[str]] = {
    "--counts=n": [CITIES, *EACH[1:]],
    '--outcome=y"y': EACH,
    "--question=mean": NUMBERS,
    "--outcome=y --weight=w": EACH,
}


@pytest.mark.parametrize("about", ABOUT)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_reads_the_queries_of_shares_means_and_outcomes(dialect: str, about: str) -> None:
    """Each is of one mechanism, in turn."""
    text = ABOUT[about][(DIALECTS.index(dialect) + list(ABOUT).index(about)) % len(ABOUT[about])]
    named = ["--table", "a.b", "--column", 'c"d', "--by", "k 1", "--by", "k2", "--name", "city shares"]
    made = printed("export-sql", "-m", text, "--dialect", dialect, *named, *about.split())
    (statement,) = [one for one in sqlglot.parse(made, read=dialect) if one is not None]
    assert isinstance(statement, sqlglot.exp.Create)
    assert statement.find(sqlglot.exp.Table) is not None


def test_sets_that_the_mechanism_cannot_draw_are_counted_and_left_out() -> None:
    made = query("subset_selection(2, ['a', 'b', 'c', 'd'])", "reports", "x")
    with duckdb.connect() as con:
        con.execute("CREATE TABLE reports AS SELECT unnest([[1], [2], [4], [8], [3], [16], [1, 0], []]::UBIGINT[][]) AS x")
        rows = con.execute(made).fetchall()
    assert {row[-2:] for row in rows} == {(4.0, 4.0)}


def test_hashes_that_the_mechanism_cannot_draw_are_counted_and_left_out() -> None:
    made = query("olh(1, ['a', 'b', 'c'])", "reports", "x")
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE reports AS SELECT unnest([{seed: 0, y: 1}, {seed: 0, y: 99}, {seed: 10**9, y: 0}, NULL]) AS x"
        )
        rows = con.execute(made).fetchall()
    assert {row[-2:] for row in rows} == {(1.0, 2.0)}


@pytest.mark.parametrize("dialect", ["duckdb", "postgres"])
def test_a_column_of_hashes_may_have_braces_in_its_name(dialect: str) -> None:
    text = query("olh(1, ['a', 'b', 'c'])", "reports", "x{0}{}", dialect=dialect)
    assert "x{0}{}" in text
    if dialect == "duckdb":
        with duckdb.connect() as con:
            con.execute('CREATE TABLE reports AS SELECT {seed: 0, y: 1} AS "x{0}{}"')
            assert {row[-2:] for row in con.execute(text).fetchall()} == {(1.0, 0.0)}


@pytest.mark.parametrize(("text", "weight"), exported.ASKED)
def test_a_view_of_sqlite_returns_the_inversion_of_ldpsql(text: str, weight: str | None) -> None:
    backend = in_sqlite(exported.reports(text)[0]).get_backend()
    backend.con.execute("ALTER TABLE reports RENAME TO exported")
    backend.con.execute(exported.view(text, "sqlite", weight))
    exported.check(text, weight, backend.con.execute("SELECT * FROM shares").fetchall())


@pytest.mark.parametrize(("text", "weight", "question"), exported.QUESTIONS)
def test_means_and_outcomes_of_sqlite_are_those_of_ldpsql(text: str, weight: str | None, question: str) -> None:
    backend = in_sqlite(exported.reports(text)[0]).get_backend()
    backend.con.execute("ALTER TABLE reports RENAME TO exported")
    backend.con.execute(exported.view(text, "sqlite", weight, question))
    exported.check_question(text, weight, question, backend.con.execute("SELECT * FROM shares").fetchall())


@pytest.mark.parametrize(
    ("text", "weight"),
    [("krr(1, [1, 2, 5])", []), ("krr(1, [1, 2, 5])", ["--weight", "w"]), (f"oue(1, {list(range(70))})", []),
     ("olh(1, [1, 2, 3])", ["--weight", "w"]), ("hadamard_response(1, [1, 2, 3], 2, 4)", [])],
)  # fmt: skip
def test_outcomes_of_duckdb_are_those_of_ldpsql(con: DuckDBPyConnection, text: str, weight: list[str]) -> None:
    con.execute(f"""CREATE TABLE r AS SELECT i % 7 + 0.5 AS y, 1.5 + i % 2 AS w, ldp.perturb(1 + i % 2, ldp.{text}) AS x
        FROM range(400) t(i)""")
    rows = con.execute(printed("export-sql", "-m", text, "--table", "r", "-c", "x", "--outcome", "y", *weight)).fetchall()
    asked: dict[str, Any] = {"column": "x", "question": "outcome", "outcome": "y", "weight": "w" if weight else None}
    _compare_answers(rows, ldpsql.estimate(con.table("r"), text, "inv", **asked).to_arrow())


@pytest.mark.parametrize("weight", [[], ["--weight", "w"]])
@pytest.mark.parametrize("text", ["krr(1, [1, 2, 5])", "truncated_geometric(1, 0, 2)"])
def test_means_are_those_of_ldpsql_if_no_share_is_below_zero(text: str, weight: list[str]) -> None:
    values = registry().mechanism(text).values().listed.values.to_pylist()
    with duckdb.connect() as con:
        con.execute(f"CREATE TABLE r AS SELECT {values}[1 + i % 3] AS x, 1 + i % 2 AS w FROM range(400) t(i)")
        rows = con.execute(
            printed("export-sql", "-m", text, "--table", "r", "-c", "x", "--question", "mean", *weight)
        ).fetchall()
        asked: dict[str, Any] = {"column": "x", "question": "mean", "weight": "w" if weight else None}
        _compare_answers(rows, ldpsql.estimate(con.table("r"), text, "inv", **asked).to_arrow())


def _compare_answers(rows: list[tuple[Any, ...]], answer: Any) -> None:
    own = np.array([row[-6:-2] for row in rows], dtype=np.float64)
    theirs = np.array([answer[field].to_numpy() for field in FIELDS]).T
    np.testing.assert_allclose(own, theirs, rtol=0, atol=1e-11)
    assert {row[-1] for row in rows} == {0.0}


@pytest.mark.parametrize(
    "options",
    [
        ["--question", "mean"],  # of text
        ["--question", "median"],
        ["--question", "outcome"],
        ["--question", "mean", "--outcome", "y"],
        ["--outcome", "y", "--counts", "n"],
        ["--outcome", "y", "--by", "std_error"],
    ],
)
def test_questions_without_a_query_are_refused(options: list[str]) -> None:
    with pytest.raises(InvalidParameter):
        printed("export-sql", "-m", CITIES, *options)


@pytest.mark.parametrize("text", ["oue(1, [1, 2, 3])", "olh(1, [1, 2, 3])", "hadamard_response(1, [1, 2, 3], 2, 4)"])
def test_a_mean_of_shares_that_do_not_add_up_to_one_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameter, match="mean of reports"):
        printed("export-sql", "-m", text, "--question", "mean")


def test_a_mean_that_has_no_query_is_answered_by_ldpsql() -> None:
    with pytest.raises(InvalidParameter, match="ldpsql ask mean"):
        printed("export-sql", "-m", "hierarchy(1, 0, 500, step=1)", "--question", "mean")


def test_a_mean_of_an_empty_table_has_no_rows() -> None:
    with duckdb.connect() as con:
        con.execute("CREATE TABLE reports (report INTEGER, y DOUBLE)")
        assert con.execute(printed("export-sql", "-m", "krr(1, [1, 2])", "--question", "mean")).fetchall() == []
        assert con.execute(printed("export-sql", "-m", "krr(1, [1, 2])", "--outcome", "y")).fetchall() == []


def test_weighted_reports_of_other_mechanisms_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="weighted"):
        printed("export-sql", "-m", "square_wave(4, 0, 100, bins := 12)", "--weight", "w")
    with pytest.raises(InvalidParameter, match="no weights"):
        printed("export-sql", "-m", CITIES, "--weight", "w", "--counts", "n")


def test_a_plugin_offers_a_dialect() -> None:
    compilers, module = pytest.importorskip("ibis.backends.sql.compilers"), types.ModuleType("warehouse")
    vars(module)["ldpsql_dialects"] = hookimpl(lambda: [("lakehouse", compilers.duckdb.compiler)], specname="ldpsql_dialects")
    plugin = replace(registry().plugins[0], name="warehouse", offers=[])
    registry().add(module, plugin)
    try:
        assert plugin.offers == ["dialect lakehouse"]
        assert "for lakehouse" in query(CITIES, "r", "x", dialect="lakehouse")
    finally:
        registry().refuse(plugin, "the test is over")
        registry().plugins.remove(plugin)
    with pytest.raises(InvalidParameter, match="no such dialect"):
        query(CITIES, "later", "x", dialect="lakehouse")
