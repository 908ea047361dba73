"""How often 95 % intervals hold the truth: mechanisms x numbers of reports x estimators, for every share and for the mean.

``python benchmarks/coverage.py [REPEATS]`` (default 1,000). A cell fails where fewer intervals hold the truth than would with
chance .93, or, for shares above two standard errors, more than would with chance .975, beyond what chance explains once in a
million runs. Below 1,000 reports shares near zero are held to .88: Wilson's interval itself is there. Exits with 1 on a
failure; writes ``benchmarks/coverage.json``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from scipy.stats import binom

import ldpsql
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
ESTIMATORS = ("ibu", "inv", "inv_p", "empirical_bayes", "uniform")
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


def main() -> None:
    """Measure, print, judge and write everything."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    rows, failed = {}, False
    for text in MECHANISMS:
        for n in SIZES:
            for name, (held, error) in coverage(registry().mechanism(text), n, repeats).items():
                fewest = binom.ppf(CHANCE, repeats, np.where((n < 1_000) & (2 * error > TRUTH), 0.88, 0.93))
                most = np.where(2 * error < TRUTH, binom.isf(CHANCE, repeats, 0.975), repeats)
                good = bool((held >= fewest).all() and (name not in ("ibu", "inv") or (held <= most).all()))
                failed |= not good
                label = f"{text.split(', domain')[0]}, n={n:,}, {name}"
                rows[label] = [round(float(share), 3) for share in held / repeats]
                print(
                    label, f"{(held / repeats).min():.3f} .. {(held / repeats).max():.3f}", "" if good else "FAILS", flush=True
                )
    Path(__file__).with_suffix(".json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    sys.exit(failed)


if __name__ == "__main__":
    main()
