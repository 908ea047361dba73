"""PRIVIC on the San Francisco locations: the paper's table 3, what pooling and mixing gain, and the time of a cycle.

Needs the authors' grid of 24 x 16 cells: all 123,025 locations report in every cycle. Source of the table: Biswas, Palamidessi,
"PRIVIC", PETS 2024. Times are processor seconds, the median of a few runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from statistics import mean, median
from time import process_time

import numpy as np
import polars as pl
import pyarrow as pa

from benchmarks.figures import Figure, against, near, public_file
from ldpsql import certify
from ldpsql.estimates.distances import emd
from ldpsql.mechanisms import Grid
from ldpsql.privic import start, step
from ldpsql.testing import certificate

GRID = "gowalla_sf_privic_grid.csv"
COLUMNS = 24
CELLS = Grid(COLUMNS, 16, Fraction(1))  # distances count sides of cells, as in the paper
# Mean of the five rounds of table 3, rows 2 to 8, after cycles 1 to 7; row 1 is the distance before the first cycle.
TABLE_3 = {
    "1": [0.36949, 0.29865, 0.26190, 0.23573, 0.21615, 0.19893, 0.18559],
    "0.5": [0.80181, 0.65564, 0.57071, 0.51615, 0.48109, 0.45539, 0.43636],
}
BEFORE = 7.37595
WITHIN = 0.03  # of the table, which is the mean of five random rounds
CYCLE = 0.3  # seconds
STYLES: dict[str, tuple[float, str, bool]] = {  # mixing, stop, pool
    "as published": (0.0, "5", False),
    "mixing": (0.1, "5", False),
    "pooling": (0.0, "5", True),
    "certified": (0.0, "certified", False),
    "certified, mixing": (0.1, "certified", False),
    "certified, pooling": (0.0, "certified", True),
    "certified, pooling, mixing": (0.1, "certified", True),
}


def distances(counts: np.ndarray, beta: str, style: str, cycles: int = 7) -> list[float]:
    """Return the distance to the truth after every cycle of one round."""
    mixing, stop, pool = STYLES[style]
    mechanism, history, out = start(beta, range(len(counts)), columns=COLUMNS, mixing=mixing), [], []
    locations = pa.array(np.repeat(np.arange(len(counts)), counts))
    for _ in range(cycles):
        drawn = np.bincount(certify(mechanism).draw(locations), minlength=len(counts)).astype(float)
        history.append((mechanism, drawn))
        result = step(history if pool else history[-1:], stop)
        mechanism = result.next
        out.append(emd(result.theta, counts / counts.sum(), CELLS))
    return out


def cycle_seconds(counts: np.ndarray, repeats: int = 7) -> dict[str, float]:
    """Return the time of one cycle with 8 steps of Blahut-Arimoto and 10 of IBU, and of its parts."""
    locations = pa.array(np.repeat(np.arange(len(counts)), counts))
    mechanism = start(1, range(len(counts)), columns=COLUMNS, iterations=8)
    times: dict[str, list[float]] = {"cycle": [], "of it perturbing": [], "of it certifying": [], "of it the channel": []}
    for _ in range(repeats):
        certified = certify(mechanism)  # done by the step before
        begun = process_time()
        drawn = certified.draw(locations)
        perturbed = process_time()
        result = step([(mechanism, np.bincount(drawn, minlength=len(counts)).astype(float))], "10")
        ended = process_time()
        again = result.next.with_prior(result.theta)  # nothing about it is kept yet
        channel = again.channel()
        built = process_time()
        certificate(channel, again.claim())
        times["cycle"].append(ended - begun)
        times["of it perturbing"].append(perturbed - begun)
        times["of it certifying"].append(process_time() - built)
        times["of it the channel"].append(built - ended)
        mechanism = result.next
    return {name: median(seconds) for name, seconds in times.items()}


def figures(quick: bool) -> list[Figure]:
    """Return the distances after the cycles as ratios to the published ones, those of other styles, and times of a cycle."""
    file = public_file(GRID)
    if file is None:
        return []
    counts, rounds = pl.read_csv(file).sort("cell")["n_as_used"].to_numpy(), 1 if quick else 5
    uniform = emd(np.full(len(counts), 1 / len(counts)), counts / counts.sum(), CELLS)
    out = [near("before the first cycle, distance against the paper's", uniform / BEFORE, 0.001)]
    for beta, table in TABLE_3.items():
        runs = [distances(counts, beta, "as published") for _ in range(rounds)]
        for cycle, (after, published) in enumerate(zip(zip(*runs, strict=True), table, strict=True), start=1):
            what = f"beta {beta}, cycle {cycle}: distance against the paper's, {rounds} rounds"
            out.append(near(what, mean(after) / published, WITHIN))
        out += [
            Figure(f"beta {beta}, {style}: distance after 7 cycles", distances(counts, beta, style)[-1], "cells")
            for style in (("pooling",) if quick else STYLES)
        ]
    seconds = cycle_seconds(counts)
    whole = Figure("a cycle", seconds.pop("cycle"), "s")
    return [*out, whole, *(Figure(name, s, "s") for name, s in seconds.items())]


def check() -> Iterator[Figure]:
    """Yield how far the distances of the first cycles are from the paper's, and the time of a cycle."""
    file = public_file(GRID)
    if file is not None:
        counts = pl.read_csv(file).sort("cell")["n_as_used"].to_numpy()
        runs = zip(distances(counts, "1", "as published", 3), TABLE_3["1"], strict=False)
        for cycle, (after, published) in enumerate(runs, start=1):
            yield Figure(f"beta 1, cycle {cycle}: distance against the paper's", after / published)
        yield against("two cycles", lambda: distances(counts, "1", "as published", 2), repeats=1)
