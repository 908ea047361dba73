"""One answer: every question over every source is the same number in SQL from reports and counts, in Python and in commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from duckdb import DuckDBPyConnection

import ldpsql
from ldpsql.errors import InvalidParameter
from ldpsql.functions import registry, sql_literal
from ldpsql.mechanisms import Mechanism
from tests import instances
from tests.commands import rows

ARGUMENTS: dict[str, dict[str, Any]] = {
    "quantile": {"q": 0.3},
    "share": {"of": [1, 2]},
    "difference": {"of": None, "versus": [1, 3], "given": [5, 13]},
    "range_share": {"low": 1, "high": 5},
    "top": {"most": 3},
    "compare_estimators": {"estimators": ["ibu", "inv_p"], "runs": 3, "estimator": "ibu"},
    "heavy_hitters": {"top": 3, "certain": False},
    "distance": {"shares": [0.25, 0.25, 0.5]},
}
SEVERAL: dict[str, dict[str, Any]] = ARGUMENTS | {  # several answers from one estimate
    "quantile": {"q": [0.25, 0.6]},
    "range_share": {"low": [1, 5], "high": [3, 13]},
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


IN_TURN = dict(zip([*QUESTIONS, *RAW], list(MECHANISMS) * 9, strict=False))  # a mechanism for each question
SOURCES = {name: (text, VALUES) for name, text in MECHANISMS.items()} | OTHERS


def source_of(question: str) -> str:
    """Return the source that a question is asked of."""
    return question if question in OTHERS else IN_TURN[question]


@dataclass(frozen=True)
class Drawn:
    """Reports of a source: ``r`` in a connection and a file, and ``recorded`` with the record of their mechanism."""

    con: DuckDBPyConnection
    text: str
    file: str

    def command(self, question: str, column: str, arguments: dict[str, Any], *options: str) -> list[dict[str, Any]]:
        """Return the rows that the command prints."""
        options += tuple(f"--{name}={one if name == 'estimator' else json.dumps(one)}" for name, one in arguments.items())
        return rows("ask", question, self.file, column, f"--mechanism={self.text}", *options)


@pytest.fixture(scope="module")
def drawn(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drawn]:
    text, value = SOURCES[request.param]
    file = str(tmp_path_factory.mktemp("drawn") / "r.parquet")
    written = "ldp." + text.replace("=", " := ") if request.param in MECHANISMS else sql_literal(text)
    lists = ", [ldp.perturb(x, m()), ldp.perturb(x, m())] AS xs" if request.param in MECHANISMS else ""
    with instances.connection() as con:
        con.execute(f"CREATE MACRO m() AS {written}; CREATE MACRO levels() AS MAP {{'a': m(), 'b': m()}}")
        con.execute(f"""CREATE TABLE p AS SELECT {value} AS x, i // 300 AS g, hash(i) % 9 AS y, i % 7 AS age, i % 5 AS hours,
            ['a', 'b'][1 + i % 2] AS level FROM range(600) t(i)""")
        con.execute(f"CREATE TABLE r AS SELECT * REPLACE (ldp.perturb(x, m()) AS x){lists} FROM p")
        con.execute(f"COPY r TO '{file}'")
        if not text.startswith("row("):  # each of its columns has a mechanism of its own
            perturbed = f"ldp.perturb_rows(p, {{x: {sql_literal(text)}}}, keep := [g, y, age, hours])"
            con.execute(f"CREATE TABLE recorded AS FROM {perturbed}")
        yield Drawn(con, text, file)


# Each question meets two mechanisms in turn, the second with a condition.
PAIRED = [
    (name, question, given)
    for number, name in enumerate(MECHANISMS)
    for turn, question in enumerate(QUESTIONS)
    for given in GIVEN
    if number == (turn + (given != "all")) % len(MECHANISMS)
]


@pytest.mark.parametrize(("drawn", "question", "given"), PAIRED, indirect=["drawn"])
def test_every_question_has_one_answer(drawn: Drawn, question: str, given: str) -> None:
    con, m = drawn.con, registry().mechanism(drawn.text)
    arguments = (ARGUMENTS if given == "all" else SEVERAL).get(question, {})
    if question != "margin" and "given" in registry().questions[question].parameters():  # that of a margin names columns
        arguments = GIVEN[given] | arguments
    levels = {"a": m, "b": m}
    sources: dict[str, tuple[Mechanism | dict[str, Mechanism], str]] = {
        "x": (m, "m()"),
        "xs": (m, "m()"),
        "{level: level, report: x}": (levels, "levels()"),
    }
    counted = list(sources)[(QUESTIONS.index(question) + (given != "all")) % 3]
    for reports, (source, written) in sources.items():
        answer = in_sql(con, question, reports, written, arguments)
        assert len(answer) >= 4 or question == "compare_estimators"
        if reports == counted:
            assert in_sql(con, question, f"ldp.counts({reports})", written, arguments) == pytest.approx(
                answer, 1e-9, 1e-9, True
            )
        column = con.sql(f"SELECT {reports} AS c FROM r").to_arrow_table().column(0).combine_chunks()
        assert python(source, column, question, arguments) == pytest.approx(answer, 1e-9, 1e-9, True), reports


@pytest.mark.parametrize(("drawn", "question"), [(name, name) for name in OTHERS], indirect=["drawn"])
def test_questions_about_other_sources_have_one_answer(drawn: Drawn, question: str) -> None:
    arguments = ARGUMENTS.get(question, {})
    reports = ("ldp.counts(x), ldp.counts(x)",) if question == "compare" else ("x", "ldp.counts(x)")
    answers = [in_sql(drawn.con, question, one, "m()", arguments) for one in reports]
    if question in ("independence", "margin", "distance"):
        column = drawn.con.sql("SELECT x FROM r").to_arrow_table().column(0).combine_chunks()
        answers.append(python(registry().mechanism(drawn.text), column, question, arguments))
    assert len(answers[0]) >= (1 if question == "distance" else 4)
    assert all(answer == pytest.approx(answers[0], 1e-9, 1e-9, True) for answer in answers)


SINGLE = [(source_of(name), name) for name, kind in BUILT_IN.items() if not kind.two_groups and not kind.raw]


@pytest.mark.parametrize(("drawn", "question"), SINGLE, indirect=["drawn"])
def test_the_command_line_and_the_table_function_have_the_answer_of_the_aggregate(drawn: Drawn, question: str) -> None:
    """Every second question that takes a condition has one."""
    conditioned = [name for _, name in SINGLE if name != "margin" and "given" in BUILT_IN[name].parameters()]
    arguments = (WHERE if question in conditioned[::2] else {}) | SEVERAL.get(question, {})
    answer = in_sql(drawn.con, question, "x", "m()", arguments)
    assert in_sql(drawn.con, question, "r, x", "m()", arguments) == pytest.approx(answer, 1e-9, 1e-9, True)
    printed = drawn.command(question, "x", arguments)
    assert {row.pop("n") for row in printed} == {600}
    assert flat(printed) == pytest.approx(answer, 1e-9, 1e-9, True)


GROUPED = [(IN_TURN[name], name) for name in QUESTIONS if name != "compare_estimators"]


@pytest.mark.parametrize(("drawn", "question"), GROUPED, indirect=["drawn"])
def test_lists_and_levels_have_one_answer_for_each_group_on_every_surface(drawn: Drawn, question: str) -> None:
    con, arguments = drawn.con, SEVERAL.get(question, {})
    options = "".join(f", {name} := {sql_literal(one)}" for name, one in arguments.items())
    for reports, m in (("xs", "m()"), ("{level: level, report: x}", "levels()")):
        answers = con.execute(f"SELECT g, ldp.{question}({reports}, {m}{options}) FROM r GROUP BY g").fetchall()
        roads = [con.execute(f"FROM ldp.{question}(r, {reports}, {m}{options}, by := g)").fetchall()]
        if reports == "xs":
            roads.append([tuple(row.values()) for row in drawn.command(question, "xs", arguments, "--by=g")])
        for road in roads:
            assert {row[-1] for row in road} == {300}
            for g, answer in answers:
                own = [row[1:-1] for row in road if row[0] == g]
                assert flat(own) == pytest.approx(flat(answer), 1e-9, 1e-9, True), reports


OF_TABLES = [(source_of(name), name) for name in BUILT_IN if name not in ("compare", "independence", "margin")]


@pytest.mark.parametrize(("drawn", "question"), OF_TABLES, indirect=["drawn"])
def test_a_question_of_a_table_finds_the_recorded_mechanism_with_all_arguments(drawn: Drawn, question: str) -> None:
    options = "".join(f", {name} := {sql_literal(one)}" for name, one in ARGUMENTS.get(question, {}).items())
    options += raw(question) if question in RAW else ""
    for more in ("", (", by := g", ", by := {h: g}")[OF_TABLES.index((source_of(question), question)) % 2]):
        without, with_it = (
            drawn.con.sql(f"FROM ldp.{question}(recorded, x{m}{options}{more}) ORDER BY ALL").to_arrow_table()
            for m in ("", f", {sql_literal(drawn.text)}")
        )
        answer = [tuple(row.values()) for row in without.to_pylist()]
        assert {row[-1] for row in answer} == {300 if more else 600}
        assert without.schema == with_it.schema
        assert flat(answer) == pytest.approx(flat([tuple(row.values()) for row in with_it.to_pylist()]), 1e-9, 1e-9, True)


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
    written = ["ask", question, f"{tmp_path}/r.parquet", "x", f"--mechanism={text}", "--weight=w", "--by=g"]
    answers.append([tuple(row.values()) for row in rows(*written, *columns, *own)])
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

EVERYWHERE = """
import json
import ldpsql
from tests.commands import rows
con = ldpsql.connect()
m = "krr(2, [1, 2, 3, 5, 8, 13])"
con.execute(f"CREATE MACRO m() AS ldp.{m}")
con.execute("CREATE TABLE r AS SELECT ldp.perturb([1, 2, 3, 5, 8, 13][1 + i % 6], m()) AS x, i % 7 AS y FROM range(600) t(i)")
con.execute("COPY r TO 'r.parquet'")
command = ["r.parquet", "x", "-m", m, "--format", "json"]
spread = [list(con.execute(f"SELECT ldp.spread({x}, m()) FROM r").fetchall()[0][0].values()) for x in ("x", "ldp.counts(x)")]
spread.append(list(ldpsql.estimate(con.table("r"), m, column="x").ask("spread")))
spread.append([rows("ask", "spread", *command)[0][name] for name in ("estimate", "std_error", "low", "high")])
part = [con.execute("SELECT unnest(ldp.part(x, m(), y), recursive := true) FROM r").fetchall()]
sums = "(SELECT ldp.sums(x, y) AS s FROM r GROUP BY x)"
part.append(con.execute(f"SELECT unnest(ldp.part(s, m()), recursive := true) FROM {sums}").fetchall())
part.append([row[:2] for row in con.execute("FROM ldp.part(r, x, m(), y)").fetchall()])
for data in (con.table("r"), "r.parquet"):
    asked = ldpsql.estimate(data, m, column="x", question="part", outcome="y").to_polars().rows()
    part.append([row[:2] for row in asked])
part.append([[row["value"], row["estimate"]] for row in rows("ask", "part", *command, "--outcome", "y")])
named = "function_name IN ('spread', 'part') AND function_type = 'macro'"
comments = f"SELECT DISTINCT comment FROM duckdb_functions() WHERE {named} ORDER BY ALL"
print(json.dumps([spread, part, con.execute(comments).fetchall()]))
"""


def test_questions_of_a_third_party_in_loose_files_are_on_every_surface(tmp_path: Path) -> None:
    assert max(plugin.count("\n") for plugin in (LOOSE, OF_ROWS)) <= 40
    for name, plugin in (("spread", LOOSE), ("part", OF_ROWS)):
        (tmp_path / f"{name}.py").write_text(plugin, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-c", EVERYWHERE],
        cwd=tmp_path,
        env={**os.environ, "LDPSQL_PLUGINS": "./spread.py,./part.py", "PYTHONPATH": f"{Path(__file__).parents[2]}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    spread, part, comments = json.loads(ran.stdout.splitlines()[-1])
    assert (len(spread[0]), len(spread), len(part[0]), len(part)) == (4, 4, 6, 6)
    assert all(flat(answer) == pytest.approx(flat(answers[0]), 1e-9, 1e-9) for answers in (spread, part) for answer in answers)
    assert comments == [
        ["aggregate: the part of the sum of a raw column that each value has"],
        ["aggregate: the standard deviation of the values, with its error and interval"],
    ]
