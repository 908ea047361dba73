"""Reports under several channels at once: each pair of a channel and a report is one column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import Floats
from ldpsql.inference.operators.base import Ends, Operator, digest
from ldpsql.inference.operators.weights import Bounding, hazy_weights


class StackOperator(Operator):
    """The columns of several operators side by side, those of the m-th times ``weights[m]``.

    With the shares of the channels among the reports as weights, the columns are the probabilities of (channel, report). The
    weights change no estimate: they only state how often reports of each channel are expected.
    """

    def __init__(self, parts: Sequence[Operator], weights: Floats) -> None:
        self.parts, self.weights = tuple(parts), weights
        self.inputs, self.outputs = parts[0].inputs, sum(part.outputs for part in parts)
        self.complete = all(part.complete for part in parts)
        self.sampled = any(part.sampled for part in parts)
        self.even = all(part.even for part in parts)
        self.large = any(part.large for part in parts)
        self.isotropic = all(part.isotropic for part in parts)
        self._ends = np.cumsum([0, *(part.outputs for part in parts)])

    def _each(self) -> Iterator[tuple[Operator, float, slice]]:
        """Yield each part with its weight and the slice of its reports."""
        for m, part in enumerate(self.parts):
            yield part, float(self.weights[m]), slice(self._ends[m], self._ends[m + 1])

    @cached_property
    def key(self) -> bytes:
        """A digest of the parts and their weights."""
        return digest(type(self).__name__.encode(), self.weights, *(part.key for part in self.parts))

    @cached_property
    def bounding_weights(self) -> Bounding | None:
        """The weights that bound functionals, if no part distinguishes neighbouring values well."""
        hazy = self.complete and all(part.bounding_weights is not None for part in self.parts)
        return hazy_weights(self) if hazy else None

    def forward(self, theta: Floats) -> Floats:
        """Return P(channel, report) under theta."""
        return np.concatenate([weight * part.forward(theta) for part, weight, _ in self._each()], axis=-1)

    def reachable(self) -> NDArray[np.bool_]:
        """Return which pairs of a channel and a report have a chance above zero for some value."""
        return np.concatenate([part.reachable() & (weight > 0) for part, weight, _ in self._each()])

    def adjoint(self, w: Floats) -> Floats:
        """Return sum_z a_xz w_z."""
        return np.asarray(sum(weight * part.adjoint(w[..., at]) for part, weight, at in self._each()))

    def matrix(self) -> Floats:
        """Return P(channel, report | value)."""
        return np.concatenate([weight * part.matrix() for part, weight, _ in self._each()], axis=1)

    def rows(self, among: NDArray[np.int64] | slice) -> Floats:
        """Return P(channel, report | value) of some values."""
        return np.concatenate([weight * part.rows(among) for part, weight, _ in self._each()], axis=1)

    def of_reports(self, positions: NDArray[np.int64]) -> Floats:
        """Return P(channel, report | value) of some pairs."""
        table = np.empty((self.inputs, len(positions)))
        for part, weight, at in self._each():
            own = (positions >= at.start) & (positions < at.stop)
            table[:, own] = weight * part.of_reports(positions[own] - at.start)
        return table

    def curvature(self, w: Floats, among: NDArray[np.int64] | slice = slice(None)) -> Floats:
        """Return sum_z w_z a_z a_z' over the values ``among``: the sum of the parts'."""
        return np.asarray(sum(weight**2 * part.curvature(w[at], among) for part, weight, at in self._each()))

    def rough_curvature(self, w: Floats, among: NDArray[np.int64] | slice = slice(None)) -> Floats:
        """Return the sum of the parts' rough curvatures."""
        return np.asarray(sum(weight**2 * part.rough_curvature(w[at], among) for part, weight, at in self._each()))

    @cached_property
    def condition(self) -> float:
        """The mean of the parts' condition numbers, as `invert` takes the mean of their inverses."""
        return float(self.weights @ np.array([part.condition for part in self.parts]) / self.weights.sum())

    @cached_property
    def influence(self) -> float:
        """The largest of the parts': a report of channel m moves its inverse by influence/n_m, which has the weight n_m/n."""
        return max(part.influence for part in self.parts)

    def law_fit(self, shares: Floats, n: float) -> tuple[float, float]:
        """Test each channel's own reports; return the smallest p-value, times the number of channels."""
        tests = [(0.0, 0.0)]
        for part, _, at in self._each():
            own = float(shares[at].sum())
            if own > 0 and not part.complete:
                tests.append(part.law_fit(shares[at] / own, own * n))
        statistic, log_p = min(tests, key=lambda pair: pair[1])
        return statistic, min(0.0, log_p + float(np.log(len(self.parts))))

    def invert(self, shares: Floats) -> Floats:
        """Return the mean of the parts' inverses, each weighted by its number of reports: every report counts the same.

        Source: Murakami, Hino, Sakuma, "Toward distribution estimation under local differential privacy with small samples",
        PoPETs 2018, eq. 13, which is the case of equally many reports of every channel.
        """
        v = np.zeros((len(shares), self.inputs))
        for part, _, at in self._each():
            own = shares[:, at].sum(axis=-1, keepdims=True)
            here = own[:, 0] > 0
            v[here] += own[here] * part.invert(shares[here, at] / own[here])
        return v

    inverse = None

    def interval(self, shares: Floats, n: Floats, theta: Floats, z: float) -> Ends:
        """Return intervals around the debiased estimate; with too many values for a curvature, around the mean of inverses.

        That mean weights the inverse of each part by how exact it is, as the maximum of the likelihood does.
        """
        if self.large or not self.isotropic:
            return super().interval(shares, n, theta, z)
        total, exact = np.zeros((2, len(shares), self.inputs))
        for part, _, at in self._each():
            own = shares[:, at].sum(axis=-1, keepdims=True)
            weight = own / part.scatter(theta)
            exact += weight
            total += weight * part.invert(shares[:, at] / np.maximum(own, 1e-300))
        centre, error = total / exact, 1.0 / np.sqrt(exact * n[:, None])
        return error, centre - z * error, centre + z * error

    def scatter(self, theta: Floats) -> Floats:
        """Return n times the variance of every share that `invert` gives: the mean of the parts'."""
        weights = self.weights / self.weights.sum()
        return np.asarray(sum(weight * part.scatter(theta) for part, weight in zip(self.parts, weights, strict=True)))

    def inverted_interval(self, shares: Floats, n: Floats, theta: Floats, z: float) -> Ends:
        """Return standard error of every share that `invert` gives, and ``z`` errors to either side."""
        centre, error = self.invert(shares), np.sqrt(self.scatter(theta) / n[:, None])
        return error, centre - z * error, centre + z * error
