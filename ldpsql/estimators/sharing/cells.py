"""The shares of one value in some groups, under the classes of dispersion below, and blocks of groups with as many reports.

Shares are looked for among candidates: k/n for few reports n, where the numbers of people are counted out, a grid for others,
and candidates of its own for a share that its group's reports determine well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.errors import InternalError
from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.limits import check
from ldpsql.inference.operators import Floats

LEAST = 1e-300
_ROWS = 64


@dataclass(frozen=True)
class Cells:
    """Shares of a value with their candidates: how likely votes are for each, and the prior masses of each in each class.

    Groups in which as many of as many reports vote for a value are of one kind: what depends on nothing else is computed once
    for each kind. ``masses`` has shape (numbers of reports, classes, candidates), and ``number`` says which of the first a kind
    has. If ``place`` and ``part`` are set, ``masses`` has shape (concentrations on a grid, candidates), and these say between
    which of them the classes lie, (numbers of reports, classes).
    """

    value: int
    rows: NDArray[np.int64]  # of the groups
    kind: NDArray[np.int64]  # of each of the rows
    candidates: Floats  # of all kinds, or of each
    log_likelihood: Floats
    number: NDArray[np.int64]  # of each kind
    masses: Floats
    place: NDArray[np.int64] | None = None
    part: Floats | None = None
    whole: bool = False  # whether the candidates are all there is
    alike: bool = True  # whether many groups are of one kind

    @cached_property
    def likelihood(self) -> Floats:
        """How likely votes are for each candidate, relative to the best one."""
        return np.exp(np.maximum(self.log_likelihood - self.log_likelihood.max(axis=1, keepdims=True), -600.0))

    def class_masses(self) -> Floats:
        """Return the prior masses, shape (candidates, numbers of reports, classes)."""
        masses = self.masses
        if self.place is not None and self.part is not None:
            part = self.part[..., None]
            masses = (1.0 - part) * masses[self.place] + part * masses[self.place + 1]
        return np.ascontiguousarray(masses.transpose(2, 0, 1))

    @cached_property
    def chances(self) -> Floats:
        """How likely votes are in each class, (kinds, classes), relative to the best candidate."""
        return np.maximum(self._means(self.likelihood), LEAST)

    def mixture(self, weights: Floats) -> Floats:
        """Return the prior masses if each class has this weight, shape (numbers of reports, candidates)."""
        if self.place is None or self.part is None:
            return np.asarray(weights @ self.masses)
        every = np.tile(weights, (len(self.place), 1))
        return by_rows(on_grid(every, self.place, self.part, len(self.masses)), self.masses)

    def posterior(self, classes: Floats) -> Floats:
        """Return the posterior of each share among its candidates, from the probabilities of its classes."""
        weights, number = classes / self.chances[self.kind], self.number[self.kind]
        if self.place is None or self.part is None:
            prior = (weights[..., None] * self.masses[number]).sum(axis=1)
        else:
            prior = by_rows(on_grid(weights, self.place[number], self.part[number], len(self.masses)), self.masses)
        prior *= self.likelihood[self.kind]
        return np.asarray(prior / np.maximum(prior.sum(axis=1, keepdims=True), LEAST))

    def moment(self, power: int) -> Floats:
        """Return the posterior mean of a power of the share in each class, (kinds, classes)."""
        return self._means(self.likelihood * self.candidates**power) / self.chances

    def _means(self, numbers: Floats) -> Floats:
        """Return the prior means of numbers of shape (kinds, candidates) in each class, (kinds, classes)."""
        if self.place is None or self.part is None:
            if len(self.masses) == 1:
                return by_rows(numbers, self.masses[0].T)
            return np.asarray(
                (self.masses[self.number] * numbers[:, None]).sum(axis=2)
            )  # a product of matrices may differ in a bit
        grid, kinds = by_rows(numbers, self.masses.T), np.arange(len(numbers))[:, None]
        place, part = self.place[self.number], self.part[self.number]
        return np.asarray((1.0 - part) * grid[kinds, place] + part * grid[kinds, place + 1])

    def evidence(self) -> Floats:
        """Return ln of how likely the votes are in each class, (shares, classes)."""
        logs = np.log(self.chances) + self.log_likelihood.max(axis=1)[:, None]
        return np.take(logs, self.kind, axis=0)

    def only(self, chosen: NDArray[np.bool_], row: NDArray[np.int64]) -> Cells:
        """Return the shares of the groups that are ``chosen``, and which ``row`` numbers."""
        kept = chosen[self.rows]
        kinds, kind = first_of(self.kind[kept])
        kinds = self.kind[kept][kinds]
        candidates = self.candidates[kinds] if self.candidates.ndim == 2 else self.candidates
        logs, number = self.log_likelihood[kinds], self.number[kinds]
        return Cells(
            self.value,
            row[self.rows[kept]],
            kind,
            candidates,
            logs,
            number,
            self.masses,
            self.place,
            self.part,
            self.whole,
            self.alike,
        )


def on_grid(weights: Floats, place: NDArray[np.int64], part: Floats, width: int) -> Floats:
    """Return the weights of classes as weights of the concentrations between which they lie, of which there are ``width``."""
    at = place + width * np.arange(len(weights))[:, None]
    both, where = np.hstack([weights * (1.0 - part), weights * part]), np.hstack([at, at + 1])
    sums = np.bincount(where.ravel(), weights=both.ravel(), minlength=width * len(weights))
    return np.asarray(sums, dtype=np.float64).reshape(len(weights), width)


def first_of(numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return a row of each different number, and which of these numbers each row has."""
    kind = pa.array(numbers).dictionary_encode().indices.to_numpy().astype(np.int64)
    row = np.empty(kind.max(initial=-1) + 1, dtype=np.int64)
    row[kind] = np.arange(len(kind))
    return row, kind


def by_rows(left: Floats, right: Floats) -> Floats:
    """Return the matrix product, in which no bit of a row depends on other rows: all products are of matrices of one shape."""
    out = np.empty((len(left), right.shape[1]))
    block = np.zeros((_ROWS, left.shape[1]))
    for start in range(0, len(left), _ROWS):
        part = left[start : start + _ROWS]
        block[: len(part)] = part
        out[start : start + _ROWS] = (block @ right)[: len(part)]
    return out


# How far the shares of groups lie from a common mean: classes of spread, and the distribution of one share in each of them.
#
# The share of a value among the n people of a group is Dirichlet with the common mean in each class. Groups that are samples of
# populations with concentration a have shares of concentration 1 / (1/a + 1/n); groups that are more alike than samples, such
# as the days of a timetable, have some multiple of n. A class is one a, or one multiple.

CONCENTRATIONS = np.geomspace(0.3, 1e5, 13)
MULTIPLES = np.array([1.0, 4.0, 16.0, 1e4])
CLASSES = len(CONCENTRATIONS) + len(MULTIPLES)
GRID = np.geomspace(0.1, 1e8, 37)  # concentrations at which priors are computed; those between them are interpolated
_SAMPLE = 1e7  # a concentration that is as good as infinite
_TINY, _HUGE = 1e-12, 1e300


def concentrations(n: Floats) -> Floats:
    """Return the concentration of the shares of groups of n people in each class, shape (groups, classes)."""
    unlike = 1.0 / (1.0 / CONCENTRATIONS + 1.0 / n[:, None])
    return np.hstack([unlike, MULTIPLES * n[:, None]])


def gamma_masses(mean: Floats, concentration: Floats, edges: Floats) -> Floats:
    """Return the masses of Gamma distributions between rising edges, shape (means, concentrations, edges + 1).

    A share of a Dirichlet distribution with many values is close to Gamma with the shape concentration * mean. The masses are
    read-only: groups that are estimated one by one, as those of OUE, need the same ones again and again.
    """
    return _gamma_masses(mean.tobytes(), concentration.tobytes(), edges.tobytes())


@lru_cache(maxsize=16)
def _gamma_masses(*octets: bytes) -> Floats:
    from scipy.special import gammainc  # noqa: PLC0415  # slow to import

    mean, concentration, edges = (np.frombuffer(each) for each in octets)
    shape = np.maximum(concentration[:, None] * mean[:, None, None], _TINY)
    below = gammainc(shape, np.minimum(concentration[:, None] * edges, _HUGE))
    masses = np.maximum(np.diff(below, axis=-1, prepend=0.0, append=1.0), 0.0)
    masses.flags.writeable = False
    return masses


def whole_masses(mean: Floats, n: int) -> Floats:
    """Return the probability of each number of n people, shape (means, classes, n + 1): beta-binomial, if groups are unlike."""
    from scipy.special import betaln, gammaln  # noqa: PLC0415  # slow to import

    k, mu = np.arange(n + 1), np.clip(mean, _TINY, 1.0 - 1e-9)[:, None, None]
    a = np.append(CONCENTRATIONS, _SAMPLE)[:, None]
    ways = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    unlike = np.exp(ways + betaln(k + a * mu, n - k + a * (1.0 - mu)) - betaln(a * mu, a * (1.0 - mu)))
    alike = gamma_masses(mean, MULTIPLES[1:] * n, (np.arange(n) + 0.5) / n)
    return np.concatenate([unlike, alike], axis=1)


# The votes of reports for values, and how likely they are given the shares of a value among the people of a group.

_LEAST = 1e-12


@dataclass(frozen=True)
class Votes:
    """Votes for each value in each group, shape (groups, values), of ``n`` reports each.

    A report votes with probability ``high`` for its own value, and with ``low`` for any other.
    """

    numbers: Floats
    n: Floats
    low: float
    high: float

    @classmethod
    def of(cls, likelihood: Likelihood) -> Votes:
        """Return the votes of the reports of a likelihood whose operator has votes."""
        if likelihood.operator.votes is None:
            raise InternalError("this channel has no votes", "use pseudo-reports")
        low, high = likelihood.operator.votes
        shares = low + (high - low) * likelihood.operator.invert(likelihood.shares)
        return cls(np.rint(shares * likelihood.n[:, None]), likelihood.n, low, high)

    @classmethod
    def joined(cls, parts: Sequence[Votes]) -> Votes:
        """Return the votes of all groups of several parts, whose mechanism is the same."""
        numbers, n = (np.concatenate(each) for each in zip(*((part.numbers, part.n) for part in parts), strict=True))
        return cls(numbers, n, parts[0].low, parts[0].high)

    def chosen(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Votes:
        """Return the votes of some groups."""
        return Votes(self.numbers[rows], self.n[rows], self.low, self.high)

    def noise(self, n: Floats | float) -> Floats | float:
        """Return the variance of an inverted share of a rare value, of n reports, that the mechanism causes."""
        return self.low * (1.0 - self.low) / (n * (self.high - self.low) ** 2)

    def inverted(self, value: int) -> tuple[Floats, Floats]:
        """Return the inverted share of a value in each group, and the error that the mechanism causes if it is the true one."""
        share = (self.numbers[:, value] / self.n - self.low) / (self.high - self.low)
        return share, np.sqrt(self._spread(np.clip(share, 0.0, 1.0)) / self.n) / (self.high - self.low)

    def _spread(self, shares: Floats) -> Floats:
        """Return the variance of the vote of one of the people of a group who hold a value in these shares."""
        return shares * self.high * (1.0 - self.high) + (1.0 - shares) * self.low * (1.0 - self.low)

    def log_likelihood(self, votes: Floats, n: Floats, shares: Floats) -> Floats:
        """Return ln of how likely votes of n reports are for each share among these n people, (cells, shares), up to a term.

        Given the n people, votes are the sum of two binomial numbers; it is taken to be a binomial number whose variance is
        scaled. Source: Efron, "Double exponential families and their use in generalized linear regression", JASA 1986.
        """
        chance = np.clip(self.low + (self.high - self.low) * shares, _LEAST, 1.0 - _LEAST)
        scale = chance * (1.0 - chance) / np.maximum(self._spread(shares), _LEAST)
        votes, n = votes[:, None], n[:, None]
        divergence = _n_log(votes, n) + _n_log(n - votes, n) - votes * np.log(chance) - (n - votes) * np.log(1.0 - chance)
        return 0.5 * np.log(scale) - scale * divergence

    def table(self, n: int) -> Floats:
        """Return the probability of each number of votes if k of n people hold the value, shape (votes, k), for small n."""
        out = np.zeros((n + 1, n + 1))
        own, other = np.ones(1), [np.ones(1)]
        for _ in range(n):
            other.append(np.convolve(other[-1], [1.0 - self.low, self.low]))
        for k in range(n + 1):
            out[:, k] = np.convolve(own, other[n - k])
            own = np.convolve(own, [1.0 - self.high, self.high])
        return out


def _n_log(votes: Floats, n: Floats) -> Floats:
    """Return votes log(votes / n); 0 for no votes."""
    return votes * np.log(np.maximum(votes, 1.0) / n)


# Priors of shares that a group's own reports determine well: too narrow for a grid that all groups have in common.
#
# Each of these shares has candidates of its own: a few around the inverted share, as far apart as half of its error, and a few
# around the common mean.


WELL = 6.0  # errors that a share is above zero
_AROUND = np.arange(-5.0, 5.1, 0.5)
_NEAR = np.array([-1.0, -0.5, -0.2, -0.05, 0.05, 0.2, 0.5, 1.0])


def well_determined(votes: Votes, value: int) -> NDArray[np.bool_]:
    """Return in which groups the reports determine the share of a value well."""
    share, error = votes.inverted(value)
    return np.asarray(share > WELL * error)


def own_candidates(votes: Votes, value: int, mean: float) -> Floats:
    """Return the candidates of the share of a value in each group, rising: (groups, candidates)."""
    share, error = (part[:, None] for part in votes.inverted(value))
    both = np.hstack([share + error * _AROUND, mean + error * _NEAR])
    return np.sort(np.clip(both, _LEAST, 1.0), axis=1)


def own_masses(mean: float, concentration: Floats, candidates: Floats) -> Floats:
    """Return the prior masses of the candidates of each group in each class, (groups, classes, candidates).

    The cube root of a Gamma variable is close to normal. Source: Wilson, Hilferty, "The distribution of chi-square", PNAS 1931.
    """
    from scipy.special import ndtr  # noqa: PLC0415  # slow to import

    shape = np.maximum(concentration * mean, _LEAST)[..., None]
    edges = (candidates[:, None, 1:] + candidates[:, None, :-1]) / 2.0
    below = ndtr((np.cbrt(edges / mean) - 1.0 + 1.0 / (9.0 * shape)) * 3.0 * np.sqrt(shape))
    return np.asarray(np.diff(below, axis=-1, prepend=0.0, append=1.0))


FEW = 24  # reports up to which people are counted out
_CELLS, _UNLIKE = 1 << 19, 1 << 16  # (group, value) in a block, if groups are small, or large and thus rarely of one kind
_SMALL = 256
_VALUES = 64  # whose priors are computed together


@dataclass(frozen=True)
class Block:
    """Some groups, and the cells of all values in them, whose rows count from the first of ``groups``."""

    groups: NDArray[np.int64]
    values: int
    cells: list[Cells]

    def only(self, chosen: NDArray[np.bool_]) -> Block:
        """Return the block of some of its groups."""
        row = np.cumsum(chosen) - 1
        kept = [cells.only(chosen, row) for cells in self.cells if chosen[cells.rows].any()]
        return Block(self.groups[chosen], self.values, kept)

    def evidence(self) -> Floats:
        """Return ln of how likely the votes of each group are in each class, (groups, classes), up to a term of the group."""
        out = np.zeros((len(self.groups), CLASSES))
        for cells in self.cells:
            if len(cells.rows) == len(out):
                out += cells.evidence()
            else:
                out[cells.rows] += cells.evidence()
        return out


def blocks(votes: Votes, mean: Floats) -> Iterator[Block]:
    """Yield all groups, in blocks.

    Neither the candidates nor the estimate of a group depend on which other groups there are.
    """
    at_once = max(1, _CELLS // len(mean))
    order = np.argsort(votes.n, kind="stable")  # groups of one kind are in few blocks
    for few in np.unique(votes.n[votes.n <= FEW]).astype(np.int64):
        for groups in _parts(np.flatnonzero(votes.n == few), at_once):
            yield Block(groups, len(mean), list(_counted_out(votes.chosen(groups), mean, int(few))))
    many = order[votes.n[order] > FEW]
    size = 4.0 ** np.floor(np.log2(votes.n[many]) / 2.0)
    for one in np.unique(size):
        for groups in _parts(many[size == one], at_once if one < _SMALL else max(1, _UNLIKE // len(mean))):
            yield Block(groups, len(mean), list(_on_grid(votes.chosen(groups), mean, float(one))))


def _parts(groups: NDArray[np.int64], at_once: int) -> Iterator[NDArray[np.int64]]:
    yield from (groups[start : start + at_once] for start in range(0, len(groups), at_once))


def _counted_out(votes: Votes, mean: Floats, n: int) -> Iterator[Cells]:
    with np.errstate(divide="ignore"):
        table = np.log(votes.table(n))
    candidates, rows, number = np.arange(n + 1) / n, np.arange(len(votes.n)), np.zeros(n + 1, dtype=np.int64)
    for value, masses in enumerate(_by_value(mean, lambda different: whole_masses(different, n))):
        kind = votes.numbers[:, value].astype(np.int64)
        yield Cells(value, rows, kind, candidates, table, number, masses[None], whole=True)


def _on_grid(votes: Votes, mean: Floats, size: float) -> Iterator[Cells]:
    """Yield the cells of groups that have from ``size`` to four times as many reports."""
    candidates = _grid(votes, 2.0 * size)
    edges = np.append(candidates[1] / 2.0, (candidates[1:-1] + candidates[2:]) / 2.0)
    first, last = _places(np.array([size, 4.0 * size]))[0][[0, 1], [0, -1]] + (0, 2)
    for value, masses in enumerate(_by_value(mean, lambda different: gamma_masses(different, GRID[first:last], edges))):
        own = well_determined(votes, value)
        for rows in (np.flatnonzero(~own), np.flatnonzero(own)):
            if not len(rows):
                continue
            one, kind = _kinds(votes.n[rows], votes.numbers[rows, value])
            if len(one) == 1:  # NumPy sums a single row in another order
                one = np.repeat(one, 2)
            some = Votes(votes.numbers[rows[one], value : value + 1], votes.n[rows[one]], votes.low, votes.high)
            if own[rows[0]]:
                yield _of_its_own(some, rows, kind, value, float(mean[value]), alike=size < _SMALL)
                continue
            logs = some.log_likelihood(some.numbers[:, 0], some.n, candidates)
            different, number = np.unique(some.n, return_inverse=True)
            place, part = _places(different)
            yield Cells(value, rows, kind, candidates, logs, number, masses, place - first, part, alike=size < _SMALL)


def _places(n: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Return between which concentrations of `GRID` the classes of groups of n people lie, and where between them."""
    at = np.clip(np.log(concentrations(n) / GRID[0]) / np.log(GRID[1] / GRID[0]), 0.0, len(GRID) - 1.001)
    place = at.astype(np.int64)
    return place, at - place


def _of_its_own(
    votes: Votes, rows: NDArray[np.int64], kind: NDArray[np.int64], value: int, mean: float, *, alike: bool
) -> Cells:
    """Return the cells of a value whose share the reports determine well; ``votes`` are those of each kind for this value."""
    candidates = own_candidates(votes, 0, mean)
    logs = votes.log_likelihood(votes.numbers[:, 0], votes.n, candidates)
    masses = own_masses(mean, concentrations(votes.n), candidates)
    return Cells(value, rows, kind, candidates, logs, np.arange(len(logs)), masses, alike=alike)


def _kinds(n: Floats, votes: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first of each pair of these numbers that occurs, and which of the pairs each is."""
    width = int(votes.max()) + 1
    if n.max() * width < 2**53:
        return first_of((n * width + votes).astype(np.int64))
    _, first, kind = np.unique(n + 1j * votes, return_index=True, return_inverse=True)
    return first, kind


def _by_value(mean: Floats, masses: Callable[[Floats], Floats]) -> Iterator[Floats]:
    """Yield the prior masses of each value; values of equal means share theirs."""
    for start in range(0, len(mean), _VALUES):
        check()
        different, back = np.unique(mean[start : start + _VALUES], return_inverse=True)
        yield from masses(different)[back.ravel()]


def _grid(votes: Votes, n: float) -> Floats:
    """Return candidates of shares for groups of about n reports: zero, a geometric grid, and a fine one around the noise."""
    noise = float(np.sqrt(votes.noise(n)))
    low = np.clip(noise / 8.0, 1e-7, 0.05 / votes.numbers.shape[1])
    shares = np.concatenate([np.geomspace(low, 1.0, 90), np.arange(1, 33) * noise / 4.0])
    return np.append(0.0, np.unique(np.minimum(shares, 1.0)))
