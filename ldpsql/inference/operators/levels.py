"""The likelihood of blocks of values that count as one, and of reports on the levels of a tree, which are made to agree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, singledispatch
from typing import NamedTuple
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import TOTAL, Codes, Floats, KeepOrSpread, Levels
from ldpsql.channels.levels import Response
from ldpsql.inference.limits import check
from ldpsql.inference.operators.base import Ends, Operator, Parents, Ranges, Tree, digest, operator, range_variances
from ldpsql.inference.operators.dense import DenseOperator, StepsOperator
from ldpsql.inference.operators.product import StackOperator
from ldpsql.inference.operators.supports import SetOperator


class MergedOperator(Operator):
    """A channel from blocks of values to reports; ``block`` is the number of each value's block, from 0."""

    def __init__(self, base: Operator, block: NDArray[np.int64]) -> None:
        self.base, self.block = base, block
        self.sizes = np.bincount(block)
        self.inputs, self.outputs, self.complete = len(self.sizes), base.outputs, base.complete
        self.injective = base.injective

    @cached_property
    def key(self) -> bytes:
        """A digest of the blocks and the channel; the key of the channel itself if every value is a block."""
        single = np.array_equal(self.block, np.arange(self.base.inputs))
        return self.base.key if single else digest(b"merged", self.base.key, self.block)

    @cached_property
    def _order(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The values block by block, and the position at which each block starts."""
        return np.argsort(self.block, kind="stable"), np.concatenate([[0], self.sizes.cumsum()[:-1]])

    def spread(self, weights: Floats) -> Floats:
        """Share the weight of every block equally among its values."""
        return (weights / self.sizes)[..., self.block]

    def summed(self, weights: Floats) -> Floats:
        """Return the weight of every block."""
        order, starts = self._order
        return np.add.reduceat(weights[..., order], starts, axis=-1)

    def mean(self, of_values: Floats) -> Floats:
        """Return the mean over every block, along the last axis."""
        return self.summed(of_values) / self.sizes

    def forward(self, theta: Floats) -> Floats:
        """Return P(report) under these weights of the blocks."""
        return self.base.forward(self.spread(theta))

    def adjoint(self, w: Floats) -> Floats:
        return self.mean(self.base.adjoint(w))

    def matrix(self) -> Floats:
        """Return P(report | block)."""
        return self.mean(self.base.matrix().T).T

    def curvature(self, w: Floats, among: NDArray[np.int64] | slice = slice(None)) -> Floats:
        return self.mean(self.mean(self.base.curvature(w)).T)[among][:, among]

    def maximum(self, shares: Floats) -> Floats | None:
        """Return the maximum if the channel treats all values alike: reports of one block may then share their counts."""
        if not self.base.exchangeable:
            return None
        exact = self.base.maximum(self.mean(shares)[..., self.block])
        return None if exact is None else self.summed(exact)


@singledispatch
def merged(op: Operator, block: NDArray[np.int64]) -> MergedOperator:
    """Return the operator of blocks of values that fits the structure."""
    return MergedOperator(op, block)


class MergedDenseOperator(MergedOperator):
    """Blocks of a table: a smaller table."""

    @cached_property
    def _table(self) -> DenseOperator:
        return DenseOperator(self.mean(self.base.matrix().T).T)

    def forward(self, theta: Floats) -> Floats:
        return self._table.forward(theta)

    def adjoint(self, w: Floats) -> Floats:
        return self._table.adjoint(w)

    def matrix(self) -> Floats:
        return self._table.matrix()

    def curvature(self, w: Floats, among: NDArray[np.int64] | slice = slice(None)) -> Floats:
        return self._table.curvature(w, among)


class MergedStepsOperator(MergedDenseOperator):
    """Blocks of a table that has quicker products than the smaller table; this one is for curvatures."""

    forward, adjoint = MergedOperator.forward, MergedOperator.adjoint


@merged.register
def _(op: DenseOperator, block: NDArray[np.int64]) -> MergedOperator:
    return MergedDenseOperator(op, block)


@merged.register
def _(op: StepsOperator, block: NDArray[np.int64]) -> MergedOperator:
    few = 4 * (block.max() + 1) < op.inputs
    return (MergedDenseOperator if few else MergedStepsOperator)(op, block)


# Blocks of values under a channel whose reports support sets: pairs of blocks are compared, not pairs of values.


_KEPT = 1 << 22  # cells
_MOST_SAMPLED = 1 << 24


class MergedSupportOperator(MergedOperator):
    """Blocks of values: a report gives a block the mean of what it gives to its values."""

    def __init__(self, base: SetOperator, block: NDArray[np.int64]) -> None:
        super().__init__(base, block)
        self._sets = base
        self.sampled = base.sampled and self.inputs * len(base.sample) <= _MOST_SAMPLED

    def matrix(self) -> Floats:
        """Return P(report | block), up to the factor."""
        return np.concatenate([means for _, means in self._means()], axis=1)

    def of_reports(self, positions: NDArray[np.int64]) -> Floats:
        """Return P(report | block) of some reports, up to the factor, shape (inputs, reports)."""
        return np.concatenate([means for _, means in self._means(positions)], axis=1)

    def rough_curvature(self, w: Floats, among: NDArray[np.int64] | slice = slice(None)) -> Floats:
        """Return the curvature; if there are many reports, from the sample of them and in single precision."""
        if not self.sampled:
            return self.curvature(w, among)
        chosen = w[self._sets.sample]
        rows = self._of_sample[among] * np.sqrt(chosen * (w.sum() / chosen.sum())).astype(np.float32)
        return (rows @ rows.T).astype(np.float64)

    @cached_property
    def _of_sample(self) -> NDArray[np.float32]:
        return np.concatenate([means.astype(np.float32) for _, means in self._means(self._sets.sample)], axis=1)

    def curvature(self, w: Floats, among: NDArray[np.int64] | slice = slice(None)) -> Floats:
        roots, total = np.sqrt(w), np.zeros(())
        for part, means in self._kept or self._means():
            check()
            rows = means[among] * roots[part]
            total = total + rows @ rows.T  # the product of a matrix with itself: BLAS computes half of it
        return total

    @cached_property
    def _kept(self) -> list[tuple[slice, Floats]] | None:
        """The columns of all reports if they are small, because a solver needs many curvatures; otherwise None."""
        return list(self._means()) if self.inputs * self.outputs <= _KEPT else None

    def _means(self, chosen: NDArray[np.int64] | None = None) -> Iterator[tuple[slice, Floats]]:
        """Yield P(report | block), up to the factor, some reports at a time, of all or the chosen ones."""
        order, starts = self._order
        for part, columns in self._sets.columns(chosen=chosen):
            yield part, np.add.reduceat(columns[order], starts, axis=0) / self.sizes[:, None]


@merged.register
def _(op: SetOperator, block: NDArray[np.int64]) -> MergedOperator:
    return MergedSupportOperator(op, block)


# A channel over more values than it was made for: further values are perturbed as one of its own.


class ExtendedOperator(Operator):
    """A channel in which value x is perturbed like value ``at[x]`` of ``base``."""

    def __init__(self, base: Operator, at: NDArray[np.int64] | NDArray[np.int32]) -> None:
        self.base, self.at = base, at
        self.inputs, self.outputs, self.complete = len(at), base.outputs, base.complete
        self.sampled = base.sampled

    @cached_property
    def key(self) -> bytes:
        return digest(b"extended", self.base.key, self.at)

    def forward(self, theta: Floats) -> Floats:
        return self.base.forward(self.summed(theta))

    def summed(self, theta: Floats) -> Floats:
        """Return the weight of every value of ``base``."""
        rows: list[Floats] = [
            np.bincount(self.at, row, self.base.inputs).astype(np.float64) for row in theta.reshape(-1, self.inputs)
        ]
        return np.stack(rows).reshape(*theta.shape[:-1], self.base.inputs)

    def reachable(self) -> NDArray[np.bool_]:
        whole = bool(np.bincount(self.at, minlength=self.base.inputs).all())
        return self.base.reachable() if whole else super().reachable()

    def adjoint(self, w: Floats) -> Floats:
        return self.base.adjoint(w)[..., self.at]

    def matrix(self) -> Floats:
        return self.base.rows(self.at.astype(np.int64, copy=False))

    def rows(self, among: NDArray[np.int64] | slice) -> Floats:
        return self.base.rows(self.at[among].astype(np.int64, copy=False))

    def curvature(self, w: Floats, among: NDArray[np.int64] | slice = slice(None)) -> Floats:
        own, place = np.unique(self.at[among].astype(np.int64, copy=False), return_inverse=True)
        return self.base.curvature(w, own)[np.ix_(place, place)]

    def rough_curvature(self, w: Floats, among: NDArray[np.int64] | slice = slice(None)) -> Floats:
        """Return the rough curvature of the base, for the values ``among``."""
        own, place = np.unique(self.at[among].astype(np.int64, copy=False), return_inverse=True)
        return self.base.rough_curvature(w, own)[np.ix_(place, place)]

    @cached_property
    def condition(self) -> float:
        """Infinite: values that are perturbed alike cannot be distinguished."""
        return float("inf")


_MOST_CURVED = 4096  # values for which something may be computed for all pairs
_CELLS = 1 << 24  # of functionals times values at a time
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
