"""Estimates are right, and what is said about them holds."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

import ldpsql
from ldpsql import Estimator, Fit, KeepOrSpread, Likelihood, Mechanism, Status
from ldpsql.errors import BadCounts, IllConditioned, ImpossibleReport, InvalidParameter, NoReports, NotReports
from ldpsql.estimators import Floats
from ldpsql.functions import registry
from ldpsql.testing import DenseOperator, check_estimator, estimate_counts, operator_of
from tests import seeds

ESTIMATORS = sorted(registry().estimators)
RNG = seeds.generator(__name__)  # data for the tests; no claim depends on a seed


def krr(epsilon: object, size: int) -> Mechanism:
    return registry().mechanism({"mechanism": "krr", "epsilon": epsilon, "domain": list(range(size))})


def matrix(rows: list[list[str]]) -> Mechanism:
    return registry().mechanism({"mechanism": "matrix", "domain": list(range(1, len(rows) + 1)), "rows": rows})


def as_matrix(mechanism: Mechanism) -> Mechanism:
    channel = mechanism.channel()
    assert isinstance(channel, KeepOrSpread)
    p, q = Fraction(channel.keep, 2**64), Fraction(channel.spread, 2**64)
    rows = [[str(p if x == y else q) for y in range(channel.size)] for x in range(channel.size)]
    return registry().mechanism({"mechanism": "matrix", "domain": mechanism.values(), "rows": rows})


# --- the examples of ElSalamouny and Palamidessi, section III ---

CHANNEL_7 = [["1/2", "1/3", "1/6"], ["1/3", "1/3", "1/3"], ["1/6", "1/3", "1/2"]]
CHANNEL_8 = [["1/2", "1/4", "1/4"], ["1/4", "1/2", "1/4"], ["1/4", "1/4", "1/2"]]


def test_the_maximum_of_channel_7_is_not_unique_and_each_share_has_its_range() -> None:
    estimate = ldpsql.estimate([1, 2, 3], matrix(CHANNEL_7))
    assert not estimate.diagnosis.unique
    low, high = estimate.identified
    assert low == pytest.approx([0, 0, 0], abs=1e-7)
    assert high == pytest.approx([0.5, 1, 0.5], abs=1e-7)


def test_the_maximum_of_channel_8_lies_in_a_corner() -> None:
    estimate = ldpsql.estimate([1, 2, 2, 3], matrix(CHANNEL_8))
    assert estimate.estimate == pytest.approx([0, 1, 0], abs=1e-9)
    assert estimate.diagnosis.unique
    assert estimate.diagnosis.gap <= 1e-9
    assert estimate.identified[0] == pytest.approx(estimate.identified[1])


# --- maximum likelihood ---


def test_a_hand_solved_two_by_two() -> None:
    # keep 3/4: of 100 reports 60 are the first value, so theta = (0.6 - 0.25) / 0.5 = 0.7
    counts = np.array([[60.0, 40.0], [90.0, 10.0]])
    estimates = estimate_counts(krr("1.098612288668", 2), counts, registry().estimator("ibu"))
    assert estimates.fit.theta == pytest.approx(np.array([[0.7, 0.3], [1.0, 0.0]]), abs=1e-9)


@pytest.mark.parametrize("epsilon", ["0.1", "1", "4"])
@pytest.mark.parametrize("size", [2, 5, 100])
def test_k_rr_in_closed_form_equals_the_solver_on_the_same_channel_as_a_matrix(size: int, epsilon: str) -> None:
    mechanism = krr(epsilon, size)
    reports = ldpsql.perturb((np.arange(20_000) ** 2 % size).tolist(), mechanism)
    closed, solved = ldpsql.estimate(reports, mechanism), ldpsql.estimate(reports, as_matrix(mechanism))
    assert closed.diagnosis.gap <= 1e-12
    assert solved.diagnosis.gap <= 1e-9
    assert solved.diagnosis.status == "certified"
    distance = np.sqrt(2 * 20_000 * solved.diagnosis.gap)  # in standard errors, at most
    assert np.all(np.abs(closed.estimate - solved.estimate) <= (distance + 1e-9) * closed.std_error + 1e-12)


@pytest.mark.parametrize("size", [2, 3, 20])
def test_the_closed_form_meets_the_optimality_conditions_to_1e_12(size: int) -> None:
    op = operator_of(krr("0.5", size))
    likelihood = Likelihood(op, RNG.integers(0, 1000, (200, size)).astype(np.float64) + np.eye(size)[0])
    theta = op.maximum(likelihood.shares)
    assert theta is not None
    gradient = likelihood.gradient(theta)
    assert np.all(gradient <= 1 + 1e-12)
    assert np.all(np.abs(gradient - 1)[theta > 1e-12] <= 1e-9)


def test_a_column_that_no_value_reports_and_a_report_nobody_sent_do_no_harm() -> None:
    table = np.array([[0.5, 0.5, 0.0], [0.2, 0.8, 0.0]])
    likelihood = Likelihood(DenseOperator(table), np.array([[30.0, 70.0, 0.0]]))
    ibu = registry().estimator("ibu")
    assert ibu.fit(likelihood).theta == pytest.approx(np.array([[1 / 3, 2 / 3]]), abs=1e-6)
    only_one = Likelihood(DenseOperator(table), np.array([[1.0, 0.0, 0.0]]))
    assert ibu.fit(only_one).theta == pytest.approx(np.array([[1.0, 0.0]]), abs=1e-6)


def test_steps_of_ibu_raise_the_likelihood_and_stop_where_asked() -> None:
    mechanism = krr("0.5", 10)
    reports = ldpsql.perturb([0] * 500 + [1] * 500, mechanism)
    heights = []
    for steps in (1, 2, 5, 20, 200):
        estimate = ldpsql.estimate(reports, mechanism, f"ibu(stop={steps})")
        assert estimate.diagnosis.iterations == steps
        assert estimate.diagnosis.status == "stopped"
        heights.append(estimate.diagnosis.log_likelihood)
    best = ldpsql.estimate(reports, mechanism).diagnosis
    assert all(before < after + 1e-9 for before, after in pairwise([*heights, best.log_likelihood]))


def test_the_papers_rule_stops_by_the_change_of_the_likelihood() -> None:
    mechanism = krr("1", 5)
    reports = ldpsql.perturb([0] * 1000, mechanism)
    loose = ldpsql.estimate(reports, mechanism, "ibu(stop='paper', tolerance=0.5)").diagnosis
    strict = ldpsql.estimate(reports, mechanism, "ibu(stop='paper', tolerance=0.000001)").diagnosis
    assert 0 < loose.iterations < strict.iterations
    assert loose.gap > strict.gap
    short = ldpsql.estimate(reports, mechanism, "ibu(stop='paper', tolerance=0.000001, max_iterations=2)").diagnosis
    assert (short.status, short.iterations) == ("out of steps", 2)


@pytest.mark.parametrize("stop", ["ten", "-1", "1.5", "", "1e3"])
def test_a_stop_that_means_nothing_is_refused(stop: str) -> None:
    with pytest.raises(InvalidParameter):
        registry().estimator({"estimator": "ibu", "stop": stop})


# --- inversion ---


def test_a_channel_without_a_useful_inverse_is_refused() -> None:
    with pytest.raises(IllConditioned, match="condition number"):
        ldpsql.estimate([1, 2, 3], matrix(CHANNEL_7), "inv")


# --- every estimator ---


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_passes_the_conformance_suite(name: str) -> None:
    check_estimator(registry().estimators[name])


def as_it_is(theta: Floats, counts: Floats) -> Floats:
    return theta


def sums_to_more_than_one(theta: Floats, counts: Floats) -> Floats:
    return theta * 1.1


def one_estimate_for_all_groups(theta: Floats, counts: Floats) -> Floats:
    return np.broadcast_to(theta.mean(axis=0), theta.shape)


def drowned(theta: Floats, counts: Floats) -> Floats:
    return np.full_like(theta, 1 / theta.shape[1])


def prefers_the_last_values(theta: Floats, counts: Floats) -> Floats:
    """Pull towards the end of the domain by less and less, so that only the order of the values gives it away."""
    ramp = np.arange(1.0, 1 + theta.shape[1])
    pull = np.minimum(0.5, 10 / counts.sum(axis=1, keepdims=True))
    return (1 - pull) * theta + pull * ramp / ramp.sum()


def ibu_with(bug: Callable[[Floats, Floats], Floats], status: Status) -> type[Estimator]:
    class Wrong(Estimator):
        name = "wrong"

        def fit(self, likelihood: Likelihood) -> Fit:
            theta = registry().estimator("ibu").fit(likelihood).theta
            return Fit.plain(bug(theta, likelihood.counts), status)

    return Wrong


@pytest.mark.parametrize(
    ("bug", "status", "claim"),
    [
        (sums_to_more_than_one, Status.REGULARISED, "the shares do not sum to one"),
        (one_estimate_for_all_groups, Status.REGULARISED, "a group is estimated otherwise alone than together"),
        (drowned, Status.CERTIFIED, "is called certified"),
        (drowned, Status.REGULARISED, "reports do not give the shares back"),
        (prefers_the_last_values, Status.REGULARISED, "the order of the values changes the estimate"),
    ],
)
def test_the_conformance_suite_finds_estimators_that_are_wrong(
    bug: Callable[[Floats, Floats], Floats], status: Status, claim: str
) -> None:
    check_estimator(ibu_with(as_it_is, Status.REGULARISED))
    with pytest.raises(AssertionError, match=claim):
        check_estimator(ibu_with(bug, status))


# --- errors of the estimate ---


@pytest.mark.parametrize("dense", [False, True])
def test_intervals_cover_the_truth_also_near_zero(dense: bool) -> None:
    mechanism, repeats, n = krr("1", 10), 400, 20_000
    mechanism = as_matrix(mechanism) if dense else mechanism
    theta = np.array([0.4, 0.3, 0.15, 0.1, 0.04, 0.01, 0, 0, 0, 0])
    counts = RNG.multinomial(n, operator_of(mechanism).forward(theta), repeats).astype(np.float64)
    errors = estimate_counts(mechanism, counts, registry().estimator("ibu")).intervals
    covered = ((errors.low <= theta) & (theta <= errors.high)).sum(axis=0)
    # 95 % of 400 is 380; fewer than 355 has probability 6e-8 a value
    assert covered.min() >= 355
    assert covered[:3].max() <= 397  # an interval that always covers says nothing; more has probability 2e-7


@pytest.mark.parametrize(("epsilon", "n"), [("8", 50), ("8", 200), ("4", 20), ("30", 30)])
def test_intervals_cover_at_a_large_epsilon_and_few_reports(epsilon: str, n: int) -> None:
    theta, repeats = np.array([0.98, 0.01, 0.01]), 3000
    counts = RNG.multinomial(n, operator_of(krr(epsilon, 3)).forward(theta), repeats).astype(np.float64)
    errors = estimate_counts(krr(epsilon, 3), counts, registry().estimator("ibu")).intervals
    covered = ((errors.low <= theta) & (theta <= errors.high)).mean(axis=0)
    # Wilson's interval covers .8986 at the worst of these; five standard deviations of 3,000 below that is .871
    assert covered.min() >= 0.871


def test_one_report_says_little_whatever_epsilon_is() -> None:
    estimate = ldpsql.estimate([0], krr("30", 3))
    assert estimate.low[0] < 0.3
    assert estimate.high[1] > 0.7


def test_a_raw_column_is_refused_and_honest_reports_never_are() -> None:
    mechanism = krr("1", 10)
    raw = np.minimum(RNG.geometric(0.5, 50_000) - 1, 9).tolist()
    for name in ESTIMATORS:
        with pytest.raises(NotReports, match="not drawn by krr") as caught:
            ldpsql.estimate(raw, mechanism, name)
        assert caught.value.exit_code == 3
        assert ldpsql.estimate(raw, mechanism, f"{name}(misfit='allow')").diagnosis.fit_p_value < 1e-12
    for _ in range(20):
        assert ldpsql.estimate(ldpsql.perturb(raw, mechanism), mechanism).diagnosis.fit_p_value > 1e-12


def test_reports_drawn_with_another_epsilon_are_refused() -> None:
    reports = ldpsql.perturb([0] * 50_000, krr("3", 10))
    with pytest.raises(NotReports):
        ldpsql.estimate(reports, krr("1", 10))


def test_the_influence_of_one_report_is_what_one_report_can_do() -> None:
    mechanism = krr("1", 4)
    counts = np.array([[40.0, 30.0, 20.0, 10.0]])
    before = estimate_counts(mechanism, counts, registry().estimator("inv"))[0]
    after = estimate_counts(mechanism, counts + np.array([[-1, 1, 0, 0]]), registry().estimator("inv"))[0]
    assert np.abs(after.estimate - before.estimate).max() == pytest.approx(before.diagnosis.influence)
    dense = estimate_counts(as_matrix(mechanism), counts, registry().estimator("inv"))[0]
    assert dense.diagnosis.influence == pytest.approx(before.diagnosis.influence, rel=1e-6)


# --- what cannot be estimated ---


def test_no_report_an_impossible_report_and_bad_counts_are_refused() -> None:
    mechanism = krr("1", 3)
    with pytest.raises(NoReports):
        ldpsql.estimate(pa.array([], pa.int64()), mechanism)
    with pytest.raises(NoReports):
        ldpsql.estimate(pa.array([None, None], pa.int64()), mechanism)
    with pytest.raises(ImpossibleReport) as caught:
        ldpsql.estimate([0, 1, 7919], mechanism)
    assert "7919" not in str(caught.value)
    for numbers in ([-1], [1.5], [None]):
        with pytest.raises(BadCounts):
            ldpsql.estimate(ldpsql.Counts(pa.array([0]), pa.array(numbers)), mechanism)


def test_one_report_has_an_estimate_whose_intervals_reach_one_half() -> None:
    estimate = ldpsql.estimate(["a"], registry().mechanism("krr(epsilon=1, domain=['a', 'b'])"))
    assert estimate.estimate.tolist() == [1, 0]
    assert estimate.low[0] < 0.5 < estimate.high[1]


def test_an_estimate_prints_its_rows_and_how_it_came_about() -> None:
    mechanism = registry().mechanism("krr(epsilon=1, domain=['a', 'b'])")
    text = repr(ldpsql.estimate(["a", "b", "a"], mechanism))
    assert "ibu of 3 reports under krr: nothing learnt, certified" in text
    assert "value  estimate (interval)" in text
    assert ldpsql.estimate(["a", "b"], mechanism).diagnosis.reports == 2
