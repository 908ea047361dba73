"""Estimators that held-out reports judge: tables that leave a model of few parameters, and means of estimators on trial."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ldpsql.errors import IllConditioned, NotApplicable
from ldpsql.estimators.base import ALIKE, Estimator, IterativeEstimator, Split, StopField, clear, gained
from ldpsql.inference.counting import margin, summed
from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.limits import check, within_part
from ldpsql.inference.operators import Floats
from ldpsql.inference.outcome import Fit, Status, simplex_projection
from ldpsql.inference.solver.mle import em_step, uniform

FOLDS = 3
CELLS = 4_000_000  # of groups x folds x cells, for the groups that are estimated together
STEPS = 30  # if margins can neither be estimated by themselves nor inverted
EVEN = 1e-6  # of the start is shared equally by all cells, so that no cell is ruled out


class TableEstimator(IterativeEstimator):
    """An estimator of the joint table of several columns: an implementation sets ``name`` and `model`.

    Steps of IBU lead from the model to the maximum of the likelihood. 'held_out' takes as many as best predict held-out
    reports, with a model of the other reports; 0 takes none.
    """

    stop: StopField = Field("held_out", description="'held_out', a number of steps from the model, 'paper' or 'certified'")
    max_iterations: Annotated[int, Field(ge=1, le=10_000_000)] = Field(1000, description="most steps")
    least_gain: ClassVar[float] = 0.1  # of more steps: they begin at a model, and a few too many do little harm
    start: ClassVar[None] = None  # type: ignore[misc]  # it is the model

    @abstractmethod
    def model(self, likelihood: Likelihood) -> Floats:
        """Return the shares of all cells under the model for every group, shape (groups, cells)."""

    @abstractmethod
    def plain(self) -> Estimator:
        """Return the estimator of reports of one column."""

    def fit(self, likelihood: Likelihood) -> Fit:
        """Estimate every group from its model on."""
        if len(likelihood.variables) < 2:
            return self.plain().fit(likelihood)
        together = max(1, CELLS // (FOLDS * likelihood.operator.inputs))
        return self.each(likelihood, lambda part: self.stepped(part, Status.REGULARISED), together)

    def folds(self, likelihood: Likelihood) -> int:  # noqa: ARG002  # a table has many cells
        return FOLDS

    def started(self, likelihood: Likelihood) -> Floats:
        return (1.0 - EVEN) * self.model(likelihood) + EVEN / likelihood.operator.inputs

    def started_folds(self, parts: Split, start: Floats) -> Floats:  # noqa: ARG002  # it depends on all reports
        """Return the model of what each fold is predicted from."""
        return self.started(parts.learnt)


def shares_of(likelihood: Likelihood, columns: Sequence[int], estimator: Estimator) -> Floats:
    """Return the estimated table of some columns, given by rising numbers, for every group: shape (groups, cells of these)."""
    part = margin(likelihood, columns)
    if part is not None:
        return estimator.fit(part).theta
    return simplex_projection(summed(unbiased(likelihood), [variable.size for variable in likelihood.variables], columns))


def unbiased(likelihood: Likelihood) -> Floats:
    """Return shares of all cells whose sums are nearly unbiased; single ones may be negative."""
    try:
        return likelihood.operator.invert(likelihood.shares)
    except (IllConditioned, NotApplicable):
        theta = uniform(likelihood)
        for _ in range(STEPS):
            theta = em_step(likelihood, theta)
        return theta


def outer(tables: Sequence[Floats]) -> Floats:
    """Return the product of the shares of columns, each of shape (groups, values): shape (groups, cells)."""
    out = np.ones((len(tables[0]), 1))
    for own in tables:
        out = (out[:, :, None] * own[:, None, :]).reshape(len(out), -1)
    return out


def mutual_information(table: Floats) -> float:
    """Return the mutual information of two columns in nats, from the shares of their table, shape (values, values)."""
    alone = table.sum(axis=1, keepdims=True) * table.sum(axis=0, keepdims=True)
    seen = table > 0
    return float((table[seen] * np.log(table[seen] / alone[seen])).sum())


FINER_COUNTS, LAST_COUNTS = (0.5, 2.0), (1.0, 2.0)  # standard errors of a gain, from which it counts, and counts fully
COMPARING = 0.7  # of the time until the deadline; the rest is for the estimate by what was chosen
Mask: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True)
class Trial:
    """A candidate: what it expects of each fold, having learnt from the others, and how many steps it takes in each group.

    In a group where it is not ``tried`` it has no score, and ``expected`` is what the best candidate before it expects.
    """

    estimator: Estimator
    expected: Floats
    scores: Floats
    steps: NDArray[np.int64] | None
    learnt: Floats
    tried: Mask

    @classmethod
    def of(cls, estimator: Estimator, part: Likelihood, parts: Split, where: Mask, before: Floats) -> Trial | None:
        """Return the trial of an estimator in some groups; None if it does not apply.

        ``before``, shape (folds of all groups, reports), is what the best candidate so far expects.
        """
        rows = where[parts.group]
        some = parts.of_rows(rows)
        try:
            theta, steps = learnt(estimator, part, some)
        except (NotApplicable, IllConditioned):
            return None
        check()  # an estimator that was cut short is not compared
        expected, shares = before.copy(), np.zeros((len(rows), part.operator.inputs))
        expected[rows], shares[rows] = part.operator.forward(theta), theta
        return cls(estimator, expected, some.scores(expected[rows]), steps, shares, where)

    def fitted(self, part: Likelihood, parts: Split, rows: NDArray[np.int64]) -> tuple[Floats, NDArray[np.int64]]:
        """Return the estimates of some groups and the numbers of steps: from all their reports, or the mean over the folds.

        The latter if there is no time for the former.
        """
        some = part.with_counts(part.counts[rows])
        if self.steps is None or not isinstance(self.estimator, IterativeEstimator):
            fit = self.estimator.fit(some)
            theta, taken, late = fit.theta, fit.iterations, Status.OUT_OF_TIME in fit.status
        else:
            begin = self.estimator.started(some)
            theta, taken = self.estimator.after_steps(some, begin, self.steps[rows], self.estimator.limits())
            late = bool((taken < self.steps[rows]).any())
        return parts.means(self.learnt)[rows] if late else theta, taken

    def name(self, group: int) -> str:
        """Return the estimator of a group, with its number of steps."""
        if self.steps is None or not isinstance(self.estimator, IterativeEstimator):
            return str(self.estimator)
        return stopped(type(self.estimator), int(self.steps[group]))


Kind: TypeAlias = tuple[tuple[float, float], list[Trial]]  # the standard errors from which it counts, and counts fully


@dataclass(frozen=True)
class Comparison:
    """The trials of candidates, how much each counts in each group, (trials, groups), and those that there was no time for."""

    parts: Split
    trials: list[Trial]
    weights: Floats
    untried: list[Estimator]

    def fitted(self, part: Likelihood) -> tuple[Floats, NDArray[np.int64]]:
        """Return the mean of the estimates of each group, from all reports, and the number of steps of all of them."""
        theta, steps = np.zeros((len(part.n), part.operator.inputs)), np.zeros(len(part.n), dtype=np.int64)
        for trial, weight in zip(self.trials, self.weights, strict=True):
            rows = np.flatnonzero(weight)
            if len(rows):
                shares, taken = trial.fitted(part, self.parts, rows)
                theta[rows] += weight[rows, None] * shares
                steps[rows] += taken
        return theta, steps

    def names(self) -> tuple[str, ...]:
        """Return the estimators that count in each group."""
        each = zip(range(self.weights.shape[1]), self.weights.T, strict=True)
        return tuple(" + ".join(t.name(g) for t, weight in zip(self.trials, here, strict=True) if weight) for g, here in each)

    def reasons(self) -> tuple[str, ...]:
        """Return how far the others are behind the best in each group."""
        top, highest = leading(self.parts, self.trials)
        behind = [gained(self.parts, trial.expected, highest) for trial in self.trials]
        late = f"; there was no time to compare {', '.join(map(str, self.untried))}" if self.untried else ""
        return tuple(reason(self.trials, behind, int(best), group) + late for group, best in enumerate(top))


def compared(part: Likelihood, parts: Split, kinds: Sequence[Sequence[Estimator]], margin: float) -> Comparison:
    """Return the trials of all kinds of candidates that apply, and how much each counts.

    The last of three kinds or more takes long: it is tried only in groups where a kind after the first counts.
    """
    tried: list[Kind] = []
    left = [(number, estimator) for number, kind in enumerate(kinds) for estimator in kind]
    with within_part(COMPARING):
        for number, kind in enumerate(kinds):
            last = number == len(kinds) - 1
            where = rough(parts, tried, margin) if last and number > 1 else np.ones(parts.groups, dtype=np.bool_)
            before = leading(parts, flat(tried))[1] if flat(tried) else np.zeros_like(parts.held_out.counts)
            trials = list[Trial]()
            tried.append((LAST_COUNTS if last else FINER_COUNTS, trials))
            for estimator in kind if where.any() else ():
                trial = Trial.of(estimator, part, parts, where, before)
                trials.extend([trial] if trial else [])
                del left[0]
            left = [pair for pair in left if pair[0] > number]
    return Comparison(parts, flat(tried), weighed(parts, tried, margin), [estimator for _, estimator in left])


def rough(parts: Split, kinds: list[Kind], margin: float) -> Mask:
    """Return the groups in which a kind after the first counts."""
    return np.asarray(weighed(parts, kinds, margin)[len(kinds[0][1]) :].any(axis=0))


def flat(kinds: list[Kind]) -> list[Trial]:
    """Return the trials of all kinds."""
    return [trial for _, trials in kinds for trial in trials]


def learnt(estimator: Estimator, part: Likelihood, parts: Split) -> tuple[Floats, NDArray[np.int64] | None]:
    """Return theta of each fold, learnt from the others, and the steps of each group if these folds choose them."""
    if not isinstance(estimator, IterativeEstimator) or estimator.stop != "held_out":
        return estimator.fit(parts.learnt).theta, None
    steps, theta = estimator.held_out_steps(parts, estimator.started(part), estimator.limits())
    return theta, steps


def weighed(parts: Split, kinds: list[Kind], margin: float) -> Floats:
    """Return how much each trial counts in each group, (trials, groups).

    Those of one kind that are alike count the same. Each kind after the first counts as far as it clearly gains on all kinds
    before it. Its trials are as wrong as they are rough, so fewer of them count as alike.
    """
    weights, before = np.zeros((0, parts.groups)), list[Trial]()
    for counts, trials in kinds:
        if before and trials:
            gain = gained(parts, leading(parts, before)[1], leading(parts, trials)[1])
            part = clear(*gain, *counts)
            weights = np.concatenate([(1.0 - part) * weights, part * alike(parts, trials, margin / 2.0)])
        elif trials:
            weights = alike(parts, trials, margin)
        before += trials
    return weights


def alike(parts: Split, trials: list[Trial], margin: float) -> Floats:
    """Return equal weights for the best trial of each group and all that cannot be distinguished from it, (trials, groups)."""
    highest = leading(parts, trials)[1]
    behind = [gained(parts, trial.expected, highest) for trial in trials]
    near = np.array([gain <= np.maximum(ALIKE, margin * error) for gain, error in behind], dtype=np.float64)
    return np.asarray(near / near.sum(axis=0))


def leading(parts: Split, trials: list[Trial]) -> tuple[NDArray[np.int64], Floats]:
    """Return the number of the best trial of each group, and what it expects of each fold."""
    top = np.array([trial.scores for trial in trials]).argmax(axis=0)
    return top, np.stack([trial.expected for trial in trials])[top[parts.group], np.arange(len(parts.group))]


def reason(trials: list[Trial], behind: list[tuple[Floats, Floats]], top: int, group: int) -> str:
    """Return how far the others that were tried are behind the best in a group."""
    lags = [
        f"{trial.name(group)} {-gain[group]:.1f} +- {error[group]:.1f}"
        for number, (trial, (gain, error)) in enumerate(zip(trials, behind, strict=True))
        if number != top and trial.tried[group]
    ]
    return f"log-likelihood of held-out reports, relative to {trials[top].name(group)}: {', '.join(lags)}"


@lru_cache(maxsize=4096)
def stopped(estimator: type[IterativeEstimator], steps: int) -> str:
    """Return an estimator that takes this many steps."""
    return str(estimator(stop=str(steps)))
