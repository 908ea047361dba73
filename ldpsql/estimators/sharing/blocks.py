"""Blocks of groups with about as many reports, and the `Cells` of all their values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ldpsql.estimators.sharing.cells import CLASSES, GRID, Cells, Votes, concentrations, first_of, gamma_masses, whole_masses
from ldpsql.inference.limits import check
from ldpsql.inference.operators import Floats

# Priors of shares that a group's own reports determine well: too narrow for a grid that all groups have in common.
#
# Each of these shares has candidates of its own: a few around the inverted share, as far apart as half of its error, and a few
# around the common mean.


WELL = 6.0  # errors that a share is above zero
_AROUND = np.arange(-5.0, 5.1, 0.5)
_NEAR = np.array([-1.0, -0.5, -0.2, -0.05, 0.05, 0.2, 0.5, 1.0])
_TINY = 1e-12


def well_determined(votes: Votes, value: int) -> NDArray[np.bool_]:
    """Return in which groups the reports determine the share of a value well."""
    share, error = votes.inverted(value)
    return np.asarray(share > WELL * error)


def own_candidates(votes: Votes, value: int, mean: float) -> Floats:
    """Return the candidates of the share of a value in each group, rising: (groups, candidates)."""
    share, error = (part[:, None] for part in votes.inverted(value))
    both = np.hstack([share + error * _AROUND, mean + error * _NEAR])
    return np.sort(np.clip(both, _TINY, 1.0), axis=1)


def own_masses(mean: float, concentration: Floats, candidates: Floats) -> Floats:
    """Return the prior masses of the candidates of each group in each class, (groups, classes, candidates).

    The cube root of a Gamma variable is close to normal. Source: Wilson, Hilferty, "The distribution of chi-square", PNAS 1931.
    """
    from scipy.special import ndtr  # noqa: PLC0415  # slow to import

    shape = np.maximum(concentration * mean, _TINY)[..., None]
    edges = (candidates[:, None, 1:] + candidates[:, None, :-1]) / 2.0
    below = ndtr((np.cbrt(edges / mean) - 1.0 + 1.0 / (9.0 * shape)) * 3.0 * np.sqrt(shape))
    return np.asarray(np.diff(below, axis=-1, prepend=0.0, append=1.0))


FEW = 24  # reports up to which people are counted out
_CELLS, _UNLIKE = 1 << 19, 1 << 16  # (group, value) in a block, if groups are small, or large and thus rarely of one kind
_SMALL = 256
_VALUES = 64  # whose priors are computed together


@dataclass(frozen=True)
class Block:
    """Some groups, and the cells of all values in them, whose rows count from the first of ``groups``."""

    groups: NDArray[np.int64]
    values: int
    cells: list[Cells]

    def only(self, chosen: NDArray[np.bool_]) -> Block:
        """Return the block of some of its groups."""
        row = np.cumsum(chosen) - 1
        kept = [cells.only(chosen, row) for cells in self.cells if chosen[cells.rows].any()]
        return Block(self.groups[chosen], self.values, kept)

    def evidence(self) -> Floats:
        """Return ln of how likely the votes of each group are in each class, (groups, classes), up to a term of the group."""
        out = np.zeros((len(self.groups), CLASSES))
        for cells in self.cells:
            if len(cells.rows) == len(out):
                out += cells.evidence()
            else:
                out[cells.rows] += cells.evidence()
        return out


def blocks(votes: Votes, mean: Floats) -> Iterator[Block]:
    """Yield all groups, in blocks.

    Neither the candidates nor the estimate of a group depend on which other groups there are.
    """
    at_once = max(1, _CELLS // len(mean))
    order = np.argsort(votes.n, kind="stable")  # groups of one kind are in few blocks
    for few in np.unique(votes.n[votes.n <= FEW]).astype(np.int64):
        for groups in _parts(np.flatnonzero(votes.n == few), at_once):
            yield Block(groups, len(mean), list(_counted_out(votes.chosen(groups), mean, int(few))))
    many = order[votes.n[order] > FEW]
    size = 4.0 ** np.floor(np.log2(votes.n[many]) / 2.0)
    for one in np.unique(size):
        for groups in _parts(many[size == one], at_once if one < _SMALL else max(1, _UNLIKE // len(mean))):
            yield Block(groups, len(mean), list(_on_grid(votes.chosen(groups), mean, float(one))))


def _parts(groups: NDArray[np.int64], at_once: int) -> Iterator[NDArray[np.int64]]:
    yield from (groups[start : start + at_once] for start in range(0, len(groups), at_once))


def _counted_out(votes: Votes, mean: Floats, n: int) -> Iterator[Cells]:
    with np.errstate(divide="ignore"):
        table = np.log(votes.table(n))
    candidates, rows, number = np.arange(n + 1) / n, np.arange(len(votes.n)), np.zeros(n + 1, dtype=np.int64)
    for value, masses in enumerate(_by_value(mean, lambda different: whole_masses(different, n))):
        kind = votes.numbers[:, value].astype(np.int64)
        yield Cells(value, rows, kind, candidates, table, number, masses[None], whole=True)


def _on_grid(votes: Votes, mean: Floats, size: float) -> Iterator[Cells]:
    """Yield the cells of groups that have from ``size`` to four times as many reports."""
    candidates = _grid(votes, 2.0 * size)
    edges = np.append(candidates[1] / 2.0, (candidates[1:-1] + candidates[2:]) / 2.0)
    first, last = _places(np.array([size, 4.0 * size]))[0][[0, 1], [0, -1]] + (0, 2)
    for value, masses in enumerate(_by_value(mean, lambda different: gamma_masses(different, GRID[first:last], edges))):
        own = well_determined(votes, value)
        for rows in (np.flatnonzero(~own), np.flatnonzero(own)):
            if not len(rows):
                continue
            one, kind = _kinds(votes.n[rows], votes.numbers[rows, value])
            if len(one) == 1:  # NumPy sums a single row in another order
                one = np.repeat(one, 2)
            some = Votes(votes.numbers[rows[one], value : value + 1], votes.n[rows[one]], votes.low, votes.high)
            if own[rows[0]]:
                yield _of_its_own(some, rows, kind, value, float(mean[value]), alike=size < _SMALL)
                continue
            logs = some.log_likelihood(some.numbers[:, 0], some.n, candidates)
            different, number = np.unique(some.n, return_inverse=True)
            place, part = _places(different)
            yield Cells(value, rows, kind, candidates, logs, number, masses, place - first, part, alike=size < _SMALL)


def _places(n: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Return between which concentrations of `GRID` the classes of groups of n people lie, and where between them."""
    at = np.clip(np.log(concentrations(n) / GRID[0]) / np.log(GRID[1] / GRID[0]), 0.0, len(GRID) - 1.001)
    place = at.astype(np.int64)
    return place, at - place


def _of_its_own(
    votes: Votes, rows: NDArray[np.int64], kind: NDArray[np.int64], value: int, mean: float, *, alike: bool
) -> Cells:
    """Return the cells of a value whose share the reports determine well; ``votes`` are those of each kind for this value."""
    candidates = own_candidates(votes, 0, mean)
    logs = votes.log_likelihood(votes.numbers[:, 0], votes.n, candidates)
    masses = own_masses(mean, concentrations(votes.n), candidates)
    return Cells(value, rows, kind, candidates, logs, np.arange(len(logs)), masses, alike=alike)


def _kinds(n: Floats, votes: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first of each pair of these numbers that occurs, and which of the pairs each is."""
    width = int(votes.max()) + 1
    if n.max() * width < 2**53:
        return first_of((n * width + votes).astype(np.int64))
    _, first, kind = np.unique(n + 1j * votes, return_index=True, return_inverse=True)
    return first, kind


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
