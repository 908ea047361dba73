"""Linear estimates under channels that hardly distinguish neighbouring values: weights on reports whose bias is bounded.

A wide window or wide noise leaves most functionals of the shares outside the row space of the channel, though many lie very
close to it. The mean of weights w(y) over the reports has the expectation theta'Aw, so whatever theta is, it exceeds c'theta
at least on average if Aw >= c for each value. Of such weights, those are taken that promise the lowest bound if all values are
equally common. No functional needs to be identified, and nothing is assumed about the distribution.

Source of the bias-aware interval: Donoho, "Statistical estimation and optimal recovery", Annals of Statistics 1994.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ldpsql.caches import ByteCache
from ldpsql.channels import Floats
from ldpsql.inference.limits import check

if TYPE_CHECKING:
    from ldpsql.inference.operators.base import Operator


def positive_solution(matrix: Floats, right: Floats) -> Floats | None:
    """Return x with matrix x = right, None if the matrix is not positive definite; the matrix is overwritten."""
    from scipy.linalg.lapack import dposv  # noqa: PLC0415  # slow to import

    _, x, failed = dposv(matrix.T, right, overwrite_a=1)  # symmetric, and in the order of LAPACK's tables
    return None if failed else np.asarray(x, dtype=np.float64)


def positive_factor(matrix: Floats) -> Floats | None:
    """Return the lower Cholesky factor; None if the matrix is not positive definite."""
    from scipy.linalg.lapack import dpotrf  # noqa: PLC0415

    lower, failed = dpotrf(matrix, lower=1)
    return None if failed else np.asarray(lower, dtype=np.float64)


def inverse_of_factor(lower: Floats) -> Floats:
    """Return the inverse of the matrix that has this Cholesky factor."""
    from scipy.linalg.lapack import dpotri  # noqa: PLC0415

    half = np.tril(dpotri(lower, lower=1)[0])
    return np.asarray(half + half.T - np.diag(half.diagonal()), dtype=np.float64)


def solved_by_factor(lower: Floats, right: Floats) -> Floats:
    """Return x with matrix x = right for the matrix that has this Cholesky factor."""
    from scipy.linalg.lapack import dpotrs  # noqa: PLC0415

    return np.asarray(dpotrs(lower, right, lower=1)[0], dtype=np.float64)


_RIDGES = 10.0 ** np.arange(-13, 0.0, 2)  # as parts of the largest eigenvalue
_RAMPS = (0.0, 1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)  # as parts of the range
_BLOCKS = 1024  # most blocks of values: the cost grows with their cube
_SHARP = 1e-4  # of the squared correlations of reports with values
_MOST_VALUES = 4096
_MOST_CELLS = 1 << 25
_KEPT = 1 << 25  # bytes


class Majorants(NamedTuple):
    """Functions of the reports whose expectation is at least c'theta for every theta.

    ``weights`` has shape (functionals, outputs). ``bias`` is by how much their expectation may exceed c'theta.
    """

    weights: Floats
    bias: Floats


class Bounding(Protocol):
    """What bounds functionals under a channel that hardly distinguishes neighbouring values."""

    def majorants(self, c: Floats, n: float, z: float, *, sets: bool) -> Majorants:
        """Return the majorants of functionals; see `ReportWeights.majorants`."""


class ReportWeights:
    """The weights of one channel, near those of least variance for equally common values.

    With P = P(report) of equally common values and B the rows of the channel, added up in blocks of neighbouring values, the
    weights with ridge k that come closest to a target t are B'u/P, (B diag(1/P) B' + k) u = the sums of t in the blocks.
    """

    def __init__(self, operator: Operator) -> None:
        self._operator, size = operator, operator.inputs
        self._starts = np.arange(0, size, -(-size // _BLOCKS))
        self._law = law = operator.forward(np.full((1, size), 1.0 / size))[0]
        self._blocks = np.add.reduceat(operator.matrix(), self._starts, axis=0)
        self._scaled = np.where(law > 0, self._blocks / np.where(law > 0, law, 1.0), 0.0)
        eigenvalues, self._vectors = np.linalg.eigh(self._scaled @ self._blocks.T)
        self._eigenvalues = np.maximum(eigenvalues, 0.0)[:, None]
        self._kept: ByteCache[tuple[bytes, int, bool], Majorants] = ByteCache(_KEPT)

    @property
    def sharp(self) -> bool:
        """Whether the channel distinguishes all values so well that no ridge is needed."""
        return len(self._starts) == self._operator.inputs and bool(self._eigenvalues[0] > _SHARP * self._eigenvalues[-1])

    def majorants(self, c: Floats, n: float, z: float, *, sets: bool) -> Majorants:
        """Return the majorants of functionals that give the lowest bounds.

        Args:
            c: the functionals, shape (inputs, functionals).
            n: about how many reports there are.
            z: how many standard errors are added to their mean.
            sets: whether each column is 1 for some values on a line and 0 for the others.

        """
        size = round(2 * np.log10(n))
        key = (np.ascontiguousarray(c).tobytes() + np.float64(z).tobytes(), size, sets)
        return self._kept.remembered(key, lambda _: self._lowest(c, z / 10 ** (size / 4), sets=sets))

    def _lowest(self, c: Floats, reach: float, *, sets: bool) -> Majorants:
        """Return the majorants whose mean plus ``reach`` standard deviations of a report is least for equally common values."""
        lowest = np.full(c.shape[1], np.inf)
        weights, bias = np.empty((c.shape[1], self._operator.outputs)), np.empty(c.shape[1])
        for candidates in self._candidates(c, sets=sets):
            check()
            expectations = self._operator.adjoint(candidates)
            for candidate, expectation in zip(*self._scaled_alike(candidates, expectations, c, sets=sets), strict=True):
                lift = (c - expectation.T).max(axis=0)
                mean = expectation.mean(axis=1)
                variance = candidate**2 @ self._law - mean**2
                bound = mean + lift + reach * np.sqrt(np.maximum(variance, 0.0))
                lower = bound < lowest
                lowest[lower] = bound[lower]
                weights[lower] = (candidate + lift[:, None])[lower]
                bias[lower] = (expectation.T + lift - c).max(axis=0)[lower]
        return Majorants(weights, bias)

    def _candidates(self, c: Floats, *, sets: bool) -> Iterator[Floats]:
        """Yield weights close to each functional, or to a smooth function above it: shape (ridges, functionals, outputs)."""
        for target in (ramps(c, width) for width in (_RAMPS if sets else (0.0,))):
            along = self._vectors.T @ np.add.reduceat(target, self._starts, axis=0)
            pulled = along.T / (self._eigenvalues.T + _RIDGES[:, None, None] * self._eigenvalues[-1])
            yield pulled @ self._vectors.T @ self._scaled

    @staticmethod
    def _scaled_alike(weights: Floats, expectations: Floats, c: Floats, *, sets: bool) -> tuple[Floats, Floats]:
        """Return weights with their expectations; for sets also scaled so that each set is 1 above the least value outside."""
        if not sets:
            return weights, expectations
        inside = np.where(c.T > 0, expectations, np.inf).min(axis=-1, keepdims=True)
        outside = np.where(c.T > 0, np.inf, expectations).min(axis=-1, keepdims=True)
        apart = inside - outside
        factor = np.where(np.isfinite(apart) & (apart > 0), 1.0 / np.where(apart > 0, apart, 1.0), 1.0)
        return np.concatenate([weights, factor * weights]), np.concatenate([expectations, factor * expectations])


def weighable(operator: Operator) -> bool:
    """Return whether a channel has few enough values and reports for weights."""
    return operator.complete and operator.inputs <= _MOST_VALUES and operator.inputs * operator.outputs <= _MOST_CELLS


def hazy_weights(operator: Operator) -> ReportWeights | None:
    """Return the weights of a channel that hardly distinguishes neighbours; None for others and for very many values."""
    if operator.inputs > _MOST_VALUES:
        return None
    weights = ReportWeights(operator)
    return None if weights.sharp else weights


def ramps(sets: Floats, width: float) -> Floats:
    """Return 1 for the values of each set, falling smoothly to 0 over ``width`` of the range to both sides."""
    if not width:
        return sets
    place, size = np.arange(len(sets))[:, None], len(sets)
    before = np.maximum.accumulate(np.where(sets > 0, place, -2 * size), axis=0)
    after = np.minimum.accumulate(np.where(sets > 0, place, 3 * size)[::-1], axis=0)[::-1]
    apart = np.minimum(np.minimum(place - before, after - place) / (width * size), 1.0)
    return np.asarray((1.0 + np.cos(np.pi * apart)) / 2.0)


# The inverse of an information matrix among directions that sum to zero, the only ones in which shares can move.


def tangent_inverse(information: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the inverse of the information among directions that sum to zero, and which values it does not determine."""
    size = len(information)
    lower = _factor(information)
    if lower is not None:
        inverse = inverse_of_factor(lower)
        along = inverse.sum(axis=0)
        return inverse - np.outer(along, along) / along.sum(), np.zeros(size, dtype=np.bool_)
    eigenvalues, vectors = _tangent_spectrum(information)
    lost = np.eye(size) - 1.0 / size - vectors @ vectors.T
    return (vectors / eigenvalues) @ vectors.T, np.abs(lost).max(axis=1, initial=0.0) > 1e-6


def tangent_solve(information: Floats, c: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Return V c for the columns of c, where V is `tangent_inverse`, and which columns the information does not determine."""
    lower = _factor(information)
    if lower is not None:
        solved = solved_by_factor(lower, np.column_stack([c, np.ones(len(c))]))
        moved, along = solved[:, :-1], solved[:, -1:]
        return moved - along * (moved.sum(axis=0) / along.sum()), np.zeros(c.shape[1], dtype=np.bool_)
    eigenvalues, vectors = _tangent_spectrum(information)
    along, centred = vectors.T @ c, c - c.mean(axis=0)
    lost = np.abs(centred - vectors @ along).max(axis=0) > 1e-6 * np.maximum(np.abs(centred).max(axis=0), 1e-300)
    return vectors @ (along / eigenvalues[:, None]), lost


def _factor(information: Floats) -> Floats | None:
    """Return Cholesky's factor, with a curvature along (1, ..., 1) added; None if its pivots show a lost direction."""
    lower = positive_factor(information + information.trace() / len(information) ** 2)
    if lower is None:
        return None
    pivots = lower.diagonal() ** 2
    return lower if pivots.min() > 1e-8 * pivots.max() else None


def _tangent_spectrum(information: Floats) -> tuple[Floats, Floats]:
    """Return the eigenvalues that are clearly not zero, and their vectors, among directions that sum to zero."""
    centred = information - information.mean(axis=0)
    eigenvalues, vectors = np.linalg.eigh(centred - centred.mean(axis=1, keepdims=True))
    kept = eigenvalues > 1e-10 * max(eigenvalues[-1], 1e-300)
    return eigenvalues[kept], vectors[:, kept]
