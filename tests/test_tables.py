"""Estimators of the joint table of several columns: `independent`, `table_bayes`, `tree`, and the choice among them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

import ldpsql
from ldpsql import Likelihood
from ldpsql.errors import IllConditioned, NotApplicable
from ldpsql.estimators import Fit, Floats, TableEstimator, shares_of, split
from ldpsql.functions import registry
from ldpsql.inference.counting import margin
from ldpsql.testing import estimate_counts, operator_of

SIZES = (2, 3, 4)
THREE = "row(a=krr(2, [0, 1]), b=krr(2, [0, 1, 2]), c=krr(2, [0, 1, 2, 3]))"
TABLES = ("independent", "table_bayes", "tree")


def likelihood_of(mechanism: str, counts: Floats) -> Likelihood:
    return estimate_counts(registry().mechanism(mechanism), counts, registry().estimator("uniform")).likelihood


def expected(theta: Floats, n: float = 1e6, epsilon: float = 2.0) -> Likelihood:
    text = THREE.replace("krr(2,", f"krr({epsilon},")
    return likelihood_of(text, np.rint(n * operator_of(registry().mechanism(text)).forward(np.atleast_2d(theta))))


def fitted(name: str, likelihood: Likelihood) -> Fit:
    return registry().estimator(name).fit(likelihood)


def chain() -> Floats:
    """Return shares under which c depends on a through b only."""
    a, b = np.array([0.3, 0.7]), np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])
    c = np.array([[0.8, 0.1, 0.05, 0.05], [0.1, 0.7, 0.1, 0.1], [0.05, 0.1, 0.15, 0.7]])
    return np.einsum("a,ab,bc->abc", a, b, c).ravel()


def summed(cells: Floats, columns: Sequence[int]) -> Floats:
    """Return the sums of the cells over the other columns."""
    return np.asarray(cells.reshape(SIZES).sum(axis=tuple({0, 1, 2} - {*columns})).ravel())


WHOLE = "joint_krr(2, {'a': [0, 1], 'b': [0, 1, 2], 'c': [0, 1, 2, 3]})"


@pytest.mark.parametrize("columns", [(0,), (2,), (0, 1), (0, 2), (1, 2)])
@pytest.mark.parametrize("mechanism", [THREE, WHOLE])
def test_the_reports_of_a_margin_come_from_the_margin_of_the_table(mechanism: str, columns: tuple[int, ...]) -> None:
    reports = operator_of(registry().mechanism(mechanism)).forward(chain()[None])
    part = margin(likelihood_of(mechanism, reports), columns)
    assert part is not None
    assert np.allclose(part.operator.forward(summed(chain(), columns)[None]), part.counts, atol=1e-12)
    assert np.allclose(part.counts, summed(reports[0], columns), atol=1e-12)


def test_margins_of_observed_reports_and_of_rows_with_missing_columns_sum_to_the_same_likelihood() -> None:
    observed = "row(a=krr(2, [0, 1]), b=oue(2, [0, 1, 2]))"
    reports = ldpsql.perturb([{"a": i % 2, "b": i % 3} for i in range(300)], observed)
    missing = pa.array([*reports.to_pylist()[:200], *({**row, "b": None} for row in reports.to_pylist()[200:])], reports.type)
    for rows, count in ((reports, 300), (missing, 200)):
        part = margin(ldpsql.estimate(rows, observed, "uniform").likelihood, [1])
        assert part is not None
        assert part.operator.inputs == 3
        assert part.n.tolist() == [count]  # a row without b says nothing about b


def test_a_column_that_was_never_reported_has_no_margin() -> None:
    rows = pa.array([{"a": 1, "b": None}] * 9, pa.struct([("a", pa.int64()), ("b", pa.int64())]))
    likelihood = ldpsql.estimate(rows, "row(a=krr(2, [0, 1]), b=krr(2, [0, 1, 2]))", "uniform").likelihood
    for name in ("independent", "tree", "best"):
        theta = fitted(name, likelihood).theta.reshape(2, 3)
        assert np.allclose(theta, theta[:, :1], atol=1e-6), "all values of a column that nobody reported are alike"


def test_independent_without_steps_is_the_product_of_the_margins() -> None:
    theta = fitted("independent(stop=0)", expected(chain())).theta.reshape(SIZES)
    product = np.einsum("a,b,c->abc", *(summed(chain(), [j]) for j in range(3)))
    assert np.abs(theta - product).max() < 1e-3


def test_a_tree_of_a_chain_is_the_chain() -> None:
    assert np.abs(fitted("tree(stop=0)", expected(chain(), n=1e7)).theta - chain()).max() < 2e-3


@pytest.mark.slow
@pytest.mark.parametrize("name", [*TABLES, "best"])
def test_many_reports_give_the_table_back(name: str) -> None:
    shares = np.arange(1.0, 25.0) ** 2
    shares[[3, 12]] = 0.0
    assert np.abs(fitted(name, expected(shares / shares.sum(), n=1e6)).theta - shares / shares.sum()).max() < 5e-3


@pytest.mark.parametrize("name", ["independent", "tree"])
def test_steps_to_the_end_lead_to_the_maximum_of_the_likelihood(name: str) -> None:
    likelihood = expected(chain(), n=1e4)
    certified = fitted(f"{name}(stop='certified')", likelihood)
    assert certified.status[0].value == "certified"
    assert np.allclose(certified.theta, fitted("ibu", likelihood).theta, atol=1e-6)


@pytest.mark.parametrize("name", TABLES)
def test_a_single_column_is_estimated_by_best(name: str) -> None:
    one = likelihood_of("krr(2, [0, 1, 2, 3])", np.array([[50.0, 30.0, 15.0, 5.0]]))
    assert np.array_equal(fitted(name, one).theta, fitted("best", one).theta)


def test_the_model_of_a_fold_does_not_see_the_reports_held_out() -> None:
    parts = split(expected(chain(), n=1e4), 3)
    estimator = registry().estimator("independent")
    assert isinstance(estimator, TableEstimator)
    assert np.array_equal(estimator.started_folds(parts, np.zeros(1)), estimator.started(parts.learnt))


@pytest.mark.parametrize("name", TABLES)
def test_groups_of_a_table_do_not_influence_each_other(name: str) -> None:
    both = expected(np.stack([chain(), np.full(24, 1 / 24)]), n=1e4)
    together = fitted(name, both).theta
    assert np.allclose(together, np.concatenate([fitted(name, both.group(i)).theta for i in range(2)]), atol=1e-9)


def test_best_of_a_table_chooses_among_models() -> None:
    likelihood = expected(chain(), n=3e3, epsilon=1.0)
    fit = fitted("best", likelihood)
    tried = " ".join([*fit.chosen, *fit.reasons])
    assert all(name in tried for name in ("independent", "table_bayes", "tree", "ibu"))


@pytest.mark.parametrize("mechanism", ["joint_krr", "joint_olh"])
@pytest.mark.parametrize("name", [*TABLES, "best"])
def test_reports_of_whole_rows_have_models_too(mechanism: str, name: str) -> None:
    rows = [{"a": i % 2, "b": i % 3, "c": i % 2} for i in range(3000)]
    reports = ldpsql.perturb(rows, f"{mechanism}(9, {{'a': [0, 1], 'b': [0, 1, 2], 'c': [0, 1]}})")
    estimate = ldpsql.estimate(reports, f"{mechanism}(9, {{'a': [0, 1], 'b': [0, 1, 2], 'c': [0, 1]}})", name).estimate
    table = estimate.reshape(2, 3, 2)
    assert abs(table.sum() - 1.0) < 1e-9
    # P(a = c) is 1. A report is the row itself, or supports it, but once in a thousand; olh has symbols for as many others.
    assert table[0, :, 0].sum() + table[1, :, 1].sum() > 0.8


def test_the_cells_of_an_inverted_table_without_errors_are_refused() -> None:
    likelihood = likelihood_of("row(a=krr('0.000000004', [0, 1]), b=krr(2, [0, 1]))", np.full((1, 4), 25.0))
    with pytest.raises(IllConditioned):
        fitted("table_bayes", likelihood)
    assert np.isfinite(fitted("best", likelihood).theta).all()  # it goes on without


def test_a_table_with_too_many_cells_for_bayes_is_refused_before_anything_is_computed() -> None:
    wide = f"row(a=krr(2, {list(range(500))}), b=krr(2, {list(range(500))}))"
    with pytest.raises(NotApplicable, match="at most 200,000 cells"):
        ldpsql.estimate([{"a": 1, "b": 2}], wide, "table_bayes")


def test_a_few_reports_have_estimates() -> None:
    one = likelihood_of("row(a=krr(2, [0, 1]), b=krr(2, [0, 1, 2]))", np.eye(6)[:1])
    for name in (*TABLES, "best"):
        theta = fitted(name, one).theta
        assert (theta >= 0).all()
        assert abs(theta.sum() - 1.0) < 1e-9


def test_shares_of_columns_are_those_of_their_own_reports() -> None:
    likelihood = expected(chain())
    single = registry().estimator("ibu")
    assert np.allclose(shares_of(likelihood, [1], single)[0], summed(chain(), [1]), atol=1e-4)


def test_tables_are_estimated_in_sql_and_there_is_no_time_for_them_after_a_deadline() -> None:
    con = ldpsql.connect()
    con.execute("CREATE MACRO person() AS ldp.row({a: ldp.krr(3, [0, 1]), b: ldp.krr(3, [0, 1])})")
    con.execute("CREATE TABLE r AS SELECT ldp.perturb({a: i % 2, b: i % 2}, person()) AS x FROM range(400) t(i)")
    for name in TABLES:
        rows = con.execute(f"SELECT unnest(ldp.{name}(x, person())) FROM r").fetchall()
        assert len(rows) == 4
    late = "ldp.margin(r, x, person(), estimator := 'tree(deadline=0.000001)')"
    assert con.execute(f"SELECT count(*), sum(estimate) FROM {late}").fetchone() == (4, 1.0)
    ((chosen,),) = con.execute("SELECT (ldp.diagnose(x, person(), estimator := 'best')).chosen FROM r").fetchall()
    assert {call.partition("(")[0] for call in chosen.split(" + ")} <= registry().estimators.keys() - {"best"}
