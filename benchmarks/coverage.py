"""How often 95 % intervals hold the truth: mechanisms x numbers of reports x estimators, for shares and for numbers about them.

The numbers are mean, variance, median, 90 % quantile and the share of the ten most frequent values. With 20,000 reports a
figure is missed if fewer than .93 of the intervals hold the truth or, for shares above two standard errors, more than .975.
With 200 reports it is missed if chance explains it less than once in a million runs; the bound for shares near zero is then
.90, which is what Wilson's interval itself reaches there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
from scipy.stats import binom

import ldpsql
from benchmarks.figures import Figure, at_least, at_most
from ldpsql import Likelihood
from ldpsql.estimates.estimate import Estimates, estimate_likelihood
from ldpsql.functions import registry
from ldpsql.inference.counting import column_likelihood
from ldpsql.inference.operators import Floats
from ldpsql.mechanisms.base import Mechanism
from ldpsql.questions import Functional, Mean, Quantile, RangeShare, Variance
from ldpsql.testing import operator_of

TRUTH = np.array([30, 20, 12, 9, 7, 5, 4, 3, 2, 2, 1.5, 1, 1, 0.5, 0.5, 0.5, 1, 0, 0, 0]) / 100
VALUES = np.arange(len(TRUTH))
DOMAIN = f"{VALUES.tolist()}"
LISTED = (
    f"krr(epsilon=1, domain={DOMAIN})",
    f"krr(epsilon=6, domain={DOMAIN})",
    f"olh(epsilon=1, domain={DOMAIN}, seeds='orthogonal')",
    f"olh(epsilon=3, domain={DOMAIN}, seeds='orthogonal')",
    "truncated_geometric(epsilon=0.2, low=0, high=19)",
    "truncated_geometric(epsilon=1, low=0, high=19)",
)
DRAWN = (f"oue(epsilon=1, domain={DOMAIN})", f"oue(epsilon=4, domain={DOMAIN})", f"olh(epsilon=1, domain={DOMAIN})")
SIZES = (200, 20_000)
SMALL = 1_000
ESTIMATORS = ("ibu", "inv", "empirical_bayes")
BOTH_SIDED = ("ibu", "inv")  # the other's intervals are widened to hold an estimate that may be far away
MEAN, TOP_TEN = float(TRUTH @ VALUES), float(TRUTH[:10].sum())
NUMBERS: dict[str, tuple[Functional, float]] = {
    "mean": (Mean(), MEAN),
    "variance": (Variance(), float(TRUTH @ VALUES**2) - MEAN**2),
    "median": (Quantile(q=0.5), float((TRUTH.cumsum() >= 0.5 - 1e-12).argmax())),
    "90 % quantile": (Quantile(q=0.9), float((TRUTH.cumsum() >= 0.9 - 1e-12).argmax())),
    "share of the top ten": (RangeShare(None, 9), TOP_TEN),
}
LEAST, MOST = 0.93, 0.975
CHANCE = 1e-6
DRAW = np.random.default_rng(1927)


def samples(mechanism: Mechanism, n: int, repeats: int) -> Iterator[Likelihood]:
    """Yield the likelihoods of all samples: one likelihood for all if the reports can be listed."""
    if mechanism in map(registry().mechanism, LISTED):
        op = operator_of(mechanism)
        yield Likelihood(op, DRAW.multinomial(n, op.forward(TRUTH), repeats).astype(np.float64))
        return
    for _ in range(repeats):
        reports = ldpsql.perturb(DRAW.choice(VALUES, n, p=TRUTH).tolist(), mechanism)
        yield column_likelihood(reports, mechanism)


def held(estimates: Estimates) -> tuple[Floats, dict[str, float]]:
    """Return in how many groups the intervals hold each share, and each of `NUMBERS`."""
    intervals = estimates.intervals
    shares = ((intervals.low <= TRUTH + 1e-12) & (intervals.high >= TRUTH - 1e-12)).sum(axis=0)
    numbers = {}
    for name, (functional, truth) in NUMBERS.items():
        measured = functional.measure(estimates)
        numbers[name] = float(((measured.low <= truth + 1e-12) & (measured.high >= truth - 1e-12)).sum())
    return shares.astype(np.float64), numbers


def covered(mechanism: Mechanism, n: int, repeats: int, name: str, drawn: list[Likelihood]) -> list[Figure]:
    """Return the coverage of one estimator's intervals over all samples, with its bounds."""
    shares, error, numbers = np.zeros(len(TRUTH)), np.zeros(len(TRUTH)), dict.fromkeys(NUMBERS, 0.0)
    for likelihood in drawn:
        estimates = estimate_likelihood(mechanism, likelihood, registry().estimator(f"{name}(misfit='allow')"))
        held_shares, held_numbers = held(estimates)
        shares, error = shares + held_shares, error + estimates.intervals.std_error.sum(axis=0) / repeats
        numbers = {what: number + held_numbers[what] for what, number in numbers.items()}
    label = f"{without_domain(mechanism)}, n={n:,}, {name}"
    out = [*judged_shares(label, shares / repeats, error, n, repeats, both_sided=name in BOTH_SIDED)]
    if name == "ibu":  # the intervals of numbers do not depend on the estimator
        least = LEAST if n > SMALL else float(binom.ppf(CHANCE, repeats, LEAST)) / repeats
        out += [at_least(f"{label}: coverage of the {what}", number / repeats, least, "") for what, number in numbers.items()]
    return out


def without_domain(mechanism: Mechanism) -> str:
    """Return a mechanism without its domain."""
    return re.sub(r", domain=\[.*?\]", "", str(mechanism))


def judged_shares(label: str, held: Floats, error: Floats, n: int, repeats: int, *, both_sided: bool) -> Iterator[Figure]:
    """Yield the least coverage of any share and the largest of a share above two standard errors, and their bounds."""
    small = 2 * error > TRUTH
    least = np.full(len(TRUTH), LEAST) if n > SMALL else binom.ppf(CHANCE, repeats, np.where(small, 0.90, LEAST)) / repeats
    worst = int((held - least).argmin())
    yield at_least(f"{label}: least coverage of a share", float(held[worst]), float(least[worst]), "")
    clear = 2 * error < TRUTH
    if both_sided and clear.any():
        most = MOST if n > SMALL else float(binom.isf(CHANCE, repeats, MOST)) / repeats
        yield at_most(f"{label}: largest coverage of a clear share", float(held[clear].max()), most, "")


def figures(quick: bool) -> list[Figure]:
    """Return the coverage of shares and of numbers; for ``ibu`` only if reports are drawn one by one."""
    repeats, out = 50 if quick else 1_000, []
    for text in (*LISTED, *DRAWN):
        mechanism = registry().mechanism(text)
        for n in SIZES:
            drawn = list(samples(mechanism, n, repeats))
            for name in ESTIMATORS if text in LISTED else ESTIMATORS[:1]:
                out += covered(mechanism, n, repeats, name, drawn)
    return out


def check() -> Iterator[Figure]:
    """Yield root mean squares of errors in stated standard errors, of samples with a fixed seed: they should be 1."""
    for text in LISTED[::2]:
        mechanism, n = registry().mechanism(text), SIZES[-1]
        op, draw = operator_of(mechanism), np.random.default_rng(1927)
        counts = draw.multinomial(n, op.forward(TRUTH), 400).astype(np.float64)
        estimates = estimate_likelihood(mechanism, Likelihood(op, counts), registry().estimator("inv(misfit='allow')"))
        far = (estimates.fit.theta - TRUTH) / estimates.intervals.std_error
        yield Figure(
            f"{without_domain(mechanism)}: shares, root mean square in standard errors", float(np.sqrt((far**2).mean()))
        )
        mean = Mean(unbiased=True).measure(estimates)
        far = (mean.estimate - MEAN) / mean.std_error
        yield Figure(f"{without_domain(mechanism)}: mean, root mean square in standard errors", float(np.sqrt((far**2).mean())))
