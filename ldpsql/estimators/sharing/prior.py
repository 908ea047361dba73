"""The prior that groups have in common, learned from all of them, also of groups in order, and the posteriors of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import fsum
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, PlainSerializer

from ldpsql.errors import InvalidParameter
from ldpsql.estimators.sharing import directions, pseudo
from ldpsql.estimators.sharing.cells import CLASSES, CONCENTRATIONS, LEAST, Block, Cells, Votes, blocks, concentrations
from ldpsql.estimators.sharing.pseudo import Alone
from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.operators import Floats
from ldpsql.inference.score_intervals import deviations

_STEPS, _BASE = 100, 0.05  # of EM; groups that each class has beforehand
_CELLS = 1 << 19  # of (group, value), that are scored together
_TINY = 1e-300
_LEAST_SHARE = 1e-4  # of a value that has its part of all shares
_HINT = "pass what ldp.prior(counts, m) returns"


@dataclass(frozen=True)
class Prior:
    """The shares of all groups together, their standard errors, and how common each class of dispersion is among groups.

    ``interval_weights`` are the ``weights`` averaged over what else they may be, as few groups say little about how alike they
    are. ``own_mean`` is how far means are those of each group alone, from 0 to 1; empty if that was not learned.
    """

    mean: tuple[float, ...]
    error: tuple[float, ...]
    weights: tuple[float, ...]
    interval_weights: tuple[float, ...]
    own_mean: tuple[float, ...] = ()

    def classes(self, likelihood: Likelihood, alone: Alone) -> tuple[Floats, Floats]:
        """Return how probable each class is for each group, and the same for intervals, each of shape (groups, classes).

        ``alone`` estimates groups by themselves.
        """
        if len(self.mean) != likelihood.operator.inputs:
            raise InvalidParameter("the prior is one of another number of values", _HINT)
        logs = scores(likelihood, np.array(self.mean), alone)
        return probabilities(logs, np.array(self.weights)), probabilities(logs, np.array(self.interval_weights))

    def borrowed(self, likelihood: Likelihood, classes: Floats) -> Floats:
        """Return which part of the estimate of each group comes from the mean of all groups, from 0 to 1."""
        if directions.directed(likelihood):
            return directions.Coefficients.of(likelihood, np.array(self.mean)).borrowed(classes)
        if likelihood.operator.votes is None:
            return pseudo.pseudo_share(likelihood.n, classes)
        return self.borrowed_votes(Votes.of(likelihood), classes)

    def borrowed_votes(self, votes: Votes, classes: Floats) -> Floats:
        """Return from votes which part of the estimate of each group comes from the mean of all groups."""
        noise = len(self.mean) * votes.noise(votes.n[:, None])
        spread = (1.0 - np.square(self.mean).sum()) / (1.0 + concentrations(votes.n))
        return np.asarray((classes * (noise / (noise + spread))).sum(axis=1))


def learnt(mean: Floats, error: Floats, groups: Iterable[Likelihood], alone: Alone) -> Prior:
    """Return the prior with this mean whose classes explain all groups best: the maximum of its likelihood, by EM.

    If reports are votes, the errors of the mean include that other groups would have other shares. Source: Morris, "Parametric
    empirical Bayes inference: theory and applications", JASA 1983.
    """
    raised = floored(mean)
    logs, n = (np.concatenate(part) for part in zip(*_scored(groups, raised, alone), strict=True))
    weights = wide = class_weights(logs)
    if len(n):
        each = (probabilities(logs, weights) / (1.0 + concentrations(n))).sum(axis=1) * (n / fsum(n)) ** 2
        error, wide = np.sqrt(error**2 + raised * (1.0 - raised) * fsum(each)), averaged(logs, weights)
    return Prior(*(tuple(part.tolist()) for part in (raised, error, weights, wide)))


def _scored(groups: Iterable[Likelihood], mean: Floats, alone: Alone) -> Iterator[tuple[Floats, Floats]]:
    """Yield the `scores` of groups, and the numbers of their reports if these are votes.

    Groups that come one by one, as those of OUE do, are scored together if they have votes.
    """
    waiting, cells = list[Votes](), 0
    for some in groups:
        if some.operator.votes is None:
            yield scores(some, mean, alone), np.zeros(0)
            continue
        waiting.append(Votes.of(some))
        cells += waiting[-1].numbers.size
        if cells >= _CELLS:
            yield _together(waiting, mean)
            waiting, cells = [], 0
    if waiting:
        yield _together(waiting, mean)


def _together(waiting: list[Votes], mean: Floats) -> tuple[Floats, Floats]:
    votes = Votes.joined(waiting)
    return evidence(votes, mean), votes.n


def floored(mean: Floats) -> Floats:
    """Return shares none of which is zero, along the last axis."""
    raised = np.maximum(mean, _LEAST_SHARE / mean.shape[-1])
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True))


def class_weights(logs: Floats) -> Floats:
    """Return how common classes are, by EM, from ln of how well each explains each group, (groups, classes)."""
    logs = logs[np.lexsort(logs.T)]  # the order of groups, which SQL does not fix, must not change a bit
    chances, weights = np.exp(logs - logs.max(axis=1, keepdims=True)), np.full(CLASSES, 1.0 / CLASSES)
    for _ in range(_STEPS):
        each = weights * (chances.T @ (1.0 / (chances @ weights)))
        weights = (each + _BASE) / (len(chances) + _BASE * CLASSES)
    return weights


def averaged(logs: Floats, weights: Floats) -> Floats:
    """Return how common classes are, averaged over how much more or less alike all groups may be than ``weights`` say.

    The classes of all groups move together by the same number of classes, and the variance of shares by the same factor. It has
    a flat prior, with which intervals from few groups cover. Source: Morris, Tang, "Estimating random effects via adjustment
    for density maximization", Statistical Science 2011.
    """
    logs = logs[np.lexsort(logs.T)]
    chances, place = np.exp(logs - logs.max(axis=1, keepdims=True)), np.arange(CLASSES)
    moves = np.arange(1 - CLASSES, CLASSES)
    moved = np.array([np.bincount(np.clip(place + move, 0, CLASSES - 1), weights, CLASSES) for move in moves])
    evidences = np.array([np.log(np.maximum(chances @ one, _TINY)).sum() for one in moved])
    evidences -= moves * np.log(CONCENTRATIONS[1] / CONCENTRATIONS[0])
    likely = np.exp(evidences - evidences.max())
    return np.asarray(likely @ moved / likely.sum())


def scores(likelihood: Likelihood, mean: Floats, alone: Alone) -> Floats:
    """Return ln of how well each class explains each group, (groups, classes), up to a term of the group."""
    if likelihood.operator.votes is None:
        return (directions if directions.directed(likelihood) else pseudo).scores(likelihood, mean, alone)
    return evidence(Votes.of(likelihood), mean)


def evidence(votes: Votes, mean: Floats) -> Floats:
    """Return ln of how likely the votes of each group are in each class, (groups, classes), up to a term of the group."""
    out = np.zeros((len(votes.n), CLASSES))
    for block in blocks(votes, mean):
        out[block.groups] = block.evidence()
    return out


def probabilities(logs: Floats, weights: Floats) -> Floats:
    """Return how probable each class is for each group, from ln of how well it explains the group and how common it is."""
    logs = logs + np.log(np.maximum(weights, 1e-12))
    chances = np.exp(logs - logs.max(axis=-1, keepdims=True))
    return np.asarray(chances / chances.sum(axis=-1, keepdims=True))


def _prior(value: Any) -> Any:
    if value is None or isinstance(value, Prior):
        return value
    names = Prior.__dataclass_fields__
    fields = value if isinstance(value, Mapping) and set(value) == set(names) else {}
    if not fields or not all(isinstance(part, list | tuple | np.ndarray) for part in fields.values()):
        raise InvalidParameter("this is not a prior", _HINT)
    try:
        parts = mean, error, *weights, own = [np.array(fields[name], dtype=np.float64) for name in names]
    except (TypeError, ValueError):
        raise InvalidParameter("a prior holds numbers only", _HINT) from None
    common = all(_shares(one) and len(one) == CLASSES for one in weights)
    part = own.ndim == 1 and len(own) <= 1 and ((own >= 0) & (own <= 1)).all()
    if not (_shares(mean) and common and len(error) == len(mean) and (error >= 0).all() and part):
        raise InvalidParameter("the shares of a prior are positive and sum to one", _HINT)
    return Prior(*(tuple(part.tolist()) for part in parts))


def _shares(numbers: Floats) -> bool:
    return bool(numbers.ndim == 1 and len(numbers) and (numbers > 0).all() and abs(numbers.sum() - 1.0) < 1e-6)


PriorField = Annotated[Prior | None, BeforeValidator(_prior), PlainSerializer(lambda prior: prior and asdict(prior))]


Z = deviations(0.95)
_WINDOW = np.arange(4)  # levels that are computed together: the sum of shares mostly passes one between two of these


def medians(votes: Votes, mean: Floats, weights: Floats, classes: Floats) -> Floats:
    """Return the posterior quantiles, all of one level in each group, that sum to one: the least expected absolute error.

    At a minimum of sum_x E|t_x - theta_x| among t that sum to one, P(theta_x < t_x) is the same for all x.

    Args:
        votes: those of all groups.
        mean: the shares of all groups together.
        weights: how common the classes are.
        classes: how probable each class is for each group, (groups, classes).

    """
    out = np.empty(votes.numbers.shape)
    for block in blocks(votes, mean):
        out[block.groups] = _medians(block, weights, classes[block.groups])
    return out


def credible(votes: Votes, mean: Floats, classes: Floats, added: Floats) -> tuple[Floats, Floats, Floats]:
    """Return standard errors, low and high ends of 95 % of shares, each of shape (groups, values).

    The posterior takes the mean of all groups for certain. Its error adds to that of each estimate as far as this is borrowed;
    source: Morris, "Parametric empirical Bayes inference: theory and applications", JASA 1983.

    Args:
        votes: those of all groups.
        mean: the shares of all groups together.
        classes: how probable each class is for each group, (groups, classes).
        added: the error of the mean as far as each estimate borrows from it.

    """
    error, low, high = (np.empty(votes.numbers.shape) for _ in range(3))
    for block in blocks(votes, mean):
        for cells in block.cells:
            rows, at = block.groups[cells.rows], classes[block.groups[cells.rows]]
            centre, square = ((cells.moment(power)[cells.kind] * at).sum(axis=1) for power in (1, 2))
            ends = np.tile(LEVELS[[0, -1]], (len(rows), 1))
            both = quantiles(cells, at, ends, np.zeros(len(rows), dtype=np.int64))
            place = rows, cells.value
            error[place] = np.hypot(np.sqrt(np.maximum(square - centre**2, 0.0)), added[place])
            low[place] = centre - np.hypot(np.maximum(centre - both[:, 0], 0.0), Z * added[place])
            high[place] = centre + np.hypot(np.maximum(both[:, 1] - centre, 0.0), Z * added[place])
    return error, np.maximum(low, 0.0), np.minimum(high, 1.0)


def _medians(block: Block, weights: Floats, classes: Floats, first: NDArray[np.int64] | None = None) -> Floats:
    """Return the medians of the groups of a block; ``first`` is the first of the levels that are computed for each."""
    typical = [typical_quantiles(cells, weights) for cells in block.cells]
    if first is None:
        first = np.clip((_totals(block, typical) < 1.0).sum(axis=1) - 2, 0, len(LEVELS) - len(_WINDOW))
    shares = np.empty((len(_WINDOW), len(classes), block.values))
    for cells, (start, _) in zip(block.cells, typical, strict=True):
        at = first[cells.rows]
        levels, near = LEVELS[at[:, None] + _WINDOW], start[cells.kind, at + 2]
        shares[:, cells.rows, cells.value] = quantiles(cells, classes[cells.rows], levels, near).T
    totals = shares.sum(axis=2)
    out = _summing_to_one(shares, totals)
    for row in np.flatnonzero(out.sum(axis=1) <= 0):
        out[row] = _means(block, classes, int(row))
    out /= out.sum(axis=1, keepdims=True)
    moved = np.clip(first + 3 * ((totals[-1] < 1.0).astype(np.int64) - (totals[0] >= 1.0)), 0, len(LEVELS) - len(_WINDOW))
    again = moved != first
    if again.any():
        out[again] = _medians(block.only(again), weights, classes[again], moved[again])
    return out


def _totals(block: Block, typical: list[tuple[NDArray[np.int64], Floats]]) -> Floats:
    """Return the sums of the typical quantiles of the shares of each group, (groups, levels)."""
    totals = np.zeros((len(block.groups), len(LEVELS)))
    for cells, (_, shares) in zip(block.cells, typical, strict=True):
        totals[cells.rows] += shares[cells.kind]
    return totals


def _summing_to_one(shares: Floats, totals: Floats) -> Floats:
    """Return shares between those of the two levels between which their sum passes one."""
    groups, after = np.arange(shares.shape[1]), np.clip((totals < 1.0).sum(axis=0), 1, len(_WINDOW) - 1)
    low, high = totals[after - 1, groups], totals[after, groups]
    part = np.clip((1.0 - low) / np.maximum(high - low, 1e-12), 0.0, 1.0)[:, None]
    return np.asarray((1.0 - part) * shares[after - 1, groups] + part * shares[after, groups])


def _means(block: Block, classes: Floats, row: int) -> Floats:
    """Return the posterior means of the shares of one group."""
    out = np.zeros(block.values)
    for cells in block.cells:
        of_row = cells.kind[cells.rows == row]
        out[cells.value] += (cells.moment(1)[of_row] * classes[row]).sum()
    return out


# Quantiles of the posteriors of shares, each a mixture over the classes of its group.
#
# Groups of one kind have the same posterior in each class, so its distribution is computed once for each kind. Only how the
# classes are mixed is the group's own: the distribution of the mixture is computed only where a quantile is looked for.


LEVELS = np.concatenate([[0.025], np.arange(0.05, 0.96, 0.05), [0.975]])
_KINDS, _AT_ONCE = 1 << 12, 1 << 13  # kinds and rows in memory
_NEAR = 10  # candidates
_RARE = 1e-30  # a chance that single precision cannot divide by

Single = NDArray[np.float32]


def typical_quantiles(cells: Cells, weights: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Return the quantiles at `LEVELS` of each kind, (kinds, levels), if groups have these classes; first their candidates."""
    each = cells.mixture(weights)[cells.number] * cells.likelihood
    each /= np.maximum(each.sum(axis=1, keepdims=True), LEAST)
    after, _ = _after(each, np.broadcast_to(LEVELS, (len(each), len(LEVELS))), whole=cells.whole)
    return after, _candidates(cells, np.arange(len(each)))(after)


def quantiles(cells: Cells, classes: Floats, levels: Floats, near: NDArray[np.int64]) -> Floats:
    """Return the quantiles of each share at rising levels, (shares, levels).

    Args:
        cells: the shares.
        classes: the probabilities of the classes of the group of each share.
        levels: those of each share, from 0 to 1.
        near: a candidate of each share near its quantiles, which is where the search begins.

    """
    if not cells.alike:
        return _mixed(cells, classes, levels)
    out = np.empty(levels.shape)
    for first in range(0, len(cells.number), _KINDS):
        below = distributions(cells, slice(first, first + _KINDS))
        chosen = np.flatnonzero((cells.kind >= first) & (cells.kind < first + _KINDS))
        for at in range(0, len(chosen), _AT_ONCE):
            rows = chosen[at : at + _AT_ONCE]
            some = Shares(cells, below, cells.kind[rows], cells.kind[rows] - first, classes[rows].astype(np.float32))
            out[rows] = some.quantiles(levels[rows], near[rows])
    return out


def _mixed(cells: Cells, classes: Floats, levels: Floats) -> Floats:
    """Return the shares at which posteriors reach levels, (shares, levels), from the distributions of all shares."""
    each = cells.posterior(classes)
    after, below = _after(each, levels, whole=cells.whole)
    candidate, rows = _candidates(cells, cells.kind), np.arange(len(each))[:, None]
    after = np.clip(after, 1, each.shape[1] - 1)
    return _between(candidate(after - 1), candidate(after), below[rows, after - 1], below[rows, after], levels)


def _after(each: Floats, levels: Floats, *, whole: bool) -> tuple[NDArray[np.int64], Floats]:
    """Return the candidates at which posteriors rise above levels, (shares, levels), and what is below each candidate."""
    below = each.cumsum(axis=1)
    if not whole:
        below -= each / 2.0
    rows = np.arange(len(each))[:, None]
    flat = (np.minimum(below, 1.0) + 2.0 * rows).ravel()
    return np.minimum(np.searchsorted(flat, levels + 2.0 * rows) - rows * each.shape[1], each.shape[1] - 1), below


def _between(low: Floats, high: Floats, below_low: Floats, below_high: Floats, level: Floats) -> Floats:
    """Return the shares at which distributions reach a level, interpolated between candidates."""
    part = np.clip((level - below_low) / np.maximum(below_high - below_low, LEAST), 0.0, 1.0)
    return np.asarray(low + part * (high - low))


def _candidates(cells: Cells, kind: NDArray[np.int64]) -> Callable[[NDArray[np.int64]], Floats]:
    """Return the function from numbers of candidates of shares of these kinds to the candidates, shape (shares, ...)."""
    own = cells.candidates
    if own.ndim == 1:
        return own.__getitem__
    return lambda at: own[kind if at.ndim == 1 else kind[:, None], at]


def distributions(cells: Cells, kinds: slice) -> Single:
    """Return how probable it is in each class that a share lies below each candidate, (kinds, candidates, classes).

    Half of the probability of a candidate is below it, unless the candidates are all there is.
    """
    masses, number, chances = cells.class_masses(), cells.number[kinds], cells.chances[kinds]
    likelihood, rare = cells.likelihood[kinds], np.nonzero(chances < _RARE)
    single, inverse = masses.astype(np.float32), (1.0 / np.maximum(chances, _RARE)).astype(np.float32)
    likely = np.ascontiguousarray(likelihood.T, dtype=np.float32)
    if not cells.whole:
        likely *= np.float32(0.5)
    out = np.empty((len(chances), len(masses), chances.shape[1]), dtype=np.float32)
    total = np.zeros(chances.shape, dtype=np.float32)
    for candidate in range(len(masses)):
        each = np.take(single[candidate], number, axis=0)
        each *= inverse * likely[candidate][:, None]
        total += each
        out[:, candidate] = total
        if not cells.whole:
            total += each
    if len(rare[0]):
        each = masses[:, number[rare[0]], rare[1]] * likelihood[rare[0]].T
        each /= np.maximum(each.sum(axis=0), LEAST)
        out[rare[0], :, rare[1]] = (each.cumsum(axis=0) - (0.0 if cells.whole else 0.5) * each).T
    return out


@dataclass(frozen=True)
class Shares:
    """Some shares, the distributions of their kinds, (kinds, candidates, classes), and the classes of their groups."""

    cells: Cells
    below: Single
    kind: NDArray[np.int64]
    row: NDArray[np.int64]  # of the distribution
    classes: Single

    def only(self, rows: NDArray[np.int64]) -> Shares:
        """Return some of the shares."""
        return Shares(self.cells, self.below, self.kind[rows], self.row[rows], self.classes[rows])

    def quantiles(self, levels: Floats, near: NDArray[np.int64]) -> Floats:
        """Return the quantiles at rising levels: from a few candidates next to one of each share, or else from all."""
        width = self.below.shape[1]
        few = min(_NEAR, width)
        first = np.clip(near - few // 2, 0, width - few)
        below = np.stack([self.at(first + step) for step in range(few)])
        out = np.empty(levels.shape)
        for column, level in enumerate(levels.T):
            after = (below < level).sum(axis=0)
            out[:, column] = self._between(first + after, below, after, level)
        far = ((below[0] >= levels[:, 0]) & (first > 0)) | ((below[-1] < levels[:, -1]) & (first < width - few))
        rows = np.flatnonzero(far)
        if len(rows):
            every = np.repeat(rows, levels.shape[1])
            out[rows] = self.only(every).quantile(levels[rows].ravel()).reshape(len(rows), -1)
        return out

    def quantile(self, level: Floats) -> Floats:
        """Return the quantile at the level of each share; found by bisection."""
        low, high = np.full(len(level), -1), np.full(len(level), self.below.shape[1])
        for _ in range(self.below.shape[1].bit_length()):
            middle = np.clip((low + high) // 2, 0, self.below.shape[1] - 1)
            less = self.at(middle) < level
            low, high = np.where(less, middle, low), np.where(less, high, middle)
        both = np.stack([self.at(np.maximum(high - 1, 0)), self.at(np.minimum(high, self.below.shape[1] - 1))])
        return self._between(high, both, np.ones(len(level), dtype=np.int64), level)

    def at(self, candidate: NDArray[np.int64]) -> Floats:
        """Return how probable it is that each share lies below a candidate."""
        table = self.below.reshape(-1, self.below.shape[2])
        row, classes = self.row * self.below.shape[1] + candidate, self.classes
        if len(row) == 1:  # NumPy sums a single row in another order
            row, classes = np.repeat(row, 2), np.repeat(classes, 2, axis=0)
        each = np.take(table, row, axis=0)
        return np.asarray(np.einsum("rc,rc->r", each, classes), dtype=np.float64)[: len(self.row)]

    def _between(self, high: NDArray[np.int64], below: Floats, after: NDArray[np.int64], level: Floats) -> Floats:
        """Return the shares between the candidates ``high`` and those before them, whose places in ``below`` are ``after``."""
        candidate, last = _candidates(self.cells, self.kind), self.below.shape[1] - 1
        upper = candidate(np.minimum(high, last))
        if self.cells.whole:
            return upper
        rows, lower = np.arange(len(level)), candidate(np.maximum(high - 1, 0))
        return _between(
            lower, upper, below[np.maximum(after - 1, 0), rows], below[np.minimum(after, len(below) - 1), rows], level
        )


# Neighbours: groups in order, such as days, that are the more alike the nearer they are.
#
# Groups are cut into runs of neighbours. The mean that the groups of a run are shrunk towards is that of the runs around it,
# without the run itself: what the reports of a group say is then used once. How far around is what best predicts the votes of
# each group, and if neighbours do not clearly predict better than all other groups do, all keep the common mean. After Rao,
# Yu, "Small-area estimation by combining time-series and cross-sectional data", Canadian Journal of Statistics 1994.

RUNS, CELLS = 64, 2_000  # runs, and runs times values: each run takes a few milliseconds a value
REACHES = (1.0, 2.0, 4.0, 8.0, 16.0)  # runs over which the weight of neighbours falls by e
CLEAR, LEAST_GAIN = 2.0, 4.0  # standard errors, and units of log-likelihood, that neighbours have to gain
HALF = 0.5  # of a prediction comes from neighbours: few reports of them cannot spoil it
_LEAST_CHANCE = 1e-12

Runs = NDArray[np.int64]


def with_neighbours(prior: Prior, parts: Sequence[Likelihood]) -> tuple[Runs, list[Prior]] | None:
    """Return the run of each group, and the prior of each run; None if neighbours do not help, or reports are no votes."""
    if not parts or any(part.operator.votes is None for part in parts):
        return None
    votes = Votes.joined([Votes.of(part) for part in parts])
    runs = runs_of(votes.n, votes.numbers.shape[1])
    kernel = kernel_of(votes, runs)
    if kernel is None:
        return None
    means, errors = centres(around(votes, runs, kernel), prior)
    logs = np.concatenate([evidence(votes.chosen(runs == run), mean) for run, mean in enumerate(means)])
    weights = class_weights(logs)
    wide = averaged(logs, weights)
    each = zip(means, errors, strict=True)
    return runs, [Prior(*(tuple(one.tolist()) for one in (mean, error, weights, wide))) for mean, error in each]


def runs_of(n: Floats, values: int) -> Runs:
    """Return the number of the run of each group; runs have about as many reports each."""
    most = min(RUNS, max(1, CELLS // values))
    if len(n) <= most:
        return np.arange(len(n))
    middle = np.cumsum(n) - n / 2.0
    return np.unique((middle * (most / n.sum())).astype(np.int64), return_inverse=True)[1]


def kernel_of(votes: Votes, runs: Runs) -> Floats | None:
    """Return the weights of other runs in the prediction of each, (runs, runs); None if all runs predict as well."""
    apart = np.abs(np.subtract.outer(np.arange(runs[-1] + 1), np.arange(runs[-1] + 1)))
    others = (apart > 0).astype(np.float64)
    if len(others) < 3:
        return None
    pooled = predicted(votes, runs, others)
    best, most = None, 0.0
    for reach in REACHES:
        kernel = others * np.exp((1 - apart) / reach)
        gain = log_likelihood(votes, HALF * pooled + HALF * predicted(votes, runs, kernel)) - log_likelihood(votes, pooled)
        error = float(np.sqrt(np.square(gain - gain.mean()).sum()))
        if gain.sum() > max(most, CLEAR * error, LEAST_GAIN):
            best, most = kernel, float(gain.sum())
    return best


def around(votes: Votes, runs: Runs, kernel: Floats) -> Votes:
    """Return the votes of the runs around each run."""
    numbers = np.zeros((len(kernel), votes.numbers.shape[1]))
    np.add.at(numbers, runs, votes.numbers)
    n = np.bincount(runs, weights=votes.n)
    return Votes(np.rint(kernel @ numbers), np.rint(kernel @ n), votes.low, votes.high)


def predicted(votes: Votes, runs: Runs, kernel: Floats) -> Floats:
    """Return the share of votes for each value that the runs around that of a group have, (groups, values)."""
    near = around(votes, runs, kernel)
    return (near.numbers / np.maximum(near.n, 1.0)[:, None])[runs]


def log_likelihood(votes: Votes, shares: Floats) -> Floats:
    """Return the log-likelihood of the votes of each group."""
    yes, no = (np.log(np.maximum(chance, _LEAST_CHANCE)) for chance in (shares, 1.0 - shares))
    return np.asarray((votes.numbers * yes + (votes.n[:, None] - votes.numbers) * no).sum(axis=1))


def centres(near: Votes, prior: Prior) -> tuple[Floats, Floats]:
    """Return the shares of the runs around each run, shrunk towards those of all groups, and their standard errors."""
    mean = np.array(prior.mean)
    logs = evidence(near, mean)
    weights = class_weights(logs)
    classes = probabilities(logs, weights)
    added = prior.borrowed_votes(near, classes)[:, None] * np.array(prior.error)
    return floored(medians(near, mean, weights, classes)), credible(near, mean, classes, added)[0]
