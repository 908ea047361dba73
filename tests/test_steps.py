"""Numeric mechanisms know what a value is: a declared step puts bins on the values, and intervals include what bins cost."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from duckdb import DuckDBPyConnection
from numpy.typing import NDArray
from scipy.stats import norm

import ldpsql
from ldpsql import KeyValueMechanism, Mechanism
from ldpsql.errors import InvalidParameter, OutsideDomain
from ldpsql.functions import MECHANISMS, registry
from ldpsql.mechanisms import certify_values
from ldpsql.pairs import ROW
from ldpsql.questions import Estimates, Mean, Quantile, RangeShare, Variance
from ldpsql.testing import estimate_counts, operator_of
from tests import seeds

RNG = seeds.generator(__name__)  # data for the tests; no claim depends on a seed
AGES = 20 + np.arange(40)
OPTIONS = ("0, 100, step := 1", "0, 100, bins := 9, step := 1", "-3.5, .7, step := .1", "0, 8, bins := 4")
NAMES = ("square_wave", "piecewise", "stochastic_rounding", "laplace", "gaussian")


def mechanism(text: str) -> Mechanism:
    return registry().mechanism(text)


def values(text: str) -> Any:
    """Return the values of a numeric mechanism."""
    return certify_values(mechanism(f"square_wave(1, {text})")).values


def estimates(spec: str, n: int, repeats: int, ages: NDArray[np.int64] = AGES) -> Estimates:
    """Estimate from reports of these whole numbers, equally many of each."""
    made = mechanism(spec)
    law = operator_of(made).matrix()[certify_values(made).values.codes(pa.array(ages))].mean(axis=0)
    return estimate_counts(made, RNG.multinomial(n, law, repeats).astype(np.float64), registry().estimator("ibu"))


@pytest.mark.parametrize("spec", ["square_wave(1, 0, 100, bins=20)", "square_wave(1, 0, 100, step=5)"])
def test_a_million_reports_cannot_make_the_interval_of_a_mean_miss_the_truth(spec: str) -> None:
    # Values at the left edges of their bins: their centres are half a bin, 100 standard errors, too high.
    ages = np.arange(20, 60, 5)
    drawn = estimates(spec, 10**8, 20, ages)
    mean, variance = Mean().measure(drawn), Variance().measure(drawn)
    assert (mean.std_error < 0.05).all()
    # A step leaves 95 intervals of 100; each side of the bins' is wider by 2.5, of which the truth needs all on one side.
    assert ((mean.low <= ages.mean()) & (ages.mean() <= mean.high)).sum() >= 10  # P(fewer) < 1e-8 at .95
    assert ((variance.low <= ages.var()) & (ages.var() <= variance.high)).sum() >= 10


def test_the_mean_of_whole_numbers_is_covered_as_often_as_the_interval_says() -> None:
    mean = Mean().measure(estimates("laplace(1, 0, 100, step=1)", 20_000, 200))
    assert ((mean.low <= 39.5) & (mean.high >= 39.5)).sum() >= 169  # P(fewer) < 1e-7 at .95


@pytest.mark.parametrize("bins", [50, 101, 1024])
def test_a_step_puts_values_at_the_centres_of_bins(bins: int) -> None:
    values = mechanism(f"square_wave(1, 0, 100, bins={bins}, step=1)").values().listed
    numbers = np.arange(101)
    distance = np.abs(values.values.to_numpy()[values.codes(pa.array(numbers))] - numbers)
    assert distance.max() == values.rounding == (1.0 if bins == 50 else 0.0)


def test_without_a_step_a_mechanism_means_what_it_meant() -> None:
    made = mechanism("square_wave(1, 0, 100, bins=4)")
    assert made.values().listed.values.to_pylist() == [12.5, 37.5, 62.5, 87.5]
    assert made.to_json() == {"mechanism": "square_wave", "epsilon": "1", "low": 0.0, "high": 100.0, "bins": 4}
    assert mechanism("square_wave(1, 0, 100, 4, 'clip', 'as:3')") == mechanism(
        "square_wave(1, 0, 100, bins=4, outside='clip', nulls='as:3')"
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("options", OPTIONS)
def test_sql_and_python_have_the_same_bins(con: DuckDBPyConnection, name: str, options: str) -> None:
    delta = ", delta := 0.001" if name == "gaussian" else ""
    call = f"ldp.{name}(1, {options}{delta})"
    row = con.execute(f"SELECT (m).domain, (m).reports, __ldp_mechanism(m) FROM (SELECT {call} AS m)").fetchone()
    assert row is not None
    made = MECHANISMS.thing(row[2])
    assert row[0] == made.values().listed.values.to_pylist()
    alphabet: Any = made.alphabet()
    if name == "stochastic_rounding":
        assert row[1] == [-1, 1]
    else:
        assert row[1] == alphabet.values.to_pylist()
    assert mechanism(str(made)) == made == registry().mechanism(made.to_json())


def test_decimal_steps_are_recognised_whatever_doubles_make_of_them() -> None:
    assert values("0, 0.3, step=0.1").codes(pa.array([0.0, 0.1 + 0.2, 0.1 * 3, 0.3, 0.1])).tolist() == [0, 3, 3, 3, 1]


@pytest.mark.parametrize(
    ("low", "high", "step"), [(0, 0.99, "0.01"), (-3.7, 12.4, "0.1"), (0.05, 100.05, "0.25"), (0, 1, "0.001")]
)
def test_values_at_decimal_steps_are_the_decimals(low: float, high: float, step: str) -> None:
    decimals = values(f"{low}, {high}, step={step}, bins=1024").values.to_pylist()
    assert decimals == [float(round(Fraction(str(low)) + place * Fraction(step), 6)) for place in range(len(decimals))]


def test_steps_that_are_no_short_decimals_stay_as_they_are() -> None:
    assert values(f"0, 1, step={1 / 3!r}").values.to_pylist() == [0.0, 1 / 3, 2 / 3, 1.0]
    assert values("0, 0.0001, step=0.00001").values.to_pylist() == [place * 0.00001 for place in range(11)]
    assert values("0, 100, step=1, bins=7").values.to_pylist()[:2] == [7.0, 22.0]


def test_a_number_between_steps_is_refused_and_one_beyond_may_be_clipped() -> None:
    whole = values("0, 10, step=1, outside='clip'")
    assert whole.codes(pa.array([-4, 3, 99])).tolist() == [0, 3, 10]
    with pytest.raises(OutsideDomain, match="step"):
        whole.codes(pa.array([3.5]))
    with pytest.raises(OutsideDomain):
        values("0, 10, step=1").codes(pa.array([11]))


@pytest.mark.parametrize("wrong", ["step=3", "step=0", "step=-1", "step=1e-17", "step='one'"])
def test_a_step_that_does_not_lead_from_end_to_end_is_refused(wrong: str) -> None:
    with pytest.raises(InvalidParameter):
        mechanism(f"laplace(1, 0, 100, {wrong})")


def test_the_interval_of_a_share_holds_it_whatever_lies_in_a_cut_bin() -> None:
    # Two bins of ten; all values are 3 or all are 7, and the range ends at 5: no report can tell.
    drawn = estimate_counts(
        mechanism("square_wave(6, 0, 20, bins=2)"), np.array([[10_000.0, 2_000.0]]), registry().estimator("ibu(misfit='allow')")
    )
    share = RangeShare(0, 5).measure(drawn)
    assert share.low[0] < 0.01
    assert share.high[0] > 0.7


def test_the_interval_of_a_quantile_reaches_to_the_edges_of_its_bins(con: DuckDBPyConnection) -> None:
    spec = "ldp.laplace(8, 0, 100, bins := 4)"
    row = con.execute(f"SELECT ldp.quantile(map([1], [1000000]), {spec}, 0.5, estimator := 'ibu(misfit=''allow'')')").fetchone()
    assert row is not None
    assert (row[0]["estimate"], row[0]["low"], row[0]["high"]) == (37.5, 25.0, 50.0)
    drawn = estimates("laplace(8, 0, 100, bins=4)", 1000, 1)
    assert Quantile(q=0.5).measure(drawn).rounding == 12.5


def test_pages_show_no_infinite_error_and_the_diagnosis_says_why_there_is_one() -> None:
    estimate = estimates("piecewise(1, 0, 100, bins=128)", 20_000, 1)[0]
    assert np.isinf(estimate.std_error).any()
    assert "inf" not in repr(estimate).replace("inference", "")
    assert "unknown" in repr(estimate)
    assert "inf<" not in estimate._repr_html_()
    assert "infinite" in estimate.diagnosis.remedy
    assert "fewer bins" in estimate.diagnosis.remedy


@pytest.mark.parametrize(
    "spec",
    [
        "pckv_pm(1, {keys}, bins=4)",
        "pckv_pm_ue(1, {keys}, bins=4)",
        "pckv_grr(1, {keys}, steps=4)",
        "pckv_ue(1, {keys}, steps=4)",
    ],
)
def test_the_interval_of_the_mean_of_a_key_reaches_a_bin_further(spec: str) -> None:
    made = mechanism(spec.format(keys=["a", "b"]))
    assert isinstance(made, KeyValueMechanism)
    reach = made.rounding()
    assert reach > 0.25 if spec.startswith("pckv_pm(") else reach == 0.25  # its reports are bins too
    reports = ldpsql.perturb([[{"key": "a", "value": 0.9}]] * 2000, made)
    estimate = ldpsql.key_value(reports, made)
    low, high = estimate.of.evidence.mean_interval(estimate.of.symbols.likelihood.n[:, None], float(norm.isf(0.025)))
    row = dict(zip(ROW, estimate.of.rows()[0, 0], strict=True))
    assert row["mean_low"] == pytest.approx(max(-1.0, min(low[0, 0], estimate.of.means[0, 0]) - reach))
    assert row["mean_high"] == pytest.approx(min(1.0, max(high[0, 0], estimate.of.means[0, 0]) + reach))
