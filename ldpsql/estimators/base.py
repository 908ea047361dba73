"""The base classes of estimators, which turn a likelihood into a distribution, and the random splits with which they choose."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from ldpsql.errors import InvalidParameter, OutOfTime
from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.limits import Limits, check, late
from ldpsql.inference.operators import Floats
from ldpsql.inference.outcome import Fit, Status, simplex_projection
from ldpsql.inference.score_intervals import of_each
from ldpsql.inference.solver.mle import begun, maximum_likelihood
from ldpsql.inference.solver.together import TINY, Rows, moved, until_still
from ldpsql.mechanisms.spec import Spec

# Random numbers with which estimators choose how much to smooth: splits of counts, and simulated counts.
#
# They are functions of the counts: the generator is keyed by them, so the same reports give the same estimate. They do not
# protect anybody; the noise of mechanisms comes from `ldpsql.channels.randomness`.

FOLDS = 10


def generator(counts: Floats) -> np.random.Generator:
    """Return a generator keyed by counts, independent of their order."""
    key = blake2b(np.sort(counts, axis=None).tobytes(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(key, "little")))


@dataclass(frozen=True)
class Split:
    """Reports of some groups in folds: what is learnt from the other folds, and what is held out, a row for each fold.

    ``group`` is the number of the group of each row, out of ``groups``.
    """

    learnt: Likelihood
    held_out: Likelihood
    group: NDArray[np.int64]
    groups: int

    def of_rows(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Split:
        """Return some rows; groups keep their numbers."""
        learnt, held_out = (part.with_counts(part.counts[rows]) for part in (self.learnt, self.held_out))
        return Split(learnt, held_out, self.group[rows], self.groups)

    def scores(self, expected: Floats) -> Floats:
        """Return the log-likelihood of the held-out reports of each group, from the probabilities that each row gives them.

        That of a group without rows is minus infinity, so that it is never higher than before.
        """
        logs = np.log(np.maximum(expected, TINY))
        sums = self.totals(np.einsum("gz,gz->g", self.held_out.counts, logs))
        return np.where(np.bincount(self.group, minlength=self.groups) > 0, sums, -np.inf)

    def means(self, theta: Floats) -> Floats:
        """Return the mean over the rows of each group of theta, shape (rows, values); equal shares for a group without rows."""
        rows = np.bincount(self.group, minlength=self.groups)
        out = np.full((self.groups, theta.shape[1]), 1.0 / theta.shape[1])
        out[rows > 0] = 0.0
        np.add.at(out, self.group, theta / rows[self.group, None])
        return out

    def totals(self, of_rows: Floats) -> Floats:
        """Return the sum over the rows of each group."""
        return np.bincount(self.group, weights=of_rows, minlength=self.groups).astype(np.float64)


def split(likelihood: Likelihood, number: int = FOLDS, certain: Floats | None = None) -> Split:
    """Split the reports of every group into folds, each report by a fair draw.

    Folds that would leave no reports to learn from are left out. Counts are split from the smallest to the largest, so that the
    order of reports does not matter if their counts differ. ``certain``, shape (groups, reports), is a part of each count that
    is shared equally among the folds instead; see `certain_parts`.
    """
    learnt, held_out, group = [], [], []
    for i, counts in enumerate(likelihood.counts):
        parts = shared_out(counts, number, None if certain is None else certain[i])
        held = parts[counts.sum() > parts.sum(axis=1) + 0.5]
        learnt.append(np.maximum(counts - held, 0.0))
        held_out.append(held)
        group.append(np.full(len(held), i, dtype=np.int64))
    first, second = (likelihood.with_counts(np.concatenate(parts)) for parts in (learnt, held_out))
    return Split(first, second, np.concatenate(group), len(likelihood.counts))


def shared_out(counts: Floats, number: int, certain: Floats | None) -> Floats:
    """Return the counts of every fold, shape (folds, reports)."""
    order, draw = np.argsort(counts, kind="stable"), generator(counts)
    chance = counts[order]
    if certain is not None:
        chance = np.floor(chance * (1.0 - certain[order]) + draw.random(len(order)))
        chance = np.minimum(chance, counts[order])
    parts = np.empty((number, len(counts)))
    parts[:, order] = draw.multinomial(chance.astype(np.int64), np.full(number, 1.0 / number)).T
    parts[:, order] += (counts[order] - chance) / number
    return parts


def certain_parts(likelihood: Likelihood) -> Floats:
    """Return for each report the part of its number that noise does not change, if reports name values and all are alike.

    The number of reports y from the people who have x is binomial, so its variance is its mean times 1 - P(y|x). If the rest of
    each count is split at random, folds differ by the noise, and not by who is in them: what predicts a fold best is then close
    to the shares of the people who reported.
    """
    votes = likelihood.operator.votes
    if votes is None or not likelihood.operator.exchangeable:
        return np.zeros_like(likelihood.counts)
    theta, (low, high) = simplex_projection(likelihood.operator.invert(likelihood.shares)), votes
    return (low**2 + (high**2 - low**2) * theta) / (low + (high - low) * theta)


def folds(one: Likelihood, number: int = FOLDS) -> tuple[Likelihood, Likelihood]:
    """Return the reports of one group in folds, as `split` makes them: those of the other folds, and the folds."""
    parts = split(one, number)
    return parts.learnt, parts.held_out


def redrawn(one: Likelihood, theta: Floats, draw: np.random.Generator) -> Likelihood:
    """Return simulated reports of one group, as if theta, shape (1, inputs), were the truth.

    If the operator holds only observed reports, ``theta`` has to be the maximum of their likelihood: reports are drawn from
    those.
    """
    chance = one.operator.forward(theta)[0] if one.operator.complete else one.shares[0]
    return one.with_counts(draw.multinomial(int(one.n[0]), chance / chance.sum())[None].astype(np.float64))


# How much better one estimate predicts held-out reports than another, and how clear that is.

ALIKE = 2.0  # in log-likelihood; Edwards, "Likelihood", 1972: two units of support


def gained(parts: Split, before: Floats, after: Floats) -> tuple[Floats, Floats]:
    """Return the gain in log-likelihood of the held-out reports of each group, and its standard error."""
    counts = parts.held_out.counts
    seen = counts > 0
    with np.errstate(divide="ignore", invalid="ignore"):
        rise = np.where(seen, np.log(np.where(seen, after, 1.0)) - np.log(np.where(seen, before, 1.0)), 0.0)
    rise = np.nan_to_num(rise, nan=0.0, posinf=50.0, neginf=-50.0)  # a probability of zero counts as e^-50
    total, n = parts.totals((counts * rise).sum(axis=1)), np.maximum(parts.totals(counts.sum(axis=1)), 1.0)
    return total, np.sqrt(np.maximum(parts.totals((counts * rise**2).sum(axis=1)) - total**2 / n, 0.0))


def clear(gain: Floats, error: Floats, least: float, most: float) -> Floats:
    """Return how clear a gain in log-likelihood is: 0 up to ``least`` standard errors, 1 from ``most`` of them on.

    A standard error below `ALIKE` counts as that.
    """
    return np.asarray(np.clip((gain / np.maximum(ALIKE, error) - least) / (most - least), 0.0, 1.0))


class Estimator(Spec):
    """Counts under a channel -> a distribution over the values: an implementation sets ``name`` and `fit`.

    It is a function of the counts: an estimator that draws takes its generator from `ldpsql.estimators.base`.
    ``distribution`` is whether its shares are never negative and sum to one, ``ordered`` whether it uses the order of any
    domain, ``borrows`` whether it fills `Fit.borrowed`. ``most_values`` is the largest domain it takes, if there is a limit:
    see `check_size`.

    Errors mean the same for all estimators: ``std_error`` and the interval state how precisely the reports determine the true
    share. For a maximum of the likelihood and for an inversion they are its own sampling error. For a regularised estimate they
    are those of the unbiased estimate behind it. Shrinking lowers the variance of an estimate and gives it an unknown bias: it
    is usually closer to the truth than the errors state, but an interval around it alone would not cover. Its interval may
    leave it out, and is not widened to hold it: an end at the estimate would look like a bound.
    """

    kind = "estimator"
    distribution: ClassVar[bool] = True
    ordered: ClassVar[bool] = False
    borrows: ClassVar[bool] = False
    most_values: ClassVar[int | None] = None
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = Field(0.95, description="probability of each interval")
    intervals: Literal["each", "simultaneous"] = Field(
        "each", description="what `confidence` refers to: 'each' interval, or all of a group together ('simultaneous')"
    )
    misfit: Literal["refuse", "allow"] = Field(
        "refuse", description="what to do with values that cannot be reports of the mechanism: 'refuse' or 'allow'"
    )
    deadline: Annotated[float, Field(gt=0)] | None = Field(
        None, description="time limit in seconds for all groups; NULL: an error after 60 and one for each group"
    )

    def pointwise(self, count: int) -> float:
        """Return the confidence of each of ``count`` intervals: `of_each`, if `confidence` refers to all of them together."""
        return of_each(self.confidence, count) if self.intervals == "simultaneous" else self.confidence

    def check_size(self, values: int) -> None:
        """Refuse a domain that is too large for this estimator, before its reports are read.

        Raises:
            InvalidParameter: if it has more than ``most_values`` values.

        """
        if self.most_values is not None and values > self.most_values:
            raise InvalidParameter(
                f"{self.name} takes at most {self.most_values} values, and the domain has {values}",
                "use ibu, empirical_bayes or best",
            )

    @property
    def needs_groups(self) -> bool:
        """Whether it has to see all groups, by `learnt`, before it can estimate one."""
        return False

    @property
    def over_all_values(self) -> bool:
        """Whether an option has a number for each value of the domain, so that no values can be left out."""
        return False

    def learnt(self, pooled: Likelihood, groups: Iterable[Likelihood]) -> Estimator:  # noqa: ARG002  # for those that learn
        """Return an estimator of single groups that knows what all groups have in common; by default, this one.

        Args:
            pooled: the reports of all groups together.
            groups: the reports of every group, some groups at a time.

        """
        return self

    def learnt_in_order(self, pooled: Likelihood, groups: Sequence[Likelihood]) -> tuple[NDArray[np.int64], list[Estimator]]:
        """Return which estimator each group has, if groups are in order, such as days, and these; by default, one for all."""
        return np.zeros(sum(len(part.counts) for part in groups), dtype=np.int64), [self.learnt(pooled, groups)]

    def weighed(self, likelihood: Likelihood) -> Likelihood:
        """Return the likelihood that errors are computed from: by default as it is, every report with the same weight."""
        return likelihood

    @abstractmethod
    def fit(self, likelihood: Likelihood) -> Fit:
        """Estimate every group of the likelihood."""

    def each(self, likelihood: Likelihood, fit: Callable[[Likelihood], Fit], together: int = 1) -> Fit:
        """Estimate some groups at a time; those for which there is no time get equal shares and the status 'out of time'."""
        starts = range(0, len(likelihood.counts), together)
        parts = (likelihood.with_counts(likelihood.counts[start : start + together]) for start in starts)
        return Fit.joined([self._in_time(part, fit) for part in parts])

    def _in_time(self, part: Likelihood, fit: Callable[[Likelihood], Fit]) -> Fit:
        try:
            check()
            outcome = fit(part)
        except OutOfTime:
            return self.unfitted(part)
        return outcome.out_of_time() if late() else outcome

    def unfitted(self, likelihood: Likelihood) -> Fit:
        """Return equal shares for every group, with the status 'out of time'."""
        groups, inputs = len(likelihood.counts), likelihood.operator.inputs
        even = np.full((groups, inputs), 1.0 / inputs)
        status, steps = (Status.OUT_OF_TIME,) * groups, np.zeros(groups, dtype=np.int64)
        return Fit(even, steps, status, ("uniform",) * groups, ("there was no time",) * groups)


RULES = ("certified", "paper", "held_out")
PATIENCE = 100  # steps without a better prediction of held-out reports, at first
LEAST_GAIN = 1.0  # in log-likelihood of all held-out reports: for less it takes no more steps
FOLDS_OF_LARGE, PATIENCE_WITH_LARGE = 3, 40  # every step takes long, and so many reports leave less to chance


def _stop(argument: object) -> str:
    text = str(argument)
    if text not in RULES and not (text.isdecimal() and text.isascii() and len(text) <= 7):
        raise InvalidParameter("stop must be 'certified', 'paper', 'held_out' or a number of steps", "for example stop := 100")
    return text


StopField = Annotated[str, BeforeValidator(_stop)]
Start = tuple[Annotated[float, Field(gt=0, lt=1)], ...]


class IterativeEstimator(Estimator):
    """An estimator that repeats a step from ``start``: an implementation sets ``name`` and its default of ``stop``.

    ``stop`` is 'certified' for the maximum of the likelihood; a number of steps; 'paper' for steps until the log-likelihood
    changes by less than ``tolerance``; or 'held_out' for as many steps as best predict held-out reports, see `held_out_steps`.
    """

    least_gain: ClassVar[float] = LEAST_GAIN
    stop: StopField = Field("certified", description="'certified', 'held_out', 'paper' or a number of steps")
    tolerance: Annotated[float, Field(gt=0, lt=1)] = Field(1e-9, description="largest gap, or change of the log-likelihood")
    max_iterations: Annotated[int, Field(ge=1, le=10_000_000)] = Field(10_000, description="most steps")
    # Declared again here, so that arguments by position keep their meaning.
    deadline: Annotated[float, Field(gt=0)] | None = Field(
        None, description="time limit in seconds for all groups; NULL: an error after 60 and one for each group"
    )
    start: Start | None = Field(None, description="the shares to start from, all above 0; by default all are equal")

    @property
    def over_all_values(self) -> bool:
        """Whether ``start`` is set."""
        return self.start is not None

    def step(self, likelihood: Likelihood, theta: Floats) -> Floats:
        """Return the next theta of every group: one step of IBU, theta * g, then what comes `after` it."""
        expected = np.maximum(likelihood.operator.forward(theta), TINY)
        return self.after(likelihood, moved(likelihood, theta, expected))

    def after(self, likelihood: Likelihood, theta: Floats) -> Floats:  # noqa: ARG002  # for those that change the step
        """Return theta after what follows each step of IBU: nothing, unless a subclass overrides it."""
        return theta

    def _step_from(self, part: Likelihood, theta: Floats, expected: Floats, rows: Rows) -> Floats:
        """Return theta after one `step`, with P(report) under theta already computed."""
        if type(self).step is not IterativeEstimator.step:
            return self.step(part, theta)
        return self.after(part, moved(part, theta, expected, rows))

    def started(self, likelihood: Likelihood) -> Floats:
        """Return the start of every group.

        Raises:
            InvalidParameter: if ``start`` does not have one share for each value.

        """
        theta = begun(likelihood)
        if self.start is None:
            return theta
        if len(self.start) != likelihood.operator.inputs:
            raise InvalidParameter("start must have one share for each value of the domain", self.signature())
        return np.broadcast_to(np.array(self.start) / sum(self.start), theta.shape)

    def limits(self) -> Limits:
        """Return how long all groups together may take."""
        return Limits(self.max_iterations, self.deadline)

    def stepped(self, likelihood: Likelihood, status: Status, begin: Floats | None = None) -> Fit:
        """Take steps until the rule ``stop`` holds; ``status`` is that of the outcome then.

        They begin at ``begin``, shape (groups, values), or by default at `started`.
        """
        theta, limits = self.started(likelihood) if begin is None else begin, self.limits()
        if self.stop == "certified":
            return maximum_likelihood(likelihood, self.tolerance, limits, None if self.start is None else theta)
        if self.stop == "paper":
            ascent = until_still(likelihood, theta, self.tolerance, limits, self._step_from)
            ended = tuple(status if how is Status.STOPPED else how for how in ascent.status)
            return Fit(ascent.theta, ascent.steps, ended)
        if self.stop == "held_out":
            folds = split(likelihood, self.folds(likelihood))
            steps, learnt = self.held_out_steps(folds, theta, limits)
            if limits.late:
                return Fit(folds.means(learnt), steps, (Status.OUT_OF_TIME,) * len(steps))
        else:
            steps = np.full(len(theta), int(self.stop), dtype=np.int64)
        theta, taken = self.after_steps(likelihood, theta, steps, limits)
        return Fit(theta, taken, tuple(status if done else Status.OUT_OF_TIME for done in taken == steps))

    def folds(self, likelihood: Likelihood) -> int:
        """Return into how many folds reports are split to choose the number of steps."""
        return FOLDS_OF_LARGE if likelihood.operator.large else FOLDS

    def started_folds(self, parts: Split, start: Floats) -> Floats:
        """Return the start of each fold: that of its group. A start that depends on reports must not see those held out."""
        return start[parts.group]

    def after_steps(self, likelihood: Likelihood, theta: Floats, steps: Rows, limits: Limits) -> tuple[Floats, Rows]:
        """Return theta after this many steps of each group, or as many as there is time for, and the numbers of steps."""
        theta, taken = theta.copy(), np.zeros_like(steps)
        for target in np.unique(steps):
            going = np.flatnonzero(steps >= target)
            part, here, before = likelihood.with_counts(likelihood.counts[going]), theta[going], int(taken[going[0]])
            more = 0
            with suppress(OutOfTime):
                while before + more < target and not limits.late:
                    here = self.step(part, here)
                    more += 1
            theta[going], taken[going] = here, before + more
        return theta, taken

    def held_out_steps(self, parts: Split, start: Floats, limits: Limits) -> tuple[Rows, Floats]:
        """Return for each group how many steps on the other folds best predict each fold, and theta of each fold after these.

        The candidates are 0, 1, 2, ... and, from 20 on, numbers about a twentieth apart; a group that has not predicted better
        for long leaves. Splitting counts at random keeps the folds independent (Neufeld, Gao, Popp, Battle, Witten, "Inference
        after latent variable estimation for single-cell RNA sequencing data", Biostatistics 2024).
        """
        groups, taken = len(start), 0
        patience = PATIENCE_WITH_LARGE if parts.learnt.operator.large else PATIENCE
        theta, part, row = self.started_folds(parts, start), parts, np.arange(len(parts.group))
        learnt, best, highest = (
            theta.copy(),
            np.zeros(groups, dtype=np.int64),
            parts.scores(parts.learnt.operator.forward(theta)),
        )
        with suppress(OutOfTime):
            while len(part.group) and taken < self.max_iterations and not limits.late:
                ahead = min(max(1, taken // 20), self.max_iterations - taken)
                for _ in range(ahead):
                    theta = self.step(part.learnt, theta)
                taken += ahead
                here = part.scores(part.learnt.operator.forward(theta))
                better = here > highest + self.least_gain
                best[better], highest[better] = taken, here[better]
                rise = better[part.group]
                learnt[row[rise]] = theta[rise]
                stay = taken < 2 * best[part.group] + patience
                if not stay.all():
                    theta, part, row = theta[stay], part.of_rows(stay), row[stay]
        return best, learnt


# Averages of neighbouring values, which what smooths shares has in common.

WEIGHT = 0.25  # of each neighbour


def smoothed(theta: Floats, layout: tuple[int, ...], weight: float = WEIGHT) -> Floats:
    """Return every value, shape (groups, values), averaged with its neighbours, along each axis of the layout in turn.

    Each neighbour has this weight, and the value itself the rest.
    """
    cells = theta.reshape(-1, *layout) if layout else theta
    for axis in range(1, 1 + len(layout)):
        moved = np.moveaxis(cells, axis, -1)
        # At the ends the weight of the missing neighbour stays with the value.
        padded = np.concatenate([moved[..., :1], moved, moved[..., -1:]], axis=-1)
        cells = np.moveaxis(weight * (padded[..., :-2] + padded[..., 2:]) + (1.0 - 2.0 * weight) * moved, -1, axis)
    return cells.reshape(theta.shape)
