"""Accuracy and cost of the estimator that groups share, on public tables of groups and values.

Each table is perturbed by k-RR again and again. An error is the mean over groups of the total variation to the shares of a
group's own people. ``shared`` is compared with the better of the estimate of all reports together, given to every group, and
the best estimator of single groups; ``best`` only sees the first draws. NumPy draws the reports with a fixed seed, because only
estimation is measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import process_time

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.figures import Figure, at_least, at_most, public_file
from ldpsql import Likelihood
from ldpsql.inference.operators import Floats, KeepOrSpreadOperator
from ldpsql.registry.registry import registry

SINGLE = ("inv_p", "inv_n", "ibu", "empirical_bayes(loss='both')", "pool")
REPEATS, FEW, WORST = 20, 1, 1.03
FLIGHTS = Path(__file__).parents[1] / "examples" / "data" / "flights.parquet"
ADULT = "adult_census_income.parquet"
DRAW = np.random.default_rng(19790101)


@dataclass(frozen=True)
class Lines:
    """A table of groups and values, the epsilons it is perturbed with, and bounds of the error of ``shared``, if any."""

    name: str
    file: str
    group: tuple[str, ...]
    value: str
    epsilons: tuple[float, ...]
    most: tuple[float | None, ...]


TABLES = (
    Lines("flights: day x destination", "flights", ("month", "day"), "dest", (0.5, 1, 2, 4), (None, 0.30, 0.14, 0.068)),
    Lines("flights: destination x carrier", "flights", ("dest",), "carrier", (1, 4), (None, None)),
    Lines("Adult: age x occupation", ADULT, ("age",), "occupation", (0.5, 1, 2, 4), (None, None, 0.18, None)),
    Lines("Adult: country x education", ADULT, ("native_country",), "education", (1, 4), (None, None)),
    Lines("held out, flights: month x destination", "flights", ("month",), "dest", (0.5, 1, 2, 4), (None,) * 4),
    Lines("held out, flights: day x carrier", "flights", ("month", "day"), "carrier", (0.5, 1, 2, 4), (None,) * 4),
    Lines("held out, Adult: country x occupation", ADULT, ("native_country",), "occupation", (1, 2, 4), (None,) * 3),
    Lines("held out, Adult: occupation x education", ADULT, ("occupation",), "education", (0.5, 1, 2), (None,) * 3),
    Lines("held out, Adult: hours x occupation", ADULT, ("hours_per_week",), "occupation", (1, 2, 4), (None,) * 3),
    Lines("held out, Adult: age x education", ADULT, ("age",), "education", (0.5, 1, 2, 4), (None,) * 4),
)


def people(lines: Lines) -> Floats | None:
    """Return how many people of each group hold each value; None if the file is absent."""
    file = FLIGHTS if lines.file == "flights" else public_file(lines.file)
    if file is None:
        return None
    read = pq.read_table(file, columns=[*lines.group, lines.value])
    keys = pc.binary_join_element_wise(*(read[name].cast(pa.string()) for name in lines.group), "/")
    codes = [column.combine_chunks().dictionary_encode() for column in (keys, read[lines.value].cast(pa.string()))]
    held = np.zeros([len(code.dictionary) for code in codes])
    np.add.at(held, tuple(code.indices.to_numpy() for code in codes), 1)
    return held


def perturbed(held: Floats, epsilon: float) -> Likelihood:
    """Draw the reports of all people through k-RR."""
    size = held.shape[1]
    keep, spread = np.exp(epsilon) / (np.exp(epsilon) + size - 1), 1 / (np.exp(epsilon) + size - 1)
    kept = DRAW.binomial(held.astype(np.int64), keep - spread)
    rest = [DRAW.multinomial(n, np.full(size, 1 / size)) for n in (held.astype(np.int64) - kept).sum(axis=1)]
    return Likelihood(KeepOrSpreadOperator(size, keep, spread), (kept + np.array(rest)).astype(np.float64))


def error(theta: Floats, truth: Floats) -> float:
    """Return the mean over groups of the total variation."""
    return float(np.abs(theta - truth).sum(axis=1).mean() / 2)


def measured(lines: Lines, held: Floats, epsilon: float, most: float | None, repeats: int) -> Iterator[Figure]:
    """Yield the error of ``shared`` at one epsilon, as it is and against the others, and how often its intervals cover."""
    truth, covered = held / held.sum(axis=1, keepdims=True), []
    errors: dict[str, list[float]] = {}
    for draw in range(repeats):
        likelihood = perturbed(held, epsilon)
        pooled = likelihood.with_counts(likelihood.counts.sum(axis=0, keepdims=True))
        together = registry().estimator("best").fit(pooled).theta
        errors.setdefault("pooled", []).append(error(np.tile(together, (len(held), 1)), truth))
        for name in (*SINGLE, *(["best"] if draw < FEW else [])):
            errors.setdefault(name, []).append(error(registry().estimator(name).fit(likelihood).theta, truth))
        fit = registry().estimator("shared(errors='shared')").fit(likelihood)
        errors.setdefault("shared", []).append(error(fit.theta, truth))
        assert fit.errors is not None  # votes have errors of their own
        covered.append(float(((fit.errors[1] <= truth + 1e-9) & (truth <= fit.errors[2] + 1e-9)).mean()))
    what = f"{lines.name}, epsilon {epsilon:g}"
    shared = float(np.mean(errors.pop("shared")))
    name, least = min(((name, float(np.mean(each))) for name, each in errors.items()), key=lambda pair: pair[1])
    ratio = f"{what}: shared / {name}"
    yield at_most(ratio, shared / least, WORST)
    yield at_most(f"{what}: TV", shared, most, "") if most else Figure(f"{what}: TV", shared, "")
    yield Figure(f"{what}: shared intervals cover", float(np.mean(covered)), "")


def speed(quick: bool) -> Figure:
    """Return what many groups take."""
    groups = 100 if quick else 1000
    held = DRAW.multinomial(1000, DRAW.dirichlet(np.full(30, 2.0)), groups).astype(np.float64)
    likelihood = perturbed(held, 1.0)
    start = process_time()
    registry().estimator("shared").fit(likelihood)
    return at_most(f"{groups:,} groups of 1,000, K=30: shared", process_time() - start, 1.0, "s CPU")


def figures(quick: bool) -> list[Figure]:
    """Return errors, coverage and seconds."""
    out: list[Figure] = []
    for lines in TABLES[:2] if quick else TABLES:
        held = people(lines)
        if held is not None:
            for epsilon, most in zip(lines.epsilons, lines.most, strict=True):
                out += measured(lines, held, epsilon, most, 1 if quick else REPEATS)
    covers = float(np.mean([figure.value for figure in out if figure.what.endswith("cover")]))
    out.append(at_least("mean coverage of shared intervals", covers, 0.93, ""))
    out.append(at_most("mean coverage of shared intervals", covers, 0.97, ""))
    return [*out, speed(quick)]
