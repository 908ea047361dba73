"""EM with mixture reduction (EM-MR).

Ye, Wang, Zhang, Feng, "Revisiting EM-based estimation for locally differentially private protocols", NDSS 2025, algorithms 1
(categories) and 3 (values in order).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ldpsql.estimators import (
    Ascent,
    Blocks,
    Estimator,
    Fit,
    Floats,
    IterativeEstimator,
    Likelihood,
    Limits,
    Status,
    StopField,
    absent_error,
    block_sizes,
    hookimpl,
    mean_of_blocks,
    renumbered,
    spread,
    uniform,
    until_still_in_blocks,
    with_blocks,
)

DIGITS = 9  # of what is compared: products of many groups and of one round otherwise, and ties must not depend on that
ROUGH = 100.0  # tolerances at which the fits end that only decide what to merge


class EmMr(IterativeEstimator):
    """Mixture reduction: the smallest shares are merged and the rest fitted again, as long as BIC falls.

    Categories: at most half of the values below two standard deviations are merged into one at a time. Values in order: the
    window of neighbours with the smallest sum below that, half as wide each time. BIC = -2 log L + K' log n; at least
    ``keep_share`` of the values stay; a merged weight is spread equally. Whole numbers are values in order; if they are labels,
    such as stores or post codes, ``neighbours := 'ignore'`` merges the smallest shares instead.

    Each fit is EM stopped by the paper's rule: reduction of the exact maximum would merge only what is zero already. As in the
    authors' code a fit goes on from the one before, and those that decide what to merge stop earlier, at 100 times
    ``tolerance``; so all together take about as many steps as EM alone. With another rule than 'paper' each fit follows that
    rule, from ``start``. ``max_iterations`` limits each fit.

    >>> from ldpsql.inference.operators import KeepOrSpreadOperator
    >>> reports = Likelihood(KeepOrSpreadOperator(6, 0.3, 0.14), np.array([[300.0, 142.0, 138.0, 141.0, 139.0, 140.0]]))
    >>> EmMr(keep_share=0).fit(reports).theta.round(2).tolist()
    [[0.96, 0.01, 0.01, 0.01, 0.01, 0.01]]
    """

    name = "em_mr"
    most_values = 65_536  # half a minute; ten minutes are not enough for a million values
    stop: StopField = Field("paper", description="of each fit: 'paper', 'certified', 'held_out' or a number of steps")
    tolerance: Annotated[float, Field(gt=0, lt=1)] = Field(1e-3, description="largest change of the log-likelihood")
    keep_share: Annotated[float, Field(ge=0, le=1)] = Field(0.25, description="least share of the values to keep, K_min / K")
    neighbours: Literal["use", "ignore"] = Field(
        "use", description="'use': merge neighbours if there are any; 'ignore': merge the smallest values"
    )

    def fit(self, likelihood: Likelihood) -> Fit:
        """Reduce all groups together."""
        limits, window = self.limits(), likelihood.operator.inputs
        fewest, small = max(2, round(self.keep_share * window)), 2.0 * deviations(likelihood)
        begin = self.started(likelihood)
        state = Reduced.unreduced(likelihood, self._fitted(likelihood, single_values(begin), begin, limits, ROUGH))
        going = np.arange(len(begin))
        while window > 1 and len(going) and not limits.late:
            window = -(-window // 2)
            smaller = merge_window if len(likelihood.layout) == 1 and self.neighbours == "use" else merge_smallest
            block = smaller(state.block[going], state.theta[going], small[going], window, fewest)
            changed = (block != state.block[going]).any(axis=1)  # if none is small enough, a narrower window may be
            rows, block = going[changed], block[changed]
            if not len(rows):
                continue
            part = likelihood.with_counts(likelihood.counts[rows])
            start = mean_of_blocks(state.theta[rows] if self.stop == "paper" else begin[rows], block)
            worse = state.take(part, rows, block, self._fitted(part, block, start, limits, ROUGH))
            going = np.setdiff1d(going, worse)
        if self.stop == "paper":
            state.end(self._fitted(likelihood, state.block, state.theta, limits, 1.0))
        return state.outcome(going if limits.late else going[:0])

    def _fitted(self, likelihood: Likelihood, block: Blocks, start: Floats, limits: Limits, rough: float) -> Ascent:
        """Return the fit of each group with its blocks, shape (groups, values), from ``start``, with theta spread equally."""
        if self.stop == "paper":
            return until_still_in_blocks(likelihood, start, block, self.tolerance * rough, limits)
        fits = [self._alone(likelihood.group(i), *one) for i, one in enumerate(zip(block, start, strict=True))]
        theta = np.concatenate([fit.theta for fit in fits])
        steps = np.array([int(fit.iterations[0]) for fit in fits], dtype=np.int64)
        return Ascent(theta, likelihood.log_likelihood(theta), steps, tuple(fit.status[0] for fit in fits))

    def _alone(self, one: Likelihood, block: Blocks, start: Floats) -> Fit:
        block = renumbered(block)
        begin = np.bincount(block, weights=start).astype(np.float64)[None]
        fit = self.stepped(with_blocks(one, block), Status.STOPPED, begin)
        return replace(fit, theta=spread(fit.theta, block))


@dataclass
class Reduced:
    """How far the values of each group are merged: blocks and theta, shape (groups, values), and BIC."""

    block: Blocks
    theta: Floats
    criterion: Floats
    steps: NDArray[np.int64]
    status: list[Status]

    @classmethod
    def unreduced(cls, likelihood: Likelihood, fit: Ascent) -> Reduced:
        """Return the fit of every value."""
        block = single_values(fit.theta)
        return cls(block, fit.theta, bic(likelihood, block, fit), fit.steps.copy(), list(fit.status))

    def take(self, part: Likelihood, rows: NDArray[np.int64], block: Blocks, fit: Ascent) -> NDArray[np.int64]:
        """Take a further reduction of some groups where BIC does not rise; return the others of these groups."""
        criterion = bic(part, block, fit)
        good = np.round(criterion - self.criterion[rows], DIGITS) <= 0
        better = rows[good]
        self.block[better], self.theta[better], self.criterion[better] = block[good], fit.theta[good], criterion[good]
        self.steps[rows] += fit.steps
        for group, status in zip(better, np.array(fit.status, dtype=object)[good], strict=True):
            self.status[group] = status
        return rows[~good]

    def end(self, fit: Ascent) -> None:
        """Take the last fit of all groups, whose blocks stay as they are."""
        self.theta, self.status = fit.theta, list(fit.status)
        self.steps += fit.steps

    def outcome(self, late: NDArray[np.int64]) -> Fit:
        """Return the outcome; for the groups ``late`` there was no time to reduce further."""
        ended = [
            status if status in (Status.OUT_OF_STEPS, Status.OUT_OF_TIME) else Status.REGULARISED for status in self.status
        ]
        for group in late:
            ended[group] = Status.OUT_OF_TIME
        return Fit(self.theta, self.steps, tuple(ended))


def single_values(theta: Floats) -> Blocks:
    """Return for each group a block for each value."""
    return np.tile(np.arange(theta.shape[1]), (len(theta), 1))


def deviations(likelihood: Likelihood) -> Floats:
    """Return for each group the standard deviation of an absent value; without votes, Cramer and Rao's bound at equal shares.

    Source: Ye et al., section V-B and the inverse of (13).
    """
    op, even = likelihood.operator, uniform(likelihood)
    if op.votes:
        return np.asarray(absent_error(likelihood, even).mean(axis=-1))
    shares = likelihood.shares[:1] if op.complete else likelihood.shares  # only observed reports stand for themselves
    information = np.array([op.information(even[0], one).diagonal().mean() for one in shares])
    return np.sqrt(1.0 / (likelihood.n * information))


def bic(likelihood: Likelihood, block: Blocks, fit: Ascent) -> Floats:
    """Return -2 log L + K' log n of each group."""
    return -2.0 * fit.log_likelihood + (block_sizes(block) > 0).sum(axis=1) * np.log(likelihood.n)


def merge_smallest(block: Blocks, theta: Floats, small: Floats, _window: int, fewest: int) -> Blocks:
    """Merge half of the blocks below the threshold, the smallest ones, into one, and keep ``fewest`` blocks (algorithm 1)."""
    sizes = block_sizes(block)
    weights = np.where(sizes > 0, theta * sizes, np.inf)
    below = weights < small[:, None]
    count, room = below.sum(axis=1), np.maximum((sizes > 0).sum(axis=1) - fewest + 1, 0)
    number = np.minimum(np.minimum(np.maximum(2, -(-count // 2)), count), room)
    rank = np.where(below, np.round(weights, DIGITS), np.inf).argsort(axis=1, kind="stable").argsort(axis=1, kind="stable")
    return joined(block, np.take_along_axis(rank < number[:, None], block, axis=1))


def merge_window(block: Blocks, theta: Floats, small: Floats, window: int, fewest: int) -> Blocks:
    """Merge the ``window`` neighbouring blocks whose sum is smallest, if below the threshold (algorithm 3)."""
    sizes = block_sizes(block)
    count = (sizes > 0).sum(axis=1)
    width = np.maximum(1, np.minimum(window, count - fewest + 1))[:, None]
    order = np.argsort(sizes == 0, axis=1, kind="stable")  # blocks from left to right, then numbers without a block
    sums = np.pad(np.take_along_axis(theta * sizes, order, axis=1).cumsum(axis=1), ((0, 0), (1, 0)))
    left = np.arange(block.shape[1])
    right = np.minimum(left + width, block.shape[1])
    sums = np.where(left + width <= count[:, None], np.take_along_axis(sums, right, axis=1) - sums[:, :-1], np.inf)
    inside = np.round(sums, DIGITS)
    first = inside.argmin(axis=1)[:, None]
    number = np.take_along_axis((sizes > 0).cumsum(axis=1) - 1, block, axis=1)
    low = np.take_along_axis(inside, first, axis=1) < small[:, None]
    return joined(block, low & (number >= first) & (number < first + width))


def joined(block: Blocks, chosen: NDArray[np.bool_]) -> Blocks:
    """Make the blocks of the chosen values one; a block is numbered by its first value."""
    first = np.take_along_axis(block, chosen.argmax(axis=1)[:, None], axis=1)
    return np.where(chosen, first, block)


@hookimpl
def ldpsql_estimators() -> list[type[Estimator]]:
    """Offer mixture reduction."""
    return [EmMr]
