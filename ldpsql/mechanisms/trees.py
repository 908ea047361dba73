"""Trees over ordered values and squares: how many children a node has, and how many levels are reported.

The expected error of a range is that of constrained inference (Hay et al., VLDB 2010) in a tree whose nodes all have the same
number of children, for a range with random ends and reports that say about as much about every value.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate, pairwise
from math import ceil, exp, isqrt, prod

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import KeepOrSpread, Levels, OrthogonalHash
from ldpsql.channels.levels import Response
from ldpsql.errors import InvalidParameter
from ldpsql.privacy.claims import Epsilon
from ldpsql.reports.nodes import MOST_SYMBOLS, NodeReports

MOST_FANOUT = 16  # that is tried; wider nodes never had the smallest error
_SMALL_SPACE, _ROOM = 1 << 20, 8  # points of a space of hashes: so many, or so many times the nodes
_NEARLY = 1e-9  # errors that differ by less are equal, so that rounding never decides


def hash_scatter(grown: float, symbols: int) -> float:
    """Return the variance of a rare share, times the reports, by k-RR on hashes to these symbols; ``grown`` is e^epsilon."""
    return (grown - 1 + symbols) ** 2 / ((grown - 1) ** 2 * (symbols - 1))


def value_scatter(grown: float, count: int) -> float:
    """Return the variance of a rare share, times the reports, by k-RR on so many values."""
    return (grown + count - 2) / (grown - 1) ** 2


def prime_powers(most: int) -> NDArray[np.int64]:
    """Return the powers of primes from 2 up to a number, rising.

    >>> prime_powers(9).tolist()
    [2, 3, 4, 5, 7, 8, 9]
    """
    prime = np.ones(most + 1, dtype=np.bool_)
    prime[:2] = False
    for n in range(2, isqrt(most) + 1):
        prime[n * n :: n] = False
    powers = [p**k for p in np.flatnonzero(prime).tolist() for k in range(1, most.bit_length()) if p**k <= most]
    return np.sort(np.array(powers, dtype=np.int64))


@lru_cache(maxsize=4096)
def symbols_for(epsilon: Epsilon, count: int) -> int | None:
    """Return the number of symbols to which so many nodes are hashed; None if k-RR on the nodes has the smaller error."""
    grown = exp(float(epsilon))
    tried = prime_powers(min(ceil(2 * grown) + 4, MOST_SYMBOLS, count))
    coordinates = np.maximum(1, np.ceil(np.log(count) / np.log(tried) - _NEARLY))
    fits = tried[tried**coordinates <= max(_SMALL_SPACE, _ROOM * count)]
    best = min(fits.tolist(), key=lambda g: (hash_scatter(grown, g), g), default=None)
    direct = count <= MOST_SYMBOLS and (best is None or value_scatter(grown, count) <= hash_scatter(grown, best))
    return None if direct else best


def response_to(epsilon: Epsilon, count: int) -> Response:
    """Return k-RR on so many nodes, or on their hashes, whichever has the smaller error."""
    if count < 2:
        raise InvalidParameter("a level of a tree needs at least two nodes", "use fewer levels, or a smaller fanout")
    symbols = symbols_for(epsilon, count)
    if symbols is None:
        return KeepOrSpread.within(count, epsilon.exp_below())
    return OrthogonalHash(count, KeepOrSpread.within(symbols, epsilon.exp_below()))


def node_reports(channel: Levels) -> NodeReports:
    """Return the reports of levels, in the order in which the channel numbers them."""
    symbols = tuple(one.size if isinstance(one, KeepOrSpread) else one.response.size for one in channel.responses)
    seeds = tuple(1 if isinstance(one, KeepOrSpread) else one.seeds for one in channel.responses)
    return NodeReports(seeds, symbols)


def scatter(epsilon: Epsilon, count: int) -> float:
    """Return the variance of the share of a rare one of so many nodes, times the reports of its level."""
    symbols, grown = symbols_for(epsilon, count), exp(float(epsilon))
    return value_scatter(grown, count) if symbols is None else hash_scatter(grown, symbols)


Shape = tuple[int, ...]  # the values on a line, or the rows and columns of a grid


def counts_of_levels(shape: Shape, fanout: int, levels: int) -> list[int]:
    """Return the number of nodes of each level, from the values on: those on a line, or squares of a grid.

    >>> counts_of_levels((16, 24), 2, 5)
    [384, 96, 24, 6, 2]
    """
    return [prod(-(-size // fanout**level) for size in shape) for level in range(levels)]


def tree_channel(epsilon: Epsilon, shape: Shape, fanout: int, levels: int) -> Levels:
    """Return the levels of a tree, each with the response to its nodes."""
    responses = [response_to(epsilon, count) for count in counts_of_levels(shape, fanout, levels)]
    return Levels(shape, tuple((fanout**level,) * len(shape) for level in range(levels)), tuple(responses))


def range_error(variances: list[float], fanout: int, top: int) -> float:
    """Return the expected variance of the share of a range with random ends.

    What a range that begins at the first leaf holds of a node is alpha of its share and a rest. For a random end in the j-th
    of b children, alpha = (j + that of the child)/b, and the rest has the variance v (j + alpha_child^2 - b alpha^2), with the
    variance v of a child, and that of the child's own rest. A range is the difference of two; their covariance is the variance
    of the mean over all ends, a linear function of the leaves.

    Args:
        variances: of the measured nodes of each level, from the leaves on.
        fanout: the number of children of a node.
        top: the number of nodes of the last level, the children of the root.

    """
    alpha = square = rest = mean = 0.0
    below = 0.0
    for level, measured in enumerate(variances):
        own = 1.0 / (1.0 / measured + 1.0 / (fanout * below)) if level else measured
        children = fanout if level + 1 < len(variances) else top
        before, squared = (children - 1) / 2, (children - 1) * (2 * children - 1) / 6
        inside, before_square = square, before
        square = (squared + 2 * before * alpha + square) / children**2
        alpha = (before + alpha) / children
        rest += own * (before_square + inside - children * square)
        mean = own * (children**2 - 1) / (12 * children) + mean / children
        below = own
    return 2 * (rest - mean)


# Trees over the cells of a grid: how large the squares are, and on how many levels, for a small expected error.
#
# The expected error of a rectangle is that of constrained inference in a tree whose nodes all have the same number of children,
# for a rectangle with random sides and reports that say about as much about every cell.


def mean_square(size: int, length: int) -> float:
    """Return the expected sum of squares of a random interval, 1 inside and 0 outside, averaged over blocks of a length.

    The expectation is the sum over pairs x <= y of a block of the chance (x + 1)(size - y) / (size (size + 1) / 2) that an
    interval holds both, over the length of the block.
    """
    place = np.arange(size, dtype=np.float64)
    first = place // length * length
    before = (place * (place + 1) - first * (first + 1)) / 2  # the sum of x + 1 over the cells of the block before
    chances = (size - place) * (2 * before + place + 1)
    return float((chances / np.minimum(length, size - first)).sum() / (size * (size + 1) / 2))


def rectangle_error(variances: list[float], shape: Shape, fanout: int) -> float:
    """Return the expected variance of the share of a rectangle with random sides.

    What is the same in each square of a level and sums to 0 in those of the next is measured by the levels up to it: its
    variance is 1 / sum (cells of a square / variance). The part of a rectangle that is of this kind is the difference of the
    sums of squares of its averages over the squares of both levels, and these are products over the two axes.

    Args:
        variances: of the measured squares of each level, from the cells on.
        shape: the numbers of rows and columns.
        fanout: how many squares of the level before lie along the side of a square.

    """
    lengths = [fanout**level for level in range(len(variances))]
    squares = [prod(mean_square(size, length) for size in shape) for length in lengths]
    squares.append(prod(mean_square(size, size) for size in shape))
    information = accumulate(length**2 / variance for length, variance in zip(lengths, variances, strict=True))
    return sum((own - above) / known for known, (own, above) in zip(information, pairwise(squares), strict=True))


MOST_SQUARES = 8  # that is tried; larger squares never had the smallest error
_ROOM_OF_SQUARES = 1.44  # times the least variance: further levels widen intervals by up to a fifth, and bring estimates closer


@lru_cache(maxsize=256)
def best_tree(epsilon: Epsilon, shape: Shape, fanout: int | None = None, levels: int | None = None) -> tuple[int, int]:
    """Return fanout and levels with the smallest expected error, among those that keep what is given.

    The error is that of a range, or of a rectangle of a grid: there, the most levels whose error is close to the least.

    Raises:
        InvalidParameter: if no tree has these.

    """
    tried = [
        (branches, count)
        for branches in ([fanout] if fanout else range(2, (MOST_FANOUT if len(shape) == 1 else MOST_SQUARES) + 1))
        for count in ([levels] if levels else range(1, 33))
        if counts_of_levels(shape, branches, count)[-1] > 1
    ]
    if not tried:
        raise InvalidParameter(
            f"{prod(shape):,} values do not fill a tree with this fanout and these levels", "leave out fanout or levels"
        )
    errors = {tree: _error(epsilon, shape, *tree) for tree in tried}
    least = min(errors.values())
    if len(shape) == 1:
        return next(tree for tree in tried if errors[tree] <= least * (1 + _NEARLY))
    return min((tree for tree in tried if errors[tree] <= least * _ROOM_OF_SQUARES), key=lambda tree: (-tree[1], errors[tree]))


def _error(epsilon: Epsilon, shape: Shape, fanout: int, levels: int) -> float:
    counts = counts_of_levels(shape, fanout, levels)
    variances = [levels * scatter(epsilon, count) for count in counts]
    return range_error(variances, fanout, counts[-1]) if len(shape) == 1 else rectangle_error(variances, shape, fanout)
