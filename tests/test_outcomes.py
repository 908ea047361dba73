"""Means, sums, variances and regressions of raw columns by a perturbed one are those of the true values, with honest errors.

The expectation over all reports is exact: each row once for each report, weighted by the probability of the report.
"""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from duckdb import DuckDBPyConnection

import ldpsql
from ldpsql import certify
from ldpsql.channels import SetChannel
from ldpsql.functions import registry
from tests import seeds

RNG = seeds.generator(__name__)  # data for the tests; no claim depends on a seed
KRR = "ldp.krr(1, [1, 2, 5])"
MECHANISMS = [KRR, "ldp.olh(1, [1, 2, 5])", "ldp.oue(1, [1, 2, 5])", "ldp.truncated_geometric(1, 1, 5)"]


@pytest.fixture(scope="module")
def con() -> DuckDBPyConnection:
    own = ldpsql.connect()
    drawn = [
        RNG.choice([1, 2, 5], 600, p=[0.5, 0.3, 0.2]),
        RNG.normal(10, 3, 600),
        RNG.normal(0, 1, 600),
        RNG.integers(1, 4, 600),
    ]
    own.from_arrow(pa.table(dict(zip("vyxw", drawn, strict=True)))).create("people")
    for number, mechanism in enumerate(MECHANISMS):
        own.execute(f"CREATE TABLE expected_{number} AS FROM people JOIN ({channel(own, mechanism)}) USING (v)")
    return own


def channel(con: DuckDBPyConnection, mechanism: str) -> str:
    """Return SQL rows (v, report, p) with the probability of each report of each value."""
    if "oue" not in mechanism:
        (kind,) = con.execute(f"SELECT typeof(ldp.perturb(1, {mechanism}))").fetchall()
        return f"SELECT value::INTEGER AS v, report::{kind[0]} AS report, probability AS p FROM ldp.channel({mechanism})"
    own = certify(registry().mechanism(mechanism.removeprefix("ldp."))).response
    assert isinstance(own, SetChannel)
    rows, hit, miss = [], float(own.hit), float(own.miss)
    for at, v in enumerate((1, 2, 5)):
        for bits in product((0, 1), repeat=3):
            p = np.prod([abs(1 - bit - (hit if j == at else miss)) for j, bit in enumerate(bits)])
            rows.append(f"({v}, [{sum(bit << j for j, bit in enumerate(bits))}]::UBIGINT[], {p}::DOUBLE)")
    return f"SELECT * FROM (VALUES {', '.join(rows)}) AS t(v, report, p)"


def rows(con: DuckDBPyConnection, call: str, table: str) -> list[tuple[Any, ...]]:
    """Return the rows of an aggregate that returns a list, without values that nobody has."""
    return con.execute(f"SELECT unnest({call}, recursive := true) FROM {table}").fetchall()


@pytest.mark.parametrize("number", range(len(MECHANISMS)))
@pytest.mark.parametrize("measure", ["mean", "sum", "variance", "share"])
def test_the_expectation_of_the_inversion_is_the_truth(con: DuckDBPyConnection, number: int, measure: str) -> None:
    call = f"ldp.outcome(report, {MECHANISMS[number]}, y, weight := p * w, measure := '{measure}', estimator := 'inv')"
    estimates = {int(value): estimate for value, estimate, *_ in rows(con, call, f"expected_{number}")}
    own = {
        "mean": "sum(w * y) / sum(w)",
        "sum": "sum(w * y)",
        "variance": "sum(w * y * y) / sum(w) - (sum(w * y) / sum(w)) ** 2",
        "share": "sum(w) / (SELECT sum(w) FROM people)",
    }
    for value, truth in con.execute(f"SELECT v, {own[measure]} FROM people GROUP BY v").fetchall():
        assert estimates[value] == pytest.approx(truth, rel=1e-6)


@pytest.mark.parametrize("number", range(len(MECHANISMS)))
@pytest.mark.parametrize("measure", ["mean", "sum", "share"])
def test_the_error_is_that_of_independent_rows(con: DuckDBPyConnection, number: int, measure: str) -> None:
    """People are drawn from `people` with their probabilities, and report: the variance of the estimate is known."""
    many, mechanism = 4_000_000, MECHANISMS[number]
    con.execute(
        f"CREATE OR REPLACE TABLE sums AS SELECT ldp.sums(report, y, weight := w) AS s FROM (SELECT report, y, w, "
        f"unnest(range(round(p * {many} / 600.0::DOUBLE)::BIGINT)) FROM expected_{number}) GROUP BY report"
    )
    call = f"ldp.outcome(s, {mechanism}, measure := '{measure}', estimator := 'inv')"
    stated = {int(row[0]): row for row in rows(con, call, "sums")}
    exact = con.execute(
        f"""
        WITH reports AS (SELECT DISTINCT report FROM expected_{number}),
        q AS (SELECT report, unnest(ldp.weights(report, {mechanism}), recursive := true) FROM reports),
        law AS (SELECT p / 600 AS chance, w, y, value AS k, weight AS q FROM expected_{number} JOIN q USING (report)),
        t AS (SELECT k, sum(chance * w * q) AS n, sum(chance * w * q * y) AS s FROM law GROUP BY k)
        SELECT k, sqrt(sum(chance * w * w * q * q * (y - s / n) ** 2)) / any_value(n),
               sqrt(sum(chance * (w * q * y) ** 2) - any_value(s) ** 2) * {many},
               sqrt(sum(chance * w * w * (q - n / (SELECT avg(w) FROM people)) ** 2)) / (SELECT avg(w) FROM people)
        FROM law JOIN t USING (k) GROUP BY k
        """
    ).fetchall()
    for k, *errors in exact:
        if k in (1, 2, 5):
            error = errors[["mean", "sum", "share"].index(measure)] / many**0.5
            assert stated[int(k)][2] == pytest.approx(error, rel=0.01)


@pytest.mark.parametrize("number", range(len(MECHANISMS)))
def test_the_expected_regressions_are_those_of_the_values(con: DuckDBPyConnection, number: int) -> None:
    v, y, x, w = (np.array(column) for column in zip(*con.execute("FROM people").fetchall(), strict=True))
    if "geometric" in MECHANISMS[number]:  # it has other values, too: they enter as numbers
        design, options = np.stack([np.ones(600), v, x, v * x], axis=1), "numbers := true, interactions := true"
    else:
        design, options = np.stack([np.ones(600), v == 2, v == 5, x], axis=1), "numbers := false"
    truth = np.linalg.solve(design.T * w @ design, design.T * w @ y)
    call = f"ldp.regression(report, {MECHANISMS[number]}, y, regressors := {{x: x}}, weight := p * w, {options})"
    linear = [row[1] for row in rows(con, call, f"expected_{number}")]
    assert linear == pytest.approx(truth, rel=1e-6, abs=1e-6)

    late = (y > 10).astype(float)
    options += ", family := 'logistic'"
    call = f"ldp.regression(report, {MECHANISMS[number]}, y > 10, regressors := {{x: x}}, weight := p * w, {options})"
    fitted = np.array([row[1] for row in rows(con, call, f"expected_{number}")])
    score = design.T @ (w * (late - 1 / (1 + np.exp(-design @ fitted))))
    assert np.abs(score).max() < 1e-4  # the derivative of the likelihood of the true values is zero


def test_sums_in_duckdb_give_what_the_rows_give(con: DuckDBPyConnection) -> None:
    con.execute(f"CREATE OR REPLACE TABLE drawn AS SELECT *, (y > 10) AS late, ldp.perturb(v, {KRR}) AS report FROM people")
    for options in ("", ", measure := 'variance'", ", versus := 2", ", intervals := 'simultaneous'", ", estimator := 'inv'"):
        call = f"ldp.outcome(report, {KRR}, y, weight := w{options})"
        own = con.execute(f"SELECT late, unnest({call}, recursive := true) FROM drawn GROUP BY late").fetchall()
        other = [
            row[:-1]
            for row in con.execute(f"FROM ldp.outcome(drawn, report, {KRR}, y, weight := w{options}, by := late)").fetchall()
        ]
        sums = "SELECT late, ldp.sums(report, y, weight := w) AS s FROM drawn GROUP BY late, report, x > 0"
        call = f"unnest(ldp.outcome(s, {KRR}{options}), recursive := true)"
        halves = con.execute(f"SELECT late, {call} FROM ({sums}) GROUP BY late").fetchall()
        for rest in (other, halves):
            assert [row[:2] for row in sorted(own)] == [row[:2] for row in sorted(rest)]
            for row, same in zip(sorted(own), sorted(rest), strict=True):
                assert [one or 0.0 for one in row[2:]] == pytest.approx([one or 0.0 for one in same[2:]], rel=1e-7, abs=1e-7)


def test_means_of_many_values_are_drawn_to_each_other_and_their_intervals_are_not(con: DuckDBPyConnection) -> None:
    m = "ldp.krr(0.5, [1, 2, 3, 4, 5, 6])"
    con.execute(
        f"CREATE OR REPLACE TABLE alike AS SELECT ldp.perturb(1 + i % 6, {m}) AS report, hash(i) % 10 AS y "
        "FROM range(2000) AS t(i)"
    )
    best = rows(con, f"ldp.outcome(report, {m}, y)", "alike")
    inverted = rows(con, f"ldp.outcome(report, {m}, y, estimator := 'inv')", "alike")
    assert [row[2:5] for row in best] == [row[2:5] for row in inverted]
    assert all(low <= mean <= high for _, mean, _, low, high, *_ in best)
    spread = [np.nanstd([np.nan if row[1] is None else row[1] for row in some]) for some in (best, inverted)]
    assert spread[0] < spread[1]


def test_an_interval_that_would_leave_out_all_means_holds_all_of_them(con: DuckDBPyConnection) -> None:
    """As many reports of 1 as nobody would give, and all with the outcome 1, which is too many for any mean of so few."""
    m = "ldp.krr(1, [1, 2, 3, 4])"
    reports = "SELECT 1 AS report, 1 AS y FROM range(420) UNION ALL SELECT 2 + i % 3, (i >= 360)::INTEGER FROM range(1980) t(i)"
    first, *_ = sorted(rows(con, f"ldp.outcome(report, {m}, y, estimator := 'inv')", f"({reports})"))
    assert first[3:5] == (0.0, 1.0)


@pytest.mark.parametrize("weight", ["-1", "NULL::DOUBLE", "'inf'::DOUBLE", "CASE WHEN y > 10 THEN -0.5 ELSE 1 END"])
def test_weights_that_are_none_are_refused(con: DuckDBPyConnection, weight: str) -> None:
    con.execute(f"CREATE OR REPLACE TABLE drawn AS SELECT *, 1 AS g, ldp.perturb(v, {KRR}) AS report FROM people")
    for sql in (
        f"SELECT ldp.outcome(report, {KRR}, y, weight := {weight}) FROM drawn",
        f"FROM ldp.outcome(drawn, report, {KRR}, y, weight := {weight}, by := g)",
        f"SELECT ldp.regression(report, {KRR}, y, regressors := {{x: x}}, weight := {weight}) FROM drawn",
    ):
        with pytest.raises(duckdb.Error, match=r"LDP403.*weights"):
            con.execute(sql).fetchall()


def test_sums_of_weights_are_never_taken_for_counts(con: DuckDBPyConnection) -> None:
    con.execute(f"CREATE OR REPLACE TABLE drawn AS SELECT *, ldp.perturb(v, {KRR}) AS report FROM people")
    sums = "SELECT report, ldp.sums(report, y, weight := w) AS s, sum(w) AS w FROM drawn GROUP BY report"
    with pytest.raises(duckdb.Error, match=r"LDP103.*raw columns"):
        con.execute(f"SELECT ldp.outcome(ldp.counts(report), {KRR}, 1) FROM drawn").fetchall()
    for counts in ("map(list(report), list(s))", "map(list(report), list(w))"):
        with pytest.raises(duckdb.Error, match="LDP403"):
            con.execute(f"SELECT ldp.ibu({counts}, {KRR}) FROM ({sums})").fetchall()


def test_rows_without_report_or_outcome_are_left_out_and_empty_groups_are_null(con: DuckDBPyConnection) -> None:
    con.execute(f"CREATE OR REPLACE TABLE drawn AS SELECT *, ldp.perturb(v, {KRR}) AS report FROM people")
    whole = rows(con, f"ldp.outcome(report, {KRR}, y)", "drawn")
    more = "(SELECT report, y FROM drawn UNION ALL SELECT NULL, 7 UNION ALL SELECT 1, NULL)"
    assert rows(con, f"ldp.outcome(report, {KRR}, y)", more) == whole
    for call in (
        f"ldp.outcome(report, {KRR}, y)",
        f"ldp.outcome(report, {KRR}, y, weight := 0)",
        f"ldp.regression(report, {KRR}, y)",
    ):
        empty = "drawn" if "weight" in call else "drawn WHERE false"
        assert con.execute(f"SELECT {call} FROM {empty}").fetchall() == [(None,)]


@pytest.mark.parametrize("measure", ["mean", "variance"])
def test_a_value_whose_estimated_weight_is_negative_has_no_error(con: DuckDBPyConnection, measure: str) -> None:
    call = f"ldp.outcome(v, {KRR}, y, measure := '{measure}', estimator := 'inv')"
    answers = con.execute(f"SELECT unnest({call}, recursive := true) FROM (SELECT 1 AS v, i % 5 AS y FROM range(5000) t(i))")
    errors = [dict(zip([one[0] for one in answers.description], row, strict=True))["std_error"] for row in answers.fetchall()]
    assert errors[0] > 0
    assert set(errors[1:]) == {None}


@pytest.mark.parametrize("number", range(len(MECHANISMS)))
def test_the_expectation_of_the_number_of_a_report_is_the_value(con: DuckDBPyConnection, number: int) -> None:
    sums = f"SELECT v, sum(p * ldp.unbiased(report, {MECHANISMS[number]})) / sum(p) FROM expected_{number} GROUP BY v"
    for value, mean in con.execute(sums).fetchall():
        assert mean == pytest.approx(value, rel=1e-6)
    for call in (f"ldp.unbiased(NULL, {KRR})", f"ldp.unbiased((SELECT report FROM expected_0 WHERE false), {KRR})"):
        assert con.execute(f"SELECT {call}").fetchall() == [(None,)]


@pytest.mark.parametrize(
    ("value", "of"),
    [("'a'", "ldp.krr(1, ['a', 'b'])"), ("{v: 1}", "ldp.row({v: ldp.krr(1, [1, 2])})"), ("[1]", "ldp.pckv(1, [1, 2], 2)")],
)
def test_reports_without_an_unbiased_number_are_refused(con: DuckDBPyConnection, value: str, of: str) -> None:
    with pytest.raises(duckdb.Error, match=r"LDP\d\d\d"):
        con.execute(f"SELECT ldp.unbiased(ldp.perturb({value}, {of}), {of})").fetchall()


@pytest.mark.slow
def test_means_of_a_perturbed_outcome_are_covered(con: DuckDBPyConnection) -> None:
    """Of 1,200 intervals of 400 groups, 1,076 hold but for one run in a million, also if the three of a group agree."""
    own, other = "ldp.krr(1.5, [1, 2, 5])", "ldp.piecewise(2, 0, 20, step := 1)"
    con.execute(
        f"CREATE OR REPLACE TABLE drawn AS SELECT i % 400 AS g, v, y, ldp.perturb(v, {own}) AS x, ldp.perturb(y, {other}) AS z "
        "FROM (SELECT i, [1, 1, 1, 2, 2, 5][1 + (hash(i) % 6)::INTEGER] AS v, hash(i + 1) % 12 + (hash(i) % 6) AS y "
        "FROM range(800000) t(i))"
    )
    truth = dict(con.execute("SELECT v, avg(y) FROM drawn GROUP BY v").fetchall())
    answers = f"FROM ldp.outcome(drawn, x, {own}, ldp.unbiased(z, {other}), estimator := 'inv', by := g)"
    held = [low <= truth[value] <= high for value, low, high in con.execute(f"SELECT value, low, high {answers}").fetchall()]
    assert len(held) == 1200
    assert sum(held) >= 1076
    pooled = rows(con, f"ldp.outcome(x, {own}, ldp.unbiased(z, {other}), estimator := 'inv')", "drawn")
    for value, mean, error, *_ in pooled:
        assert mean == pytest.approx(truth[value], abs=5.5 * error)


def test_a_column_of_rows_of_reports_is_asked_by_its_name(con: DuckDBPyConnection) -> None:
    row = "ldp.row({v: ldp.krr(6, [1, 2, 5]), late: ldp.krr(6, [true, false])})"
    con.execute(
        f"CREATE OR REPLACE TABLE drawn AS SELECT y, ldp.perturb({{v: v, late: y > 10}}, {row}) AS report "
        "FROM people, range(200)"
    )
    late = dict(row[:2] for row in rows(con, f"ldp.outcome(report, {row}, y, of := 'late')", "drawn"))
    truth = dict(con.execute("SELECT y > 10, avg(y) FROM people GROUP BY 1").fetchall())
    assert late[True] == pytest.approx(truth[True], abs=0.5)
    assert late[False] == pytest.approx(truth[False], abs=0.5)
    with pytest.raises(duckdb.Error, match="several columns"):
        con.execute(f"SELECT ldp.outcome(report, {row}, y) FROM drawn").fetchall()


@pytest.mark.parametrize(
    "options", ["measure := 'median'", "estimator := 'ibu'", "confidence := 2", "versus := 3", "measure := 'sum', versus := 1"]
)
def test_what_cannot_be_asked_is_refused(con: DuckDBPyConnection, options: str) -> None:
    with pytest.raises(duckdb.Error, match=r"LDP\d\d\d"):
        con.execute(f"SELECT ldp.outcome(report, {KRR}, y, {options}) FROM expected_0").fetchall()


def test_a_logistic_regression_takes_the_unbiased_numbers_of_a_perturbed_outcome(con: DuckDBPyConnection) -> None:
    con.execute("""CREATE MACRO y() AS ldp.matrix([0, 1], [['3/4', '1/4'], ['1/4', '3/4']]);
        CREATE MACRO g() AS ldp.not_private(['a', 'b'], [['1', '0'], ['0', '1']]);
        CREATE TABLE two AS SELECT ['a', 'b'][1 + i % 2] AS g, (i % 10 < 4 + i % 2)::INTEGER AS r FROM range(2000) t(i)""")
    fit = "SELECT unnest(ldp.regression(g, g(), {}, family := 'logistic'), recursive := true) FROM two"
    (_, first, *_), (_, second, *_) = con.execute(fit.format("ldp.unbiased(r, y())")).fetchall()
    means = [mean for (mean,) in con.execute("SELECT avg(ldp.unbiased(r, y())) FROM two GROUP BY g ORDER BY g").fetchall()]
    logits = [math.log(mean / (1 - mean)) for mean in means]
    assert [first, first + second] == pytest.approx(logits, abs=1e-6)
    for coded in ("2 * r + 1", "2 * r - 1", "5 * r"):
        with pytest.raises(duckdb.Error, match="between 0 and 1"):
            con.execute(fit.format(coded))
