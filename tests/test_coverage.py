"""Intervals hold the truth as often as they say, whatever the estimator: a quick form of ``benchmarks/coverage.py``."""

from __future__ import annotations

import numpy as np
import pytest

import ldpsql
from ldpsql import Likelihood
from ldpsql.estimates.estimate import estimate_column
from ldpsql.estimates.uncertainty import intervals
from ldpsql.inference.counting import operator_of
from ldpsql.inference.operators import DenseOperator, Floats
from ldpsql.inference.outcome import Fit
from ldpsql.registry.registry import registry
from tests import seeds

RNG = seeds.generator(__name__)  # data for the tests; no claim depends on a seed
TRUTH = np.array([0.4, 0.3, 0.15, 0.1, 0.04, 0.01, 0, 0, 0, 0])
REPEATS, N = 400, 20_000
# Of 400 intervals that each cover with chance .93, fewer than 345 do with chance 4e-8, a millionth for 25 shares; of those that
# cover with chance .975, all 400 do with chance 4e-5, so the upper bound is checked over the four largest shares together:
# more than 1587 of 1600 have chance 9e-7 were they independent.
FEWEST, MOST = 345, 1587


def likelihood(text: str) -> Likelihood:
    op = operator_of(registry().mechanism(text))
    return Likelihood(op, RNG.multinomial(N, op.forward(TRUTH), REPEATS).astype(np.float64), layout=(10,), named=None)


def covered(likelihood: Likelihood, fit: Fit) -> Floats:
    estimated = intervals(likelihood, fit, 0.95)
    return ((estimated.low <= TRUTH) & (estimated.high >= TRUTH)).sum(axis=0).astype(np.float64)


@pytest.mark.parametrize("name", ["ibu", "inv", "inv_n", "inv_p", "base_cut", "iiw", "uniform", "ems(stop=50)"])
@pytest.mark.parametrize(
    "text",
    [
        "krr(epsilon=1, domain=[0, 1, 2, 3, 4, 5, 6, 7, 8, 9])",
        "olh(epsilon=1, domain=[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], seeds='orthogonal')",
        "truncated_geometric(epsilon=1, low=0, high=9)",
    ],
)
def test_intervals_of_every_kind_of_estimator_cover_the_truth(name: str, text: str) -> None:
    drawn = likelihood(text)
    held = covered(drawn, registry().estimator(name).fit(drawn))
    assert held.min() >= FEWEST
    if name in ("ibu", "inv"):
        assert held[:4].sum() <= MOST


def test_intervals_of_observed_sets_cover_the_truth() -> None:
    mechanism = registry().mechanism("oue(epsilon=2, domain=[0, 1, 2, 3, 4, 5, 6, 7, 8, 9])")
    repeats, n, held = 100, 2000, np.zeros(10)
    for _ in range(repeats):
        estimated = estimate_column(
            ldpsql.perturb(RNG.choice(10, n, p=TRUTH).tolist(), mechanism), mechanism, registry().estimator("ibu")
        )
        held += (estimated.low <= TRUTH) & (estimated.high >= TRUTH)
    assert held.min() >= 78  # of 100 with chance .93 fewer do with chance 1e-6


def test_the_error_of_an_inversion_is_its_own() -> None:
    # a channel with more reports than values, where inverting wastes information
    table = np.array([[0.5, 0.1, 0.2, 0.2], [0.1, 0.5, 0.2, 0.2], [0.1, 0.1, 0.2, 0.6]])
    truth, repeats = np.array([0.5, 0.3, 0.2]), 20_000
    drawn = Likelihood(DenseOperator(table), RNG.multinomial(5000, truth @ table, repeats).astype(np.float64))
    for name in ("inv", "ibu"):
        fit = registry().estimator(name).fit(drawn)
        seen, stated = fit.theta.std(axis=0), intervals(drawn, fit, 0.95).std_error.mean(axis=0)
        assert seen == pytest.approx(stated, rel=6 * np.sqrt(0.5 / repeats))  # six standard deviations of a standard deviation


def test_score_intervals_of_a_table_are_those_of_wilson() -> None:
    op = operator_of(registry().mechanism("krr(epsilon=8, domain=[0, 1, 2])"))
    counts = np.array([[1.0, 0.0, 0.0], [48.0, 1.0, 1.0]])
    closed, dense = Likelihood(op, counts), Likelihood(DenseOperator(op.matrix()), counts)
    fit = registry().estimator("ibu").fit(closed)
    one, other = intervals(closed, fit, 0.95), intervals(dense, fit, 0.95)
    # where all mass is on one value, the proportions of the others are not known, and the ends differ a little
    assert one.low == pytest.approx(other.low, abs=1e-3)
    assert one.high == pytest.approx(other.high, abs=1e-3)
    assert one.low[1] == pytest.approx(other.low[1], abs=1e-6)
