"""Tables of weights that a few whole numbers determine: as the formulas say, and never taken for another table."""

from __future__ import annotations

import numpy as np
import pytest

from ldpsql import DenseChannel
from ldpsql.channels.dense import two_reports
from ldpsql.clients.module import moving, noise
from ldpsql.mechanisms import TOTAL, Convolution, Window, window

CASES = [
    (bins, grown, share)
    for bins in (2, 3, 20, 300)
    for grown in (1e-9, 0.5, 6.4, 1e5, 7e13)
    for share in (0.01, 0.4, 0.99)  # of the bins, that the window covers
]


@pytest.mark.parametrize(("bins", "grown", "share"), CASES[::4])  # each number of bins meets each share
def test_a_window_covers_the_shares_of_bins_that_its_formula_says(bins: int, grown: float, share: float) -> None:
    first = (1 - share) / 4
    made = Window.of(bins, grown, share * bins, first * bins)
    weights = made.weights()
    DenseChannel(weights)  # refuses rows that do not sum to 2**64
    starts = first + (1 - share - 2 * first) * np.arange(bins) / (bins - 1)
    exact = 1 + grown * window(starts, share, bins)
    exact /= exact.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(weights / TOTAL, exact, rtol=0, atol=1e-13)  # rounding of the formula
    np.testing.assert_allclose(made.low / TOTAL, 1 / (1 + grown * share) / bins, rtol=1e-12, atol=3 / TOTAL)


def tables() -> list[np.ndarray]:
    near, pair = Window.of(12, 3.0, 4.5, 0.25, TOTAL // 2).weights(), two_reports(12, 3 << 61, TOTAL // 2)
    alone = Window.of(12, 3.0, 4.5, 0.25).weights()
    return [alone, two_reports(12, 3 << 62, TOTAL), np.concatenate([pair, near], axis=1)]


@pytest.mark.parametrize("at", range(3))
def test_a_table_that_differs_by_one_is_no_moving_table_and_uneven_noise_stays_one(at: int) -> None:
    weights = tables()[at]
    assert moving(DenseChannel(weights)) is not None
    for row, columns in ((0, [0, -1]), (5, [1, 0]), (11, [-1, 0])):
        other = weights.copy()
        other[row, columns[0]] += np.uint64(1)
        other[row, columns[1]] -= np.uint64(1)
        assert moving(DenseChannel(other)) is None
    even = Convolution.shaped([4.0, 2.0, 1.0], 3).noise
    assert noise(Convolution(even, 3)) is not None
    other = even + np.array([0, 1, 0, 0, -1]).astype(np.uint64)
    assert noise(Convolution(other, 3)) is None
