"""Errors of means, medians and ranges under mechanisms for numbers, with default bins, and how often the intervals hold."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import NormalDist
from time import process_time

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import Figure, at_least, at_most
from ldpsql.estimates.functionals import _between_bounds
from ldpsql.functions import registry
from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.operators import Operator
from ldpsql.questions import Mean, Quantile, RangeShare
from ldpsql.testing import estimate_counts, operator_of

N = 100_000
LEAST, MOST = 0.93, 0.97
LARGEST = {"square_wave": 0.36, "piecewise": 0.36, "stochastic_rounding": 0.36, "hybrid": 0.34}
Z = NormalDist().inv_cdf(0.975)


def shapes(size: int) -> dict[str, NDArray[np.float64]]:
    """Return three distributions over the range: even, skewed, and three spikes."""
    x = (np.arange(size) + 0.5) / size
    spikes = np.zeros(size)
    spikes[[size // 10, size // 2, size - 3]] = 0.6, 0.3, 0.1
    return {
        name: weight / weight.sum()
        for name, weight in {"even": np.ones(size), "skewed": x * (1 - x) ** 4, "spikes": spikes}.items()
    }


def figures(quick: bool) -> list[Figure]:
    """Return standard errors and widths for a range of 100 at epsilon 1, and coverage of the mean."""
    rng, rows = np.random.default_rng(), []
    for name, most in LARGEST.items():
        spec = registry().mechanism(f"{name}(1, 0, 100)")
        operator = operator_of(spec)
        theta = shapes(operator.inputs)
        counts = N * operator.forward(theta["skewed"][None])
        estimates = estimate_counts(spec, counts, registry().estimator("ibu"))
        began = process_time()
        measured = Mean().measure(estimates)
        first = process_time() - began
        rows.append(at_most(f"{name}, n = {N:,}: standard error of the mean", float(measured.std_error[0]), most, "of 100"))
        rows.append(Figure(f"{name}: first mean, CPU", first, "s"))
        if name != "stochastic_rounding":
            median, share = Quantile(q=0.5).measure(estimates), RangeShare(20, 40).measure(estimates)
            rows.append(
                Figure(
                    f"{name}: width of the interval of the median", float((median.high - median.low)[0]) * 100 / operator.inputs
                )
            )
            rows.append(
                Figure(f"{name}: width of the interval of the share of 20 to 40", float((share.high - share.low)[0]), "of 1")
            )
        for shape, truth in theta.items():
            held = coverage(operator, truth, rng, 1_000 if quick else 10_000)
            rows.append(at_least(f"{name}, {shape}: smallest coverage of the mean", min(held), LEAST, ""))
            rows.append(at_most(f"{name}, {shape}: largest coverage of the mean", max(held), MOST, ""))
    return rows


def coverage(operator: Operator, truth: NDArray[np.float64], rng: np.random.Generator, draws: int) -> tuple[float, float]:
    """Return how often the interval of the mean holds it, if all numbers are the centres of their bins, and their left ends."""
    weights, x, off = operator.bounding_weights, (np.arange(operator.inputs) + 0.5) / operator.inputs, 0.5 / operator.inputs
    assert weights is not None
    held = np.zeros(2)
    for _ in range(0, draws, 1_000):
        counts = rng.multinomial(N, operator.forward(truth[None])[0], 1_000).astype(np.float64)
        at_truth = np.broadcast_to(truth, (1_000, operator.inputs))
        ends = _between_bounds(Likelihood(operator, counts), weights, at_truth, x[:, None], Z, sets=False, off=off)
        means = truth @ x - np.array([0.0, off])
        held += ((ends.low <= means) & (means <= ends.high)).sum(axis=0)
    return float(held[0] / draws), float(held[1] / draws)


def check() -> Iterator[Figure]:
    """Yield standard errors of the mean for a range of 1 at epsilon 1, which follow from the channel."""
    for name in LARGEST:
        spec = registry().mechanism(f"{name}(1, 0, 100)")
        operator = operator_of(spec)
        counts = N * operator.forward(shapes(operator.inputs)["skewed"][None])
        measured = Mean().measure(estimate_counts(spec, counts, registry().estimator("ibu")))
        yield Figure(f"{name}, n = {N:,}: standard error of the mean", float(measured.std_error[0]) / 100)
