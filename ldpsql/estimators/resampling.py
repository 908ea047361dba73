"""Random numbers with which estimators choose how much to smooth: splits of counts, and simulated counts.

They are functions of the counts: the generator is keyed by them, so the same reports give the same estimate. They do not
protect anybody; the noise of mechanisms comes from `ldpsql.channels.randomness`.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.operators import Floats

FOLDS = 10


def generator(counts: Floats) -> np.random.Generator:
    """Return a generator keyed by counts, independent of their order."""
    key = blake2b(np.sort(counts, axis=None).tobytes(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(key, "little")))


def folds(one: Likelihood, number: int = FOLDS) -> tuple[Likelihood, Likelihood]:
    """Split the reports of one group into folds, each report by a fair draw; return the other folds' reports, and the folds.

    Both have one group for each fold; those that would leave no reports to learn from are left out. Counts are split from the
    smallest to the largest, so that the order of reports does not matter if their counts differ.
    """
    counts = one.counts[0]
    order = np.argsort(counts, kind="stable")
    parts = np.empty((len(counts), number))
    parts[order] = generator(counts).multinomial(counts[order].astype(np.int64), np.full(number, 1.0 / number))
    held_out = parts.T[counts.sum() > parts.sum(axis=0)]
    return one.with_counts(counts - held_out), one.with_counts(held_out)


def redrawn(one: Likelihood, theta: Floats, draw: np.random.Generator) -> Likelihood:
    """Return simulated reports of one group, as if theta, shape (1, inputs), were the truth.

    If the operator holds only observed reports, ``theta`` has to be the maximum of their likelihood: reports are drawn from
    those.
    """
    chance = one.operator.forward(theta)[0] if one.operator.complete else one.shares[0]
    return one.with_counts(draw.multinomial(int(one.n[0]), chance / chance.sum())[None].astype(np.float64))
