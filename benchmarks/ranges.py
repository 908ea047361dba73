"""Random ranges of real numbers: the hierarchy against published ones, written from their paper, and against a square wave.

HH and HaarHRR are those of Cormode, Kulkarni, Srivastava, "Answering range queries under local differential privacy", VLDB
2019: fanout 5 with unary encoding and consistency, and Haar coefficients by Hadamard responses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import exp
from time import monotonic
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy.linalg import hadamard

from benchmarks.figures import DATA, Figure, at_most
from ldpsql.estimates.estimate import estimate_column
from ldpsql.functions import registry
from ldpsql.inference.operators.base import Parents, Tree
from ldpsql.mechanisms.base import Mechanism, certify

FANOUT, RANGES, LEAST = 5, 200, 4
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Shares = Callable[[Ints, float, np.random.Generator], Floats]


class Effort(NamedTuple):
    """The most trials of a way, and about how many seconds they may take."""

    trials: int
    seconds: float


def hh(values: Ints, leaves: int, epsilon: float, rng: np.random.Generator) -> Floats:
    """Return the shares of the leaves by HH with unary encoding and consistency."""
    levels = next(h for h in range(1, 64) if FANOUT**h >= leaves)
    level, miss = rng.integers(0, levels, len(values)), 1 / (exp(epsilon) + 1)
    parents, measured = [], []
    for h in range(levels):
        nodes, own = FANOUT ** (levels - h), values[level == h] // FANOUT**h
        counts = np.bincount(own, minlength=nodes)
        bits = rng.binomial(counts, 0.5) + rng.binomial(len(own) - counts, miss)
        measured.append((bits / len(own) - miss) / (0.5 - miss))
        parents.append(Parents(np.arange(nodes) // FANOUT, nodes // FANOUT))
    return Tree(parents, [np.ones_like(one) for one in measured]).solved(measured, 1.0)


def haar(values: Ints, leaves: int, epsilon: float, rng: np.random.Generator) -> Floats:
    """Return the shares of the leaves by HaarHRR."""
    levels = max(1, (leaves - 1).bit_length())
    level, truth = rng.integers(0, levels, len(values)), 1 / (1 + exp(-epsilon))
    shares = np.ones(1)
    for h in reversed(range(levels)):
        nodes, own = 2 ** (levels - h - 1), values[level == h]
        table = hadamard(nodes)
        rows = rng.integers(0, nodes, len(own))
        signs = np.where((own >> h) & 1, -1, 1) * table[rows, own >> (h + 1)]
        signs = np.where(rng.random(len(own)) < truth, signs, -signs)
        coefficients = table @ np.bincount(rows, signs, nodes) / ((2 * truth - 1) * len(own))
        shares = np.stack([shares + coefficients, shares - coefficients], axis=1).ravel() / 2
    return shares


def by(mechanism: Mechanism, values: Ints, estimator: str) -> Floats:
    """Return the shares that a mechanism and an estimator give of values, which are positions."""
    column = certify(mechanism).values.listed.values.take(pa.array(values))
    return estimate_column(certify(mechanism).perturb(column), mechanism, registry().estimator(estimator)).estimate


def columns() -> dict[str, tuple[Ints, int]]:
    """Return each column as positions, with the number of values."""
    adult = pq.read_table(DATA / "adult_census_income.parquet")
    income = pq.read_table(DATA / "irs2013_agi_sample.parquet")["a02650_capped"].to_numpy()
    return {
        "ages": (adult["age"].to_numpy().astype(np.int64) - 17, 74),
        "hours": (adult["hours_per_week"].to_numpy().astype(np.int64) - 1, 99),
        "income": (np.minimum(income * 1024 // 200_000, 1023).astype(np.int64), 1024),
    }


def repeated(error: Callable[[], float], effort: Effort) -> float:
    """Return the mean over many trials, at least `LEAST`, of a way that takes long as many as there is time for."""
    end, out = monotonic() + effort.seconds, [error() for _ in range(LEAST)]
    while len(out) < effort.trials and monotonic() < end:
        out.append(error())
    return float(np.mean(out))


def errors(values: Ints, leaves: int, epsilon: str, effort: Effort, rng: np.random.Generator) -> dict[str, float]:
    """Return the mean squared error of random ranges by each way."""
    ends = np.sort(rng.integers(0, leaves + 1, (RANGES, 2)), axis=1)

    def shares_of(theta: Floats) -> Floats:
        running = np.pad(theta.cumsum(), (1, 0))
        return np.asarray(running[ends[:, 1]] - running[ends[:, 0]])

    truth = shares_of(np.bincount(values, minlength=leaves) / len(values))
    tree = registry().mechanism(f"hierarchy({epsilon}, 1, {leaves}, step=1)")
    wave = registry().mechanism(f"square_wave({epsilon}, 1, {leaves}, step=1)")
    ways: dict[str, Callable[[], Floats]] = {
        "hierarchy, inv": lambda: by(tree, values, "inv"),
        "hierarchy, ibu": lambda: by(tree, values, "ibu"),
        "HH": lambda: hh(values, leaves, float(epsilon), rng),
        "HaarHRR": lambda: haar(values, leaves, float(epsilon), rng),
        "square_wave, ems": lambda: by(wave, values, "ems"),
    }

    def error(way: Callable[[], Floats]) -> float:
        return float(np.mean((shares_of(way()) - truth) ** 2))

    return {name: repeated(partial(error, way), effort) for name, way in ways.items()}


def figures(quick: bool) -> list[Figure]:
    """Return the ratios of mean squared errors."""
    rng, effort = np.random.default_rng(), Effort(100, 3.0) if quick else Effort(400, 60.0)
    rows: list[Figure] = []
    if not DATA.is_dir():
        return rows
    for column, (values, leaves) in columns().items():
        for epsilon in ("0.5", "1", "2"):
            error = errors(values, leaves, epsilon, effort, rng)
            best, label = min(error["HH"], error["HaarHRR"]), f"{column}, epsilon {epsilon}: squared error of ranges,"
            ratios = {way: error[f"hierarchy, {way}"] / best for way in ("ibu", "inv")}
            rows += [at_most(f"{label} ibu / the better of HH and HaarHRR", ratios["ibu"], 0.95)]
            rows += [Figure(f"{label} inv / the better of HH and HaarHRR", ratios["inv"])]
            rows.append(Figure(f"{label} HaarHRR / HH", error["HaarHRR"] / error["HH"]))
            rows.append(Figure(f"{label} ibu / square_wave with ems", error["hierarchy, ibu"] / error["square_wave, ems"]))
    return rows


def check() -> Iterator[Figure]:
    """Yield the error of random ranges against HH."""
    if DATA.is_dir():
        values, leaves = columns()["ages"]
        error = errors(values, leaves, "1", Effort(40, 5.0), np.random.default_rng(7))
        yield Figure("ages, epsilon 1: squared error of ranges, ibu / HH", error["hierarchy, ibu"] / error["HH"])
