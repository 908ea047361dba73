"""How often the intervals of medians and 90 % quantiles of a hierarchy hold, and how wide they are.

The width is a ratio to that of an oracle, which knows the density at the quantile and the error of the share below it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import Figure, at_most
from ldpsql.estimates.estimate import Estimates
from ldpsql.functions import registry
from ldpsql.inference.operators import Floats
from ldpsql.questions import Quantile, RangeShare
from ldpsql.testing import estimate_counts, operator_of

N, GROUPS = 100_000, 100
LEVELS = (0.5, 0.9)
LEAST, MOST, WIDEST = 0.93, 0.98, 1.5


def shapes(size: int) -> dict[str, Floats]:
    """Return three distributions without empty stretches."""
    x = (np.arange(size) + 0.5) / size
    weights = {"even": np.ones(size), "skewed": x * (1 - x) ** 4, "bell": np.exp(-(((x - 0.5) / 0.15) ** 2) / 2)}
    return {name: weight / weight.sum() for name, weight in weights.items()}


def figures(quick: bool) -> list[Figure]:
    """Return coverage and width for each number of values, epsilon, shape and quantile."""
    rows: list[Figure] = []
    for size in (256, 1024):
        for epsilon in ("0.5", "1", "2"):
            for shape, truth in shapes(size).items():
                for q, (held, width) in zip(LEVELS, measured(epsilon, truth, 4 if quick else 20), strict=True):
                    label = f"{size:,} values, {shape}, epsilon {epsilon}, {q:.0%} quantile"
                    rows.append(Figure(f"{label}: coverage", held, "", f"{LEAST:.0%} to {MOST:.0%}", MOST, LEAST))
                    rows.append(at_most(f"{label}: width against the oracle", width, WIDEST))
    return rows


def measured(epsilon: str, truth: Floats, rounds: int) -> NDArray[np.float64]:
    """Return coverage and relative width of each quantile, shape (quantiles, 2)."""
    rng, mechanism = np.random.default_rng(), registry().mechanism(f"hierarchy({epsilon}, 0, {len(truth) - 1}, step=1)")
    law = operator_of(mechanism).forward(truth[None])[0]
    parts = []
    for _ in range(rounds):
        counts = rng.multinomial(N, law / law.sum(), GROUPS).astype(np.float64)
        parts.append(held_and_width(estimate_counts(mechanism, counts, registry().estimator("inv")), truth))
    return np.mean(parts, axis=0)


def held_and_width(estimates: Estimates, truth: Floats) -> Floats:
    """Return coverage and relative width of each quantile over some groups, shape (quantiles, 2)."""
    quantiles, near = Quantile(q=tuple(LEVELS)).measure(estimates), max(1, len(truth) // 50)
    out = []
    for place, q in enumerate(LEVELS):
        at = int((truth.cumsum() >= q - 1e-12).argmax())
        density = truth[max(0, at - near) : at + near].mean()
        oracle = RangeShare(0, at).measure(estimates).std_error.mean() / density
        low, high = quantiles.low[:, place], quantiles.high[:, place]
        out.append((((low <= at) & (at <= high)).mean(), quantiles.std_error[:, place].mean() / oracle))
    return np.array(out)


def check() -> Iterator[Figure]:
    """Yield widths against those of somebody who knows the density."""
    for shape, truth in shapes(256).items():
        for q, (_, width) in zip(LEVELS, measured("1", truth, 1), strict=True):
            yield Figure(f"256 values, {shape}, epsilon 1, {q:.0%} quantile: width against the oracle", float(width))
