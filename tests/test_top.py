"""The most frequent values, with intervals and ranks that hold although the reports chose the values."""

from __future__ import annotations

from math import comb
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from duckdb import DuckDBPyConnection
from numpy.typing import NDArray

import ldpsql
from ldpsql.errors import InvalidParameter
from ldpsql.functions import registry
from ldpsql.inference.score_intervals import deviations, exact_ends
from ldpsql.questions import Estimates
from ldpsql.testing import estimate_counts, operator_of
from tests import seeds
from tests.commands import rows

RNG = seeds.generator(__name__)  # data for the tests; no claim depends on a seed
SIZE, REPEATS = 40, 300
TRUTH = 0.8 ** np.arange(SIZE) / (0.8 ** np.arange(SIZE)).sum()
MOST_MISSES = 37  # of 300 trials that each miss with chance .05, more than 37 miss with chance 3e-7
DOMAIN = str(list(range(SIZE)))
VOTES = [f"krr(1, {DOMAIN})", f"krr(5, {DOMAIN})", f"olh(1, {DOMAIN})", f"olh(4, {DOMAIN})"]
CHOSEN = "empirical_bayes(prior='any')"
OTHERS = [f"truncated_geometric(1.0, 0, {SIZE - 1})", "planar_geometric(2, 8, 5)"]  # their intervals are for many reports


Top: TypeAlias = dict[str, NDArray[np.float64]]


def tops(estimates: Estimates, count: int) -> Top:
    """Return the columns of the answer, shape (groups, values at the top)."""
    lines = registry().question("top").measured(count, estimates)
    return {name: np.asarray(column).reshape(len(lines.sizes), -1) for name, column in lines.columns.items()}


def each(columns: Top) -> list[Top]:
    """Return the columns of each group."""
    return [dict(zip(columns, group, strict=True)) for group in zip(*columns.values(), strict=True)]


def misses(columns: Top) -> tuple[bool, bool]:
    """Return whether an interval misses a share, and whether a rank is wrong."""
    truth, ranks = TRUTH[columns["value"].astype(int)], columns["value"] + 1  # the shares fall
    in_interval = (columns["low"] <= truth) & (truth <= columns["high"])
    in_ranks = (columns["best_rank"] <= ranks) & (ranks <= columns["worst_rank"])
    return not in_interval.all(), not in_ranks.all()


def simulated(text: str, estimator: str, people: int) -> list[Top]:
    mechanism = registry().mechanism(text)
    law = operator_of(mechanism).forward(TRUTH)
    counts = RNG.multinomial(people, law / law.sum(), REPEATS).astype(np.float64)
    return each(tops(estimate_counts(mechanism, counts, registry().estimator(estimator)), 10))


@pytest.mark.parametrize(
    ("text", "people"), [(text, people) for text in VOTES for people in (200, 20_000)] + [(text, 20_000) for text in OTHERS]
)
def test_intervals_and_ranks_of_chosen_values_hold_together(text: str, people: int) -> None:
    missed = np.array([misses(one) for one in simulated(text, "inv(misfit='allow')", people)])
    assert missed.sum(axis=0).max() <= MOST_MISSES


def test_ordinary_intervals_of_chosen_values_miss_more_often_than_they_state() -> None:
    """This is why the intervals of the top are wider: at the top the noise is high."""
    flat = np.full(SIZE, 1 / SIZE)
    mechanism = registry().mechanism(VOTES[0])
    law = operator_of(mechanism).forward(flat)
    counts = RNG.multinomial(20_000, law / law.sum(), REPEATS).astype(np.float64)
    estimates = estimate_counts(mechanism, counts, registry().estimator("inv"))
    first = estimates.fit.theta.argmax(axis=1)
    trial = np.arange(REPEATS)
    assert (estimates.intervals.low[trial, first] > 1 / SIZE).mean() > 0.4
    assert np.mean(tops(estimates, 1)["low"] > 1 / SIZE) < MOST_MISSES / REPEATS


@pytest.mark.parametrize("text", [f"oue(2, {DOMAIN})", f"olh(2, {DOMAIN}, seeds='private')", f"subset_selection(2, {DOMAIN})"])
def test_intervals_of_chosen_values_hold_for_reports_that_are_not_listed(text: str) -> None:
    """Of 40 trials that miss with chance .05 each, more than 12 miss with chance 1e-7."""
    mechanism, missed = registry().mechanism(text), 0
    for _ in range(40):
        reports = ldpsql.perturb(RNG.choice(SIZE, 300, p=TRUTH).tolist(), mechanism)
        (one,) = each(tops(ldpsql.estimate(reports, mechanism, "inv").of, 5))
        missed += any(misses(one))
    assert missed <= 12


RANKS = np.arange(1, 3001)
SHAPES = {
    "1 / rank": 1 / RANKS,
    "rank^-1.2": RANKS**-1.2,
    "equal": np.ones(3000),
    "0.99^rank": 0.99**RANKS,
    "five of 5 %": np.where(RANKS <= 5, 0.05, 0.75 / 2995),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_sum_of_the_chosen_shares_of_many_values_has_little_bias(shape: str) -> None:
    """Of 3,000 values, 20 are chosen, whose inverted shares sum to 0.15 to 0.27 too much, and shrunk ones to 0.02."""
    mechanism, trials = registry().mechanism("krr(6, range(3000))"), 30
    truth = SHAPES[shape] / SHAPES[shape].sum()
    operator = operator_of(mechanism)
    counts = RNG.multinomial(2_000, operator.forward(truth), trials).astype(np.float64)
    excess = {}
    for name in ("inv", CHOSEN):
        columns = tops(estimate_counts(mechanism, counts, registry().estimator(name)), 20)
        excess[name] = (columns["estimate"] - truth[columns["value"].astype(int)]).sum(axis=1).mean()
    assert abs(excess[CHOSEN]) < excess["inv"] / 4  # seven standard errors of the mean of 30 trials from what was seen


def below(seen: int, n: int, chance: float) -> float:
    """Return the probability of fewer than ``seen`` successes."""
    return sum(comb(n, k) * chance**k * (1 - chance) ** (n - k) for k in range(seen))


def test_exact_ends_are_the_values_at_which_the_votes_become_improbable() -> None:
    votes, n, confidence = (0.2, 0.7), 50.0, 0.9
    v = (np.array([0.0, 10.0, 33.0, 50.0]) / n - votes[0]) / (votes[1] - votes[0])
    low, high = exact_ends(v, n, votes, confidence)
    for seen, least, most in zip((0, 10, 33, 50), low, high, strict=True):
        chances = votes[0] + (votes[1] - votes[0]) * np.array([least, most])
        if seen > 0:
            assert 1 - below(seen, int(n), chances[0]) == pytest.approx(0.05)
        if seen < n:
            assert below(seen + 1, int(n), chances[1]) == pytest.approx(0.05)
    assert deviations(1 - 0.05 / 1_048_576) == pytest.approx(5.46, abs=0.01)


def test_ties_are_resolved_by_votes_and_then_by_place() -> None:
    """Two shares of a half, and three of nothing, of which the third value has the most votes."""
    counts = np.array([[10.0, 50.0, 12.0, 50.0, 10.0]])
    one = estimate_counts(registry().mechanism("krr(1, ['a', 'b', 'c', 'd', 'e'])"), counts, registry().estimator("ibu"))[0]
    assert one.top(4)["value"].to_pylist() == ["b", "d", "c", "a"]
    assert one.top(5)["value"].to_pylist() == ["b", "d", "c", "a", "e"]


def test_a_share_that_stands_out_has_a_certain_rank() -> None:
    mechanism = registry().mechanism(VOTES[1])
    shares = np.array([0.5, 0.3, 0.1, *[0.1 / (SIZE - 3)] * (SIZE - 3)])
    counts = np.rint(operator_of(mechanism).forward(shares) * 100_000)
    (one,) = each(tops(estimate_counts(mechanism, counts[None], registry().estimator("ibu")), 4))
    assert one["rank"].tolist() == [1, 2, 3, 4]
    assert one["best_rank"].tolist() == [1, 2, 3, 4]
    assert one["worst_rank"].tolist() == [1, 2, 3, SIZE]


@pytest.mark.parametrize(
    ("mechanism", "estimator"),
    [
        ("olh(2, range(2048))", "ibu"),
        ("olh(2, range(2049))", CHOSEN),
        ("oue(4, range(3000))", CHOSEN),
        ("krr(8, range(3000))", CHOSEN),
    ],
)
def test_the_top_of_many_values_is_shrunk_unless_an_estimator_is_named(
    con: DuckDBPyConnection, mechanism: str, estimator: str, tmp_path: Path
) -> None:
    path = tmp_path / "r.parquet"
    reports = ldpsql.perturb([i % 7 for i in range(400)], mechanism)
    pq.write_table(pa.table({"y": reports}), path)
    each = {
        name: [row["estimate"] for row in ldpsql.estimate(reports, mechanism, name).top(3).to_pylist()]
        for name in ("ibu", CHOSEN)
    }
    assert each["ibu"] != pytest.approx(each[CHOSEN])
    assert [row["estimate"] for row in ldpsql.estimate(reports, mechanism).top(3).to_pylist()] == pytest.approx(each[estimator])

    for named, expected in (("", estimator), (", estimator := 'ibu'", "ibu")):
        query = f"SELECT unnest(ldp.top(y, ldp.{mechanism}, 3{named}), recursive := true) FROM '{path}'"
        assert [row["estimate"] for row in con.sql(query).to_arrow_table().to_pylist()] == pytest.approx(each[expected])
    command = ["ask", "top", str(path), "y", "--mechanism", mechanism, "--most", "3"]
    for chosen, expected in (([], estimator), (["--estimator", "ibu"], "ibu")):
        assert [row["estimate"] for row in rows(*command, *chosen)] == pytest.approx(each[expected])


def test_groups_counts_kept_rows_and_empty_groups(con: DuckDBPyConnection) -> None:
    con.execute("CREATE MACRO m() AS ldp.krr(9, ['a', 'b', 'c'])")
    con.execute(
        "CREATE TABLE r AS SELECT i % 3 AS g, ldp.perturb(['a', 'b', 'c'][1 + i % 3], m()) AS y FROM range(300) t(i) "
        "UNION ALL SELECT 3, NULL"
    )
    firsts = "SELECT g, ldp.top(y, m(), 2)[1].value, len(ldp.top(y, m(), 2)) FROM r GROUP BY g ORDER BY g"
    assert con.execute(firsts).fetchall() == [(0, "a", 2), (1, "b", 2), (2, "c", 2), (3, None, None)]
    counted = "SELECT ldp.top(ldp.counts(y), m(), 9) = ldp.top(y, m(), 3) FROM r"
    assert con.execute(counted).fetchall() == [(True,)]
    kept = "SELECT ldp.top(y, m(), 1, keep := g = 1)[1].value, ldp.top(y, m(), 1, keep := g = 3) FROM r"
    assert con.execute(kept).fetchall() == [("b", None)]


def test_a_domain_in_a_subquery_keeps_its_type(con: DuckDBPyConnection) -> None:
    con.execute("CREATE TABLE days AS SELECT DATE '2024-01-01' + i::INTEGER AS day FROM range(6) t(i)")
    con.execute("SET VARIABLE m = ldp.krr(9, (SELECT list(day) FROM days))")
    con.execute("CREATE TABLE r AS SELECT ldp.perturb(DATE '2024-01-03', getvariable('m')) AS y FROM range(200)")
    (value,) = con.execute("SELECT ldp.top(y, getvariable('m'), 1)[1].value::VARCHAR FROM r").fetchall()[0]
    assert value == "2024-01-03"


@pytest.mark.parametrize("count", ["0", "-1", "NULL", "'canary'", "2.5", "true"])
def test_a_number_of_values_that_is_none_is_refused(con: DuckDBPyConnection, count: str) -> None:
    with pytest.raises(Exception, match=r"LDP103.*whole number from 1") as refused:
        con.execute(f"SELECT ldp.top('a', ldp.krr(1, ['a', 'b']), {count})").fetchall()
    assert "canary" not in str(refused.value)


def test_python_refuses_a_number_of_values_that_is_none() -> None:
    one = estimate_counts(registry().mechanism(VOTES[0]), np.ones((1, SIZE)), registry().estimator("inv"))[0]
    with pytest.raises(InvalidParameter, match="whole number"):
        one.top(0)


def test_the_top_of_a_large_domain_makes_few_rows(con: DuckDBPyConnection) -> None:
    con.execute("SET VARIABLE m = ldp.olh(4, (SELECT list('item ' || i) FROM range(20000) t(i)))")
    drawn = "ldp.perturb('item ' || (i % 3), getvariable('m'))"
    con.execute(f"CREATE TABLE r AS SELECT i % 2 AS g, {drawn} AS y FROM range(3000) t(i)")
    call = "ldp.top(y, getvariable('m'), 3, estimator := 'inv')"
    rows = con.execute(f"SELECT g, unnest({call}, recursive := true) FROM r GROUP BY g ORDER BY ALL").fetchall()
    assert [(row[0], row[1]) for row in rows] == [(g, rank) for g in (0, 1) for rank in (1, 2, 3)]
    assert {row[2] for row in rows} == {"item 0", "item 1", "item 2"}
    assert all(row[8] <= 3 for row in rows)  # certainly among the first three


def test_the_error_of_a_top_value_that_reports_do_not_determine_is_null(con: DuckDBPyConnection) -> None:
    con.execute("CREATE TABLE r AS SELECT 2 * (i % 2) - 1 AS x FROM range(200) t(i)")
    mechanism = "stochastic_rounding(1, 0, 10, bins := 4)"
    rows = con.execute(f"SELECT unnest(ldp.top(x, ldp.{mechanism}, 2), recursive := true) FROM r").fetchall()
    table = ldpsql.estimate(pa.array([-1, 1] * 100), registry().mechanism("stochastic_rounding(1, 0, 10, bins=4)")).top(2)
    assert [row[3] for row in rows] == table["std_error"].to_pylist() == [None, None]
