"""Intervals: a standard error is what exact moments give, and an interval covers as often as it says, on both sides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.stats import binom, norm

import ldpsql
from ldpsql import Counts, Estimate, KeyValueMechanism
from ldpsql.errors import IllConditioned
from ldpsql.functions import registry
from ldpsql.questions import RangeShare, Variance
from ldpsql.testing import enumerated
from tests.laws.subjects import LISTED, Floats, mechanism, of_pairs, reports, truth

MANY = 1e12  # reports: so many that an error is that of the derivative
STEP = 1e-3  # of a count, relative: the derivative from both sides is then exact to a millionth
Z = float(norm.isf(0.025))
NOT_UNIQUE = {"one_of"}  # single columns say nothing about the table
ESTIMATED = [name for name in LISTED if not of_pairs(name)]
IDENTIFIED = [name for name in ESTIMATED if name not in NOT_UNIQUE]
PAIRS = [name for name in LISTED if of_pairs(name)]


def exact_errors(answer: Callable[[Counts], Any], name: str, shares: Floats) -> Floats:
    """Return the standard deviations of an answer over the random counts of many reports.

    With probabilities p of the reports and D = d answer / d log(count), the variance is sum D^2 / (n p): counts are
    multinomial, and the answer depends on their shares only, so that the sum of D is 0.
    """
    law = shares @ reports(name).probabilities
    variance = np.zeros_like(answer(reports(name).counted(MANY * law)), dtype=np.float64)
    for report in np.flatnonzero(law):
        change = STEP * (np.arange(len(law)) == report)
        up, down = (np.asarray(answer(reports(name).counted(MANY * law * (1 + sign * change)))) for sign in (1, -1))
        variance += ((up - down) / (2 * STEP)) ** 2 / law[report]
    return np.asarray(np.sqrt(variance / MANY))


def close(stated: Any, exact: Any) -> bool:
    """Whether errors are within 1 % of the exact ones, on both sides."""
    return bool(np.allclose(stated, exact, rtol=0.01, atol=0))


def estimated(counts: Counts, name: str, estimator: str) -> Estimate:
    return ldpsql.estimate(counts, mechanism(name), f"{estimator}(misfit='allow')")


@pytest.mark.parametrize("estimator", ["inv", "ibu"])
@pytest.mark.parametrize("name", IDENTIFIED)
def test_the_errors_of_shares_are_those_of_exact_moments(name: str, estimator: str) -> None:
    shares = truth(len(reports(name).chances))
    stated = estimated(reports(name).expected(shares, MANY), name, estimator)
    exact = exact_errors(lambda counts: estimated(counts, name, estimator).estimate, name, shares)
    assert np.allclose(stated.estimate, shares, atol=1e-6)
    assert close(stated.std_error, exact)
    assert close((stated.high - stated.low) / 2, Z * exact)


def test_shares_that_reports_do_not_distinguish_have_no_error_and_no_inverse() -> None:
    counts = reports("one_of").expected(truth(6), 1e6)
    assert np.isinf(estimated(counts, "one_of", "ibu").std_error).all()
    with pytest.raises(IllConditioned):
        estimated(counts, "one_of", "inv")


def test_the_interval_of_what_reports_do_not_distinguish_holds_all_that_it_may_be() -> None:
    alike = "['0.5', '0.3', '0.2']"
    made = registry().mechanism(f"matrix(['a', 'b', 'c'], [{alike}, {alike}, ['0.1', '0.2', '0.7']])")
    estimate = ldpsql.estimate(enumerated(made).expected(np.array([0.2, 0.3, 0.5]), 1e6), made)
    assert np.isinf(estimate.std_error[:2]).all()
    one, both = estimate.share(["a"]), estimate.share(["a", "b"])
    assert one.low == 0.0
    assert one.high >= both.estimate - 1e-6
    assert 0 < both.std_error < 0.01


ORDERED = ("hierarchy", "hierarchy of hashes", "truncated_geometric", "geometric", "square_wave", "laplace", "piecewise")
BINS = {"hierarchy", "hierarchy of hashes", "square_wave", "laplace", "piecewise"}  # of width 1
QUESTIONS: dict[str, Callable[[Estimate], Any]] = {
    "mean": Estimate.mean,
    "variance": Estimate.variance,
    "share": lambda estimate: estimate.share(estimate.values.values.to_pylist()[1:3]),
}


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("name", ORDERED)
def test_the_errors_of_answers_are_those_of_exact_moments(name: str, question: str) -> None:
    """They are those of the maximum of the likelihood, which is what every estimator's answer is compared with."""
    shares, ask = truth(len(reports(name).chances)), QUESTIONS[question]
    stated = ask(estimated(reports(name).expected(shares, MANY), name, "ibu"))
    exact = float(exact_errors(lambda counts: [ask(estimated(counts, name, "ibu")).estimate], name, shares)[0])
    assert close(stated.std_error, exact)
    if name not in BINS or question == "share":
        assert close((stated.high - stated.low) / 2, Z * exact)
    elif question == "mean":  # a value may be anywhere in its bin, and only one end can miss it (Imbens, Manski, 2004)
        assert close((stated.high - stated.low) / 2 - 0.5, norm.isf(0.05) * exact)


@pytest.mark.parametrize("name", ["row", "joint_krr", "joint_olh"])
def test_the_errors_of_answers_about_columns_are_those_of_exact_moments(name: str) -> None:
    shares = truth(len(reports(name).chances))

    def ask(counts: Counts) -> list[Any]:
        estimate = estimated(counts, name, "ibu")
        of, given, versus = {"city": "Lima"}, {"adult": True}, {"adult": False}
        return [estimate.share(of), estimate.share(of, given), estimate.difference(of, given, versus)]

    stated = [answer.std_error for answer in ask(reports(name).expected(shares, MANY))]
    assert close(stated, exact_errors(lambda counts: [answer.estimate for answer in ask(counts)], name, shares))


@pytest.mark.parametrize("name", ["hierarchy", "hierarchy of hashes", "truncated_geometric", "square_wave"])
def test_the_error_of_a_range_is_that_of_the_share_of_its_values(name: str) -> None:
    estimate = estimated(reports(name).expected(truth(len(reports(name).chances)), MANY), name, "ibu")
    values = estimate.values.values.to_pylist()
    of_range = RangeShare(values[2] - 0.5 * (name in BINS), None).measure(estimate.of)
    assert of_range.std_error[0] == pytest.approx(estimate.share(values[2:]).std_error, rel=1e-6)


def test_the_error_of_a_comparison_is_that_of_two_independent_samples() -> None:
    shares = truth(3)
    one, other = (estimated(reports("krr").expected(shares, n), "krr", "ibu") for n in (1e10, 4e10))
    first, second = (estimate.share("a").std_error for estimate in (one, other))
    assert close(one.compare(other, of="a").std_error, np.hypot(first, second))
    assert close(first, 2 * second)


def pairs(name: str) -> KeyValueMechanism:
    one = mechanism(name)
    assert isinstance(one, KeyValueMechanism)
    return one


def key_value(counts: Counts, name: str) -> pl.DataFrame:
    return pl.DataFrame(ldpsql.key_value(counts, mechanism(name), "inv(misfit='allow')").to_arrow())


@pytest.mark.parametrize("name", PAIRS)
def test_the_errors_of_frequencies_and_means_of_keys_are_those_of_exact_moments(name: str) -> None:
    keys = 2 + pairs(name).padding  # with dummies
    cells = len(reports(name).chances) // keys
    lopsided = np.exp(-3.0 * np.linspace(0, 1, cells))  # means are not 0, so that covariances count
    symbols = np.outer(truth(keys), lopsided / lopsided.sum()).ravel()
    columns = ["frequency", "mean"]
    stated = key_value(reports(name).expected(symbols, MANY), name)
    exact = exact_errors(lambda counts: key_value(counts, name).select(columns).to_numpy(), name, symbols)
    assert close(stated.select("frequency_error", "mean_error").to_numpy(), exact)
    assert close(stated.select((pl.col("high") - pl.col("low")) / 2).to_numpy()[:, 0], Z * exact[:, 0])
    half = stated.select((pl.col("mean_high") - pl.col("mean_low")) / 2).to_numpy()[:, 0]
    assert close(half - pairs(name).rounding(), Z * exact[:, 1])


@pytest.mark.parametrize("name", PAIRS)
def test_nobody_has_a_key_more_than_once(name: str) -> None:
    """All reports show one key, more of them than there can be if people with fewer pairs send dummies."""
    counts = reports(name).expected(np.eye(len(reports(name).chances))[0], MANY)
    shown = pl.DataFrame(ldpsql.key_value(counts, mechanism(name), "ibu(misfit='allow')").to_arrow())
    assert shown["frequency"].to_list() == pytest.approx([1.0, 0.0], abs=1e-5)
    assert max(shown["frequency"]) <= 1.0


@pytest.mark.parametrize("name", ["pckv_pm", "pckv_pm_ue"])
def test_the_interval_of_the_mean_of_a_key_holds_all_values_of_a_bin(name: str) -> None:
    """All people hold one key, with values in one bin: no report says where in it."""
    size, bins = len(reports(name).chances), mechanism(name).to_json()["bins"]
    for own in (1, bins - 2):
        row = key_value(reports(name).expected(np.eye(size)[own], MANY), name).row(0, named=True)
        edges = [2 * edge / bins - 1 for edge in (own, own + 1)]
        assert [row["mean_low"], row["mean_high"]] == pytest.approx(edges, abs=0.003)  # scores of eight bins err by .0012
        assert row["mean_low"] <= edges[0]
        assert row["mean_high"] >= edges[1]


@pytest.mark.parametrize("name", sorted(BINS))
def test_the_intervals_of_means_and_quantiles_hold_all_values_of_a_bin(name: str) -> None:
    estimate = estimated(reports(name).expected(np.eye(len(reports(name).chances))[1], MANY), name, "ibu")
    inside = RangeShare(1.2, 1.8).measure(estimate.of)
    assert (inside.low[0], inside.high[0]) == pytest.approx((0.0, 1.0), abs=1e-4)
    for high in (estimate.variance().high, Variance().measure(estimate.of).high[0]):
        assert high == pytest.approx(0.25, rel=0.12)  # half of all values may be at either end
        assert high >= 0.25
    for answer in (estimate.mean(), estimate.quantile(0.5)):
        assert answer.estimate == pytest.approx(1.5, abs=1e-4)
        assert (answer.low, answer.high) == pytest.approx((1.0, 2.0), abs=1e-4)
        assert answer.low <= 1.0
        assert answer.high >= 2.0


@pytest.mark.parametrize("name", ["truncated_geometric", "geometric"])
def test_a_quantile_is_the_first_value_that_the_share_reaches(name: str) -> None:
    values = len(reports(name).chances)
    estimate = estimated(reports(name).expected(np.full(values, 1 / values), MANY), name, "ibu")
    for place, value in enumerate(estimate.values.values.to_pylist()):
        share = (place + 1) / values  # a whole number of values: rounding must not lead to the next one
        assert estimate.quantile(share - 1e-4).estimate == value
        assert estimate.quantile(min(share, 1 - 1e-9)).estimate == value
        assert place == values - 1 or estimate.quantile(share + 1e-4).estimate > value


# --- coverage, by summing over all counts that can occur ---


@pytest.mark.parametrize("estimator", ["ibu", "inv"])
def test_intervals_of_two_values_cover_as_often_as_they_say(estimator: str) -> None:
    """A share of .3 under 400 reports: the exact probability that its interval holds it, at three confidences."""
    name, n, share = "krr, two values", 400, 0.3
    chance = float(np.array([share, 1 - share]) @ reports(name).probabilities[:, 0])
    first = np.arange(n + 1)
    likely = binom.pmf(first, n, chance) > 1e-9
    for confidence in (0.8, 0.95, 0.99):
        covered = 0.0
        for count in first[likely]:
            counts = reports(name).counted(np.array([count, n - count], dtype=np.float64))
            own = ldpsql.estimate(counts, mechanism(name), f"{estimator}(misfit='allow', confidence={confidence})")
            covered += float(binom.pmf(count, n, chance)) * bool(own.low[0] <= share <= own.high[0])
        assert covered == pytest.approx(confidence, abs=0.012)


@pytest.mark.parametrize("estimator", ["ibu", "inv", "best"])
def test_intervals_that_hold_together_miss_each_value_as_rarely_as_they_say(estimator: str) -> None:
    """A share of .01 under 1,000 reports of 100 values, ten of each: the exact probabilities that either end is beyond it."""
    many, n, share = registry().mechanism("krr(1, range(100))"), 1000, 0.01
    drawn = enumerated(many)
    chance = float(np.full(100, share) @ drawn.probabilities[:, 0])
    too_high = too_low = 0.0
    for count in range(40):
        others = (n - count + np.arange(99)) // 99
        counts = drawn.counted(np.append(count, others).astype(np.float64))
        own = ldpsql.estimate(counts, many, f"{estimator}(misfit='allow', intervals='simultaneous')")
        too_high += float(binom.pmf(count, n, chance)) * bool(own.low[0] > share)
        too_low += float(binom.pmf(count, n, chance)) * bool(own.high[0] < share)
    assert max(too_high, too_low) <= 0.025 / 100
    assert too_high > 0.0025 / 100  # nor are they much wider than that takes
