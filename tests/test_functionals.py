"""Numbers about a distribution come with errors that hold, in the unit of the values."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pytest
from duckdb import DuckDBPyConnection

import ldpsql
from ldpsql import Estimator, Likelihood, Mechanism, certify
from ldpsql.channels import SetChannel
from ldpsql.estimates import spans
from ldpsql.estimates.estimate import estimate_likelihood
from ldpsql.functions import registry
from ldpsql.inference.operators import SupportOperator, packed
from ldpsql.inference.operators.weights import tangent_inverse, tangent_solve
from ldpsql.inference.score_intervals import known_law, log_p_within
from ldpsql.questions import Estimates, Functional, Mean, Quantile, RangeShare, Variance
from ldpsql.testing import estimate_counts, operator_of
from tests import seeds

RNG = seeds.generator(__name__)  # data for the tests; no claim depends on a seed
FUNCTIONALS: tuple[Functional, ...] = (Mean(), Variance(), Quantile(q=0.3), RangeShare(2, 4))
TRUTH = np.array([0.3, 0.3, 0.15, 0.1, 0.1, 0.05, 0, 0])
N, REPEATS = 20_000, 400
# 95 % of 400 is 380. The claim is .915 or more: fewer than 337 has probability 4e-7 at .915.
LEAST = 337
EIGHT = "[0,1,2,3,4,5,6,7]"
SPECS = [f"krr(1, {EIGHT})", "truncated_geometric(0.4, 0, 7)", f"oue(1, {EIGHT})", f"olh(1, {EIGHT})"]


def mechanism(text: str) -> Mechanism:
    return registry().mechanism(text)


def ibu(options: str = "") -> Estimator:
    return registry().estimator(f"ibu({options})")


def true_value(functional: Functional) -> float:
    x = np.arange(len(TRUTH))
    match functional:
        case Mean():
            return float(TRUTH @ x)
        case Variance():
            return float(TRUTH @ x**2 - (TRUTH @ x) ** 2)
        case Quantile(q=q):
            return float((TRUTH.cumsum() >= q).argmax())
        case RangeShare(low, high):
            return float(TRUTH[(x >= (0 if low is None else low)) & (x <= (9 if high is None else high))].sum())
    raise AssertionError


def one(con: DuckDBPyConnection, sql: str) -> Any:
    row = con.execute(sql).fetchone()
    assert row is not None
    return row[0]


# --- coverage ---


def estimates_of_sets(spec: Mechanism, repeats: int, n: int = N) -> Estimates:
    """Estimate from all the sets of eight values there are, drawn as often as the channel says."""
    channel = certify(spec).channel
    assert isinstance(channel, SetChannel)
    words = np.arange(256, dtype=np.uint64)[:, None]
    inside = channel.supports(words)
    chances = [np.where(inside, hit, 1 - hit) for hit in (float(channel.miss), float(channel.hit))]
    table = np.array([np.delete(chances[0], x, axis=1).prod(axis=1) * chances[1][:, x] for x in range(8)])
    counts = RNG.multinomial(n, TRUTH @ table, repeats).astype(np.float64)
    return estimate_likelihood(spec, Likelihood(SupportOperator(channel, packed(channel, words)), counts), ibu())


def estimates(spec: str, repeats: int = REPEATS, options: str = "") -> Estimates:
    made = mechanism(spec)
    if spec.startswith("oue"):
        return estimates_of_sets(made, repeats)
    drawn = RNG.multinomial(N, operator_of(made).forward(TRUTH), repeats).astype(np.float64)
    return estimate_counts(made, drawn, ibu(options))


@pytest.mark.parametrize("spec", SPECS)
def test_intervals_of_numbers_cover_them(spec: str) -> None:
    drawn = estimates(spec)
    for functional in (*FUNCTIONALS, RangeShare(None, 0), RangeShare(6, None), Quantile(q=0.5)):
        measured, truth = functional.measure(drawn), true_value(functional)
        covered = int(((measured.low <= truth + 1e-9) & (truth - 1e-9 <= measured.high)).sum())
        assert covered >= LEAST, (functional, covered)
        if functional in (Mean(), RangeShare(2, 4)):  # an interval that always covers says nothing
            assert covered <= 398, functional  # of 400 at .95, more has probability 3e-8


@pytest.mark.parametrize("spec", [f"oue(2, {EIGHT})", f"oue(4, {EIGHT})"])
def test_intervals_of_numbers_cover_them_where_few_sets_were_reported(spec: str) -> None:
    drawn = estimates_of_sets(mechanism(spec), REPEATS, 200)
    for functional in (Mean(), RangeShare(None, 3), Quantile(q=0.5)):
        measured, truth = functional.measure(drawn), true_value(functional)
        covered = int(((measured.low <= truth + 1e-9) & (truth - 1e-9 <= measured.high)).sum())
        assert covered >= LEAST, (functional, covered)


@pytest.mark.parametrize("spec", [f"oue(2, {EIGHT})", f"subset_selection(2, {EIGHT})"])
@pytest.mark.parametrize("n", [1, 2])
def test_one_or_two_sets_say_nothing_of_a_number(spec: str, n: int) -> None:
    drawn = estimates_of_sets(mechanism(spec), 20, n)
    for functional, low, high in (
        (Mean(), 0, 7),
        (RangeShare(None, 3), 0, 1),
        (Quantile(q=0.5), 0, 7),
        (Variance(), 0, 49 / 4),
    ):
        measured = functional.measure(drawn)
        assert np.isinf(measured.std_error).all() or functional == Quantile(q=0.5)
        assert (measured.low == low).all()
        assert (measured.high == high).all()


def test_simultaneous_intervals_hold_all_together_and_are_wider_on_both_sides() -> None:
    spec = mechanism("krr(1, [0,1,2,3,4,5,6,7])")
    counts = RNG.multinomial(N, operator_of(spec).forward(TRUTH), REPEATS).astype(np.float64)
    each, together = (estimate_counts(spec, counts, ibu(options)).intervals for options in ("", "intervals='simultaneous'"))
    inside = (together.low > 0) & (together.high < 1)
    assert (together.low < each.low)[inside].all()
    assert (together.high > each.high)[inside].all()
    all_right = ((together.low <= TRUTH) & (together.high >= TRUTH)).all(axis=1).sum()
    assert all_right >= LEAST  # they are right together with probability .95 and more
    assert ((each.low <= TRUTH) & (each.high >= TRUTH)).all(axis=1).sum() < all_right


# --- what they are ---


def test_exact_counts_give_the_exact_numbers() -> None:
    spec = mechanism("krr(2, [0,1,2,3,4,5,6,7])")
    estimate = estimate_counts(spec, operator_of(spec).forward(TRUTH)[None] * 1e9, ibu("misfit='allow'"))
    for functional in (Mean(), Variance(), RangeShare(2, 4), Quantile(q=0.5), Quantile(q=0.61)):
        measured = functional.measure(estimate)
        assert measured.estimate[0] == pytest.approx(true_value(functional), abs=1e-6)
        assert measured.low[0] <= measured.estimate[0] <= measured.high[0]


@pytest.mark.parametrize("spec", SPECS)
def test_the_covariance_of_an_estimate_gives_the_error_of_any_number(spec: str) -> None:
    drawn = estimates(spec, 2)
    for i, error in enumerate(Mean().measure(drawn).std_error):
        c = np.arange(8.0)
        assert np.sqrt(c @ drawn[i].covariance @ c) == pytest.approx(error, rel=1e-6)
        assert drawn[i].covariance.sum(axis=0) == pytest.approx(0, abs=1e-12)  # shares sum to one


def test_groups_together_are_groups_alone() -> None:
    for spec in ("krr(1, [0,1,2,3,4,5,6,7])", "truncated_geometric(0.4, 0, 7)"):
        drawn = estimates(spec, 5)
        for functional in FUNCTIONALS:
            measured = functional.measure(drawn)
            for i in range(5):
                alone = estimate_counts(mechanism(spec), drawn.likelihood.counts[i : i + 1], ibu())
                assert functional.measure(alone).high[0] == pytest.approx(measured.high[i], abs=1e-9)


def test_the_interval_of_a_quantile_of_many_values_is_found_near_it(monkeypatch: pytest.MonkeyPatch) -> None:
    size = 1000
    counts = np.zeros((2, size))
    counts[0, 300:320] = counts[1, 700:720] = 100_000.0  # two groups that are far apart
    spec = registry().mechanism({"mechanism": "krr", "epsilon": 20, "domain": range(size)})
    monkeypatch.setattr(spans, "_CELLS", 50 * size)
    both = Quantile(q=0.48).measure(estimate_counts(spec, counts, ibu()))
    for group in range(2):
        alone = Quantile(q=0.48).measure(estimate_counts(spec, counts[group : group + 1], ibu()))
        assert (both.low[group], both.high[group]) == (alone.low[0], alone.high[0])
        assert both.estimate[group] - 8 <= both.low[group] <= both.high[group] <= both.estimate[group] + 8


def test_a_median_of_many_values_needs_no_table_of_all_pairs_of_values() -> None:
    size = 200_000  # a table of them would take 320 GB
    counts = np.zeros((1, size))
    counts[0, 70_000:90_001] = 1.0
    made = registry().mechanism({"mechanism": "krr", "epsilon": 20, "domain": range(size)})
    median = Quantile(q=0.5).measure(estimate_counts(made, counts, ibu()))
    assert median.estimate[0] == 80_000
    assert 0 < median.low[0] <= 80_000 <= median.high[0] < size - 1


def test_a_share_that_reports_do_not_identify_has_an_interval_that_holds_all_it_can_be() -> None:
    rows = [["1/2", "1/4", "1/4"], ["1/2", "1/4", "1/4"], ["1/4", "1/4", "1/2"]]
    spec = registry().mechanism({"mechanism": "matrix", "domain": [1, 2, 5], "rows": rows})
    estimate = estimate_counts(spec, np.array([[400.0, 250.0, 350.0]]), ibu())
    apart = RangeShare(None, 1).measure(estimate)
    together = RangeShare(None, 2).measure(estimate)  # the two that have the same reports
    assert np.isfinite(together.std_error[0])
    assert together.high[0] - together.low[0] < 0.5
    assert apart.low[0] == 0
    assert apart.high[0] == pytest.approx(together.high[0], abs=0.05)  # one of them may have the share of both


# --- in SQL ---

UNITS = {
    "range(8)": (0, 7, float, int),
    "[0.5, 1.25, 2.75]::DECIMAL(4,2)[]": (Decimal("0.50"), Decimal("2.75"), float, Decimal),
    "[DATE '2020-01-01', DATE '2020-01-03', DATE '2020-01-11']": (date(2020, 1, 1), date(2020, 1, 11), datetime, date),
    "[TIMESTAMP '2020-01-01', TIMESTAMP '2020-01-01 12:00:00']": (
        datetime(2020, 1, 1),
        datetime(2020, 1, 1, 12),
        datetime,
        datetime,
    ),
    "[30, 10, 20]": (10, 30, float, int),
}


@pytest.mark.parametrize("domain", UNITS)
def test_numbers_are_in_the_unit_of_the_domain(con: DuckDBPyConnection, domain: str) -> None:
    least, most, mean_type, quantile_type = UNITS[domain]
    con.execute(f"CREATE MACRO m() AS ldp.krr(4, {domain})")
    con.execute(f"CREATE TABLE r AS SELECT ldp.perturb(({domain})[1 + i % len({domain})], m()) AS x FROM range(3000) t(i)")
    mean = one(con, "SELECT ldp.mean(x, m()) FROM r")
    assert isinstance(mean["estimate"], mean_type)
    assert mean["low"] < mean["estimate"] < mean["high"]
    true_mean = one(con, f"SELECT avg(x) FROM (SELECT unnest({domain}) AS x)")
    assert mean["low"] - 2 * (mean["high"] - mean["low"]) < true_mean < mean["high"] + 2 * (mean["high"] - mean["low"])
    assert one(con, "SELECT ldp.mean(ldp.counts(x), m()) FROM r") == mean
    for q, value in ((0.001, least), (0.999, most)):
        quantile = one(con, f"SELECT ldp.quantile(x, m(), {q}) FROM r")
        assert (type(quantile["estimate"]), quantile["estimate"]) == (quantile_type, value)
    whole = one(con, "SELECT ldp.range_share(x, m(), NULL, NULL) FROM r")
    assert (whole["low"], whole["high"]) == pytest.approx((1, 1))
    half = one(con, f"SELECT ldp.range_share(x, m(), (SELECT min(unnest) FROM unnest({domain})), NULL) FROM r")
    assert half["estimate"] == pytest.approx(1)
    assert one(con, "SELECT ldp.variance(x, m()) FROM r")["low"] > 0
    assert one(con, "SELECT ldp.mean(x, m()) FROM r WHERE false") is None
    assert one(con, "SELECT ldp.quantile(x, m(), 0.5) FROM r WHERE false") is None


REFUSED = {
    "ldp.mean(x, ldp.krr(1, ['a', 'b']))": "LDP102",
    "ldp.quantile(x, ldp.krr(1, [true, false]), 0.5)": "LDP102",
    "ldp.mean(x, ldp.planar_geometric(1, 3, 3))": "LDP102",
    "ldp.quantile(x, ldp.krr(1, [1, 2]), 1)": "LDP103",
    "ldp.quantile(x, ldp.krr(1, [1, 2]), NULL)": "LDP103",
    "ldp.quantile(x, ldp.krr(1, [1, 2]), 'canary')": "LDP103",
    "ldp.range_share(x, ldp.krr(1, [1, 2]), 2, 1)": "LDP103",
    "ldp.range_share(x, ldp.krr(1, [1, 2]), 'canary', 1)": "LDP304",
    "ldp.range_share(x, ldp.krr(1, [DATE '2020-01-01', DATE '2021-01-01']), 'canary', NULL)": "LDP304",
    "ldp.mean(x, ldp.krr(1, [1, 2]), estimator := 'ibuu')": "LDP201",
}


@pytest.mark.parametrize("call", REFUSED)
def test_what_has_no_such_number_is_refused(con: DuckDBPyConnection, call: str) -> None:
    with pytest.raises(duckdb.Error) as caught:
        con.execute(f"SELECT {call} FROM (SELECT 1 AS x)").fetchall()
    assert f"[{REFUSED[call]}]" in str(caught.value)
    assert "canary" not in str(caught.value)


def test_mean_variance_and_quantile_of_duckdb_keep_their_names() -> None:
    with ldpsql.connect(use=True) as con:
        row = con.execute("SELECT mean(i), variance(i), quantile(i, 0.5), mean(i) FILTER (WHERE i > 5) FROM range(9) t(i)")
        assert row.fetchone() == (4, 7.5, 4, 7)


# --- what a diagnosis says of sets, hashes and impossible reports ---


@pytest.mark.parametrize(
    "call",
    ["oue(1, range(40))", "rappor(1, range(40))", "olh(1, range(40), seeds := 'private')", "subset_selection(1, range(40))"],
)
def test_the_fit_of_set_reports_is_tested(con: DuckDBPyConnection, call: str) -> None:
    con.execute(f"CREATE MACRO m() AS ldp.{call}")
    con.execute("CREATE TABLE r AS SELECT i, ldp.perturb(i % 10, m()) AS x FROM range(4000) t(i)")
    honest = one(con, "SELECT ldp.diagnose(x, m()) FROM r")
    assert honest["fit_p_value"] > 1e-6  # a bound of the chance that honest reports fall below it
    # an attacker who sends one report again and again
    forged = one(con, "SELECT ldp.diagnose(CASE WHEN i % 3 = 0 THEN (SELECT x FROM r LIMIT 1) ELSE x END, m()) FROM r")
    assert forged["fit_p_value"] < (1e-9 if "oue" not in call and "rappor" not in call else 1)
    if "oue" in call:  # everybody of 5 % supports one value and no other
        one_bit = one(con, "SELECT ldp.diagnose(CASE WHEN i % 20 = 0 THEN [8]::UBIGINT[] ELSE x END, m()) FROM r")
        assert one_bit["fit_p_value"] < 1e-9
        assert "do not fit" in one_bit["remedy"]


def test_bounds_of_the_fit_are_bounds() -> None:
    law = np.array([0.01, 0.2, 0.5, 0.28, 0.01])
    bound = np.array([np.exp(known_law(counts, law)[1]) for counts in RNG.multinomial(200, law, 5000).astype(np.float64)])
    ranges = np.array([np.exp(log_p_within(shares, 200, 0.2, 0.5)) for shares in RNG.binomial(200, 0.2, (5000, 3)) / 200])
    for level in (0.5, 0.1, 0.01):
        allowed = 5000 * level + 5 * np.sqrt(5000 * level)  # five standard deviations
        assert (bound <= level).sum() <= allowed
        assert (ranges <= level).sum() <= allowed


def test_impossible_reports_are_counted_and_not_named(con: DuckDBPyConnection) -> None:
    con.execute("CREATE TABLE r AS SELECT ldp.perturb('Lima', city()) AS x FROM range(1000)")
    honest = one(con, "SELECT ldp.diagnose(x, city()) FROM r")
    con.execute("INSERT INTO r SELECT 'canary-7f3a' FROM range(30)")
    diagnosis = one(con, "SELECT ldp.diagnose(x, city()) FROM r")
    assert diagnosis == honest | {"impossible": 30}
    assert "canary" not in str(diagnosis)
    only = one(con, "SELECT ldp.diagnose(x, city()) FROM r WHERE x = 'canary-7f3a'")
    assert (only["reports"], only["impossible"], only["fit_p_value"]) == (0, 30, None)
    for call, wrong in (
        ("oue(1, range(70))", "[[1, 2], [1], [1, 64], [1, NULL]]::UBIGINT[][]"),
        ("subset_selection(1, range(70))", "[[1, 2]]::UBIGINT[][]"),
        ("olh(1, range(70), seeds := 'private')", "[{'seed': 1, 'y': 99}]::STRUCT(seed UBIGINT, y UINTEGER)[]"),
        ("olh(1, range(70))", "[{'seed': 100000, 'y': 1}, {'seed': 1, 'y': 9}]::STRUCT(seed UBIGINT, y UINTEGER)[]"),
    ):
        con.execute(f"CREATE OR REPLACE TABLE s AS SELECT ldp.perturb(i % 7, ldp.{call}) AS x FROM range(500) t(i)")
        con.execute(f"INSERT INTO s SELECT unnest({wrong})")
        diagnosis = one(con, f"SELECT ldp.diagnose(x, ldp.{call}) FROM s")
        bad = one(con, "SELECT count(*) FROM s") - 500
        possible_too = 1 if call.startswith("oue") else 0  # [1, 2] is a set of two values
        assert (diagnosis["reports"], diagnosis["impossible"]) == (500 + possible_too, bad - possible_too), call


def test_the_effective_number_of_reports_is_that_of_unperturbed_values() -> None:
    spec = mechanism("krr(1, [0,1,2,3,4,5,6,7])")
    drawn = estimate_counts(spec, RNG.multinomial(N, operator_of(spec).forward(TRUTH), 1).astype(np.float64), ibu())[0]
    theta, n = drawn.estimate, drawn.diagnosis.effective_reports
    assert (theta * (1 - theta) / n).sum() == pytest.approx((drawn.std_error**2).sum())
    assert 0 < n < N
    clear = mechanism("krr(32, [0,1,2,3,4,5,6,7])")
    drawn = estimate_counts(clear, RNG.multinomial(N, TRUTH, 1).astype(np.float64), ibu())[0]
    assert drawn.diagnosis.effective_reports == pytest.approx(N, rel=1e-6)


# --- confidence ---


@pytest.mark.parametrize(
    "call",
    [
        "mean(x, m(){})",
        "variance(x, m(){})",
        "median(x, m(){})",
        "quantile(x, m(), 0.3{})",
        "quantile(x, m(), [0.3]{})[1]",
        "range_share(x, m(), 2, 4{})",
        "range_share(x, m(), [2], [4]{})[1]",
        "share(x, m(), 3{})",
        "margin(x, m(), NULL{})[1]",
        "top(x, m(), 1{})[1]",
    ],
)
def test_confidence_is_that_of_the_intervals_and_goes_before_the_text_of_the_estimator(
    con: DuckDBPyConnection, call: str
) -> None:
    con.execute("CREATE MACRO m() AS ldp.krr(1, range(8))")
    con.execute("CREATE TABLE r AS SELECT i % 8 AS x, 0 AS confidence FROM range(4000) t(i)")

    def ends(options: str) -> tuple[float, float]:
        row = one(con, f"SELECT ldp.{call.format(options)} FROM r")
        return row["low"], row["high"]

    assert ends(", confidence := 0.999") == ends(", estimator := 'ibu(confidence=0.999)'")
    assert ends(", confidence := 0.999") == ends(", estimator := 'ibu(confidence=0.6)', confidence := 0.999")
    assert ends(", confidence := NULL") == ends("")
    low, high = ends(", confidence := 0.51")
    widest = ends(", confidence := 0.99999")
    assert widest[0] <= low <= high <= widest[1]
    assert widest != (low, high)


def test_a_confidence_that_is_not_one_is_refused(con: DuckDBPyConnection) -> None:
    for confidence in ("1.5", "0.3", "'x'", "true"):
        with pytest.raises(duckdb.Error, match=r"\[LDP103\] parameter confidence of ibu"):
            con.execute(f"SELECT ldp.median(x, ldp.krr(3, range(8)), confidence := {confidence}) FROM (VALUES (1), (2)) t(x)")


def test_solving_by_cholesky_is_solving_by_eigenvectors() -> None:
    table = RNG.dirichlet(np.ones(12), 9)
    information = (table / table.mean(axis=0)) @ table.T
    c = RNG.random((9, 3))
    moved, lost = tangent_solve(information, c)
    assert moved == pytest.approx(tangent_inverse(information)[0] @ c)
    assert not lost.any()
    flat = np.vstack([table, table[:1]])  # two values that nothing tells apart
    c = np.array([[1.0, 1], [0, 0], [0, 0], [0, 0], [0, 0], [0, 0], [0, 0], [0, 0], [0, 0], [0, 1]])
    moved, lost = tangent_solve((flat / flat.mean(axis=0)) @ flat.T, c)
    assert lost.tolist() == [True, False]
