"""Plans: the error that is promised is the error that comes."""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import pairwise
from math import exp
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from scipy.stats import chi2

import ldpsql
from ldpsql import Epsilon, KeepOrSpread, certify
from ldpsql.errors import InvalidEpsilon, InvalidParameter
from ldpsql.functions import registry
from ldpsql.mechanisms import OrthogonalHash, best_tree, hash_symbols, prime_power
from ldpsql.mechanisms.trees import counts_of_levels, rectangle_error, scatter
from ldpsql.questions import Mean
from ldpsql.testing import estimate_counts, operator_of
from tests.commands import printed, rows, run

N, ROUNDS = 20_000, 40


def promised(text: str, reports: int = N, epsilon: str = "1") -> dict[str, Any]:
    """Return the errors that a plan promises for a mechanism."""
    (row,) = rows("plan", "-n", str(reports), "-m", text, "--epsilon", epsilon)
    return row


def check_occurs(error: float, values: int, squares: list[float], fixed: float) -> None:
    """Check that sums of squared errors over the values are as large as promised, within bounds that miss once in 10^6 times.

    A quadratic form of normal errors with mean m has a variance of at most 2 m^2, and its mean over ROUNDS draws is nearly
    normal; the upper tail, which is heavier, is that of a chi-square variable with ROUNDS degrees of freedom. The values are
    fixed in the tests, so the part of the variance that comes from drawing them, ``fixed``, is missing.
    """
    most = values * error**2
    low, high = (float(chi2.ppf(tail, ROUNDS)) / ROUNDS for tail in (5e-7, 1 - 5e-7))
    assert (most - fixed) * low <= np.mean(squares) <= most * high


@pytest.mark.parametrize("text", ["krr(1, [0, 1, 2, 3, 4])", "oue(1, [0, 1, 2, 3, 4])", "truncated_geometric(1, 0, 4)"])
def test_the_expected_error_is_that_of_estimates_from_drawn_reports(text: str) -> None:
    mechanism, values = registry().mechanism(text), pa.array(np.repeat(np.arange(5), N // 5))
    drawn = (ldpsql.estimate(certify(mechanism).perturb(values), mechanism, "inv").estimate for _ in range(ROUNDS))
    check_occurs(promised(text)["std_error"], 5, [np.sum((shares - 0.2) ** 2) for shares in drawn], 0.8 / N)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pckv", "pckv_grr", "pckv_ue", "pckv_pm", "pckv_pm_ue"])
def test_the_expected_error_of_pairs_is_that_of_frequencies_from_drawn_reports(name: str) -> None:
    """Of sets of two pairs and a padding of two, whether a key is drawn has the variance 4 x (1/4 - 1/16)."""
    text = f"{name}(1, [0, 1, 2, 3], padding=2)"
    mechanism, plan = registry().mechanism(text), promised(text)
    sets = pa.array([[{"key": k, "value": 0.0}, {"key": (k + 1) % 4, "value": 0.0}] for k in range(4)] * (N // 4))
    drawn = (ldpsql.key_value(certify(mechanism).perturb(sets), mechanism).to_arrow()["frequency"] for _ in range(ROUNDS))
    check_occurs(plan["std_error"], 4, [np.sum((own.to_numpy() - 0.5) ** 2) for own in drawn], 4 * 4 * (1 / 16) / N)
    assert plan["total_variation"] is None


def test_kr_rs_error_is_the_one_of_its_formula() -> None:
    """Kairouz, Bonawitz, Ramage 2016: the variance of an inverted share is P(1-P)/(n lift^2) with P = 1/k."""
    k, n, e = 50, 100_000, np.e
    lift = (e - 1) / (e + k - 1)
    expected = promised(f"krr(1, {list(range(k))})", n)
    assert expected["std_error"] == pytest.approx(np.sqrt((1 / k) * (1 - 1 / k) / n) / lift, rel=1e-9)
    assert expected["reports_needed"] == int(np.ceil(n * (expected["std_error"] / 0.01) ** 2))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ("-n 9 -k 5 -m krr -m square_wave", InvalidParameter, r"needs more than an epsilon.*square_wave\(epsilon, low, high"),
        ("-n 9 -m krr(1,[1,2]) --epsilon 99", InvalidEpsilon, ""),
        ("-n 9 -k 1 -m krr", InvalidParameter, "from 2 to"),
        ("-n 9 -m square_wave(1,0,1,bins=4) --epsilon 0.000000000001", InvalidParameter, "square_wave at epsilon"),
        ("-n 9 -k 24 --width 6", InvalidParameter, "only a plan for rectangles takes a width"),
    ],
)
def test_a_plan_of_errors_that_cannot_be_made_is_refused(options: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as refused:
        printed("plan", *options.split())
    assert re.search(message, f"{refused.value} {getattr(refused.value, 'hint', '')}")


def test_plans_are_ordered_by_error_and_if_errors_are_equal_by_what_reports_cost() -> None:
    plans = rows("plan", "-n", "100000", "-k", "1000", "--epsilon", "4", "--epsilon", "0.5")
    assert [plan["epsilon"] for plan in plans] == sorted((plan["epsilon"] for plan in plans), reverse=True)
    for epsilon in (4.0, 0.5):
        errors = {plan["mechanism"]: plan["std_error"] for plan in plans if plan["epsilon"] == epsilon}
        assert {"krr", "oue", "olh", "rappor", "subset_selection"} <= errors.keys()
        assert all(later >= before / 1.02 for before, later in pairwise(errors.values()))
    assert [*errors].index("olh") < [*errors].index("subset_selection")
    assert errors["subset_selection"] < errors["olh"] < 1.02 * errors["subset_selection"]


def test_a_plan_for_numbers_has_the_error_of_the_mean() -> None:
    for text in ("square_wave(1, 0, 100, bins=256)", "hybrid(1, 0, 100, bins=256)", "truncated_geometric(0.1, 0, 99)"):
        mechanism = registry().mechanism(text)
        operator = operator_of(mechanism)
        counts = 100_000 * operator.forward(np.full((1, operator.inputs), 1 / operator.inputs))
        measured = Mean().measure(estimate_counts(mechanism, counts, registry().estimator("ibu")))
        error = promised(text, 100_000, str(mechanism.to_json()["epsilon"]))["mean_error"]
        assert error == pytest.approx(measured.std_error[0], rel=0.02)
    assert promised("krr(1, [1, 2])", 100)["mean_error"] is None


def test_an_error_of_a_share_above_one_is_not_shown() -> None:
    expected = promised("laplace(1, 0, 5)", 1000)
    assert [expected[name] for name in ("std_error", "total_variation", "reports_needed")] == [None] * 3
    assert expected["mean_error"] is not None


ON_A_LINE = ("mean", "distribution", "ranges", "quantiles")
OF_NUMBERS = {"square_wave", "piecewise", "hybrid", "stochastic_rounding"}


def plan(question: str, values: int = 60, **options: Any) -> pl.DataFrame:
    return ldpsql.recommend(question, N, values, **{"epsilons": ["1"], **options})


@pytest.mark.parametrize("question", ON_A_LINE)
def test_the_mechanism_with_the_smallest_error_is_recommended_at_each_epsilon(question: str) -> None:
    answers = plan(question, epsilons=["4", "0.5"])
    for (_,), one in answers.group_by("epsilon"):
        assert one["error"].is_sorted()
        assert one["recommended"].to_list() == [True] + [False] * (len(one) - 1)
        assert {"square_wave", "olh", "krr", "hybrid"} <= {*one["mechanism"]}
        assert not {"gaussian", "geometric", "pem", "pckv"} & {*one["mechanism"]}
        if question in ("mean", "ranges"):
            assert (one["mechanism"][0] in OF_NUMBERS) == (question == "mean")
    assert plan(question, epsilons=["4", "0.5"]).equals(answers)


def test_the_error_of_a_mean_in_a_plan_is_that_of_the_mean() -> None:
    for name, error in plan("mean", 100, mechanisms=["square_wave", "hybrid"])["mechanism", "error"].iter_rows():
        assert error == pytest.approx(promised(f"{name}(1, 0, 99, step=1)")["mean_error"])


def test_the_error_of_ranges_under_a_mechanism_that_lists_values_is_that_of_its_covariance() -> None:
    """The bits of a report of `oue` are independent given the value, so the covariance of the shares is known exactly."""
    steps = 40
    channel: Any = registry().mechanism(f"oue(1, {list(range(steps))})").channel()
    hit, miss = float(channel.hit), float(channel.miss)
    chance = (hit + (steps - 1) * miss) / steps
    both = ((steps - 2) * miss**2 + 2 * hit * miss) / steps - chance**2
    covariance = (np.full((steps, steps), both) + np.eye(steps) * (chance * (1 - chance) - both)) / (hit - miss) ** 2 / N
    c = np.array([[a <= x < b for a in range(steps) for b in range(a + 1, steps + 1)] for x in range(steps)], dtype=float)
    c = c - c.mean(axis=0)  # all shares sum to one
    exact = np.sqrt(np.einsum("xm,xy,ym->m", c, covariance, c).mean())
    (error,) = plan("ranges", steps, mechanisms=["oue"])["error"]
    assert error == pytest.approx(exact, rel=0.05)


def test_errors_fall_with_reports_and_grow_with_the_range() -> None:
    exact = ["hierarchy", "olh", "krr"]  # the errors of `ems` are mostly the bias of smoothing
    for question in (*ON_A_LINE, "rectangles"):
        options = {"mechanisms": ["grid_hierarchy", "olh"], "width": 6} if question == "rectangles" else {"mechanisms": exact}
        few, many = (ldpsql.recommend(question, n, 60, epsilons=["1"], **options).sort("mechanism") for n in (5_000, 80_000))
        assert many["error"].to_numpy() == pytest.approx(few["error"].to_numpy() / 4, rel=0.02)
    wide, narrow = (plan("quantiles", steps, mechanisms=["piecewise", "square_wave"])["error"][0] for steps in (1 << 20, 1000))
    assert wide > narrow


def test_the_error_of_rectangles_under_a_hierarchy_is_that_of_its_theory_and_other_mechanisms_list_cells() -> None:
    answers = dict(plan("rectangles", 40 * 30, width=40)["mechanism", "error"].iter_rows())
    fanout, levels = best_tree(Epsilon.parse("1"), (30, 40))
    variances = [levels * scatter(Epsilon.parse("1"), count) for count in counts_of_levels((30, 40), fanout, levels)]
    exact = np.sqrt(rectangle_error(variances, (30, 40), fanout) / N)
    assert answers["grid_hierarchy"] == pytest.approx(exact, rel=0.25)  # few rectangles, spread evenly, for all of them
    assert {"grid_hierarchy", "olh"} <= answers.keys()
    assert not {"square_wave", "hierarchy", "planar_geometric"} & answers.keys()


@pytest.mark.parametrize(("question", "values", "width"), [("ranges", 20, None), ("rectangles", 24, 6)])
def test_sql_python_and_the_command_line_give_the_same_plan(
    con: duckdb.DuckDBPyConnection, question: str, values: int, width: int | None
) -> None:
    expected = plan(question, values, width=width)["mechanism", "error"].rows()
    of_grid = f"width := {width}, " if width else ""
    call = f"ldp.recommend(20000, {values}, {of_grid}epsilons := [1], question := '{question}')"
    assert con.execute(f"SELECT mechanism, error FROM {call}").fetchall() == expected
    options = ["-n", "20000", "-k", str(values), "-q", question, "--epsilon", "1", *(("--width", str(width)) if width else ())]
    assert [(row["mechanism"], row["error"]) for row in rows("plan", *options)] == expected
    assert printed("plan", *options, "-m", "olh", "--format", "csv").count("\n") == 2


@pytest.mark.parametrize("question", ["mean", "distribution", "ranges", "quantiles", "share", "outcome", "regression"])
def test_the_epsilon_and_the_reports_for_an_error_are_the_smallest(question: str) -> None:
    error, names = 0.5 if question in ON_A_LINE and question != "ranges" else 0.05, ["olh", "krr", "hierarchy"]
    for row in ldpsql.recommend(question, N, 20, error=error, mechanisms=names).to_dicts():
        less = float(f"{row['epsilon'] * 0.99:.3g}")
        at: dict[str, Any] = {"epsilons": [row["epsilon"], less], "mechanisms": [row["mechanism"]]}
        reached, missed = ldpsql.recommend(question, N, 20, **at).sort("epsilon", descending=True)["error"]
        assert reached == row["error"] <= error < missed
    needed = ldpsql.recommend(question, None, 20, error=error, epsilons=["1", "2"], mechanisms=names)
    for row in needed.to_dicts():
        at = {"epsilons": [row["epsilon"]], "mechanisms": [row["mechanism"]]}
        reached, missed = (
            ldpsql.recommend(question, n, 20, **at)["error"][0] for n in (row["reports"], round(row["reports"] * 0.985))
        )
        assert reached <= error < missed
    assert needed.group_by("epsilon").first()["recommended"].all()
    assert needed["reports"].is_sorted() == (needed["epsilon"].n_unique() == 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["krr", "oue", "olh", "subset_selection"])
def test_the_error_of_an_outcome_and_of_a_coefficient_is_the_one_that_the_answer_states(
    con: duckdb.DuckDBPyConnection, name: str
) -> None:
    """The root mean square of stated errors, for which each estimated weight is within about a percent of the true one."""
    n, k = 1_000_000, 7
    m = f"ldp.{name}(1, range({k}))"
    drawn = f"SELECT ldp.perturb(i % {k}, {m}) AS x, 1 - 2 * (i // {k} % 2) AS y FROM range({n}) t(i)"
    con.execute(f"CREATE OR REPLACE TABLE r AS {drawn}")
    for question, options in (("outcome", ", estimator := 'inv'"), ("regression", "")):
        (error,) = ldpsql.recommend(question, n, k, epsilons=[1], mechanisms=[name])["error"]
        answer = f"SELECT unnest(ldp.{question}(x, {m}, y{options}), recursive := true) FROM r"
        errors = [row[2] for row in con.execute(answer).fetchall() if row[0] != "intercept"]
        assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(error, rel=0.03)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("ldp.recommend(100, 60, question := 'median')", "LDP103.*mean, distribution, ranges, quantiles, rectangles"),
        ("ldp.recommend(100, 60, question := 'rectangles')", "LDP103.*needs the width"),
        ("ldp.recommend(100, 60, question := 'ranges', width := 6)", "LDP103.*and no other"),
        ("ldp.recommend(100, 60, question := 'rectangles', width := 7)", "LDP103.*60 values in rows of 7 make no grid"),
        ("ldp.recommend(100, 60, question := 'rectangles', width := 60)", "LDP103.*60 values in rows of 60 make no grid"),
        ("ldp.recommend(100, 60, question := 'rectangles', width := -6)", "LDP103.*60 values in rows of -6 make no grid"),
        ("ldp.recommend(100, 1)", "LDP103.*from 2 to 1,048,576"),
        ("ldp.recommend(100, 1000000, question := 'distribution')", "LDP103.*seconds.*compare fewer epsilons"),
        ("ldp.recommend(100, 60, epsilons := range(1, 1001)::VARCHAR[])", "LDP103.*seconds.*compare fewer epsilons"),
        ("ldp.recommend(0, 60)", "LDP103.*a report"),
        ("ldp.recommend(NULL, 60)", "LDP103.*none may be NULL"),
        ("ldp.recommend(100, 60, error := 0)", "LDP103.*error to reach"),
        ("ldp.recommend(100, 60, error := 'nan'::DOUBLE)", "LDP103.*error to reach"),
        ("ldp.recommend(10, 60, question := 'share', error := 1e-9)", "LDP103.*reaches this error"),
        ("ldp.recommend(100, 60, epsilons := [1, NULL])", "LDP103.*none may be NULL"),
        ("ldp.recommend(100, 60, epsilons := [])", "LDP103.*none of these mechanisms"),
        ("ldp.recommend(100, 60, epsilons := [-1])", "LDP101"),
    ],
)
def test_a_plan_that_cannot_be_made_is_refused(con: duckdb.DuckDBPyConnection, call: str, message: str) -> None:
    with pytest.raises(duckdb.Error, match=message):
        con.execute(f"FROM {call}")


def test_a_plan_by_question_draws_no_page_and_takes_no_parameters() -> None:
    for options in (("--output", "p.html"), ("-m", "square_wave(1, 0, 100)"), ()):
        done = run("plan", "-n", "100", "-q", "mean", *(("-k", "9") if options else ()), *options)
        assert done.returncode == 2
        assert "LDP103" in done.stderr


def test_the_usual_symbols_are_the_power_of_a_prime_nearest_to_the_best_number() -> None:
    for best in range(2, 200):
        nearest = min((g for g in range(2, 2 * best + 1) if prime_power(g)), key=lambda g: (abs(g - best), g))
        assert hash_symbols(Fraction(best - 1), 1000) == nearest


def e_to(epsilon: float) -> Fraction:
    return Fraction(exp(epsilon))


def test_a_space_that_is_too_large_is_refused_with_symbols_whose_space_is_not() -> None:
    with pytest.raises(InvalidParameter, match="use symbols := 173, with errors that are") as refused:
        OrthogonalHash(5_000_000, KeepOrSpread.within(149, e_to(5)))
    assert "too many orthogonal seeds" in str(refused.value)
    OrthogonalHash(5_000_000, KeepOrSpread.within(173, e_to(5)))
    with pytest.raises(InvalidParameter, match="use krr"):
        OrthogonalHash(16_000_000, KeepOrSpread.within(1097, e_to(7)))


def test_symbols_are_recommended_with_which_estimates_are_quicker_unless_little_is_gained() -> None:
    planned = run("plan", "-n", "1000", "-k", "20000", "-m", "olh", "--epsilon", "3", "--epsilon", "1")
    assert planned.returncode == 0
    said = re.fullmatch(
        r"olh at epsilon 3: with symbols=(\d+), estimates transform (\d+) times as few numbers, and errors are (\d+)% larger\n",
        planned.stderr,
    )
    assert said
    usual, other = (
        registry().mechanism({"mechanism": "olh", "epsilon": 3, "domain": range(20_000), **options})
        for options in ({}, {"symbols": int(said[1])})
    )
    errors = [promised(str(one), 1000, "3")["std_error"] for one in (usual, other)]
    assert errors[1] / errors[0] == pytest.approx(1 + int(said[3]) / 100, abs=0.006)
    assert not run("plan", "-n", "1000", "-k", "200", "-m", "olh", "--epsilon", "3").stderr  # few values


@pytest.mark.parametrize(("question", "values", "width"), [("ranges", 2, None), ("rectangles", 4, 2), ("rectangles", 10, 2)])
def test_ranges_of_two_values_have_errors_too(question: str, values: int, width: int | None) -> None:
    planned = ldpsql.recommend(question, 1000, values, width=width, epsilons=["1"]).to_dicts()
    assert all(0.01 < row["error"] < 0.5 for row in planned)  # 0.03 for the share of one of two values
