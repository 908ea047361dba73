"""The posterior of each share in each group, under the classes of `dispersion`.

The shares of a value in a block of groups are looked for among candidates: k/n for few reports n, where the numbers of people
are counted out, a grid for others, and candidates of its own for a share that its group's reports determine well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ldpsql.estimators.sharing.dispersion import CLASSES, GRID, concentrations, gamma_masses, whole_masses
from ldpsql.estimators.sharing.precise import own_candidates, own_masses, well_determined
from ldpsql.estimators.sharing.votes import Votes
from ldpsql.inference.deadline import check
from ldpsql.inference.operators import Floats

FEW = 24  # reports up to which people are counted out
LEVELS = np.concatenate([[0.025], np.arange(0.05, 0.96, 0.05), [0.975]])
_AT_ONCE = 2048  # groups
_VALUES = 64  # whose priors are computed together
_ROWS = 64
_LEAST = 1e-300


@dataclass(frozen=True)
class Posterior:
    """Means and variances of the shares of some groups, (groups, values), and quantiles, (groups, values, `LEVELS`)."""

    mean: Floats
    variance: Floats
    quantiles: Floats


@dataclass(frozen=True)
class Cells:
    """Shares with their candidates: how likely votes are for each, and the prior masses of each in each class.

    Groups in which as many of as many reports vote for a value are alike: what depends on nothing else is computed once, for
    each kind of votes. ``masses`` has shape (classes, candidates), or (kinds, classes, candidates). ``place`` and ``part`` are
    set if classes are concentrations on `GRID`: where those of the classes of each kind lie.
    """

    rows: NDArray[np.int64]
    kind: NDArray[np.int64]  # of each of the rows
    candidates: Floats
    log_likelihood: Floats
    masses: Floats
    place: NDArray[np.int64] | None = None
    part: Floats | None = None
    whole: bool = False

    @cached_property
    def likelihood(self) -> Floats:
        """How likely votes are for each candidate, relative to the best one."""
        return np.exp(np.maximum(self.log_likelihood - self.log_likelihood.max(axis=1, keepdims=True), -600.0))

    @cached_property
    def _chances(self) -> Floats:
        own = self.masses.ndim == 3
        chances = (self.masses @ self.likelihood[..., None])[..., 0] if own else by_rows(self.likelihood, self.masses.T)
        return np.maximum(chances, _LEAST)

    def chances(self) -> Floats:
        """Return how likely votes are in each class, (kinds, classes), relative to the best candidate."""
        if self.place is None or self.part is None:
            return self._chances
        rows = np.arange(len(self.place))[:, None]
        return (1.0 - self.part) * self._chances[rows, self.place] + self.part * self._chances[rows, self.place + 1]

    def evidence(self) -> Floats:
        """Return ln of how likely the votes are in each class, (shares, classes)."""
        logs = np.log(np.maximum(self.chances(), _LEAST)) + self.log_likelihood.max(axis=1)[:, None]
        return np.asarray(logs[self.kind])

    def posterior(self, classes: Floats) -> Floats:
        """Return the posterior of each share among its candidates, from the probabilities of its classes."""
        weights = classes / np.maximum(self.chances(), _LEAST)[self.kind]
        if self.place is not None and self.part is not None:
            weights = self._on_grid(weights, self.place[self.kind], self.part[self.kind])
        own = self.masses.ndim == 3
        prior = (weights[:, None, :] @ self.masses)[:, 0] if own else by_rows(weights, self.masses)
        each = prior * self.likelihood[self.kind]
        return np.asarray(each / np.maximum(each.sum(axis=1, keepdims=True), _LEAST))

    def _on_grid(self, weights: Floats, place: NDArray[np.int64], part: Floats) -> Floats:
        """Return the weights of classes as weights of the concentrations on `GRID` between which they lie."""
        width = len(self.masses)
        at = place + width * np.arange(len(weights))[:, None]
        both, where = np.hstack([weights * (1.0 - part), weights * part]), np.hstack([at, at + 1])
        sums = np.bincount(where.ravel(), weights=both.ravel(), minlength=width * len(weights))
        return np.asarray(sums, dtype=np.float64).reshape(len(weights), width)


def evidence(votes: Votes, mean: Floats) -> Floats:
    """Return ln of the probability of the votes of each group in each class, (groups, classes), up to a term of the group."""
    out = np.zeros((len(votes.n), CLASSES))
    for _, cells in _cells(votes, mean):
        out[cells.rows] += cells.evidence()
    return out


def posterior(votes: Votes, mean: Floats, classes: Floats) -> Posterior:
    """Return the posterior of every share, if ``classes`` are the probabilities of the classes of each group."""
    shape = votes.numbers.shape
    out = Posterior(np.empty(shape), np.empty(shape), np.empty((*shape, len(LEVELS))))
    for value, cells in _cells(votes, mean):
        each = cells.posterior(classes[cells.rows])
        candidates = np.broadcast_to(cells.candidates, each.shape)
        centre = (each * candidates).sum(axis=1)
        out.mean[cells.rows, value] = centre
        out.variance[cells.rows, value] = np.maximum((each * candidates**2).sum(axis=1) - centre**2, 0.0)
        out.quantiles[cells.rows, value] = _quantiles(each, candidates, whole=cells.whole)
    return out


def _cells(votes: Votes, mean: Floats) -> Iterator[tuple[int, Cells]]:
    """Yield all shares, in parts, each of one value."""
    for few in np.unique(votes.n[votes.n <= FEW]).astype(np.int64):
        yield from _counted_out(votes, mean, int(few), np.flatnonzero(votes.n == few))
    many = np.flatnonzero(votes.n > FEW)
    size = 4.0 ** np.floor(np.log2(votes.n[many]) / 2.0)  # neither the grid nor the estimate of a group depends on other groups
    for one in np.unique(size):
        rows = many[size == one]
        for start in range(0, len(rows), _AT_ONCE):
            yield from _on_grid(votes, mean, rows[start : start + _AT_ONCE], float(one))


def _counted_out(votes: Votes, mean: Floats, n: int, rows: NDArray[np.int64]) -> Iterator[tuple[int, Cells]]:
    with np.errstate(divide="ignore"):
        table = np.log(votes.table(n))
    candidates = np.arange(n + 1) / n
    for value, masses in enumerate(_by_value(mean, lambda different: whole_masses(different, n))):
        yield value, Cells(rows, votes.numbers[rows, value].astype(np.int64), candidates, table, masses, whole=True)


def _on_grid(votes: Votes, mean: Floats, rows: NDArray[np.int64], size: float) -> Iterator[tuple[int, Cells]]:
    some = votes.chosen(rows)
    candidates, concentration = _grid(some, 2.0 * size), concentrations(some.n)
    edges = np.append(candidates[1] / 2.0, (candidates[1:-1] + candidates[2:]) / 2.0)
    at = np.clip(np.log(concentration / GRID[0]) / np.log(GRID[1] / GRID[0]), 0.0, len(GRID) - 1.001)
    place = at.astype(np.int64)
    first, last = place.min(), place.max() + 2
    for value, masses in enumerate(_by_value(mean, lambda different: gamma_masses(different, GRID[first:last], edges))):
        own = well_determined(some, value)
        if not own.all():
            rest = np.flatnonzero(~own)
            one, kind = _kinds(some.n[rest], some.numbers[rest, value])
            logs = some.log_likelihood(some.numbers[rest[one], value], some.n[rest[one]], candidates)
            part = (at - place)[rest[one]]
            yield value, Cells(rows[rest], kind, candidates, logs, masses, place[rest[one]] - first, part)
        if own.any():
            yield value, _of_its_own(some.chosen(own), rows[own], value, float(mean[value]), concentration[own])


def _of_its_own(votes: Votes, rows: NDArray[np.int64], value: int, mean: float, concentration: Floats) -> Cells:
    candidates = own_candidates(votes, value, mean)
    logs = votes.log_likelihood(votes.numbers[:, value], votes.n, candidates)
    return Cells(rows, np.arange(len(rows)), candidates, logs, own_masses(mean, concentration, candidates))


def _kinds(n: Floats, votes: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first of each pair of these numbers that occurs, and which of the pairs each is."""
    _, first, kind = np.unique(n + 1j * votes, return_index=True, return_inverse=True)
    return first, kind


def by_rows(left: Floats, right: Floats) -> Floats:
    """Return the matrix product, in which no bit of a row depends on other rows: all products are of matrices of one shape."""
    out = np.empty((len(left), right.shape[1]))
    block = np.zeros((_ROWS, left.shape[1]))
    for start in range(0, len(left), _ROWS):
        part = left[start : start + _ROWS]
        block[: len(part)] = part
        out[start : start + _ROWS] = (block @ right)[: len(part)]
    return out


def _by_value(mean: Floats, masses: Callable[[Floats], Floats]) -> Iterator[Floats]:
    """Yield the prior masses of each value; values of equal means share theirs."""
    for start in range(0, len(mean), _VALUES):
        check()
        different, back = np.unique(mean[start : start + _VALUES], return_inverse=True)
        yield from masses(different)[back.ravel()]


def _grid(votes: Votes, n: float) -> Floats:
    """Return candidates of shares for groups of about n reports: zero, a geometric grid, and a fine one around the noise."""
    noise = float(np.sqrt(votes.noise(n)))
    low = np.clip(noise / 8.0, 1e-7, 0.05 / votes.numbers.shape[1])
    shares = np.concatenate([np.geomspace(low, 1.0, 90), np.arange(1, 33) * noise / 4.0])
    return np.append(0.0, np.unique(np.minimum(shares, 1.0)))


def _quantiles(each: Floats, candidates: Floats, *, whole: bool) -> Floats:
    """Return the quantiles of posteriors at `LEVELS`, (cells, levels); interpolated, unless the candidates are all there is."""
    rows = np.arange(len(each))[:, None]
    below = each.cumsum(axis=1) if whole else each.cumsum(axis=1) - each / 2.0
    flat = (np.minimum(below, 1.0) + 2.0 * rows).ravel()
    after = np.searchsorted(flat, LEVELS + 2.0 * rows) - rows * each.shape[1]
    if whole:
        return np.asarray(candidates[rows, np.minimum(after, each.shape[1] - 1)])
    after = np.clip(after, 1, each.shape[1] - 1)
    low, high = below[rows, after - 1], below[rows, after]
    part = np.clip((LEVELS - low) / np.maximum(high - low, _LEAST), 0.0, 1.0)
    return np.asarray(candidates[rows, after - 1] + part * (candidates[rows, after] - candidates[rows, after - 1]))
