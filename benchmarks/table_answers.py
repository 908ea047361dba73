"""How often 95 % intervals of answers about a table of two columns hold the truth, and p-values where there is no difference.

Each answer is computed from 300 samples of 50,000 people, drawn from a law that the estimates do not see, under k-RR with the
same epsilon for each column. Where the reports do not determine an answer, its interval is all that it can be, and holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from benchmarks.figures import Figure, at_least, at_most
from ldpsql import Likelihood, certify
from ldpsql.estimates.conditions import TableCells
from ldpsql.estimates.estimate import Estimates, estimate_likelihood
from ldpsql.estimates.functionals import Measure
from ldpsql.estimates.tables import Margin, Mean, Share, difference
from ldpsql.functions import registry
from ldpsql.inference.operators import Floats, operator

EPSILONS, PEOPLE, DRAWS = ("0.5", "1", "2", "4"), 50_000, 300
SCHOOLS = np.array([0.3, 0.3, 0.2, 0.15, 0.05])
AGES = np.arange(8)
LEAST, MOST = 0.93, 0.975
DRAW = np.random.default_rng(1954)


def law() -> Floats:
    """Return the share of each school and age: the ages of a school are a binomial that rises with the school."""
    chance = 0.2 + 0.1 * np.arange(5)[:, None]
    binomial = np.array([1, 7, 21, 35, 35, 21, 7, 1]) * chance**AGES * (1 - chance) ** (7 - AGES)
    return SCHOOLS[:, None] * binomial


TRUTH = law()
GIVEN = TRUTH / TRUTH.sum(axis=1, keepdims=True)


def sampled(epsilon: str, draws: int, truth: Floats) -> Estimates:
    """Return the estimates of samples."""
    mechanism = registry().mechanism(f"row(school=krr({epsilon}, [0, 1, 2, 3, 4]), age=krr({epsilon}, {AGES.tolist()}))")
    own = operator(certify(mechanism).response)
    counts = DRAW.multinomial(PEOPLE, own.forward(truth.ravel()), draws).astype(np.float64)
    return estimate_likelihood(mechanism, Likelihood(own, counts), registry().estimator("ibu(tolerance=1e-6)"))


class Held(NamedTuple):
    """How many intervals hold the truth and how many there are; the same of those that the reports determine."""

    inside: int
    all: int
    determined_inside: int
    determined: int


def held(measure: Measure, truth: Floats | float) -> Held:
    """Return how many intervals hold the truth."""
    inside = (measure.low <= truth + 1e-12) & (measure.high >= np.asarray(truth) - 1e-12)
    determined = np.isfinite(measure.std_error)
    return Held(int(inside.sum()), inside.size, int((inside & determined).sum()), int(determined.sum()))


def answers(estimates: Estimates) -> Iterator[tuple[str, Held]]:
    """Yield each kind of answer with how many intervals hold the truth."""
    yield "cells", held(Margin(()).measure(estimates), TRUTH.ravel())
    yield "margins", held(Margin((1,)).measure(estimates), TRUTH.sum(axis=0))
    yield "conditional shares", held(Margin((0, 1), (0,)).measure(estimates), GIVEN.ravel())
    old = TableCells(((1, (4, 5, 6, 7)),))
    for school in range(5):
        given = TableCells(((0, (school,)),))
        yield "conditional means", held(Mean(1, given).measure(estimates), GIVEN[school] @ AGES)
        if school:
            before, apart = TableCells(((0, (school - 1,)),)), GIVEN[school] - GIVEN[school - 1]
            share = difference(estimates, Share(old, given), estimates, Share(old, before))
            mean = difference(estimates, Mean(1, given), estimates, Mean(1, before))
            yield "differences of shares", held(share, apart[4:].sum())
            yield "differences of means", held(mean, apart @ AGES)


def figures(quick: bool) -> list[Figure]:
    """Return the coverage of each kind of answer at each epsilon, and how often a difference that is none has p < .05."""
    draws, out = 30 if quick else DRAWS, []
    for epsilon in EPSILONS:
        total: dict[str, Held] = {}
        for kind, one in answers(sampled(epsilon, draws, TRUTH)):
            total[kind] = Held(*(np.add(total[kind], one).tolist() if kind in total else one))
        for kind, one in total.items():
            label = f"epsilon={epsilon} a column: coverage of {kind}"
            out.append(at_least(label, one.inside / one.all, LEAST, ""))
            out.append(at_most(f"{label} that are determined", one.determined_inside / max(one.determined, 1), MOST, ""))
        alike = sampled(epsilon, draws, SCHOOLS[:, None] * TRUTH.sum(axis=0))
        one, other = (Share(TableCells(((1, (4, 5, 6, 7)),)), TableCells(((0, (school,)),))) for school in (0, 2))
        below = float((difference(alike, one, alike, other).p_value < 0.05).mean())
        out.append(at_most(f"epsilon={epsilon} a column: share of p-values below .05 without a difference", below, 0.09, ""))
    return out


def check() -> Iterator[Figure]:
    """Yield root mean squares of errors in stated standard errors, of samples with a fixed seed: they should be 1."""
    estimates, old = sampled("2", 100, TRUTH), TableCells(((1, (4, 5, 6, 7)),))
    for school in (0, 4):
        given = TableCells(((0, (school,)),))
        for what, number, truth in (
            ("conditional share", Share(old, given), GIVEN[school, 4:].sum()),
            ("conditional mean", Mean(1, given), GIVEN[school] @ AGES),
        ):
            measure = number.measure(estimates)
            far = (measure.estimate - truth) / measure.std_error
            yield Figure(f"school {school}: {what}, root mean square in standard errors", float(np.sqrt((far**2).mean())))
