"""The likelihood of hashes under orthogonal arrays over many values, by characters of a finite field.

A hash is an inner product <a, x> over the field of g elements. The sum of theta over the values that hash to y under a is the
mean over all c of chi(-c y) T(c a), where T(b) = sum_x theta_x chi(<b, x>) and chi is a character of addition. T is one fast
transform of g^m numbers, whereas look-ups in the sets take g^m inputs/8.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import TOTAL, Floats, OrthogonalHash
from ldpsql.channels.hashed import Elements, Field, coordinatewise, splitmix
from ldpsql.inference.operators.base import Operator, operator
from ldpsql.inference.operators.supports import CELLS, Octets, SetOperator, packed

_LISTED = 1 << 18  # values times reports, up to which products with the sets took less time than characters

# Sums of weights times the characters of a finite field: a Walsh-Hadamard transform, or a Fourier transform of real numbers.
#
# A vector x of m coordinates in the field of q = p^k elements is a vector of km digits, each below p. A character of addition
# is chi(t) = exp(2 pi i L(t)/p), where L takes the lowest digit of t. The digits of the dual of an element b are L(b p^i), so
#
#   L(<b, x>) = sum over all digits of (dual of b)_i x_i,
#
# and a sum over all x, for every b, is one transform along each of the digits.


Places = NDArray[np.int64]
Sums = NDArray[np.float64] | NDArray[np.complex128]

_BITS = 6  # that a product with a matrix of signs transforms together: fewer make slow products of small matrices


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The sums at chosen vectors b, one of b and -b: the sums at the other are conjugate.

    Args:
        p: the prime.
        digits: the number of digits of a vector.
        places: where the sums of the chosen vectors stand among those that are computed.
        signs: -1 for the vectors whose conjugate sum is computed, else 1.

    """

    p: int
    digits: int
    places: Places
    signs: NDArray[np.float64]

    @staticmethod
    def at(q: int, coordinates: int, vectors: Places, multiples: Elements) -> Spectrum:
        """Return the spectrum at multiples of vectors over the field of q elements, shape (vectors, multiples).

        Args:
            q: the number of elements.
            coordinates: the number of coordinates of a vector.
            vectors: the positions of the vectors in the list of all.
            multiples: the elements by which they are multiplied.

        """
        field = Field.of(q)
        duals, elements = _dual(field), np.arange(q, dtype=np.int32)

        def places_at(factors: Elements) -> Places:
            images = [duals[field.multiply(elements, np.full_like(elements, factor))] for factor in factors]
            return np.stack([coordinatewise(vectors, image, coordinates) for image in images], axis=-1)

        places, digits = places_at(multiples), field.k * coordinates
        if field.p == 2:
            return Spectrum(2, digits, places, np.ones(1))
        half = field.p // 2
        negative = places_at(field.multiply(multiples, np.full(1, field.p - 1, np.int32)))
        mirrored = places % field.p > half
        computed = np.where(mirrored, negative, places)
        places = computed // field.p * (half + 1) + computed % field.p
        return Spectrum(field.p, digits, places, np.where(mirrored, -1.0, 1.0))

    def sums(self, weights: Floats) -> Sums:
        """Return sum_x weights_x chi(<b, x>) at the chosen vectors; real if p = 2."""
        if self.p == 2:
            return np.take(_hadamard(weights), self.places, axis=-1)
        from scipy.fft import rfftn  # noqa: PLC0415  # slow to import

        lead, shape = weights.shape[:-1], (self.p,) * self.digits
        computed = rfftn(weights.reshape(*lead, *shape), axes=range(len(lead), len(lead) + self.digits))
        out = computed.reshape(*lead, -1)[..., self.places]
        out.imag *= -self.signs  # the transform has the conjugate characters
        return np.asarray(out)

    def mixed(self, weights: Sums) -> Floats:
        """Return the real part of sum_b weights_b chi(<b, x>) for every vector x; the chosen vectors must differ."""
        if self.p == 2:
            return _hadamard(self._spread(weights, self.p**self.digits).real)
        from scipy.fft import irfftn  # noqa: PLC0415

        lead, half, shape = weights.shape[: weights.ndim - self.places.ndim], self.p // 2 + 1, (self.p,) * self.digits
        own = (
            np.where(self.places % half, 0.5, 1.0) * weights
        )  # the transform adds the conjugate, except where the last digit is 0
        own.imag *= self.signs
        spectrum = self._spread(own, self.p ** (self.digits - 1) * half).reshape(*lead, *shape[:-1], half)
        axes = range(len(lead), len(lead) + self.digits)
        out = irfftn(spectrum, s=shape, axes=axes, norm="forward", overwrite_x=True)
        return np.asarray(out.reshape(*lead, -1))

    def _spread(self, weights: Sums, size: int) -> Sums:
        out = np.zeros((*weights.shape[: weights.ndim - self.places.ndim], size), dtype=weights.dtype)
        out[..., self.places] = weights
        return out


def _dual(field: Field) -> Elements:
    """Return the dual of every element."""
    places = [field.p**i for i in range(field.k)]
    elements = np.arange(field.p**field.k, dtype=np.int32)
    parts = [field.multiply(elements, np.full(len(elements), place, np.int32)) % field.p * place for place in places]
    return np.sum(parts, axis=0, dtype=np.int32)


def _hadamard(cells: Floats) -> Floats:
    """Return sum_x cells_x (-1)^(number of digits that are 1 in both b and x) for every b."""
    shape, left = cells.shape, cells.shape[-1].bit_length() - 1
    passes = -(-left // _BITS)
    for _ in range(passes):  # the last digits are transformed and moved to the front
        bits = -(-left // passes)
        left, passes = left - bits, passes - 1
        turned = cells.reshape(*shape[:-1], -1, 1 << bits) @ _signs(bits)
        cells = turned.swapaxes(-1, -2)
    return cells.reshape(shape)


def _signs(bits: int) -> Floats:
    """Return the matrix of signs of a Walsh-Hadamard transform.

    >>> _signs(1).tolist()
    [[1.0, 1.0], [1.0, -1.0]]
    """
    both = np.arange(1 << bits)[:, None] & np.arange(1 << bits)
    return 1.0 - 2.0 * (np.bitwise_count(both) & 1)


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
        self._value_at = None
        if self.inputs == self._size**self._coordinates:  # the value of each point: to take is quicker than to scatter
            self._value_at = np.empty_like(self._points)
            self._value_at[self._points] = np.arange(self.inputs)
        half, times = one_of_each_sign(self._size)
        self._spectrum = Spectrum.at(self._size, self._coordinates, channel.function_numbers, half[1:])
        table = characters(self._size)[half[1:]] * times[1:, None]
        self._cos, self._sin = table.real, (table.imag if np.iscomplexobj(table) else None)

    def _inside(self, theta: Floats) -> Floats:
        if self._value_at is None:
            spread = np.zeros((*theta.shape[:-1], self._size**self._coordinates))
            spread[..., self._points] = theta
        else:
            spread = np.take(theta, self._value_at, axis=-1)
        at_multiples = self._spectrum.sums(spread)
        sums = at_multiples.real @ self._cos
        if self._sin is not None:
            sums += at_multiples.imag @ self._sin
        sums += theta.sum(axis=-1)[..., None, None]
        return np.asarray(sums.reshape(*theta.shape[:-1], self.outputs) / self._size)

    def supported(self, w: Floats) -> Floats:
        each = w.reshape(*w.shape[:-1], -1, self._size)
        by_function: Sums = each @ self._cos.T
        if self._sin is not None:
            by_function = by_function - 1j * (each @ self._sin.T)
        # Every vector but 0, up to its sign, is one of the multiples.
        out = np.take(self._spectrum.mixed(by_function), self._points, axis=-1)
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
    few = channel.inputs * channel.outputs <= _LISTED or channel.dimension * channel.response.size > channel.inputs
    return ListedOperator(channel) if few else CharacterOperator(channel)
