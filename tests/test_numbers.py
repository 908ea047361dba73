"""Means, ranges and quantiles under channels that hardly distinguish neighbouring values have errors that hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from duckdb import DuckDBPyConnection
from scipy.special import ndtr

import ldpsql
from ldpsql import Likelihood, Mechanism, estimate
from ldpsql.estimates.estimate import Estimates, estimate_likelihood
from ldpsql.estimates.functionals import Linear, _between_bounds
from ldpsql.functions import registry
from ldpsql.inference.counting import table_likelihood
from ldpsql.inference.likelihood import Weighted
from ldpsql.inference.operators.weights import ReportWeights
from ldpsql.inference.score_intervals import deviations, half_width
from ldpsql.mechanisms import IntervalMechanism
from ldpsql.questions import Functional, Mean, Quantile, RangeShare, Variance
from ldpsql.testing import DenseOperator, enumerated, estimate_counts, operator_of
from tests import seeds
from tests.commands import run

RNG = seeds.generator(__name__)  # data for the tests; no claim depends on a seed
WIDE = ("hybrid(0.5, 0, 1, bins=128)", "gaussian(1, 0, 100, delta=1e-5, bins=128)", "laplace(1, 0, 100, bins=256)")
COARSE = tuple(f"{name}(1, 0, 1, bins=128)" for name in ("square_wave", "piecewise", "stochastic_rounding", "hybrid"))
GROUPS, N = 300, 20_000
# 95 % of 300 is 285. The claim is .915 or more: fewer than 249 has probability 3e-7 at .915.
LEAST = 249


def mechanism(text: str) -> Mechanism:
    return registry().mechanism(text)


def shapes(size: int) -> dict[str, np.ndarray]:
    x = (np.arange(size) + 0.5) / size
    spikes = np.zeros(size)
    spikes[[size // 10, size // 2, size - 3]] = 0.6, 0.3, 0.1
    weights = {"even": np.ones(size), "skewed": x * (1 - x) ** 4, "spikes": spikes}
    return {name: weight / weight.sum() for name, weight in weights.items()}


def bounds(spec: Mechanism, theta: np.ndarray, c: np.ndarray, *, sets: bool, groups: int = GROUPS) -> Linear:
    """Return the bounds of functionals for many groups, with the errors at the truth."""
    operator = operator_of(spec)
    assert operator.bounding_weights is not None
    counts = RNG.multinomial(N, operator.forward(theta[None])[0], groups).astype(np.float64)
    at_truth = np.repeat(theta[None], groups, axis=0)
    return _between_bounds(Likelihood(operator, counts), operator.bounding_weights, at_truth, c, 1.96, sets=sets)


def one(con: DuckDBPyConnection, sql: str) -> Any:
    row = con.execute(sql).fetchone()
    assert row is not None
    return row[0]


@pytest.mark.parametrize("name", [name for name, kind in registry().mechanisms.items() if issubclass(kind, IntervalMechanism)])
def test_every_mechanism_of_an_interval_names_the_one_that_is_made_for_ranges(name: str) -> None:
    assert "are what `hierarchy` is made for" in " ".join(str(registry().mechanisms[name].__doc__).split())


@pytest.mark.parametrize("spec", [*COARSE, *WIDE])
def test_the_expectation_of_majorants_is_never_below_the_functional(spec: str) -> None:
    operator = operator_of(mechanism(spec))
    weights, x = operator.bounding_weights, np.linspace(0, 1, operator.inputs)
    assert weights is not None
    sets = np.stack([x <= 0.1, x > 0.5, (x > 0.3) & (x < 0.35), x >= 1], axis=1).astype(np.float64)
    for c, are_sets in ((sets, True), (1 - sets, True), (np.stack([x, -x, (x - 0.3) ** 2], axis=1), False)):
        for n in (10, 10_000, 10_000_000):
            found = weights.majorants(c, n, 1.96, sets=are_sets)
            over = operator.matrix() @ found.weights.T - c
            assert over.min() > -1e-9
            assert over.max(axis=0) == pytest.approx(found.bias, abs=1e-9)


@pytest.mark.parametrize("spec", COARSE)
@pytest.mark.parametrize("shape", ["even", "skewed", "spikes"])
def test_intervals_of_numbers_cover_them(spec: str, shape: str) -> None:
    made = mechanism(spec)
    size = operator_of(made).inputs
    theta, x = shapes(size)[shape], (np.arange(size) + 0.5) / size
    sets = np.stack([x < 0.3, (x > 0.4) & (x < 0.6), x < 0.9], axis=1).astype(np.float64)
    for c, are_sets in ((np.stack([x, (x - 0.2) ** 2], axis=1), False), (sets, True)):
        found, truth = bounds(made, theta, c, sets=are_sets), theta @ c
        covered = ((found.low <= truth + 1e-9) & (truth - 1e-9 <= found.high)).sum(axis=0)
        assert (covered >= LEAST).all(), covered
    mean = bounds(made, theta, x[:, None], sets=False, groups=1000)
    # An interval that always covers says nothing: if each covers with probability .98, all 1,000 do with 2e-9.
    assert not ((mean.low <= theta @ x) & (theta @ x <= mean.high)).all()


@pytest.mark.parametrize(
    ("name", "most"), [("square_wave", 0.36), ("piecewise", 0.36), ("stochastic_rounding", 0.36), ("hybrid", 0.34)]
)
def test_the_mean_of_a_hundred_thousand_reports_has_a_small_error(name: str, most: float) -> None:
    made = mechanism(f"{name}(1, 0, 100, bins=256)")
    counts = 100_000 * operator_of(made).forward(shapes(256)["skewed"][None])
    found = estimate_counts(made, counts, registry().estimator("ibu"))
    assert Mean().measure(found).std_error[0] < most
    assert Mean(unbiased=True).measure(found).std_error[0] < most


def test_a_median_and_a_range_under_square_wave_have_informative_intervals() -> None:
    made = mechanism("square_wave(1, 0, 100, bins=256)")
    counts = 100_000 * operator_of(made).forward(shapes(256)["skewed"][None])
    found = estimate_counts(made, counts, registry().estimator("ibu"))
    median, share = Quantile(q=0.5).measure(found), RangeShare(0, 50).measure(found)
    assert (median.high - median.low)[0] < 0.12 * 256  # before there were bounds: .95 of the range
    assert (share.high - share.low)[0] < 0.15


def of_people(spec: str, theta: np.ndarray, weights: np.ndarray, groups: int | None = None) -> tuple[Estimates, np.ndarray]:
    """Return the estimates of groups of people whose weight depends on their value, and the shares by weight.

    Args:
        spec: what draws their reports.
        theta: the shares of the values.
        weights: the weight of each value.
        groups: how many groups are drawn; one with the expected reports if this is None.

    """
    made = mechanism(spec)
    joint = theta[:, None] * operator_of(made).matrix()
    people = N * joint[None] if groups is None else RNG.multinomial(N, joint.ravel(), groups).reshape(groups, *joint.shape)
    n, w, ww = (np.einsum("gxz,x->gz", people, weights**power) for power in range(3))
    counts = w * (w.sum(axis=1) / ww.sum(axis=1))[:, None]
    likelihood = replace(table_likelihood(made, counts), weights=Weighted(n, ww))
    return estimate_likelihood(made, likelihood, registry().estimator("ibu")), theta * weights / (theta @ weights)


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "most"), [("even", 4.0), ("skewed", 1.0), ("spikes", 4.0)])
def test_intervals_of_medians_hold_and_are_narrower_than_those_by_bounds_for_any_distribution(
    shape: str, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = np.where(np.arange(64) < 32, 1.0, most)
    estimates, shares = of_people("square_wave(1, 0, 64, bins=64)", shapes(64)[shape], weights, groups=120)
    median, truth = Quantile(q=0.5).measure(estimates), int((shares.cumsum() < 0.5 - 1e-9).sum())
    # 95 % of 120 is 114. The claim is .93 or more: fewer than 95 has probability 2e-7 at .93.
    assert ((median.low <= truth) & (truth <= median.high)).sum() >= 95
    monkeypatch.setattr("ldpsql.estimates.spans._MOST", 0)
    bounded = Quantile(q=0.5).measure(estimates)
    assert (median.high - median.low).mean() < 0.9 * (bounded.high - bounded.low).mean()


@pytest.mark.parametrize(("heavy", "least", "most"), [(slice(6), 0.6, 0.9), (slice(40, 64), 1.15, 1.6)])
def test_intervals_of_quantiles_change_with_the_variances_of_weighted_reports(heavy: slice, least: float, most: float) -> None:
    """Heavy weights far from a quantile hardly add to its error, and those of few people next to it do."""
    weights = np.ones(64)
    weights[heavy] = 20.0
    estimates, _ = of_people("square_wave(4, 0, 64, bins=64)", shapes(64)["even" if heavy.stop == 6 else "skewed"], weights)
    equal = replace(estimates, likelihood=estimates.likelihood.with_counts(estimates.likelihood.counts))
    measured = [[Quantile(q=q).measure(each) for q in np.linspace(0.85, 0.95, 21)] for each in (estimates, equal)]
    found, other = (sum(one.high[0] - one.low[0] for one in answers) for answers in measured)
    assert least < found / other < most


@pytest.mark.parametrize(("spec", "bins"), [("piecewise(1, 0, 100)", 1024), ("stochastic_rounding(1, 0, 100)", 2)])
def test_the_unbiased_mean_is_the_mean_of_the_reports_on_the_scale_of_the_values(
    con: DuckDBPyConnection, spec: str, bins: int
) -> None:
    con.execute(f"CREATE TABLE r AS SELECT ldp.perturb(100 * pow(i / 5000, 2), ldp.{spec}) AS x FROM range(5000) t(i)")
    reach = 1 / np.tanh(1 / 4) if bins > 2 else 1 / np.tanh(1 / 2)
    centre = f"(x + 0.5) / {bins} * 2 - 1" if bins > 2 else "x"
    mean = one(con, f"SELECT avg({reach} * ({centre})) * 50 + 50 FROM r")
    measured = one(con, f"SELECT ldp.mean(x, ldp.{spec}, estimator := 'inv') FROM r")
    assert measured["estimate"] == pytest.approx(mean, abs=1e-6)
    assert measured["low"] < mean < measured["high"]


def test_the_unbiased_mean_is_unbiased() -> None:
    for spec in COARSE:
        made = mechanism(spec)
        theta = shapes(128)["spikes"]
        exact = 1e12 * operator_of(made).forward(theta[None])
        measured = Mean(unbiased=True).measure(estimate_counts(made, exact, registry().estimator("ibu(misfit='allow')")))
        assert measured.estimate[0] == pytest.approx(theta @ ((np.arange(128) + 0.5) / 128), abs=2e-4)


def test_what_reports_do_not_identify_has_no_error(con: DuckDBPyConnection) -> None:
    con.execute("CREATE MACRO m() AS ldp.stochastic_rounding(0.1, 0, 100, bins := 128)")
    con.execute("CREATE TABLE r AS SELECT g, CASE WHEN i < g THEN -1 ELSE 1 END AS x FROM range(0, 41, 5) a(g), range(40) b(i)")
    for call in ("ldp.range_share(x, m(), 40, 60)", "ldp.quantile(x, m(), 0.5)"):
        for (measured,) in con.execute(f"SELECT {call} FROM r GROUP BY g").fetchall():
            assert measured["estimate"] is not None
            assert measured["std_error"] is measured["low"] is measured["high"] is None
    for (measured,) in con.execute("SELECT ldp.mean(x, m()) FROM r GROUP BY g").fetchall():
        assert measured["low"] < measured["high"]
        assert measured["std_error"] > 0
    assert (
        one(con, "SELECT count(*) FROM (SELECT unnest(ldp.ibu(x, m()), recursive := true) FROM r) WHERE isinf(std_error)") == 0
    )


def variances(spec: str) -> np.ndarray:
    """Return the variance of the unbiased mean of one report of each value."""
    made = mechanism(spec)
    readings, rows = made.readings(), operator_of(made).matrix()
    assert readings is not None
    return np.asarray(rows @ readings**2 - (rows @ readings) ** 2)


@pytest.mark.parametrize("epsilon", ["0.3", "1", "2", "4", "6"])
def test_hybrid_has_the_smallest_largest_variance(epsilon: str) -> None:
    names = ("hybrid", "piecewise", "stochastic_rounding")
    largest = {name: variances(f"{name}({epsilon}, 0, 1, bins=128)").max() for name in names}
    assert largest["hybrid"] <= 1.001 * min(largest.values()), largest


def test_many_bins_take_blocks_of_values() -> None:
    table = operator_of(mechanism("square_wave(1, 0, 1, bins=1200)")).matrix()
    weights = ReportWeights(DenseOperator(table))
    x = np.linspace(0, 1, 1200)
    found = weights.majorants(x[:, None], 1e5, 1.96, sets=False)
    assert (table @ found.weights.T - x[:, None]).min() > -1e-9
    assert found.bias[0] < 0.002


FUNCTIONALS: tuple[Functional, ...] = (Mean(), Variance(), RangeShare(1, 3), Quantile(q=0.5))


def test_one_report_has_numbers_and_the_widest_intervals() -> None:
    made = mechanism("square_wave(1, 0, 10, bins=32)")
    found = estimate_counts(made, np.eye(32)[:3], registry().estimator("ibu"))
    for functional in FUNCTIONALS:
        measured = functional.measure(found)
        assert np.isfinite(measured.estimate).all()
        assert (measured.low <= measured.high).all()


def test_a_range_inside_one_bin_has_the_error_of_the_bin() -> None:
    made = mechanism("square_wave(1, 0, 200, bins=64)")
    counts = 100_000 * operator_of(made).forward(shapes(64)["spikes"][None])
    measured = RangeShare(30.1, 30.2).measure(estimate_counts(made, counts, registry().estimator("ibu")))
    assert (measured.low[0], measured.estimate[0]) == (0, pytest.approx(0, abs=1e-12))
    assert measured.std_error[0] > 0.01


@pytest.mark.parametrize("confidence", [0.6, 0.95, 1 - 1e-7])
def test_an_interval_with_a_bias_misses_as_often_as_stated_and_no_more(confidence: float) -> None:
    error = np.array([1.0, 0.01, 40.0])
    for bias in (0.0, 1e-9, 0.3, 2.0, 50.0):
        half = half_width(error, bias, deviations(confidence))
        missed = ndtr((bias - half) / error) + ndtr((-bias - half) / error)  # if the bias is as large as it may be
        assert missed == pytest.approx(1 - confidence, rel=1e-6)
        assert (half <= deviations(confidence) * error + bias + 1e-12).all()
    assert half_width(np.array([0.0, np.inf]), 2.0, 1.96).tolist() == [2.0, np.inf]


@pytest.mark.parametrize("estimator", ["ems", "best", "empirical_bayes", "pool", "ibu(stop=1)", "uniform"])
def test_an_interval_does_not_end_at_a_regularised_estimate(estimator: str) -> None:
    made = mechanism("krr(1, [0, 1, 2, 3, 4, 5, 6, 7])")
    theta = np.array([[0.6, 0.02, 0.03, 0.15, 0.06, 0.06, 0.05, 0.03]])  # one value stands out: smoothing is wrong here
    counts = 20_000 * operator_of(made).forward(theta)
    estimates, certified = (estimate_counts(made, counts, registry().estimator(name)) for name in (estimator, "ibu"))
    assert estimates.fit.regularised.all()
    left_out = (estimates.fit.theta < estimates.intervals.low) | (estimates.fit.theta > estimates.intervals.high)
    assert left_out.any() or estimator in ("best", "empirical_bayes", "pool")
    assert estimates.intervals.low == pytest.approx(certified.intervals.low, abs=1e-6)
    assert estimates.intervals.high == pytest.approx(certified.intervals.high, abs=1e-6)
    for functional in (*FUNCTIONALS, Quantile(q=0.9)):
        measured, maximum = functional.measure(estimates), functional.measure(certified)
        assert measured.low >= maximum.low - 1e-6
        assert measured.high <= maximum.high + 1e-6


def test_a_row_of_sql_has_the_interval_of_the_unbiased_estimate(con: DuckDBPyConnection) -> None:
    con.execute("CREATE MACRO m() AS ldp.krr(2, range(9))")
    con.execute("CREATE TABLE r AS SELECT CASE WHEN i < 3000 THEN 4 ELSE i % 9 END AS x FROM range(9000) t(i)")
    rows = "SELECT unnest(ldp.ems(x, m()), recursive := true) FROM r"
    assert one(con, f"SELECT count(*) FROM ({rows}) WHERE estimate IN (low, high) AND estimate > 0") == 0
    assert one(con, f"SELECT count(*) FROM ({rows}) WHERE estimate NOT BETWEEN low AND high") > 0
    assert one(con, f"SELECT count(*) FROM ({rows}) WHERE value = 4 AND low > estimate") == 1
    diagnosis = one(con, "SELECT ldp.diagnose(x, m(), estimator := 'ems') FROM r")
    assert diagnosis["status"] == "regularised"
    assert "intervals are those of the unbiased estimate" in diagnosis["remedy"]


def test_the_diagnosis_gives_the_reason_of_a_null_and_what_to_use_instead(con: DuckDBPyConnection) -> None:
    con.execute("CREATE MACRO m() AS ldp.stochastic_rounding(1, 0, 100, bins := 16)")
    con.execute("CREATE TABLE r AS SELECT 2 * (i % 2) - 1 AS x FROM range(400) t(i)")
    assert one(con, "SELECT count(std_error) FROM (SELECT unnest(ldp.ibu(x, m()), recursive := true) FROM r)") == 0
    remedy = one(con, "SELECT ldp.diagnose(x, m()).remedy FROM r")
    for part in ("16 of 16 values", "is NULL", "fewer bins", "olh", "ldp.mean"):
        assert part in remedy


MADE = "for shares of ranges and quantiles, hierarchy is made"
NUMERIC = ("piecewise", "square_wave", "hybrid", "stochastic_rounding", "laplace", "truncated_geometric", "hierarchy")


def few_reports(spec: str) -> pa.Table:
    """Return the reports that are expected of 200 people with equal shares."""
    if spec.startswith("hierarchy"):  # of which nothing is said, whatever the reports are
        return pa.table({"x": ldpsql.perturb([i % 100 for i in range(200)], spec)})
    every = enumerated(registry().mechanism(spec))
    up_to = np.round(200 * np.append(0, every.probabilities.mean(axis=0).cumsum()))
    return pa.table({"x": every.reports.take(pa.array(np.repeat(np.arange(len(up_to) - 1), np.diff(up_to).astype(int))))})


@pytest.mark.parametrize("name", NUMERIC)
def test_a_few_reports_of_numbers_name_the_mechanism_that_is_made_for_ranges(con: DuckDBPyConnection, name: str) -> None:
    """In SQL and in Python; of the hierarchy itself nothing is said."""
    given = "0.01, 0, 99" if "geometric" in name else "1, 0, 99" if name == "hierarchy" else "1, 0, 99, bins=50"
    text, spec = f"ldp.{name}({given.replace('=', ' := ')})", f"{name}({given})"
    con.from_arrow(few_reports(spec)).create("r")
    ((remedy,),) = con.execute(f"SELECT ldp.diagnose(x, {text}).remedy FROM r").fetchall()
    assert (MADE in remedy) == (name != "hierarchy")
    diagnosis = estimate(con.table("r").pl()["x"], spec).diagnosis
    assert (MADE in diagnosis.remedy) == (name != "hierarchy")


@pytest.mark.parametrize(("spec", "named"), [("square_wave(1, 0, 99, bins=50)", True), ("hierarchy(1, 0, 99)", False)])
def test_a_question_of_the_command_line_names_the_mechanism_that_is_made_for_it(spec: str, named: bool, tmp_path: Path) -> None:
    pq.write_table(few_reports(spec), tmp_path / "r.parquet")
    for question, arguments, noted in (
        ("range_share", ["--low", "10", "--high", "20"], True),
        ("median", [], True),
        ("mean", [], False),
    ):
        done = run("ask", question, str(tmp_path / "r.parquet"), "x", "-m", spec, *arguments)
        assert (f"note: {MADE}" in done.stderr) == (noted and named), done.stderr


def test_the_ends_of_a_quantile_of_decimals_in_bins_are_written_like_decimals(con: DuckDBPyConnection) -> None:
    """Ten numbers to a bin: the ends of the bins are 0.0, 0.9, 1.0, 1.9 ... with one decimal."""
    con.execute("CREATE MACRO pay() AS ldp.hierarchy(1, 0, 100, step := 0.1, bins := 101)")
    con.execute("CREATE TABLE reports AS SELECT ldp.perturb(i % 1000 / 10, pay()) AS pay FROM range(20000) t(i)")
    levels = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    ((row,),) = con.execute(f"SELECT ldp.quantile(pay, pay(), {levels}) FROM reports").fetchall()
    whole = estimate(con.table("reports").pl()["pay"], "hierarchy(1, 0, 100, step=0.1, bins=101)")
    ends = [end for answer in row for end in (answer["low"], answer["high"])]
    ends += [end for q in levels for end in whole.quantile(q)[2:]]
    assert len(ends) == 36
    assert all(end == round(end, 1) for end in ends)
