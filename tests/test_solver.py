"""The solver reaches what it certifies on problems of every kind, and every structure is the map that its table says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

import ldpsql
from ldpsql import Likelihood, Status, certify
from ldpsql.channels import SetChannel
from ldpsql.estimators import Floats, Limits, uniform
from ldpsql.functions import registry
from ldpsql.inference.operators import (
    KeepOrSpreadOperator,
    StackOperator,
    SupportOperator,
    packed,
    stacked,
)
from ldpsql.inference.solver import mle, steps
from ldpsql.inference.solver.interior import interior_maximum, unique
from ldpsql.inference.solver.mle import _ended, maximise, solve
from ldpsql.inference.solver.objective import Point
from ldpsql.inference.solver.steps import squarem_step
from ldpsql.testing import DenseOperator, operator_of
from tests import seeds

ONE = np.ones(1)
RNG = seeds.generator(__name__)  # data for the tests; no claim depends on a seed


def mixture(inputs: int, outputs: int) -> Floats:
    return RNG.dirichlet(np.full(outputs, RNG.choice([0.05, 0.3, 1, 5])), inputs) + 1e-12


def decaying(inputs: int, outputs: int) -> Floats:
    rate = 10 ** RNG.uniform(-2, 1.5)
    exponents = -rate * np.abs(np.arange(inputs)[:, None] - np.linspace(0, inputs - 1, outputs))
    return np.exp(exponents - exponents.max(axis=1, keepdims=True))  # far from every output, all would be 0


def supporting(inputs: int, outputs: int) -> Floats:
    return 1.0 + np.expm1(10 ** RNG.uniform(-2, 1.3)) * (RNG.random((inputs, outputs)) < 0.3)


def with_equal_values(inputs: int, outputs: int) -> Floats:
    table = mixture(inputs, outputs)
    table[RNG.integers(0, inputs, inputs // 2)] = table[0]
    return table


def with_zeros(inputs: int, outputs: int) -> Floats:
    table = RNG.dirichlet(np.full(outputs, 0.5), inputs)
    table[table < 0.02] = 0.0
    table[:, 0] += 0.01
    return table


def of_rank_two(inputs: int, outputs: int) -> Floats:
    return RNG.dirichlet(np.ones(2), inputs) @ RNG.dirichlet(np.ones(outputs), 2)


KINDS = [mixture, decaying, supporting, with_equal_values, with_zeros, of_rank_two]


def problem(kind: object, inputs: int, outputs: int) -> Likelihood:
    """A random channel of a kind, with 1 to 1e9 reports of a random distribution."""
    table = kind(inputs, outputs)  # type: ignore[operator]
    table = table / table.sum(axis=1, keepdims=True)
    theta = np.eye(inputs)[0] if RNG.random() < 0.2 else RNG.dirichlet(np.full(inputs, RNG.choice([0.05, 0.3, 1])))
    chances = theta @ table
    counts = RNG.multinomial(int(10 ** RNG.uniform(0, 9)), chances / chances.sum())
    return Likelihood(DenseOperator(table), counts[None].astype(np.float64))


@pytest.mark.parametrize("kind", KINDS)
def test_random_and_degenerate_problems_of_every_kind_are_certified(kind: object) -> None:
    for _ in range(60):
        likelihood = problem(kind, int(RNG.choice([2, 5, 20, 33, 50])), int(RNG.choice([2, 5, 30, 80])))
        fit = registry().estimator("ibu").fit(likelihood)
        assert fit.status == (Status.CERTIFIED,)
        assert likelihood.gap(fit.theta)[0] <= 1e-9
        assert fit.theta.sum() == pytest.approx(1.0, abs=1e-12)
        assert (fit.theta >= 0).all()


def barrier_heights(tables: Floats, shares: Floats) -> Floats:
    """Return max f of every problem from below, by a barrier method that shares no code with the solver.

    Maximises sum_z q_z log(theta A)_z - sum theta + mu sum log theta for falling mu: f of the normalised theta is within
    inputs * mu of the maximum (Boyd, Vandenberghe, "Convex Optimization", 2004, section 11.2.2).
    """
    groups, size = tables.shape[:2]
    theta = np.full((groups, size), 1.0 / size)
    tables = np.where(shares[:, None] > 0, tables, 1.0)  # reports that were not seen: 0 log 1

    def height(at: Floats, mu: float) -> Floats:
        expected = np.einsum("gx,gxz->gz", at, tables)
        return (shares * np.log(expected)).sum(1) - at.sum(1) + mu * np.log(at).sum(1)

    for mu in 0.2 ** np.arange(1, 21):
        for _ in range(6):
            weights = shares / np.einsum("gx,gxz->gz", theta, tables)
            slope = np.einsum("gz,gxz->gx", weights, tables) - 1.0 + mu / theta
            scaled = tables * (weights / np.sqrt(np.maximum(shares, 1e-300)))[:, None] * theta[..., None]
            curvature = np.einsum("gxz,gyz->gxy", scaled, scaled) + mu * np.eye(size)
            step = theta * np.linalg.solve(curvature, (theta * slope)[..., None])[..., 0]
            length = np.minimum(1.0, 0.95 / np.maximum((-step / theta).max(1), 1e-300))
            before = height(theta, mu)
            while (worse := height(theta + length[:, None] * step, mu) < before - 1e-12).any():
                length = np.where(worse, length / 2, length)
            theta = theta + length[:, None] * step
    theta = theta / theta.sum(1, keepdims=True)
    return np.asarray((shares * np.log(np.einsum("gx,gxz->gz", theta, tables))).sum(1))


@pytest.mark.slow
def test_the_gap_bounds_what_is_missing_to_the_maximum_on_a_thousand_problems() -> None:
    problems = [problem(KINDS[i % len(KINDS)], 5, 8) for i in range(1000)]
    tables, shares = np.stack([one.operator.matrix() for one in problems]), np.vstack([one.shares for one in problems])
    highest = barrier_heights(tables, shares)
    for i, (one, most) in enumerate(zip(problems, highest, strict=True)):
        certified = registry().estimator("ibu").fit(one).theta
        assert abs(most - one.log_likelihood(certified)[0] / one.n[0]) <= 1e-9  # the other way came as near as the solver
        for theta in (certified, registry().estimator(f"ibu(stop={i % 50})").fit(one).theta, RNG.dirichlet(np.ones(5))[None]):
            missing = most - one.log_likelihood(theta)[0] / one.n[0]
            assert missing <= np.log1p(one.gap(theta)[0]) + 1e-12  # what rounding takes from a logarithm of a likelihood


def test_every_way_to_the_maximum_finds_the_same_height() -> None:
    for kind in KINDS:
        one = problem(kind, 12, 20)
        newton = maximise(one, uniform(one), 1e-9)[0]
        warm = maximise(one, RNG.dirichlet(np.ones(12))[None], 1e-9)[0]
        seen = one.counts[0] > 0
        inside = interior_maximum(one.operator.matrix()[:, seen], one.shares[:, seen], np.array([1e-9]))[0]
        heights = [float(one.log_likelihood(theta)[0] / one.n[0]) for theta in (newton, warm, inside)]
        assert max(heights) - min(heights) <= 2e-9


@dataclass(frozen=True)
class Straight:
    """A point whose steps of IBU all move alike, so that nothing says how far to extrapolate."""

    theta: Floats
    phi: float = 1.0

    def em(self) -> Straight:
        return Straight(self.theta + np.array([2.0**-10, -(2.0**-10)]), self.phi - 1.0)  # without rounding

    def at(self, theta: Floats) -> Straight:
        assert np.isfinite(theta).all()
        return Straight(theta, np.inf)


def test_squarem_never_falls_and_comes_near() -> None:
    one = problem(decaying, 40, 40)
    point = Point(one, np.full(40, 1 / 40))
    for _ in range(300):
        moved = squarem_step(point, 0)
        assert moved.phi <= point.phi + 1e-13
        point = moved
    assert point.gap < 1e-2
    assert squarem_step(Straight(np.array([0.25, 0.75])), 0).phi == -1.0  # type: ignore[arg-type]  # has what a step needs


def test_where_the_maximum_is_not_unique_the_estimate_is_in_the_middle() -> None:
    for repeated in (4, 40):  # one of the small ones that are solved together, one by Newton steps
        table = np.vstack([np.tile([0.7, 0.2, 0.1], (repeated, 1)), [[0.1, 0.2, 0.7]]])
        likelihood = Likelihood(DenseOperator(table), np.array([[500.0, 200.0, 300.0]]))
        theta = solve(likelihood).theta
        assert not unique(likelihood, theta)
        assert theta[0, :repeated] == pytest.approx(np.full(repeated, theta[0, 0]), rel=1e-3)
        assert theta[0, 0] > 0.5 / repeated


def test_a_deadline_and_a_number_of_steps_end_a_solve_with_an_honest_status(wound: Callable[[], None]) -> None:
    op = operator_of(registry().mechanism("square_wave(epsilon=1, low=0, high=1, bins=60)"))  # flat: IBU alone takes 10^5 steps
    likelihood = Likelihood(op, RNG.multinomial(10_000, op.forward(np.full(60, 1 / 60)))[None].astype(np.float64))
    late = solve(likelihood, limits=Limits(seconds=0.0))
    assert late.status == (Status.OUT_OF_TIME,)
    assert "deadline" in late.status[0].remedy
    short = solve(likelihood, tolerance=1e-15, limits=Limits(1))
    assert short.iterations[0] <= 1
    wound()
    diagnosis = ldpsql.estimate([0, 1, 1], "krr(epsilon=0.1, domain=[0, 1])", "ibu(stop=1000000, deadline=100)").diagnosis
    assert diagnosis.status == "out of time"
    assert 0 < diagnosis.iterations < 1_000_000


def test_a_solve_is_certified_if_and_only_if_its_gap_is_at_most_the_tolerance() -> None:
    one = Likelihood(DenseOperator(np.array([[0.75, 0.25], [0.25, 0.75]])), np.array([[3.0, 2.0]]))
    even = np.array([[0.5, 0.5]])
    gap = float(one.gap(even)[0])
    assert _ended(one, even, gap, Limits(0)) is Status.CERTIFIED
    for tolerance in (gap / 500, gap * (1 - 1e-9)):
        assert _ended(one, even, tolerance, Limits(0)) is Status.OUT_OF_STEPS
        assert _ended(one, even, tolerance, Limits(1)) is Status.ROUNDED
        assert _ended(one, even, tolerance, Limits(0, 0.0)) is Status.OUT_OF_TIME


def test_a_distribution_that_excludes_an_observed_report_has_no_likelihood_and_no_gap() -> None:
    likelihood = Likelihood(DenseOperator(np.array([[1.0, 0.0], [0.5, 0.5]])), np.array([[2.0, 2.0]]))
    corner, even = np.array([[1.0, 0.0]]), np.array([[0.5, 0.5]])
    assert np.isnan(likelihood.log_likelihood(corner)).all()
    assert likelihood.gap(corner)[0] == likelihood.misfit(corner)[0] == np.inf
    assert likelihood.misfit(even)[0] == pytest.approx(4 * np.log(0.5 / 0.75) + 4 * np.log(0.5 / 0.25))


def test_a_deadline_in_sql_ends_a_solve_in_time(wound: Callable[[], None]) -> None:
    wound()
    con = ldpsql.connect()
    con.execute("CREATE TABLE r AS SELECT range % 50 AS x FROM range(1000)")
    estimator = "ibu(stop=9000000, deadline=100, misfit=''allow'')"
    diagnosed = f"SELECT ldp.diagnose(x, ldp.krr(1, range(50)), estimator := '{estimator}') AS d FROM r"
    ((status, iterations),) = con.execute(f"SELECT d.status, d.iterations FROM ({diagnosed})").fetchall()
    assert status == "out of time"
    assert 0 < iterations < 9_000_000


# --- structures ---


def sets_of(mechanism: dict[str, object]) -> SetChannel:
    channel = certify(registry().mechanism(mechanism)).channel
    assert isinstance(channel, SetChannel)
    return channel


def test_a_maximum_with_more_values_than_a_first_model_takes_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, size in (
        (mle, "MAX_VALUES", 150),
        (mle, "MAX_INTERIOR_CELLS", 0),  # Newton steps have to find it themselves
        (steps, "MAX_VALUES", 150),
        (steps, "MIN_WORKING", 40),
        (steps, "FIRST_VALUES", 30),
    ):
        monkeypatch.setattr(module, name, size)
    channel = sets_of({"mechanism": "oue", "epsilon": 8, "domain": list(range(151))})
    drawn = channel.draw((np.arange(560) % 56).astype(np.int32))
    likelihood = Likelihood(SupportOperator(channel, packed(channel, drawn)), np.ones((1, 560)))
    fit = solve(likelihood)
    assert fit.status == (Status.CERTIFIED,)
    assert (fit.theta > 0).sum() > 40


@pytest.mark.slow
def test_a_sampled_curvature_changes_the_way_and_not_the_certificate() -> None:
    text = f"oue(1, {list(range(40))})"
    reports = ldpsql.perturb(RNG.geometric(0.1, 60_000) % 40, text)
    first, again = (ldpsql.estimate(reports, text) for _ in range(2))
    likelihood = first.likelihood
    assert likelihood.operator.sampled
    assert first.diagnosis.status == "certified"
    assert (first.estimate == again.estimate).all()
    weights = 1.0 / likelihood.operator.forward(first.estimate) ** 2
    rough, exact = likelihood.operator.rough_curvature(weights), likelihood.operator.curvature(weights)
    # each entry is a mean over 30,000 of 60,000 reports, of weights that vary by less than their size
    assert rough == pytest.approx(exact, rel=0.1)


@pytest.mark.parametrize("epsilon", ["0.02", "0.3", "3"])
@pytest.mark.parametrize("size", [3, 40, 2000])
def test_the_maximum_under_geometric_noise_is_certified_with_exact_zeros(size: int, epsilon: str) -> None:
    op = operator_of(registry().mechanism(f"truncated_geometric(epsilon={epsilon}, low=1, high={size})"))
    for n in (1, 10, 10_000):
        shares = RNG.multinomial(n, op.forward(RNG.dirichlet(np.full(size, 0.3))), 1) / n
        theta = op.maximum(shares)
        assert theta is not None
        assert Likelihood(op, shares * n).gap(theta)[0] <= 1e-9
        if size == 40 and n == 10:
            assert (theta == 0).any()


def test_k_rr_with_several_epsilons_has_a_closed_form_that_the_solver_agrees_with() -> None:
    for size, levels, n in ((2, 1, 10), (7, 3, 1), (7, 3, 500), (60, 20, 10**5)):
        keep = RNG.uniform(1.2 / size, 1.0, levels)
        parts = [KeepOrSpreadOperator(size, k, (1 - k) / (size - 1)) for k in keep]
        op = stacked(parts, RNG.dirichlet(np.ones(levels)))
        counts = RNG.multinomial(n, op.forward(RNG.dirichlet(np.full(size, 0.2))))[None].astype(np.float64)
        likelihood, solved = Likelihood(op, counts), Likelihood(DenseOperator(op.matrix()), counts)
        theta = op.maximum(likelihood.shares)
        assert theta is not None
        assert likelihood.gap(theta)[0] <= 1e-13
        other = solve(solved).theta
        assert likelihood.log_likelihood(theta)[0] >= solved.log_likelihood(other)[0] - 1e-9 * n
        assert isinstance(op, StackOperator)
        c = RNG.random((size, 2))
        mine, theirs = (each.functionals(likelihood.shares, ONE, other, c) for each in (op, solved.operator))
        for a, b in zip(mine, theirs, strict=True):
            assert a == pytest.approx(b, rel=1e-5, abs=1e-7)


def test_many_small_groups_are_solved_together_and_certified() -> None:
    table = mixture(10, 12)
    table /= table.sum(axis=1, keepdims=True)
    counts = RNG.multinomial(1000, RNG.dirichlet(np.ones(10), 3000) @ table).astype(np.float64)
    likelihood = Likelihood(DenseOperator(table), counts)
    fit = registry().estimator("ibu").fit(likelihood)
    assert (likelihood.gap(fit.theta) <= 1e-9).all()
    assert set(fit.status) == {Status.CERTIFIED}


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_of_few_values_has_the_same_estimate_among_whatever_groups(kind: Callable[[int, int], Floats]) -> None:
    for inputs, outputs in ((2, 6), (4, 8), (12, 24)):
        table = kind(inputs, outputs)
        table = table / table.sum(axis=1, keepdims=True)
        chances = RNG.dirichlet(np.full(inputs, 0.3), 60) @ table
        counts = RNG.multinomial(50, chances / chances.sum(axis=1, keepdims=True)).astype(np.float64)

        def numbers(some: slice, table: Floats = table, counts: Floats = counts) -> Floats:
            part = Likelihood(DenseOperator(table), counts[some])  # maxima of one operator are remembered
            theta = registry().estimator("ibu").fit(part).theta
            return np.stack([theta, *part.operator.interval(part.shares, part.n, theta, 2.0)])

        together = numbers(slice(None))
        for some in (slice(1), slice(3, 5), slice(20, 37), slice(59, 60)):
            assert np.array_equal(numbers(some), together[:, some])


@pytest.mark.parametrize(("size", "people"), [(20, 500), (300, 4000)])  # the second one is too large for a table
def test_sums_over_sets_are_the_same_for_one_group_and_for_many(size: int, people: int) -> None:
    text = f"oue(1, {list(range(size))})"
    op = ldpsql.estimate(ldpsql.perturb(RNG.integers(0, size, people), text), text, "uniform").likelihood.operator
    theta, w = RNG.dirichlet(np.ones(size), 20), RNG.random((20, op.outputs))
    for groups in (3, 20):
        assert op.forward(theta[:groups]) == pytest.approx(np.stack([op.forward(one) for one in theta[:groups]]))
        assert op.adjoint(w[:groups]) == pytest.approx(np.stack([op.adjoint(one) for one in w[:groups]]))


@pytest.mark.parametrize("epsilon", ["0.01", "0.3", "3"])
@pytest.mark.parametrize("name", ["truncated_geometric", "geometric"])
def test_geometric_noise_in_linear_time_is_the_same_map_with_the_same_errors(name: str, epsilon: str) -> None:
    op = operator_of(registry().mechanism(f"{name}(epsilon={epsilon}, low=0, high=30)"))
    dense = DenseOperator(op.matrix())
    theta, w = RNG.dirichlet(np.ones(op.inputs), 3), RNG.random((3, op.outputs))
    assert op.forward(theta) == pytest.approx(dense.forward(theta), rel=1e-13, abs=1e-15)  # 231 rounded sums
    assert op.adjoint(w) == pytest.approx(dense.adjoint(w))
    if name == "truncated_geometric":
        assert op.condition == pytest.approx(dense.condition, rel=1e-2)
        assert op.influence == pytest.approx(dense.influence)
    if name == "truncated_geometric" and op.condition < 1e4:
        counts, c = RNG.integers(1, 1000, (1, 31)).astype(np.float64), RNG.random((31, 2))
        one, n = Likelihood(op, counts), np.ones(1)
        for mine, theirs in (
            (op.interval(one.shares, one.n, theta[:1], 2.0), dense.interval(one.shares, one.n, theta[:1], 2.0)),
            (op.functionals(one.shares, n, theta[:1], c), dense.functionals(one.shares, n, theta[:1], c)),
        ):
            for a, b in zip(mine, theirs, strict=True):
                assert a == pytest.approx(b, rel=1e-5, abs=1e-7)
