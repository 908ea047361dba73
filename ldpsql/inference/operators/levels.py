"""The likelihood of reports on the levels of a tree, and constrained inference, which makes the levels agree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import TOTAL, Codes, Floats, KeepOrSpread, Levels
from ldpsql.channels.levels import Response
from ldpsql.inference.limits import check
from ldpsql.inference.operators.base import Ends, Operator, Parents, Ranges, Tree, digest, operator, range_variances
from ldpsql.inference.operators.merged import ExtendedOperator
from ldpsql.inference.operators.product import StackOperator

_MOST_CURVED = 4096  # values for which something may be computed for all pairs
_CELLS = 1 << 24  # of functionals times values at a time
_KEPT = 1 << 22  # values of all groups whose last agreement is kept
_WORK = 1 << 21  # values times steps of a solve without a deadline
_NO_REPORTS = 1e-6  # of a report: what a level without reports counts as


class LevelsOperator(StackOperator):
    """A stack of levels: each sums the shares of its blocks and perturbs the sums.

    Inverses and errors are those of constrained inference: the weighted least squares of all levels, where the variance of a
    block depends on its level and share. A functional has the error of this estimate (`Tree`), not of bins, and whatever
    theta is: the variances are those at the shares that equal variances within each level give.
    """

    consistent = True

    def __init__(self, channel: Levels) -> None:
        nodes = [channel.nodes(np.arange(channel.inputs, dtype=np.int32), level) for level in range(len(channel.blocks))]
        parts = [ExtendedOperator(operator(response), at) for response, at in zip(channel.responses, nodes, strict=True)]
        super().__init__(parts, np.array([float(share) for share in channel.shares()]))
        self.bases = [part.base for part in parts]
        self.large = self.inputs > _MOST_CURVED
        self.untimed = min(self.untimed, max(2, _WORK // self.inputs))
        self.lined = len(channel.shape) == 1
        self._lengths = [block[0] for block in channel.blocks]
        self._votes = [_Votes.of(response) for response in channel.responses]
        above = zip([*nodes[1:], np.zeros(self.inputs, dtype=np.int32)], [*channel.counts[1:], 1], strict=True)
        self._parents = [
            Parents(_of_nodes(at, own, up), count) for at, own, (up, count) in zip(nodes, channel.counts, above, strict=True)
        ]
        self._last: tuple[ref[Floats], Floats, list[tuple[Floats, Tree]]] | None = (
            None  # the last shares that were made to agree
        )
        self._last_solved: tuple[ref[Floats], tuple[list[Floats], Floats]] | None = None
        self._channel_key = repr((channel.shape, channel.blocks)).encode()

    @cached_property
    def key(self) -> bytes:
        return digest(b"levels", self._channel_key, *(base.key for base in self.bases))

    @cached_property
    def condition(self) -> float:
        """A bound of the condition number: leaves are distinguished by their own level only."""
        return float(self.bases[0].condition / self.weights[0])

    @cached_property
    def influence(self) -> float:
        """A bound of how far a share moves, times n, when one of n reports is replaced."""
        return float(max(base.influence / weight for base, weight in zip(self.bases, self.weights, strict=True)))

    def _sums(self, theta: Floats) -> Iterator[Floats]:
        """Yield the shares of the blocks of each level, each from those of the level below."""
        yield theta
        for parents in self._parents[:-1]:
            theta = parents.summed(theta)
            yield theta

    def forward(self, theta: Floats) -> Floats:
        parts = zip(self.weights, self.bases, self._sums(theta), strict=True)
        return np.concatenate([weight * base.forward(own) for weight, base, own in parts], axis=-1)

    def adjoint(self, w: Floats) -> Floats:
        """Return sum_z a_xz w_z: from the highest level down, each node has what its parent has and its own."""
        out: Floats = np.zeros((*w.shape[:-1], 1))
        for (_, weight, at), base, parents in reversed(list(zip(self._each(), self.bases, self._parents, strict=True))):
            out = parents.spread(out) + weight * base.adjoint(w[..., at])
        return out

    def _trees(self, shares: Floats, n: Floats, theta: Floats | None) -> Iterator[Tree]:
        """Yield the tree of each group, with the variances of the blocks at theta, by default with equal shares."""
        for i, size in enumerate(n):
            check()
            reports = [float(shares[i, at].sum()) * float(size) for _, _, at in self._each()]
            yield self._tree(reports, None if theta is None else theta[i])

    def _tree(self, reports: Sequence[float], theta: Floats | None) -> Tree:
        """Return the tree of a group with so many reports at each level."""
        sums = (np.full(base.inputs, 1.0 / base.inputs) for base in self.bases) if theta is None else self._sums(theta)
        variances = []
        for level, (own, seen) in enumerate(zip(sums, reports, strict=True)):
            some = max(seen, _NO_REPORTS)
            variances.append(self._scatter(own if theta is None else _seen(own, some), level) / some)
        return Tree(self._parents, variances)

    def _scatter(self, own: Floats, level: int) -> Floats:
        """Return the variances of the measured shares of a level, times its reports, up to a part that the total removes.

        Two different blocks are both supported with probability both + more (own_x + own_y). So the covariance of the supports
        is the diagonal matrix of what is returned here, times lift^2, plus u_x + u_y for some vector u, less the product of
        their chances. Neither changes the variance of a contrast, and shares that are known to sum to one are contrasts.
        """
        miss, lift, both, more = self._votes[level]
        return np.asarray((miss + lift * own - both - 2.0 * more * own) / lift**2)

    def _measured(self, shares: Floats) -> list[Floats]:
        """Return the unbiased shares of the blocks of each level, equal ones without reports: each (groups, blocks)."""
        out = []
        for base, (_, _, at) in zip(self.bases, self._each(), strict=True):
            own = shares[:, at].sum(axis=-1, keepdims=True)
            inverted = base.invert(shares[:, at] / np.where(own > 0, own, 1.0))
            out.append(np.where(own > 0, inverted, 1.0 / base.inputs))
        return out

    def _agreeing(self, shares: Floats, n: Floats) -> Iterator[tuple[Floats, Tree]]:
        """Yield for each group the consistent shares of the values, with the tree of their errors."""
        last = self._last
        if last is not None and last[0]() is shares and np.array_equal(last[1], n):
            yield from last[2]
            return
        (measured, solved), parts = self._solved(shares), []
        for i, tree in enumerate(self._trees(shares, n, solved)):
            parts.append((tree.solved([level[i] for level in measured], 1.0), tree))
            yield parts[-1]
            if len(shares) * self.inputs > _KEPT:
                parts.clear()
        if len(parts) == len(shares):
            self._last = ref(shares), n, parts

    def _solved(self, shares: Floats) -> tuple[list[Floats], Floats]:
        """Return what was measured, and the consistent shares with weights that do not depend on it."""
        last = self._last_solved
        if last is not None and last[0]() is shares:
            return last[1]
        measured = self._measured(shares)
        trees = self._trees(shares, np.ones(len(shares)), None)
        solved = np.stack([tree.solved([level[i] for level in measured], 1.0) for i, tree in enumerate(trees)])
        if solved.size <= _KEPT:
            self._last_solved = ref(shares), (measured, solved)
        return measured, solved

    def evenly(self) -> Operator:
        """Return itself: its levels are those of one mechanism."""
        return self

    def pulled(self, c: Floats) -> None:  # not needed
        """Return None: `functionals` are those of the consistent shares, which are not a mean of the inverses of levels."""

    def invert(self, shares: Floats) -> Floats:
        """Return the unbiased consistent shares, with weights that do not depend on the shares themselves."""
        return self._solved(shares)[1].copy()

    def beginning(self, shares: Floats) -> Floats | None:
        """Return the consistent shares with negative ones removed, level by level, if there are many values."""
        if not self.large:
            return None
        tree = next(self._trees(shares[:1], np.ones(1), None))
        return tree.positive(self.invert(shares))

    def interval(self, shares: Floats, n: Floats, theta: Floats, z: float) -> Ends:  # noqa: ARG002  # not needed
        """Return standard errors of the consistent shares, and ``z`` of them to either side."""
        parts = [(solved, np.sqrt(tree.variance())) for solved, tree in self._agreeing(shares, n)]
        centre, error = (np.stack(part) for part in zip(*parts, strict=True))
        return error, centre - z * error, centre + z * error

    def scatter(self, theta: Floats) -> Floats:
        law = self.forward(theta)
        return np.stack([tree.variance() for tree in self._trees(law, np.ones(len(law)), theta)])

    def inverted_interval(self, shares: Floats, n: Floats, theta: Floats, z: float) -> Ends:
        """Return standard errors of the inverted shares, and ``z`` of them to either side."""
        error, _, _ = self.interval(shares, n, theta, z)
        centre = self.invert(shares)
        return error, centre - z * error, centre + z * error

    def covariance(self, shares: Floats, theta: Floats) -> Floats:  # noqa: ARG002  # not needed
        _, tree = next(self._agreeing(shares[None], np.ones(1)))
        return tree.covariances(np.eye(self.inputs))

    def functionals(
        self,
        shares: Floats,
        n: Floats,
        theta: Floats,
        c: Floats,
    ) -> tuple[Floats, Floats]:
        """Return functionals of the consistent shares, and their variances."""
        each = np.broadcast_to(c, (len(theta), *c.shape[-2:]))
        centre, variance = np.empty((2, len(theta), c.shape[-1]))
        for i, (solved, tree) in enumerate(self._agreeing(shares, n)):
            centre[i] = solved @ each[i]
            variance[i] = self._variances(tree, each[i])
        return centre, variance

    def expected_variances(self, theta: Floats, n: float, c: Floats) -> Floats:
        """Return the variances of functionals from n reports at theta, of which no report needs to be inverted."""
        return self._variances(self._tree([float(weight) * n for weight in self.weights], theta), c)

    def _variances(self, tree: Tree, c: Floats) -> Floats:
        """Return the variances of functionals, shape (functionals,)."""
        out, step = np.empty(c.shape[-1]), max(1, _CELLS // self.inputs)
        for start in range(0, len(out), step):
            check()
            some = np.ascontiguousarray(c[:, start : start + step].T)
            out[start : start + step] = np.einsum("mx,mx->m", some, tree.covariances(some))
        return np.maximum(out, 0.0)

    def of_ranges(self, shares: Floats, n: Floats, theta: Floats, ranges: Ranges) -> tuple[Floats, Floats]:
        """Return the shares of ranges of values by the consistent shares, and their variances, in a few steps a level each.

        The ranges are the same for all groups, or each group has its own, shape (groups, ranges).
        """
        if not self.lined:
            return super().of_ranges(shares, n, theta, ranges)
        first, end = (np.broadcast_to(ends, (len(theta), ends.shape[-1])) for ends in ranges)
        centre, variance = np.empty((2, *first.shape))
        for i, (solved, tree) in enumerate(self._agreeing(shares, n)):
            running = np.concatenate([[0.0], np.cumsum(solved)])
            centre[i] = running[end[i]] - running[first[i]]
            variance[i] = range_variances(tree, self._lengths, Ranges(first[i], end[i]))
        return centre, variance


def _of_nodes(at: Codes, count: int, above: Codes) -> NDArray[np.int64]:
    """Return for each node what all of its values have: the node above them."""
    out = np.empty(count, dtype=np.int64)
    out[at] = above
    return out


def _seen(own: Floats, reports: float) -> Floats:
    """Return the shares of the blocks of a level, none too small to be seen (Krichevsky, Trofimov)."""
    own = np.maximum(own, 0.0)
    return np.asarray((own * reports + 0.5) / (own.sum() * reports + 0.5 * len(own)))


class _Votes(NamedTuple):
    """The probabilities that a report supports a block that is not the value's, and two different ones that are not.

    ``lift`` is by how much the first is larger for the value's own block, ``more`` the second if one of the two is the value's.
    """

    miss: float
    lift: float
    both: float
    more: float

    @classmethod
    def of(cls, response: Response) -> _Votes:
        """Return those of k-RR, whose reports support one block, or of hashes by a random line through shuffled points."""
        miss, lift = float(response.miss), float(response.hit - response.miss)
        if isinstance(response, KeepOrSpread):
            return cls(miss, lift, 0.0, 0.0)
        hit, spread = float(response.hit), response.response.spread / TOTAL
        symbols, points = float(response.response.size), float(response.response.size) ** response.dimension
        # The shares of the functions with one hash for two points, and for three, which may lie on a line.
        two, apart = (points / symbols - 1) / (points - 1), max(points / symbols**2 - 1, 0.0) / (points - 1)
        line = (symbols - 2) / max(points - 2, 1.0)
        three = line * two + (1 - line) * apart
        both = three * hit + (two - three) * spread
        return cls(miss, lift, both, two * hit - both)


@operator.register
def _(channel: Levels) -> Operator:
    return LevelsOperator(channel)
