"""Hadamard response with blocks, as a table of two weights: which reports a value favours, and its signs.

The value of row n of a block favours the reports of this block that have an even number of bits in common with n.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels.base import Weights

BlockSigns: TypeAlias = NDArray[np.int8]  # shape (values, reports)


def signs_in_blocks(values: int, size: int, blocks: int) -> BlockSigns:
    """Return the signs of values that fill the rows of blocks in turn, without the first row of each."""
    number = np.arange(values)
    return _signs(number // (size - 1), number % (size - 1) + 1, size, size * blocks)


def _signs(blocks: NDArray[np.int64], numbers: NDArray[np.int64], size: int, outputs: int) -> BlockSigns:
    place = np.arange(outputs)
    odd = (np.bitwise_count(numbers[:, None] & (place % size)) & 1).astype(np.int8)
    return np.where(place // size == blocks[:, None], 1 - 2 * odd, 0).astype(np.int8)


def signs_of(weights: Weights) -> BlockSigns | None:
    """Return the signs of a table of weights: 1 for favoured reports, -1 for others of the block, else 0.

    None if the table has another structure, or only one block.

    >>> signs_of(np.array([[3, 1, 3, 1, 1, 1, 1, 1], [1, 1, 1, 1, 3, 3, 1, 1]], dtype=np.uint64)).tolist()
    [[1, -1, 1, -1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1, -1, -1]]
    """
    low, outputs = weights[0].min(), weights.shape[1]
    half = int((weights[0] != low).sum())
    size = 2 * half
    if not half or half & (half - 1) or outputs % size or outputs == size:
        return None
    favoured = weights != low
    if np.ptp(weights[favoured]):
        return None
    blocks = favoured.argmax(axis=1) // size
    powers = 1 << np.arange(half.bit_length())
    numbers = ~favoured[np.arange(len(favoured))[:, None], blocks[:, None] * size + powers] @ powers
    signs = _signs(blocks, numbers, size, outputs)
    distinct = len(np.unique(blocks * size + numbers)) == len(numbers)
    return signs if distinct and numbers.all() and np.array_equal(signs > 0, favoured) else None
