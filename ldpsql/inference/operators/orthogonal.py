"""The likelihood of hashes under orthogonal arrays over many values, by characters of a finite field.

A hash is an inner product <a, x> over the field of g elements. The sum of theta over the values that hash to y under a is the
mean over all c of chi(-c y) T(c a), where T(b) = sum_x theta_x chi(<b, x>) and chi is a character of addition. As chi(<b, x>)
is a product over the m coordinates, T takes m g^(m+1) steps, whereas look-ups in the sets take g^m inputs/8.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import TOTAL, OrthogonalHash
from ldpsql.channels.galois import Elements, Field
from ldpsql.channels.hashed import splitmix
from ldpsql.errors import NotApplicable
from ldpsql.inference.operators.base import Floats, Operator, operator
from ldpsql.inference.operators.octets import Octets, packed
from ldpsql.inference.operators.supports import CELLS, SetOperator

MOST_PAIRS = 2048  # values up to which something may be computed for every pair of them
Characters = NDArray[np.float64] | NDArray[np.complex128]


class ListedOperator(SetOperator):
    """All reports of an orthogonal array, with their probabilities."""

    def __init__(self, channel: OrthogonalHash) -> None:
        super().__init__(channel, channel.outputs, channel.response.spread / TOTAL / channel.seeds)
        self._channel = channel

    @cached_property
    def _octets(self) -> Octets:  # type: ignore[override]  # packed when they are first needed
        return packed(self._channel, np.arange(self.outputs, dtype=np.int32))


class CharacterOperator(ListedOperator):
    """The same, with sums over many sets computed by characters; groups of counts are transformed together.

    With more than `MOST_PAIRS` values, nothing is computed for each pair of them, nor for each value and report. Errors are
    then those of the inversion; as all pairs of values are alike under the array, others would hardly differ.
    """

    def __init__(self, channel: OrthogonalHash) -> None:
        super().__init__(channel)
        self.isotropic = self.inputs > MOST_PAIRS
        self._size, self._coordinates = channel.response.size, channel.dimension
        self._characters = characters(self._size)
        self._points = self._places(channel.points)
        elements = np.arange(self._size, dtype=np.int32)[:, None]
        self._multiples = self._places(Field.of(self._size).multiply(elements, channel.functions[:, None]))

    def _inside(self, theta: Floats) -> Floats:
        """Return the share that the members of every set hold together."""
        spread = np.zeros((*theta.shape[:-1], self._size**self._coordinates))
        spread[..., self._points] = theta
        sums = self._transformed(spread)[..., self._multiples] @ self._characters.conj()
        return np.asarray(sums.real.reshape(*theta.shape[:-1], self.outputs) / self._size)

    def supported(self, w: Floats) -> Floats:
        """Return for each value the weight of the reports that support it."""
        by_function = w.reshape(*w.shape[:-1], -1, self._size) @ self._characters.conj()
        spread = np.zeros((*w.shape[:-1], self._size**self._coordinates), dtype=by_function.dtype)
        spread[..., self._multiples[:, 1:]] = by_function[..., 1:]  # every vector but 0 is one multiple of one function
        spread[..., 0] = by_function[..., 0].sum(axis=-1)
        return np.asarray(self._transformed(spread)[..., self._points].real / self._size)

    def _few(self, n: Floats) -> bool:
        return self.isotropic or super()._few(n)

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

    def information(self, theta: Floats, shares: Floats) -> Floats:
        """Return the expected information of a report of one group, shape (inputs, inputs).

        Raises:
            NotApplicable: if there are more than `MOST_PAIRS` values.

        """
        if self.isotropic:
            raise NotApplicable(
                f"the covariance of {self.inputs} shares is too large", f"it is available for at most {MOST_PAIRS} values"
            )
        return super().information(theta, shares)

    def _transformed(self, cells: Characters) -> Characters:
        """Return sum_x cells_x chi(<b, x>) for every vector b."""
        shape = cells.shape
        for _ in range(self._coordinates):  # the last coordinate is transformed and moved to the front
            turned = cells.reshape(*shape[:-1], -1, self._size) @ self._characters
            cells = turned.swapaxes(-1, -2)
        return cells.reshape(shape)

    def _places(self, vectors: Elements) -> NDArray[np.int64]:
        """Return the positions of vectors, shape (..., coordinates), in the list of all."""
        return np.asarray(vectors @ self._size ** np.arange(self._coordinates - 1, -1, -1, dtype=np.int64))


def characters(q: int) -> Characters:
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
