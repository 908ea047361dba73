"""The likelihood of noise on a large grid of cells, by fast Fourier transforms: no table of all pairs of cells."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels.plane import noise_tables, pairs
from ldpsql.inference.operators.base import Floats, Operator


class PlaneOperator(Operator):
    """Noise ~ e^(-decay * distance in cells), moved to the nearest cell of a rectangle: `ldpsql.channels.plane.clamped_plane`.

    Cells are numbered row by row. A report's chance is a convolution, but with one kernel inside, where a cell collects its own
    noise, and others on the sides and in the corners, which also collect what lies beyond. Sums err by 1e-16 of the largest
    chance of a report.
    """

    def __init__(self, columns: int, rows: int, decay: float, points: int = 1) -> None:
        self.inputs = self.outputs = columns * rows
        self._shape, self._padded = (rows, columns), (2 * rows, 2 * columns)
        tables = noise_tables(columns, rows, decay, points)
        self._tables = tables / pairs(tables, np.zeros(1, dtype=np.int64)).sum()
        side, end = (np.isin(np.arange(size), [0, size - 1]) for size in (columns, rows))
        self._kernels: list[tuple[NDArray[np.bool_], NDArray[np.complex128]]] = []  # which reports, and the transform
        for beyond_column in (0, 1):
            for beyond_row in (0, 1):
                chosen = (end == beyond_row)[:, None] & (side == beyond_column)
                kernel = self._tables[beyond_column, beyond_row].T
                self._kernels.append((chosen, np.fft.rfft2(_wrapped(_wrapped(kernel, 0), 1))))

    def forward(self, theta: Floats) -> Floats:
        """Return P(report) under theta."""
        moved = np.fft.rfft2(theta.reshape(*theta.shape[:-1], *self._shape), self._padded)
        out = sum(chosen * self._back(moved * kernel) for chosen, kernel in self._kernels)
        return np.asarray(out).reshape(theta.shape)

    def adjoint(self, w: Floats) -> Floats:
        """Return sum_z a_xz w_z."""
        at = w.reshape(*w.shape[:-1], *self._shape)
        moved = sum(np.fft.rfft2(chosen * at, self._padded) * kernel for chosen, kernel in self._kernels)
        return self._back(np.asarray(moved)).reshape(w.shape)

    def _back(self, transform: NDArray[np.complex128]) -> Floats:
        rows, columns = self._shape
        return np.fft.irfft2(transform, self._padded)[..., :rows, :columns]

    def rows(self, among: NDArray[np.int64] | slice) -> Floats:
        """Return P(report | value) of some values."""
        return pairs(self._tables, np.arange(self.inputs)[among])

    def matrix(self) -> Floats:
        """Return P(report | value)."""
        return self.rows(slice(None))


def _wrapped(kernel: Floats, axis: int) -> Floats:
    """Lay out a symmetric kernel, given at offsets 0, 1, .., for a cyclic convolution of twice the length."""
    before = np.flip(np.delete(kernel, 0, axis), axis)
    gap = np.zeros_like(np.take(kernel, [0], axis))
    return np.concatenate([kernel, gap, before], axis)
