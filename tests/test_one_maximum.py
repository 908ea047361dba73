"""The maximum of a likelihood is solved once, whatever is asked of an estimate, and however often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from time import monotonic

import numpy as np
import pyarrow as pa
import pytest
from duckdb import DuckDBPyConnection

import ldpsql
from ldpsql import Fit, Likelihood, Status
from ldpsql.estimators import Limits, maximum_likelihood
from ldpsql.functions import registry
from ldpsql.inference.limits import until
from ldpsql.inference.solver import mle
from ldpsql.inference.solver.mle import _SOLVED
from ldpsql.inference.solver.objective import Point
from ldpsql.mechanisms import certify_values
from ldpsql.questions import Mean, Quantile
from ldpsql.testing import DenseOperator

ESTIMATORS = ["ibu", "ems", "pool", "inv", "best"]
MECHANISMS = ["krr(1, [1, 2, 3, 4, 5, 6])", "square_wave(1, 0, 1, bins=12)", "subset_selection(2, [1, 2, 3, 4, 5, 6, 7, 8])"]


@pytest.fixture
def solved(monkeypatch: pytest.MonkeyPatch) -> Counter[bytes]:
    """Return how often each likelihood was solved, counted at the one function that does."""
    times: Counter[bytes] = Counter()
    original: Callable[..., Fit] = mle.solve

    def counted(likelihood: Likelihood, *args: object) -> Fit:
        times.update(likelihood.operator.key + row.tobytes() for row in likelihood.counts)
        return original(likelihood, *args)

    monkeypatch.setattr(mle, "solve", counted)
    _SOLVED.clear()
    return times


def column(mechanism: str) -> pa.Array:
    values = certify_values(registry().mechanism(mechanism)).values.values
    return values.take(pa.array(np.minimum(np.arange(400) % len(values), np.arange(400) % 3)))


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_python_solves_each_likelihood_once(solved: Counter[bytes], mechanism: str, estimator: str) -> None:
    reports = ldpsql.perturb(column(mechanism), mechanism)
    estimate = ldpsql.estimate(reports, mechanism, estimator)
    for _ in range(2):
        assert estimate.to_arrow().num_rows == len(estimate.values)
        assert estimate.diagnosis.reports == 400
        assert estimate.covariance.shape == (len(estimate.values),) * 2
        assert np.isfinite(Mean().measure(estimate.of).std_error).all()
        assert np.isfinite(Quantile(q=0.5).measure(estimate.of).std_error).all()
    own = estimate.likelihood.operator.key + estimate.likelihood.counts[0].tobytes()
    assert solved[own] == 1
    assert set(solved.values()) == {1}


@pytest.mark.parametrize("mechanism", MECHANISMS[1:])
def test_a_query_solves_each_likelihood_once(con: DuckDBPyConnection, solved: Counter[bytes], mechanism: str) -> None:
    values = column(mechanism)
    con.register("people", pa.table({"g": np.arange(len(values)) % 3, "x": values}))
    con.execute(f"CREATE MACRO m() AS ldp.{mechanism.replace('=', ' := ')}")
    con.execute("CREATE TABLE r AS SELECT g, ldp.perturb(x, m()) AS r FROM people")
    for name in ESTIMATORS:
        _SOLVED.clear()
        solved.clear()
        named, groups = f"estimator := '{name}'", 1 if name == "best" else 3  # best is slow
        rows = con.execute(
            f"SELECT ldp.{name}(r, m()), ldp.diagnose(r, m(), {named}), ldp.mean(r, m(), {named}), "
            f"ldp.quantile(r, m(), 0.5, {named}) FROM r WHERE g < {groups} GROUP BY g"
        ).fetchall()
        assert len(rows) == groups
        assert set(solved.values()) == {1} or (name == "inv" and not solved), name  # an inversion may need no maximum


def test_a_maximum_found_for_one_estimator_serves_the_others(solved: Counter[bytes]) -> None:
    mechanism = MECHANISMS[1]
    reports = ldpsql.perturb(column(mechanism), mechanism)
    for estimator in ("ibu", "ems", "inv"):
        assert ldpsql.estimate(reports, mechanism, estimator).diagnosis.reports == 400
    assert set(solved.values()) == {1}


def problem() -> Likelihood:
    draw = np.random.default_rng(3)
    table = draw.dirichlet(np.ones(50), size=40)
    return Likelihood(DenseOperator(table), draw.multinomial(5000, np.ones(50) / 50, size=3).astype(np.float64))


def test_what_is_remembered_is_what_was_solved(solved: Counter[bytes]) -> None:
    likelihood = problem()
    first, again = maximum_likelihood(likelihood), maximum_likelihood(likelihood)
    one = maximum_likelihood(likelihood.group(1))
    assert set(solved.values()) == {1}
    assert np.array_equal(first.theta, again.theta)
    assert np.array_equal(one.theta, first.theta[1:2])
    assert (again.status, again.iterations.tolist()) == (first.status, first.iterations.tolist())


def test_fewer_steps_a_start_or_a_tolerance_of_its_own_are_solved_as_asked(solved: Counter[bytes]) -> None:
    one = problem().group(0)
    steps = int(maximum_likelihood(one).iterations[0])
    assert steps > 1
    assert maximum_likelihood(one, limits=Limits(1)).iterations[0] <= 1
    assert maximum_likelihood(one, limits=Limits(steps + 1)).status == (Status.CERTIFIED,)
    assert maximum_likelihood(one, 1e-2).iterations[0] <= steps
    assert maximum_likelihood(one, start=np.full((1, 40), 1 / 40)).status == (Status.CERTIFIED,)
    assert list(solved.values()) == [4]


def test_what_a_deadline_cut_short_is_not_remembered(solved: Counter[bytes]) -> None:
    one = problem().group(2)
    with until(monotonic() - 1):
        assert maximum_likelihood(one).status == (Status.OUT_OF_TIME,)
    assert maximum_likelihood(one).status == (Status.CERTIFIED,)
    assert list(solved.values()) == [2]


def test_what_was_certified_as_the_deadline_passed_is_not_remembered(
    solved: Counter[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the maximum is not unique, its centre is looked for last: the next query has the time for that."""
    one, run = problem().group(0), mle._run

    def slow(step: mle.Step, best: Point, target: float, limits: Limits) -> Point:
        reached = run(step, best, target, limits)
        limits._end = monotonic() - 1
        return reached

    with monkeypatch.context() as patched:
        patched.setattr(mle, "_run", slow)
        assert maximum_likelihood(one).status == (Status.CERTIFIED,)
    assert maximum_likelihood(one).status == (Status.CERTIFIED,)
    assert list(solved.values()) == [2]
