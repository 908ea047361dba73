"""Variances of the shares of ranges of leaves, without a functional over all leaves: a few steps for each level and range.

Let x_u be the consistent share of a node u whose children have the shares z_c before their sum is made x_u: x_c = z_c +
v_c (x_u - sum z)/V, where v_c is the variance of z_c and V the sum of all v_c. What a range holds of u is alpha x_u plus a rest
that does not depend on x_u. If it holds the part beta_c of x_c, plus rests of its own children, then alpha = sum beta v / V,
and the variance of the rest is sum beta^2 v - (sum beta v)^2 / V plus those of the children. The root is known: a rest remains.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ldpsql.channels import Floats, Ints
from ldpsql.inference.operators.tree import Tree


class Ranges(NamedTuple):
    """Ranges of neighbouring values, from ``first`` up to, not including, ``end``."""

    first: Ints
    end: Ints


def range_variances(tree: Tree, lengths: Sequence[int], ranges: Ranges) -> Floats:
    """Return the variance of the share of each range.

    Args:
        tree: the tree of the errors.
        lengths: for each level the number of leaves of a node.
        ranges: the ranges.

    """
    first = np.minimum(ranges.first, len(tree.combined[0]) - 1)  # an empty range may lie behind all leaves
    last = np.maximum(ranges.end - 1, first)
    rest = np.zeros(len(first))
    left = right = np.ones(len(first))  # which part the range holds of the node of its first leaf, and of that of its last one
    for level, length in enumerate(lengths):
        own = tree.combined[level]
        each = lengths[level + 1] // length if level + 1 < len(lengths) else len(own)
        running = np.concatenate([[0.0], own.cumsum()])
        a, b = first // length, last // length
        begin_a, begin_b = a - a % each, b - b % each  # the first children of the parents
        end_a, end_b = (np.minimum(begin + each, len(own)) for begin in (begin_a, begin_b))
        total_a, total_b = running[end_a] - running[begin_a], running[end_b] - running[begin_b]
        one, same = a == b, begin_a == begin_b
        parts_a, parts_b = left * own[a], np.where(one, 0.0, right * own[b])
        after_a = running[np.where(same, b, end_a)] - running[np.minimum(a + 1, len(own))]
        after_a, before_b = np.where(one, 0.0, after_a), running[b] - running[begin_b]
        # The last node belongs to the parent of the first one if they have the same.
        once_a = parts_a + after_a + np.where(same, parts_b, 0.0)
        twice_a = left * parts_a + after_a + np.where(same, right * parts_b, 0.0)
        once_b, twice_b = parts_b + before_b, right * parts_b + before_b
        rest = rest + twice_a - once_a**2 / total_a + np.where(same, 0.0, twice_b - once_b**2 / total_b)
        left = once_a / total_a
        right = np.where(same, left, once_b / total_b)
    return np.where(ranges.end > ranges.first, np.maximum(rest, 0.0), 0.0)
