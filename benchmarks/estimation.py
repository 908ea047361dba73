"""Speed of certified maximum likelihood, as ratios to plain IBU with the same kernels in the same run, one thread.

The figures are CPU seconds to a certified gap of 1e-9, next to what IBU would take to the same gap: 100 steps of IBU are timed,
and the rest is extrapolated at the rate at which it converges in the end. That is 1 - min(l, 1 - g), with l the smallest
eigenvalue of D^1/2 H D^1/2, D = diag(theta) and H the curvature among the values with shares, and g the largest one of the
others. Ten million reports of support sets over 1,000 values (3 GiB and a few minutes, most of them drawing) and 6,000 random
problems are left out of a quick run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from time import process_time
from typing import TypeVar

import numpy as np

from benchmarks.figures import Figure, against, at_least, at_most, peak_mebibytes
from ldpsql import Fit, Likelihood, Status
from ldpsql.channels import SetChannel
from ldpsql.estimates.functionals import intervals
from ldpsql.functions import registry
from ldpsql.inference.operators import Floats, KeepOrSpreadOperator, Operator, SupportOperator, collapsed, packed, stacked
from ldpsql.inference.solver.mle import em_step, solve, uniform
from ldpsql.inference.solver.objective import Point
from ldpsql.mechanisms.base import certify
from ldpsql.testing import DenseOperator, operator_of

T = TypeVar("T")
TOLERANCE = 1e-9
STEPS = 100  # of IBU that are timed
AGAINST_IBU = 1e4  # asked of local hashing
MOST_ACTIVE = 2000  # values with shares of which eigenvalues are taken
RNG = np.random.default_rng(7)


def zipf(size: int, power: float = 1.3) -> Floats:
    """Return shares that fall like 1/rank^power."""
    shares = np.arange(1, size + 1) ** -power
    return np.asarray(shares / shares.sum())


def bumps(columns: int, rows: int) -> Floats:
    """Return the shares of the cells of a grid whose people are around three places."""
    column, row = np.arange(columns * rows) % columns / columns, np.arange(columns * rows) // columns / rows
    places = ((1, 0.3, 0.4, 0.005), (2, 0.7, 0.6, 0.01), (0.5, 0.2, 0.8, 0.002))
    shares = sum(a * np.exp(-((column - x) ** 2 + (row - y) ** 2) / s) for a, x, y, s in places)
    return np.asarray(shares / np.sum(shares))


def listed(op: Operator, theta: Floats, n: int) -> Likelihood:
    """Return the likelihood of n reports of a channel whose reports are listed."""
    chances = np.maximum(op.forward(theta), 0.0)
    return Likelihood(op, RNG.multinomial(n, chances / chances.sum())[None].astype(np.float64))


def sets(text: str, size: int, n: int) -> Likelihood:
    """Return the likelihood of n reports that support sets, of a mechanism over 0 .. size-1."""
    channel = certify(registry().mechanism(text.replace("DOMAIN", str(list(range(size)))))).channel
    assert isinstance(channel, SetChannel)
    drawn = channel.draw(RNG.choice(size, n, p=zipf(size)).astype(np.int32))
    octets, counts = collapsed(packed(channel, drawn), np.ones(n))
    return Likelihood(SupportOperator(channel, octets), counts[None])


def orthogonal(epsilon: float, size: int, n: int) -> Likelihood:
    """Return the likelihood of n reports of local hashing with public seeds."""
    return listed(operator_of(registry().mechanism(f"olh({epsilon}, {list(range(size))})")), zipf(size), n)


def several_epsilons(size: int, levels: int, n: int) -> Likelihood:
    """Return the likelihood of k-RR with a different epsilon for each level."""
    grown = np.exp(np.linspace(0.1, 4, levels))
    parts = [KeepOrSpreadOperator(size, g / (g + size - 1), 1 / (g + size - 1)) for g in grown]
    return listed(stacked(parts, np.full(levels, 1 / levels)), zipf(size), n)


def problems() -> Iterator[tuple[str, Callable[[], Likelihood]]]:
    """Yield the name of each problem, and a function that makes it."""
    for epsilon in (0.75, 1, 2, 3):
        yield (
            f"OLH private seeds, eps {epsilon}, K=300, n=3e5",
            lambda e=epsilon: sets(f"olh({e}, DOMAIN, seeds='private')", 300, 300_000),
        )
    for epsilon in (0.75, 1, 2, 3):
        yield f"OLH orthogonal, eps {epsilon}, K=300, n=3e5", lambda e=epsilon: orthogonal(e, 300, 300_000)
    planar = "planar_geometric(0.2, 24, 16)"
    yield (
        "planar geometric 24x16, eps 0.2",
        lambda: listed(operator_of(registry().mechanism(planar)), bumps(24, 16), 200_000),
    )
    for epsilon in (0.1, 1):
        text = f"truncated_geometric({epsilon}, 1, 10000)"
        yield (
            f"truncated geometric K=10,000, eps {epsilon}",
            lambda t=text: listed(operator_of(registry().mechanism(t)), bumps(10_000, 1), 100_000),
        )
    wave = "square_wave(1, 0, 1)"
    yield "square wave, 1024 bins", lambda: listed(operator_of(registry().mechanism(wave)), bumps(1024, 1), 100_000)
    yield "RAPPOR K=100, n=1e5", lambda: sets("rappor(1, DOMAIN)", 100, 100_000)
    yield (
        "k-RR K=1,000,000",
        lambda: listed(KeepOrSpreadOperator(10**6, 1e-3, (1 - 1e-3) / (10**6 - 1)), zipf(10**6), 10**7),
    )
    yield "k-RR K=415, 20 epsilons", lambda: several_epsilons(415, 20, 10**5)


def steps_of_ibu(likelihood: Likelihood, best: Floats) -> tuple[float, float]:
    """Return the seconds of a step, and how many more steps the gap would take from the 100th to 1e-9."""
    theta, start = uniform(likelihood), process_time()
    for _ in range(STEPS):
        theta = em_step(likelihood, theta)
    each, reached = (process_time() - start) / STEPS, float(likelihood.gap(theta)[0])
    point = Point(likelihood, best[0])
    active = np.flatnonzero(best[0] > 1e-9)
    if len(active) > MOST_ACTIVE:
        return each, float("nan")
    roots = np.sqrt(best[0, active])
    slowest = float(np.linalg.eigvalsh(point.curvature(active) * roots * roots[:, None])[0])
    slack = 1.0 - point.gradient[best[0] <= 1e-9]
    slowest = min(slowest, float(slack[slack > TOLERANCE].min(initial=1.0)))
    return each, np.log(max(reached / TOLERANCE, 1.0)) / max(slowest, 1e-15)


def solved(likelihood: Likelihood) -> tuple[float, float, Fit]:
    """Return CPU seconds (the median of three runs if they are quick), the gap and the fit."""
    times = []
    while len(times) < 3 and sum(times) < 5.0:
        start = process_time()
        fit = solve(likelihood, TOLERANCE)
        times.append(process_time() - start)
    return float(np.median(times)), float(likelihood.gap(fit.theta)[0]), fit


def clocked(work: Callable[[], T]) -> tuple[float, T]:
    """Return the CPU seconds of some work, the median of three runs, and its result."""
    times = []
    for _ in range(3):
        start = process_time()
        out = work()
        times.append(process_time() - start)
    return float(np.median(times)), out


def groups() -> list[Figure]:
    """Return the time of a group, for many groups of one channel, with and without errors."""
    out = []
    for size, count in ((10, 5000), (32, 2000), (100, 200)):
        table = np.exp(-0.5 * np.abs(np.arange(size)[:, None] - np.arange(size)))
        op = DenseOperator(table / table.sum(axis=1, keepdims=True))
        counts = RNG.multinomial(1000, RNG.dirichlet(np.full(size, 0.3), count) @ op.matrix()).astype(np.float64)
        likelihood = Likelihood(op, counts)
        took, fit = clocked(partial(solve, likelihood))
        with_errors, _ = clocked(partial(intervals, likelihood, fit, 0.95))
        what = f"{count} groups, K={size}, dense"
        out.append(Figure(f"{what}: a group", took / count * 1e3, "ms"))
        out.append(Figure(f"{what}: intervals of a group", with_errors / count * 1e3, "ms"))
        out.append(
            at_least(f"{what}: certified", float(np.mean([status is Status.CERTIFIED for status in fit.status])), 1.0, "")
        )
    counts = RNG.poisson(10, (100_000, 100)).astype(np.float64)
    took, _ = clocked(partial(solve, Likelihood(KeepOrSpreadOperator(100, 0.03, 0.97 / 99), counts)))
    out.append(Figure("100,000 groups, K=100, k-RR: a group", took * 10, "us"))
    return out


def random_problems(count: int) -> float:
    """Return the share of random and degenerate problems that end certified."""
    from tests.test_solver import KINDS, problem  # noqa: PLC0415

    done = 0
    for i in range(count):
        sizes = RNG.choice([2, 3, 5, 12, 20, 33, 40, 60], 2)
        done += solve(problem(KINDS[i % len(KINDS)], *map(int, sizes))).status == (Status.CERTIFIED,)
    return done / count


_LARGE = """
from benchmarks.estimation import sets, solved
seconds, gap, _ = solved(sets("olh(1, DOMAIN, seeds='private')", 1000, 10_000_000))
assert gap <= 1e-9"""


def large() -> list[Figure]:
    """Return what ten million support sets take, in a process of their own, and the share of random problems solved."""
    peak, seconds, _ = peak_mebibytes(_LARGE)
    return [
        Figure("OLH K=1000, n=1e7", seconds, "s"),
        at_most("OLH K=1000, n=1e7: peak memory", peak, 4096, "MiB"),
        at_least("6,000 random and degenerate problems: certified", random_problems(6_000), 1.0, ""),
    ]


def figures(quick: bool) -> list[Figure]:
    """Return seconds, gaps and ratios to plain IBU of every problem, then the figures of groups and of large problems."""
    out = []
    for what, make in problems():
        likelihood = make()
        took, gap, fit = solved(likelihood)
        out += [Figure(what, took, "s"), at_most(f"{what}: gap", gap, TOLERANCE, "")]
        each, needed = steps_of_ibu(likelihood, fit.theta)
        if np.isfinite(needed):
            against, name = each * needed / took, f"{what}: IBU against it"
            out.append(at_least(name, against, AGAINST_IBU) if what.startswith("OLH") else Figure(name, against))
    return out + groups() + ([] if quick else large())


def check() -> Iterator[Figure]:
    """Yield the processor time of certified maxima against steps of IBU on the same reports."""
    chosen = ("OLH orthogonal, eps 1,", "planar geometric", "square wave", "k-RR K=415")
    for what, make in problems():
        if what.startswith(chosen):
            likelihood = make()
            steps = partial(_stepped, likelihood, 10_000_000 // (likelihood.operator.inputs * 100))
            yield against(f"{what}: maximum against steps of IBU", partial(solve, likelihood, TOLERANCE), steps, 3)


def _stepped(likelihood: Likelihood, steps: int) -> Floats:
    """Return theta after steps of IBU."""
    theta = uniform(likelihood)
    for _ in range(steps):
        theta = em_step(likelihood, theta)
    return theta
