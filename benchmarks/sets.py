"""Estimators of reports that are sets of values, private seeds and bit vectors: CPU seconds, memory, certified gap or status.

Nearly all such reports differ, so they are not counted but kept, a bit for each value. Every estimator has a deadline; what is
reached by then is returned, and the status says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic

import numpy as np
import pyarrow as pa

from benchmarks.figures import Figure, at_most, peak_mebibytes
from benchmarks.large_domains import clocked, places
from ldpsql.errors import LdpError
from ldpsql.estimates.estimate import estimate_column
from ldpsql.mechanisms.base import Mechanism, certify
from ldpsql.registry.registry import registry

PRIVATE, OUE = "olh(2, {}, seeds='private')", "oue(2, {})"
SETS = (PRIVATE, OUE, "rappor(2, {})", "subset_selection(2, {})")
FEW = ("inv", "ibu", "empirical_bayes", "best")
MANY = (*FEW, "inv_n", "inv_p", "base_cut", "iiw", "pool", "em_mr", "corrected_em")
# values, reports, mechanisms, estimators
RUNS = ((1_000, 20_000, SETS, MANY), (10_000, 20_000, (PRIVATE, OUE), MANY), (100_000, 5_000, (PRIVATE, OUE), FEW))
MEMORY = 1_024  # mebibytes


def mechanism(text: str, size: int) -> Mechanism:
    """Return a mechanism over the first whole numbers."""
    domain = list(range(size))
    return registry().mechanism({"mechanism": "oue", "epsilon": 2, "domain": domain} if text == OUE else text.format(domain))


def runs(size: int, people: int, text: str, estimators: tuple[str, ...], deadline: float) -> Iterator[Figure]:
    """Yield the CPU seconds of each estimator, its gap if it is a maximum, and by how much it exceeds the deadline."""
    of = mechanism(text, size)
    column = certify(of).perturb(pa.array(places(size, people)))
    for name in estimators:
        what, begun = f"{text.format(f'{size:,} values')}, n={people:,}: {name}", monotonic()
        estimator = registry().estimator({"estimator": name, "deadline": deadline})
        try:
            seconds, one = clocked(lambda e=estimator: estimate_column(column, of, e))  # type: ignore[misc]
        except LdpError as error:
            yield Figure(f"{what}: refused, {error.code}", 0.0, "s CPU")
            continue
        status = one.diagnosis.status
        yield Figure(f"{what}: {status}", seconds, "s CPU")
        yield at_most(f"{what}, time against the deadline", (monotonic() - begun) / deadline, 1.5)
        if name == "ibu":
            yield Figure(f"{what}: {status}, gap", one.diagnosis.gap, "")


_PEAK = """
from benchmarks.sets import runs
seconds = sum(figure.value for figure in runs({size}, 20_000, {text!r}, ("ibu", "best"), 60))"""


def figures(quick: bool) -> list[Figure]:
    """Return seconds, gaps and memory; a quick run leaves 100,000 values out."""
    deadline = 20 if quick else 120
    out = [
        figure
        for size, people, texts, estimators in RUNS[: 2 if quick else 3]
        for text in texts
        for figure in runs(size, people, text, estimators, deadline)
    ]
    peak = np.max([peak_mebibytes(_PEAK.format(size=10_000, text=text))[0] for text in (PRIVATE, OUE)])
    return [*out, at_most("10,000 values, n=20,000: ibu and best, peak memory", float(peak), MEMORY, "MiB")]
