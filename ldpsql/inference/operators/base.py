"""The base class of operators: theta -> P(report), its adjoint, its curvature, and what follows from them, also for ranges.

A structure overrides what it can do better than the table of probabilities. All methods take groups along the first axes, so
one call serves a GROUP BY.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, singledispatch
from hashlib import blake2b
from secrets import token_bytes
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import Channel, Floats, Ints
from ldpsql.errors import IllConditioned, InternalError
from ldpsql.inference.limits import check
from ldpsql.inference.operators.weights import Bounding, tangent_inverse, tangent_solve
from ldpsql.inference.score_intervals import of_votes, score_ends, vote_scatter

# Variances of the shares of ranges of leaves, without a functional over all leaves: a few steps for each level and range.
#
# Let x_u be the consistent share of a node u whose children have the shares z_c before their sum is made x_u: x_c = z_c + v_c
# (x_u - sum z)/V, where v_c is the variance of z_c and V the sum of all v_c. What a range holds of u is alpha x_u plus a rest
# that does not depend on x_u. If it holds the part beta_c of x_c, plus rests of its own children, then alpha = sum beta v /
# V, and the variance of the rest is sum beta^2 v - (sum beta v)^2 / V plus those of the children. The root is known: a rest
# remains.

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


Ends: TypeAlias = tuple[Floats, Floats, Floats]  # standard errors, low and high

MAX_CONDITION = 1e8
_NUDGED, _NUDGE = 2048, 1e-4  # most reports whose contributions are computed one by one, and by how much their shares rise
SCORE_WORK = 2e9  # most multiplications for a score interval
_RIDGE = 1e-8  # relative to the largest squared singular value
_SMALL = 4096  # cells of a matrix up to which each row is multiplied alone


def of_each(rows: Floats, matrix: Floats) -> Floats:
    """Return ``rows @ matrix``; if the matrix is small, the result of a row does not depend on the other rows.

    BLAS adds in another order if there are fewer rows. The estimate of a group would then depend, in its last digits, on the
    groups that are estimated with it, and so on the processors among which an engine divides them.
    """
    return rows @ matrix if rows.ndim < 2 or matrix.size > _SMALL else (rows[..., None, :] @ matrix)[..., 0, :]


def digest(*parts: bytes | NDArray[np.generic]) -> bytes:
    """Return a digest of these parts, in this order."""
    state = blake2b(digest_size=16)
    for part in parts:
        octets = part if isinstance(part, bytes) else np.ascontiguousarray(part).ravel().view(np.uint8).data
        state.update(len(octets).to_bytes(8, "little"))
        state.update(octets)
    return state.digest()


class Operator(ABC):
    """A channel as a linear map, for estimation."""

    inputs: int
    outputs: int
    complete: bool = True  # whether the columns are the probabilities of all reports, not just of observed ones up to a factor
    exchangeable: bool = False  # whether each report names one value and all values are treated alike
    scaled: bool = True  # whether `invert` divides what the inverse gives by its sum
    injective: bool = False  # whether the maximum of the likelihood is certainly unique
    sampled: bool = False  # whether `rough_curvature` is rougher than `curvature`
    large: bool = False  # whether nothing may be computed for all pairs of values, and errors are not computed
    local: bool = False  # whether, if it is large, there is a `rough_curvature` among some values all the same
    untimed: int = 300  # steps of a solve without a deadline if it is large
    even: bool = False  # whether curvatures are close to a multiple of the identity, and gradient steps quicker than Newton's
    consistent: bool = False  # whether errors are those of a least-squares inverse, and need no maximum of the likelihood
    lined: bool = False  # whether `of_ranges` needs no functional over all values
    isotropic: bool = False  # whether they are also too large to compute

    @cached_property
    def key(self) -> bytes:
        """The identity of this operator: equal keys mean equal columns."""
        return token_bytes(16)

    @property
    def bounding_weights(self) -> Bounding | None:
        """The weights that bound functionals, if the channel hardly distinguishes neighbouring values."""
        return None

    @abstractmethod
    def forward(self, theta: Floats) -> Floats:
        """Return P(report) under theta: shape (..., inputs) -> (..., outputs)."""

    @abstractmethod
    def adjoint(self, w: Floats) -> Floats:
        """Return sum_z a_xz w_z: shape (..., outputs) -> (..., inputs)."""

    def reachable(self) -> NDArray[np.bool_]:
        """Return which reports some value gives with a chance above zero."""
        return np.asarray(self.forward(np.ones(self.inputs)) > 0)

    @abstractmethod
    def matrix(self) -> Floats:
        """Return P(report | value), shape (inputs, outputs)."""

    def rows(self, among: NDArray[np.int64] | slice) -> Floats:
        """Return P(report | value) of some values."""
        return self.matrix()[among]

    def of_reports(self, positions: NDArray[np.int64]) -> Floats:
        """Return P(report | value) of some reports, shape (inputs, reports)."""
        return self.matrix()[:, positions]

    def curvature(self, w: Floats, among: NDArray[np.int64] | slice = slice(None)) -> Floats:
        """Return sum_z w_z a_z a_z' over the values ``among``, for one group of weights >= 0, shape (outputs,)."""
        rows = self.rows(among) * np.sqrt(w)
        return rows @ rows.T  # the product of a matrix with itself: BLAS computes half of it

    def rough_curvature(self, w: Floats, among: NDArray[np.int64] | slice = slice(None)) -> Floats:
        """Return the curvature, to about a hundredth if it would take long: for steps and errors, not for certificates."""
        return self.curvature(w, among)

    @property
    def votes(self) -> tuple[float, float] | None:
        """The probabilities that a report votes for another value, and for its own; None if votes do not describe the channel.

        If they do, the number of reports for a value is binomial, whatever the other shares are, and `invert` is linear in it.
        """
        return None

    @cached_property
    def condition(self) -> float:
        """The 2-norm condition number of the channel: how much inversion can magnify errors."""
        return float(np.linalg.cond(self.matrix()))

    def check_condition(self) -> None:
        """Refuse to invert a channel whose inverse drowns the estimate in noise.

        Raises:
            IllConditioned: if the condition number is too large.

        """
        if not self.condition <= MAX_CONDITION:
            message = f"the channel has condition number {self.condition:.3g}, too large to invert"
            raise IllConditioned(message, "use ibu", condition=self.condition)

    @cached_property
    def influence(self) -> float:
        """By how much an inverted share moves at most, times n, when one of n reports is replaced."""
        inverse = np.linalg.pinv(self.matrix())
        return float((inverse.max(axis=0) - inverse.min(axis=0)).max())

    def invert(self, shares: Floats) -> Floats:
        """Return the unbiased v with v A = shares: (groups, outputs) -> (groups, inputs); shares of values may be negative.

        They sum to one, except if reports support sets: then only their expectation does.

        Raises:
            IllConditioned: if the channel has no inverse, or one that drowns the estimate in noise.

        """
        self.check_condition()
        # With more reports than values the least-squares inverse is still unbiased.
        v = np.asarray(np.linalg.lstsq(self.matrix().T, shares.T, rcond=None)[0].T, dtype=np.float64)
        return v / v.sum(axis=-1, keepdims=True)

    def maximum(self, shares: Floats) -> Floats | None:  # noqa: ARG002  # for those that have one
        """Return the maximum of the likelihood, (groups, outputs) -> (groups, inputs), or None if it has no closed form."""
        return None

    def beginning(self, shares: Floats) -> Floats | None:  # noqa: ARG002  # for those that have one
        """Return distributions at which a long solve begins, (groups, outputs) -> (groups, inputs); None for uniform ones."""
        return None

    def information(self, theta: Floats, shares: Floats) -> Floats:
        """Return the expected information of a report of one group, sum_z a_z a_z' / P_theta(z), shape (inputs, inputs).

        That needs all reports; if the operator holds only observed ones, their shares stand for their probabilities.
        """
        p = self.forward(theta)
        weight = p if self.complete else shares
        return self.rough_curvature(np.where(p > 0, weight / np.where(p > 0, p, 1.0) ** 2, 0.0))

    def law_fit(self, shares: Floats, n: float) -> tuple[float, float]:  # noqa: ARG002  # for those that are not complete
        """Return a statistic of misfit of one group's reports, and ln of a bound of its p-value.

        Operators that are not complete, whose reports nearly all differ, test a number that follows a known law. By default
        there is no test, and the p-value is 1.
        """
        return 0.0, 0.0

    def log_votes_p_value(self, shares: Floats, n: Floats) -> Floats:  # noqa: ARG002  # for those whose reports are votes
        """Return for each group ln of a bound of the p-value that no value has more or fewer votes than it can have.

        It finds reports that are too much alike, even if they are too few for frequencies to be compared. By default there is
        no test, and the p-value is 1.
        """
        return np.zeros(len(shares))

    def evenly(self) -> Operator:
        """Return the operator that inverts so that each channel weighs the same: itself, unless reports are of several."""
        return self

    @cached_property
    def inverse(self) -> Floats | None:
        """The least-squares inverse of the channel, shape (outputs, inputs), if that is what `invert` applies."""
        return np.asarray(np.linalg.pinv(self.matrix()), dtype=np.float64)

    @cached_property
    def smooth_inverse(self) -> Floats:
        """An inverse with a ridge, shape (outputs, inputs), which hardly changes functionals that are smooth in the values."""
        table = self.matrix()
        both = table @ table.T
        np.fill_diagonal(both, both.diagonal() + _RIDGE * np.abs(both).sum(axis=0).max())
        return np.asarray(np.linalg.solve(both, table).T, dtype=np.float64)

    @property
    def excess(self) -> Floats:
        """By how much the rows of the inverse sum to more than one; 0 if `invert` does not scale."""
        if self.inverse is None:
            raise InternalError("this operator inverts in its own way", "it overrides scatter and inverted_interval")
        return (self.inverse.sum(axis=1) - 1.0) * self.scaled

    def scatter(self, theta: Floats) -> Floats:
        """Return n times the variance of every share that `invert` gives of n reports, if theta is the truth."""
        if self.votes:
            return vote_scatter(theta, self.votes)
        return np.stack([p @ self._pull(at) ** 2 - at**2 for at, p in zip(theta, self.forward(theta), strict=True)])

    def _pull(self, theta: Floats) -> Floats:
        """Return what one report contributes to `invert`, near theta: shape (outputs, inputs), its expectation is theta."""
        if self.inverse is None:
            raise InternalError("this operator inverts in its own way", "it overrides scatter and inverted_interval")
        return np.asarray(self.inverse - theta * self.excess[:, None])

    def pulled(self, c: Floats) -> Floats | None:
        """Return what each report adds to c'v of the inversion v, for functionals c: (.., inputs, m) -> (.., outputs, m).

        Returns None if `functionals` are those of the inversion, or nothing better is known.
        """
        if self.votes or self.large or self.consistent or self.inverse is None:
            return None
        return self.inverse @ c

    def inverted_interval(self, shares: Floats, n: Floats, theta: Floats, z: float) -> Ends:
        """Return standard error, low and high of every share that `invert` gives, for each group; errors are exact at theta."""
        if self.votes:
            return of_votes(self.invert(shares), theta, self.votes, n[:, None], z)
        if self.inverse is None:
            centre, error = self.invert(shares), np.sqrt(self.scatter(theta) / n[:, None])
            return error, centre - z * error, centre + z * error
        parts = []
        for v, at, p, size in zip(self.invert(shares), theta, self.forward(theta), n, strict=True):
            pull = self._pull(at).T
            second, own = pull**2 @ p, np.einsum("xz,xz->x", self.matrix(), pull**2)
            error = np.sqrt(np.maximum(second - at**2, 0.0) / size)
            parts.append((error, *score_ends(v, at, second, own, z**2 / size)))
        return _stacked(parts)

    def interval(self, shares: Floats, n: Floats, theta: Floats, z: float) -> Ends:
        """Return standard error, low and high of every share of each group, around the debiased estimate.

        The centre is one step from theta, theta + V(g - 1), where V is the inverse, among directions that sum to zero, of the
        expected information sum_z a_z a_z' / P_theta(z) of a report. On the border of the simplex theta itself is not normal
        around the truth; the centre is. A share that the reports do not determine has an infinite error. The ends are those of
        the score interval, which is also right for few reports; if that would take long they are ``z`` errors from the centre.
        For a large map all errors are infinite.
        """
        if self.large:
            return np.full_like(theta, np.inf), np.full_like(theta, -1.0), np.full_like(theta, 2.0)
        expected = self.forward(theta)
        gradient = self.adjoint(shares / np.maximum(expected, 1e-300))
        parts = []
        for i, p in enumerate(expected):
            check()
            weight, size = p if self.complete else shares[i], float(n[i])
            inverse, unknown = tangent_inverse(self.information(theta[i], shares[i]))
            centre = theta[i] + inverse @ (gradient[i] - 1.0)
            error = np.sqrt(np.maximum(inverse.diagonal(), 0.0) / size)
            low, high = centre - z * error, centre + z * error
            if self.inputs**2 * self.outputs <= SCORE_WORK:
                table = self.matrix() / np.where(p > 0, p, np.inf)  # a report that cannot occur weighs nothing
                squares = (theta[i][:, None] + inverse @ table) ** 2
                own = np.einsum("xz,xz->x", table * weight, squares)
                low, high = score_ends(centre, theta[i], squares @ weight, own, z**2 / size)
            # A share lies within 1 of anything on the simplex.
            parts.append(tuple(np.where(unknown, u, e) for u, e in zip((np.inf, -1.0, 2.0), (error, low, high), strict=True)))
        return _stacked(parts)

    def covariance(self, shares: Floats, theta: Floats) -> Floats:
        """Return n times the covariance of the debiased shares of one group, shape (inputs, inputs): V of `interval`.

        Rows and columns of shares that the reports do not determine are infinite.
        """
        inverse, unknown = tangent_inverse(self.information(theta, shares))
        return np.where(unknown[:, None] | unknown, np.inf, inverse)

    def functionals(self, shares: Floats, n: Floats, theta: Floats, c: Floats) -> tuple[Floats, Floats]:
        """Return the debiased c'theta and its variance c'Vc/n; V and the debiasing are those of `interval`.

        ``c`` holds m functionals, shape (inputs, m), or (groups, inputs, m) if each group has its own; the results have
        shape (groups, m). A functional that the reports do not determine has an infinite variance; on a large map all have.
        """
        each = np.broadcast_to(c, (len(theta), *c.shape[-2:]))
        if self.large:
            centre = np.einsum("gx,gxm->gm", theta, each)
            return centre, np.full_like(centre, np.inf)
        gradient = self.adjoint(shares / np.maximum(self.forward(theta), 1e-300)) - 1.0
        centre, variance = np.empty((2, len(theta), c.shape[-1]))
        for i in range(len(theta)):
            check()
            moved, unknown = tangent_solve(self.information(theta[i], shares[i]), each[i])
            centre[i] = theta[i] @ each[i] + gradient[i] @ moved
            variance[i] = np.where(unknown, np.inf, np.einsum("xm,xm->m", each[i], moved)) / n[i]
        return centre, variance

    def expected_variances(self, theta: Floats, n: float, c: Floats) -> Floats:
        """Return the variances of functionals, shape (functionals,), to expect from n reports at theta, shape (inputs,)."""
        return self.functionals(self.forward(theta[None]), np.array([n]), theta[None], c)[1][0]

    def contributions(self, shares: Floats, n: float, theta: Floats, c: Floats) -> Floats | None:  # see SetOperator
        """Return by how much each report of one group moves the debiased c'theta, times n and up to a constant.

        Args:
            shares: those of the reports, shape (outputs,).
            n: the number of reports.
            theta: the distribution at which the functionals are estimated, shape (inputs,).
            c: functionals, shape (inputs, m).

        Returns:
            A table of shape (outputs, m), or None if there is no curvature to compute it from.

        """
        if self.large:
            return None
        if self.consistent or self.isotropic:
            return self._nudged(shares, n, theta, c) if self.outputs <= _NUDGED else None
        moved, _ = tangent_solve(self.information(theta, shares), c)
        expected = self.forward(theta[None])[0]
        return np.asarray((self.forward(moved.T) / np.where(expected > 0, expected, np.inf)).T)

    def _nudged(self, shares: Floats, n: float, theta: Floats, c: Floats) -> Floats:
        """Return the contributions of reports, each from a little more of it."""
        mixed = np.vstack([shares, (1.0 - _NUDGE) * shares + _NUDGE * np.eye(self.outputs)])
        centres = self.functionals(mixed, np.full(len(mixed), n), np.tile(theta, (len(mixed), 1)), c)[0]
        return np.asarray((centres[1:] - centres[0]) / _NUDGE)

    def of_ranges(self, shares: Floats, n: Floats, theta: Floats, ranges: Ranges) -> tuple[Floats, Floats]:
        """Return the debiased shares of ranges of neighbouring values, and their variances."""
        place = np.arange(self.inputs)[:, None]
        inside = (place >= ranges.first) & (place < ranges.end)
        return self.functionals(shares, n, theta, inside.astype(np.float64))


def _stacked(parts: Sequence[tuple[Floats, ...]]) -> Ends:
    error, low, high = (np.stack(column) for column in zip(*parts, strict=True))
    return error, low, high


@singledispatch
def operator(channel: Channel) -> Operator:  # noqa: ARG001  # every structure registers its own
    """Return the operator that fits the structure of a channel."""
    raise InternalError("the reports of this channel cannot be listed", "build its operator from observed reports")


# Operators that have too many values for a curvature, but an inversion whose errors are known.


class InvertedOperator(Operator):
    """An operator whose errors are those of its inversion if it has more values than a curvature can be computed for."""

    @abstractmethod
    def inverted_functionals(self, shares: Floats, n: Floats, theta: Floats, c: Floats) -> tuple[Floats, Floats]:
        """Return c'v for the inversion v, and its variance; for shapes see `Operator.functionals`."""

    def interval(self, shares: Floats, n: Floats, theta: Floats, z: float) -> Ends:
        """Return the intervals around the debiased estimate; without a curvature, those of the inversion."""
        within = self.inverted_interval if self.isotropic else super().interval
        return within(shares, n, theta, z)

    def functionals(self, shares: Floats, n: Floats, theta: Floats, c: Floats) -> tuple[Floats, Floats]:
        """Return functionals of the debiased estimate; without a curvature, those of the inversion."""
        of = self.inverted_functionals if self.isotropic else super().functionals
        return of(shares, n, theta, c)


# The base classes of operators for responses to sets of pairs.


class PairOperator(Operator):
    """The likelihood of a `PairResponse`: its values are the symbols of keys."""

    @abstractmethod
    def shown(self, w: Floats) -> Floats:
        """Return the weight of the reports that show each sign or number of each key, from the weights of all reports."""


class NamedOperator(PairOperator):
    """An operator whose reports each name one value, in the order of the values."""

    def shown(self, w: Floats) -> Floats:
        """Return the weights themselves."""
        return w
