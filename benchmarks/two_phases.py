"""Means of two phases against those of one, with the same epsilon and people: standard errors, and how often intervals hold.

The people of a draw are a random sample, with replacement, of the values of a column of public data. The mechanism for all of
them is the one that `ldpsql.recommend` names for the column, with the same range and steps. A figure of coverage is missed
beyond .93 to .97: by chance about once in 20,000 cells of 2,000 draws, if .95 of the intervals hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

import ldpsql
from benchmarks.figures import Figure, at_least, at_most, public_file, wanted

N, FIRST = 20_000, 0.1
LEAST, MOST = 0.93, 0.97
LARGEST = 1.0
EPSILONS = (1, 2)


class Numbers(NamedTuple):
    """A public column: its values, and the range and the step that the mechanisms declare."""

    values: NDArray[np.int64]
    low: int
    high: int
    step: int


def columns() -> Iterator[tuple[str, Numbers]]:
    """Yield marks, ages, hours, incomes in thousands, and both coordinates of places, as far as their files are there."""
    if file := public_file("ecommerce_clothing_key_rating.parquet"):
        yield "marks", Numbers(pl.read_parquet(file)["rating"].to_numpy().astype(np.int64), 1, 5, 1)
    if file := public_file("adult_census_income.parquet"):
        census = pl.read_parquet(file)
        yield "ages", Numbers(census["age"].to_numpy() // 5 * 5, 15, 90, 5)
        yield "hours", Numbers(census["hours_per_week"].to_numpy() // 5 * 5, 0, 100, 5)
    if file := public_file("irs2013_agi_sample.parquet"):
        yield "incomes", Numbers(pl.read_parquet(file)["a02650_capped"].to_numpy().astype(np.int64) // 10_000 * 10, 0, 200, 10)
    if file := public_file("gowalla_sf_grid_24x16.csv"):
        grid = pl.read_csv(file)
        for name, high in (("x", 23), ("y", 15)):
            yield f"{name} of places", Numbers(np.repeat(grid[name].to_numpy(), grid["n"].to_numpy()), 0, high, 1)


def of_one_phase(column: Numbers) -> pl.DataFrame:
    """Return epsilon, mechanism and standard error of the mechanism that is recommended for everybody.

    Nobody knows the smallest and the largest value before anything is collected, so both ends of the range are in the example.
    """
    places = (np.append(column.values, [column.low, column.high]) - column.low) // column.step
    advice = ldpsql.recommend("mean", N, like=places, epsilons=list(EPSILONS)).filter(pl.col("recommended"))
    return advice.select("epsilon", "mechanism", pl.col("error") * column.step)


def drawn(column: Numbers, epsilon: int, draws: int) -> tuple[float, float]:
    """Return the share of draws whose interval holds the mean of the column, and the mean standard error that they state."""
    rng, truth = np.random.default_rng(), float(column.values.mean())
    general = f"piecewise({epsilon}, {column.low}, {column.high}, step={column.step})"
    held, error = 0, 0.0
    for _ in range(draws):
        people = rng.choice(column.values, N)
        mean = ldpsql.two_phases(people, general, "optimal_mean", share=FIRST, estimator="ems").mean()
        held, error = held + (mean.low <= truth <= mean.high), error + mean.std_error / draws
    return held / draws, error


def figures(quick: bool) -> list[Figure]:
    """Return coverage and standard errors of six columns at two epsilons."""
    rows, draws = [], 100 if quick else 2_000
    for name, column in columns():
        for epsilon, mechanism, error in of_one_phase(column).iter_rows():
            if not wanted(line := f"{name}, epsilon {epsilon:g}"):
                continue
            held, stated = drawn(column, int(epsilon), draws)
            rows.append(at_most(f"{line}: standard error against {mechanism} for everybody", stated / error, LARGEST))
            rows.append(at_least(f"{line}: least coverage of the mean, {draws:,} draws", held, LEAST, ""))
            rows.append(at_most(f"{line}: largest coverage of the mean, {draws:,} draws", held, MOST, ""))
    return rows


def check() -> Iterator[Figure]:
    """Yield standard errors of a few draws against those of one phase."""
    for name, column in columns():
        yield Figure(
            f"{name}, epsilon 1: standard error against one phase", drawn(column, 1, 5)[1] / of_one_phase(column)["error"][0]
        )
