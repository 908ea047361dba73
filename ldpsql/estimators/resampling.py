"""Random numbers with which estimators choose how much to smooth: splits of counts, and simulated counts.

They are functions of the counts: the generator is keyed by them, so the same reports give the same estimate. They do not
protect anybody; the noise of mechanisms comes from `ldpsql.channels.randomness`.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.operators import Floats
from ldpsql.inference.solver.together import TINY

FOLDS = 10


def generator(counts: Floats) -> np.random.Generator:
    """Return a generator keyed by counts, independent of their order."""
    key = blake2b(np.sort(counts, axis=None).tobytes(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(key, "little")))


@dataclass(frozen=True)
class Split:
    """Reports of some groups in folds: what is learnt from the other folds, and what is held out, a row for each fold.

    ``group`` is the number of the group of each row, out of ``groups``.
    """

    learnt: Likelihood
    held_out: Likelihood
    group: NDArray[np.int64]
    groups: int

    def of_rows(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Split:
        """Return some rows; groups keep their numbers."""
        learnt, held_out = (part.with_counts(part.counts[rows]) for part in (self.learnt, self.held_out))
        return Split(learnt, held_out, self.group[rows], self.groups)

    def scores(self, expected: Floats) -> Floats:
        """Return the log-likelihood of the held-out reports of each group, from the probabilities that each row gives them.

        That of a group without rows is minus infinity, so that it is never higher than before.
        """
        logs = np.log(np.maximum(expected, TINY))
        sums = self.totals(np.einsum("gz,gz->g", self.held_out.counts, logs))
        return np.where(np.bincount(self.group, minlength=self.groups) > 0, sums, -np.inf)

    def totals(self, of_rows: Floats) -> Floats:
        """Return the sum over the rows of each group."""
        return np.bincount(self.group, weights=of_rows, minlength=self.groups).astype(np.float64)


def split(likelihood: Likelihood, number: int = FOLDS) -> Split:
    """Split the reports of every group into folds, each report by a fair draw.

    Folds that would leave no reports to learn from are left out. Counts are split from the smallest to the largest, so that the
    order of reports does not matter if their counts differ.
    """
    learnt, held_out, group = [], [], []
    for i, counts in enumerate(likelihood.counts):
        order = np.argsort(counts, kind="stable")
        parts = np.empty((len(counts), number))
        parts[order] = generator(counts).multinomial(counts[order].astype(np.int64), np.full(number, 1.0 / number))
        held = parts.T[counts.sum() > parts.sum(axis=0)]
        learnt.append(counts - held)
        held_out.append(held)
        group.append(np.full(len(held), i, dtype=np.int64))
    first, second = (likelihood.with_counts(np.concatenate(parts)) for parts in (learnt, held_out))
    return Split(first, second, np.concatenate(group), len(likelihood.counts))


def folds(one: Likelihood, number: int = FOLDS) -> tuple[Likelihood, Likelihood]:
    """Return the reports of one group in folds, as `split` makes them: those of the other folds, and the folds."""
    parts = split(one, number)
    return parts.learnt, parts.held_out


def redrawn(one: Likelihood, theta: Floats, draw: np.random.Generator) -> Likelihood:
    """Return simulated reports of one group, as if theta, shape (1, inputs), were the truth.

    If the operator holds only observed reports, ``theta`` has to be the maximum of their likelihood: reports are drawn from
    those.
    """
    chance = one.operator.forward(theta)[0] if one.operator.complete else one.shares[0]
    return one.with_counts(draw.multinomial(int(one.n[0]), chance / chance.sum())[None].astype(np.float64))
