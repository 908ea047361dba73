"""Variances of the shares of ranges of leaves, without a functional over all leaves: a few steps for each level and range.

Let x_u be the consistent share of a node u whose children have the shares z_c before their sum is made x_u: x_c = z_c +
v_c (x_u - sum z)/V, where v_c is the variance of z_c and V the sum of all v_c. What a range holds of u is alpha x_u plus a rest
that does not depend on x_u. If it holds the part beta_c of x_c, plus rests of its own children, then alpha = sum beta v / V,
and the variance of the rest is sum beta^2 v - (sum beta v)^2 / V plus those of the children. The root is known: a rest remains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ldpsql.channels import Floats, Ints

# Generalised least squares on a tree: shares of nodes, measured level by level with independent errors, made consistent.
#
# Hay, Rastogi, Miklau, Suciu, "Boosting the accuracy of differentially private histograms through consistency", VLDB 2010, for
# levels with different errors. Upwards each node combines its own measurement with the sum of its children; downwards each node
# divides what its children lack among them, in proportion to their variances. Both take time in proportion to the nodes.


@dataclass(frozen=True, eq=False)
class Parents:
    """For each node of a level the node above it; ``above`` nodes are on the next level."""

    of: Ints
    above: int

    @cached_property
    def _order(self) -> tuple[Ints | None, Ints]:
        """The nodes parent by parent, None if they lie like this, and where the children of each parent start."""
        starts = np.concatenate([[0], np.bincount(self.of, minlength=self.above).cumsum()[:-1]])
        return None if (np.diff(self.of) >= 0).all() else np.argsort(self.of, kind="stable"), starts

    @cached_property
    def sizes(self) -> Ints:
        """The number of children of every parent."""
        return np.bincount(self.of, minlength=self.above)

    def summed(self, of_nodes: Floats) -> Floats:
        """Return the sum over the children of every parent, along the last axis."""
        order, starts = self._order
        return np.add.reduceat(of_nodes if order is None else of_nodes[..., order], starts, axis=-1)

    def spread(self, of_parents: Floats) -> Floats:
        """Return for each node the number of its parent, along the last axis."""
        return of_parents[..., self.of]


@dataclass(frozen=True, eq=False)
class Tree:
    """The levels of a tree, from the leaves to the children of the root.

    Args:
        parents: for each level the parents of its nodes; those of the last level have one parent, the root.
        variances: for each level the variance of the measurement of each node, shape (nodes,).

    """

    parents: Sequence[Parents]
    variances: Sequence[Floats]

    @cached_property
    def combined(self) -> list[Floats]:
        """The variances of the nodes of each level, given all that was measured at and below the level."""
        out = [self.variances[0]]
        for parents, own in zip(self.parents, self.variances[1:], strict=False):
            out.append(1.0 / (1.0 / own + 1.0 / parents.summed(out[-1])))
        return out

    @cached_property
    def below(self) -> list[Floats]:
        """The variances of the sums of the children of each parent, level by level."""
        return [parents.summed(variances) for parents, variances in zip(self.parents, self.combined, strict=True)]

    def solved(self, measured: Sequence[Floats], total: float) -> Floats:
        """Return the consistent shares of the leaves, which sum to ``total``; all arrays may have further axes in front."""
        shares, sums = [measured[0]], []
        for level, parents in enumerate(self.parents):
            sums.append(parents.summed(shares[-1]))
            if level + 1 < len(self.parents):
                shares.append(
                    self.combined[level + 1] * (measured[level + 1] / self.variances[level + 1] + sums[-1] / self.below[level])
                )
        above: Floats = np.full((*sums[-1].shape[:-1], 1), total)
        for level in reversed(range(len(self.parents))):
            lacking = (above - sums[level]) / self.below[level]
            above = shares[level] + self.combined[level] * self.parents[level].spread(lacking)
        return above

    def positive(self, leaves: Floats) -> Floats:
        """Return shares of the leaves of which none is negative, from consistent ones that sum to one.

        From the root down, each node divides its share among its children: what they lack or have too much of is spread in
        proportion to what they have, or evenly if none has any. So large nodes keep their shares nearly as they are.
        """
        levels = [leaves]
        for parents in self.parents[:-1]:
            levels.append(parents.summed(levels[-1]))
        above = np.ones((*leaves.shape[:-1], 1))
        for parents, signed in zip(reversed(self.parents), reversed(levels), strict=True):
            own = np.maximum(signed, 0.0)
            sums = parents.summed(own)
            even = parents.spread(above / parents.sizes)
            scaled = own * parents.spread(above / np.where(sums > 0, sums, 1.0))
            above = np.where(parents.spread(sums) > 0, scaled, even)
        return above

    def variance(self) -> Floats:
        """Return the variance of the consistent share of every leaf."""
        above = np.zeros(1)
        for level in reversed(range(len(self.parents))):
            own, sums = self.combined[level], self.parents[level].spread(self.below[level])
            above = own - own**2 / sums + (own / sums) ** 2 * self.parents[level].spread(above)
        return np.maximum(above, 0.0)

    def covariances(self, c: Floats) -> Floats:
        """Return the covariances of every leaf with the functionals c, shape (functionals, leaves)."""
        rest = [np.zeros((len(c), len(variances))) for variances in self.variances[1:]]
        return self.solved([c * self.variances[0], *rest], 0.0)


class Ranges(NamedTuple):
    """Ranges of neighbouring values, from ``first`` up to, not including, ``end``."""

    first: Ints
    end: Ints


def range_variances(tree: Tree, lengths: Sequence[int], ranges: Ranges) -> Floats:
    """Return the variance of the share of each range."""
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
