"""One answer: every question over every source is the same number in SQL from reports and counts, in Python and in commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from duckdb import DuckDBPyConnection
from typer.testing import CliRunner

import ldpsql
from ldpsql.errors import InvalidParameter
from ldpsql.functions import registry, sql_literal
from ldpsql.mechanisms import Mechanism
from tests import instances
from tests.commands import app

ARGUMENTS: dict[str, dict[str, Any]] = {
    "quantile": {"q": 0.3},
    "quantiles": {"qs": [0.25, 0.6]},
    "share": {"of": [1, 2]},
    "difference": {"of": None, "versus": [1, 3], "given": [5, 13]},
    "range_share": {"low": 1, "high": 5},
    "range_shares": {"lows": [1, 5], "highs": [3, 13]},
    "top": {"most": 3},
    "compare_estimators": {"estimators": ["ibu", "inv_p"], "runs": 3, "estimator": "ibu"},
    "heavy_hitters": {"top": 3, "certain": False},
    "distance": {"shares": [0.25, 0.25, 0.5]},
}
NUMBERS = "[1, 2, 3, 5, 8, 13]"
MECHANISMS = {
    "k-RR": f"krr(2, {NUMBERS})",
    "hashes": f"olh(1, {NUMBERS})",
    "sets": f"oue(1, {NUMBERS})",
    "numbers with noise": "geometric(1, 1, 13)",
    "bins": "square_wave(1, 1, 13, bins=24)",
}
PAIRS = "MAP {'a': 0.5, 'b': -0.5}"
OTHERS = {  # questions about other sources: the mechanism, and a value that it perturbs
    "key_value": ("pckv_ue(2, ['a', 'b'])", PAIRS),
    "key_value_diagnose": ("pckv_grr(2, ['a', 'b'])", PAIRS),
    "key_value_density": ("pckv_pm(2, ['a', 'b'], bins=4)", PAIRS),
    "heavy_hitters": ("pem(8, 2)", "['ab', 'cd'][1 + i % 2]"),
    "independence": ("row(columns={a: krr(2, [1, 2]), b: krr(2, ['x', 'y'])})", "{a: 1 + i % 2, b: ['x', 'y'][1 + i % 2]}"),
    "margin": ("row(columns={a: krr(2, [1, 2]), b: krr(2, ['x', 'y'])})", "{a: 1 + i % 2, b: ['x', 'y'][1 + i % 2]}"),
    "compare": ("krr(2, [1, 2, 3])", "1 + i % 3"),
    "distance": ("krr(2, [1, 2, 3])", "1 + i % 3"),
}
BUILT_IN = {name: kind for name, kind in registry().questions.items() if kind.__module__.startswith("ldpsql.")}
RAW = [name for name, kind in BUILT_IN.items() if kind.raw]  # questions about raw columns, which counts do not have
QUESTIONS = [name for name in BUILT_IN if name not in {*OTHERS, *RAW} or name == "margin"]
VALUES = "[1, 2, 3, 5, 8, 13][1 + (hash(i) % 6)::INTEGER]"
WHERE = {"given": {"low": 2, "high": 8}}
GIVEN: dict[str, dict[str, Any]] = {"all": {}, "where a condition holds": WHERE}


def flat(answer: Any) -> list[float]:
    """Return the numbers of an answer of SQL or of Python, in order; what is unknown as NaN."""
    if isinstance(answer, dict):
        return [number for one in answer.values() for number in flat(one)]
    if isinstance(answer, list | tuple):
        return [number for one in answer for number in flat(one)]
    if isinstance(answer, str):
        return []
    return [float(np.nan if answer is None or not np.isfinite(float(answer)) else answer)]


def in_sql(con: DuckDBPyConnection, question: str, reports: str, m: str, arguments: dict[str, Any]) -> list[float]:
    """Return the answer of the aggregate, or for two arguments of the table function, whose rows have one column more."""
    call = f"ldp.{question}({reports}, {m}{''.join(f', {name} := {sql_literal(value)}' for name, value in arguments.items())})"
    over_table = reports.startswith("r, ")
    return flat(con.execute(f"SELECT * EXCLUDE (n) FROM {call}" if over_table else f"SELECT {call} FROM r").fetchall())


def python(source: Any, reports: Any, question: str, arguments: dict[str, Any]) -> list[float]:
    """Return the answer of Python; SQL shows an infinite error, and its interval that holds everything, as NULL."""
    answer = ldpsql.estimate(reports, source).ask(
        question, **{name: one for name, one in arguments.items() if name != "estimator"}
    )
    return shown(answer)


def shown(answer: Any) -> list[float]:
    unknown = {"std_error": np.nan, "low": np.nan, "high": np.nan}
    each = answer if isinstance(answer, list) else [answer]
    known = [np.isfinite(getattr(one, "std_error", None) or 0.0) or not hasattr(one, "low") for one in each]
    return flat([one if fine else one._replace(**unknown) for one, fine in zip(each, known, strict=True)])


@pytest.fixture(scope="module")
def drawn(request: pytest.FixtureRequest) -> Iterator[tuple[str, Mechanism, DuckDBPyConnection]]:
    m = registry().mechanism(MECHANISMS[request.param])
    with instances.connection() as con:
        con.execute(f"CREATE MACRO m() AS ldp.{str(m).replace('=', ' := ')}")
        con.execute("CREATE MACRO levels() AS MAP {'a': m(), 'b': m()}")
        con.execute(f"""CREATE TABLE r AS SELECT ldp.perturb(v, m()) AS x, [ldp.perturb(v, m()), ldp.perturb(v, m())] AS xs,
            ['a', 'b'][1 + i % 2] AS level FROM (SELECT i, {VALUES} AS v FROM range(600) t(i))""")
        yield request.param, m, con


# Each question meets two mechanisms in turn, the second with a condition.
PAIRED = [
    (name, question, given)
    for number, name in enumerate(MECHANISMS)
    for turn, question in enumerate(QUESTIONS)
    for given in ("all", "where a condition holds")
    if number == (turn + (given != "all")) % len(MECHANISMS)
]


@pytest.mark.parametrize(("drawn", "question", "given"), PAIRED, indirect=["drawn"])
def test_every_question_has_one_answer(drawn: tuple[str, Mechanism, DuckDBPyConnection], question: str, given: str) -> None:
    _, m, con = drawn
    arguments = ARGUMENTS.get(question, {})
    if question != "margin" and "given" in registry().questions[question].parameters():  # that of a margin names columns
        arguments = GIVEN[given] | arguments
    levels = {"a": m, "b": m}
    sources: dict[str, tuple[Mechanism | dict[str, Mechanism], str]] = {
        "x": (m, "m()"),
        "xs": (m, "m()"),
        "{level: level, report: x}": (levels, "levels()"),
    }
    for reports, (source, written) in sources.items():
        answer = in_sql(con, question, reports, written, arguments)
        assert len(answer) >= 4 or question == "compare_estimators"
        assert in_sql(con, question, f"ldp.counts({reports})", written, arguments) == pytest.approx(answer, 1e-9, 1e-9, True)
        column = con.sql(f"SELECT {reports} AS c FROM r").to_arrow_table().column(0).combine_chunks()
        assert python(source, column, question, arguments) == pytest.approx(answer, 1e-9, 1e-9, True), reports


@pytest.mark.parametrize("question", OTHERS)
def test_questions_about_other_sources_have_one_answer(con: DuckDBPyConnection, question: str) -> None:
    text, value = OTHERS[question]
    m, arguments = sql_literal(text), ARGUMENTS.get(question, {})
    con.execute(f"CREATE TABLE t AS SELECT ldp.perturb({value}, {m}) AS x FROM range(600) t(i)")
    options = "".join(f", {name} := {sql_literal(given)}" for name, given in arguments.items())
    reports = ("ldp.counts(x), ldp.counts(x)",) if question == "compare" else ("x", "ldp.counts(x)")
    answers = [flat(con.execute(f"SELECT ldp.{question}({one}, {m}{options}) FROM t").fetchall()[0][0]) for one in reports]
    if question in ("independence", "margin", "distance"):
        column = con.sql("SELECT x FROM t").to_arrow_table().column(0).combine_chunks()
        answers.append(python(registry().mechanism(text), column, question, arguments))
    assert len(answers[0]) >= (1 if question == "distance" else 4)
    assert all(answer == pytest.approx(answers[0], 1e-9, 1e-9, True) for answer in answers)


IN_TURN = dict(zip([*QUESTIONS, *RAW], list(MECHANISMS.values()) * 9, strict=False))  # a mechanism for each question


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("question", [name for name, kind in BUILT_IN.items() if not kind.two_groups and not kind.raw])
def test_the_command_line_and_the_table_function_have_the_answer_of_the_aggregate(
    con: DuckDBPyConnection, question: str, given: str, tmp_path: Path
) -> None:
    if given != "all" and (question == "margin" or "given" not in registry().questions[question].parameters()):
        pytest.skip("it has no condition")
    text, value = OTHERS.get(question) or (IN_TURN[question], VALUES)
    arguments = GIVEN[given] | ARGUMENTS.get(question, {})
    m = sql_literal(text)
    con.execute(f"CREATE TABLE r AS SELECT ldp.perturb({value}, {m}) AS x FROM range(600) t(i)")
    con.execute(f"COPY r TO '{tmp_path}/r.parquet'")
    given_options = [f"--{name}={one if name == 'estimator' else json.dumps(one)}" for name, one in arguments.items()]
    options = [f"--mechanism={text}", "--format=json", *given_options]
    ran = CliRunner().invoke(app, ["ask", question, f"{tmp_path}/r.parquet", "x", *options])
    assert ran.exit_code == 0, ran.output
    answer = in_sql(con, question, "x", m, arguments)
    assert in_sql(con, question, "r, x", m, arguments) == pytest.approx(answer, 1e-9, 1e-9, True)
    rows = json.loads(ran.stdout)
    assert {row.pop("n") for row in rows} == {600}
    assert flat(rows) == pytest.approx(answer, 1e-9, 1e-9, True)


@pytest.mark.parametrize("question", [name for name in QUESTIONS if name != "compare_estimators"])
def test_lists_and_levels_have_one_answer_for_each_group_on_every_surface(
    con: DuckDBPyConnection, question: str, tmp_path: Path
) -> None:
    text, arguments = IN_TURN[question], ARGUMENTS.get(question, {})
    con.execute(f"CREATE MACRO m() AS ldp.{text.replace('=', ' := ')}; CREATE MACRO levels() AS MAP {{'a': m(), 'b': m()}}")
    con.execute(f"""CREATE TABLE r AS SELECT ldp.perturb(v, m()) AS x, [ldp.perturb(v, m()), ldp.perturb(v, m())] AS xs,
        ['a', 'b'][1 + i % 2] AS level, i // 300 AS g FROM (SELECT i, {VALUES} AS v FROM range(600) t(i))""")
    options = "".join(f", {name} := {sql_literal(one)}" for name, one in arguments.items())
    for reports, m in (("xs", "m()"), ("{level: level, report: x}", "levels()")):
        grouped = con.execute(f"SELECT g, ldp.{question}({reports}, {m}{options}) FROM r GROUP BY g").fetchall()
        expected = {g: flat(answer) for g, answer in grouped}
        rows = con.execute(f"FROM ldp.{question}(r, {reports}, {m}{options}, by := g)").fetchall()
        assert {row[-1] for row in rows} == {300}
        for g, answer in expected.items():
            assert flat([row[1:-1] for row in rows if row[0] == g]) == pytest.approx(answer, 1e-9, 1e-9, True), reports
    con.execute(f"COPY (SELECT xs, g FROM r) TO '{tmp_path}/r.parquet'")
    given = [f"--{name}={json.dumps(one)}" for name, one in arguments.items()]
    named = ["ask", question, f"{tmp_path}/r.parquet", "xs", f"--mechanism={text}", "--by=g", "--format=json", *given]
    ran = CliRunner().invoke(app, named)
    assert ran.exit_code == 0, ran.output
    shown_rows, xs = json.loads(ran.stdout), con.execute(f"SELECT g, ldp.{question}(xs, m(){options}) FROM r GROUP BY g")
    for g, answer in xs.fetchall():
        own = [list(row.values())[1:-1] for row in shown_rows if row["g"] == g]
        assert flat(own) == pytest.approx(flat(answer), 1e-9, 1e-9, True)


@pytest.mark.parametrize("question", [name for name in BUILT_IN if name not in ("compare", "independence", "margin")])
def test_a_question_of_a_table_finds_the_recorded_mechanism_with_all_arguments(con: DuckDBPyConnection, question: str) -> None:
    text, value = OTHERS.get(question) or (IN_TURN[question], VALUES)
    options = "".join(f", {name} := {sql_literal(one)}" for name, one in ARGUMENTS.get(question, {}).items())
    options += raw(question) if question in RAW else ""
    con.execute(
        f"CREATE TABLE p AS SELECT {value} AS x, i // 300 AS g, hash(i) % 9 AS y, i % 7 AS age, "
        "i % 5 AS hours FROM range(600) t(i)"
    )
    con.execute(f"CREATE TABLE r AS FROM ldp.perturb_rows(p, {{x: {sql_literal(text)}}}, keep := [g, y, age, hours])")
    for more in ("", ", by := g", ", by := {h: g}"):
        without, with_it = (f"FROM ldp.{question}(r, x{m}{options}{more}) ORDER BY ALL" for m in ("", f", {sql_literal(text)}"))
        answer = con.execute(without)
        columns, rows = answer.description, answer.fetchall()
        assert rows
        assert {row[-1] for row in rows} == {300 if more else 600}
        assert columns == con.execute(with_it).description
        assert flat(rows) == pytest.approx(flat(con.execute(with_it).fetchall()), 1e-9, 1e-9, True)


COLUMNS: dict[str, dict[str, Any]] = {
    "outcome": {"outcome": "y"},
    "regression": {"outcome": "y", "regressors": ["age", "hours"]},
}


def raw(question: str) -> str:
    """Return the raw columns of a question as options in SQL."""
    columns = COLUMNS[question]
    return f", outcome := {columns['outcome']}" + ", regressors := {age: age, hours: hours}" * (len(columns) > 1)


@pytest.mark.parametrize(
    ("mechanism", "question", "options"),
    [("k-RR", "outcome", {"measure": "variance"}),
     ("hashes", "outcome", {"versus": 2, "intervals": "simultaneous"}),
     ("sets", "outcome", {"estimator": "inv"}),
     ("bins", "outcome", {}),
     ("numbers with noise", "regression", {"numbers": True}),
     ("bins", "regression", {"numbers": True, "interactions": True}),
     ("sets", "regression", {"family": "logistic", "numbers": True})],
)  # fmt: skip
def test_a_question_about_raw_columns_has_one_answer(
    con: DuckDBPyConnection, mechanism: str, question: str, options: dict[str, Any], tmp_path: Path
) -> None:
    """In SQL under GROUP BY, from sums, as a table function, in Python and in commands; with weights and for each group."""
    text, by_rows = MECHANISMS[mechanism], options.get("family") == "logistic"
    con.execute(f"CREATE MACRO m() AS ldp.{text.replace('=', ' := ')}")
    outcome = "(hash(i) + i % 5) % 3 > 1" if by_rows else "hash(i) % 6 + i % 7"
    con.execute(f"""CREATE TABLE r AS SELECT ldp.perturb({VALUES}, m()) AS x, ({outcome})::DOUBLE AS y, (i % 11)::DOUBLE AS age,
        hash(i + 1) % 9 AS hours, 1 + i % 3 AS w, i // 3000 AS g FROM range(6000) t(i)""")
    con.execute(f"COPY r TO '{tmp_path}/r.parquet'")
    given = "".join(f", {name} := {sql_literal(one)}" for name, one in options.items()) + ", weight := w"
    grouped = con.execute(f"SELECT g, ldp.{question}(x, m(){raw(question)}{given}) FROM r GROUP BY g").fetchall()
    answer = {g: flat(own) for g, own in grouped}
    answers = [con.execute(f"FROM ldp.{question}(r, x, m(){raw(question)}{given}, by := g)").fetchall()]
    asked = {"column": "x", "weight": "w", "by": "g", "question": question, **COLUMNS[question], **options}
    for data in (con.table("r").to_arrow_table(), str(tmp_path / "r.parquet")):
        answers += [ldpsql.estimate(data, registry().mechanism(text), **asked).to_polars().rows()]
    columns = [f"--{name}={','.join(own) if isinstance(own, list) else own}" for name, own in COLUMNS[question].items()]
    own = [f"--{name}={one if isinstance(one, str) else json.dumps(one)}" for name, one in options.items()]
    written = ["ask", question, f"{tmp_path}/r.parquet", "x", f"--mechanism={text}", "--weight=w", "--by=g", "--format=json"]
    ran = CliRunner().invoke(app, [*written, *columns, *own])
    assert ran.exit_code == 0, ran.output
    answers.append([tuple(row.values()) for row in json.loads(ran.stdout)])
    if question == "outcome":
        sums = "SELECT g, ldp.sums(x, y, weight := w) AS s FROM r GROUP BY g, x, age"
        call = f"unnest(ldp.outcome(s, m(){given.replace(', weight := w', '')}), recursive := true)"
        answers.append(con.execute(f"SELECT g, {call}, 3000 FROM ({sums}) GROUP BY g").fetchall())
    assert len(answer) == 2
    for other in answers:
        assert {row[-1] for row in other} == {3000}
        for g, one in answer.items():
            assert flat([row[1:-1] for row in other if row[0] == g]) == pytest.approx(one, 1e-7, 1e-7, True)


def test_raw_columns_are_asked_of_tables_only(con: DuckDBPyConnection) -> None:
    text = MECHANISMS["k-RR"]
    reports = con.sql(f"SELECT ldp.perturb({VALUES}, ldp.{text}) AS x FROM range(600) t(i)").to_arrow_table()
    estimate = ldpsql.estimate(reports, registry().mechanism(text), column="x")
    with pytest.raises(InvalidParameter, match="raw columns"):
        estimate.ask("outcome", outcome="y")
    for data in (reports["x"], ldpsql.partial_counts(reports, "x")):
        with pytest.raises(InvalidParameter, match="raw columns"):
            ldpsql.estimate(data, registry().mechanism(text), question="outcome", outcome="y")


LOOSE = '''
"""How unequal the values are: their standard deviation, in the unit of the values."""

from dataclasses import dataclass, replace

import numpy as np

from ldpsql.questions import Domain, Functional, Measure, Question, QuestionOfColumn, Variance, hookimpl


@dataclass(frozen=True)
class Root(Functional):
    """The root of a variance."""

    of: Variance

    def measure(self, estimates):
        """Return the root for every group; the delta method gives its error."""
        v = self.of.measure(estimates)
        root = np.sqrt(v.estimate)
        return Measure(root, v.std_error / (2 * root), np.sqrt(v.low), np.sqrt(v.high))


@dataclass(frozen=True)
class Spread(QuestionOfColumn):
    """The standard deviation of the values."""

    name = "spread"
    summary = "the standard deviation of the values, with its error and interval"

    def about(self, values: Domain) -> Functional:
        """Return the standard deviation, of all or where the condition holds."""
        return Root(Variance(*self.where(values)))


@hookimpl
def ldpsql_questions() -> list[type[Question]]:
    """Offer the spread."""
    return [Spread]
'''.lstrip()

OF_ROWS = '''
"""How much of the sum of a raw column each value has."""

from dataclasses import dataclass

import numpy as np

from ldpsql.questions import Asked, Corrected, Kind, Lines, Question, QuestionOfOutcome, hookimpl


@dataclass(frozen=True)
class Part(QuestionOfOutcome):
    """The part of the sum of the outcome that people with each value have."""

    name = "part"
    summary = "the part of the sum of a raw column that each value has"
    fields = {"value": Kind.VALUE, "estimate": Kind.NUMBER}
    rows = True

    def of_sums(self, sums: Corrected, asked: Asked) -> Lines:
        """Return the part of each value."""
        added = sums.sums[:, 1]
        return Lines.of_numbers({"value": np.arange(len(added))[None], "estimate": (added / added.sum())[None]})


@hookimpl
def ldpsql_questions() -> list[type[Question]]:
    """Offer the part."""
    return [Part]
'''.lstrip()

OF_ROWS_EVERYWHERE = """
import json
import ldpsql
from typer.testing import CliRunner
from tests.commands import app
con = ldpsql.connect()
m = "krr(2, [1, 2, 3])"
con.execute(f"CREATE TABLE r AS SELECT ldp.perturb(1 + i % 3, ldp.{m}) AS x, i % 7 AS y FROM range(600) t(i)")
con.execute("COPY r TO 'r.parquet'")
answers = [con.execute(f"SELECT unnest(ldp.part(x, ldp.{m}, y), recursive := true) FROM r").fetchall()]
sums = "(SELECT ldp.sums(x, y) AS s FROM r GROUP BY x)"
answers.append(con.execute(f"SELECT unnest(ldp.part(s, ldp.{m}), recursive := true) FROM {sums}").fetchall())
answers.append([row[:2] for row in con.execute(f"FROM ldp.part(r, x, ldp.{m}, y)").fetchall()])
for data in (con.table("r"), "r.parquet"):
    rows = ldpsql.estimate(data, m, column="x", question="part", outcome="y").to_polars().rows()
    answers.append([row[:2] for row in rows])
ran = CliRunner().invoke(app, ["ask", "part", "r.parquet", "x", "-m", m, "--outcome", "y", "--format", "json"])
assert ran.exit_code == 0, ran.output
answers.append([[row["value"], row["estimate"]] for row in json.loads(ran.stdout)])
comment = con.execute("SELECT DISTINCT comment FROM duckdb_functions() WHERE function_name = 'part'").fetchall()[0][0]
print(json.dumps([answers, comment]))
"""

EVERYWHERE = """
import json, sys
import pyarrow.parquet as pq
import ldpsql
from typer.testing import CliRunner
from tests import instances
from tests.commands import app
con = ldpsql.connect()
con.execute("CREATE MACRO m() AS ldp.krr(2, [1, 2, 3, 5, 8, 13])")
con.execute("CREATE TABLE r AS SELECT ldp.perturb([1, 2, 3, 5, 8, 13][1 + i % 6], m()) AS x FROM range(600) t(i)")
con.execute("COPY r TO 'r.parquet'")
answers = [list(con.execute(f"SELECT ldp.spread({x}, m()) FROM r").fetchall()[0][0].values()) for x in ("x", "ldp.counts(x)")]
answers.append(list(ldpsql.estimate(con.table("r"), "krr(2, [1, 2, 3, 5, 8, 13])", column="x").ask("spread")))
command = ["ask", "spread", "r.parquet", "x", "-m", "krr(2, [1, 2, 3, 5, 8, 13])", "--format", "json"]
ran = CliRunner().invoke(app, command)
assert ran.exit_code == 0, ran.output
answers.append([json.loads(ran.stdout)[0][name] for name in ("estimate", "std_error", "low", "high")])
comment = con.execute("SELECT DISTINCT comment FROM duckdb_functions() WHERE function_name = 'spread'").fetchall()[0][0]
print(json.dumps([answers, comment]))
"""


def loose(tmp_path: Path, plugin: str, script: str) -> tuple[list[Any], str]:
    """Return what a script prints in a process that has loaded a plugin from a loose file: answers, and a comment."""
    assert plugin.count("\n") <= 40
    (tmp_path / "plugin.py").write_text(plugin, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "LDPSQL_PLUGINS": "./plugin.py", "PYTHONPATH": f"{Path(__file__).parents[2]}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    answers, comment = json.loads(ran.stdout.splitlines()[-1])
    return answers, comment


def test_a_question_of_a_third_party_in_a_loose_file_is_on_every_surface(tmp_path: Path) -> None:
    (one, *others), comment = loose(tmp_path, LOOSE, EVERYWHERE)
    assert len(one) == 4
    assert all(answer == pytest.approx(one, 1e-9, 1e-9) for answer in others)
    assert comment == "aggregate: the standard deviation of the values, with its error and interval"


def test_a_third_partys_question_about_a_raw_column_is_on_every_surface(tmp_path: Path) -> None:
    (one, *others), comment = loose(tmp_path, OF_ROWS, OF_ROWS_EVERYWHERE)
    assert len(one) == 3
    assert len(others) == 5
    assert all(flat(answer) == pytest.approx(flat(one), 1e-9, 1e-9) for answer in others)
    assert comment == "aggregate: the part of the sum of a raw column that each value has"
