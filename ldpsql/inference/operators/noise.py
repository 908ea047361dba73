"""The likelihood of noise on a row of values, in time linear in its length, and on large grids of cells, by Fourier transforms.

For two-sided geometric noise on a row, the matrix r^|x - z| has the inverse M/(1 - r^2), M tridiagonal with -r next to the
diagonal 1, 1+r^2, .., 1+r^2, 1; and M = L D L' with L = 1 on the diagonal and -r below, D = 1, .., 1, 1 - r^2. So a product
with r^|x - z| is two recursions that only add positive terms.

On a grid the chance of a report is a convolution, with one kernel for the inner cells, where a cell collects its own noise,
and others for the sides and the corners, which also collect what lies beyond. One transform serves all: of the products for
the sides only two columns, or two rows, are transformed back.
"""

from __future__ import annotations

from functools import cached_property
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import TOTAL, Convolution, Floats, PlanarNoise
from ldpsql.errors import InternalError, NotApplicable
from ldpsql.inference.limits import check
from ldpsql.inference.operators.base import Ends, Operator, operator
from ldpsql.inference.operators.dense import DenseOperator
from ldpsql.inference.operators.weights import Bounding, hazy_weights
from ldpsql.inference.score_intervals import score_ends

_EXACT = 1e-12  # how far rounded weights may be from the formula, in total variation: an error of g, far below any tolerance
_POWER_STEPS = 30
_HAZY = 100.0  # condition number


class GeometricOperator(Operator):
    """P(value + z) = (1-r)/(1+r) r^|z|; a number beyond the reports, which end ``margin`` beyond the values, becomes their end.

    ``fall`` is 1 - r.
    """

    def __init__(self, inputs: int, fall: float, margin: int = 0) -> None:
        self.inputs, self.outputs = inputs, inputs + 2 * margin
        self._fall, self.decay, self._margin = fall, 1.0 - fall, margin
        self._ends = np.ones(self.outputs)  # an end also collects what lies beyond: 1 + r + r^2 + .. times as much
        self._ends[[0, -1]] = 1.0 / fall

    def forward(self, theta: Floats) -> Floats:
        padded = np.zeros((*theta.shape[:-1], self.outputs))
        padded[..., self._margin : self._margin + self.inputs] = theta
        return self._fall**2 * self._ends * self.solve(padded)

    def adjoint(self, w: Floats) -> Floats:
        return self._fall**2 * self.solve(w * self._ends)[..., self._margin : self._margin + self.inputs]

    def solve(self, at: Floats) -> Floats:
        """Return M^-1 at: sum_z r^|x-z| at_z / (1 - r^2)."""
        from scipy.linalg.lapack import dpttrs  # noqa: PLC0415  # slow to import, needed for this structure only

        pivots, below = np.ones(self.outputs), np.full(self.outputs - 1, -self.decay)
        pivots[-1] = self._fall * (2.0 - self._fall)
        solved, failed = dpttrs(pivots, below, at.reshape(-1, self.outputs).T)
        if failed:
            raise InternalError("a tridiagonal system was refused")
        out: Floats = solved.T.reshape(at.shape)
        return out

    def matrix(self) -> Floats:
        return self.rows(slice(None))

    def rows(self, among: NDArray[np.int64] | slice) -> Floats:
        values = np.arange(self.inputs)[among] + self._margin
        apart = np.abs(values[:, None] - np.arange(self.outputs))
        out: Floats = self._fall / (1.0 + self.decay) * self.decay**apart * self._ends
        return out


class SquareGeometricOperator(GeometricOperator):
    """A geometric channel from a range to itself: it has a tridiagonal inverse, and all methods take linear time.

    The maximum is unique. A value between two observed reports that nobody reported has a row that is a mixture of theirs with
    weights below one in sum, so its g is below 1; and the rows of the others are independent.
    """

    injective = True

    def __init__(self, inputs: int, fall: float) -> None:
        super().__init__(inputs, fall)
        self.diagonal = np.full(inputs, 1.0 + self.decay**2)  # of M
        self.diagonal[[0, -1]] = 1.0

    def times(self, at: Floats) -> Floats:
        """Return M at."""
        out = self.diagonal * at
        out[..., 1:] -= self.decay * at[..., :-1]
        out[..., :-1] -= self.decay * at[..., 1:]
        return out

    @cached_property
    def condition(self) -> float:
        """The largest stretch of the channel times that of its inverse, by power iteration from nearly the right vectors."""
        smooth, rough = np.ones(self.inputs), np.resize([1.0, -1.0], self.inputs)
        for _ in range(_POWER_STEPS):
            smooth, rough = self.adjoint(self.forward(_unit(smooth))), self._inverse(self._inverse_adjoint(_unit(rough)))
        return float(np.sqrt(np.linalg.norm(smooth) * np.linalg.norm(rough)))

    @cached_property
    def bounding_weights(self) -> Bounding | None:
        """The weights that bound functionals, if the noise is much wider than a value."""
        return hazy_weights(self) if self.condition > _HAZY else None

    @cached_property
    def influence(self) -> float:
        """A report moves its own share up and those of its neighbours down."""
        scale = 1.0 / (self._ends * self._fall**2)
        lowest = np.maximum(np.append(scale[1:], 0.0), np.append(0.0, scale[:-1]))
        return float((self.diagonal * scale + self.decay * lowest).max())

    def _inverse(self, shares: Floats) -> Floats:
        return self.times(shares / self._ends) / self._fall**2

    def _inverse_adjoint(self, values: Floats) -> Floats:
        return self.times(values) / self._ends / self._fall**2

    def invert(self, shares: Floats) -> Floats:
        """Return v with v A = shares, by the tridiagonal inverse."""
        self.check_condition()
        return self._inverse(shares)

    def interval(self, shares: Floats, n: Floats, theta: Floats, z: float) -> Ends:
        """Return the multinomial error of the inverted shares, which are the debiased centre, and the ends of `score_ends`."""
        expected, n = self.forward(theta), n[:, None]
        # The inverse B of the channel gives Var(v_x) = (sum_z B_zx^2 P(z) - theta_x^2)/n.
        at = expected / self._ends**2  # times the squares of the entries of M
        out = self.diagonal**2 * at
        out[..., 1:] += self.decay**2 * at[..., :-1]
        out[..., :-1] += self.decay**2 * at[..., 1:]
        second = out / self._fall**4
        alone = self.decay**3 * np.convolve(1.0 / self._ends, [1.0, 0.0, 1.0], mode="same") + self.diagonal**2 / self._ends
        own = alone / (self._fall**3 * (1.0 + self.decay))  # sum_z P(z|x) B_zx^2
        error = np.sqrt(np.maximum(second - theta**2, 0.0) / n)
        return error, *score_ends(self._inverse(shares), theta, second, own, z**2 / n)

    def inverted_interval(self, shares: Floats, n: Floats, theta: Floats, z: float) -> Ends:
        """Return the ends of `interval`: the debiased estimate is the inversion."""
        return self.interval(shares, n, theta, z)

    @cached_property
    def inverse(self) -> Floats:
        """The inverse as a table."""
        return self._inverse(np.eye(self.inputs))

    def pulled(self, c: Floats) -> None:  # not needed
        """Return None: `functionals` are those of the inversion."""

    def functionals(self, shares: Floats, n: Floats, theta: Floats, c: Floats) -> tuple[Floats, Floats]:
        """Return c'v of the inverted shares v, and its multinomial variance."""
        expected = self.forward(theta)
        weights = np.swapaxes(self._inverse_adjoint(np.swapaxes(c, -1, -2)), -1, -2)  # B c, of the reports
        each = np.broadcast_to(weights, (len(theta), *weights.shape[-2:]))
        centre, mean, square = (
            np.einsum("gz,gzm->gm", w, e) for w, e in ((shares, each), (expected, each), (expected, each**2))
        )
        return centre, np.maximum(square - mean**2, 0.0) / n[:, None]

    def maximum(self, shares: Floats) -> Floats | None:
        together = max(1, TOGETHER // self.inputs)
        return np.concatenate([_maxima(self, shares[at : at + together]) for at in range(0, len(shares), together)])


def _unit(vector: Floats) -> Floats:
    return vector / np.sqrt(vector @ vector)


@operator.register
def _(channel: Convolution) -> Operator:
    """Recognise geometric noise by its integer weights."""
    reach, margin = len(channel.noise) // 2, (channel.outputs - channel.inputs) // 2
    start, after = (int(w) for w in channel.noise[reach : reach + 2])
    fall = (start - after) / start
    if not 0.0 < fall < 1.0 or np.abs(channel.noise / float(TOTAL) - _geometric(fall, reach)).sum() > _EXACT:
        return DenseOperator(channel.probabilities())
    return GeometricOperator(channel.inputs, fall, margin) if margin else SquareGeometricOperator(channel.inputs, fall)


def _geometric(fall: float, reach: int) -> Floats:
    """Return the probabilities of noise -reach .. reach; the ends include everything beyond them."""
    shape: Floats = fall / (2.0 - fall) * (1.0 - fall) ** np.abs(np.arange(-reach, reach + 1))
    shape[[0, -1]] /= fall
    return shape


# Maximum likelihood for a channel with a tridiagonal inverse, by an interior point method linear in the number of values: with
# M = tridiagonal(-decay, ``diagonal``, -decay), P(report) = M^-1 theta, up to a factor for each report.


MAX_STEPS = 60
TARGET = 1e-10  # of the gap
MOST = 5e-10  # largest gap with exact zeros
TOGETHER = 1 << 18  # values of all groups that are solved together: 80 bytes each, twice
_TO_THE_BORDER = 0.995
_FILL = 3  # bands on each side of the system, and as many again for those that pivoting adds


def _maxima(problem: SquareGeometricOperator, shares: Floats) -> Floats:
    """Return the maximum for each group of shares of reports, shape (groups, inputs).

    In v = M^-1 theta it minimises -sum q log v + m . v with m = M 1, where theta = M v >= 0; the slack s of that is 1 - g.
    Mehrotra's predictor-corrector method (Nocedal, Wright, "Numerical Optimization", 2nd ed., algorithm 14.3) keeps theta and s
    positive: first the step that would make all theta s zero, then one with centring and second-order terms. Each solves

        (q/v^2) dv - M ds = q/v - m + M s        M dv + (theta/s) ds = goal/s - theta

    with the unknowns interleaved, a band of width seven; eliminating ds would lose half of the digits. Groups are solved
    together, one after the other along the band, until each has ended.
    """
    theta, slack = np.full(shares.shape, 1.0 / problem.inputs), np.ones(shares.shape)
    m, gap, left = problem.times(np.ones(problem.inputs)), np.full(len(shares), np.inf), np.arange(len(shares))
    for _ in range(MAX_STEPS):
        before, gap[left] = gap[left], _gap(problem, shares[left], theta[left])
        # While the gap still falls fast, so do shares that should be 0.
        left = left[~((gap[left] <= TARGET) & (gap[left] > before / 10))]
        if not len(left):
            break
        q, t, s = shares[left], theta[left], slack[left]
        v = problem.solve(t)
        system = _Newton(problem, q / v**2, t, s, q / v - m + problem.times(s))
        step, change = system.solve(np.zeros_like(t))
        ahead, middle = _longest(t, step, s, change), (t * s).mean(axis=-1, keepdims=True)
        reached = ((t + ahead * step) * (s + ahead * change)).mean(axis=-1, keepdims=True)
        step, change = system.solve((reached / middle) ** 3 * middle - step * change)
        length = _longest(t, step, s, change)
        theta[left], slack[left] = t + length * step, s + length * change
    cut = np.where(theta > slack, theta, 0.0)
    chosen = np.where((_gap(problem, shares, cut) <= MOST)[:, None], cut, theta)
    return np.asarray(chosen / chosen.sum(axis=-1, keepdims=True))


def _gap(problem: SquareGeometricOperator, shares: Floats, theta: Floats) -> Floats:
    """Return max g - 1 of each group, with g = M^-1 (q/v)."""
    ratios = np.divide(shares, problem.solve(theta), out=np.zeros_like(shares), where=shares > 0)
    return np.asarray(problem.solve(ratios).max(axis=-1) * theta.sum(axis=-1) - 1.0)


def _longest(theta: Floats, step: Floats, slack: Floats, change: Floats) -> Floats:
    """Return the longest part of the moves, up to 1, that keeps both positive, shape (groups, 1)."""
    fastest = np.maximum((-step / theta).max(axis=-1), (-change / slack).max(axis=-1))
    return np.asarray(_TO_THE_BORDER / np.maximum(fastest, _TO_THE_BORDER))[:, None]


class _Newton:
    """The banded system of one step of all groups, factorised once for its two right-hand sides."""

    def __init__(self, problem: SquareGeometricOperator, weights: Floats, theta: Floats, slack: Floats, dual: Floats) -> None:
        from scipy.linalg.lapack import dgbtrf  # noqa: PLC0415  # slow to import, needed for this structure only

        self._problem, self._theta, self._slack, self._dual = problem, theta, slack, dual
        # LAPACK's layout: entry (row, column) is bands[2 * _FILL + row - column, column]; of each group, rows and columns 2i
        # are those of dv_i, 2i + 1 those of ds_i.
        bands = np.zeros((3 * _FILL + 1, len(theta), 2 * problem.inputs))
        middle = bands[2 * _FILL - 3 :]  # by row - column + 3
        middle[3, :, 0::2], middle[3, :, 1::2] = weights, theta / slack
        middle[2, :, 1::2], middle[4, :, 0::2] = -problem.diagonal, problem.diagonal
        middle[0, :, 3::2], middle[4, :, 1:-2:2] = problem.decay, problem.decay
        middle[2, :, 2::2], middle[6, :, 0:-2:2] = -problem.decay, -problem.decay
        self._factors, self._pivots, _ = dgbtrf(bands.reshape(len(bands), -1), _FILL, _FILL)

    def solve(self, goal: Floats) -> tuple[Floats, Floats]:
        """Return the moves of theta and s that bring theta s to a goal, to first order."""
        from scipy.linalg.lapack import dgbtrs  # noqa: PLC0415

        right = np.stack([self._dual, goal / self._slack - self._theta], axis=-1)
        solved, _ = dgbtrs(self._factors, _FILL, _FILL, right.ravel(), self._pivots)
        moves = solved.reshape(right.shape)
        return self._problem.times(moves[..., 0]), moves[..., 1]


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
