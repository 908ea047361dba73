"""Domains of up to millions of values: CPU seconds, errors against theory and against published protocols, memory.

OLH with orthogonal seeds is read through a transform: the figures for 300 values stand next to those of larger domains. The
mean squared error of counts is compared with projective geometry response (PG; Feldman, Nelson, Nguyen, Talwar, ICML 2022) on
the inputs that its authors published, epsilon 5, 22,000 values, 300 trials (30 in a quick run). Sets of values, private seeds
and bit vectors, are solved for 1,000 and 10,000 values, and for 100,000 with a deadline unless quick.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from functools import partial
from time import process_time

import numpy as np
import pyarrow as pa

from benchmarks.figures import Figure, against, at_most, peak_mebibytes, public_file
from ldpsql.channels import OrthogonalHash
from ldpsql.estimates.estimate import Estimate, estimate_column
from ldpsql.functions import registry
from ldpsql.inference.operators import Floats
from ldpsql.mechanisms.base import Mechanism, certify
from ldpsql.testing import estimate_counts, operator_of

RNG = np.random.default_rng(11)
# values, reports
SIZES = (
    (300, 300_000),
    (10_000, 300_000),
    (65_536, 2_000_000),
    (1_048_576, 2_000_000),
)
PUBLISHED_VALUES, HUGE = 22_000, 3_307_948
MEMORY = 1_536  # mebibytes
SETS = ("olh(2, DOMAIN, seeds='private')", "oue(2, DOMAIN)", "rappor(2, DOMAIN)", "subset_selection(2, DOMAIN)")


def olh(epsilon: float, size: int, **options: object) -> Mechanism:
    """Return OLH over the first whole numbers."""
    return registry().mechanism({"mechanism": "olh", "epsilon": epsilon, "domain": range(size), **options})


def drawn(mechanism: Mechanism, values: np.ndarray) -> Floats:
    """Return counts of reports of these places in the domain."""
    channel = certify(mechanism).channel
    assert isinstance(channel, OrthogonalHash)  # what `olh` makes
    return np.bincount(channel.draw(values.astype(np.int32)), minlength=channel.outputs).astype(np.float64)


def places(size: int, people: int) -> np.ndarray:
    """Return values whose shares fall like 1/rank^1.3."""
    shares = np.arange(1, size + 1) ** -1.3
    return RNG.choice(size, people, p=shares / shares.sum())


def clocked(work: Callable[[], Estimate]) -> tuple[float, Estimate]:
    """Return the CPU seconds of an estimate with its errors, and the estimate."""
    start = process_time()
    one = work()
    _ = one.std_error
    return process_time() - start, one


def by_transform() -> Iterator[Figure]:
    """Yield what inversion and the certified maximum take from the counts, and how exact they are, for epsilon 1."""
    for size, people in SIZES:
        mechanism, values = olh(1, size), places(size, people)
        what, counts = f"OLH K={size:,}, n={people:,}", [drawn(mechanism, values) for _ in range(3)]
        operator_of(mechanism)
        runs = [clocked(partial(estimated, mechanism, each, "inv")) for each in counts]
        yield Figure(f"{what}: inv", float(np.median([seconds for seconds, _ in runs])), "s CPU")
        if size > 300:  # of few values the ratio would vary by more than what is asked
            yield at_most(f"{what}: RMSE of inv against theory", error(runs[0][1], values), 1.02)
        runs = [clocked(partial(estimated, mechanism, each, "ibu")) for each in counts]
        yield Figure(f"{what}: ibu", float(np.median([seconds for seconds, _ in runs])), "s CPU")
        yield at_most(f"{what}: ibu, gap", max(one.diagnosis.gap for _, one in runs), 1e-9, "")


def error(one: Estimate, values: np.ndarray) -> float:
    """Return the root mean squared error of shares against that of the theory for epsilon 1."""
    truth, theory = np.bincount(values, minlength=len(one.estimate)) / len(values), 4 * np.e / ((np.e - 1) ** 2 * len(values))
    return float(np.sqrt(((one.estimate - truth) ** 2).mean() / theory))


def estimated(mechanism: Mechanism, counts: Floats, estimator: str) -> Estimate:
    """Return the estimate from counts."""
    return estimate_counts(mechanism, counts[None], registry().estimator(estimator))[0]


_PEAK = """
from benchmarks.large_domains import drawn, estimated, olh, places
mechanism = olh(1, 1_048_576)
seconds = estimated(mechanism, drawn(mechanism, places(1_048_576, 2_000_000)), "ibu").diagnosis.gap"""


def against_published(trials: int) -> Iterator[Figure]:
    """Yield the mean squared error of counts against that of PG on the same inputs."""
    table = public_file("frequency-oracles/published_mse.csv")
    if table is None:
        return
    mechanism = olh(5, PUBLISHED_VALUES)
    op = operator_of(mechanism)
    for row in csv.DictReader(table.read_text("utf-8").splitlines()):
        if row["protocol"] != "PG" or (file := public_file(f"frequency-oracles/{row['input']}.in")) is None:
            continue
        values = np.array(file.read_text("utf-8").split(), dtype=np.int32)
        truth, n = np.bincount(values, minlength=PUBLISHED_VALUES), len(values)
        errors = [((op.invert(drawn(mechanism, values)[None] / n)[0] * n - truth) ** 2).mean() for _ in range(trials)]
        ratio = float(np.mean(errors)) / float(row["mean_squared_error_counts"])
        yield at_most(f"{row['input']}, K=22,000, n=1,000, epsilon 5: squared error of counts against PG", ratio, 1.03)


def huge() -> Figure:
    """Return what the shares of more than three million values take, from the counts."""
    mechanism = olh(5, HUGE)
    counts = drawn(mechanism, places(HUGE, 10_000))
    operator_of(mechanism)
    start = process_time()
    estimated(mechanism, counts, "inv")
    return Figure(f"OLH K={HUGE:,}, n=10,000, epsilon 5: shares of all values", process_time() - start, "s CPU")


def padded() -> Iterator[Figure]:
    """Yield what inversion takes if the transform is far longer than the domain, with the default symbols and with others."""
    for symbols in (None, 64, 317):
        mechanism = olh(5, 100_000, symbols=symbols)
        counts = drawn(mechanism, places(100_000, 30_000))
        operator_of(mechanism)
        seconds, _ = clocked(partial(estimated, mechanism, counts, "inv"))
        yield Figure(f"OLH K=100,000, n=30,000, epsilon 5, symbols {symbols or 'by default'}: inv", seconds, "s CPU")


def sets(quick: bool) -> Iterator[Figure]:
    """Yield what the certified maximum takes if nearly all reports differ."""
    people = 10_000 if quick else 100_000
    for text in SETS:
        for size in (1_000, 10_000):
            yield from of_sets(text, size, people, "ibu")
        if not quick:
            yield from of_sets(text, 100_000, 20_000, "inv")


def of_sets(text: str, size: int, people: int, estimator: str) -> Iterator[Figure]:
    """Yield the time of one estimate from reports that are sets, and its gap."""
    mechanism = registry().mechanism(text.replace("DOMAIN", str(list(range(size)))))
    column = certify(mechanism).perturb(pa.array(places(size, people)))
    seconds, one = clocked(lambda: estimate_column(column, mechanism, registry().estimator(estimator)))
    what = f"{text.replace('DOMAIN', f'{size:,} values')}, n={people:,}: {estimator}"
    yield Figure(what, seconds, "s CPU")
    if estimator == "ibu":
        yield at_most(f"{what}, gap", one.diagnosis.gap, 1e-9, "")


def figures(quick: bool) -> list[Figure]:
    """Return seconds, errors and memory."""
    out = [*by_transform(), *against_published(30 if quick else 300), huge(), *padded()]
    out.append(at_most("OLH K=1,048,576, n=2,000,000: ibu, peak memory", peak_mebibytes(_PEAK)[0], MEMORY, "MiB"))
    return [*out, *sets(quick)]


def check() -> Iterator[Figure]:
    """Yield the processor time of inversion and of the maximum, and the error against theory."""
    mechanism, values = olh(1, 10_000), places(10_000, 300_000)
    counts = drawn(mechanism, values)
    operator_of(mechanism)
    for name in ("inv", "ibu"):
        yield against(
            f"OLH K=10,000: {name}", lambda name=name: clocked(partial(estimated, mechanism, counts, name)), repeats=3
        )
    yield Figure("OLH K=10,000: RMSE of inv against theory", error(estimated(mechanism, counts, "inv"), values))
    sets_of = registry().mechanism(f"oue(2, {list(range(1_000))})")
    column = certify(sets_of).perturb(pa.array(places(1_000, 5_000)))
    ibu = registry().estimator("ibu")
    yield against(
        "OUE of 1,000 values, n=5,000: ibu", lambda: clocked(partial(estimate_column, column, sets_of, ibu)), repeats=3
    )
