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
from ldpsql.inference.outcome import simplex_projection
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

    def means(self, theta: Floats) -> Floats:
        """Return the mean over the rows of each group of theta, shape (rows, values); equal shares for a group without rows."""
        rows = np.bincount(self.group, minlength=self.groups)
        out = np.full((self.groups, theta.shape[1]), 1.0 / theta.shape[1])
        out[rows > 0] = 0.0
        np.add.at(out, self.group, theta / rows[self.group, None])
        return out

    def totals(self, of_rows: Floats) -> Floats:
        """Return the sum over the rows of each group."""
        return np.bincount(self.group, weights=of_rows, minlength=self.groups).astype(np.float64)


def split(likelihood: Likelihood, number: int = FOLDS, certain: Floats | None = None) -> Split:
    """Split the reports of every group into folds, each report by a fair draw.

    Folds that would leave no reports to learn from are left out. Counts are split from the smallest to the largest, so that the
    order of reports does not matter if their counts differ. ``certain``, shape (groups, reports), is a part of each count that
    is shared equally among the folds instead; see `certain_parts`.
    """
    learnt, held_out, group = [], [], []
    for i, counts in enumerate(likelihood.counts):
        parts = shared_out(counts, number, None if certain is None else certain[i])
        held = parts[counts.sum() > parts.sum(axis=1) + 0.5]
        learnt.append(np.maximum(counts - held, 0.0))
        held_out.append(held)
        group.append(np.full(len(held), i, dtype=np.int64))
    first, second = (likelihood.with_counts(np.concatenate(parts)) for parts in (learnt, held_out))
    return Split(first, second, np.concatenate(group), len(likelihood.counts))


def shared_out(counts: Floats, number: int, certain: Floats | None) -> Floats:
    """Return the counts of every fold, shape (folds, reports)."""
    order, draw = np.argsort(counts, kind="stable"), generator(counts)
    chance = counts[order]
    if certain is not None:
        chance = np.floor(chance * (1.0 - certain[order]) + draw.random(len(order)))
        chance = np.minimum(chance, counts[order])
    parts = np.empty((number, len(counts)))
    parts[:, order] = draw.multinomial(chance.astype(np.int64), np.full(number, 1.0 / number)).T
    parts[:, order] += (counts[order] - chance) / number
    return parts


def certain_parts(likelihood: Likelihood) -> Floats:
    """Return for each report the part of its number that noise does not change, if reports name values and all are alike.

    The number of reports y from the people who have x is binomial, so its variance is its mean times 1 - P(y|x). If the rest of
    each count is split at random, folds differ by the noise, and not by who is in them: what predicts a fold best is then close
    to the shares of the people who reported.
    """
    votes = likelihood.operator.votes
    if votes is None or not likelihood.operator.exchangeable:
        return np.zeros_like(likelihood.counts)
    theta, (low, high) = simplex_projection(likelihood.operator.invert(likelihood.shares)), votes
    return (low**2 + (high**2 - low**2) * theta) / (low + (high - low) * theta)


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


# How much better one estimate predicts held-out reports than another, and how clear that is.

ALIKE = 2.0  # in log-likelihood; Edwards, "Likelihood", 1972: two units of support


def gained(parts: Split, before: Floats, after: Floats) -> tuple[Floats, Floats]:
    """Return the gain in log-likelihood of the held-out reports of each group, and its standard error."""
    counts = parts.held_out.counts
    seen = counts > 0
    with np.errstate(divide="ignore", invalid="ignore"):
        rise = np.where(seen, np.log(np.where(seen, after, 1.0)) - np.log(np.where(seen, before, 1.0)), 0.0)
    rise = np.nan_to_num(rise, nan=0.0, posinf=50.0, neginf=-50.0)  # a probability of zero counts as e^-50
    total, n = parts.totals((counts * rise).sum(axis=1)), np.maximum(parts.totals(counts.sum(axis=1)), 1.0)
    return total, np.sqrt(np.maximum(parts.totals((counts * rise**2).sum(axis=1)) - total**2 / n, 0.0))


def clear(gain: Floats, error: Floats, least: float, most: float) -> Floats:
    """Return how clear a gain in log-likelihood is: 0 up to ``least`` standard errors, 1 from ``most`` of them on.

    A standard error below `ALIKE` counts as that.
    """
    return np.asarray(np.clip((gain / np.maximum(ALIKE, error) - least) / (most - least), 0.0, 1.0))
