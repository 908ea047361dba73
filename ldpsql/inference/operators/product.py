"""Reports under several channels: each under one of them, or lists of reports, whose likelihood is the product of theirs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import Floats
from ldpsql.channels.costs import Cost
from ldpsql.errors import IllConditioned, NotApplicable
from ldpsql.inference.limits import check
from ldpsql.inference.operators.base import Ends, InvertedOperator, Operator, digest
from ldpsql.inference.operators.dense import DenseOperator
from ldpsql.inference.operators.supports import MOST_PAIRS
from ldpsql.inference.operators.weights import (
    Bounding,
    Majorants,
    ReportWeights,
    hazy_weights,
    tangent_inverse,
    tangent_solve,
    weighable,
)

# Reports under several channels at once: each pair of a channel and a report is one column.


class StackOperator(Operator):
    """The columns of several operators side by side, those of the m-th times ``weights[m]``.

    With the shares of the channels among the reports as weights, the columns are the probabilities of (channel, report). The
    weights change no estimate: they only state how often reports of each channel are expected.
    """

    even_channels = False  # whether `invert` weighs each channel the same, and not each report

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
        kind = f"{type(self).__name__} {self.even_channels}".encode()
        return digest(kind, self.weights, *(part.key for part in self.parts))

    def evenly(self) -> Operator:
        """Return the stack that inverts so that each channel weighs the same, however many reports it has."""
        even = type(self)(self.parts, self.weights)
        even.even_channels = True
        return even

    @cached_property
    def bounding_weights(self) -> Bounding | None:
        """The weights that bound functionals, if no part distinguishes neighbouring values well."""
        hazy = self.complete and all(part.bounding_weights is not None for part in self.parts)
        return hazy_weights(self) if hazy else None

    def forward(self, theta: Floats) -> Floats:
        return np.concatenate([weight * part.forward(theta) for part, weight, _ in self._each()], axis=-1)

    def reachable(self) -> NDArray[np.bool_]:
        return np.concatenate([part.reachable() & (weight > 0) for part, weight, _ in self._each()])

    def adjoint(self, w: Floats) -> Floats:
        return np.asarray(sum(weight * part.adjoint(w[..., at]) for part, weight, at in self._each()))

    def matrix(self) -> Floats:
        return np.concatenate([weight * part.matrix() for part, weight, _ in self._each()], axis=1)

    def rows(self, among: NDArray[np.int64] | slice) -> Floats:
        return np.concatenate([weight * part.rows(among) for part, weight, _ in self._each()], axis=1)

    def of_reports(self, positions: NDArray[np.int64]) -> Floats:
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

    @property
    def lifts(self) -> Floats:
        """By how much more than a report of the stack, a report of each channel weighs in `invert`."""
        shares = self.weights / self.weights.sum()
        return 1.0 / (len(shares) * shares) if self.even_channels else np.ones(len(shares))

    @cached_property
    def condition(self) -> float:
        """The mean of the parts' condition numbers, as `invert` takes the mean of their inverses."""
        return float(self.lifts * self.weights @ np.array([part.condition for part in self.parts]) / self.weights.sum())

    @cached_property
    def influence(self) -> float:
        """The largest of the parts': a report of channel m moves its inverse by influence/n_m, which has the weight n_m/n."""
        return float(max(lift * part.influence for lift, part in zip(self.lifts, self.parts, strict=True)))

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

        With `even_channels` the inverses that have reports weigh the same.
        Source: Murakami, Hino, Sakuma, "Toward distribution estimation under local differential privacy with small samples",
        PoPETs 2018, eq. 13.
        """
        own = np.stack([shares[:, at].sum(axis=-1) for _, _, at in self._each()])
        weights = (own > 0) / (own > 0).sum(axis=0) if self.even_channels else own
        v = np.zeros((len(shares), self.inputs))
        for (part, _, at), total, weight in zip(self._each(), own, weights, strict=True):
            here = total > 0
            v[here] += weight[here, None] * part.invert(shares[here, at] / total[here, None])
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
        weights = self.lifts**2 * self.weights / self.weights.sum()
        return np.asarray(sum(weight * part.scatter(theta) for part, weight in zip(self.parts, weights, strict=True)))

    def pulled(self, c: Floats) -> Floats | None:
        """Return what the reports of each channel add to c'v; None if `invert` of a part is not linear, or takes long."""
        pulls = []
        for part, lift in zip(self.parts, self.lifts, strict=True):
            if part.large or part.consistent:
                return None
            own = part.pulled(c)
            if own is None and part.inputs * part.outputs > _BLOCK:
                return None
            pulls.append(lift * (part.invert(np.eye(part.outputs)) @ c if own is None else own))
        return np.concatenate(pulls, axis=-2)


_BLOCK = 1 << 22  # cells of logarithms at a time
DIFFERENT = 0.1  # distinct lists per person; above it, counts of lists say little about their probabilities
_LEAST = 1e-3  # of a score that a list keeps at least when theta is fitted to it


class ProductOperator(InvertedOperator, DenseOperator):
    """One column for each list of reports of one value, divided by its largest entry.

    The factor changes no estimate, and keeps the product of a long list from underflowing: logarithms are added, the largest
    sum is subtracted, and only then are they exponentiated. A list that no value can give is a column of zeros.
    """

    complete = False

    def __init__(
        self, single: Operator, positions: NDArray[np.int64], lengths: NDArray[np.int64], *, differ: bool = False
    ) -> None:
        """Multiply the columns ``positions`` of ``single``, a list of ``lengths[u]`` >= 1 of them for each u.

        Args:
            single: the operator of one report.
            positions: the reports of all lists, one after another.
            lengths: the number of reports of each list.
            differ: whether few people have the same list, so that their number says little about its probability.

        """
        self._seen, self._place = np.unique(positions, return_inverse=True)
        Cost(bytes=8.0 * max(len(lengths), len(self._seen)) * single.inputs).check(
            "the table of these lists of reports and all values", "use fewer values, or ldp.ibu on one report of each user"
        )
        self._single, self._positions, self._lengths, self._differ = single, positions, lengths, differ
        self.isotropic, self._many = single.isotropic, single.inputs > MOST_PAIRS
        with np.errstate(divide="ignore"):
            logs = np.log(single.of_reports(self._seen)).T
        ends = np.concatenate([[0], np.cumsum(lengths)])
        table = np.empty((len(lengths), single.inputs))
        for first, last in _blocks(ends, single.inputs):
            check()
            here = self._place[ends[first] : ends[last]]
            table[first:last] = np.add.reduceat(logs[here], ends[first:last] - ends[first], axis=0)
        table -= np.maximum(table.max(axis=1, keepdims=True), -np.finfo(np.float64).max)
        super().__init__(np.exp(table).T)

    @cached_property
    def key(self) -> bytes:
        return digest(b"product", self._single.key, self._positions, self._lengths)

    @cached_property
    def bounding_weights(self) -> Bounding | None:
        """The weights of lists, if few are the same or a mechanism of a report hardly distinguishes neighbouring values."""
        parts = [part for part, _ in self._parts]
        if not (self._differ or any(part.bounding_weights for part in parts)) or not all(map(weighable, parts)):
            return None
        return _ListWeights([part.bounding_weights or ReportWeights(part) for part in parts], self._positions, self._lengths)

    @cached_property
    def condition(self) -> float:
        """The condition number of one report, as `invert` takes the mean of a user's reports."""
        return self._single.condition

    @cached_property
    def influence(self) -> float:
        """The influence of one report: a user can replace a whole list, and the mean moves as far as all of it does."""
        return self._single.influence

    def invert(self, shares: Floats) -> Floats:
        """Return the inverse of the shares of single reports, which share the weight of their user."""
        return self._single.invert(self._pooled(shares / self._lengths))

    def _pooled(self, weights: Floats) -> Floats:
        """Return the sums of the weights of equal reports, given the weight of a report of each list."""
        each = np.repeat(weights, self._lengths, axis=-1)
        return np.array([np.bincount(self._positions, weights=row, minlength=self._single.outputs) for row in each])

    inverse = None

    def evenly(self) -> Operator:
        """Return itself if all reports are of one channel.

        Raises:
            NotApplicable: if not, as a list may hold reports of several channels.

        """
        if self._single.evenly() is not self._single:
            raise NotApplicable("each user has a list of reports, of several mechanisms", "leave out weigh := 'mechanisms'")
        return self

    def information(self, theta: Floats, shares: Floats) -> Floats:
        """Return the expected information of a list, shape (inputs, inputs), unless the operator of one report has none."""
        return self._single.information(theta, shares) if self.isotropic else super().information(theta, shares)

    def interval(self, shares: Floats, n: Floats, theta: Floats, z: float) -> Ends:
        """Return the intervals around the debiased estimate.

        If few people have the same list, return those of the jackknife or of the inversion, whichever have the smaller errors:
        the errors of the inversion do not grow if there are more values than people. With more than `MOST_PAIRS` values, all
        are those of the inversion, and infinite without one.
        """
        if self._many:
            with suppress(IllConditioned):
                return self.inverted_interval(shares, n, theta, z)
            return np.full_like(theta, np.inf), np.full_like(theta, -1.0), np.full_like(theta, 2.0)
        if self.isotropic or not self._few(n):
            return super().interval(shares, n, theta, z)
        centre, variance = self._jackknife(shares, n, theta, np.eye(self.inputs))
        error = np.sqrt(variance)
        ends = error, centre - z * error, centre + z * error
        with suppress(IllConditioned):
            inverted = self.inverted_interval(shares, n, theta, z)
            smaller = np.square(inverted[0]).sum(axis=1) < variance.sum(axis=1)
            error, low, high = (np.where(smaller[:, None], *pair) for pair in zip(inverted, ends, strict=True))
            return error, low, high
        return ends

    def functionals(self, shares: Floats, n: Floats, theta: Floats, c: Floats) -> tuple[Floats, Floats]:
        """Return functionals of the debiased estimate, of which the variance is that of the errors of `interval`."""
        if self._many:
            with suppress(IllConditioned):
                return self.inverted_functionals(shares, n, theta, c)
            centre = np.einsum("gx,gxm->gm", theta, np.broadcast_to(c, (len(theta), *c.shape[-2:])))
            return centre, np.full_like(centre, np.inf)
        if self.isotropic or not self._few(n):
            return super().functionals(shares, n, theta, c)
        return self._jackknife(shares, n, theta, c)

    def _few(self, n: Floats) -> bool:
        """Return whether so few people have the same list that the number of a list says little about its probability."""
        return bool((self.outputs > DIFFERENT * n).any())

    def _jackknife(self, shares: Floats, n: Floats, theta: Floats, c: Floats) -> tuple[Floats, Floats]:
        """Return the debiased c'theta and its variance, from how far each list moves it.

        A list moves theta by V s/n, where s is its score. Theta has been fitted to the list, so that without it the score would
        be 1/(1 - h) times as large, where h = s'Vs/n; see MacKinnon, White, "Some heteroskedasticity-consistent covariance
        matrix estimators with improved finite sample properties", Journal of Econometrics 1985.
        """
        each, step = np.broadcast_to(c, (len(theta), *c.shape[-2:])), max(1, _BLOCK // self.inputs)
        centre, variance = np.einsum("gx,gxm->gm", theta, each), np.zeros((len(theta), c.shape[-1]))
        for i, chances in enumerate(self.forward(theta)):
            information = self.information(theta[i], shares[i])
            (inverse, _), (moved, unknown) = tangent_inverse(information), tangent_solve(information, each[i])
            for start in range(0, self.outputs, step):
                check()
                here = slice(start, start + step)
                scores = self.matrix()[:, here] / np.maximum(chances[here], 1e-300) - 1.0
                leverage = np.einsum("xu,xu->u", scores, inverse @ scores) / n[i]
                pulls = moved.T @ scores
                centre[i] += pulls @ shares[i, here]
                variance[i] += pulls**2 @ (shares[i, here] / np.maximum(1.0 - leverage, _LEAST) ** 2)
            variance[i] = np.where(unknown, np.inf, variance[i] / n[i])
        return centre, variance

    def inverted_functionals(
        self,
        shares: Floats,
        n: Floats,
        theta: Floats,  # noqa: ARG002  # as observed
        c: Floats,
    ) -> tuple[Floats, Floats]:
        """Return c'v for the inversion v, and its variance, from how the contributions of the lists are scattered.

        One or two lists say nothing about that.
        """
        inverted, starts = self._inverted(), np.cumsum(self._lengths) - self._lengths
        centre, second = np.empty((2, len(shares), c.shape[-1]))
        for i, each in enumerate(np.broadcast_to(c, (len(shares), *c.shape[-2:]))):
            check()
            lists = np.add.reduceat((inverted @ each)[self._place], starts, axis=0) / self._lengths[:, None]
            centre[i], second[i] = shares[i] @ lists, shares[i] @ lists**2
        scattered = np.maximum(second - centre**2, 0.0) / np.maximum(n - 1.0, 1.0)[:, None]
        return centre, np.where(n[:, None] > 2, scattered, np.inf)

    def inverted_interval(self, shares: Floats, n: Floats, theta: Floats, z: float) -> Ends:
        """Return standard error of every share that `invert` gives, and ``z`` errors to either side.

        The mean of the r reports of a user has 1/r of the variance of one report and, as they are of the same value, 1 - 1/r of
        the variance of a share among the users.
        """
        variance = (1.0 - shares @ (1.0 / self._lengths))[:, None] * theta * (1.0 - theta)
        weights = self._pooled(shares / self._lengths**2)
        for part, at in self._parts:
            total = weights[:, at].sum(axis=-1, keepdims=True)
            own = np.where(total > 0, weights[:, at] / np.maximum(total, 1e-300), 1.0 / part.outputs)
            variance += total * n[:, None] * part.inverted_interval(own, n, theta, z)[0] ** 2
        v, error = self.invert(shares), np.sqrt(variance / n[:, None])
        return error, v - z * error, v + z * error

    @property
    def _parts(self) -> Iterator[tuple[Operator, slice]]:
        """The operators of the mechanisms of single reports, each with its columns."""
        single = self._single
        parts, start = single.parts if isinstance(single, StackOperator) and not single.consistent else (single,), 0
        for part in parts:
            yield part, slice(start, start + part.outputs)
            start += part.outputs

    def _inverted(self) -> Floats:
        """Return the inverse of each report that is seen, shape (seen, inputs)."""
        out, step = np.empty((len(self._seen), self.inputs)), max(1, _BLOCK // self._single.outputs)
        for start in range(0, len(self._seen), step):
            check()
            here = self._seen[start : start + step]
            out[start : start + step] = self._single.invert(
                (here[:, None] == np.arange(self._single.outputs)).astype(np.float64)
            )
        return out


class _ListWeights:
    """Weights of lists of reports: the mean of those of its reports, which has the same expectation whatever the value is."""

    def __init__(self, parts: Sequence[Bounding], positions: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
        """Take the weights of the reports of each mechanism, and the reports of all lists one after another."""
        self._parts, self._positions, self._lengths = parts, positions, lengths

    def majorants(self, c: Floats, n: float, z: float, *, sets: bool) -> Majorants:
        """Return the majorants of functionals; see `ReportWeights.majorants`."""
        parts = [part.majorants(c, n, z, sets=sets) for part in self._parts]
        of_reports, starts = np.concatenate([part.weights for part in parts], axis=1), np.cumsum(self._lengths) - self._lengths
        lists = [np.add.reduceat(row[self._positions], starts) / self._lengths for row in of_reports]
        return Majorants(np.array(lists), np.max([part.bias for part in parts], axis=0))


def _blocks(ends: NDArray[np.int64], inputs: int) -> list[tuple[int, int]]:
    """Cut the lists into runs of at most `_BLOCK` cells, or of one list."""
    cuts, start = [], 0
    while start < len(ends) - 1:
        stop = int(np.searchsorted(ends, ends[start] + max(1, _BLOCK // inputs), side="right")) - 1
        stop = max(stop, start + 1)
        cuts.append((start, stop))
        start = stop
    return cuts
