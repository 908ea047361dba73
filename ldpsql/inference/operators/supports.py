"""The likelihood of reports that support sets of values: P(report|x) is proportional to 1 + (ratio - 1) [x in the set].

Sets are kept as bits, eight values to an octet. A sum over the members of a set is then one look-up per octet in a table of 256
partial sums, and a sum over the sets that hold a value is one histogram per octet: exact, with an eighth of the reading.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, singledispatch
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ldpsql.channels import TOTAL, BinBits, Drawn, Floats, IndependentBits, SetChannel, SignedBits
from ldpsql.channels.costs import Cost
from ldpsql.channels.hashed import splitmix
from ldpsql.errors import NotApplicable
from ldpsql.inference.limits import check
from ldpsql.inference.operators.base import Ends, Operator, PairOperator, digest, of_each
from ldpsql.inference.operators.dense import DenseOperator
from ldpsql.inference.score_intervals import known_law, log_p_within

# Sets of values as bits, eight values to an octet.

Octets: TypeAlias = NDArray[np.uint8]

_CACHED = 1 << 17  # cells packed at a time
_CHECKED = 16  # times, after which the clock is read, which may take as long as a time


def check_number(channel: SetChannel, reports: int) -> None:
    """Return if so many reports can be kept."""
    Cost(bytes=reports * channel.inputs / 8).check(
        f"a table of {reports:,} different reports about {channel.inputs:,} values",
        "for so many values use olh, whose orthogonal seeds are counted; ldpsql.partial_supports inverts bit vectors",
    )


def packed(channel: SetChannel, drawn: Drawn) -> Octets:
    """Return the sets of these reports, shape (octets, reports): bit i of octet b is set if value 8 b + i is a member.

    Raises:
        InvalidParameter: if they would take more than two gibibytes.

    """
    check_number(channel, len(drawn))
    out = np.empty((-(-channel.inputs // 8), len(drawn)), dtype=np.uint8)
    step = max(1, _CACHED // channel.inputs)
    for start in range(0, len(drawn), step):
        if start // step % _CHECKED == 0:
            check()
        part = slice(start, start + step)
        out[:, part] = channel.octets(drawn[part])
    return out


def collapsed(octets: Octets, counts: Floats) -> tuple[Octets, Floats]:
    """Return the distinct sets with their added counts; the arguments themselves if nearly all sets must differ."""
    if len(octets) > 3 or 256 ** len(octets) > 16 * octets.shape[1]:
        return octets, counts  # nearly all sets differ
    codes = sum(row.astype(np.int64) << 8 * b for b, row in enumerate(octets))
    added: Floats = np.bincount(codes, weights=counts).astype(np.float64)
    seen = np.flatnonzero(added)
    return ((seen >> 8 * np.arange(len(octets))[:, None]) & 255).astype(np.uint8), added[seen]


def unpacked(octets: Octets, size: int, among: NDArray[np.int64] | slice) -> NDArray[np.bool_]:
    """Return which of the values ``among``, out of ``size``, are in the sets: shape (values, reports).

    Of a few values, only their octets are read.
    """
    if isinstance(among, np.ndarray) and 8 * len(among) < size:
        places = (among & 7).astype(np.uint8)[:, None]
        return (octets[among >> 3] >> places & np.uint8(1)).view(np.bool_)
    return np.unpackbits(octets, axis=0, count=size, bitorder="little")[among].view(np.bool_)


_BLOCK = 1 << 16  # reports at a time, so that the sums stay in the cache
_ROWS = 512  # octets of them between two looks at the clock
CELLS = 1 << 20  # cells unpacked at a time
_FUNCTIONALS = 1 << 22  # reports times functionals at a time
_FEW_GROUPS = 8  # up to so many, look-ups beat a product with unpacked sets
FEW_REPORTS = 100  # for each value
MOST_PAIRS = 2048  # values up to which something may be computed for every pair of them
_MANY_VALUES = 300  # from here on, gradient steps took a third to a twentieth of the time of Newton steps
_MANY_REPORTS = 50_000  # above, `rough_curvature` takes a sample
_SUBSETS = ((np.arange(256)[:, None] >> np.arange(8)) & 1).astype(np.float64)  # the members of every octet


class SetOperator(Operator):
    """One column for each of some distinct reports, up to a factor that no estimate depends on.

    With ``scale`` the columns are the probabilities of all possible reports. Without it they are those of the observed ones
    only, and likelihoods hold up to a constant. An implementation adds ``_octets``, the sets as `packed` returns them.
    """

    _octets: Octets

    def __init__(self, channel: SetChannel, outputs: int, scale: float | None = None) -> None:
        self.inputs, self.outputs = channel.inputs, outputs
        self.complete = scale is not None
        self.sampled, self.isotropic = self.outputs > _MANY_REPORTS, self.inputs > MOST_PAIRS
        self.even = self.sampled or self.inputs >= _MANY_VALUES
        self._hit, self._miss = float(channel.hit), float(channel.miss)
        self._scale = 1.0 if scale is None else scale
        self._lift = float(channel.ratio - 1)
        self._size_law = channel.size_law
        self._range = min(self._miss, self._hit), max(self._miss, self._hit)

    def forward(self, theta: Floats) -> Floats:
        """Return P(report) under theta, up to the factor."""
        out = self._inside(theta)
        out *= self._scale * self._lift
        out += self._scale * theta.sum(axis=-1, keepdims=True)
        return out

    def reachable(self) -> NDArray[np.bool_]:
        """Return true for all: a set that holds none of the values has a chance, too."""
        return np.ones(self.outputs, dtype=np.bool_)

    def adjoint(self, w: Floats) -> Floats:
        return self._scale * (w.sum(axis=-1, keepdims=True) + self._lift * self.supported(w))

    def _inside(self, theta: Floats) -> Floats:
        """Return the share that the members of every set hold together."""
        if theta.ndim > 1 and self._table is not None:
            return of_each(theta, self._table)
        if theta.ndim > 1 and len(theta) > _FEW_GROUPS:
            return np.concatenate([theta @ table for _, table in self._unpacked()], axis=-1)
        groups = np.atleast_2d(theta)
        width = 1 << (len(groups) - 1).bit_length()  # one look-up serves all groups; NumPy copies such widths quickest
        padded = np.zeros((8 * len(self._octets), width))
        padded[: self.inputs, : len(groups)] = groups.T
        tables = np.ascontiguousarray(_SUBSETS @ padded.reshape(-1, 8, width))
        out = np.zeros((self.outputs, width))
        for rows, part in self._blocks():
            sums = out[part]
            looked_up = np.empty_like(sums)
            for table, octet in zip(tables[rows], self._octets[rows, part], strict=True):
                sums += np.take(table, octet, axis=0, out=looked_up, mode="clip")  # without a mode, NumPy copies it twice
        return np.ascontiguousarray(out.T[: len(groups)]).reshape(*theta.shape[:-1], self.outputs)

    def supported(self, w: Floats) -> Floats:
        """Return for each value the weight of the reports that support it."""
        if w.ndim > 1 and self._table is not None:
            return of_each(w, self._table.T)
        if w.ndim > 1 and len(w) > _FEW_GROUPS:
            return np.sum([w[..., part] @ table.T for part, table in self._unpacked()], axis=0)
        if w.ndim > 1:
            return np.stack([self.supported(one) for one in w])
        tables = np.zeros((len(self._octets), 256))
        for rows, part in self._blocks():
            tables[rows] += [np.bincount(octet, weights=w[part], minlength=256) for octet in self._octets[rows, part]]
        return (tables @ _SUBSETS).ravel()[: self.inputs]

    def _blocks(self) -> Iterator[tuple[slice, slice]]:
        """Yield which octets and which reports to read next, with a look at the clock before each block."""
        for start in range(0, self.outputs, _BLOCK):
            for row in range(0, len(self._octets), _ROWS):
                check()
                yield slice(row, row + _ROWS), slice(start, start + _BLOCK)

    @cached_property
    def _table(self) -> Floats | None:
        """The sets as zeros and ones, if that is small: then products are fastest for several groups. Otherwise None."""
        if self.inputs * self.outputs > CELLS:
            return None
        return np.concatenate([members for _, members in self._unpacked()], axis=1).astype(np.float64)

    def _unpacked(
        self, among: NDArray[np.int64] | slice = slice(None), chosen: NDArray[np.int64] | None = None
    ) -> Iterator[tuple[slice, NDArray[np.bool_]]]:
        """Yield which of the values ``among`` are members of the sets, all or the chosen ones, block by block."""
        octets = self._octets if chosen is None else self._octets[:, chosen]
        step = max(1, CELLS // self.inputs)
        for start in range(0, octets.shape[1], step):
            part = slice(start, start + step)
            yield part, unpacked(octets[:, part], self.inputs, among)

    def curvature(self, w: Floats, among: NDArray[np.int64] | slice = slice(None)) -> Floats:
        """Return sum_z w_z a_z a_z' over the values ``among``: a constant, two rank-one parts and the supports."""
        return self._lifted(float(w.sum()), self._pairs(np.sqrt(w), among))

    def rough_curvature(self, w: Floats, among: NDArray[np.int64] | slice = slice(None)) -> Floats:
        """Return the curvature; if there are many reports, from a sample of max(30,000, 50 inputs), in single precision."""
        if not self.sampled:
            return self.curvature(w, among)
        chosen = w[self.sample]
        roots = np.sqrt(chosen * (w.sum() / chosen.sum())).astype(np.float32)
        return self._lifted(float(w.sum()), self._pairs(roots, among, self.sample))

    def _pairs(
        self, roots: Floats | NDArray[np.float32], among: NDArray[np.int64] | slice, chosen: NDArray[np.int64] | None = None
    ) -> Floats:
        """Return the weight of the reports that support each pair of values, from the square roots of the weights."""
        total: Floats = np.zeros(())
        for part, members in self._unpacked(among, chosen):
            check()
            rows = members * roots[part]
            total = total + rows @ rows.T  # the product of a matrix with itself: BLAS computes half of it
        return total

    def _lifted(self, total: float, both: Floats) -> Floats:
        """Put the curvature together from the weight of all reports and of those that support each pair of values."""
        single = both.diagonal()
        out: Floats = self._scale**2 * (total + self._lift * (single[:, None] + single) + self._lift**2 * both)
        return out

    def information(self, theta: Floats, shares: Floats) -> Floats:
        """Return the expected information of a report of one group, shape (inputs, inputs)."""
        if self.isotropic:
            raise NotApplicable(
                f"the covariance of {self.inputs} shares is too large", f"it is available for at most {MOST_PAIRS} values"
            )
        return super().information(theta, shares)

    @cached_property
    def sample(self) -> NDArray[np.int64]:
        """Positions of max(30,000, 50 inputs) reports: always the same, and unrelated to the order of the reports."""
        order = np.argsort(splitmix(np.arange(self.outputs, dtype=np.uint64)))
        return np.sort(order[: max(30_000, 50 * self.inputs)])

    def matrix(self) -> Floats:
        """Return P(report | value), up to the factor."""
        return self.rows(slice(None))

    def rows(self, among: NDArray[np.int64] | slice) -> Floats:
        """Return P(report | value) of some values, up to the factor."""
        return np.concatenate([columns for _, columns in self.columns(among)], axis=1)

    def of_reports(self, positions: NDArray[np.int64]) -> Floats:
        """Return P(report | value) of some reports, up to the factor, shape (inputs, reports)."""
        return np.concatenate([columns for _, columns in self.columns(chosen=positions)], axis=1)

    def columns(
        self, among: NDArray[np.int64] | slice = slice(None), chosen: NDArray[np.int64] | None = None
    ) -> Iterator[tuple[slice, Floats]]:
        """Yield P(report | value) of some values, up to the factor, block by block of all reports or the chosen ones."""
        for part, members in self._unpacked(among, chosen):
            check()
            yield part, self._scale + self._scale * self._lift * members.astype(np.float64)

    @property
    def votes(self) -> tuple[float, float]:
        """A report votes for the values that it supports."""
        return self._miss, self._hit

    @cached_property
    def condition(self) -> float:
        """Expected support counts are miss + (hit - miss) theta: eigenvalues hit - miss and hit + (inputs - 1) miss."""
        lift = self._hit - self._miss
        return (lift + self.inputs * self._miss) / abs(lift)

    @cached_property
    def influence(self) -> float:
        """A report supports a value or not."""
        return 1.0 / abs(self._hit - self._miss)

    def law_fit(self, shares: Floats, n: float) -> tuple[float, float]:
        """Compare the numbers of values that the reports support with their law, and the share of each with its range.

        Whatever the distribution, a value is supported by between miss and hit of the reports.
        """
        statistic, log_p = self._sizes_fit(shares * n)
        log_q = float(self.log_votes_p_value(shares[None], np.array([n]))[0])
        return statistic, min(0.0, min(log_p, log_q) + float(np.log(2)))  # two tests

    def _sizes_fit(self, counts: Floats) -> tuple[float, float]:
        """Return the statistic and log p-value of the numbers of values supported; 0 and 0 if they have no law."""
        law = self._size_law()
        if law is None:
            return 0.0, 0.0
        supported = np.rint(self._inside(np.ones(self.inputs))).astype(np.int64)
        sizes = np.bincount(supported, weights=counts, minlength=self.inputs + 1)
        return known_law(np.asarray(sizes, dtype=np.float64), law)

    def log_votes_p_value(self, shares: Floats, n: Floats) -> Floats:
        """Return the bound that every value is supported by a share of the reports between miss and hit."""
        votes = zip(self.supported(shares), n, strict=True)
        return np.array([log_p_within(held, float(size), *self._range) for held, size in votes])

    @cached_property
    def inverse(self) -> Floats:
        """The contribution of every report to `invert`, shape (outputs, inputs)."""
        held = np.concatenate([members for _, members in self._unpacked()], axis=1).T
        return (held - self._miss) / (self._hit - self._miss)

    def invert(self, shares: Floats) -> Floats:
        """Return (share of the reports that support x - miss)/(hit - miss)."""
        return (self.supported(shares) - self._miss) / (self._hit - self._miss)

    def interval(self, shares: Floats, n: Floats, theta: Floats, z: float) -> Ends:
        """Return the intervals around the debiased estimate; if there are only few reports, those of the inversion.

        The shares of observed reports stand for their probabilities only if there are many: with 20 reports per value at
        epsilon 4 the intervals held the truth 7 times in 10, with 200 as often as their confidence.
        """
        if self._few(n):
            return self.inverted_interval(shares, n, theta, z)
        return super().interval(shares, n, theta, z)

    def _few(self, n: Floats) -> bool:
        return self.isotropic or (not self.complete and bool((n < FEW_REPORTS * self.inputs).any()))

    def functionals(self, shares: Floats, n: Floats, theta: Floats, c: Floats) -> tuple[Floats, Floats]:
        """Return functionals of the debiased estimate; if there are only few reports, c'v of the inversion and its variance.

        The variance is the empirical one, infinite for one or two reports. The inverted shares sum to one only in expectation:
        their sum is a control variate, subtracted with the factor that makes the variance least.
        """
        if not self._few(n):
            return super().functionals(shares, n, theta, c)
        each = np.broadcast_to(c, (len(shares), *c.shape[-2:]))
        centre, variance = np.empty((2, len(shares), c.shape[-1]))
        total = self._contributions(np.ones((self.inputs, 1)))[:, 0]
        step = max(1, _FUNCTIONALS // self.outputs)
        for i, q in enumerate(shares):
            for start in range(0, c.shape[-1], step):
                check()
                some = slice(start, start + step)
                centre[i, some], variance[i, some] = _controlled(q, n[i], self._contributions(each[i, :, some]), total)[:2]
        return centre, variance

    def contributions(self, shares: Floats, n: float, theta: Floats, c: Floats) -> Floats | None:
        """Return what reports add to the debiased functionals; if there are only few, to those of the inversion."""
        if not self._few(np.array([n])):
            return super().contributions(shares, n, theta, c)
        return _controlled(shares, n, self._contributions(c), self._contributions(np.ones((self.inputs, 1)))[:, 0])[2]

    def pulled(self, c: Floats) -> Floats:
        return self._contributions(c) if c.ndim == 2 else np.stack([self._contributions(own) for own in c])

    def _contributions(self, c: Floats) -> Floats:
        """Return the contribution of every report to c'v: (sum of c over its set - miss times the sum of c)/(hit - miss)."""
        return (self._inside(c.T) - self._miss * c.sum(axis=0)[:, None]).T / (self._hit - self._miss)


def _controlled(q: Floats, n: float, contributions: Floats, total: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the means of contributions of reports with shares q, controlled by their totals, their variances, and the rest."""
    mean, sum_of_all = q @ contributions, q @ total
    own, total = contributions - mean, total - sum_of_all
    spread = q @ total**2
    factor = (q * total) @ own / spread if spread > 1e-12 else np.zeros(len(mean))
    free, own = n - 2, own - total[:, None] * factor  # two numbers were fitted: the mean, and the factor
    variance = q @ own**2 / free if free > 0 else np.full(len(mean), np.inf)
    return mean - factor * (sum_of_all - 1.0), variance, own


class SupportOperator(SetOperator):
    """One column for each of some observed sets, as `packed` returns them."""

    def __init__(self, channel: SetChannel, octets: Octets) -> None:
        super().__init__(channel, octets.shape[1])
        self._octets = octets

    @cached_property
    def key(self) -> bytes:
        numbers = np.array([self.inputs, self.complete, self._hit, self._miss, self._lift, self._scale], dtype=np.float64)
        return digest(type(self).__name__.encode(), numbers, self._octets)


@singledispatch
def observed(channel: SetChannel, octets: Octets) -> SupportOperator:
    """Return the operator of these observed sets of a channel, as `packed` returns them."""
    return SupportOperator(channel, octets)


# The likelihood of bits of neighbouring bins: support sets in which each key shows one number, or nothing.


class BinOperator(SupportOperator, PairOperator):
    """One column for each observed report; the numbers that keys show determine more than its support."""

    def __init__(self, channel: BinBits, octets: Octets) -> None:
        super().__init__(channel, octets)
        self.channel, self.keys = channel, channel.keys
        self._range = self._miss * channel.mixed / TOTAL, self._hit

    @cached_property
    def _numbers(self) -> NDArray[np.int16]:
        """The number that each report shows at each key, ``places`` for nothing, shape (keys, reports)."""
        parts = [self.channel.numbers(members.T).T.astype(np.int16) for _, members in self._unpacked()]
        return np.concatenate(parts, axis=1)

    def shown(self, w: Floats) -> Floats:
        """Return the weight of the reports that show each number at each key, (groups, reports) -> (groups, numbers)."""
        places = self.channel.places
        each = [[np.bincount(key, weights, places + 1)[:places] for key in self._numbers] for weights in w]
        return np.array(each, dtype=np.float64).reshape(len(w), -1)

    def of_keys(self, counts: Floats) -> tuple[SupportOperator, Floats]:
        """Return the likelihood of the keys alone, and the counts of its reports: unary encoding of a key."""
        law = self.channel.key_law()
        weights = (round(chance * TOTAL) for chance in (law.other + law.lift, law.other))
        shown = np.packbits(self._numbers < self.channel.places, axis=0, bitorder="little")
        octets, sums = collapsed(shown, counts)
        return SupportOperator(IndependentBits(self.keys, *weights), octets), sums

    @cached_property
    def of_one(self) -> DenseOperator:
        """The likelihood of what one key shows."""
        return one_key(self.channel)

    @cached_property
    def _moves(self) -> Floats:
        """By how much the chance of each number of a key grows with the share of each of its bins."""
        return np.asarray(self.of_one.matrix()[:-1, :-1] - self.channel.spread / TOTAL)

    @cached_property
    def condition(self) -> float:
        """The condition number of the numbers of one key, as keys are inverted on their own."""
        return float(np.linalg.cond(self._moves))

    @cached_property
    def influence(self) -> float:
        """A report shows a number at a key, or nothing there."""
        inverse = np.pad(np.linalg.pinv(self._moves), ((0, 1), (0, 0)))
        return float((inverse.max(axis=0) - inverse.min(axis=0)).max())

    def invert(self, shares: Floats) -> Floats:
        """Return the least-squares inverse of the numbers that each key shows.

        Raises:
            IllConditioned: if it drowns the estimate in noise.

        """
        self.check_condition()
        moved = self.shown(shares).reshape(len(shares), self.keys, -1) - self.channel.spread / TOTAL
        return np.asarray(moved @ np.linalg.pinv(self._moves)).reshape(len(shares), -1)


def one_key(channel: BinBits) -> DenseOperator:
    """Return the likelihood of what one key shows: values are its bins and "another key", reports its numbers and nothing."""
    apart = np.append(np.full(channel.places, channel.spread / TOTAL), 1.0 - float(channel.key_law().other))
    moved = np.zeros((channel.bins + 1, channel.places + 1))
    moved[:-1, :-1] = channel.patterns()[:-1].T * (channel.near / TOTAL)
    return DenseOperator(apart * (1.0 - moved.sum(axis=1, keepdims=True)) + moved)


@observed.register
def _(channel: BinBits, octets: Octets) -> SupportOperator:
    return BinOperator(channel, octets)


# The likelihood of signed bits: support sets in which the two symbols of a key exclude each other.


class SignedOperator(SupportOperator, PairOperator):
    """One column for each observed report; only the inverse differs from that of other support sets."""

    def __init__(self, channel: SignedBits, octets: Octets) -> None:
        super().__init__(channel, octets)
        self.hit, self.miss, self.crossed = float(channel.hit), float(channel.miss), float(channel.crossed)
        self._range = min(self.miss, self.crossed), self.hit

    @property
    def apart(self) -> float:
        """How fast the share of + minus that of - at a key grows with the difference of its symbols."""
        return self.hit - self.crossed

    @property
    def lifted(self) -> float:
        """How fast the share of either sign at a key grows with the sum of its symbols."""
        return self.hit + self.crossed - 2 * self.miss

    @cached_property
    def condition(self) -> float:
        """Expected support counts have the eigenvalues of differences, of sums, and of the sum of all symbols."""
        eigenvalues = np.abs([self.apart, self.lifted, self.lifted + self.inputs * self.miss])
        return float(eigenvalues.max() / eigenvalues.min())

    @cached_property
    def influence(self) -> float:
        """A report shows a symbol, the opposite one, or neither: the largest difference between two of these."""
        return max(1.0 / abs(self.apart), (1.0 / abs(self.apart) + 1.0 / abs(self.lifted)) / 2)

    def shown(self, w: Floats) -> Floats:
        """Return the weight of the reports that support each symbol."""
        return self.supported(w)

    def invert(self, shares: Floats) -> Floats:
        """Return half the inverted sum of the shares of both signs of a key, plus or minus half their inverted difference.

        Source: Gu, Li, Cheng, Xiong, Cao, "PCKV", USENIX Security 2020, equation 9.
        """
        supported = self.supported(shares)
        plus, minus = supported[..., 0::2], supported[..., 1::2]
        both = (plus + minus - 2 * self.miss) / self.lifted
        apart = (plus - minus) / self.apart
        return np.stack([both + apart, both - apart], axis=-1).reshape(supported.shape) / 2


@observed.register
def _(channel: SignedBits, octets: Octets) -> SupportOperator:
    return SignedOperator(channel, octets)
