"""The likelihood of noise on a large grid of cells, by fast Fourier transforms: no table of all pairs of cells.

The chance of a report is a convolution, with one kernel for the inner cells, where a cell collects its own noise, and others
for the sides and the corners, which also collect what lies beyond. One transform serves all: of the products for the sides only
two columns, or two rows, are transformed back.
"""

from __future__ import annotations

from functools import cached_property
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import TOTAL, Floats, PlanarNoise
from ldpsql.errors import NotApplicable
from ldpsql.inference.deadline import check
from ldpsql.inference.operators.base import Operator, operator
from ldpsql.inference.operators.dense import DenseOperator

Complex = NDArray[np.complex128]
FEW = 2048  # cells of which all pairs are tabulated, so that there are errors and inversions
_NOTHING = 1e-17  # of the largest chance
_PART, _RARE = 30, 1e-3  # rows and columns of parts of the map; the noise, of the largest chance, that steps do without


class PlaneOperator(Operator):
    """Noise on the plane, moved to the nearest cell of a rectangle: `ldpsql.channels.PlanarNoise`, numbered row by row.

    Sums err by about 1e-16 of the largest chance of a report. Nothing is computed for each pair of cells, so there are no
    standard errors: noise blurs neighbouring cells so much that single shares of a large map are hardly determined anyway.
    """

    large = local = True
    untimed = 2000  # nearly all of quasi-Newton steps, which take a hundredth of a second

    def __init__(self, channel: PlanarNoise) -> None:
        from scipy.fft import next_fast_len  # noqa: PLC0415  # slow to import, needed for this structure only

        self.inputs = self.outputs = channel.inputs
        self._channel, self._shape = channel, channel.shape
        self._floor = channel.floor.ravel() / TOTAL
        tables = (channel.noise / TOTAL).swapaxes(-1, -2)  # noise at offsets of rows and of columns
        self._reach = tuple(_reached(tables[1, 1].max(axis=axis)) for axis in (1, 0))
        self._padded = tuple(next_fast_len(sum(sizes), real=True) for sizes in zip(self._shape, self._reach, strict=True))
        self._inner, self._sides, self._ends = (self._kernel(tables[at]) for at in ((0, 0), (1, 0), (0, 1)))
        self._corner, self._tables = tables[1, 1], tables

    def _kernel(self, quarter: Floats) -> Floats:
        """Return the transform of a symmetric kernel, given at the offsets of one quarter: it is real."""
        rows, columns = self._reach
        whole = np.zeros(self._padded)
        whole[:rows, :columns] = quarter[:rows, :columns]
        whole[-rows + 1 :, :columns] = quarter[rows - 1 : 0 : -1, :columns]
        whole[:, -columns + 1 :] = whole[:, columns - 1 : 0 : -1]
        return np.asarray(self._transformed(whole).real)

    def forward(self, theta: Floats) -> Floats:
        """Return P(report) for values drawn from theta, or the difference of P(report) for a difference of distributions."""
        cells = theta.reshape(-1, *self._shape)
        moved = self._transformed(cells)
        out = self._back(moved * self._inner)
        out[..., [0, -1]] = self._two_columns(moved * self._sides)
        out[..., [0, -1], :] = self._two_rows(moved * self._ends)
        for down, across in np.ndindex(2, 2):
            out[..., -down, -across] = np.einsum("...rc,rc->...", cells, self._at_corner(down, across))
        chances = out.reshape(theta.shape)
        if theta.min() >= 0:  # rounding may leave a chance below that of the floor
            np.maximum(chances, 0.0, out=chances)
        return chances + self._floor * theta.sum(axis=-1, keepdims=True)

    def adjoint(self, w: Floats) -> Floats:
        cells = w.reshape(-1, *self._shape)
        inner = cells.copy()
        inner[..., [0, -1]] = 0.0
        inner[..., [0, -1], :] = 0.0
        columns, rows = cells[..., [0, -1]].copy(), cells[..., [0, -1], :].copy()
        columns[..., [0, -1], :], rows[..., [0, -1]] = 0.0, 0.0
        moved = self._transformed(inner) * self._inner
        moved += self._of_columns(columns) * self._sides
        moved += self._of_rows(rows) * self._ends
        out = self._back(moved)
        for down, across in np.ndindex(2, 2):
            out += cells[..., -down, -across, None, None] * self._at_corner(down, across)
        return np.asarray(out.reshape(w.shape) + np.einsum("...z,z->...", w, self._floor)[..., None])

    def _at_corner(self, down: int, across: int) -> Floats:
        """Return the noise that takes each cell to a corner: the last row with ``down``, the last column with ``across``."""
        return self._corner[:: -1 if down else 1, :: -1 if across else 1]

    def _transformed(self, cells: Floats) -> Complex:
        from scipy.fft import rfft2  # noqa: PLC0415

        return np.asarray(rfft2(cells, self._padded))

    def _back(self, transform: Complex) -> Floats:
        from scipy.fft import irfft2  # noqa: PLC0415

        rows, columns = self._shape
        return np.ascontiguousarray(irfft2(transform, self._padded)[..., :rows, :columns])

    @cached_property
    def _waves(self) -> tuple[Complex, Complex]:
        """The waves at the first and the last row, and at the first and the last column: shape (frequencies, 2) each."""
        rows, columns = (
            np.exp(-2j * np.pi / length * np.outer(np.arange(length), [0, size - 1]))
            for length, size in zip(self._padded, self._shape, strict=True)
        )
        return rows, columns[: self._padded[1] // 2 + 1]

    def _two_columns(self, transform: Complex) -> Floats:
        """Return the first and the last column of what has this transform, shape (.., rows, 2)."""
        from scipy.fft import ifft  # noqa: PLC0415

        length = self._padded[1]
        twice = np.full(length // 2 + 1, 2.0)  # for the frequencies that are not stored
        twice[0] = 1.0
        if length % 2 == 0:
            twice[-1] = 1.0
        halves = np.einsum("...rc,ce->...re", transform, self._waves[1].conj() * (twice / length)[:, None])
        return np.asarray(ifft(halves, axis=-2).real[..., : self._shape[0], :])

    def _two_rows(self, transform: Complex) -> Floats:
        """Return the first and the last row of what has this transform, shape (.., 2, columns)."""
        from scipy.fft import irfft  # noqa: PLC0415

        halves = np.einsum("re,...rc->...ec", self._waves[0].conj(), transform) / self._padded[0]
        return np.asarray(irfft(halves, self._padded[1])[..., : self._shape[1]])

    def _of_columns(self, columns: Floats) -> Complex:
        """Return the transform of cells of which only the first and the last column hold something."""
        from scipy.fft import fft  # noqa: PLC0415

        return np.asarray(np.einsum("...re,ce->...rc", fft(columns, self._padded[0], axis=-2), self._waves[1]))

    def _of_rows(self, rows: Floats) -> Complex:
        """Return the transform of cells of which only the first and the last row hold something."""
        from scipy.fft import rfft  # noqa: PLC0415

        return np.asarray(np.einsum("re,...ec->...rc", self._waves[0], rfft(rows, self._padded[1])))

    def matrix(self) -> Floats:
        return self._channel.probabilities()

    def rows(self, among: NDArray[np.int64] | slice) -> Floats:
        return self._channel.rows(np.arange(self.inputs, dtype=np.int32)[among]) / TOTAL

    @property
    def condition(self) -> float:
        """The condition number counts as infinite."""
        return np.inf

    @property
    def influence(self) -> float:
        """The influence of a report on an inverted share counts as infinite."""
        return np.inf

    def invert(self, shares: Floats) -> Floats:  # noqa: ARG002
        """Refuse to invert."""
        self._refuse("the inversion")

    def curvature(self, w: Floats, among: NDArray[np.int64] | slice = slice(None)) -> Floats:  # noqa: ARG002
        """Refuse a table of all pairs of cells."""
        self._refuse("the curvature")

    def rough_curvature(self, w: Floats, among: NDArray[np.int64] | slice = slice(None)) -> Floats:
        """Return the curvature among some values without the rare noise that reaches far: a sum over parts of the map."""
        from scipy.linalg.blas import dsyrk  # noqa: PLC0415  # half of the work of a product

        rows, columns = np.divmod(np.arange(self.inputs)[among], self._shape[1])
        out, roots = np.zeros((len(rows),) * 2), np.sqrt(w).reshape(self._shape)
        for down, across in np.ndindex(*(-(-size // _PART) for size in self._shape)):
            check()
            part = np.s_[down * _PART : (down + 1) * _PART, across * _PART : (across + 1) * _PART]
            near = np.flatnonzero(self._near(rows, down, 0) & self._near(columns, across, 1))
            if not len(near):
                continue  # BLAS prints that it got no columns
            upper = dsyrk(1.0, self._noise_from(rows[near], columns[near], part) * roots[part].ravel()[:, None], trans=1)
            out[np.ix_(near, near)] += upper + np.triu(upper, 1).T
        return out

    def _near(self, places: NDArray[np.int64], part: int, axis: int) -> NDArray[np.bool_]:
        """Return which rows, or columns, noise of some size takes to a part of the map."""
        noise = self._tables[0, 0].max(axis=1 - axis)
        reach = int((noise > _RARE * noise[0]).sum())
        return (places > part * _PART - reach) & (places < (part + 1) * _PART + reach)

    def _noise_from(self, rows: NDArray[np.int64], columns: NDArray[np.int64], part: tuple[slice, slice]) -> Floats:
        """Return the noise that takes some cells to those of a part of the map, shape (cells of the part, cells)."""
        down, across = (axis[part].reshape(-1, 1) for axis in np.indices(self._shape))
        sides = ((at == 0) | (at == size - 1) for at, size in zip((across, down), self._shape[::-1], strict=True))
        beyond, below = (side.astype(np.int8) for side in sides)
        return np.asarray(self._tables[beyond, below, np.abs(down - rows), np.abs(across - columns)])

    def information(self, theta: Floats, shares: Floats) -> Floats:  # noqa: ARG002
        """Refuse a table of all pairs of cells."""
        self._refuse("the covariance")

    def _refuse(self, what: str) -> NoReturn:
        raise NotApplicable(
            f"{what} of a map of {self.inputs:,} cells is not computed", "use ibu(stop := 'held_out') or best, or larger cells"
        )


def _reached(noise: Floats) -> int:
    """Return how many offsets have noise that counts in double precision, at least two."""
    return max(2, int((noise > _NOTHING * noise[0]).sum()))


@operator.register
def _(channel: PlanarNoise) -> Operator:
    return DenseOperator(channel.probabilities()) if channel.inputs <= FEW else PlaneOperator(channel)
