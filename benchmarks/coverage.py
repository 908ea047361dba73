"""How often 95 % intervals hold the truth: mechanisms x numbers of reports x estimators, for every share.

A figure is missed where fewer intervals hold the truth than would with chance .93, or, for shares above two standard errors,
more than would with chance .975, beyond what chance explains once in a million runs. Below 1,000 reports shares near zero are
held to .90: Wilson's interval itself is there.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from scipy.stats import binom

import ldpsql
from benchmarks.figures import Figure, at_least, at_most
from ldpsql import Likelihood
from ldpsql.channels import IndependentBits
from ldpsql.counting import likelihoods, operator_of
from ldpsql.distinct import distinct
from ldpsql.mechanism import Mechanism, certify
from ldpsql.operators import Floats
from ldpsql.registry import registry
from ldpsql.uncertainty import intervals

TRUTH = np.array([0.4, 0.3, 0.15, 0.1, 0.04, 0.01, 0, 0, 0, 0])
DOMAIN = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]"
MECHANISMS = (
    f"krr(epsilon=1, domain={DOMAIN})",
    f"krr(epsilon=6, domain={DOMAIN})",
    f"olh(epsilon=1, domain={DOMAIN}, seeds='orthogonal')",
    f"oue(epsilon=1, domain={DOMAIN})",
    f"oue(epsilon=4, domain={DOMAIN})",
    "truncated_geometric(epsilon=1, low=0, high=9)",
)
SIZES = (200, 2_000, 20_000)
SMALL = 1_000
ESTIMATORS = ("ibu", "inv", "inv_p", "empirical_bayes", "uniform")
BOTH_SIDED = (", ibu", ", inv")  # the others' intervals are widened to hold an estimate that may be far away
CHANCE = 1e-6
DRAW = np.random.default_rng(1927)


def samples(mechanism: Mechanism, n: int, repeats: int) -> Iterator[Likelihood]:
    """Yield the likelihoods of all samples: of all at once where the reports can be listed."""
    if not isinstance(certify(mechanism).channel, IndependentBits):
        op = operator_of(mechanism)
        yield Likelihood(op, DRAW.multinomial(n, op.forward(TRUTH), repeats).astype(np.float64))
        return
    for _ in range(repeats):
        reports = ldpsql.perturb(DRAW.choice(len(TRUTH), n, p=TRUTH).tolist(), mechanism)
        first, number = distinct(reports)
        group = np.zeros(len(first), dtype=np.int64)
        yield next(likelihoods(mechanism, reports.take(pa.array(first)), pa.array(np.bincount(number)), group, 1))[1]


def coverage(mechanism: Mechanism, n: int, repeats: int) -> dict[str, tuple[Floats, Floats]]:
    """Return for each estimator how many intervals of each share held the truth, and the mean standard errors."""
    held = {name: np.zeros(len(TRUTH)) for name in ESTIMATORS}
    error = {name: np.zeros(len(TRUTH)) for name in ESTIMATORS}
    for likelihood in samples(mechanism, n, repeats):
        for name in ESTIMATORS:
            told = intervals(likelihood, registry().estimator(name).fit(likelihood), 0.95)
            held[name] += ((told.low <= TRUTH + 1e-12) & (told.high >= TRUTH - 1e-12)).sum(axis=0)
            error[name] += told.std_error.sum(axis=0) / repeats
    return {name: (held[name], error[name]) for name in ESTIMATORS}


def figures(quick: bool) -> list[Figure]:
    """Return for each mechanism, number of reports and estimator the least and, of `BOTH_SIDED`, the largest coverage."""
    repeats, found = 50 if quick else 1_000, []
    for text in MECHANISMS:
        for n in SIZES:
            for name, (held, error) in coverage(registry().mechanism(text), n, repeats).items():
                label = f"{text.split(', domain')[0]}), n={n:,}, {name}" if "domain" in text else f"{text}, n={n:,}, {name}"
                found += judged(label, held, error, n, repeats)
    return found


def judged(label: str, held: Floats, error: Floats, n: int, repeats: int) -> list[Figure]:
    """Return the least coverage of any share and the largest of a share above two standard errors, and their bounds."""
    small = (n < SMALL) & (2 * error > TRUTH)
    least = binom.ppf(CHANCE, repeats, np.where(small, 0.90, 0.93)) / repeats
    worst = int((held / repeats - least).argmin())
    out = [at_least(f"{label}: least coverage", held[worst] / repeats, float(least[worst]), "")]
    clear = 2 * error < TRUTH
    if label.endswith(BOTH_SIDED) and clear.any():
        most = float(binom.isf(CHANCE, repeats, 0.975)) / repeats
        out.append(at_most(f"{label}: largest coverage of a clear share", held[clear].max() / repeats, most, ""))
    return out
