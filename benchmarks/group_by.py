"""Estimators under GROUP BY, each group alone: CPU time, and the error of ``best`` against what it chooses from.

The groups are people of the census: the ages by their occupations, and the countries of birth by their educations. The truth is
the shares of the people of each group, who report once through k-RR; the error is the mean total variation over the groups. If
the census is absent, the figures about it are left out. NumPy draws the reports from the channels with a fixed seed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from time import process_time

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.figures import Figure, against, at_most, public_file
from ldpsql import Likelihood
from ldpsql.functions import registry
from ldpsql.inference.operators import Floats
from ldpsql.mechanisms.base import certify
from ldpsql.testing import operator_of

CENSUS = "adult_census_income.parquet"
CHOICES = ("inv_p", "ibu", "empirical_bayes", "pool")
LEAST_PEOPLE, DRAWS = 10, 5
WORST = 1.03
EM = "ibu(stop='paper', tolerance=0.001)"
DRAW = np.random.default_rng(1979)


def zipf(size: int) -> Floats:
    """Return shares that fall like 1/rank."""
    shares = 1.0 / np.arange(1, size + 1)
    return np.asarray(shares / shares.sum())


def likelihood(text: str, n: int, groups: int) -> Likelihood:
    """Return the likelihood of groups of n reports about values whose shares fall like 1/rank."""
    mechanism = registry().mechanism(text)
    op, certified = operator_of(mechanism), certify(mechanism)
    chances = np.maximum(op.forward(zipf(op.inputs)), 0.0)
    counts = DRAW.multinomial(n, chances / chances.sum(), groups).astype(np.float64)
    return Likelihood(op, counts, certified.layout, certified.named)


def seconds(name: str, reports: Likelihood) -> float:
    """Return the CPU time of an estimator."""
    estimator, start = registry().estimator(name), process_time()
    estimator.fit(reports)
    return process_time() - start


def times(quick: bool) -> list[Figure]:
    """Return the CPU times of many groups, and of mixture reduction against EM by the same rule."""
    groups, few = (100, 2) if quick else (1000, 20)
    small = likelihood(f"krr(1, {list(range(30))})", 1000, groups)
    what = f"{groups:,} groups of 1,000 reports, K=30, k-RR"
    out = [
        Figure(f"{what}: {name}, CPU", seconds(name, small), "s")
        for name, most in (("em_mr", 1.0), ("best", 5.0), ("pool", 1.0), ("ems", 1.0), ("corrected_em", 1.0))
    ]
    out += [Figure(f"{what}: {name}, CPU", seconds(name, small), "s") for name in ("empirical_bayes", "ibu(stop='held_out')")]
    hashed = likelihood(f"olh(1, {list(range(300))})", 10_000, few)
    what, took = f"{few} groups of 10,000 reports, K=300, OLH", seconds("em_mr", hashed)
    out.append(Figure(f"{what}: em_mr, CPU of a group", took / few, "s"))
    out.append(at_most(f"{what}: em_mr against EM by the same stop", took / seconds(EM, hashed), 1.5))
    return out


def people(rows: str, columns: str) -> NDArray[np.int64]:
    """Return how many people of each group have each value, in groups of at least `LEAST_PEOPLE`."""
    file = public_file(CENSUS)
    if file is None:
        return np.zeros((0, 0), dtype=np.int64)
    table = pq.read_table(file, columns=[rows, columns])
    (of_rows, row), (of_columns, column) = (
        np.unique(table[name].to_numpy(zero_copy_only=False), return_inverse=True) for name in (rows, columns)
    )
    cells = np.bincount(row * len(of_columns) + column, minlength=len(of_rows) * len(of_columns))
    counts = cells.reshape(len(of_rows), -1).astype(np.int64)
    return counts[counts.sum(axis=1) >= LEAST_PEOPLE]


def reported(counts: NDArray[np.int64], epsilon: float) -> Likelihood:
    """Return what these people report through k-RR, each about their own value."""
    mechanism = registry().mechanism(
        {"mechanism": "krr", "epsilon": epsilon, "domain": [f"v{i}" for i in range(counts.shape[1])]}
    )
    op, table = operator_of(mechanism), operator_of(mechanism).matrix()
    rows = [sum(DRAW.multinomial(n, chance) for n, chance in zip(group, table, strict=True)) for group in counts]
    return Likelihood(op, np.array(rows, dtype=np.float64))


def against_choices(counts: NDArray[np.int64], epsilon: float, draws: int) -> float:
    """Return the mean error of ``best`` as a ratio to that of the most accurate of `CHOICES`."""
    truth = counts / counts.sum(axis=1, keepdims=True)
    errors = np.zeros((draws, len(CHOICES) + 1))
    for row in errors:
        reports = reported(counts, epsilon)
        row[:] = [np.abs(registry().estimator(name).fit(reports).theta - truth).sum() / 2.0 for name in (*CHOICES, "best")]
    mean = errors.mean(axis=0)
    return float(mean[-1] / mean[:-1].min())


def census(quick: bool) -> Iterator[Figure]:
    """Yield the error of ``best`` against its choices, for each table and epsilon."""
    for rows, columns in (("age", "occupation"), ("native_country", "education")):
        counts = people(rows, columns)
        for epsilon in (0.5, 1.0, 2.0, 4.0) if len(counts) else ():
            ratio = against_choices(counts, epsilon, 1 if quick else DRAWS)
            what = f"best / best of {', '.join(CHOICES)}: {rows} x {columns}, k-RR, epsilon={epsilon:g}"
            yield at_most(what, ratio, WORST)


def figures(quick: bool) -> list[Figure]:
    """Return CPU times of many groups, and errors on groups of the census."""
    return [*times(quick), *census(quick)]


def check() -> Iterator[Figure]:
    """Yield the processor time of estimators of 300 groups against that of the maximum of the likelihood by steps of EM."""
    small = likelihood(f"krr(1, {list(range(30))})", 1000, 300)
    for name in ("em_mr", "best", "pool", "empirical_bayes", "corrected_em"):
        yield against(f"300 groups, K=30, k-RR: {name}", partial(registry().estimator(name).fit, small), repeats=3)
