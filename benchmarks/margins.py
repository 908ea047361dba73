"""All eleven columns of Adult, column by column: the mean squared error against published ways to spend one epsilon.

The others are written from Arcolezi, Couchot, Al Bouna, Xiao, "Random sampling plus fake data", CIKM 2021 (RS+FD, and SPL and
SMP as they are there), each with its adaptive choice between k-RR and OUE by the smaller variance, and with negative shares cut
off and the rest scaled, as multi-freq-ldpy does.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import exp, log

import numpy as np
import polars as pl

import ldpsql
from benchmarks.figures import Figure, at_most, public_file
from benchmarks.several_columns import domain, made
from ldpsql.estimates.planning import expected_error
from ldpsql.inference.operators import Floats

DRAW = np.random.default_rng()  # of the published ways only
EPSILONS, DRAWS = (1, 2, 4), 20
PARTS = ("krr", "oue", "olh", "subset_selection")


def kept(size: int, epsilon: float) -> tuple[float, float]:
    """Return with which chances k-RR reports a value: its own, and another."""
    return exp(epsilon) / (exp(epsilon) + size - 1), 1 / (exp(epsilon) + size - 1)


def bits(epsilon: float) -> tuple[float, float]:
    """Return with which chances OUE sets a bit: that of the value, and of another."""
    return 0.5, 1 / (exp(epsilon) + 1)


def krr_counts(held: Floats, epsilon: float) -> Floats:
    """Return the counts of the reports of k-RR."""
    size, (keep, miss) = len(held), kept(len(held), epsilon)
    own = DRAW.binomial(held.astype(int), keep - miss)
    return own + DRAW.multinomial(int(held.sum() - own.sum()), np.full(size, 1 / size))


def oue_counts(held: Floats, epsilon: float) -> Floats:
    """Return how many reports of OUE set each bit."""
    hit, miss = bits(epsilon)
    return DRAW.binomial(held.astype(int), hit) + DRAW.binomial((held.sum() - held).astype(int), miss)


def adaptive(held: Floats, epsilon: float) -> Floats:
    """Return the unbiased shares by k-RR or OUE, the one with the smaller variance."""
    size, n = len(held), held.sum()
    krr = size < 3 * exp(epsilon) + 2
    hit, miss = kept(size, epsilon) if krr else bits(epsilon)
    counts = krr_counts(held, epsilon) if krr else oue_counts(held, epsilon)
    return np.asarray((counts / n - miss) / (hit - miss))


def some(held: Floats, columns: int) -> Floats:
    """Return who of the people of each value draws this column."""
    return DRAW.binomial(held.astype(int), 1 / columns).astype(np.float64)


def split(held: Floats, columns: int, epsilon: float) -> Floats:
    """Return the shares by SPL: all columns, each by its part of epsilon."""
    return adaptive(held, epsilon / columns)


def sampled(held: Floats, columns: int, epsilon: float) -> Floats:
    """Return the shares by SMP: one column a person with all of epsilon."""
    return adaptive(some(held, columns), epsilon)


def faked(held: Floats, columns: int, epsilon: float) -> Floats:
    """Return the shares by RS+FD: one column a person, uniform fake reports of the others, and an epsilon that gains by it.

    The people who fake a column report a uniform value (k-RR), or OUE of no value (OUE-z): equations 4 and 6 of the paper.
    """
    n, size, own = held.sum(), len(held), some(held, columns)
    more, fakes = log(columns * (exp(epsilon) - 1) + 1), int(held.sum() - own.sum())
    by_krr, by_oue = (variance(size, columns, *pair, fake) for pair, fake in fakings(size, more))
    (hit, miss), fake = fakings(size, more)[0 if by_krr <= by_oue else 1]
    if by_krr <= by_oue:
        counts = krr_counts(own, more) + DRAW.multinomial(fakes, np.full(size, 1 / size))
    else:
        counts = oue_counts(own, more) + DRAW.binomial(fakes, miss, size)
    return np.asarray((columns * counts / n - miss - (columns - 1) * fake) / (hit - miss))


def fakings(size: int, epsilon: float) -> list[tuple[tuple[float, float], float]]:
    """Return for k-RR and OUE the chances of a value's report, and that of a fake one."""
    return [(kept(size, epsilon), 1 / size), (bits(epsilon), bits(epsilon)[1])]


def variance(size: int, columns: int, hit: float, miss: float, fake: float) -> float:
    """Return n times the variance of the share of a value that occurs as often as the others."""
    chance = (miss + (hit - miss) / size + (columns - 1) * fake) / columns
    return columns**2 * chance * (1 - chance) / (hit - miss) ** 2


def ours(people: pl.DataFrame, epsilon: int) -> dict[str, float]:
    """Return the mean squared errors of reports of one column a person, by the unbiased inversion and by ``best``."""
    parts = {name: planned(domain(people, name), epsilon) for name in people.columns}
    mechanism = made("one_of", columns=parts)
    reports = ldpsql.perturb(people.to_struct("row").to_arrow(), mechanism)
    out: dict[str, list[float]] = {"inv": [], "best": []}
    for name, part in parts.items():
        truth = shares_of(people, name)
        for estimator, errors in out.items():
            estimate = ldpsql.estimate(reports.field(name), part, estimator).estimate
            errors.append(float(((estimate - truth) ** 2).mean()))
    return {f"one_of, {estimator}": float(np.mean(errors)) for estimator, errors in out.items()}


def planned(values: list[object], epsilon: int) -> ldpsql.Mechanism:
    """Return the mechanism for a column whose shares have the smallest expected error."""
    each = [made(name, epsilon=str(epsilon), domain=values) for name in PARTS]
    return min(each, key=lambda one: expected_error(one, 1 << 40).std_error or np.inf)


def shares_of(people: pl.DataFrame, name: str) -> Floats:
    """Return the share of every value of a column."""
    counted = people[name].value_counts().sort(name)["count"].to_numpy()
    return np.asarray(counted / counted.sum())


def scaled(theta: Floats) -> Floats:
    """Return the shares without negative ones, so that they sum to one."""
    positive = np.maximum(theta, 0.0)
    return np.asarray(positive / positive.sum())


def distance(estimates: list[Floats], truths: list[Floats]) -> float:
    """Return the mean over the columns of the mean squared error."""
    return float(np.mean([((theta - truth) ** 2).mean() for theta, truth in zip(estimates, truths, strict=True)]))


def figures(quick: bool) -> list[Figure]:
    """Return all figures."""
    adult = public_file("adult_census_income.parquet")
    if adult is None:
        return []
    people, rows, ways = pl.read_parquet(adult), [], {"SPL": split, "SMP": sampled, "RS+FD": faked}
    truths = [shares_of(people, name) for name in people.columns]
    for epsilon in EPSILONS:
        each: dict[str, list[float]] = {}
        for _ in range(3 if quick else DRAWS):
            for name, way in ways.items():
                got = [way(truth * len(people), len(truths), epsilon) for truth in truths]
                each.setdefault(f"{name}, unbiased", []).append(distance(got, truths))
                each.setdefault(name, []).append(distance(list(map(scaled, got)), truths))
            for name, error in ours(people, epsilon).items():
                each.setdefault(name, []).append(error)
        mean = {name: float(np.mean(errors)) for name, errors in each.items()}
        rows += [Figure(f"epsilon {epsilon}: {name}, mean squared error", error * 1e6, "e-6") for name, error in mean.items()]
        least = min(mean[name] for name in ways)
        rows.append(at_most(f"epsilon {epsilon}: one_of, best / best of SPL, SMP, RS+FD", mean["one_of, best"] / least, 1.0))
    return rows


def check() -> Iterator[Figure]:
    """Yield the error of column after column against RS+FD."""
    if adult := public_file("adult_census_income.parquet"):
        people = pl.read_parquet(adult)
        truths = [shares_of(people, name) for name in people.columns]
        theirs = [distance([scaled(faked(one * len(people), len(truths), 1)) for one in truths], truths) for _ in range(10)]
        mine = [ours(people, 1)["one_of, best"] for _ in range(3)]
        yield Figure("epsilon 1: one_of, best / RS+FD", float(np.mean(mine) / np.mean(theirs)))
