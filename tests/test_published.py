"""Mechanisms against programs written from the papers alone: nothing of ldpsql computes the laws that are expected."""

from __future__ import annotations

from itertools import chain, combinations, product
from math import exp, sqrt

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import chi2

import ldpsql
from ldpsql.functions import registry
from ldpsql.testing import enumerated

DRAWS = 30_000


def piecewise(ratio: float, value: float, bins: int) -> tuple[NDArray[np.float64], float]:
    """Return the chances of reports in equal bins, and of one outside of the window: Wang et al., ICDE 2019, algorithm 2."""
    root = sqrt(ratio)
    reach = (root + 1) / (root - 1)
    high = (ratio - root) / (2 * root + 2)
    left = (reach + 1) / 2 * value - (reach - 1) / 2
    ends = np.linspace(-reach, reach, bins + 1)
    inside = np.clip(np.minimum(ends[1:], left + reach - 1) - np.maximum(ends[:-1], left), 0, None)
    low = high / ratio * np.diff(ends)
    return low + (high - high / ratio) * inside, float(low[0])


@pytest.mark.parametrize(("padding", "epsilon"), [(1, 1.0), (2, 2.0), (3, 0.5)])
def test_reports_of_pckv_pm_follow_the_piecewise_mechanism_of_a_pair_of_the_padded_set(padding: int, epsilon: float) -> None:
    """Ye et al., NDSS 2025, V-C, with R = 1 + padding (e^epsilon - 1); one in 10^6 such tests of 30,000 reports fails.

    The key of the pair is reported with a number of the piecewise mechanism for ln R, and any other key with any number, each
    as rarely as the rarest of these.
    """
    keys, bins, held = ["a", "b", "c"], 16, [("a", 11 / 16), ("c", -5 / 16)]  # the centres of two bins
    ratio, names = 1 + padding * (exp(epsilon) - 1), [*keys, *(None for _ in range(padding))]
    pairs: list[tuple[str | None, float | None]] = [*held, *((None, None) for _ in range(padding - len(held)))]
    law: dict[tuple[str | None, int | None], float] = dict.fromkeys(product({*keys, None}, range(bins)), 0.0)
    for key, value in pairs:
        near, low = piecewise(ratio, 0.0 if value is None else value, bins)
        total = 1 + (len(names) - 1) * bins * low  # the numbers of the own key, and those of all others
        for name, at in product(names, range(bins)):
            law[name, at] += (near[at] if name == key and key is not None else low) / total / len(pairs)
        for at in range(bins) if key is None else ():  # a dummy's own numbers are reported as no key
            law[None, at] += (near[at] - low) / total / len(pairs)
    set_of = [{"key": key, "value": value} for key, value in held]
    reports = ldpsql.perturb([set_of] * DRAWS, f"pckv_pm({epsilon}, {keys}, padding={padding}, bins={bins})").to_pylist()
    expected: dict[tuple[str | None, int | None], float] = {
        (key, at): share for (key, at), share in law.items() if key is not None
    }
    expected[None, None] = sum(share for (key, _), share in law.items() if key is None)
    assert sum(expected.values()) == pytest.approx(1)
    seen = dict.fromkeys(expected, 0)
    for report in reports:
        seen[report["key"], report["bin"]] += 1
    far = sum((seen[at] - DRAWS * share) ** 2 / (DRAWS * share) for at, share in expected.items())
    assert far < chi2.isf(1e-6, len(expected) - 1)


POINTS = [(0.0, 0.0, 0.0), (1.0, 0.0, 0.0), (0.0, 2.0, 0.0), (0.5, 0.5, 1.0), (1.0, 1.0, -1.0), (3.0, 0.0, 0.5)]


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.01), (0.3, 0.001), (3.0, 0.1)])
def test_the_gaussian_mechanism_on_points_has_the_smallest_deviation_by_the_definition_of_delta(
    epsilon: float, delta: float
) -> None:
    """Delta is the largest P(S|x) - e^epsilon P(S|x') over all pairs of points and all sets S of reports, listed one by one."""
    size, at = len(POINTS), np.array(POINTS)
    listed = chain.from_iterable(combinations(range(size), count) for count in range(size + 1))
    sets = np.array([[report in chosen for report in range(size)] for chosen in map(set, listed)], dtype=np.float64)

    def chances(deviation: float) -> NDArray[np.float64]:
        weights = np.exp(-((at[:, None] - at) ** 2).sum(axis=2) / (2 * deviation**2))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def beyond(deviation: float) -> float:
        within = chances(deviation) @ sets.T
        return float((within[:, None] - exp(epsilon) * within).max()) - delta

    smallest = brentq(beyond, 0.05, 200, xtol=1e-12)
    spec = {"mechanism": "gaussian_points", "epsilon": epsilon, "delta": delta, "domain": list(range(size))}
    mechanism = registry().mechanism({**spec, "points": [list(point) for point in POINTS]})
    assert enumerated(mechanism).probabilities == pytest.approx(chances(smallest), rel=1e-4)
