"""Taking values together that the reports cannot tell apart: what pooling and mixture reduction share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ldpsql.likelihood import Likelihood
from ldpsql.mle import maximum_likelihood
from ldpsql.operators import Floats, merged
from ldpsql.operators.base import tangent_inverse

Blocks = NDArray[np.int64]


def renumbered(block: Blocks) -> Blocks:
    """Number the blocks from 0 without gaps."""
    return np.unique(block, return_inverse=True)[1].astype(np.int64)


def with_blocks(one: Likelihood, block: Blocks) -> Likelihood:
    """Return the likelihood of the weights of blocks of values."""
    return one.with_operator(merged(one.operator, block))


def block_maximum(one: Likelihood, block: Blocks) -> tuple[Floats, int]:
    """Return the maximum of the likelihood among distributions that are equal within each block: its shares, and its steps."""
    fitted = maximum_likelihood(with_blocks(one, block))
    weights, steps = fitted.theta, fitted.iterations
    return spread(weights, block), int(steps[0])


def spread(weights: Floats, block: Blocks) -> Floats:
    """Share the weight of every block equally among its values."""
    return (weights / np.bincount(block))[..., block]


def contrasts(one: Likelihood, weights: Floats, first: Blocks, second: Blocks) -> Floats:
    """Return how many standard errors the mean shares of pairs of blocks differ by, from the debiased weights.

    ``one`` is the likelihood of blocks of equal meaning, `with_blocks`; ``weights`` its maximum, shape (1, blocks). A
    difference that the reports say nothing about counts as none.
    """
    op, sizes = one.operator, one.operator.sizes
    expected = op.forward(weights)[0]
    information = op.curvature((expected if op.complete else one.shares[0]) / np.maximum(expected, 1e-300) ** 2)
    inverse, unknown = tangent_inverse(information)
    centre = (weights[0] + inverse @ (one.gradient(weights)[0] - 1.0)) / sizes
    scaled = inverse / sizes[:, None] / sizes
    variance = scaled[first, first] + scaled[second, second] - 2 * scaled[first, second]
    known = ~(unknown[first] | unknown[second]) & (variance > 0)
    error = np.sqrt(np.where(known, variance, np.inf) / one.n[0])
    return np.abs(centre[first] - centre[second]) / error
