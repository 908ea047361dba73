"""Groups of numbers and map cells that learn from each other: their shares move along directions that reports determine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ldpsql import certify
from ldpsql.estimators import Estimator, Floats, Likelihood
from ldpsql.estimators.sharing.directions import Coefficients, Directions, ranks
from ldpsql.functions import registry
from ldpsql.testing import DenseOperator, operator_of
from tests.seeds import generator

RNG = generator(__name__)
WAVE = "square_wave(epsilon=1, low=0, high=24, bins=24)"
GRID = "planar_geometric(epsilon=2, columns=6, rows=5, side=0.5)"
BELL = np.exp(-((np.arange(24) - 9.0) ** 2) / 40.0)
CELLS = np.exp(-((np.arange(30) % 6 - 2.0) ** 2 + (np.arange(30) // 6 - 3.0) ** 2) / 6.0)


def shared(**options: Any) -> Estimator:
    return registry().estimator({"estimator": "shared", **options})


def drawn(held: Floats, text: str, seed: int) -> Likelihood:
    """Return the reports of these people, (groups, values), from a fixed seed: only estimation is tested."""
    mechanism, draw = registry().mechanism(text), np.random.default_rng(seed)
    certified, operator = certify(mechanism), operator_of(mechanism)
    counts = np.zeros((len(held), operator.outputs))
    for value, chance in enumerate(operator.matrix()):
        counts += draw.multinomial(held[:, value].astype(np.int64), chance)
    return Likelihood(operator, counts, certified.layout, certified.named)


def people(shares: Floats, groups: int, n: int, seed: int = 1) -> Floats:
    """Return how many of n people of each group hold each value."""
    return np.random.default_rng(seed).multinomial(n, shares / shares.sum(), groups).astype(np.float64)


def means(theta: Floats) -> Floats:
    return np.asarray(theta @ np.arange(theta.shape[1]))


def errors(theta: Floats, held: Floats) -> Floats:
    """Return the mean absolute errors of the means of groups."""
    return np.asarray(np.abs(means(theta) - means(held / held.sum(axis=1, keepdims=True))).mean())


def distance(theta: Floats, held: Floats) -> Floats:
    """Return the mean Wasserstein distance of groups."""
    return np.asarray(np.abs(np.cumsum(theta - held / held.sum(axis=1, keepdims=True), axis=1)).sum(axis=1).mean())


def test_means_of_groups_that_are_alike_lose_two_thirds_of_their_error() -> None:
    held = people(BELL, 30, 300)
    likelihood = drawn(held, WAVE, 2)
    alone = registry().estimator("best").fit(likelihood)
    fit = shared().fit(likelihood)
    assert errors(fit.theta, held) < errors(alone.theta, held) / 3
    assert min(fit.borrowed) > 0.7


def test_groups_that_differ_lose_nothing() -> None:
    held = np.concatenate([people(np.roll(BELL, shift), 3, 20_000, shift + 9) for shift in (-4, 0, 4, 8)])
    likelihood = drawn(held, WAVE, 3)
    alone = registry().estimator("best").fit(likelihood)
    fit = shared().fit(likelihood)
    assert distance(fit.theta, held) < distance(alone.theta, held)
    assert max(fit.borrowed) < 0.7


@pytest.mark.parametrize(("text", "shares"), [(WAVE, BELL), (GRID, CELLS)], ids=["numbers", "map"])
def test_shared_intervals_of_numbers_and_maps_cover_and_are_narrower(text: str, shares: Floats) -> None:
    held = people(shares, 30, 500)
    likelihood = drawn(held, text, 4)
    plain, fit = shared().fit(likelihood), shared(errors="shared").fit(likelihood)
    theta, truth = plain.theta, held / held.sum(axis=1, keepdims=True)
    assert fit.errors is not None
    error, low, high = fit.errors
    assert (fit.theta == theta).all()
    assert plain.errors is None
    assert 0.9 < ((low <= truth) & (truth <= high)).mean() < 1
    assert ((low <= theta) & (theta <= high)).all()
    own = likelihood.operator.interval(likelihood.shares, likelihood.n, theta, 1.0)[0]
    assert error.mean() < 0.5 * own.mean()


def test_means_of_listed_numbers_are_those_of_groups_alone_if_these_differ_and_common_ones_if_not() -> None:
    """Squared errors are 1.0 and .06 of those of groups alone; 2.3 and .06 if means are not compared."""
    listed, place = f"krr(2, {list(range(16))})", np.arange(16)
    for middles, most in ((np.linspace(5, 10, 30), 1.5), (np.full(30, 6.5), 0.5)):
        shares = np.exp(-(((place - middles[:, None]) / 2.4) ** 2) / 2)
        held = np.array([RNG.multinomial(2_000, own / own.sum()) for own in shares]).astype(np.float64)
        likelihood = drawn(held, listed, int(RNG.integers(1 << 30)))
        truth = means(held / 2_000)
        fits = [estimator.fit(likelihood).theta for estimator in (registry().estimator("best"), shared())]
        alone, together = (((means(theta) - truth) ** 2).mean() for theta in fits)
        assert together < most * alone


def test_a_value_that_nobody_else_has_is_not_lost() -> None:
    held = np.vstack([people(BELL, 10, 5000), np.eye(24)[20] * 5000])
    likelihood = drawn(held, "square_wave(epsilon=4, low=0, high=24, bins=24)", 5)
    theta = shared().fit(likelihood).theta
    assert abs(means(theta)[-1] - 20) < 1
    assert np.abs(means(theta)[:-1] - 9.1).max() < 1


def test_groups_of_one_report_and_single_groups_are_estimated() -> None:
    for groups, n in ((1, 1), (1, 400), (3, 1)):
        fit = shared(errors="shared").fit(drawn(people(BELL, groups, n), WAVE, 6))
        assert np.allclose(fit.theta.sum(axis=1), 1)
        assert fit.errors is not None
        assert all(np.isfinite(part).all() for part in fit.errors)


def test_directions_are_those_of_the_fisher_information() -> None:
    mean, operator = BELL / BELL.sum(), operator_of(registry().mechanism(WAVE))
    directions = Directions.of(operator, mean)
    assert np.allclose(directions.vectors.T @ directions.vectors, np.eye(23))
    assert np.allclose(np.sqrt(mean) @ directions.vectors, 0, atol=1e-7)
    moved = mean + 0.01 * directions.vectors[:, 0] * np.sqrt(mean)
    exact = Likelihood(operator, 1e6 * operator.forward(moved)[None], (24,))
    assert Coefficients.of(exact, mean).numbers[0, 0] == pytest.approx(0.01)
    assert ranks(np.array([0.9, 0.5, 0.5, 0.1])).tolist() == [1.0, 2.5, 2.5, 4.0]


def test_reports_with_hardly_any_noise_are_kept() -> None:
    counts = np.array([[90.0, 10.0, 0.0], [10.0, 90.0, 0.0], [0.0, 0.0, 100.0]])
    theta = shared().fit(Likelihood(DenseOperator(np.full((3, 3), 0.005) + 0.985 * np.eye(3)), counts)).theta
    assert np.allclose(theta, counts / 100, atol=0.03)


def test_a_domain_too_large_for_directions_is_shrunk_by_pseudo_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    likelihood = drawn(people(BELL, 4, 200), WAVE, 7)
    monkeypatch.setattr("ldpsql.estimators.sharing.directions.MOST_VALUES", 23)
    fit = shared(errors="shared").fit(likelihood)
    assert fit.errors is None
    assert np.allclose(fit.theta.sum(axis=1), 1)
