"""Random rectangles of a real map: the hierarchy of squares against hashes of the cells and against noise on the plane.

Places are check-ins of San Francisco on 24 x 16 cells of 0.5 km. The errors are root mean squares over 200 rectangles with
random sides. Noise on the plane keeps epsilon per side of a cell, so the two kinds of privacy are compared by the number of
sides within which the noise keeps as much as the hierarchy keeps between all cells.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import Figure, at_least, at_most, public_file
from ldpsql.estimates.spans import Rectangle, RectangleShares, region_of
from ldpsql.functions import registry
from ldpsql.mechanisms.base import Mechanism, certify_values
from ldpsql.testing import estimate_counts

COLUMNS, ROWS, ASKED = 24, 16, 200
HELD_OUT = "ibu(stop='held_out')"
Floats = NDArray[np.float64]


def figures(quick: bool) -> Iterator[Figure]:
    """Yield errors, how often the intervals hold, and what the hierarchy gains."""
    file = public_file("gowalla_sf_grid_24x16.csv")
    if file is None:
        return
    counts, draws = np.loadtxt(file, delimiter=",", skiprows=1)[:, 3].astype(np.int64), 2 if quick else 10
    for epsilon in ("0.5", "1", "2", "4"):
        tree = {name: _error(f"grid_hierarchy({epsilon}, 24, 16)", name, counts, draws) for name in ("ibu", "inv")}
        hashed = _error(f"grid_hierarchy({epsilon}, 24, 16, levels=1)", "ibu", counts, draws)[0]
        yield Figure(f"grid_hierarchy, epsilon {epsilon}: error of a rectangle, ibu", tree["ibu"][0], "of 1")
        yield Figure(f"grid_hierarchy, epsilon {epsilon}: error of a rectangle, inv", tree["inv"][0], "of 1")
        yield at_most(f"grid_hierarchy, epsilon {epsilon}: error against hashes of the cells", tree["ibu"][0] / hashed, 0.8)
        yield at_least(f"grid_hierarchy, epsilon {epsilon}: coverage of the intervals", tree["inv"][1], 0.93, "")
    for epsilon in ("0.1", "0.2", "0.5", "1", "2"):
        error = _error(f"planar_geometric({epsilon}, 24, 16)", HELD_OUT, counts, min(draws, 2))[0]
        yield Figure(f"planar_geometric, epsilon {epsilon} a side: error of a rectangle, held out", error, "of 1")


def _error(text: str, estimator: str, counts: NDArray[np.int64], draws: int) -> tuple[float, float]:
    """Return the error of a rectangle, and how often its interval holds the truth."""
    mechanism, rng = registry().mechanism(text), np.random.default_rng(18)  # the same rectangles for all mechanisms
    asked = RectangleShares(region_of(mechanism, [0, 0, COLUMNS, ROWS]), tuple(_random(rng) for _ in range(ASKED)))
    truth = np.array([_inside(one, counts) for one in asked.rectangles]) / counts.sum()
    estimates = estimate_counts(mechanism, _drawn(mechanism, counts, draws), registry().estimator(estimator))
    share = asked.measure(estimates)
    held = (share.low <= truth) & (truth <= share.high)
    return float(np.sqrt(np.mean((share.estimate - truth) ** 2))), float(held.mean())


def _drawn(mechanism: Mechanism, counts: NDArray[np.int64], draws: int) -> Floats:
    channel = certify_values(mechanism).channel
    cells, size = np.repeat(np.arange(len(counts), dtype=np.int32), counts), len(certify_values(mechanism).reports)
    return np.stack([np.bincount(channel.draw(cells), minlength=size) for _ in range(draws)]).astype(np.float64)


def _random(rng: np.random.Generator) -> Rectangle:
    (west, east), (south, north) = (np.sort(rng.choice(size + 1, 2, replace=False)).tolist() for size in (COLUMNS, ROWS))
    return Rectangle.of((west, south, east, north))


def _inside(one: Rectangle, counts: NDArray[np.int64]) -> int:
    west, south, east, north = (int(side or 0) for side in one)
    return int(counts.reshape(ROWS, COLUMNS)[south:north, west:east].sum())


def check() -> Iterator[Figure]:
    """Yield the error of random rectangles against hashes of the cells."""
    if file := public_file("gowalla_sf_grid_24x16.csv"):
        counts = np.loadtxt(file, delimiter=",", skiprows=1)[:, 3].astype(np.int64)
        tree, hashed = (_error(f"grid_hierarchy(1, 24, 16{more})", "inv", counts, 5)[0] for more in ("", ", levels=1"))
        yield Figure("grid_hierarchy, epsilon 1: error against hashes of the cells", tree / hashed)
