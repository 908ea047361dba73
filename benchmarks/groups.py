"""Accuracy and cost of the estimator that groups share, on public tables of groups and values.

Each table is perturbed again and again through k-RR, OLH, OUE or square_wave. An error is the mean over groups of the total
variation to the shares of a group's own people; for square_wave also of the Wasserstein distance and of the error of the mean.
``shared`` is compared with the better of the estimate of all reports together, given to every group, and the best estimator of
single groups; ``best`` only sees the first draws, unless nothing else is compared. NumPy draws the reports with a fixed seed,
because only estimation is measured.

The total variation of age by country cannot fall to `ALIKE` of that of ``best`` at epsilon 1. Half of the countries have at
most 75 people, and the 74 ages of so few are far from any common shares by chance: the true shares of all people, given to
every country, are .40 away, which is .77 (epsilon .5) and .85 (epsilon 1) of the error of ``best``. To the Wasserstein distance
the chance of neighbouring ages matters little: it falls to .39 and .44, and the error of the mean to .32 and .37.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.figures import Figure, against, at_least, at_most, public_file, wanted
from ldpsql import Likelihood
from ldpsql.channels import SetChannel
from ldpsql.estimators import Estimator
from ldpsql.functions import registry
from ldpsql.inference.operators import Floats, KeepOrSpreadOperator, observed
from ldpsql.mechanisms.base import Mechanism, certify
from ldpsql.testing import operator_of

SINGLE = ("inv_p", "inv_n", "ibu", "empirical_bayes(loss='both')", "pool")
CHOSEN = ("best",)  # what the groups are compared with if the others take long, or are known to be worse
REPEATS, FEW, WORST, ALIKE = 20, 1, 1.03, 0.8
FLIGHTS = Path(__file__).parents[1] / "examples" / "data" / "flights.parquet"
ADULT = "adult_census_income.parquet"
ORDERED = ("month", "day", "age", "hours_per_week")
COVERS = "shared intervals cover"


@dataclass(frozen=True)
class Lines:
    """A table of groups and values, the mechanism and the epsilons it is perturbed with, and bounds of the error, if any.

    ``alike`` are the epsilons at which ``shared`` has to reach `ALIKE` of the error of ``best``. Numbers lie between ``ends``.
    """

    name: str
    file: str
    group: tuple[str, ...]
    value: str
    epsilons: tuple[float, ...]
    most: tuple[float | None, ...] = ()
    mechanism: str = "krr"
    alike: tuple[float, ...] = ()
    ends: tuple[int, int] | None = None
    draws: int = REPEATS


DAYS, AGES = ("month", "day"), (17, 91)
TABLES = (
    Lines("flights: day x destination", "flights", DAYS, "dest", (0.5, 1, 2, 4), (None, 0.30, 0.14, 0.068)),
    Lines("flights: destination x carrier", "flights", ("dest",), "carrier", (1, 4)),
    Lines("Adult: age x occupation", ADULT, ("age",), "occupation", (0.5, 1, 2, 4), (None, None, 0.18, None)),
    Lines("Adult: country x education", ADULT, ("native_country",), "education", (1, 4)),
    Lines("held out, flights: month x destination", "flights", ("month",), "dest", (0.5, 1, 2, 4)),
    Lines("held out, flights: day x carrier", "flights", DAYS, "carrier", (0.5, 1, 2, 4)),
    Lines("held out, Adult: country x occupation", ADULT, ("native_country",), "occupation", (1, 2, 4)),
    Lines("held out, Adult: occupation x education", ADULT, ("occupation",), "education", (0.5, 1, 2)),
    Lines("held out, Adult: hours x occupation", ADULT, ("hours_per_week",), "occupation", (1, 2, 4)),
    Lines("held out, Adult: age x education", ADULT, ("age",), "education", (0.5, 1, 2, 4)),
    Lines("flights: day x destination", "flights", DAYS, "dest", (1, 2, 4), (), "olh", (1, 2, 4)),
    Lines("flights: destination x carrier", "flights", ("dest",), "carrier", (1, 4), (), "olh"),
    Lines("Adult: age x occupation", ADULT, ("age",), "occupation", (0.5, 1, 2, 4), (), "olh", (0.5, 1)),
    Lines("flights: day x destination", "flights", DAYS, "dest", (1, 4), (), "oue", (1, 4), None, 3),
    Lines("flights: destination x carrier", "flights", ("dest",), "carrier", (1, 4), (), "oue"),
    Lines("Adult: age x occupation", ADULT, ("age",), "occupation", (0.5, 1, 2, 4), (), "oue", (0.5, 1)),
    Lines("flights: delay by day", "flights", DAYS, "dep_delay", (1, 4), (), "square_wave", (), (-30, 90), 3),
    Lines("Adult: age by country", ADULT, ("native_country",), "age", (0.5, 1, 2, 4), (), "square_wave", (0.5, 1), AGES),
    Lines("Adult: age by occupation", ADULT, ("occupation",), "age", (0.5, 1, 2, 4), (), "square_wave", (), AGES),
    Lines("Adult: age by marital status", ADULT, ("marital_status",), "age", (0.5, 1, 2, 4), (), "square_wave", (), AGES),
)


def people(lines: Lines) -> Floats | None:
    """Return how many people of each group hold each value; None if the file is absent."""
    file = FLIGHTS if lines.file == "flights" else public_file(lines.file)
    if file is None:
        return None
    read = pq.read_table(file, columns=[*lines.group, lines.value]).drop_null()
    keys = pc.binary_join_element_wise(*(pc.utf8_lpad(read[name].cast(pa.string()), 4, "0") for name in lines.group), "/")
    groups, number = coded(keys)
    if lines.ends:
        low, high = lines.ends
        size, value = high - low, np.clip(read[lines.value].to_numpy(), low, high - 1) - low
    else:
        size, value = coded(read[lines.value].cast(pa.string()))
    held = np.zeros((groups, size))
    np.add.at(held, (number, value), 1)
    return held


def coded(column: pa.ChunkedArray) -> tuple[int, NDArray[np.int64]]:
    """Return how many values a column of texts has, and the number of that of each row, in the order of the texts."""
    texts, number = np.unique(column.to_numpy(), return_inverse=True)
    return len(texts), number


def named(held: Floats, epsilon: float, draw: np.random.Generator) -> Likelihood:
    """Draw the reports of all people through k-RR."""
    size = held.shape[1]
    keep, spread = np.exp(epsilon) / (np.exp(epsilon) + size - 1), 1 / (np.exp(epsilon) + size - 1)
    kept = draw.binomial(held.astype(np.int64), keep - spread)
    rest = [draw.multinomial(n, np.full(size, 1 / size)) for n in (held.astype(np.int64) - kept).sum(axis=1)]
    return Likelihood(KeepOrSpreadOperator(size, keep, spread), (kept + np.array(rest)).astype(np.float64))


def listed(held: Floats, mechanism: Mechanism, draw: np.random.Generator) -> Likelihood:
    """Draw the reports of all people through a mechanism whose reports can be listed."""
    certified, operator = certify(mechanism), operator_of(mechanism)
    counts = np.zeros((len(held), operator.outputs))
    for value, chance in enumerate(operator.matrix()):
        rows = np.flatnonzero(held[:, value])
        counts[rows] += draw.multinomial(held[rows, value].astype(np.int64), chance / chance.sum())
    return Likelihood(operator, counts, certified.layout, certified.named)


def bit_vectors(held: Floats, mechanism: Mechanism, draw: np.random.Generator) -> Reports:
    """Draw the reports of all people through OUE; each group has an operator of its own."""
    channel, size = certify(mechanism).response, held.shape[1]
    assert isinstance(channel, SetChannel)
    groups = []
    for row in held.astype(np.int64):
        bits = draw.random((row.sum(), size)) < float(channel.miss)
        bits[np.arange(len(bits)), np.repeat(np.arange(size), row)] = draw.random(len(bits)) < float(channel.hit)
        groups.append(np.packbits(bits, axis=1, bitorder="little").T)
    parts = [Likelihood(observed(channel, octets), np.ones((1, octets.shape[1]))) for octets in groups]
    together = np.concatenate(groups, axis=1)
    return Reports(parts, Likelihood(observed(channel, together), np.ones((1, together.shape[1]))))


@dataclass(frozen=True)
class Reports:
    """The reports of groups, in parts that have an operator each, and of all groups together."""

    parts: list[Likelihood]
    pooled: Likelihood

    @classmethod
    def of(cls, lines: Lines, held: Floats, epsilon: float, draw: np.random.Generator) -> Reports:
        """Draw the reports of all people."""
        if lines.mechanism == "krr":
            likelihood = named(held, epsilon, draw)
        else:
            size = held.shape[1]
            options = {"low": 0, "high": size, "bins": size} if lines.ends else {"domain": [f"v{i}" for i in range(size)]}
            mechanism = registry().mechanism({"mechanism": lines.mechanism, "epsilon": epsilon, **options})
            if lines.mechanism == "oue":
                return bit_vectors(held, mechanism, draw)
            likelihood = listed(held, mechanism, draw)
        return cls([likelihood], likelihood.with_counts(likelihood.counts.sum(axis=0, keepdims=True)))

    def estimated(self, estimator: Estimator) -> Floats:
        """Return the estimates of all groups."""
        return np.concatenate([estimator.fit(part).theta for part in self.parts])

    def shared(self, *, in_order: bool) -> tuple[Floats, Floats | None, Floats | None]:
        """Return the estimates of all groups that learn from each other, and the ends of their own intervals, if any."""
        options = {"estimator": "shared", "errors": "shared", "neighbours": "use" if in_order else "ignore"}
        runs, estimators = registry().estimator(options).learnt_in_order(self.pooled, self.parts)
        order, parts = np.argsort(runs, kind="stable"), self.parts
        if len(parts) == 1:
            pieces = [(run, parts[0].with_counts(parts[0].counts[runs == run])) for run in np.unique(runs)]
        else:
            pieces = [(runs[row], parts[row]) for row in order]
        fits, place = [estimators[run].fit(piece) for run, piece in pieces], np.argsort(order)
        theta, ends = np.concatenate([fit.theta for fit in fits])[place], [fit.errors for fit in fits if fit.errors]
        low, high = (np.concatenate([one[end] for one in ends])[place] if ends else None for end in (1, 2))
        return theta, low, high


def errors(theta: Floats, truth: Floats, *, ordered: bool) -> dict[str, float]:
    """Return means over groups: the total variation and, of numbers, the Wasserstein distance and the error of the mean."""
    gap = theta - truth
    out = {"TV": float(np.abs(gap).sum(axis=1).mean() / 2)}
    if ordered:
        out["Wasserstein"] = float(np.abs(np.cumsum(gap, axis=1)).sum(axis=1).mean())
        out["mean"] = float(np.abs(gap @ np.arange(gap.shape[1])).mean())
    return out


def measured(lines: Lines, held: Floats, epsilon: float, most: float | None, repeats: int) -> Iterator[Figure]:
    """Yield the error of ``shared`` at one epsilon, as it is and against the others, and how often its intervals cover."""
    what = f"{lines.name}, {lines.mechanism}, epsilon {epsilon:g}"
    truth, covered, draw = held / held.sum(axis=1, keepdims=True), [], np.random.default_rng(crc32(what.encode()))
    seen: dict[str, list[dict[str, float]]] = {}
    for number in range(repeats):
        reports = Reports.of(lines, held, epsilon, draw)
        together = np.tile(registry().estimator("best").fit(reports.pooled).theta, (len(held), 1))
        thetas = {"pooled": together}
        singles = (*SINGLE, *(["best"] if number < FEW else [])) if lines.mechanism == "krr" else CHOSEN
        thetas |= {name: reports.estimated(registry().estimator(name)) for name in singles}
        thetas["shared"], low, high = reports.shared(in_order=lines.group[-1] in ORDERED)
        for name, theta in thetas.items():
            seen.setdefault(name, []).append(errors(theta, truth, ordered=lines.ends is not None))
        if low is not None and high is not None:
            covered.append(float(((low <= truth + 1e-9) & (truth <= high + 1e-9)).mean()))
    yield from judged(what, seen, most, ALIKE if epsilon in lines.alike else None)
    if covered:
        yield Figure(f"{what}: {COVERS}", float(np.mean(covered)), "")


def judged(what: str, seen: dict[str, list[dict[str, float]]], most: float | None, alike: float | None) -> Iterator[Figure]:
    """Yield the error of ``shared`` and its ratios to the others, with their bounds."""
    for kind in seen["shared"][0]:
        means = {name: float(np.mean([one[kind] for one in each])) for name, each in seen.items()}
        shared = means.pop("shared")
        name = min(means, key=lambda name: means[name])
        yield at_most(f"{what}: {kind}, shared / {name}", shared / means[name], WORST)
        if alike:
            yield at_most(f"{what}: {kind}, shared / best alone, alike groups", shared / means["best"], alike)
        yield at_most(f"{what}: {kind}", shared, most, "") if most else Figure(f"{what}: {kind}", shared, "")


def speed(quick: bool) -> Figure:
    """Return what many groups take."""
    groups = 100 if quick else 1000
    draw = np.random.default_rng(1979)
    likelihood = named(draw.multinomial(1000, draw.dirichlet(np.full(30, 2.0)), groups).astype(np.float64), 1.0, draw)
    start = process_time()
    registry().estimator("shared").fit(likelihood)
    return Figure(f"{groups:,} groups of 1,000, K=30: shared", process_time() - start, "s CPU")


def figures(quick: bool) -> list[Figure]:
    """Return errors, coverage and seconds."""
    out: list[Figure] = []
    for lines in TABLES[:2] if quick else TABLES:
        bounds = zip(lines.epsilons, lines.most or (None,) * len(lines.epsilons), strict=True)
        asked = [(e, most) for e, most in bounds if wanted(f"{lines.name}, {lines.mechanism}, epsilon {e:g}")]
        held = people(lines) if asked else None
        for epsilon, most in asked if held is not None else ():
            out += measured(lines, held, epsilon, most, 1 if quick else lines.draws)
    return [*out, speed(quick)] if wanted("speed") else out


def summary(measured: list[Figure]) -> list[Figure]:
    """Return the mean coverage of all lines, with its bounds."""
    covers = float(np.mean([figure.value for figure in measured if figure.what.endswith(COVERS)]))
    what = f"mean over all lines: {COVERS}"
    return [at_least(f"{what} at least", covers, 0.93, ""), at_most(f"{what} at most", covers, 0.97, "")]


def check() -> Iterator[Figure]:
    """Yield the error of ``shared`` against those of all groups together and of single groups, and its processor time."""
    lines = TABLES[1]
    held = people(lines)
    assert held is not None  # the flights are among the examples
    truth, draw = held / held.sum(axis=1, keepdims=True), np.random.default_rng(7)
    reports = Reports.of(lines, held, 1.0, draw)
    own = errors(reports.shared(in_order=False)[0], truth, ordered=False)["TV"]
    pooled = np.tile(registry().estimator("best").fit(reports.pooled).theta, (len(held), 1))
    yield Figure(f"{lines.name}, epsilon 1: shared / pooled", own / errors(pooled, truth, ordered=False)["TV"])
    single = errors(reports.estimated(registry().estimator("inv_p")), truth, ordered=False)["TV"]
    yield Figure(f"{lines.name}, epsilon 1: shared / inv_p of single groups", own / single)
    many = named(draw.multinomial(1000, draw.dirichlet(np.full(30, 2.0)), 300).astype(np.float64), 1.0, draw)
    yield against("300 groups of 1,000, K=30: shared", lambda: registry().estimator("shared").fit(many), repeats=3)
