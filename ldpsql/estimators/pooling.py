"""Merging values that the reports do not distinguish: what pooling and mixture reduction share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.limits import Limits
from ldpsql.inference.operators import Floats, merged
from ldpsql.inference.operators.weights import tangent_inverse
from ldpsql.inference.solver.mle import TOLERANCE, along_gradients, maximum_likelihood, uniform
from ldpsql.inference.solver.objective import TiedPoint
from ldpsql.inference.solver.together import Ascent, Rows, moved, until_still

Blocks = NDArray[np.int64]


def renumbered(block: Blocks) -> Blocks:
    """Number the blocks from 0 without gaps."""
    return np.unique(block, return_inverse=True)[1].astype(np.int64)


def with_blocks(one: Likelihood, block: Blocks) -> Likelihood:
    """Return the likelihood of the weights of blocks of values."""
    return one.with_operator(merged(one.operator, block))


def block_maximum(one: Likelihood, block: Blocks) -> tuple[Floats, int]:
    """Return the maximum of the likelihood among distributions that are equal within each block, and the number of steps."""
    if one.operator.isotropic:
        limits = Limits()
        point = TiedPoint(one, uniform(one)[0], block)
        return along_gradients(point, TOLERANCE, limits).theta[None], limits.steps
    fitted = maximum_likelihood(with_blocks(one, block))
    weights, steps = fitted.theta, fitted.iterations
    return spread(weights, block), int(steps[0])


def spread(weights: Floats, block: Blocks) -> Floats:
    """Share the weight of every block equally among its values."""
    return np.asarray((weights / np.bincount(block))[..., block])


def block_sizes(block: Blocks) -> Blocks:
    """Return how many values each block of each group has; ``block``, shape (groups, values), numbers the blocks."""
    groups, size = block.shape
    return np.bincount(_cells(block), minlength=groups * size).reshape(groups, size)


def mean_of_blocks(table: Floats, block: Blocks) -> Floats:
    """Return the table, shape (groups, values), with each number replaced by the mean of its block of the group."""
    cells, size = _cells(block), table.size
    sums = np.bincount(cells, weights=table.ravel(), minlength=size)
    return np.asarray((sums / np.maximum(np.bincount(cells, minlength=size), 1))[cells].reshape(table.shape))


def _cells(block: Blocks) -> Blocks:
    """Return a number for each block of each group, for every value."""
    groups, size = block.shape
    return (block + size * np.arange(groups)[:, None]).ravel()


def until_still_in_blocks(likelihood: Likelihood, start: Floats, block: Blocks, tolerance: float, limits: Limits) -> Ascent:
    """Return what `until_still` returns among distributions that are equal within the blocks of each group.

    ``start`` has to be one of these. In the mixture of blocks a step of EM is one of the values, averaged over the blocks.
    """
    if (block == np.arange(block.shape[1])).all():
        return until_still(likelihood, start, tolerance, limits)
    if likelihood.operator.exchangeable:  # reports that name values of one block may share their counts
        return until_still(likelihood.with_counts(mean_of_blocks(likelihood.counts, block)), start, tolerance, limits)

    def step(part: Likelihood, theta: Floats, expected: Floats, rows: Rows) -> Floats:
        return mean_of_blocks(moved(part, theta, expected, rows), block[rows])

    return until_still(likelihood, start, tolerance, limits, step)


def contrasts(one: Likelihood, block: Blocks, weights: Floats, pairs: Blocks) -> Floats:
    """Return by how many standard errors the mean shares of pairs of blocks, shape (pairs, 2), differ.

    They are computed from the debiased weights of the blocks; ``weights``, shape (1, blocks), maximise the likelihood. A
    difference that the reports do not determine counts as 0.
    """
    part, sizes = with_blocks(one, block), np.bincount(block)
    op, (first, second) = part.operator, pairs.T
    inverse, unknown = tangent_inverse(op.information(weights[0], part.shares[0]))
    centre = (weights[0] + inverse @ (part.gradient(weights)[0] - 1.0)) / sizes
    scaled = inverse / sizes[:, None] / sizes
    variance = scaled[first, first] + scaled[second, second] - 2 * scaled[first, second]
    determined = ~(unknown[first] | unknown[second]) & (variance > 0)
    error = np.sqrt(np.where(determined, variance, np.inf) / part.n[0])
    return np.asarray(np.abs(centre[first] - centre[second]) / error)


def maximum_in_blocks(likelihood: Likelihood, block: Blocks) -> tuple[Floats, Blocks]:
    """Return the maximum among distributions that are equal within the blocks of each group, and the numbers of steps."""
    if likelihood.operator.exchangeable:  # reports that name values of one block may share their counts
        exact = likelihood.operator.maximum(mean_of_blocks(likelihood.shares, block))
        if exact is not None:
            return exact, np.zeros(len(block), dtype=np.int64)
    fits = [block_maximum(likelihood.group(i), renumbered(one)) for i, one in enumerate(block)]
    return np.concatenate([theta for theta, _ in fits]), np.array([steps for _, steps in fits], dtype=np.int64)


def sibling_contrasts(likelihood: Likelihood, block: Blocks, theta: Floats, pairs: Blocks, halves: Blocks) -> Floats:
    """Return by how many standard errors the mean shares of pairs of halves differ in each group, shape (groups, pairs).

    Halves are named by their first values, and ``halves`` is that of each value. A pair counts as different if one of its
    halves is not a block; a difference that the reports do not determine counts as 0.
    """
    number = np.searchsorted(np.unique(halves), halves)
    apart = _summed((block != halves).astype(np.float64), number)[:, number[pairs]] > 0
    if likelihood.operator.exchangeable:
        differ = _named_contrasts(likelihood, theta, number, number[pairs])
    else:
        each = enumerate(zip(block, theta, strict=True))
        differ = np.stack([_contrasts_of(likelihood.group(i), *one, pairs) for i, one in each])
    return np.where(apart.any(axis=2), np.inf, differ)


def _summed(table: Floats, number: Blocks) -> Floats:
    """Return the sums over the values of each number, for every row of the table."""
    groups, size = len(table), int(number.max()) + 1
    cells = (number + size * np.arange(groups)[:, None]).ravel()
    return np.bincount(cells, weights=table.ravel(), minlength=groups * size).astype(np.float64).reshape(groups, size)


def _named_contrasts(likelihood: Likelihood, theta: Floats, number: Blocks, pairs: Blocks) -> Floats:
    """Return the contrasts if reports name values: then the means of their shares differ as the inverted shares do."""
    sizes = np.bincount(number)
    shares, chances = (_summed(t, number) / sizes for t in (likelihood.shares, likelihood.operator.forward(theta)))
    squares = (chances / sizes)[:, pairs].sum(axis=2)
    (first, second), (one, other) = pairs.T, (chances[:, half] for half in pairs.T)
    variance = (squares - (one - other) ** 2) / likelihood.n[:, None]
    return np.abs(shares[:, first] - shares[:, second]) / np.sqrt(np.where(variance > 0, variance, np.inf))


def _contrasts_of(one: Likelihood, block: Blocks, theta: Floats, pairs: Blocks) -> Floats:
    number = renumbered(block)
    weights = np.bincount(number, weights=theta).astype(np.float64)[None]
    return contrasts(one, number, weights, number[pairs])


def absent_error(likelihood: Likelihood, theta: Floats) -> Floats:
    """Return the standard error of the inverted share of an absent value: (groups, inputs).

    If that depends on the other values, it is the error of the value under theta instead.
    """
    op = likelihood.operator
    if op.votes:
        return np.asarray(np.sqrt(op.scatter(np.zeros_like(theta)) / likelihood.n[:, None]))
    return op.inverted_interval(likelihood.shares, likelihood.n, theta, 1.0)[0]


def unlike_equal(shares: Floats, error: Floats) -> Floats:
    """Return by how many standard errors the unbiased shares of each group, (groups, values), differ from equal ones.

    It is the larger of two standard normal numbers, if the shares are equal and their errors are normal: that of the sum of the
    squared differences, after Wilson, Hilferty, "The distribution of chi-square", PNAS 1931, with the degrees of freedom of
    Satterthwaite, "An approximate distribution of estimates of variance components", Biometrics 1946; and that of the largest
    difference in its errors, after Sidak.
    """
    from scipy.special import ndtr, ndtri  # noqa: PLC0415  # slow to import

    size = shares.shape[1]
    away, noise = shares - 1.0 / size, np.maximum((error**2).sum(axis=1), 1e-300)
    freedom = noise**2 / np.maximum((error**4).sum(axis=1), 1e-300) * (1.0 - 1.0 / size)
    ratio = (away**2).sum(axis=1) / noise
    part = 2.0 / (9.0 * freedom)
    largest = (np.abs(away) / np.maximum(error, 1e-300)).max(axis=1)
    # P(all smaller) = (1 - 2 q)^size, from logarithms, so that very small chances are kept.
    log_none = size * np.log1p(-np.minimum(2.0 * ndtr(-largest), 1.0 - 1e-16))
    return np.maximum((np.cbrt(ratio) - (1.0 - part)) / np.sqrt(part), -ndtri(np.maximum(-np.expm1(log_none), 1e-300)))
