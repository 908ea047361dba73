"""The likelihood of hashes under orthogonal arrays over many values, by characters of a finite field.

A hash is an inner product <a, x> over the field of g elements. The sum of theta over the values that hash to y under a is the
mean over all c of chi(-c y) T(c a), where T(b) = sum_x theta_x chi(<b, x>) and chi is a character of addition. T is one fast
transform of g^m numbers, whereas look-ups in the sets take g^m inputs/8.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import TOTAL, Floats, OrthogonalHash
from ldpsql.channels.galois import Elements, Field
from ldpsql.channels.splitmix import splitmix
from ldpsql.inference.operators.base import Operator, operator
from ldpsql.inference.operators.characters import Spectrum, Sums
from ldpsql.inference.operators.octets import Octets, packed
from ldpsql.inference.operators.supports import CELLS, SetOperator


class ListedOperator(SetOperator):
    """All reports of an orthogonal array, with their probabilities."""

    def __init__(self, channel: OrthogonalHash) -> None:
        super().__init__(channel, channel.outputs, channel.response.spread / TOTAL / channel.seeds)
        self._channel = channel

    @cached_property
    def _octets(self) -> Octets:  # type: ignore[override]  # packed when they are first needed
        return packed(self._channel, np.arange(self.outputs, dtype=np.int32))


class CharacterOperator(ListedOperator):
    """All reports of an orthogonal array, with sums over many sets computed by characters, for all groups at once.

    With more than `MOST_PAIRS` values, nothing is computed for each pair of them, nor for each value and report. Errors are
    then those of the inversion; as all pairs of values are alike under the array, others would hardly differ.
    """

    def __init__(self, channel: OrthogonalHash) -> None:
        super().__init__(channel)
        self._size, self._coordinates = channel.response.size, channel.dimension
        self._points = channel.point_numbers
        half, times = one_of_each_sign(self._size)
        self._spectrum = Spectrum.at(self._size, self._coordinates, channel.function_numbers, half[1:])
        table = characters(self._size)[half[1:]] * times[1:, None]
        self._cos, self._sin = table.real, (table.imag if np.iscomplexobj(table) else None)

    def _inside(self, theta: Floats) -> Floats:
        """Return the share that the members of every set hold together."""
        spread = np.zeros((*theta.shape[:-1], self._size**self._coordinates))
        spread[..., self._points] = theta
        at_multiples = self._spectrum.sums(spread)
        sums = at_multiples.real @ self._cos
        if self._sin is not None:
            sums += at_multiples.imag @ self._sin
        sums += theta.sum(axis=-1)[..., None, None]
        return np.asarray(sums.reshape(*theta.shape[:-1], self.outputs) / self._size)

    def supported(self, w: Floats) -> Floats:
        """Return for each value the weight of the reports that support it."""
        each = w.reshape(*w.shape[:-1], -1, self._size)
        by_function: Sums = each @ self._cos.T
        if self._sin is not None:
            by_function = by_function - 1j * (each @ self._sin.T)
        # Every vector but 0, up to its sign, is one of the multiples.
        out = self._spectrum.mixed(by_function)[..., self._points]
        out += w.sum(axis=-1, keepdims=True)
        return np.asarray(out / self._size)

    def _unpacked(
        self, among: NDArray[np.int64] | slice = slice(None), chosen: NDArray[np.int64] | None = None
    ) -> Iterator[tuple[slice, NDArray[np.bool_]]]:
        if not self.isotropic:
            yield from super()._unpacked(among, chosen)
            return
        values = np.arange(self.inputs)[among]
        reports = np.arange(self.outputs) if chosen is None else chosen
        step = max(1, CELLS // len(values))
        for start in range(0, len(reports), step):
            part = slice(start, start + step)
            yield part, self._channel.supports(reports[part], values).T

    def rough_curvature(self, w: Floats, among: NDArray[np.int64] | slice = slice(None)) -> Floats:
        """Return the curvature; for many values, from some of the observed reports, a few times as many as values."""
        if not self.isotropic:
            return super().rough_curvature(w, among)
        seen = np.flatnonzero(w)
        chosen = seen[np.argsort(splitmix(seen.astype(np.uint64)))[: max(5_000, 4 * len(np.arange(self.inputs)[among]))]]
        roots = np.sqrt(w[chosen] * (w.sum() / w[chosen].sum())).astype(np.float32)
        return self._lifted(float(w.sum()), self._pairs(roots, among, chosen))


def one_of_each_sign(q: int) -> tuple[Elements, Floats]:
    """Return 0 and one of x and -x for all elements x of the field of q elements, and how many of the two there are.

    The characters of x and -x are conjugate, so sums of real numbers need one of them only.

    >>> [part.tolist() for part in one_of_each_sign(5)], one_of_each_sign(4)[0].tolist()
    ([[0, 1, 2], [1.0, 2.0, 2.0]], [0, 1, 2, 3])
    """
    field, elements = Field.of(q), np.arange(q, dtype=np.int32)
    negative = field.multiply(elements, np.full(q, field.p - 1, dtype=np.int32))
    half = elements[elements <= negative]
    return half, np.where(negative[half] == half, 1.0, 2.0)


def characters(q: int) -> Sums:
    """Return chi(b x) of all elements b and x of the field of q elements: real if q is even.

    >>> characters(2).tolist()
    [[1.0, 1.0], [1.0, -1.0]]
    """
    field, elements = Field.of(q), np.arange(q, dtype=np.int32)
    lowest = field.multiply(elements[:, None], elements) % field.p
    if field.p == 2:
        return 1.0 - 2.0 * lowest.astype(np.float64)
    return np.exp(2j * np.pi / field.p * lowest)


@operator.register
def _(channel: OrthogonalHash) -> Operator:
    few = channel.inputs * channel.outputs <= CELLS or channel.dimension * channel.response.size > channel.inputs
    return ListedOperator(channel) if few else CharacterOperator(channel)
