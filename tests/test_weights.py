"""Estimates from rows with weights are those of the weighted population, with errors from the squares of the weights."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from duckdb import DuckDBPyConnection
from typer.testing import CliRunner

import ldpsql
from ldpsql import certify
from ldpsql.functions import registry, sql_literal
from tests import seeds
from tests.commands import app
from tests.laws.test_questions import ARGUMENTS, IN_TURN, MECHANISMS, OTHERS, flat
from tests.laws.test_questions import QUESTIONS as ALL

QUESTIONS = [name for name in ALL if name != "people"]  # which refuses weights
PEOPLE = 400_000  # behind the expected counts of a population
VALUES, SHARES, WEIGHTS = [1, 2, 3, 4], [0.4, 0.3, 0.2, 0.1], [1.0, 4.0, 0.5, 9.0]  # the weight depends on the value
EXACT = {
    "k-RR": f"krr(2, {VALUES})",
    "hashes": f"olh(2, {VALUES})",
    "numbers with noise": "truncated_geometric(1.5, 1, 4)",
    "sets": f"oue(2, {VALUES})",
    "levels of a tree": "hierarchy(2, 1, 4, step=1)",
}


def drawn(con: DuckDBPyConnection, mechanism: str) -> None:
    con.execute(f"CREATE MACRO m() AS ldp.{str(registry().mechanism(mechanism)).replace('=', ' := ')}")
    value = "[1, 2, 3, 5, 8, 13][1 + (hash(i) % 6)::INTEGER]"
    con.execute(f"""CREATE TABLE r AS SELECT ldp.perturb({value}, m()) AS x, 1 + i % 4 + (i % 7) / 8 AS w, i % 3 AS g,
        ['a', 'b'][1 + i % 2] AS level FROM range(900) t(i)""")


def answer(con: DuckDBPyConnection, question: str, reports: str, options: str = "", m: str = "m()") -> list[float]:
    arguments = "".join(f", {name} := {sql_literal(one)}" for name, one in ARGUMENTS.get(question, {}).items())
    return flat(con.execute(f"SELECT ldp.{question}({reports}, {m}{arguments}{options}) FROM r").fetchall())


@pytest.mark.parametrize("question", [name for name in QUESTIONS if name not in ("diagnose", "compare_estimators")])
def test_equal_weights_change_no_answer(con: DuckDBPyConnection, question: str) -> None:
    drawn(con, MECHANISMS[IN_TURN[question]])
    plain = answer(con, question, "x")
    for weight in ("1", "0.25", "4096"):  # powers of two: no sum is rounded
        assert answer(con, question, "x", f", weight := {weight}") == pytest.approx(plain, 1e-6, 1e-9, True)
    levels = answer(con, question, "{level: level, report: x}", m="{a: m(), b: m()}")
    weighted = answer(con, question, "{level: level, report: x}", ", weight := 8", "{a: m(), b: m()}")
    assert weighted == pytest.approx(levels, 1e-6, 1e-9, True)


def test_equal_weights_change_no_answer_about_several_columns_or_several_reports(con: DuckDBPyConnection) -> None:
    row = "'row(columns={a: krr(2, [1, 2, 3]), b: olh(2, [''x'', ''y''])})'"
    report = f"ldp.perturb({{a: 1 + i % 3, b: ['x', 'y'][1 + i % 2]}}, {row})"
    con.execute(f"CREATE TABLE r AS SELECT {report} AS x FROM range(900) t(i)")
    for question, arguments in (
        ("estimate", ""),
        ("margin", ", ['a']"),
        ("share", ", {a: [1, 2], b: 'x'}"),
        ("share", ", {a: 1}, given := {b: 'x'}"),
        ("mean", ", of := 'a', given := {b: 'y'}"),
        ("difference", ", {a: 1}, {b: 'x'}, {b: 'y'}"),
    ):
        call = f"SELECT ldp.{question}(x, {row}{arguments}, weight := "
        plain, weighted = (flat(con.execute(f"{call}{weight}) FROM r").fetchall()) for weight in ("NULL", "4"))
        assert weighted == pytest.approx(plain, 1e-6, 1e-9, True), question
    m = "ldp.krr(1, [1, 2, 3])"
    people = f"SELECT [ldp.perturb(v, {m}), ldp.perturb(v, {m})] AS x FROM (SELECT 1 + i % 3 AS v FROM range(900) t(i))"
    con.execute(f"CREATE TABLE l AS {people}")
    calls = (f"SELECT ldp.mean(x, {m}, weight := {one}) FROM l" for one in ("NULL", "4"))
    plain, weighted = (flat(con.execute(call).fetchall()) for call in calls)
    assert weighted == pytest.approx(plain, 1e-6, 1e-9, True)


@pytest.mark.parametrize("question", [name for name in QUESTIONS if name != "compare_estimators"])
def test_weighted_counts_add_up_and_have_one_answer(con: DuckDBPyConnection, question: str) -> None:
    drawn(con, MECHANISMS["hashes"])
    whole = answer(con, question, "x", ", weight := w")
    assert answer(con, question, "ldp.counts(x, weight := w)") == pytest.approx(whole, 1e-9, 1e-9, True)
    con.execute("CREATE TABLE parts AS SELECT g, ldp.counts(x, weight := w) AS c FROM r GROUP BY g")
    con.execute("CREATE OR REPLACE TABLE r AS SELECT c AS x FROM parts")
    assert answer(con, question, "ldp.counts(x)") == pytest.approx(whole, 1e-9, 1e-9, True)


@cache
def channel(mechanism: str) -> tuple[list[str], np.ndarray]:
    """Return the reports of a mechanism over `VALUES` as JSON, and the probability of each report of each value."""
    if mechanism.startswith("oue"):
        own: Any = certify(registry().mechanism(mechanism)).response
        held = (np.arange(16)[:, None] >> np.arange(4)) & 1
        chances = np.where(np.eye(4)[:, None] > 0, float(own.hit), float(own.miss))
        return [f"[{bits}]" for bits in range(16)], np.where(held, chances, 1 - chances).prod(axis=2)
    with ldpsql.connect() as con:
        rows = con.sql(f"SELECT value, report, probability FROM ldp.channel({sql_literal(mechanism)})").fetchall()
    reports = list(dict.fromkeys(json.dumps(report) for _, report, _ in rows))
    table = np.zeros((len(VALUES), len(reports)))
    for value, report, probability in rows:
        table[VALUES.index(int(value)), reports.index(json.dumps(report))] = probability
    return reports, table


def weighted_counts(con: DuckDBPyConnection, mechanism: str, sums: np.ndarray) -> None:
    """Create the table c of counts with these n, w and ww, shape (rows, reports, 3), for reports in the order of `channel`."""
    kind = con.execute(f"SELECT typeof(ldp.perturb(1, {sql_literal(mechanism)}))").fetchall()[0][0]
    keys = ", ".join(f"{sql_literal(str(json.loads(report)))}::{kind}" for report in channel(mechanism)[0])
    con.execute("CREATE TABLE sums (place INTEGER, counts STRUCT(n UBIGINT, w DOUBLE, ww DOUBLE)[])")
    rows = [(place, [{"n": round(n), "w": w, "ww": ww} for n, w, ww in one]) for place, one in enumerate(sums.tolist())]
    con.executemany("INSERT INTO sums VALUES (?, ?)", rows)
    con.execute(f"CREATE TABLE c AS SELECT place, map([{keys}], counts) AS counts FROM sums")


@pytest.mark.parametrize("estimator", ["ibu", "inv"])
@pytest.mark.parametrize("mechanism", EXACT)
def test_errors_are_those_of_the_delta_method(con: DuckDBPyConnection, mechanism: str, estimator: str) -> None:
    """The variance of an estimate f is the sum of w^2 (df/dq_z - mean)^2 over the rows; f is differentiated from outside."""
    text = EXACT[mechanism]
    reports, table = channel(text)
    population = np.array(SHARES)[:, None] * table
    n, w, ww = (PEOPLE * (population * np.array(WEIGHTS)[:, None] ** power).sum(axis=0) for power in range(3))
    steps = np.diag(1e-3 * w)
    moved = np.concatenate([[w], w + steps, w - steps])  # a row for the estimate, and two for each slope
    weighted_counts(con, text, np.stack([np.broadcast_to(n, moved.shape), moved, np.broadcast_to(ww, moved.shape)], axis=2))
    for question, more, place in (
        ("estimate", "", "[2]"),
        ("share", ", 2", ""),
        ("mean", "", ""),
        ("variance", "", ""),
        ("range_share", ", 2, 3", ""),
    ):
        call = f"ldp.{question}(counts, {sql_literal(text)}{more}, estimator := '{estimator}'){place}"
        rows = con.execute(f"SELECT a.estimate, a.std_error FROM (SELECT place, {call} AS a FROM c) ORDER BY place").fetchall()
        (estimate, (error, *_)), total = np.transpose(rows), w.sum()
        ends = estimate[1:].reshape(2, len(reports))
        slopes = (ends[0] - ends[1]) / (2e-3 * w) * total
        expected = np.sqrt(ww @ (slopes - (w / total) @ slopes) ** 2) / total
        unweighted = np.sqrt((w @ (slopes - (w / total) @ slopes) ** 2) / total / PEOPLE)
        assert error == pytest.approx(expected, rel=0.01), question
        assert abs(error / unweighted - 1) > 0.1, question  # the weights matter


@pytest.mark.parametrize("question", ["share", "range_share"])
def test_the_error_of_an_inversion_of_few_sets_includes_that_of_its_sum(con: DuckDBPyConnection, question: str) -> None:
    """The estimate is a ratio of two noisy numbers; 200,000 draws of all reports have its error to half a percent."""
    text, n = "oue(1, [1, 2, 3, 4])", 500
    _, table = channel(text)
    chances = np.array(SHARES) @ table
    held = (np.arange(16)[:, None] >> np.arange(4)) & 1
    hit, miss = (float((table @ held)[place, 0]) for place in (0, 1))
    drawn = (seeds.generator(__name__).multinomial(n, chances, 200_000) @ held / n - miss) / (hit - miss)
    total = drawn.sum(axis=1)
    error = (drawn[:, 1] / total)[total > 0.3].std()  # of the others, one in 100,000, the ratio is far away
    weighted_counts(con, text, np.stack([n * chances] * 3, axis=1)[None])
    arguments = {"share": "2", "range_share": "2, 2"}[question]
    call = f"ldp.{question}(counts, {sql_literal(text)}, {arguments}, estimator := 'inv')"
    stated = con.execute(f"SELECT a.std_error FROM (SELECT {call} AS a FROM c)").fetchall()[0][0]
    assert stated == pytest.approx(error, rel=0.02)


@pytest.mark.parametrize("weight", ["-w", "nullif(w, 2)", "'inf'::DOUBLE", "'nan'::DOUBLE", "1e200", "1e-200", "NULL::DOUBLE"])
def test_weights_that_are_none_are_refused(con: DuckDBPyConnection, weight: str) -> None:
    drawn(con, MECHANISMS["k-RR"])
    with pytest.raises(duckdb.Error, match=r"LDP403.*weights"):
        con.execute(f"SELECT ldp.ibu(x, m(), weight := {weight}) FROM r").fetchall()
    with pytest.raises(duckdb.Error, match=r"LDP403.*weights"):
        con.execute(f"SELECT ldp.counts(x, weight := {weight}) FROM r").fetchall()


def test_weighted_reports_and_counts_may_be_made_with_lambdas(con: DuckDBPyConnection) -> None:
    made = "list_transform([city, city], lambda one: lower(one))"
    for call in ("counts({}, weight := w)", "counts(map([{}], [w]))"):
        asked, source = "SELECT ldp." + call, "(VALUES ('A', 2), ('B', 3)) AS t(city, w)"
        inside = con.execute(f"{asked.format(made)} FROM {source}").fetchall()
        assert inside == con.execute(f"{asked.format('r')} FROM (SELECT {made} AS r, w FROM {source})").fetchall()


def test_arrays_are_counted_with_weights_and_added_up(con: DuckDBPyConnection) -> None:
    one, other = "[1, 0]::INTEGER[2]", "[0, 0]::INTEGER[2]"
    counts = f"SELECT ldp.counts(r, weight := w) AS counts FROM (VALUES ({one}, 2), ({one}, 3), ({other}, 1)) AS t(r, w)"
    weighted = con.execute(f"SELECT list_sort([v.w for v in map_values(ldp.counts(counts))]) FROM ({counts})").fetchall()
    assert weighted == [([1.0, 5.0],)]


def test_sums_of_weights_are_no_counts_and_weighted_counts_are_not_taken_for_counts(con: DuckDBPyConnection) -> None:
    drawn(con, MECHANISMS["k-RR"])
    con.execute("CREATE TABLE s AS SELECT map(list(x), list(w)) AS c FROM (SELECT x, sum(w) AS w FROM r GROUP BY x)")
    with pytest.raises(duckdb.Error, match=r"LDP403.*sums of weights"):
        con.execute("SELECT ldp.inv(c, m()) FROM s").fetchall()
    con.execute("CREATE TABLE c AS SELECT ldp.counts(x, weight := w) AS c, ldp.counts(x) AS plain FROM r")
    with pytest.raises(duckdb.Error, match=r"LDP403.*take no weight"):
        con.execute("SELECT ldp.inv(c, m(), weight := 2) FROM c").fetchall()
    with pytest.raises(duckdb.Error):
        con.execute("SELECT ldp.counts(c) FROM (SELECT c FROM c UNION ALL SELECT plain FROM c)").fetchall()
    assert con.execute("SELECT ldp.inv(x, m(), weight := 0) FROM r").fetchall() == [(None,)]
    with pytest.raises(duckdb.Error, match="without weights"):
        con.execute("SELECT ldp.people(x, m(), weight := w) FROM r").fetchall()
    for name in ("key_value", "independence"):
        text, value = OTHERS[name]
        con.execute(
            f"CREATE OR REPLACE TABLE t AS SELECT ldp.perturb({value}, {sql_literal(text)}) AS x, i FROM range(1, 600) t(i)"
        )
        with pytest.raises(duckdb.Error, match="weight"):
            con.execute(f"SELECT ldp.{name}(x, {sql_literal(text)}, weight := i) FROM t")


def test_diagnosis_counts_rows_and_their_worth(con: DuckDBPyConnection) -> None:
    drawn(con, MECHANISMS["k-RR"])
    rows, worth, w, ww = con.execute(
        "SELECT d.reports, d.weighted_reports, w, ww FROM "
        "(SELECT ldp.diagnose(x, m(), weight := w) AS d, sum(w) AS w, sum(w * w) AS ww FROM r)"
    ).fetchall()[0]
    assert rows == 900
    assert worth == pytest.approx(float(w) ** 2 / float(ww))


def test_python_and_the_command_line_weigh_as_sql_does(con: DuckDBPyConnection, tmp_path: Path) -> None:
    drawn(con, MECHANISMS["hashes"])
    path, m = tmp_path / "r.parquet", MECHANISMS["hashes"]
    con.execute(f"COPY r TO '{path}'")
    expected = flat(con.execute("SELECT unnest(ldp.best(x, m(), weight := w), recursive := true) FROM r").fetchall())
    frame = con.sql("FROM r").pl()
    for data in (frame, frame.lazy(), str(path)):
        own = ldpsql.estimate(data, m, "best", column="x", weight="w").to_arrow().to_pylist()
        assert flat(own) == pytest.approx(expected)
    counts = ldpsql.merge(ldpsql.partial_counts(part, "x", "w") for part in (frame[:400], frame[400:]))
    own = ldpsql.estimate(ldpsql.Counts.from_arrow(counts.to_arrow()), m, "best").to_arrow().to_pylist()
    assert flat(own) == pytest.approx(expected)
    with pytest.raises(ldpsql.LdpError, match="with weights and without"):
        counts + ldpsql.partial_counts(frame, "x")  # refused
    grouped = flat(con.execute("SELECT g, ldp.mean(x, m(), weight := w) FROM r GROUP BY g ORDER BY g").fetchall())
    own = ldpsql.estimate(frame, m, column="x", by="g", weight="w", question="mean").to_arrow().drop(["n"]).to_pylist()
    assert flat(own) == pytest.approx(grouped)
    for command in (["estimate", str(path), "x", "--estimator=best"], ["ask", "mean", str(path), "x", "--by=g"]):
        ran = CliRunner().invoke(app, [*command, f"--mechanism={m}", "--weight=w", "--format=json"])
        assert ran.exit_code == 0, ran.output
        found = [{name: one for name, one in row.items() if name != "n"} for row in json.loads(ran.stdout)]
        assert flat(found) == pytest.approx(expected if command[0] == "estimate" else grouped)
    levels = pa.array([{"level": "a", "report": 1}])
    with pytest.raises(ldpsql.LdpError, match="pass a frame"):
        ldpsql.estimate(levels, m, weight="w")
