"""``best`` smooths numbers in order unless their reports show that they are rough, and does not smooth codes.

The reports are the expected ones, rounded, so nothing is drawn except the folds, which are functions of the counts.
"""

from __future__ import annotations

import numpy as np
import pytest

from ldpsql import certify
from ldpsql.estimators import Floats, Likelihood
from ldpsql.functions import registry
from ldpsql.testing import DenseOperator, operator_of
from tests.seeds import generator

RNG = generator("best")
PLACES = np.arange(60)
BELL = np.exp(-(((PLACES - 21) / 7.0) ** 2))
COMB = np.where(PLACES % 15 == 5, 1.0, 0.01)
SPIKES = np.where(PLACES == 6, 6.0, 0.0) + np.where(PLACES == 30, 3.0, 0.0) + np.where(PLACES == 57, 1.0, 0.0)
WAVE = "square_wave(epsilon=2, low=0, high=60, bins=60)"


def expected(weights: Floats, n: int, mechanism: str) -> Likelihood:
    """Return the likelihood of the expected numbers of reports."""
    drew = registry().mechanism(mechanism)
    certified, operator = certify(drew), operator_of(drew)
    counts = np.rint(n * operator.forward((weights / weights.sum())[None]))
    return Likelihood(operator, counts, certified.layout, certified.named)


def error(name: str, likelihood: Likelihood, weights: Floats) -> float:
    """Return the mean total variation between the estimates of groups and the truth."""
    theta = registry().estimator(name).fit(likelihood).theta
    return float(np.abs(theta - weights / weights.sum()).sum(axis=1).mean() / 2)


@pytest.mark.parametrize(("weights", "n", "kind"), [(BELL, 3_000, "ems"), (COMB, 100_000, "ibu")])
def test_numbers_are_smoothed_unless_they_are_clearly_rough(weights: Floats, n: int, kind: str) -> None:
    fit = registry().estimator("best").fit(expected(weights, n, WAVE))
    assert {text.split("(")[0] for text in fit.chosen[0].split(" + ")} == {kind}


def test_what_keeps_spikes_is_tried_only_in_groups_where_neighbours_differ() -> None:
    mechanism = "truncated_geometric(epsilon=2, low=0, high=59)"
    smooth, rough = expected(BELL, 10_000, mechanism), expected(SPIKES, 10_000, mechanism)
    both = smooth.with_counts(np.concatenate([smooth.counts, rough.counts]))
    fit = registry().estimator("best").fit(both)
    assert ["pool" in text for text in fit.reasons] == [False, True]
    alone = [registry().estimator("best").fit(one) for one in (smooth, rough)]
    assert np.allclose(fit.theta, np.concatenate([one.theta for one in alone]), atol=1e-9)
    assert fit.chosen == tuple(one.chosen[0] for one in alone)


def test_rough_numbers_lose_nothing_by_the_smooth_candidates() -> None:
    comb = expected(COMB, 100_000, WAVE)
    assert error("best", comb, COMB) <= 1.03 * error("ibu(stop='held_out', max_iterations=1000)", comb, COMB)
    assert error("best", comb, COMB) < 0.7 * error("ems", comb, COMB)


def test_few_reports_are_smoothed() -> None:
    few = expected(COMB, 200, WAVE)
    assert "ibu" not in registry().estimator("best").fit(few).chosen[0]


@pytest.mark.parametrize("mechanism", ["krr(epsilon=3, domain={})", "olh(epsilon=3, domain={}, seeds='orthogonal')"])
def test_whole_numbers_that_are_codes_are_not_smoothed(mechanism: str) -> None:
    coded = expected(COMB, 20_000, mechanism.format(PLACES.tolist()))
    assert "ems" not in registry().estimator("best").fit(coded).chosen[0]
    assert error("best", coded, COMB) <= 1.03 * error("empirical_bayes(loss='both')", coded, COMB)


@pytest.mark.slow
def test_groups_keep_what_is_rough_in_the_shares_of_all_of_them() -> None:
    comb = expected(COMB, 5_000, WAVE)
    alike = comb.with_counts(np.tile(comb.counts, (10, 1)))
    assert error("shared", alike, COMB) < 0.7 * error("best", comb, COMB)


def test_spikes_lose_less_than_by_smoothing_or_an_early_stop() -> None:
    seen = expected(SPIKES, 20_000, "truncated_geometric(epsilon=0.5, low=0, high=59)")
    some = seen.with_counts(np.random.default_rng(7).multinomial(20_000, seen.shares[0], 4).astype(np.float64))
    others = [error(name, some, SPIKES) for name in ("ems", "ibu(stop='held_out', max_iterations=1000)")]
    assert error("best", some, SPIKES) < 0.6 * min(others)


def test_a_smaller_weight_of_neighbours_smooths_less() -> None:
    exact = Likelihood(DenseOperator(np.eye(3)), np.array([[0.0, 10.0, 0.0]]), layout=(3,))
    assert registry().estimator("ems(stop=1, weight=0.125)").fit(exact).theta.tolist() == [[0.125, 0.75, 0.125]]


@pytest.mark.parametrize("mechanism", ["krr(0.5, {})", "olh(1, {}, seeds='orthogonal')"])
def test_reports_that_do_not_exclude_equal_shares_give_equal_shares(mechanism: str) -> None:
    operator = operator_of(registry().mechanism(mechanism.format(list("abcdef"))))
    drawn = operator.forward(np.array([[0.17, 0.165, 0.165, 0.165, 0.165, 0.17], [0.4, 0.12, 0.12, 0.12, 0.12, 0.12]]))
    fit = registry().estimator("best").fit(Likelihood(operator, np.rint(3000.0 * drawn)))
    assert np.allclose(fit.theta[0], 1 / 6, atol=1e-12)
    assert fit.theta[1].max() > 0.3


@pytest.mark.slow
def test_best_is_not_worse_than_equal_shares_if_reports_say_nothing() -> None:
    operator = operator_of(registry().mechanism(f"krr(0.5, {list(range(32))})"))
    truth = np.full(32, 1 / 32)
    counts = RNG.multinomial(3_000, operator.forward(truth[None])[0], 400).astype(np.float64)
    theta = registry().estimator("best").fit(Likelihood(operator, counts)).theta
    equal = (np.abs(theta - truth).sum(axis=1) < 1e-9).sum()
    assert equal >= 270  # of 400, in each with a chance of about .8
    nearly = np.linspace(1.3, 0.7, 32) / 32
    counts = RNG.multinomial(3_000, operator.forward(nearly[None])[0], 400).astype(np.float64)
    away = np.abs(registry().estimator("best").fit(Likelihood(operator, counts)).theta - nearly).sum(axis=1).mean()
    assert away < 1.42 * np.abs(truth - nearly).sum()  # 1.19, with a standard deviation of .04; 1.6 if reports decide earlier


def test_an_early_stop_is_a_candidate_for_few_values() -> None:
    operator = operator_of(registry().mechanism("krr(1, ['no', 'yes'])"))
    fit = registry().estimator("best").fit(Likelihood(operator, np.rint(3_000 * operator.forward(np.array([[0.95, 0.05]])))))
    assert {text.split("(")[0] for text in fit.chosen[0].split(" + ")} == {"empirical_bayes", "ibu"}


def test_a_group_is_estimated_alike_whatever_the_noise_of_others() -> None:
    operator = operator_of(registry().mechanism("krr(0.5, ['a', 'b', 'c'])"))
    counts = np.array([[11.0, 9, 10], [12_000, 9_000, 9_000], [4, 8, 18], [900, 1_000, 1_100]])
    best, likelihood = registry().estimator("best"), Likelihood(operator, counts)
    together, alone = best.fit(likelihood), [best.fit(likelihood.group(i)) for i in range(4)]
    assert together.chosen == tuple(fit.chosen[0] for fit in alone)
    assert np.allclose(together.theta, np.concatenate([fit.theta for fit in alone]), rtol=0, atol=1e-12)
