"""What the estimators that smooth, shrink, cut and choose do, each against what its source says."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest

import ldpsql
from ldpsql import Likelihood, Mechanism, Status
from ldpsql.errors import IllConditioned, InvalidParameter, NotApplicable
from ldpsql.estimators import Floats, folds, generator, maximum_likelihood, redrawn
from ldpsql.functions import registry
from ldpsql.inference.operators import KeepOrSpreadOperator, StepsOperator, merged
from ldpsql.testing import DenseOperator, operator_of
from tests import seeds

RNG = seeds.generator(__name__)  # data for the tests; no claim depends on a seed


def krr(epsilon: float, size: int) -> KeepOrSpreadOperator:
    spread = 1.0 / (np.exp(epsilon) + size - 1.0)
    return KeepOrSpreadOperator(size, float(np.exp(epsilon) * spread), float(spread))


def fitted(name: str, likelihood: Likelihood) -> Floats:
    return registry().estimator(name).fit(likelihood).theta


def drawn(op: DenseOperator | KeepOrSpreadOperator, theta: Floats, n: int, groups: int = 1) -> Floats:
    return RNG.multinomial(n, op.forward(theta), groups).astype(np.float64)


def line(size: int, fall: float) -> DenseOperator:
    table = np.exp(-fall * np.abs(np.arange(size)[:, None] - np.arange(size)))
    return DenseOperator(table / table.sum(axis=1, keepdims=True))


def mechanism(text: str) -> Mechanism:
    return registry().mechanism(text)


# --- where an estimator applies ---


@pytest.mark.parametrize(
    "text",
    [
        "olh(epsilon=1, domain=[0, 1, 2, 3, 4, 5, 6, 7])",
        "square_wave(epsilon=1, low=-0.5, high=7.5, bins=8)",
        "piecewise(epsilon=1, low=-0.5, high=7.5, bins=8)",
        "oue(epsilon=1, domain=[0, 1, 2])",
        "geometric(epsilon=1, low=0, high=7)",
    ],
)
def test_observed_refuses_reports_that_are_not_values_of_the_domain(text: str) -> None:
    made = mechanism(text)
    reports = ldpsql.perturb(made.values().listed.values.take(np.zeros(50, dtype=np.int64)), made)
    with pytest.raises(NotApplicable, match="not values of the domain") as caught:
        ldpsql.estimate(reports, made, "observed")
    assert caught.value.code == "LDP406"


@pytest.mark.parametrize("text", ["krr(epsilon=1, domain=[3, 1, 2])", "truncated_geometric(epsilon=1, low=0, high=7)"])
def test_observed_gives_the_shares_of_the_reports(text: str) -> None:
    made = mechanism(text)
    column = made.values().listed.values.take(np.array([0, 0, 2, 0]))
    shares = np.zeros(len(made.values().listed))
    shares[[0, 2]] = 0.75, 0.25
    assert ldpsql.estimate(column, made, "observed(misfit='allow')").estimate == pytest.approx(shares)


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        ("krr(epsilon=1, domain=['a', 'b', 'c'])", ()),
        ("krr(epsilon=1, domain=[1, 5, 7])", (3,)),
        ("krr(epsilon=1, domain=[1, 7, 5])", ()),
        ("square_wave(epsilon=1, low=0, high=1, bins=8)", (8,)),
        ("truncated_geometric(epsilon=1, low=0, high=4)", (5,)),
        ("planar_geometric(epsilon=1, columns=3, rows=2)", (2, 3)),
    ],
)
def test_an_estimator_knows_which_values_are_neighbours(text: str, layout: tuple[int, ...]) -> None:
    assert ldpsql.certify(mechanism(text)).layout == layout


def test_ems_refuses_values_without_neighbours_and_a_certified_maximum() -> None:
    made = mechanism("krr(epsilon=1, domain=['a', 'b', 'c'])")
    with pytest.raises(NotApplicable):
        ldpsql.estimate(["a", "b"], made, "ems")
    with pytest.raises(InvalidParameter):
        ldpsql.estimate([1, 2], mechanism("krr(epsilon=1, domain=[1, 2, 3])"), "ems(stop='certified')")


def test_what_cannot_be_inverted_is_refused_by_those_that_invert_and_estimated_by_the_others() -> None:
    made = mechanism("square_wave(epsilon=0.1, low=0, high=1, bins=64)")
    reports = ldpsql.perturb([0.2] * 500, made)
    for name in ("inv", "base_cut", "iiw", "empirical_bayes"):
        with pytest.raises(IllConditioned):
            ldpsql.estimate(reports, made, name)
    for name in ("ems", "em_mr", "pool", "corrected_em", "best", "uniform"):
        assert ldpsql.estimate(reports, made, name).estimate.sum() == pytest.approx(1)


# --- each against its definition ---


def test_base_cut_keeps_what_is_above_two_deviations_of_an_absent_value_as_it_was_inverted() -> None:
    op, n = krr(1.0, 50), 20_000
    likelihood = Likelihood(op, drawn(op, RNG.dirichlet(np.full(50, 0.1)), n, 20))
    v, cut = op.invert(likelihood.shares), fitted("base_cut", likelihood)
    sigma = np.sqrt((50 - 2 + np.e) / n) / (np.e - 1)  # Ye et al., eq. 4
    assert cut == pytest.approx(np.where(v > 2 * sigma, v, 0.0))


def test_base_cut_by_total_keeps_the_largest_until_they_sum_to_one() -> None:
    """Inverted shares .7, .4, .1, -.2, that sum to one: the second one reaches it."""
    op = DenseOperator(np.eye(4))
    likelihood = Likelihood(op, np.array([[1.0, 4.0, -2.0, 7.0]]))
    assert fitted("base_cut(rule='total')", likelihood).tolist() == [[0.0, 0.4, 0.0, 0.7]]
    spread = Likelihood(op, np.array([[3.0, 3.0, 2.0, 2.0]]))
    assert fitted("base_cut(rule='total')", spread) == pytest.approx(spread.shares)


def test_the_iterations_of_iiw_are_the_published_ones_and_lead_to_its_limit() -> None:
    """Against the loop of Fang et al.'s script, on the spectrum of the counts and of the channel."""
    op, n, p, q = krr(1.0, 8), 5_000, np.e / (np.e + 7), 1 / (np.e + 7)
    counts = np.array([[900.0, 800.0, 700.0, 650.0, 600.0, 500.0, 450.0, 400.0]])
    likelihood = Likelihood(op, counts)
    noise = np.full(8, (8 * q * (1 - q) + (p - q) * (1 - p - q)) * n)
    h, g = np.fft.fft(np.r_[p, np.full(7, q)]), np.fft.fft(counts[0])
    power = abs(g / h) ** 2
    for steps in range(1, 4):
        kept = np.conj(h) * power / (abs(h) ** 2 * power + noise)
        theta, published = fitted(f"iiw(iterations={steps})", likelihood)[0], np.fft.ifft(kept * g).real / n
        assert theta - theta.mean() == pytest.approx(published - published.mean())  # as published, the sum is not quite one
        power = abs(kept * g) ** 2 + noise * power / (abs(h) ** 2 * power + noise)
    far = fitted("iiw(iterations=100000)", likelihood)
    white = noise[0] / n**2 / (p - q) ** 2
    v = np.fft.fft(op.invert(likelihood.shares)[0])
    factor = np.maximum(0, 1 - white / abs(v) ** 2)
    factor[0] = 1
    limit = np.fft.ifft(factor * v).real
    assert far[0] == pytest.approx(limit, abs=1e-4)


def test_smoothing_by_ems_leaves_a_constant_alone_and_spreads_a_spike() -> None:
    exact = DenseOperator(np.eye(6))
    flat = Likelihood(exact, np.full((1, 6), 10.0), layout=(6,))
    assert fitted("ems(stop=5)", flat) == pytest.approx(np.full((1, 6), 1 / 6))
    spike = Likelihood(exact, np.array([[0.0, 0, 0, 1, 0, 0]]), layout=(2, 3))
    assert fitted("ems(stop=1)", spike).reshape(2, 3) == pytest.approx(np.outer([0.25, 0.75], [0.75, 0.25, 0]))


def test_blocks_that_are_merged_have_the_likelihood_of_equal_shares() -> None:
    block = np.array([0, 1, 1, 2, 0])
    for op in (line(5, 0.5), krr(1.0, 5)):
        joined = merged(op, block)
        weights = RNG.dirichlet(np.ones(3), 2)
        assert joined.forward(weights) == pytest.approx(op.forward((weights / [2, 2, 1])[:, block]))
        w = RNG.random(5)
        assert joined.adjoint(w) @ weights[0] == pytest.approx(joined.forward(weights)[0] @ w)
        table = joined.matrix()
        assert joined.curvature(w) == pytest.approx((table * w) @ table.T)
    exact = Likelihood(merged(krr(1.0, 5), block), drawn(krr(1.0, 5), RNG.dirichlet(np.ones(5)), 5000, 10))
    theta = exact.operator.maximum(exact.shares)  # in closed form
    assert theta is not None
    assert exact.gap(theta).max() <= 1e-9


@pytest.mark.parametrize("size", [1, 2, 10])
@pytest.mark.parametrize("epsilon", [0.01, 1, 9])
@pytest.mark.parametrize("name", ["square_wave", "piecewise"])
def test_cumulative_sums_multiply_as_the_table_of_many_bins_also_in_blocks(name: str, epsilon: float, size: int) -> None:
    bins = 600
    op = operator_of(mechanism(f"{name}({epsilon}, 0, 1, bins={bins})"))
    assert isinstance(op, StepsOperator)
    joined = op if size == 1 else merged(op, np.arange(bins) // size)
    table = op.matrix().reshape(bins // size, size, bins).mean(axis=1)
    theta, w = RNG.dirichlet(np.ones(bins // size), (2, 3)), RNG.random((2, 3, bins))
    np.testing.assert_allclose(joined.forward(theta), theta @ table, rtol=1e-9)
    np.testing.assert_allclose(joined.forward(theta[0, 0]), theta[0, 0] @ table, rtol=1e-9)
    np.testing.assert_allclose(joined.adjoint(w), w @ table.T, rtol=1e-9)
    np.testing.assert_allclose(joined.matrix(), table, rtol=1e-9)


def test_pool_shares_what_is_small_and_keeps_what_stands_out() -> None:
    op = krr(2.0, 100)
    theta = np.full(100, 0.5 / 97)
    theta[:3] = 0.5 / 3
    shares = fitted("pool", Likelihood(op, np.rint(op.forward(theta[None]) * 50_000)))[0]
    assert len(np.unique(shares[3:].round(12))) == 1
    assert shares[:3] == pytest.approx(theta[:3], abs=1e-3)


def test_pool_of_numbers_finds_the_steps_of_a_distribution_of_steps() -> None:
    op = line(16, 1.5)
    theta = np.repeat([0.01, 0.04, 0.1, 0.1], 4)[None]
    shares = fitted("pool", Likelihood(op, np.rint(op.forward(theta / theta.sum()) * 1e6), layout=(16,)))
    assert shares[0] == pytest.approx(theta[0] / theta.sum(), abs=1e-3)
    assert len(np.unique(shares.round(9))) <= 4


def test_reduction_keeps_at_least_its_share_of_the_values() -> None:
    op = krr(0.5, 40)
    shares = fitted("em_mr", Likelihood(op, np.arange(105.0, 145.0)[None]))  # no two are equal but by merging
    assert len(np.unique(shares.round(12))) >= 10


def test_reduction_of_numbers_goes_on_to_a_narrower_window_where_none_so_wide_is_small() -> None:
    op = line(16, 1.5)
    theta = np.repeat([1e-6, 1.0], [4, 12])[None] / 12.0
    shares = fitted("em_mr", Likelihood(op, np.rint(op.forward(theta / theta.sum()) * 1e6), layout=(16,)))[0]
    assert len(np.unique(shares[:4].round(12))) == 1  # any eight of them hold a third of all at least


def test_empirical_bayes_of_equal_shares_finds_them_equal() -> None:
    op = krr(1.0, 100)
    shares = fitted("empirical_bayes", Likelihood(op, np.full((1, 100), 1000.0)))
    assert shares == pytest.approx(np.full((1, 100), 0.01), abs=1e-4)


@pytest.mark.parametrize("loss", ["squared", "absolute", "both"])
@pytest.mark.parametrize("size", [1, 2, 3, 200])
def test_empirical_bayes_of_any_reports_is_a_distribution(loss: str, size: int) -> None:
    op = krr(0.5, size)
    one = np.eye(size)
    for counts in (one[:1], 1e9 * one[-1:], np.ones((1, size)), RNG.poisson(2.0, (5, size)) + one[0]):
        shares = fitted(f"empirical_bayes(loss='{loss}')", Likelihood(op, counts))
        assert (shares >= 0).all()
        assert shares.sum(axis=1) == pytest.approx(np.ones(len(counts)), abs=1e-12)


@pytest.mark.parametrize("loss", ["squared", "absolute", "both"])
@pytest.mark.parametrize("n", [10**5, 10**6])
def test_empirical_bayes_keeps_large_shares_that_the_reports_determine(loss: str, n: int) -> None:
    first = np.rint(np.linspace(0.55, 0.72, 40) * n)  # wherever a share lies between the atoms that all shares have in common
    keep = 0.73
    coin = operator_of(
        registry().mechanism({"mechanism": "krr", "epsilon": f"{np.log(keep / (1 - keep)):.12f}", "domain": [0, 1]})
    )
    reports = Likelihood(coin, np.stack([first, n - first], axis=1))
    moved = registry().estimator(f"empirical_bayes(loss='{loss}')").fit(reports).theta - reports.operator.invert(reports.shares)
    assert np.abs(moved).max() < 0.15 * np.sqrt(0.73 * 0.27 / n) / (0.73 - 0.27)


def test_empirical_bayes_finds_the_few_values_that_are_there() -> None:
    op, theta = krr(3.0, 300), np.repeat([1 / 30, 0.0], [30, 270])
    likelihood = Likelihood(op, drawn(op, theta, 300_000, 20))
    names = ("ibu", "empirical_bayes(loss='absolute')")
    plain, shrunk = (np.abs(fitted(name, likelihood) - theta).sum(axis=1) for name in names)
    assert surely_above_zero(plain / 4 - shrunk)  # it is a twentieth, and the mean 24 standard errors above zero


@pytest.mark.parametrize("loss", ["squared", "absolute"])
def test_empirical_bayes_is_closer_to_the_truth_than_the_maximum(loss: str) -> None:
    op, repeats, power = krr(1.0, 200), 60, {"squared": 2, "absolute": 1}[loss]
    theta = 1.0 / np.arange(1, 201)
    theta = theta / theta.sum()
    likelihood = Likelihood(op, drawn(op, theta, 50_000, repeats))
    plain, shrunk = (
        (np.abs(fitted(name, likelihood) - theta) ** power).sum(axis=1) for name in ("ibu", f"empirical_bayes(loss='{loss}')")
    )
    assert surely_above_zero(plain - shrunk)  # the mean is 19 standard errors above zero


def surely_above_zero(gains: Floats) -> bool:
    """Tell whether the mean is five standard errors above zero: if it is eleven, this fails once in 10^9."""
    return bool(gains.mean() > 5.0 * gains.std(ddof=1) / np.sqrt(len(gains)))


def test_the_correction_vanishes_where_the_maximum_is_inside_and_reports_are_many() -> None:
    op = krr(3.0, 4)
    likelihood = Likelihood(op, np.rint(op.forward(np.array([[0.4, 0.3, 0.2, 0.1]])) * 1e6), named=np.arange(4))
    assert fitted("corrected_em", likelihood) == pytest.approx(fitted("ibu", likelihood), abs=1e-5)


@pytest.mark.parametrize(("second", "factor"), [(1.0, 2), (0.5, 1)])  # the exact derivative; the paper's (24) as printed
def test_the_correction_counts_equal_reports_once_as_it_would_one_by_one(second: float, factor: int) -> None:
    error = import_module("ldpsql.plugins.estimators.corrected_em").error  # the paper's (28), not public

    op, counts = line(4, 0.8), np.array([[3.0, 0.0, 2.0, 4.0]])
    theta, n, ridge = np.array([[0.4, 0.1, 0.2, 0.3]]), 9.0, 1e-2
    columns = np.repeat(op.matrix(), counts[0].astype(int), axis=1)
    scores = columns / (theta @ columns)
    information = scores @ scores.T / n
    inverse = -np.linalg.inv(information + ridge * np.eye(4))
    first = sum((information - np.outer(s, s)) @ inverse @ s for s in scores.T) / n
    hessian = sum(factor * np.einsum("i,j,k->ijk", s, s, s) for s in scores.T)
    both = sum(np.outer(inverse @ s, inverse @ s) for s in scores.T)
    expected = inverse @ (first - np.einsum("ijk,jk->i", hessian, both) / (2 * n**2)) / n
    assert error(Likelihood(op, counts), theta, ridge, second) == pytest.approx(expected, rel=1e-9, abs=0)


def test_only_the_printed_correction_moves_a_maximum_that_is_inside() -> None:
    module = import_module("ldpsql.plugins.estimators.corrected_em")

    op, theta = krr(3.0, 4), np.array([[0.4, 0.3, 0.2, 0.1]])
    likelihood = Likelihood(op, op.forward(theta) * 1e3, named=np.arange(4))
    corrected = [module.normalised(theta - module.error(likelihood, theta, 1e-9, second)) for second in (1.0, 0.5)]
    exact, printed = (np.abs(shares - theta).max() for shares in corrected)
    assert exact < 1e-9
    assert printed > 1e-4


def test_bias_correction_lowers_the_error_for_few_reports() -> None:
    # Murakami et al.: k-RR at several epsilons, stacked as (mechanism, report); here 60 values instead of 400
    size, users = 60, {0.1: 75, 2.0: 75, float(np.log(60)): 8}
    theta, total = 1.0 / np.arange(1, size + 1), sum(users.values())
    theta = theta / theta.sum()
    parts = [krr(epsilon, size).matrix() for epsilon in users]
    stacked = DenseOperator(np.hstack([n / total * part for n, part in zip(users.values(), parts, strict=True)]))
    gains = []
    for _ in range(60):
        counts = np.concatenate([RNG.multinomial(n, theta @ part) for n, part in zip(users.values(), parts, strict=True)])
        few = Likelihood(stacked, counts[None].astype(np.float64), named=np.tile(np.arange(size), len(users)))
        gains.append(((fitted("ibu", few) - theta) ** 2).sum() - ((fitted("corrected_em", few) - theta) ** 2).sum())
    assert surely_above_zero(np.array(gains))  # the mean is 14 standard errors above zero for 20 repeats, here 24


# --- regularisation chosen by the data ---


def test_folds_share_out_every_report_once_and_do_not_depend_on_the_order() -> None:
    counts = np.array([[500.0, 0.0, 31.0, 7.0]])
    one = Likelihood(krr(1.0, 4), counts)
    learnt, held_out = folds(one)
    assert held_out.counts.sum(axis=0) == pytest.approx(counts[0])
    assert learnt.counts + held_out.counts == pytest.approx(np.repeat(counts, 10, axis=0))
    again = folds(Likelihood(krr(1.0, 4), counts[:, ::-1]))[1]
    assert again.counts[:, ::-1] == pytest.approx(held_out.counts)


def test_simulated_reports_follow_the_distribution_they_are_simulated_from() -> None:
    op, theta = krr(1.0, 4), np.array([[0.7, 0.1, 0.1, 0.1]])
    one = Likelihood(op, np.full((1, 4), 1e6))
    again = redrawn(one, theta, generator(one.counts))
    expected = op.forward(theta)[0]
    assert again.n == one.n
    # five standard deviations of each of four shares of 4 million
    assert np.all(np.abs(again.shares[0] - expected) <= 5 * np.sqrt(expected * (1 - expected) / 4e6))


def test_sets_are_simulated_by_drawing_them_again() -> None:
    every = [[word] for word in range(8)]
    sets = ldpsql.estimate(every, "oue(1.0986, [0, 1, 2])", "uniform").likelihood.operator
    one = Likelihood(sets, np.round(1e6 * sets.forward(np.array([[0.8, 0.1, 0.1]]))))
    again = redrawn(one, maximum_likelihood(one).theta, generator(one.counts))
    # 5.5 standard deviations of each of eight shares: false alarm 3e-7
    assert np.all(np.abs(again.shares - one.shares) <= 5.5 * np.sqrt(one.shares * (1 - one.shares) / one.n))


def test_held_out_steps_stop_between_none_and_all() -> None:
    op = line(60, 0.3)
    theta = np.exp(-0.5 * ((np.arange(60) - 20) / 5.0) ** 2)
    likelihood = Likelihood(op, drawn(op, theta / theta.sum(), 20_000))
    fit = registry().estimator("ibu(stop='held_out')").fit(likelihood)
    assert fit.status == (Status.STOPPED,)
    assert 0 < fit.iterations[0] < 10_000
    flat = Likelihood(op, op.forward(np.full((1, 60), 1 / 60)) * 1e4 // 1)
    assert registry().estimator("ibu(stop='held_out')").fit(flat).iterations[0] < fit.iterations[0] + 5


def test_best_is_the_mean_of_what_it_says_it_chose_and_says_why() -> None:
    op = krr(1.0, 200)
    theta = 1.0 / np.arange(1, 201)
    counts = drawn(op, theta / theta.sum(), 300_000)
    fit = registry().estimator("best").fit(Likelihood(op, counts))
    parts = [fitted(name, Likelihood(op, counts)) for name in fit.chosen[0].split(" + ")]
    assert fit.theta == pytest.approx(np.mean(parts, axis=0))
    diagnosis = ldpsql.estimate(["a"] * 65 + ["b"] * 35, mechanism("krr(epsilon=1, domain=['a', 'b'])"), "best").diagnosis
    assert "empirical_bayes" in diagnosis.chosen
    assert diagnosis.reason.startswith("log-likelihood of held-out reports, relative to")


def test_best_stays_close_to_the_maximum_where_the_reports_say_it_all() -> None:
    op = krr(5.0, 5)
    counts = np.rint(op.forward(RNG.dirichlet(np.full(5, 50.0), 5)) * 1e6)
    likelihood = Likelihood(op, counts)
    error = op.scatter(fitted("ibu", likelihood)) ** 0.5 / likelihood.n[:, None] ** 0.5
    assert np.all(np.abs(fitted("best", likelihood) - fitted("ibu", likelihood)) <= 2 * error)


def test_best_leaves_out_what_predicts_worse() -> None:
    op, theta = line(20, 3.0), np.tile([0.1, 0.0], 10)  # smoothing costs thousands in log-likelihood
    spiky = Likelihood(op, drawn(op, theta, 100_000), layout=(20,))
    fit = registry().estimator("best").fit(spiky)
    assert "ems" not in fit.chosen[0]
    assert "ems" in fit.reasons[0]


def test_a_start_must_fit_the_domain_and_leads_to_the_same_maximum() -> None:
    likelihood = Likelihood(line(3, 0.5), np.array([[50.0, 30.0, 20.0]]))
    with pytest.raises(InvalidParameter, match="start"):
        fitted("ibu(start=[0.5, 0.5])", likelihood)
    with pytest.raises(InvalidParameter):
        registry().estimator("ibu(start=[1, 0, 0])")
    assert fitted("ibu(start=[0.2, 0.2, 0.6])", likelihood) == pytest.approx(fitted("ibu", likelihood), abs=1e-4)
    assert fitted("ibu(start=[0.2, 0.2, 0.6], stop=0)", likelihood) == pytest.approx(np.array([[0.2, 0.2, 0.6]]))
