"""A deadline holds while operators are built, in every step of a solve, and for the errors of an estimate."""

from __future__ import annotations

from dataclasses import replace
from time import monotonic, process_time

import numpy as np
import pytest
from duckdb import DuckDBPyConnection, Error

from ldpsql import Status
from ldpsql.errors import OutOfTime
from ldpsql.estimators import check
from ldpsql.functions import registry
from ldpsql.inference.limits import soonest, until
from ldpsql.questions import Mean, Quantile, RangeShare
from ldpsql.testing import estimate_counts, operator_of


@pytest.mark.parametrize(
    "call", ["ldp.ibu(r, {m}, deadline := 0.00001)", "ldp.mean(r, {m}, estimator := 'ibu(deadline=0.00001)')"]
)
def test_a_deadline_holds_while_the_operator_is_built(con: DuckDBPyConnection, call: str) -> None:
    made = f"ldp.oue(1, range({5000 + len(call)}))"  # another mechanism each time, of which nothing is kept
    con.execute(f"CREATE TABLE few AS SELECT ldp.perturb(i, {made}) AS r FROM range(10) t(i)")
    before = process_time()
    with pytest.raises(Error, match="LDP407"):
        con.execute(f"SELECT {call.format(m=made)} FROM few")
    assert process_time() - before < 10  # about .1


def test_errors_for_which_there_is_no_time_are_infinite() -> None:
    square = registry().mechanism("square_wave(1, 0, 9, bins=10)")
    estimates = estimate_counts(square, np.full((2, 10), 50.0), registry().estimator("ibu(deadline=60)"))
    assert np.isfinite(estimates.intervals.std_error).all()
    late = replace(estimates, end=monotonic() - 1)
    assert np.isinf(late.intervals.std_error).all()
    assert (late.intervals.low == 0).all()
    assert (late.intervals.high == 1).all()
    assert np.isinf(Mean().measure(late).std_error).all()
    assert np.allclose(Mean().measure(late).estimate, Mean().measure(estimates).estimate)


@pytest.mark.parametrize("size", [64, 5_000])
def test_quantiles_and_ranges_for_which_there_is_no_time_have_the_widest_intervals(size: int) -> None:
    made = registry().mechanism(f"hierarchy(1, 0, {size - 1}, step=1)")
    counts = np.full((2, operator_of(made).outputs), 5.0)
    estimates = estimate_counts(made, counts, registry().estimator("inv(deadline=60, misfit='allow')"))
    late = replace(estimates, end=monotonic() - 1)
    assert np.isinf(RangeShare(3, 9).measure(late).std_error).all()
    quantiles = Quantile(q=(0.1, 0.5))
    measured = quantiles.measure(late)
    assert np.isinf(measured.std_error).all()
    assert (measured.low == 0).all()
    assert (measured.high == size - 1).all()
    assert np.array_equal(measured.estimate, quantiles.measure(estimates).estimate)


def test_the_earlier_of_two_deadlines_holds_and_is_forgotten_afterwards() -> None:
    with until(monotonic() + 50):
        first = soonest()
        assert soonest(100) == first
        assert soonest(1) != first
        check()
    with until(monotonic() - 1), pytest.raises(OutOfTime):
        check()
    assert soonest() is None


@pytest.mark.parametrize("name", ["base_cut", "best", "corrected_em", "em_mr", "empirical_bayes", "ibu", "iiw", "inv", "pool"])
def test_every_estimator_has_a_deadline_in_sql(con: DuckDBPyConnection, name: str) -> None:
    mechanism = "ldp.krr(1, range(5))"
    query = f"SELECT len(ldp.{name}(ldp.perturb(i % 5, {mechanism}), {mechanism}, deadline := 60)) FROM range(500) t(i)"
    assert con.execute(query).fetchall() == [(5,)]


@pytest.mark.parametrize("name", ["best", "corrected_em", "em_mr", "ibu", "pool"])
def test_a_deadline_bounds_all_groups_together(name: str) -> None:
    krr = registry().mechanism({"mechanism": "krr", "epsilon": 1, "domain": list(range(100))})
    counts = np.random.default_rng(5).multinomial(3000, np.full(100, 1 / 100), size=400).astype(np.float64)
    before = process_time()
    estimates = estimate_counts(krr, counts, registry().estimator({"estimator": name, "deadline": 1e-6, "misfit": "allow"}))
    assert process_time() - before < 5
    assert estimates.fit.theta.shape == (400, 100)
    assert np.allclose(estimates.fit.theta.sum(axis=1), 1)
    if name != "ibu":  # krr has a closed form
        assert estimates.fit.status[-1] is Status.OUT_OF_TIME
        assert "deadline" in estimates[399].diagnosis.remedy


def test_a_deadline_that_is_long_enough_changes_no_estimate() -> None:
    krr = registry().mechanism("krr(1, [1, 2, 3])")
    counts = np.array([[50.0, 40.0, 30.0], [5.0, 9.0, 30.0]])
    for name in ("best", "pool", "corrected_em"):
        estimates = [estimate_counts(krr, counts, registry().estimator(text)) for text in (name, f"{name}(deadline=60)")]
        assert (estimates[0].fit.theta == estimates[1].fit.theta).all()
        assert estimates[0].fit.status == estimates[1].fit.status


def test_a_deadline_holds_for_key_value_reports(con: DuckDBPyConnection) -> None:
    con.execute("SET VARIABLE m = ldp.pckv_pm(1, range(200), bins := 32, low := 0, high := 1)")
    con.execute("CREATE TABLE pairs AS SELECT ldp.perturb(map([i % 200], [0.5]), getvariable('m')) AS r FROM range(2000) t(i)")
    before = process_time()
    query = "SELECT len(ldp.key_value(r, getvariable('m'), estimator := 'best(deadline=0.1)')) FROM pairs"
    assert con.execute(query).fetchall() == [(200,)]
    assert process_time() - before < 5


def test_a_number_that_sql_writes_without_a_leading_digit_is_an_epsilon(con: DuckDBPyConnection) -> None:
    assert con.execute("SELECT ldp.perturb('a', ldp.krr(.5, ['a', 'b']))").fetchone() in {("a",), ("b",)}
    with pytest.raises(Error, match="LDP101"):
        con.execute("SELECT ldp.perturb('a', ldp.krr(-.5, ['a', 'b']))")


def test_a_deadline_holds_for_lists_of_reports_over_many_values(con: DuckDBPyConnection) -> None:
    con.execute("CREATE MACRO m() AS ldp.olh(1, range(10000))")
    con.execute("CREATE TABLE lists AS SELECT [ldp.perturb(i % 9, m()), ldp.perturb(i % 9, m())] AS r FROM range(300) t(i)")
    before = process_time()
    with pytest.raises(Error, match="LDP407"):
        con.execute("SELECT ldp.ibu(r, m(), deadline := 0.05) FROM lists")
    assert process_time() - before < 5  # 14 before, and 3.5 GB


def test_an_estimate_without_a_deadline_is_refused_when_it_takes_too_long(
    con: DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ldpsql.inference.limits.SECONDS", -9.0)  # each group may take one second more
    con.execute("CREATE TABLE several AS SELECT i % 5 AS g, ldp.perturb(i % 9, ldp.oue(1, range(9))) AS r FROM range(900) t(i)")
    for call in ("ldp.ibu(r, ldp.oue(1, range(9)))", "ldp.mean(r, ldp.oue(1, range(9)), estimator := 'ibu')"):
        with pytest.raises(Error, match=r"LDP103.*pass deadline := 600"):
            con.execute(f"SELECT g, {call} FROM several GROUP BY g").fetchall()
    assert (
        len(con.execute("SELECT g, ldp.ibu(r, ldp.oue(1, range(9)), deadline := 60) FROM several GROUP BY g").fetchall()) == 5
    )
