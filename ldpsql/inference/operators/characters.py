"""Sums of weights times the characters of a finite field: a Walsh-Hadamard transform, or a Fourier transform of real numbers.

A vector x of m coordinates in the field of q = p^k elements is a vector of km digits, each below p. A character of addition is
chi(t) = exp(2 pi i L(t)/p), where L takes the lowest digit of t. The digits of the dual of an element b are L(b p^i), so

  L(<b, x>) = sum over all digits of (dual of b)_i x_i,

and a sum over all x, for every b, is one transform along each of the digits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import Floats
from ldpsql.channels.galois import Elements, Field, coordinatewise

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
        """Return sum_x weights_x chi(<b, x>) at the chosen vectors; real if p = 2.

        Args:
            weights: one for each vector x, shape (..., p^digits).

        """
        if self.p == 2:
            return np.asarray(_hadamard(weights)[..., self.places])
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
