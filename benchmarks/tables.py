"""Tables of several columns through k-RR for each column: the error of ``best`` against other ways to estimate them.

Adult (48,842 persons), total variation to the shares among these persons, mean of draws. The ways are the inversion, maximum
likelihood, EM stopped by held-out reports, the product of the margins, and Fay-Herriot shrinkage of the inversion to it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

import ldpsql
from benchmarks.figures import Figure, at_most, public_file
from benchmarks.several_columns import LARGE, shares, split
from ldpsql.functions import registry
from ldpsql.inference.counting import column_likelihood
from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.operators import Floats
from ldpsql.inference.outcome import simplex_projection

LINES = (
    (("education", "sex"), (1, 2)),
    (("education", "income"), (1,)),
    (("education", "occupation"), (1, 2)),
    (("age", "occupation"), (2, 4)),
    (("education", "occupation", "sex"), (1, 2)),
    (LARGE, (2, 4)),
)
ML = "ibu(tolerance=0.001)"
WAYS = ("inv_p", ML, "ibu(stop='held_out')", "independent(stop=0)")
DRAWS, DRAWS_OF_LARGE, MANY = 20, 3, 5_000
WORST, MEAN, TREE = 1.03, 0.8, 0.30


def fay_herriot(one: Likelihood, product: Floats) -> Floats:
    """Return the inversion shrunk to the product of the margins; the variance around it is in proportion to the product.

    The factor is that of the moment equation of Fay and Herriot, by bisection.
    """
    away, model = one.operator.invert(one.shares)[0] - product[0], np.maximum(product[0], 1e-12)
    noise = one.operator.inverted_interval(one.shares, one.n, product, 1.0)[0][0] ** 2
    low, high = 0.0, 1e3
    for _ in range(80):
        factor = (low + high) / 2.0
        spread = factor * model
        more = (model * (away**2 - noise - spread) / (noise + spread) ** 2).sum() > 0
        low, high = (factor, high) if more else (low, factor)
    return simplex_projection((product[0] + low * model / (noise + low * model) * away)[None])


def fitted(name: str, one: Likelihood) -> Floats:
    """Return the estimate of a group."""
    return registry().estimator(name).fit(one).theta


def errors(people: pl.DataFrame, columns: tuple[str, ...], epsilon: float, draws: int) -> dict[str, float]:
    """Return the mean error of each way."""
    mechanism = split(people, columns, str(epsilon))
    rows = people.select(columns).to_struct("row").to_arrow()
    truth, each = shares(mechanism, rows), dict[str, list[float]]()
    names = (*WAYS, *(["tree"] if len(columns) > 2 else []), "best")
    for _ in range(draws):
        one = column_likelihood(ldpsql.perturb(rows, mechanism), mechanism)
        thetas = {name: fitted(name, one) for name in names}
        thetas["shrunk"] = fay_herriot(one, thetas["independent(stop=0)"])
        for name, theta in thetas.items():
            each.setdefault(name, []).append(float(np.abs(theta[0] - truth).sum() / 2))
    return {name: float(np.mean(values)) for name, values in each.items()}


def lines(people: pl.DataFrame, *, quick: bool) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the errors of each line."""
    for columns, epsilons in LINES:
        large = int(np.prod([people[name].n_unique() for name in columns])) > MANY
        for epsilon in epsilons:
            draws = 1 if quick else DRAWS_OF_LARGE if large else DRAWS
            yield f"{' x '.join(columns)}, epsilon {epsilon}", errors(people, columns, epsilon, draws)


def figures(quick: bool) -> list[Figure]:
    """Return all figures."""
    adult = public_file("adult_census_income.parquet")
    if adult is None:
        return []
    rows, against = [], []
    for what, error in lines(pl.read_parquet(adult), quick=quick):
        rows += [Figure(f"{what}: {name}, TV", value, "") for name, value in error.items()]
        least = min(error[name] for name in (*WAYS, "shrunk"))
        rows.append(at_most(f"{what}: best / best of the ways", error["best"] / least, WORST))
        against.append(error["best"] / error[ML])
        if what.startswith(LARGE[0]) and what.endswith("2"):
            rows.append(at_most(f"{what}: tree, TV", error["tree"], TREE, ""))
    return [*rows, at_most("all tables: best / maximum likelihood, mean", float(np.mean(against)), MEAN)]


def check() -> Iterator[Figure]:
    """Yield the error of ``best`` against other ways."""
    if adult := public_file("adult_census_income.parquet"):
        error = errors(pl.read_parquet(adult), ("education", "sex"), 1, 5)
        for name in WAYS[:2]:
            yield Figure(f"education x sex, epsilon 1: best / {name}", error["best"] / error[name])
