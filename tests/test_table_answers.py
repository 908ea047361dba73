"""Answers from the joint estimate of several columns: margins, conditions, differences, in SQL and in Python."""

from __future__ import annotations

from math import isinf, isnan, sqrt

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from duckdb import DuckDBPyConnection

import ldpsql
from ldpsql import Estimate
from ldpsql.errors import InvalidDomain, InvalidParameter, WrongType
from ldpsql.estimates.conditions import condition, python_scalar
from ldpsql.estimates.estimate import Answer
from ldpsql.estimates.functionals import Pair, Two, differences_within, fieller, statistic
from ldpsql.estimates.tables import difference
from ldpsql.estimators import Floats
from ldpsql.functions import registry
from ldpsql.questions import Columns, Estimates, Mean, Share, TableCells
from ldpsql.testing import estimate_counts, operator_of
from tests.seeds import generator

RNG = generator(__name__)
PERSON = "row(edu=krr({e}, ['a', 'b', 'c']), age=krr({e}, [10, 20, 30, 40]), rich=krr({e}, [false, true]))"
LAW = np.outer(np.outer([0.5, 0.3, 0.2], [0.4, 0.3, 0.2, 0.1]).ravel(), [0.75, 0.25]).ravel()  # all columns are independent


def law() -> Floats:
    """Return the shares of the cells if the older are richer, and the educated as well."""
    edu, age, rich = np.indices((3, 4, 2))
    chance = 0.1 + 0.15 * edu + 0.1 * age
    base = LAW.reshape(3, 4, 2).sum(axis=2)[..., None]
    return np.asarray((base * np.where(rich == 1, chance, 1 - chance)).ravel())


TRUTH = law()
VALUES = registry().mechanism(PERSON.format(e=1)).values().listed


def cells(**given: object) -> TableCells:
    """Return a condition."""
    asked = condition(VALUES, python_scalar(given))
    assert asked is not None
    return asked


RICH, EDU_A, EDU_C = cells(rich=True), cells(edu="a"), cells(edu="c")


def drawn(epsilon: float, truth: Floats, n: int, groups: int = 1, estimator: str = "ibu") -> Estimates:
    """Return estimates from the expected counts of reports, or of random ones if there are several groups."""
    mechanism = registry().mechanism(PERSON.format(e=epsilon))
    own = operator_of(mechanism)
    chances = own.forward(truth)
    counts = RNG.multinomial(n, chances, groups).astype(np.float64) if groups > 1 else n * np.atleast_2d(chances)
    return estimate_counts(mechanism, counts, registry().estimator(estimator))


@pytest.fixture(scope="module")
def exact() -> Estimate:
    """The estimate from the counts that are expected, which is the truth."""
    return drawn(2.0, TRUTH, 1_000_000)[0]


@pytest.fixture(scope="module")
def con() -> DuckDBPyConnection:
    con = ldpsql.connect()
    con.execute(
        """CREATE MACRO person() AS ldp.row({
               edu: ldp.krr(2, ['a', 'b', 'c']), age: ldp.krr(2, [10, 20, 30, 40]), rich: ldp.krr(2, [false, true])})"""
    )
    people = VALUES.values.take(pa.array(RNG.choice(24, 6000, p=TRUTH)))
    reports = ldpsql.perturb(people, PERSON.format(e=2))
    con.register("drawn", pa.table({"report": reports, "half": np.arange(6000) % 2}))
    con.execute("CREATE TABLE reports AS FROM drawn")
    return con


def holds(answer: Answer, truth: float) -> None:
    assert answer.estimate == pytest.approx(truth, abs=1e-6)
    assert answer.low < truth < answer.high
    assert 0 < answer.std_error < 1


# --- what the answers are ---
def test_a_conditional_share_is_that_of_the_estimated_table(exact: Estimate) -> None:
    table = TRUTH.reshape(3, 4, 2)
    holds(exact.share({"rich": True}), table[..., 1].sum())
    holds(exact.share({"rich": True}, {"edu": "b"}), table[1, :, 1].sum() / table[1].sum())
    holds(exact.share({"rich": True, "age": [10, 40]}, {"EDU": ["a", "c"]}), table[[0, 2]][:, [0, 3], 1].sum() / 0.7)
    holds(exact.share({"age": {"low": 15, "high": 30}}, {"rich": False}), table[:, 1:3, 0].sum() / table[..., 0].sum())
    assert exact.share({"age": {"low": 15}}) == exact.share({"age": [20, 30, 40]})


def test_conditional_means_variances_and_quantiles_are_those_of_the_estimated_table(exact: Estimate) -> None:
    ages = TRUTH.reshape(3, 4, 2)[..., 1].sum(axis=0)
    ages /= ages.sum()
    x = np.array([10, 20, 30, 40])
    mean = exact.mean("age", {"rich": True})
    assert mean.estimate == pytest.approx(ages @ x, abs=1e-4)
    assert mean.low < ages @ x < mean.high
    assert exact.variance("age", {"rich": True}).estimate == pytest.approx(ages @ x**2 - (ages @ x) ** 2, abs=1e-3)
    assert exact.quantile(0.5, "age", {"rich": True}).estimate == x[(ages.cumsum() >= 0.5).argmax()]
    assert exact.mean("age").estimate == pytest.approx(20.0, abs=1e-4)


def test_a_margin_is_the_sum_of_cells_and_conditional_shares_sum_to_one(exact: Estimate) -> None:
    margin = exact.margin(["rich", "edu"])
    assert margin.column_names == ["rich", "edu", "estimate", "std_error", "low", "high"]
    assert margin["estimate"].to_pylist() == pytest.approx(TRUTH.reshape(3, 4, 2).sum(axis=1).T.ravel(), abs=1e-6)
    rows = exact.margin(["edu", "rich"], given="edu").to_pylist()
    for row in rows:
        one = exact.share({"rich": row["rich"]}, {"edu": row["edu"]})
        assert [row[name] for name in ("estimate", "std_error", "low", "high")] == pytest.approx(list(one))


def test_a_condition_on_nothing_has_the_error_of_a_share(exact: Estimate) -> None:
    plain, whole = exact.share({"rich": True}), exact.share({"rich": True}, {"edu": ["a", "b", "c"]})
    assert list(plain) == pytest.approx(list(whole))
    assert plain.std_error**2 < exact.covariance.trace()


def test_the_error_of_a_conditional_share_is_that_of_the_delta_method_if_the_condition_is_frequent(exact: Estimate) -> None:
    values = exact.values
    a, b = cells(rich=True, edu="a").inside(values), EDU_A.inside(values)
    share = (a @ TRUTH) / (b @ TRUTH)
    c = (a - share * b) / (b @ TRUTH)
    assert exact.share({"rich": True}, {"edu": "a"}).std_error == pytest.approx(sqrt(c @ exact.covariance @ c), rel=1e-3)


def test_a_difference_is_that_of_two_answers(exact: Estimate) -> None:
    one, other = (exact.share({"rich": True}, {"edu": edu}).estimate for edu in "cb")
    share = exact.difference({"rich": True}, {"edu": "c"}, {"edu": "b"})
    assert share.estimate == pytest.approx(one - other)
    assert share.low < one - other < share.high
    assert share.p_value < 1e-6
    mean = exact.difference("age", {"edu": "c"}, {"edu": "b"})
    assert mean.estimate == pytest.approx(0.0, abs=1e-3)
    assert mean.p_value > 0.99
    back = exact.difference({"rich": True}, {"edu": "b"}, {"edu": "c"})
    assert [back.low, back.high, back.p_value] == pytest.approx([-share.high, -share.low, share.p_value], abs=1e-5)


def test_the_p_value_is_below_a_level_exactly_if_the_interval_leaves_zero_out() -> None:
    parts = np.linspace(0.0, 1.0, 40)[:, None]
    estimates = drawn(2.0, parts * TRUTH + (1 - parts) * LAW, 4000)
    one, other = (Share(RICH, where) for where in (EDU_A, EDU_C))
    measured = difference(estimates, one, estimates, other)
    inside = (measured.low <= 0) & (measured.high >= 0)
    assert (inside == (measured.p_value >= 0.05)).all()
    assert 0 < inside.sum() < 40


@pytest.mark.parametrize("of", [{"rich": True}, {"rich": [True, False]}, "age"])
def test_a_number_does_not_differ_from_itself(of: object) -> None:
    """The covariance of both is singular, so what is left of the statistic could be rounding only."""
    for epsilon in (1.0, 5.0):
        same = drawn(epsilon, TRUTH, 20_000)[0].difference(of, {"edu": "a"}, {"edu": "a"})
        assert [same.estimate, same.std_error, same.low, same.high, same.p_value] == [0.0, 0.0, 0.0, 0.0, 1.0]


def test_numbers_that_are_certain_have_no_error_and_no_small_p_value() -> None:
    for epsilon in (1.0, 5.0):
        estimate = drawn(epsilon, TRUTH, 20_000)[0]
        every = estimate.difference({"rich": [True, False]}, {"edu": "a"}, {"edu": "b"})
        assert [every.estimate, every.std_error, every.low, every.high] == pytest.approx([0.0] * 4, abs=1e-6)
        assert every.p_value > 0.99
        certain = estimate.difference({"edu": "a"}, {"edu": "a"}, {"edu": "b"})
        assert [certain.low, certain.high] == pytest.approx([1.0, 1.0], abs=1e-6)
        assert certain.p_value < 1e-100


@pytest.mark.parametrize(("versus", "certain"), [([3, 5], 0.0), ([1], 1.0)])
def test_a_difference_from_a_certain_share_has_the_interval_of_the_other(versus: list[int], certain: float) -> None:
    one = ldpsql.estimate([1] * 500 + [3] * 300 + [5] * 400, "krr(2, [1, 3, 5])")
    share, apart = one.share([1], given=[1, 3]), one.difference([1], given=[1, 3], versus=versus)
    assert tuple(apart[:4]) == pytest.approx((share[0] - certain, share[1], share[2] - certain, share[3] - certain), rel=1e-6)
    back = one.difference([1], given=versus, versus=[1, 3])
    assert (back.low, back.high, back.p_value) == pytest.approx((-apart.high, -apart.low, apart.p_value), rel=1e-6)


def test_the_statistic_is_the_least_distance_by_matrices() -> None:
    roots = RNG.normal(size=(200, 4, 4)) * [[0.03], [0.01], [0.02], [0.04]]
    two = Two(np.array([0.2, 0.5, 0.1, 0.4]) + RNG.normal(scale=0.05, size=(200, 4)), roots @ roots.transpose(0, 2, 1))
    for ratio in np.linspace(-2.0, 2.0, 41):
        rows = np.array([[1.0, -ratio - 0.1, 0.0, 0.0], [0.0, 0.0, 1.0, -ratio]])
        apart, covariance = two.centre @ rows.T, rows @ two.covariance @ rows.T
        distance = (apart * np.linalg.solve(covariance, apart[:, :, None])[:, :, 0]).sum(axis=1)
        assert (statistic(two, np.full(200, 0.1)) <= distance * (1 + 1e-6) + 1e-6).all()


def test_without_errors_in_the_denominators_the_formula_returns_what_the_search_finds() -> None:
    roots = RNG.normal(size=(50, 4, 4)) * [[0.03], [0.0], [0.02], [0.0]]
    certain = Two(np.array([0.2, 0.8, 0.1, 0.4]) + np.zeros((50, 4)), roots @ roots.transpose(0, 2, 1))
    searched = Two(
        *(np.concatenate([part, one]) for part, one in zip(certain, (np.ones((1, 4)), np.eye(4)[None]), strict=True))
    )
    assert certain.error is not None
    assert searched.error is None
    for one, other in zip(differences_within(certain, 2.0, 2.0), differences_within(searched, 2.0, 2.0), strict=True):
        assert one == pytest.approx(other[:-1], abs=1e-8)
    where = np.full(51, 0.02)
    assert statistic(certain, where[:-1]) == pytest.approx(statistic(searched, where)[:-1], rel=1e-4)


def test_other_people_are_compared_as_independent(exact: Estimate) -> None:
    other = drawn(2.0, LAW, 500_000)[0]
    share = exact.compare(other, {"rich": True}, {"edu": "a"})
    errors = [one.share({"rich": True}, {"edu": "a"}) for one in (exact, other)]
    assert share.estimate == pytest.approx(errors[0].estimate - errors[1].estimate)
    assert share.std_error == pytest.approx(sqrt(sum(one.std_error**2 for one in errors)), rel=1e-2)
    assert exact.compare(exact, "age").p_value == pytest.approx(1.0)


# --- whether intervals and p-values hold ---


@pytest.mark.parametrize("apart", [0, 30])
def test_means_under_wide_noise_on_many_bins_are_compared_by_their_intervals(apart: int) -> None:
    wide = registry().mechanism("square_wave(1, 0, 500, step=1)")
    first, second = (np.exp(-(((np.arange(501) - 200 - moved) / 60) ** 2)) for moved in (apart, 0))
    laws = [operator_of(wide).forward((law / law.sum())[None]) for law in (first, second)]
    ages = [estimate_counts(wide, np.rint(1e5 * law), registry().estimator("ibu"))[0] for law in laws]
    own, other = (one.mean() for one in ages)
    less = ages[0].compare(ages[1])
    assert less.estimate == pytest.approx(own.estimate - other.estimate)
    assert (less.low, less.high) == pytest.approx((own.low - other.high, own.high - other.low))
    assert less.low <= apart <= less.high
    assert (less.p_value < 0.05) == (apart > 0) == (less.low > 0)


def test_fieller_holds_the_ratio_however_weak_the_denominator_is() -> None:
    """Of 20,000 normal pairs, .95 are expected to be held: 1e-6 leaves out what is beyond 4.9 errors."""
    for bottom in (0.3, 1.0, 5.0):
        top, below = 0.4 * bottom + RNG.normal(size=20_000), bottom + RNG.normal(size=20_000)
        one, none = np.ones(20_000), np.zeros(20_000)
        low, high = fieller(Pair(top, below, one, none, one), 1.959964, -np.inf, np.inf)
        slack = 4.9 * sqrt(0.95 * 0.05 / 20_000)
        share = ((low <= 0.4) & (high >= 0.4)).mean()
        assert share > 0.95 - slack
        assert share < 0.95 + slack or bottom < 5
    # Intervals that are wider than all shares hold shares only.
    pair = Pair(
        *(np.array(part) for part in ([1.5, 0.5, -0.5, 0.5], [2.0] * 4, [1.0, 1.0, 1.0, 1e-4], [0.0] * 4, [1.0] * 3 + [1e-4]))
    )
    low, high = fieller(pair, 1.959, 0.0, 1.0)
    assert low.tolist()[:3] == [0.0, 0.0, -0.25]  # that of a ratio below 0 holds the ratio
    assert high.tolist()[:3] == [1.0, 1.0, 1.0]
    assert 0.2 < low[3] < 0.25 < high[3] < 0.3


def test_what_a_rare_condition_does_not_determine_is_unknown() -> None:
    few = drawn(0.5, TRUTH, 60)[0]
    answer = few.share({"rich": True}, {"edu": "c", "age": 40})
    assert isinf(answer.std_error)
    assert (answer.low, answer.high) == (0.0, 1.0)
    contrast = few.difference({"rich": True}, {"edu": "c", "age": 40}, {"edu": "c", "age": 30})
    assert isinf(contrast.std_error)
    assert contrast.p_value > 0.05


def test_columns_that_are_never_reported_together_have_no_conditional_shares() -> None:
    one = PERSON.format(e=2).replace("row(", "one_of(")
    reports = ldpsql.perturb([{"edu": "abc"[i % 3], "age": 10 * (1 + i % 4), "rich": i % 2 == 0} for i in range(600)], one)
    estimate = ldpsql.estimate(reports, one)
    assert isinf(estimate.share({"rich": True}, {"edu": "a"}).std_error)
    assert estimate.share({"rich": True}).std_error < 1


@pytest.mark.parametrize("mechanism", ["joint_krr", "joint_olh"])
def test_joint_mechanisms_answer_as_rows_do(mechanism: str) -> None:
    text = f"{mechanism}(12, {{edu: ['a', 'b', 'c'], rich: [false, true]}})"
    reports = ldpsql.perturb([{"edu": "abc"[i % 3], "rich": i % 6 == 0} for i in range(1200)], text)
    share = ldpsql.estimate(reports, text).share({"rich": True}, {"edu": "a"})
    assert abs(share.estimate - 0.5) < 6 * share.std_error + 0.01
    assert share.std_error < 0.1


def test_large_tables_answer_by_inversion_without_a_covariance() -> None:
    text = "row(a=krr(4, " + str(list(range(60))) + "), b=krr(4, " + str(list(range(40))) + "))"
    reports = ldpsql.perturb([{"a": i % 60, "b": i % 40} for i in range(6000)], text)
    estimate = ldpsql.estimate(reports, text, "inv")
    mean = estimate.mean("b", {"a": {"low": 0, "high": 29}})
    assert abs(mean.estimate - np.mean([i % 40 for i in range(120) if i % 60 < 30])) < 6 * mean.std_error
    assert mean.std_error < 3


def test_one_column_answers_conditions_on_itself() -> None:
    mechanism = "krr(6, [1, 2, 3, 4])"
    estimate = ldpsql.estimate(ldpsql.perturb([1, 2, 3, 4] * 300, mechanism), mechanism)
    assert estimate.share(1, [1, 2]).estimate == pytest.approx(0.5, abs=0.1)
    assert estimate.mean(given={"low": 3}).estimate == pytest.approx(3.5, abs=0.1)


# --- independence ---
def test_columns_are_found_independent_or_not(exact: Estimate) -> None:
    assert exact.independence(["edu", "rich"]).p_value < 1e-12
    alone = exact.independence(["edu", "age"])
    assert alone.degrees == 6
    assert alone.p_value > 0.999
    assert alone.mutual_information < 1e-6
    table = TRUTH.reshape(3, 4, 2).sum(axis=1)
    bits = (table * np.log2(table / np.outer(table.sum(axis=1), table.sum(axis=0)))).sum()
    assert exact.independence(["rich", "edu"]).mutual_information == pytest.approx(bits, abs=1e-5)


def test_p_values_of_independent_columns_are_uniform() -> None:
    """Kolmogorov's distance of 100 uniform numbers exceeds .27 once in 10^6 times."""
    law = np.outer([0.3, 0.7], [0.2, 0.3, 0.5]).ravel()
    mechanism = registry().mechanism("row(a=krr(2, [0, 1]), b=krr(2, [0, 1, 2]))")
    own = operator_of(mechanism)
    counts = RNG.multinomial(2000, own.forward(law), 100).astype(np.float64)
    estimates = estimate_counts(mechanism, counts, registry().estimator("inv"))
    p = np.sort(Columns((0, 1)).measure(estimates).p_value)
    steps = np.arange(101) / 100
    assert max(np.abs(p - steps[1:]).max(), np.abs(p - steps[:-1]).max()) < sqrt(np.log(2e6) / 200)


def test_sql_tests_independence_as_python_does(con: DuckDBPyConnection) -> None:
    row = con.execute("SELECT ldp.independence(report, person(), columns := ['edu', 'rich']) FROM reports").fetchall()[0][0]
    python = ldpsql.estimate(con.sql("SELECT report FROM reports").to_arrow_table()["report"], PERSON.format(e=2))
    assert list(row.values()) == pytest.approx(list(python.independence(["edu", "rich"])))


# --- what is refused ---
@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"town": "a"}, InvalidParameter),
        ({"edu": "z"}, InvalidParameter),
        ({"edu": None}, InvalidParameter),
        ({"edu": []}, InvalidParameter),
        ("a", InvalidParameter),
        ({"age": {"low": 31, "high": 39}}, InvalidParameter),
        ({"age": {"from": 31}}, InvalidParameter),
        ({"edu": {"low": 1}}, (InvalidDomain, WrongType)),
        ({"edu": 3}, WrongType),
        ({"edu": ["a", 3]}, InvalidParameter),
        ({"edu": object()}, InvalidParameter),
    ],
)
def test_conditions_that_make_no_sense_are_refused(exact: Estimate, given: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        exact.share({"rich": True}, given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"age": 10, "edu": "z"}, "the condition on edu holds"),
        ({"edu": []}, "the condition on edu must hold"),
        ({"age": {"from": 31}}, "the condition on age is a struct"),
        ({"edu": 3}, "the condition on edu has values of type BIGINT, the domain has type VARCHAR"),
    ],
)
def test_the_refusal_of_a_condition_names_its_column(exact: Estimate, given: object, words: str) -> None:
    with pytest.raises((InvalidParameter, WrongType), match=words):
        exact.share({"rich": True}, given)


def test_the_condition_on_one_column_is_explained_without_names_of_columns() -> None:
    one = ldpsql.estimate(["a", "b"] * 50, "krr(1, ['a', 'b'])")
    with pytest.raises(InvalidParameter, match="write 'Lima'"):
        one.share({"x": "a"})


def test_numbers_of_a_table_need_an_ordered_column(exact: Estimate) -> None:
    for refused in (exact.mean, lambda: exact.quantile(0.5), lambda: exact.variance("town"), lambda: exact.margin([])):
        with pytest.raises(InvalidParameter):
            refused()
    with pytest.raises(InvalidDomain):
        exact.mean("edu")
    with pytest.raises(InvalidParameter, match="must include"):
        exact.margin(["edu"], given=["rich"])
    with pytest.raises(InvalidParameter, match="different values"):
        exact.compare(ldpsql.estimate(["a", "b"] * 50, "krr(1, ['a', 'b'])"))


# --- SQL ---
def test_sql_answers_as_python_does(con: DuckDBPyConnection) -> None:
    reports = con.sql("SELECT report FROM reports").to_arrow_table()["report"]
    python = ldpsql.estimate(reports, PERSON.format(e=2))
    sql = con.execute(
        """SELECT ldp.share(report, person(), of := {rich: true}, given := {edu: 'a'}),
                  ldp.mean(report, person(), of := 'age', given := {rich: true}),
                  ldp.variance(report, person(), of := 'age'),
                  ldp.quantile(report, person(), 0.5, of := 'age', given := {rich: true}),
                  ldp.difference(report, person(), of := {rich: true}, given := {edu: 'a'}, versus := {edu: 'c'})
           FROM reports"""
    ).fetchall()[0]
    expected = [
        python.share({"rich": True}, {"edu": "a"}),
        python.mean("age", {"rich": True}),
        python.variance("age"),
        python.quantile(0.5, "age", {"rich": True}),
        python.difference({"rich": True}, {"edu": "a"}, {"edu": "c"}),
    ]
    for one, other in zip(sql, expected, strict=True):
        assert list(one.values())[-len(other) :] == pytest.approx(list(other))
    rows = con.execute("FROM ldp.margin(reports, report, person(), columns := ['rich', 'edu'], given := ['edu'])").fetchall()
    assert [row[:-1] for row in rows] == [tuple(row.values()) for row in python.margin(["rich", "edu"], "edu").to_pylist()]
    assert {row[-1] for row in rows} == {6000}


def test_groups_and_counts_answer_alike(con: DuckDBPyConnection) -> None:
    rows = con.execute(
        """WITH c AS (SELECT half, ldp.counts(report) AS counts FROM reports GROUP BY half)
           SELECT a.s = ldp.share(counts, person(), {rich: true}), a.m = ldp.margin(counts, person(), ['edu'])
           FROM (SELECT half, ldp.share(report, person(), of := {rich: true}) AS s, ldp.margin(report, person(), ['edu']) AS m
                 FROM reports GROUP BY half) a JOIN c USING (half)"""
    ).fetchall()
    assert rows == [(True, True)] * 2


def test_exact_groups_are_compared_by_their_counts(con: DuckDBPyConnection) -> None:
    row = con.execute(
        """WITH c AS (SELECT ldp.counts(report, keep := half = 0) AS zero, ldp.counts(report, keep := half = 1) AS one,
                             ldp.counts(report, keep := half = 7) AS none FROM reports)
           SELECT ldp.compare(zero, one, person(), of := 'age'), ldp.compare(zero, none, person(), of := 'age') FROM c"""
    ).fetchall()[0]
    assert row[0]["low"] < row[0]["high"]
    assert 0 <= row[0]["p_value"] <= 1
    assert row[1] is None


def test_an_empty_group_has_no_answers_and_an_unknown_one_has_no_errors(con: DuckDBPyConnection) -> None:
    row = con.execute(
        """SELECT ldp.share(report, person(), of := {rich: true}), ldp.margin(report, person(), ['edu']),
                  ldp.difference(report, person(), of := 'age', given := {edu: 'a'}, versus := {edu: 'b'})
           FROM reports WHERE half = 7"""
    ).fetchall()[0]
    assert row == (None, None, None)
    row = con.execute(
        """SELECT ldp.share(report, person(), of := {rich: true}, given := {edu: 'c', age: 40})
           FROM (SELECT {edu: 'a', age: 10, rich: false} AS report)"""
    ).fetchall()[0]
    assert row[0]["std_error"] is row[0]["low"] is row[0]["high"] is None
    assert row[0]["estimate"] is None or not isnan(row[0]["estimate"])


def test_quantiles_and_shares_that_the_reports_do_not_determine_have_no_errors_and_no_warning_of_numpy() -> None:
    made = "row(plan=krr(1, ['a', 'b']), spend=square_wave(1, 0, 300))"  # more cells than errors are computed for
    mechanism, law = registry().mechanism(made), np.zeros((2, 1024))
    law[:, [30, 700]] = [[0.5, 0.0], [0.0, 0.5]]
    expected = 1e6 * operator_of(mechanism).forward(law.reshape(1, -1))
    estimate = estimate_counts(mechanism, expected, registry().estimator("ibu(stop=2)"))[0]
    quantile = estimate.quantile(0.9, "spend", given={"plan": "a"})
    share = estimate.share({"spend": {"low": 0, "high": 90}}, given={"plan": "a"})
    assert isinf(quantile.std_error)
    assert (quantile.low, quantile.high) == pytest.approx((0.0, 300.0))
    assert isinf(share.std_error)
    assert (share.low, share.high) == (0.0, 1.0)


@pytest.mark.parametrize("spend", ["square_wave(1, 0, 300)", "piecewise(1, 0, 300)"])
def test_the_errors_of_conditional_means_on_many_bins_are_those_that_occur(spend: str) -> None:
    """The mean of 200 squared deviations in standard errors is 1, with a standard deviation of .1: 1e-6 is beyond 4.9."""
    made = registry().mechanism(f"row(plan=krr(2, ['a', 'b']), spend={spend})")
    place, operator = np.arange(1024), operator_of(made)
    laws = np.stack([np.exp(-(((place - middle) / 100) ** 2)) for middle in (300, 700)])
    truth = 300 * (laws[0] @ (place + 0.5)) / 1024 / laws[0].sum()
    drawn = RNG.multinomial(20_000, operator.forward(laws.reshape(1, -1) / laws.sum())[0], 200).astype(np.float64)
    estimates = estimate_counts(made, drawn, registry().estimator("ibu(stop=2)"))
    mean = Mean(1, TableCells(((0, (0,)),))).measure(estimates)
    squares = (((mean.low + mean.high) / 2 - truth) / mean.std_error) ** 2
    assert squares.mean() == pytest.approx(1, abs=0.49)


@pytest.mark.parametrize(
    "call",
    [
        "ldp.mean(report, person())",
        "ldp.range_share(report, person(), 1, 2)",
        "ldp.share(report, person(), of := 'age')",
        "ldp.share(report, person(), of := NULL)",
        "ldp.difference(report, person(), of := 'age', given := NULL, versus := {edu: 'a'})",
        "ldp.margin(report, person(), ['edu', 'edu'])",
        "ldp.margin(report, person(), ['town'])",
        "ldp.independence(report, person())",
        "ldp.margin(report, person(), ['edu'], given := ['edu'])",
        "ldp.margin(report, person(), ['edu'], given := {rich: true})",
    ],
)
def test_sql_refuses_what_makes_no_sense_with_a_code(con: DuckDBPyConnection, call: str) -> None:
    with pytest.raises(duckdb.Error, match="LDP10"):
        con.execute(f"SELECT {call} FROM reports")


@pytest.mark.parametrize("of", ["'edu'", "'aeg'", "['age']", "1", "{age: 10}"])
@pytest.mark.parametrize("call", ["mean(report, {m}, {o})", "variance(report, {m}, {o})", "median(report, {m}, {o})",
                                  "quantile(report, {m}, 0.5, {o})", "quantile(report, {m}, [0.5], {o})"])  # fmt: skip
def test_a_column_that_is_misspelt_or_not_ordered_is_refused_with_a_code_and_a_hint(
    con: DuckDBPyConnection, call: str, of: str
) -> None:
    with pytest.raises(duckdb.Error, match=r"\[LDP10[0-9]\].*Hint: .*"):
        con.execute(f"SELECT ldp.{call.format(m='person()', o=f'of := {of}')} FROM reports")


@pytest.mark.parametrize(
    "call",
    [
        "mean(report, {m}, of := 'age')",
        "median(report, {m}, of := 'age')",
        "variance(report, {m}, of := 'age')",
        "margin(report, {m}, ['age'])",
        "independence(report, {m})",
    ],
)
def test_a_column_of_a_mechanism_of_one_column_has_no_name(con: DuckDBPyConnection, call: str) -> None:
    made = "ldp.krr(2, [10, 20])"
    with pytest.raises(duckdb.Error, match=r"\[LDP103\] this mechanism has one column.* Hint: leave the name out"):
        con.execute(f"SELECT ldp.{call.format(m=made)} FROM (SELECT 10 AS report)")


def test_a_misspelt_column_gets_a_proposal(exact: Estimate) -> None:
    for ask in (lambda: exact.mean("aeg"), lambda: exact.share({"Eddu": "a"}), lambda: exact.margin(["ric"])):
        with pytest.raises(InvalidParameter, match="no column of this name") as refused:
            ask()
        assert refused.value.hint.startswith("did you mean ")
