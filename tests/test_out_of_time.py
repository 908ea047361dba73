"""What is left of an estimate when its time runs out: always a distribution, and the better the later that is."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from duckdb import DuckDBPyConnection, Error

import ldpsql
from ldpsql import Estimate, Likelihood, Mechanism, certify
from ldpsql.errors import InvalidParameter
from ldpsql.estimators import Split
from ldpsql.functions import registry
from ldpsql.inference.operators import merged, supports
from ldpsql.inference.operators.levels import MergedSupportOperator
from ldpsql.testing import DenseOperator

VALUES, PEOPLE = 24, 60
SETS = ("oue(2, {})", "rappor(2, {})", "subset_selection(2, {})", "olh(2, {}, seeds='private')")
Clock = Callable[[], None]


def mechanism(text: str, size: int = VALUES) -> Mechanism:
    return registry().mechanism(text.format(list(range(size))))


def reports(of: Mechanism, people: int = PEOPLE, size: int = VALUES) -> pa.Array:
    return certify(of).perturb(pa.array(np.arange(people) ** 2 % size))


def within(looks: int, wind: Clock, column: pa.Array, of: Mechanism, **estimator: object) -> Estimate:
    wind()
    one = ldpsql.estimate(column, of, registry().estimator({"deadline": looks, **estimator}))
    assert one.estimate.min() >= 0
    assert one.estimate.sum() == pytest.approx(1)
    assert one.diagnosis.gap >= 0  # the diagnosis does not fail, either
    return one


@pytest.mark.parametrize("text", SETS)
@pytest.mark.parametrize(
    "estimator",
    [
        {"estimator": "ibu"},
        {"estimator": "ibu", "stop": "held_out"},
        {"estimator": "ibu", "stop": "paper"},
        {"estimator": "ems", "stop": "20"},
        {"estimator": "pool"},
        {"estimator": "pool", "neighbours": "ignore"},
        {"estimator": "em_mr"},
        {"estimator": "corrected_em"},
        {"estimator": "empirical_bayes"},
        {"estimator": "best"},
    ],
    ids=lambda options: "-".join(options.values()),
)
def test_a_deadline_may_pass_at_any_look_at_the_clock(wound: Clock, text: str, estimator: dict[str, object]) -> None:
    of = mechanism(text)
    column = reports(of)
    for looks in (8, 10, 12, 17, 30, 90):
        within(looks, wound, column, of, **estimator)


def test_the_maximum_that_a_deadline_cuts_short_is_better_than_equal_shares(wound: Clock) -> None:
    of = mechanism(SETS[0])
    column = reports(of)
    even = ldpsql.estimate(column, of, "uniform").likelihood.gap(np.full((1, VALUES), 1 / VALUES))[0]
    gaps = [within(looks, wound, column, of, estimator="ibu").diagnosis.gap for looks in (30, 60, 5000)]
    assert gaps[2] <= 1e-9
    assert min(gaps[:2]) < even


def test_best_says_what_it_had_no_time_to_compare(wound: Clock) -> None:
    of = mechanism(SETS[0])
    column = reports(of)
    each = [within(looks, wound, column, of, estimator="best").diagnosis for looks in (4, 6, 8, 10, 20, 40, 80)]
    reasons = {diagnosis.reason.rpartition("; ")[2] for diagnosis in each}
    assert "there was no time to compare it with others" in reasons
    assert any(reason.startswith("there was no time to compare ") and "ems(" in reason for reason in reasons)
    assert {diagnosis.status for diagnosis in each} == {"out of time"}
    assert within(100_000, wound, column, of, estimator="best").diagnosis.status == "regularised"


def test_the_mean_over_folds_is_that_of_each_group() -> None:
    nobody = Likelihood(DenseOperator(np.eye(3)), np.ones((3, 3)))
    parts = Split(nobody, nobody, np.array([0, 2, 2]), 3)
    theta = np.eye(3)
    assert parts.means(theta).tolist() == [[1, 0, 0], [1 / 3, 1 / 3, 1 / 3], [0, 0.5, 0.5]]


@pytest.mark.parametrize("call", ["ldp.corrected_em({r}, {m})", "ldp.diagnose({r}, {m}, estimator := 'corrected_em')"])
def test_an_estimator_that_compares_all_pairs_refuses_large_domains(con: DuckDBPyConnection, call: str) -> None:
    m = "ldp.krr(2, range(3000))"
    with pytest.raises(Error, match=r"LDP103.*at most 2048 values.*3000.*use ibu"):
        con.execute(f"SELECT {call.format(r='i', m=m)} FROM range(5) t(i)")


def test_an_estimator_that_compares_all_pairs_refuses_large_domains_in_python() -> None:
    of = registry().mechanism({"mechanism": "krr", "epsilon": 2, "domain": range(3000)})
    with pytest.raises(InvalidParameter, match="at most 2048 values"):
        ldpsql.estimate(pa.array([1, 2, 3]), of, "corrected_em")


@pytest.mark.parametrize("text", SETS)
def test_bias_is_corrected_the_same_some_reports_at_a_time(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    of = mechanism(text)
    column = reports(of)
    whole = ldpsql.estimate(column, of, "corrected_em").estimate
    monkeypatch.setattr("plugins.estimators.corrected_em.CELLS", 5 * VALUES)
    assert np.allclose(ldpsql.estimate(column, of, "corrected_em").estimate, whole)


@pytest.mark.parametrize("text", SETS)
def test_blocks_of_values_have_the_curvature_of_their_columns(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(supports, "_MANY_REPORTS", 10)
    of, block = mechanism(text), np.arange(VALUES) // 7
    one = ldpsql.estimate(reports(of), of, "uniform").likelihood
    op = merged(one.operator, block)
    assert isinstance(op, MergedSupportOperator)
    assert op.sampled
    means = np.stack([one.operator.matrix()[block == i].mean(axis=0) for i in range(block.max() + 1)])
    weights = one.shares[0]
    assert np.allclose(op.matrix(), means)
    assert np.allclose(op.of_reports(np.array([3, 1])), means[:, [3, 1]])
    assert np.allclose(op.curvature(weights), means * weights @ means.T)
    assert np.allclose(op.rough_curvature(weights), means * weights @ means.T, rtol=1e-5)
    assert np.allclose(op.rough_curvature(weights, np.array([2, 0])), op.curvature(weights, np.array([2, 0])), rtol=1e-5)


@pytest.mark.parametrize("text", SETS)
@pytest.mark.parametrize("estimator", ["inv_n", "ibu", "empirical_bayes"])
def test_a_thousand_values_are_estimated_from_sets(text: str, estimator: str) -> None:
    of = mechanism(text, 1000)
    one = ldpsql.estimate(reports(of, 200, 1000), of, estimator)
    assert one.estimate.sum() == pytest.approx(1)
    if estimator == "ibu":
        assert one.diagnosis.gap <= 1e-9
