"""Estimators that fit all groups together: a group is estimated as if it were alone, and the limits hold for all of them."""

from __future__ import annotations

from time import process_time

import numpy as np
import pytest
from duckdb import DuckDBPyConnection
from numpy.typing import NDArray

import ldpsql
from ldpsql import Likelihood, Status, certify
from ldpsql.estimators import Limits, certain_parts, em_step, split, uniform, until_still
from ldpsql.functions import registry
from ldpsql.inference.operators import KeepOrSpreadOperator
from ldpsql.testing import estimate_counts, operator_of
from tests import seeds

RNG = seeds.generator(__name__)  # data for the tests; no claim depends on a seed
MECHANISMS = (
    "krr(epsilon=1, domain=['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'])",
    "krr(epsilon=2, domain=[1, 2, 3, 4, 5, 6, 7, 8, 9])",
    "olh(epsilon=1, domain=['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'])",
    "square_wave(epsilon=1, low=0, high=1, bins=12)",
    "planar_geometric(epsilon=1, columns=4, rows=3)",
)
TOLERANCE = 1e-9  # of `ldpsql.testing.check_estimator`: what a product of many groups rounds otherwise than that of one
ESTIMATORS = (
    "em_mr",
    "em_mr(keep_share=0, stop='certified')",
    "em_mr(stop=5)",
    "best",
    "pool",
    "corrected_em",
    "empirical_bayes(loss='both')",
    "ibu(stop='held_out')",
    "ibu(stop='paper', tolerance=0.001)",
)


def reports(text: str, sizes: tuple[int, ...]) -> Likelihood:
    """Return the likelihood of groups of these sizes, whose distributions differ."""
    mechanism = registry().mechanism(text)
    op, certified = operator_of(mechanism), certify(mechanism)
    chances = np.maximum(op.forward(RNG.dirichlet(np.full(op.inputs, 0.5), len(sizes))), 0.0)
    counts = [RNG.multinomial(n, p / p.sum()) for n, p in zip(sizes, chances, strict=True)]
    return Likelihood(op, np.array(counts, dtype=np.float64), certified.layout, certified.named)


@pytest.mark.parametrize(
    ("name", "text"), [(name, MECHANISMS[(i + more) % 5]) for i, name in enumerate(ESTIMATORS) for more in (0, 2)]
)
def test_a_group_is_estimated_among_others_as_it_is_alone(name: str, text: str) -> None:
    likelihood, estimator = reports(text, (1, 900, 40)), registry().estimator(name)
    together = estimator.fit(likelihood)
    for i in range(3):
        alone = estimator.fit(likelihood.group(i))
        assert np.allclose(together.theta[i], alone.theta[0], atol=TOLERANCE)
        assert together.status[i] is alone.status[0]
        assert together.iterations[i] == alone.iterations[0]
        assert (together.chosen[i : i + 1], together.reasons[i : i + 1]) == (alone.chosen, alone.reasons)


def test_steps_of_all_groups_are_the_steps_of_em() -> None:
    likelihood = reports(MECHANISMS[3], (500, 4000))
    ascent = until_still(likelihood, uniform(likelihood), 1e-3, Limits())
    for i, steps in enumerate(ascent.steps):
        one = likelihood.group(i)
        theta, heights = uniform(one), []
        for _ in range(steps):
            heights.append(float(one.log_likelihood(theta)[0]))
            theta = em_step(one, theta)
        heights.append(float(one.log_likelihood(theta)[0]))
        assert theta[0] == pytest.approx(ascent.theta[i])
        assert heights[-1] == pytest.approx(ascent.log_likelihood[i])
        assert heights[-1] - heights[-2] < 1e-3 <= np.diff(heights[:-1]).min()


@pytest.mark.parametrize("text", MECHANISMS)
def test_mixture_reduction_takes_hardly_more_steps_than_em_by_the_same_rule(text: str) -> None:
    likelihood = reports(text, (10_000,) * 8)
    reduced = registry().estimator("em_mr").fit(likelihood)
    em = registry().estimator("ibu(stop='paper', tolerance=0.001)").fit(likelihood)
    assert reduced.iterations.sum() <= 1.2 * em.iterations.sum() + 80  # a fit of a group begins with two steps or more


@pytest.mark.parametrize("stop", ["'paper'", "'certified'", "'held_out'", "3"])
def test_mixture_reduction_starts_where_it_is_asked_to_also_after_values_have_merged(
    stop: str, con: DuckDBPyConnection
) -> None:
    con.execute("CREATE MACRO m() AS ldp.krr(1, ['a', 'b', 'c', 'd', 'e', 'f'])")
    counts = "MAP {'a': 300, 'b': 142, 'c': 138, 'd': 141, 'e': 139, 'f': 140}"
    call = f"ldp.em_mr({counts}, m(), stop := {stop}, keep_share := 0, start := [.5, .1, .1, .1, .1, .1])"
    shares = [share for (share,) in con.execute(f"SELECT unnest(list_transform({call}, lambda x: x.estimate))").fetchall()]
    assert len(shares) == 6
    assert len(set(shares[1:])) < 5  # some have merged
    assert sum(shares) == pytest.approx(1)


def test_mixture_reduction_that_runs_out_of_steps_says_so() -> None:
    likelihood = reports(MECHANISMS[0], (2000, 5000))
    assert registry().estimator("em_mr(max_iterations=3)").fit(likelihood).status == (Status.OUT_OF_STEPS,) * 2
    assert registry().estimator("em_mr").fit(likelihood).status == (Status.REGULARISED,) * 2


def test_a_deadline_ends_the_steps_of_all_groups_together() -> None:
    krr = registry().mechanism({"mechanism": "krr", "epsilon": 0.5, "domain": list(range(200))})
    counts = RNG.multinomial(50_000, np.full(200, 1 / 200), size=2000).astype(np.float64)
    before = process_time()
    text = "em_mr(tolerance=1e-12, deadline=0.1)"
    fit = estimate_counts(krr, counts, registry().estimator(text)).fit
    assert process_time() - before < 10
    assert set(fit.status) == {Status.OUT_OF_TIME}
    assert np.allclose(fit.theta.sum(axis=1), 1)


def of_people(people: NDArray[np.int64], epsilon: float) -> Likelihood:
    """Return the likelihood of what these people report, each about their own value, through k-RR."""
    spread = 1.0 / (np.exp(epsilon) + people.shape[1] - 1.0)
    op = KeepOrSpreadOperator(people.shape[1], float(np.exp(epsilon) * spread), float(spread))
    rows = [sum(RNG.multinomial(n, chance) for n, chance in zip(group, op.matrix(), strict=True)) for group in people]
    return Likelihood(op, np.array(rows, dtype=np.float64))


def test_best_is_not_worse_than_what_it_chooses_from_at_a_large_epsilon() -> None:
    # The ratio is 1.012 with a standard deviation of .0022; if empirical Bayes and pooling are averaged it is 1.065.
    people = np.array([RNG.multinomial(100, RNG.dirichlet(np.full(15, 0.3))) for _ in range(150)])
    likelihood, truth = of_people(people, 4.0), people / 100
    errors = {name: np.abs(registry().estimator(name).fit(likelihood).theta - truth).sum() for name in ("best", "ibu", "inv_p")}
    assert errors["best"] <= 1.035 * min(errors["ibu"], errors["inv_p"])


def test_empirical_bayes_leaves_shares_alone_that_no_noise_moves() -> None:
    people = np.array([RNG.multinomial(200, RNG.dirichlet(np.full(15, 1.0))) for _ in range(20)])
    likelihood = of_people(people, 16.0)  # a report is a lie about twice in a million
    shares = registry().estimator("empirical_bayes").fit(likelihood).theta
    # The largest difference is .0013, with a standard deviation of .0003; with chance in place of noise it is .016.
    assert np.allclose(shares, likelihood.shares, atol=0.005)


def test_folds_of_people_share_out_every_report_and_differ_less_than_folds_of_chance() -> None:
    likelihood = of_people(np.array([[100 * (x + 1) for x in range(15)]] * 20), 5.0)
    parts = split(likelihood, 3, certain_parts(likelihood))
    held = parts.held_out.counts.reshape(20, 3, 15)
    assert held.sum(axis=1) == pytest.approx(likelihood.counts)
    assert parts.learnt.counts + parts.held_out.counts == pytest.approx(np.repeat(likelihood.counts, 3, axis=0))
    # Of 12,000 reports 1,000 are noise. Folds differ from a third by 187 in all, with a standard deviation of 6 over 20 groups;
    # folds of chance by 370.
    assert np.abs(held - likelihood.counts[:, None] / 3).sum() / 20 < 250


@pytest.mark.parametrize("estimator", ["em_mr", "pool"])
def test_numbers_whose_neighbours_are_ignored_are_estimated_as_text(estimator: str) -> None:
    shares = np.r_[np.full(3, 0.3), np.full(17, 0.1 / 17)]
    stores = ldpsql.perturb(RNG.choice(20, 3_000, p=shares), "krr(2, range(20))")
    names = [f"store {store}" for store in stores.to_pylist()]
    texts = ldpsql.estimate(names, f"krr(2, {[f'store {i}' for i in range(20)]})", estimator)
    labels = ldpsql.estimate(stores, "krr(2, range(20))", f"{estimator}(neighbours='ignore')")
    assert (labels.estimate == texts.estimate).all()
