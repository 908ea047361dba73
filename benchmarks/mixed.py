"""Speed of estimates from several mechanisms and of numbers about distributions: CPU time, as ratios within one run.

Ten million rows, K = 100 values, three levels of epsilon; a quick run takes one million.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from time import process_time

import numpy as np

import ldpsql
from benchmarks.figures import Figure, against, at_most, in_turns
from ldpsql import Mechanism
from ldpsql.estimates.estimate import Estimates, estimate_likelihood
from ldpsql.functions import registry
from ldpsql.inference.counting import column_likelihood
from ldpsql.inference.mixed import Mixed
from ldpsql.inference.operators import Floats, StackOperator
from ldpsql.mechanisms.base import certify
from ldpsql.questions import Functional, Mean, Quantile, Variance
from ldpsql.testing import estimate_counts, operator_of

GROUPS = 200


def figures(quick: bool) -> list[Figure]:
    """Return all figures."""
    return [*levels(1 if quick else 10), *families(), *numbers()]


def cpu(*calls: Callable[[], object]) -> list[float]:
    """Return the median CPU seconds of each call of this process, run in turns."""
    return in_turns(*calls, clock=process_time)


def levels(millions: int) -> list[Figure]:
    """Measure ibu by level against plain grouping by level and report, and perturb by level against perturb."""
    con = ldpsql.connect()
    rows = millions * 1_000_000
    con.execute("SET threads = 1")
    con.execute(
        """CREATE MACRO ms() AS
           MAP {'low': ldp.krr(0.5, range(100)), 'mid': ldp.krr(1, range(100)), 'high': ldp.krr(3, range(100))}"""
    )
    con.execute(
        f"CREATE TABLE p AS SELECT ['low', 'mid', 'high'][1 + i // 100 % 3] AS level, i % 100 AS x FROM range({rows}) t(i)"
    )
    con.execute("CREATE TABLE r AS SELECT level, ldp.perturb(x, ms(), level) AS x FROM p")
    grouped, mixed = cpu(
        lambda: con.execute("SELECT level, x, count(*) FROM r GROUP BY ALL").fetchall(),
        lambda: con.execute("SELECT ldp.ibu({level: level, report: x}, ms()) FROM r").fetchall(),
    )
    alone, drawn = cpu(
        lambda: con.execute("SELECT count(ldp.perturb(x, ldp.krr(1, range(100)))) FROM p").fetchall(),
        lambda: con.execute("SELECT count(ldp.perturb(x, ms(), level)) FROM p").fetchall(),
    )
    return [
        Figure("ibu of levels", millions / mixed, "M rows/s"),
        Figure("ibu of levels against GROUP BY level, report", mixed / grouped),
        Figure("perturb by level", millions / drawn, "M rows/s"),
        Figure("perturb by level against perturb", drawn / alone),
    ]


def families() -> list[Figure]:
    """Certify the maximum for OUE, OLH, k-RR and the geometric mechanism together, 30,000 reports each."""
    texts = ("oue(1, {})", "olh(1, {}, seeds='private')", "krr(1, {})", "truncated_geometric(0.1, 0, 99)")
    made = [registry().mechanism(text.format(list(range(100)))) for text in texts]
    values = np.minimum(np.random.default_rng().geometric(0.1, 30_000) - 1, 99)
    parts = []
    for mechanism in made:
        reports = ldpsql.perturb(values.tolist(), mechanism)
        parts.append(column_likelihood(reports, mechanism))
    stack = StackOperator([part.operator for part in parts], np.full(4, 0.25))
    whole = type(parts[0])(stack, np.concatenate([part.counts for part in parts], axis=1))
    source = Mixed(certify(registry().mechanism("krr(1, [1, 2, 3, 4])")).values, tuple(made))
    estimates = estimate_likelihood(source, whole, registry().estimator("ibu"))
    (took,) = cpu(lambda: registry().estimator("ibu").fit(whole))
    what = "OUE + OLH + k-RR + geometric, n=1.2e5, K=100"
    gap = float(whole.gap(estimates.fit.theta)[0])
    return [Figure(what, took, "s"), at_most(f"{what}: gap", gap, 1e-9, "")]


def numbers() -> list[Figure]:
    """Measure the numbers of groups of 2,000 reports, K = 100."""
    out = []
    for text in (f"krr(1, {list(range(100))})", "truncated_geometric(0.1, 0, 99)"):
        mechanism = registry().mechanism(text)
        truth = 0.9 ** np.arange(100)
        expected = operator_of(mechanism).forward(truth / truth.sum())
        estimate = partial(estimated, mechanism, np.random.default_rng().multinomial(2000, expected, GROUPS).astype(np.float64))
        kinds: tuple[Functional, ...] = (Mean(), Variance(), Quantile(q=0.5))
        calls = [partial(measured, estimate, kind) for kind in kinds]
        took = cpu(estimate, partial(with_intervals, estimate), *calls)
        names = ("ibu", "ibu and intervals", "ibu and mean", "ibu and variance", "ibu and quantile")
        for name, seconds in zip(names, took, strict=True):
            out.append(Figure(f"{mechanism.name}, K=100, {name}: a group", seconds / GROUPS * 1e3, "ms"))
    return out


def estimated(mechanism: Mechanism, counts: Floats) -> Estimates:
    """Estimate all groups."""
    return estimate_counts(mechanism, counts, registry().estimator("ibu"))


def with_intervals(estimate: Callable[[], Estimates]) -> object:
    """Estimate all groups, with the intervals of all shares."""
    return estimate().intervals


def measured(estimate: Callable[[], Estimates], functional: Functional) -> object:
    """Estimate all groups, and measure one number of each."""
    return functional.measure(estimate())


def check() -> Iterator[Figure]:
    """Yield the processor time of several mechanisms together against plain grouping, and of numbers against shares."""
    con, most = ldpsql.connect(), list(range(100))
    con.execute("CREATE MACRO ms() AS MAP {'low': ldp.krr(0.5, range(100)), 'high': ldp.krr(3, range(100))}")
    con.execute("CREATE TABLE p AS SELECT ['low', 'high'][1 + i // 100 % 2] AS level, i % 100 AS x FROM range(1_000_000) t(i)")
    con.execute("CREATE TABLE r AS SELECT level, ldp.perturb(x, ms(), level) AS x FROM p")
    runs = [
        partial(con.execute, f"CREATE OR REPLACE TABLE c AS {sql}")
        for sql in (
            "SELECT ldp.ibu({level: level, report: x}, ms()) FROM r",
            "SELECT level, x, count(*) FROM r GROUP BY ALL",
            "SELECT ldp.perturb(x, ms(), level) AS x FROM p",
            "SELECT ldp.perturb(x, ldp.krr(1, range(100))) AS x FROM p",
        )
    ]
    yield against("ibu of levels against GROUP BY level, report", *runs[:2])
    yield against("perturb by level against perturb", *runs[2:])
    mechanism = registry().mechanism(f"krr(1, {most})")
    truth = 0.9 ** np.arange(100)
    law = operator_of(mechanism).forward(truth / truth.sum())
    estimate = partial(estimated, mechanism, np.random.default_rng(7).multinomial(2000, law, GROUPS).astype(np.float64))
    for kind in (Mean(), Variance(), Quantile(q=0.5)):
        yield against(f"k-RR, K=100: {type(kind).__name__} of groups", partial(measured, estimate, kind), repeats=3)
