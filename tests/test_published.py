"""Mechanisms against programs written from the papers alone: nothing of ldpsql computes the laws that are expected."""

from __future__ import annotations

from itertools import chain, combinations, product
from math import exp, log, sqrt

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


def spent(ratio: float, bins: int, padding: int) -> tuple[float, float]:
    """Return the epsilon that a pair of the padded set spends in bins, and what raises its window to ``ratio``.

    A bin that is wider than the window is nowhere as dense as the window, so that reports in bins spend less.
    """
    near, low = zip(*(piecewise(ratio, (2 * at + 1) / bins - 1, bins) for at in range(bins)), strict=True)
    most = float(np.max(near)) / low[0]
    return log(1 + (most - 1) / padding), (ratio - 1) / (most - 1)


@pytest.mark.parametrize(("bins", "padding", "epsilon", "binned"), [(16, 2, 2.0, 2.0), (4, 2, 2.0, 1.829), (4, 3, 4.0, 2.811)])
def test_a_bin_wider_than_the_window_leaves_epsilon_unspent(bins: int, padding: int, epsilon: float, binned: float) -> None:
    """The density of algorithm 2, integrated numerically in each bin; ldpsql raises the window until epsilon is spent."""
    ratio = 1 + padding * (exp(epsilon) - 1)
    assert spent(ratio, bins, padding)[0] == pytest.approx(binned, abs=5e-4)
    root = sqrt(ratio)
    reach, high = (root + 1) / (root - 1), (ratio - root) / (2 * root + 2)
    at = np.linspace(-reach, reach, 100 * bins * 64 + 1)
    middle = (at[1:] + at[:-1]) / 2
    for value in (2 * np.arange(bins) + 1) / bins - 1:
        left = (reach + 1) / 2 * value - (reach - 1) / 2
        density = np.where((middle >= left) & (middle <= left + reach - 1), high, high / ratio)
        integrated = (density * np.diff(at)).reshape(bins, -1).sum(axis=1)
        assert piecewise(ratio, value, bins)[0] == pytest.approx(integrated, rel=1e-3)
    spec = f"pckv_pm({epsilon}, ['a', 'b'], padding={padding}, bins={bins})"
    assert ldpsql.certify(registry().mechanism(spec)).epsilon == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize(("padding", "epsilon", "bins"), [(1, 1.0, 16), (2, 2.0, 16), (3, 0.5, 16), (2, 2.0, 4)])
def test_reports_of_pckv_pm_follow_the_piecewise_mechanism_of_a_pair_of_the_padded_set(
    padding: int, epsilon: float, bins: int
) -> None:
    """Ye et al., NDSS 2025, V-C, with R = 1 + padding (e^epsilon - 1); one in 10^6 such tests of 30,000 reports fails.

    The key of the pair is reported with a number of the piecewise mechanism for ln R, and any other key with any number, each
    as rarely as the rarest of these. In bins wider than the window, numbers near the value are raised to R times the others.
    """
    keys, held = ["a", "b", "c"], [("a", bins * 13 // 16), ("c", bins * 5 // 16)]
    ratio, names = 1 + padding * (exp(epsilon) - 1), [*keys, *(None for _ in range(padding))]
    raised = spent(ratio, bins, padding)[1]
    pairs: list[tuple[str | None, int | None]] = [*held, *((None, None) for _ in range(padding - len(held)))]
    law: dict[tuple[str | None, int | None], float] = dict.fromkeys(product({*keys, None}, range(bins)), 0.0)
    for key, place in pairs:
        near, low = piecewise(ratio, 0.0 if place is None else (2 * place + 1) / bins - 1, bins)
        near = low + raised * (near - low)
        total = near.sum() + (len(names) - 1) * bins * low  # the numbers of the own key, and those of all others
        for name, at in product(names, range(bins)):
            law[name, at] += (near[at] if name == key and key is not None else low) / total / len(pairs)
        for at in range(bins) if key is None else ():  # a dummy's own numbers are reported as no key
            law[None, at] += (near[at] - low) / total / len(pairs)
    set_of = [{"key": key, "value": (2 * place + 1) / bins - 1} for key, place in held]
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
