"""Estimators compared by simulation: the estimate stands for the truth, and counts are simulated from it."""

from __future__ import annotations

import duckdb
import numpy as np
import pytest
from duckdb import DuckDBPyConnection

import ldpsql
from ldpsql import Likelihood
from ldpsql.errors import InvalidDomain, InvalidParameter, NotApplicable
from ldpsql.estimates.simulated import simulations
from ldpsql.functions import registry
from ldpsql.inference.operators import KeepOrSpreadOperator
from ldpsql.questions import metric_named

COIN = KeepOrSpreadOperator(4, 0.4, 0.2)
COUNTS = np.array([[400.0, 200.0, 210.0, 190.0]])
VALUES = "['a', 'b', 'c', 'd']"


@pytest.fixture(scope="module")
def estimate() -> ldpsql.Estimate:
    reports = ["a"] * 400 + ["b"] * 200 + ["c"] * 210 + ["d"] * 190
    return ldpsql.estimate(reports, f"krr(1, {VALUES})", "best")


def test_simulated_counts_are_of_as_many_reports_and_as_likely_as_the_estimate_says() -> None:
    """The mean of 400 runs of 1,000 reports: five standard deviations of each count."""
    theta = np.array([[0.7, 0.1, 0.2, 0.0]])
    truth, simulated = simulations(Likelihood(COIN, COUNTS), theta, 400)
    chance = COIN.forward(theta)[0]
    assert truth == pytest.approx(theta[0])
    assert simulations(Likelihood(COIN, COUNTS), np.array([[1.2, 0.0, 0.0, -0.2]]), 2)[0].tolist() == [1, 0, 0, 0]
    assert (simulated.n == 1000).all()
    deviation = np.sqrt(chance * (1 - chance) * 1000 / 400)
    assert (abs(simulated.counts.mean(axis=0) - 1000 * chance) < 5 * deviation).all()


def test_the_same_reports_are_compared_with_the_same_result(estimate: ldpsql.Estimate) -> None:
    rows = ldpsql.compare_estimators(estimate, ["ibu", "em_mr", "uniform"], runs=5)
    assert rows.equals(ldpsql.compare_estimators(estimate, ["ibu", "em_mr", "uniform"], runs=5))
    assert rows["estimator"].to_list() == ["ibu", "em_mr", "uniform"]


def test_errors_are_those_of_the_metric_and_the_lowest_is_best(estimate: ldpsql.Estimate) -> None:
    """The uniform baseline has the same error in every run: its distance from the estimate."""
    rows = ldpsql.compare_estimators(estimate, ["uniform", "ibu"], metric=lambda p, q: float(abs(p - q).max()), runs=4)
    assert rows["error"][0] == pytest.approx(abs(estimate.estimate - 0.25).max())
    assert rows["std_error"][0] == pytest.approx(0, abs=1e-12)
    assert rows["best"].any()


def test_an_estimator_that_does_not_suit_the_reports_has_no_error(estimate: ldpsql.Estimate) -> None:
    rows = ldpsql.compare_estimators(estimate, ["ems", "uniform"], runs=2)
    assert rows.rows()[0] == ("ems", None, None, False)
    assert rows["best"].to_list() == [False, True]


@pytest.mark.parametrize(
    ("name", "error"),
    [("mae", 2 / 3), ("mse", 2 / 3), ("total_variation", 1.0), ("wasserstein", 5.0), ("mean", 5.0), ("variance", 0.0)],
)
def test_metrics_are_those_of_mass_that_moves_from_one_end_to_the_other(name: str, error: float) -> None:
    p, q = np.array([1.0, 0.0, 0.0]), np.array([0.0, 0.0, 1.0])
    assert metric_named(name, np.array([0.0, 1.0, 5.0]))(p, q) == pytest.approx(error)


def test_if_only_the_observed_reports_are_known_the_truth_is_their_maximum() -> None:
    private = f"olh(1, {VALUES}, seeds='private')"
    one = ldpsql.estimate(ldpsql.perturb(["a", "b", "c", "c"] * 20, private), private)
    truth, simulated = simulations(one.likelihood, np.full((1, 4), 0.25), 2)
    assert not one.likelihood.operator.complete
    assert truth == pytest.approx(one.estimate, abs=1e-6)
    assert (simulated.n == 80).all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"estimators": []}, "estimators is empty"),
        ({"runs": 1}, "number of simulations"),
        ({"runs": 10**6}, "number of simulations"),
        ({"metric": "bogus"}, "no such error"),
    ],
)
def test_what_cannot_be_compared_is_refused(estimate: ldpsql.Estimate, options: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        ldpsql.compare_estimators(estimate, **{"estimators": ["ibu"], **options})  # type: ignore[arg-type]


def test_positions_need_values_in_order(estimate: ldpsql.Estimate) -> None:
    with pytest.raises(InvalidDomain, match="order"):
        ldpsql.compare_estimators(estimate, ["ibu"], metric="wasserstein", runs=2)
    with pytest.raises(NotApplicable, match="values in order"):
        registry().estimator("best(criterion='bootstrap', metric='mean')").fit(Likelihood(COIN, COUNTS))


def test_sql_compares_in_each_group_and_over_counts(con: DuckDBPyConnection) -> None:
    con.execute(f"CREATE MACRO m() AS ldp.krr(1, {VALUES})")
    con.execute("CREATE TABLE r AS SELECT i % 2 AS g, ['a', 'a', 'b', 'c', 'd'][1 + i // 2 % 5] AS x FROM range(600) t(i)")
    call = "m(), ['uniform', 'em_mr'], metric := 'mse', runs := 2"
    grouped = "SELECT g, ldp.{} FROM r GROUP BY g ORDER BY g"
    rows = con.sql(grouped.format(f"compare_estimators(x, {call})")).fetchall()
    assert rows == con.sql(grouped.format(f"compare_estimators(ldp.counts(x), {call})")).fetchall()
    assert [one["estimator"] for one in rows[0][1]] == ["uniform", "em_mr"]
    (nothing,) = con.execute(f"SELECT ldp.compare_estimators(NULL::VARCHAR, {call})").fetchone() or ()
    assert nothing is None


@pytest.mark.parametrize(
    "arguments",
    ["NULL", "[NULL]", "[]", "['bogus']", "['shared']", "'ibu'", "[1]", "['ibu'], metric := NULL", "['ibu'], metric := 1"],
)
def test_sql_refuses_what_it_cannot_compare(con: DuckDBPyConnection, arguments: str) -> None:
    with pytest.raises(duckdb.Error, match=r"\[LDP[1-4]\d+\]"):
        con.execute(f"SELECT ldp.compare_estimators('a', ldp.krr(1, {VALUES}), {arguments})").fetchall()


def test_best_by_bootstrap_is_the_estimate_of_the_candidate_that_it_names() -> None:
    fit = registry().estimator("best(criterion='bootstrap', metric='mse')").fit(Likelihood(COIN, COUNTS))
    name, reason = fit.chosen[0], fit.reasons[0]
    assert f"mse in simulations: {name} " in reason
    assert {"em_mr", "best"} <= {part.split()[0] for part in reason.split(": ")[1].split(", ")}
    assert fit.theta == pytest.approx(registry().estimator(name).fit(Likelihood(COIN, COUNTS)).theta)
