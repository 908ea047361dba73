"""Groups that learn from each other: never worse than alone or all together, and better in between."""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pytest
from duckdb import DuckDBPyConnection

import ldpsql
from ldpsql import certify
from ldpsql.estimators import Estimator, Floats, Likelihood, sharing
from ldpsql.estimators.sharing.cells import concentrations
from ldpsql.functions import registry
from ldpsql.inference.operators import KeepOrSpreadOperator, operator
from ldpsql.testing import operator_of
from tests.seeds import generator

RNG = generator(__name__)
VALUES = 12


def shared(**options: Any) -> Estimator:
    return registry().estimator({"estimator": "shared", **options})


def people(spread: float, groups: int, n: int) -> Floats:
    """Return how many people of each group hold each value; the shares of groups have this concentration around common ones."""
    common = 0.6 ** np.arange(VALUES)
    shares = RNG.dirichlet(spread * common / common.sum(), groups)
    return np.array([RNG.multinomial(n, row) for row in shares], dtype=np.float64)


def reports(held: Floats, epsilon: float) -> Likelihood:
    """Return the likelihood of the reports of these people through k-RR."""
    certified = certify(registry().mechanism(f"krr(epsilon={epsilon}, domain={list('abcdefghijkl')})"))
    op = operator(certified.response)
    assert isinstance(op, KeepOrSpreadOperator)
    kept = RNG.binomial(held.astype(np.int64), op.keep - op.spread)
    rest = [RNG.multinomial(n, np.full(op.inputs, 1 / op.inputs)) for n in (held - kept).sum(axis=1).astype(np.int64)]
    counts = kept + np.array(rest)
    return Likelihood(op, counts.astype(np.float64), certified.layout, certified.named)


def error(theta: Floats, held: Floats) -> float:
    """Return the mean total variation to the groups' own shares."""
    return float(np.abs(theta - held / held.sum(axis=1, keepdims=True)).sum(axis=1).mean() / 2)


@pytest.mark.parametrize("spread", [0.5, 5.0, 100.0, 1e6])
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_no_worse_than_alone_or_pooled(spread: float, epsilon: float) -> None:
    # If groups are alike, what they borrow varies: for 100 groups the ratio was above 1.06 in 3 of 187 draws, for 400 in none.
    held = people(spread, 400 if spread > 1000 else 100, 400)
    likelihood = reports(held, epsilon)
    pooled = likelihood.with_counts(likelihood.counts.sum(axis=0, keepdims=True))
    together = np.tile(registry().estimator("best").fit(pooled).theta, (len(held), 1))
    alone = [registry().estimator(name).fit(likelihood).theta for name in ("inv_p", "inv_n", "ibu", "empirical_bayes")]
    # The error of one group varies by a tenth, and those of 100 groups are compared on the same reports.
    assert error(shared().fit(likelihood).theta, held) <= 1.1 * min(error(theta, held) for theta in (together, *alone))


def test_groups_that_are_alike_lose_half_of_their_error() -> None:
    held = people(1e6, 100, 500)
    likelihood = reports(held, 1.0)
    assert error(shared().fit(likelihood).theta, held) <= 0.5 * error(registry().estimator("inv_n").fit(likelihood).theta, held)


def test_shared_intervals_cover_on_average_over_groups() -> None:
    covered = []
    for spread in (10.0, 30.0, 100.0):
        held = people(spread, 100, 400)
        likelihood = reports(held, 2.0)
        errors = shared(errors="shared").fit(likelihood).errors
        assert errors is not None
        truth = held / held.sum(axis=1, keepdims=True)
        covered.append(((errors[1] <= truth + 1e-9) & (truth <= errors[2] + 1e-9)).mean())
    # Between runs the mean varies by 0.006: the error of the common mean moves the intervals of all groups together.
    assert 0.91 <= np.mean(covered) <= 0.985


def learned_from(groups: int) -> tuple[sharing.Prior, Floats]:
    """Return what groups have in common if reports are nearly the values, and the shares of all groups."""
    held = people(10.0, groups, 1000)
    prior = sharing.learnt(held.sum(axis=0) / held.sum(), np.zeros(VALUES), [reports(held, 6.0)], lambda one: one.shares)
    return prior, held / held.sum(axis=1, keepdims=True)


def test_the_error_of_the_common_shares_includes_that_other_groups_would_have_other_shares() -> None:
    prior, shares = learned_from(12)
    ratio = np.linalg.norm(prior.error) / np.sqrt(shares.var(axis=0, ddof=1).sum() / 12)
    assert 0.5 < ratio < 1.7  # the logarithm is -.08, and varies by .11


def test_few_groups_say_little_about_how_alike_they_are_and_many_say_all() -> None:
    def widened(groups: int) -> float:
        prior, variances = learned_from(groups)[0], 1.0 / (1.0 + concentrations(np.array([1000.0]))[0])
        return float(np.log(variances @ np.array(prior.interval_weights) / (variances @ np.array(prior.weights))))

    assert np.mean([widened(4) for _ in range(12)]) > 0.3  # .78, and one varies by .26
    assert abs(widened(400)) < 1e-3


def test_the_order_of_groups_changes_no_bit_of_the_prior() -> None:
    likelihood = reports(people(30.0, 60, 200), 1.0)
    order = RNG.permutation(60)
    turned = likelihood.with_counts(likelihood.counts[order])
    first, second = shared().fit(likelihood), shared().fit(turned)
    assert (first.theta[order] == second.theta).all()


def test_borrowing_grows_with_noise_and_ends_where_groups_differ() -> None:
    def borrowed(spread: float, epsilon: float) -> float:
        return float(np.mean(shared().fit(reports(people(spread, 400, 400), epsilon)).borrowed))

    assert borrowed(1e6, 1.0) > 0.9  # .98, and above .96 in 870 draws
    assert borrowed(1.0, 4.0) < 0.1


def test_a_group_that_differs_from_all_others_keeps_its_shares() -> None:
    held = np.vstack([people(1e6, 80, 2000), np.eye(VALUES)[VALUES - 1] * 2000])
    likelihood = reports(held, 2.0)
    fit = shared().fit(likelihood)
    assert fit.theta[-1, -1] > 0.8
    assert fit.borrowed[-1] < 0.5 < np.mean(fit.borrowed[:-1])


def test_groups_of_one_report_are_estimated() -> None:
    for counts in (np.eye(4), np.eye(4)[:1], np.array([[1.0, 0, 0, 0], [90.0, 40, 30, 20]])):
        theta = shared().fit(Likelihood(operator_of(registry().mechanism("krr(0.693147, [0, 1, 2, 3])")), counts)).theta
        assert np.allclose(theta.sum(axis=1), 1)
        assert (theta >= 0).all()


MECHANISMS = {
    "krr": "ldp.krr(1.0, range(8))",
    "olh": "ldp.olh(1.0, range(8))",
    "olh with private seeds": "ldp.olh(1.0, range(8), seeds := 'private')",
    "oue": "ldp.oue(1.0, range(8))",
    "subset selection": "ldp.subset_selection(1.0, range(8))",
    "geometric": "ldp.geometric(1.0, 0, 7)",
    "square wave": "ldp.square_wave(1.0, 0, 8, bins := 16)",
    "grid": "ldp.planar_geometric(1.0, 4, 4, 1.0)",
}


@pytest.mark.parametrize("name", MECHANISMS)
def test_groups_share_through_every_kind_of_report(con: DuckDBPyConnection, name: str) -> None:
    drew = MECHANISMS[name]
    people = "SELECT i % 6 AS region, i % 2 = 0 AS even, i % 3 + 1 AS v FROM range(1200) t(i)"
    con.execute(f"CREATE TABLE seen AS SELECT region, even, ldp.perturb(v, {drew}) AS report FROM ({people})")
    keys = "{'region': region, 'even': even}"
    rows = con.execute(
        f"""SELECT region, sum(estimate), bool_and(estimate >= 0), any_value(n)
            FROM ldp.estimate(seen, report, {drew}, by := {keys}, estimator := 'shared')
            GROUP BY region, even ORDER BY ALL"""
    ).fetchall()
    assert len(rows) == 6
    assert all(abs(total - 1) < 1e-9 and positive and n == 200 for _, total, positive, n in rows)


@pytest.fixture
def counted(con: DuckDBPyConnection) -> DuckDBPyConnection:
    people = "SELECT i % 40 AS day, if(i % 3 = 0, 'Lima', 'Oslo') AS city FROM range(8000) t(i)"
    con.execute(f"CREATE TABLE seen AS SELECT day, ldp.perturb(city, city()) AS city FROM ({people})")
    con.execute("CREATE TABLE days AS SELECT day, ldp.counts(city) AS counts FROM seen GROUP BY day")
    con.execute("CREATE TABLE common AS SELECT ldp.prior(counts, city()) AS prior FROM days")
    return con


PLAIN = 'shared(neighbours="ignore")'
BY = """SELECT day, value, estimate, std_error, low, high
        FROM ldp.estimate(seen, city, city(), by := day, estimator := 'shared(neighbours="ignore")') ORDER BY ALL"""
PRIOR = "prior := (SELECT prior FROM common)"


@pytest.mark.parametrize("call", [f"ldp.shared(counts, city(), {PRIOR})", f"ldp.shared(city, city(), {PRIOR})"])
def test_two_steps_are_the_table_function(counted: DuckDBPyConnection, call: str) -> None:
    source = "days" if "counts" in call else "seen GROUP BY day"
    assert (
        counted.execute(f"SELECT day, unnest({call}, recursive := true) FROM {source} ORDER BY ALL").fetchall()
        == counted.execute(BY).fetchall()
    )


def test_a_table_of_many_groups_is_the_table_function(counted: DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ldpsql.bulk.many_groups.CELLS_AT_ONCE", 50)
    options: dict[str, Any] = {"report": "city", "keys": ["day"], "mechanism": "krr(1, ['Lima', 'Oslo', 'Rome', 'Kyiv'])"}
    assert ldpsql.estimate_groups(counted, "seen", "estimates", estimator=PLAIN, **options) == 40
    found = counted.execute("SELECT * EXCLUDE (day, value, n) FROM estimates ORDER BY day, value").fetchnumpy()
    expected = counted.execute(f"SELECT * EXCLUDE (day, value) FROM ({BY}) ORDER BY day, value").fetchnumpy()
    assert all(np.allclose(found[name], expected[name], rtol=0, atol=1e-12) for name in expected)
    monkeypatch.setattr("ldpsql.bulk.many_groups.GROUPS_SEEN", 10)
    assert ldpsql.estimate_groups(counted, "seen", "estimates", estimator=PLAIN, replace=True, **options) == 40


def test_the_prior_has_seen_all_reports(counted: DuckDBPyConnection) -> None:
    ((mean, alone),) = counted.execute(
        """SELECT prior.mean, list_transform(ldp.best(city, city()), lambda x: x.estimate) FROM common, seen GROUP BY prior"""
    ).fetchall()
    assert np.allclose(mean, alone, atol=1e-3)


def test_diagnose_says_how_much_was_borrowed(counted: DuckDBPyConnection) -> None:
    call = f"ldp.diagnose(city, city(), estimator := 'shared', {PRIOR})"
    rows = counted.execute(f"SELECT d.borrowed, d.chosen, d.reason FROM (SELECT {call} AS d FROM seen GROUP BY day)").fetchall()
    assert len(rows) == 40
    assert all(0 < share <= 1 and chosen == "shared" and "other groups" in reason for share, chosen, reason in rows)
    assert counted.execute("SELECT ldp.diagnose(city, city()).borrowed FROM seen").fetchall() == [(0.0,)]


@pytest.mark.parametrize(
    "call",
    [
        "SELECT ldp.shared(city, city()) FROM seen GROUP BY day",
        "SELECT ldp.shared(counts, city()) FROM days",
        "FROM ldp.mean(seen, day, ldp.geometric(1, 0, 39), by := city, estimator := 'shared')",
        "SELECT ldp.diagnose(city, city(), estimator := 'shared') FROM seen",
        "SELECT ldp.top(city, city(), 2, estimator := 'shared') FROM seen",
    ],
)
def test_a_query_that_sees_single_groups_is_refused(counted: DuckDBPyConnection, call: str) -> None:
    with pytest.raises(duckdb.Error, match=r"LDP406.*by := "):
        counted.execute(call)


@pytest.mark.parametrize(
    "prior",
    ["3", "'mean'", "{'mean': [1.0]}", "struct_update((SELECT prior FROM common), mean := [0.5, 0.5])",
     "struct_update((SELECT prior FROM common), weights := [1.0])", "struct_update((SELECT prior FROM common), mean := NULL)",
     "struct_update((SELECT prior FROM common), mean := ['a', 'b', 'c', 'd'])",
     "struct_update((SELECT prior FROM common), mean := [[1.0], [2.0]])",
     "struct_update((SELECT prior FROM common), mean := [0.5, 0.5], error := [0.1, 0.1])"],
)  # fmt: skip
def test_what_is_no_prior_of_these_values_is_refused(counted: DuckDBPyConnection, prior: str) -> None:
    with pytest.raises(duckdb.Error, match=r"LDP103.*ldp.prior"):
        counted.execute(f"SELECT ldp.shared(city, city(), prior := {prior}) FROM seen GROUP BY day")


def test_an_estimator_that_learns_nothing_has_no_prior(counted: DuckDBPyConnection) -> None:
    with pytest.raises(duckdb.Error, match=r"LDP103.*nothing to learn"):
        counted.execute("SELECT ldp.prior(counts, city(), estimator := 'ibu') FROM days")


def test_without_groups_there_is_no_prior_and_no_estimate(counted: DuckDBPyConnection) -> None:
    assert counted.execute("SELECT ldp.prior(counts, city()) FROM days WHERE false").fetchall() == [(None,)]
    assert counted.execute("SELECT ldp.prior(NULL, city())").fetchall() == [(None,)]
    assert counted.execute(
        "SELECT ldp.prior(counts, city()) FROM (SELECT MAP {}::MAP(VARCHAR, UBIGINT) AS counts)"
    ).fetchall() == [(None,)]
    counted.execute("CREATE TABLE none AS SELECT day, NULL::VARCHAR AS city FROM seen")
    assert counted.execute("FROM ldp.estimate(none, city, city(), by := day, estimator := 'shared')").fetchall() == []


def test_the_estimator_with_its_prior_can_be_written_down(counted: DuckDBPyConnection) -> None:
    ((prior,),) = counted.execute("SELECT prior FROM common").fetchall()
    estimator = shared(prior=prior)
    assert registry().estimator(str(estimator)) == estimator
    assert hash(registry().estimator(str(estimator))) == hash(estimator)


def test_the_estimate_of_a_group_does_not_depend_on_the_groups_next_to_it() -> None:
    """Not even in the last bit: Spark, DuckDB and files see groups in parts of any size."""
    counts = (
        np.random.default_rng(7)
        .multinomial([[9], [67], [4000]], [0.4, 0.3, 0.2, 0.1], (3, 50))
        .reshape(-1, 4)
        .astype(np.float64)
    )
    whole = Likelihood(operator_of(registry().mechanism("krr(1.098612, [0, 1, 2, 3])")), counts)
    method = registry().estimator("shared").learnt(whole.with_counts(counts.sum(axis=0, keepdims=True)), [whole])
    parts = [method.fit(whole.with_counts(counts[i:j])).theta for i, j in ((0, 1), (1, 40), (40, 150))]
    assert (np.concatenate(parts) == method.fit(whole).theta).all()
