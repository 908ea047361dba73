"""Trees over the cells of a grid: how large the squares are, and on how many levels, for a small expected error.

The expected error of a rectangle is that of constrained inference in a tree whose nodes all have the same number of children,
for a rectangle with random sides and reports that say about as much about every cell.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate, pairwise
from math import prod

import numpy as np

from ldpsql.errors import InvalidParameter
from ldpsql.mechanisms.trees import scatter
from ldpsql.privacy.claims import Epsilon

MOST_FANOUT = 8  # that is tried; larger squares never had the smallest error
_ROOM = 1.44  # times the least variance: further levels widen intervals by up to a fifth, and bring estimates closer

Shape = tuple[int, ...]


def counts_of_squares(shape: Shape, fanout: int, levels: int) -> list[int]:
    """Return the number of squares of each level, from the cells on.

    >>> counts_of_squares((16, 24), 2, 5)
    [384, 96, 24, 6, 2]
    """
    return [prod(-(-size // fanout**level) for size in shape) for level in range(levels)]


def mean_square(size: int, length: int) -> float:
    """Return the expected sum of squares of a random interval, 1 inside and 0 outside, averaged over blocks of a length.

    The expectation is the sum over pairs x <= y of a block of the chance (x + 1)(size - y) / (size (size + 1) / 2) that an
    interval holds both, over the length of the block.

    Args:
        size: the number of cells of the axis.
        length: that of the blocks; the last one may be shorter.

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


@lru_cache(maxsize=256)
def best_squares(epsilon: Epsilon, shape: Shape, fanout: int | None = None, levels: int | None = None) -> tuple[int, int]:
    """Return fanout and levels among those that keep what is given: the most levels whose expected error is close to the least.

    Raises:
        InvalidParameter: if no tree has these.

    """
    tried = [
        (along, count)
        for along in ([fanout] if fanout else range(2, MOST_FANOUT + 1))
        for count in ([levels] if levels else range(1, 19))
        if along ** (count - 1) < max(shape)
    ]
    if not tried:
        raise InvalidParameter("the grid does not fill a tree with this fanout and these levels", "leave out fanout or levels")
    errors = {tree: _error(epsilon, shape, *tree) for tree in tried}
    least = min(errors.values())
    return min((tree for tree in tried if errors[tree] <= least * _ROOM), key=lambda tree: (-tree[1], errors[tree]))


def _error(epsilon: Epsilon, shape: Shape, fanout: int, levels: int) -> float:
    variances = [levels * scatter(epsilon, count) for count in counts_of_squares(shape, fanout, levels)]
    return rectangle_error(variances, shape, fanout)
