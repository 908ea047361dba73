"""Plans: the error that is promised is the error that comes."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import pairwise
from math import exp
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import chi2

import ldpsql
from ldpsql import Epsilon, KeepOrSpread, certify
from ldpsql.channels import SetChannel
from ldpsql.channels.galois import quicker_symbols, space
from ldpsql.cli import plan as command
from ldpsql.cli.options import Format
from ldpsql.errors import InternalError, InvalidEpsilon, InvalidParameter
from ldpsql.estimates import planning
from ldpsql.estimates.asked import Asked, PlanQuestion, on_a_line
from ldpsql.estimates.planning import compare, expected_error, mean_error, over_declared_values
from ldpsql.estimates.questions import Candidate, Estimators, answers_to
from ldpsql.functions import Mean, registry
from ldpsql.mechanisms import OrthogonalHash, best_squares, counts_of_squares, hash_symbols, prime_power
from ldpsql.mechanisms.squares import rectangle_error
from ldpsql.mechanisms.trees import scatter
from ldpsql.testing import estimate_counts, operator_of
from tests.commands import run

N, ROUNDS = 20_000, 40


@pytest.mark.parametrize("text", ["krr(1, [0, 1, 2, 3, 4])", "oue(1, [0, 1, 2, 3, 4])", "truncated_geometric(1, 0, 4)"])
def test_the_expected_error_is_that_of_estimates_from_drawn_reports(text: str) -> None:
    """The mean of squared errors lies within bounds that miss with probability 1e-6 at most.

    A quadratic form of normal errors with mean m has a variance of at most 2 m^2, and its mean over ROUNDS draws is nearly
    normal; the upper tail, which is heavier, is that of a chi-square variable with ROUNDS degrees of freedom.
    """
    mechanism, expected = registry().mechanism(text), expected_error(registry().mechanism(text), N)
    values = np.repeat(np.arange(5), N // 5)
    estimates = [
        ldpsql.estimate(certify(mechanism).perturb(pa.array(values)), mechanism, "inv").estimate for _ in range(ROUNDS)
    ]
    mean = float(np.mean([np.sum((shares - 0.2) ** 2) for shares in estimates]))
    assert expected.std_error is not None
    # The values are fixed here, so the part of the variance that comes from drawing them is missing.
    most, least = 5 * expected.std_error**2, 5 * expected.std_error**2 - 0.8 / N
    low, high = (float(chi2.ppf(tail, ROUNDS)) / ROUNDS for tail in (5e-7, 1 - 5e-7))
    assert least * low <= mean <= most * high


def test_kr_rs_error_is_the_one_of_its_formula() -> None:
    """Kairouz, Bonawitz, Ramage 2016: the variance of an inverted share is P(1-P)/(n lift^2) with P = 1/k."""
    k, n, e = 50, 100_000, np.e
    lift = (e - 1) / (e + k - 1)
    expected = expected_error(registry().mechanism(f"krr(1, {list(range(k))})"), n)
    assert expected.std_error is not None
    assert expected.std_error == pytest.approx(np.sqrt((1 / k) * (1 - 1 / k) / n) / lift, rel=1e-9)
    assert expected.reports_needed == int(np.ceil(n * (expected.std_error / 0.01) ** 2))


@pytest.mark.parametrize("name", ["pckv", "pckv_grr", "pckv_ue", "pckv_pm", "pckv_pm_ue"])
def test_the_expected_error_of_pairs_is_that_of_frequencies_from_drawn_reports(name: str) -> None:
    """The same bounds, for sets of two pairs and a padding of two: all four keys are equally frequent."""
    mechanism = registry().mechanism(f"{name}(1, [0, 1, 2, 3], padding=2)")
    promised = expected_error(mechanism, N)
    sets = pa.array([[{"key": k, "value": 0.0}, {"key": (k + 1) % 4, "value": 0.0}] for k in range(4)] * (N // 4))
    errors = []
    for _ in range(ROUNDS):
        rows = ldpsql.key_value(certify(mechanism).perturb(sets), mechanism).to_arrow()
        errors.append(float(np.sum((rows["frequency"].to_numpy() - 0.5) ** 2)))
    assert promised.std_error is not None
    assert promised.total_variation is None
    # The sets are fixed here: of the variance 4 x (1/4 - 1/16) of whether a key is drawn, at most that part is missing.
    most, least = 4 * promised.std_error**2, 4 * promised.std_error**2 - 4 * 4 * (1 / 16) / N
    low, high = (float(chi2.ppf(tail, ROUNDS)) / ROUNDS for tail in (5e-7, 1 - 5e-7))
    assert least * low <= np.mean(errors) <= most * high


def test_a_mechanism_that_needs_more_than_an_epsilon_is_not_planned_without_it() -> None:
    with pytest.raises(InvalidParameter, match="needs more than an epsilon") as refused:
        over_declared_values(registry().mechanisms, 5, ["krr", "square_wave"])
    assert "square_wave(epsilon, low, high" in refused.value.hint
    assert [m.name for m in over_declared_values(registry().mechanisms, 5, ["pckv_ue"])] == ["pckv_ue"]


def test_a_plan_says_why_a_mechanism_cannot_be_had_and_hides_no_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    flat = registry().mechanism("krr(1, [0, 1, 2])")
    with pytest.raises(InvalidParameter) as refused:
        compare(["0.000000000001"], 10, [registry().mechanism("square_wave(1, 0, 1, bins=4)")])
    assert "square_wave at epsilon" in refused.value.hint

    def broken(*_: object) -> None:
        raise InternalError("a planted defect")

    monkeypatch.setattr(planning, "expected_error", broken)
    with pytest.raises(InternalError):
        compare(["1"], 10, [flat])


def test_plans_are_ordered_and_know_every_mechanism_over_declared_values() -> None:
    mechanisms = over_declared_values(registry().mechanisms, 64)
    assert {"krr", "oue", "olh", "rappor", "subset_selection"} <= {m.name for m in mechanisms}
    plans = compare(["4", "0.5"], 1000, mechanisms)
    assert [plan.epsilon for plan in plans] == sorted((plan.epsilon for plan in plans), reverse=True)
    for epsilon in (4.0, 0.5):
        errors = [plan.std_error for plan in plans if plan.epsilon == epsilon]
        assert len(errors) == len(mechanisms)
        assert all(later >= before / 1.02 for before, later in pairwise(errors))  # type: ignore[operator]  # all are known here


def test_impossible_plans_are_refused() -> None:
    krr = registry().mechanism("krr(1, [1, 2])")
    with pytest.raises(InvalidEpsilon):
        compare(["99"], 10, [krr])
    with pytest.raises(InvalidParameter, match="at least one report"):
        expected_error(krr, 0)
    with pytest.raises(InvalidParameter, match="from 2 to"):
        over_declared_values(registry().mechanisms, 1)


def test_a_plan_for_numbers_has_the_error_of_the_mean() -> None:
    for text in ("square_wave(1, 0, 100, bins=256)", "hybrid(1, 0, 100, bins=256)", "truncated_geometric(0.1, 0, 99)"):
        mechanism = registry().mechanism(text)
        operator = operator_of(mechanism)
        counts = 100_000 * operator.forward(np.full((1, operator.inputs), 1 / operator.inputs))
        measured = Mean().measure(estimate_counts(mechanism, counts, registry().estimator("ibu")))
        assert expected_error(mechanism, 100_000).mean_error == pytest.approx(measured.std_error[0], rel=0.02)
    assert expected_error(registry().mechanism("krr(1, [1, 2])"), 100).mean_error is None


def test_an_error_of_a_share_above_one_is_not_shown() -> None:
    expected = expected_error(registry().mechanism("laplace(1, 0, 5)"), 1000)
    assert (expected.std_error, expected.total_variation, expected.reports_needed) == (None, None, None)
    assert expected.mean_error is not None


SMOOTHING, EMS_ONCE = (Estimators(registry().estimator("ibu"), registry().estimator(text)) for text in ("ems", "ems(stop=1)"))
ON_A_LINE = [question for question in PlanQuestion if question != PlanQuestion.RECTANGLES]


def plan(question: str, steps: int = 60, epsilons: tuple[str, ...] = ("1",), reports: int = 20_000) -> list[Candidate]:
    return answers_to(Asked(question, reports, steps), epsilons, registry().mechanisms, SMOOTHING)


@pytest.mark.parametrize("question", ON_A_LINE)
def test_the_mechanism_with_the_smallest_error_is_recommended_at_each_epsilon(question: str) -> None:
    answers = plan(question, epsilons=("4", "0.5"))
    for epsilon in (4.0, 0.5):
        errors = [answer.error for answer in answers if answer.epsilon == epsilon]
        assert errors == sorted(errors)
        assert [answer.recommended for answer in answers if answer.epsilon == epsilon] == [True] + [False] * (len(errors) - 1)
    assert {"square_wave", "olh", "krr", "hybrid"} <= {answer.mechanism for answer in answers}
    assert not {"gaussian", "geometric", "pem", "pckv"} & {answer.mechanism for answer in answers}
    assert plan(question, epsilons=("4", "0.5")) == answers


def test_means_are_recommended_from_mechanisms_for_numbers_and_ranges_from_others() -> None:
    best = {question: next(answer for answer in plan(question) if answer.recommended).mechanism for question in ON_A_LINE}
    assert best[PlanQuestion.MEAN] in ("square_wave", "piecewise", "hybrid", "stochastic_rounding")
    assert best[PlanQuestion.RANGES] not in ("square_wave", "piecewise", "hybrid", "stochastic_rounding", "laplace", "krr")


def test_the_error_of_a_mean_in_a_plan_is_that_of_the_mean() -> None:
    answers = {answer.mechanism: answer.error for answer in plan("mean", steps=100)}
    for name in ("square_wave", "hybrid"):
        assert answers[name] == pytest.approx(mean_error(registry().mechanism(f"{name}(1, 0, 99, step=1)"), 20_000))


def test_the_error_of_ranges_under_a_mechanism_that_lists_values_is_that_of_its_covariance() -> None:
    """The bits of a report of `oue` are independent given the value, so the covariance of the shares is known exactly."""
    steps, n = 40, 10_000
    made = registry().mechanism(f"oue(1, {list(range(steps))})")
    channel = made.channel()
    assert isinstance(channel, SetChannel)
    hit, miss = float(channel.hit), float(channel.miss)
    chance = (hit + (steps - 1) * miss) / steps
    both = ((steps - 2) * miss**2 + 2 * hit * miss) / steps - chance**2
    covariance = (np.full((steps, steps), both) + np.eye(steps) * (chance * (1 - chance) - both)) / (hit - miss) ** 2 / n
    c = on_a_line(PlanQuestion.RANGES, np.linspace(0, 1, steps))
    c = c - c.mean(axis=0)  # all shares sum to one
    exact = np.sqrt(np.einsum("xm,xy,ym->m", c, covariance, c).mean())
    (answer,) = [a for a in plan("ranges", steps, reports=n) if a.mechanism == "oue"]
    assert answer.error == pytest.approx(exact, rel=0.05)


@pytest.mark.slow
def test_errors_fall_with_reports_and_epsilon_and_grow_with_the_range() -> None:
    for question in PlanQuestion:  # the errors of `ems`, which are mostly the bias of smoothing, are left out
        asked = [Asked(question, n, 60, 6 if question == PlanQuestion.RECTANGLES else None) for n in (5_000, 80_000)]
        plans = (answers_to(each, ("1",), registry().mechanisms, EMS_ONCE) for each in asked)
        few, many = ({a.mechanism: a.error for a in answers if a.estimator != "ems"} for answers in plans)
        assert all(many[name] == pytest.approx(error / 4, rel=0.02) for name, error in few.items())
    best = {name: registry().mechanisms[name] for name in ("piecewise", "square_wave")}  # of all, at both sizes
    wide, narrow = (answers_to(Asked("quantiles", 20_000, steps), ("1",), best, SMOOTHING) for steps in (1 << 20, 1000))
    assert wide[0].error > narrow[0].error


def test_the_error_of_rectangles_under_a_hierarchy_is_that_of_its_theory_and_other_mechanisms_list_cells() -> None:
    asked = Asked("rectangles", 1, 40 * 30, width=40)
    answers = {answer.mechanism: answer for answer in answers_to(asked, ("1",), registry().mechanisms, EMS_ONCE)}
    fanout, levels = best_squares(Epsilon.parse("1"), (30, 40))
    variances = [levels * scatter(Epsilon.parse("1"), count) for count in counts_of_squares((30, 40), fanout, levels)]
    exact = np.sqrt(rectangle_error(variances, (30, 40), fanout))
    assert answers["grid_hierarchy"].error == pytest.approx(exact, rel=0.25)  # few rectangles, spread evenly, for all of them
    assert {"grid_hierarchy", "olh"} <= answers.keys()
    assert not {"square_wave", "hierarchy", "planar_geometric"} & answers.keys()


def test_sql_and_the_command_line_plan_rectangles_alike(
    con: duckdb.DuckDBPyConnection, capsys: pytest.CaptureFixture[str]
) -> None:
    query = "FROM ldp.recommend(20000, 6 * 4, width := 6, epsilons := [2], question := 'rectangles') SELECT mechanism, error"
    command.plan(20000, 24, ["2"], question="rectangles", width=6, form=Format.JSON)
    rows = json.loads(capsys.readouterr().out)
    assert [(row["mechanism"], row["error"]) for row in rows] == con.execute(query).fetchall()
    with pytest.raises(InvalidParameter, match="only a plan for rectangles takes a width"):
        command.plan(20000, 24, width=6)


def test_sql_and_the_command_line_give_the_same_plan(
    con: duckdb.DuckDBPyConnection, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = con.execute(
        "SELECT mechanism, error FROM ldp.recommend(20000, 20, epsilons := [1], question := 'ranges')"
    ).fetchall()
    assert rows == [(answer.mechanism, answer.error) for answer in plan("ranges", 20)]
    command.plan(20000, 20, ["1"], question="ranges", form=Format.JSON)
    assert [(row["mechanism"], row["error"]) for row in json.loads(capsys.readouterr().out)] == rows
    one = run("plan", "-n", "20000", "-k", "60", "-q", "mean", "--epsilon", "1", "-m", "hybrid", "--format", "csv")
    assert one.stdout.count("\n") == 2


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
        ("ldp.recommend(0, 60)", "LDP103.*a report"),
        ("ldp.recommend(NULL, 60)", "LDP103.*none may be NULL"),
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


def test_quicker_symbols_transform_fewer_numbers_and_have_the_stated_error() -> None:
    usual, one = olh(3), quicker_symbols(e_to(3), 20_000, hash_symbols(e_to(3), 20_000))
    assert one is not None
    other = olh(3, symbols=one.symbols)
    usual_error, error = (expected_error(each, 1000).std_error for each in (usual, other))
    assert usual_error is not None
    assert error is not None
    assert error / usual_error == pytest.approx(one.larger, rel=0.01)
    spaces = [space(each.size(), 20_000) for each in (usual, other)]
    assert spaces[0] / spaces[1] == pytest.approx(one.fewer)
    assert one.fewer > 4


def test_no_symbols_are_recommended_that_gain_little() -> None:
    assert quicker_symbols(e_to(5), 100_000, 317) is None  # quick already
    assert quicker_symbols(e_to(1), 1 << 20, 4) is None  # no shorter transform
    assert quicker_symbols(e_to(3), 200, 19) is None  # few values
    one = quicker_symbols(e_to(5), 100_000, 149)
    assert one is not None
    assert (one.symbols, round(one.fewer), round(one.larger, 2)) == (317, 33, 1.07)


def test_a_space_that_is_too_large_is_refused_with_symbols_whose_space_is_not() -> None:
    size, most = 5_000_000, 1 << 25
    with pytest.raises(InvalidParameter, match="use symbols := 173, with errors that are") as refused:
        OrthogonalHash(size, KeepOrSpread.within(149, e_to(5)))
    assert "too many orthogonal seeds" in str(refused.value)
    OrthogonalHash(size, KeepOrSpread.within(173, e_to(5)))
    assert space(149, size) > most >= space(173, size)
    with pytest.raises(InvalidParameter, match="use krr"):
        OrthogonalHash(16_000_000, KeepOrSpread.within(1097, e_to(7)))


def test_ldpsql_plan_recommends_symbols_with_which_estimates_are_quicker() -> None:
    planned = run("plan", "-n", "1000", "-k", "20000", "-m", "olh", "--epsilon", "3", "--epsilon", "1")
    assert planned.returncode == 0
    (line,) = planned.stderr.splitlines()
    assert line.startswith("olh at epsilon 3: with symbols=")
    assert "times as few numbers" in line


def olh(epsilon: float, **options: object) -> Any:
    return registry().mechanism({"mechanism": "olh", "epsilon": epsilon, "domain": range(20_000), **options})


def e_to(epsilon: float) -> Fraction:
    return Fraction(exp(epsilon))
