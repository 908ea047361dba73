"""One estimate of each group from the posteriors of its single shares, which need not sum to one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ldpsql.estimators.sharing.blocks import Block, blocks
from ldpsql.estimators.sharing.quantiles import LEVELS, quantiles, typical_quantiles
from ldpsql.estimators.sharing.votes import Votes
from ldpsql.inference.operators import Floats
from ldpsql.inference.score_intervals import deviations

Z = deviations(0.95)
_WINDOW = np.arange(4)  # levels that are computed together: the sum of shares mostly passes one between two of these


def medians(votes: Votes, mean: Floats, weights: Floats, classes: Floats) -> Floats:
    """Return the posterior quantiles, all of one level in each group, that sum to one: the least expected absolute error.

    At a minimum of sum_x E|t_x - theta_x| among t that sum to one, P(theta_x < t_x) is the same for all x.

    Args:
        votes: those of all groups.
        mean: the shares of all groups together.
        weights: how common the classes are.
        classes: how probable each class is for each group, (groups, classes).

    """
    out = np.empty(votes.numbers.shape)
    for block in blocks(votes, mean):
        out[block.groups] = _medians(block, weights, classes[block.groups])
    return out


def credible(votes: Votes, mean: Floats, classes: Floats, added: Floats) -> tuple[Floats, Floats, Floats]:
    """Return standard errors, low and high ends of 95 % of shares, each of shape (groups, values).

    The posterior takes the mean of all groups for certain. Its error adds to that of each estimate as far as this is borrowed;
    source: Morris, "Parametric empirical Bayes inference: theory and applications", JASA 1983.

    Args:
        votes: those of all groups.
        mean: the shares of all groups together.
        classes: how probable each class is for each group, (groups, classes).
        added: the error of the mean as far as each estimate borrows from it.

    """
    error, low, high = (np.empty(votes.numbers.shape) for _ in range(3))
    for block in blocks(votes, mean):
        for cells in block.cells:
            rows, at = block.groups[cells.rows], classes[block.groups[cells.rows]]
            centre, square = ((cells.moment(power)[cells.kind] * at).sum(axis=1) for power in (1, 2))
            ends = np.tile(LEVELS[[0, -1]], (len(rows), 1))
            both = quantiles(cells, at, ends, np.zeros(len(rows), dtype=np.int64))
            place = rows, cells.value
            error[place] = np.hypot(np.sqrt(np.maximum(square - centre**2, 0.0)), added[place])
            low[place] = centre - np.hypot(np.maximum(centre - both[:, 0], 0.0), Z * added[place])
            high[place] = centre + np.hypot(np.maximum(both[:, 1] - centre, 0.0), Z * added[place])
    return error, np.maximum(low, 0.0), np.minimum(high, 1.0)


def _medians(block: Block, weights: Floats, classes: Floats, first: NDArray[np.int64] | None = None) -> Floats:
    """Return the medians of the groups of a block; ``first`` is the first of the levels that are computed for each."""
    typical = [typical_quantiles(cells, weights) for cells in block.cells]
    if first is None:
        first = np.clip((_totals(block, typical) < 1.0).sum(axis=1) - 2, 0, len(LEVELS) - len(_WINDOW))
    shares = np.empty((len(_WINDOW), len(classes), block.values))
    for cells, (start, _) in zip(block.cells, typical, strict=True):
        at = first[cells.rows]
        levels, near = LEVELS[at[:, None] + _WINDOW], start[cells.kind, at + 2]
        shares[:, cells.rows, cells.value] = quantiles(cells, classes[cells.rows], levels, near).T
    totals = shares.sum(axis=2)
    out = _summing_to_one(shares, totals)
    for row in np.flatnonzero(out.sum(axis=1) <= 0):
        out[row] = _means(block, classes, int(row))
    out /= out.sum(axis=1, keepdims=True)
    moved = np.clip(first + 3 * ((totals[-1] < 1.0).astype(np.int64) - (totals[0] >= 1.0)), 0, len(LEVELS) - len(_WINDOW))
    again = moved != first
    if again.any():
        out[again] = _medians(block.only(again), weights, classes[again], moved[again])
    return out


def _totals(block: Block, typical: list[tuple[NDArray[np.int64], Floats]]) -> Floats:
    """Return the sums of the typical quantiles of the shares of each group, (groups, levels)."""
    totals = np.zeros((len(block.groups), len(LEVELS)))
    for cells, (_, shares) in zip(block.cells, typical, strict=True):
        totals[cells.rows] += shares[cells.kind]
    return totals


def _summing_to_one(shares: Floats, totals: Floats) -> Floats:
    """Return shares between those of the two levels between which their sum passes one."""
    groups, after = np.arange(shares.shape[1]), np.clip((totals < 1.0).sum(axis=0), 1, len(_WINDOW) - 1)
    low, high = totals[after - 1, groups], totals[after, groups]
    part = np.clip((1.0 - low) / np.maximum(high - low, 1e-12), 0.0, 1.0)[:, None]
    return np.asarray((1.0 - part) * shares[after - 1, groups] + part * shares[after, groups])


def _means(block: Block, classes: Floats, row: int) -> Floats:
    """Return the posterior means of the shares of one group."""
    out = np.zeros(block.values)
    for cells in block.cells:
        of_row = cells.kind[cells.rows == row]
        out[cells.value] += (cells.moment(1)[of_row] * classes[row]).sum()
    return out
