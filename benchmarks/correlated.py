"""Correlated columns: the error of margins and pair tables against Corr-RR at the same total epsilon.

Corr-RR is written from Seeam, Zheng, Hu, "Frequency estimation of correlated multi-attribute data under local differential
privacy", PoPETs 2026. A tenth of the people report each of d columns with epsilon/d. Everyone else reports a random column
with epsilon; each other column copies that report with a probability p_y that follows from the first reports, or else takes
another value evenly. Both parts are inverted as k-RR and averaged by their numbers of people. The paper estimates margins only;
for pair tables, pairs of its reports are inverted the same way. All columns have the same values, as it needs.

The columns are three of Adult, and synthetic ones of which each is a copy of the first with some probability. Margins have no
bound here: where nearly all columns are copies, copying a report is nearly unbiased, and those of Corr-RR are better than those
of a joint table.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

import ldpsql
from benchmarks.figures import Figure, at_most, public_file
from benchmarks.margins import kept
from benchmarks.several_columns import made
from ldpsql.estimates.planning import plan_tables
from ldpsql.functions import registry
from ldpsql.inference.operators import Floats

DRAW = np.random.default_rng()  # of the data and of the published way only
EPSILONS, DRAWS, PEOPLE, FIRST = ("1", "2", "4"), 20, 20_000, 0.1
Codes = NDArray[np.int64]


def copies(columns: int, size: int, copied: float) -> Codes:
    """Return people of whom each column copies the first with this probability, or is uniform; the first one is not even."""
    first = DRAW.choice(size, (PEOPLE, 1), p=np.arange(size, 0, -1) / (size * (size + 1) / 2))
    other = DRAW.integers(0, size, (PEOPLE, columns - 1))
    return np.hstack([first, np.where(DRAW.random(other.shape) < copied, first, other)])


def adult(people: pl.DataFrame) -> Codes:
    """Return who is married, a man, and earns above 50,000."""
    chosen = people.select(
        pl.col("marital_status").str.starts_with("Married"), pl.col("sex") == "Male", pl.col("income").str.contains(">")
    )
    return np.asarray(chosen.cast(pl.Int64).to_numpy())


def spread(values: Codes, size: int, keep: float) -> Codes:
    """Return reports that keep each value with this probability, or take one of the others evenly."""
    other = (values + DRAW.integers(1, size, values.shape)) % size
    return np.where(DRAW.random(values.shape) < keep, values, other)


def tables(reports: Codes, size: int, epsilon: float) -> dict[tuple[int, ...], Floats]:
    """Return all margins and pair tables of reports, inverted as those of k-RR."""
    keep, miss = kept(size, epsilon)
    inverse = (np.eye(size) - miss) / (keep - miss)
    seen = np.eye(size)[reports]
    out: dict[tuple[int, ...], Floats] = {(j,): seen[:, j].mean(axis=0) @ inverse for j in range(reports.shape[1])}
    for i, j in combinations(range(reports.shape[1]), 2):
        out[i, j] = inverse @ (seen[:, i].T @ seen[:, j] / len(reports)) @ inverse
    return out


def copying(pivot: Floats, other: Floats, epsilon: float, n: int) -> float:
    """Return p_y, which minimises the expected squared error of both columns: the paper's proposition for k values."""
    size, (keep, miss) = len(pivot), kept(len(pivot), epsilon)
    lift = keep - miss
    away, slope = 1 - pivot - other, 2 * other - 1
    alpha, beta = (1 - lift) / size + lift / 2 * (away + 2 * pivot), lift / 2 * slope
    linear = (away * slope / 2 + beta * (1 - 2 * alpha) / (n * lift**2)).sum()
    square = (slope**2 / 4 - beta**2 / (n * lift**2)).sum()
    return float(np.clip(-linear / (2 * square), 0, 1)) if abs(square) > 1e-12 else 0.5


def corr_rr(people: Codes, size: int, epsilon: float) -> dict[tuple[int, ...], Floats]:
    """Return the margins and pair tables by Corr-RR."""
    order, columns = DRAW.permutation(len(people)), people.shape[1]
    first, rest = np.split(people[order], [round(FIRST * len(people))])
    learnt = tables(spread(first, size, kept(size, epsilon / columns)[0]), size, epsilon / columns)
    pivot, reports = DRAW.integers(0, columns, len(rest)), np.empty_like(rest)
    for j in range(columns):
        own = np.flatnonzero(pivot == j)
        reports[own, j] = spread(rest[own, j], size, kept(size, epsilon)[0])
        for i in set(range(columns)) - {j}:
            reports[own, i] = spread(reports[own, j], size, copying(learnt[j,], learnt[i,], epsilon, len(rest)))
    synthetic, part = tables(reports, size, epsilon), len(first) / len(people)
    return {key: part * learnt[key] + (1 - part) * synthetic[key] for key in learnt}


def ours(people: Codes, size: int, epsilon: str) -> dict[tuple[int, ...], Floats]:
    """Return the margins and pair tables of the estimate ``best`` from the mechanism that the plan names first."""
    names = [f"c{j}" for j in range(people.shape[1])]
    best = plan_tables(registry().mechanisms, dict.fromkeys(names, size), len(people), epsilon)[0].mechanism
    kind = best.partition("(")[0]
    if kind in ("row", "one_of"):
        raise SystemExit(f"the plan prefers {kind}: add it to this benchmark")
    mechanism = made(kind, epsilon=epsilon, columns={name: list(range(size)) for name in names})
    rows = pa.StructArray.from_arrays([pa.array(people[:, j]) for j in range(people.shape[1])], names)
    joint = ldpsql.estimate(ldpsql.perturb(rows, mechanism), mechanism, "best").estimate.reshape([size] * len(names))
    return exact(joint)


def exact(joint: Floats) -> dict[tuple[int, ...], Floats]:
    """Return the margins and pair tables of a joint table."""
    axes = range(joint.ndim)
    wanted = [*((j,) for j in axes), *combinations(axes, 2)]
    return {key: joint.sum(axis=tuple(set(axes) - set(key))) for key in wanted}


def counted(people: Codes, size: int) -> Floats:
    """Return the true joint table."""
    columns = people.shape[1]
    flat = np.ravel_multi_index(tuple(people.T), [size] * columns)
    return (np.bincount(flat, minlength=size**columns) / len(people)).reshape([size] * columns)


def error(got: dict[tuple[int, ...], Floats], truth: dict[tuple[int, ...], Floats], columns: int) -> float:
    """Return the mean squared error of the margins (one column) or pair tables (two)."""
    return float(np.mean([((got[key] - truth[key]) ** 2).mean() for key in truth if len(key) == columns]))


def figures(quick: bool) -> list[Figure]:
    """Return all figures."""
    lines: dict[str, tuple[Codes, int]] = {
        f"{columns} columns of {size} values, copies {copied}": (copies(columns, size, copied), size)
        for columns, size, copied in ((2, 4, 0.0), (2, 4, 0.5), (2, 4, 0.9), (3, 4, 0.9), (4, 2, 0.9))
    }
    if file := public_file("adult_census_income.parquet"):
        lines["Adult, married x sex x income"] = (adult(pl.read_parquet(file)), 2)
    rows = []
    for line, (people, size) in lines.items():
        truth = exact(counted(people, size))
        for epsilon in EPSILONS:
            pairs = [(ours(people, size, epsilon), corr_rr(people, size, float(epsilon))) for _ in range(3 if quick else DRAWS)]
            for columns, what in ((1, "margins"), (2, "pair tables")):
                mine, theirs = (np.mean([error(pair[side], truth, columns) for pair in pairs]) for side in (0, 1))
                said = f"{line}, epsilon {epsilon}: {what}, planned best / Corr-RR"
                rows.append(at_most(said, float(mine / theirs), 1.0) if columns == 2 else Figure(said, float(mine / theirs)))
    return rows


def check() -> Iterator[Figure]:
    """Yield the error of pair tables against Corr-RR."""
    people = copies(2, 4, 0.5)
    truth = exact(counted(people, 4))
    pairs = [(ours(people, 4, "1"), corr_rr(people, 4, 1.0)) for _ in range(30)]
    mine, theirs = (np.mean([error(pair[side], truth, 1) for pair in pairs]) for side in (0, 1))
    yield Figure("2 columns of 4 values, copies 0.5, epsilon 1: margins, planned best / Corr-RR", float(mine / theirs))
