"""The mean of the estimators that predict held-out reports best."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ldpsql.estimators import (
    ALIKE,
    Estimator,
    Fit,
    Floats,
    IllConditioned,
    IterativeEstimator,
    Likelihood,
    NotApplicable,
    Split,
    Status,
    certain_parts,
    check,
    clear,
    gained,
    hookimpl,
    split,
    within_part,
)
from ldpsql.functions import OF_PLACES, MetricName, Simulation, compare_simulated, metric_named, registry

SHRUNK = ("empirical_bayes(loss='both')",)
POOLED = (*SHRUNK, "pool")
# By how much a value makes its own report more likely, and from there on, what there is besides shrinking.
NAMED = ((0.5, (*SHRUNK, "ibu", "inv_p")), (0.25, ("empirical_bayes", "inv_p")), (0.0, SHRUNK))
STOPPED = ("ibu(stop='paper', tolerance=0.001)", "ibu(stop='held_out')")
# The paper's stop is late for channels that blur neighbours; a smoothed estimate hardly moves after a thousand steps.
SMOOTHED = "ibu(stop='held_out', max_iterations={})", "ems(stop='held_out', max_iterations={})"
# For values on a line: a rough estimate has to predict better than a smooth one, because most channels hide what is rough.
SMOOTH, ROUGH = ("ems(max_iterations={})", SMOOTHED[1]), (SMOOTHED[0], STOPPED[0])
STEPS, FEWEST_STEPS = 1000, 20
SET_CELLS = 4 * 10**9  # of sets that are read, values x reports x steps: a quarter of a minute
TABLES = ("independent", "table_bayes", "tree")  # the last one of three columns and more
TABLE_WORK = 4_000_000  # numbers of the channel of observed reports, from which on every step takes long
COMPARING = 0.7  # of the time until the deadline; the rest is for the estimate by what was chosen
CELLS = 2_000_000  # of groups x folds x (values + reports), for the groups that are estimated together


class Best(Estimator):
    """The mean of the estimators that predict held-out reports best; it states which, and by how much.

    Those are the best one and all whose log-likelihood of the held-out reports is lower by at most 2 or ``margin`` standard
    errors of the difference: estimators that cannot be distinguished are averaged, because choosing among them would follow the
    noise. Candidates are empirical Bayes for both losses if reports are votes for values; ibu and smoothing, both stopped
    early, for cells of maps; and empirical Bayes, pooling and ibu otherwise. For tables of several columns, they are ibu
    stopped early, ``independent``, ``table_bayes`` and, from three columns on, ``tree``. If many reports name the value itself,
    as those of k-RR at large epsilons, inv_p and ibu are candidates too, and the folds differ by the noise of the mechanism
    alone.

    For numbers in order there are two kinds: smoothing, and ibu that stops early or late. Reports hardly show whether
    neighbouring numbers differ, so ibu counts only as far as it predicts clearly better: from one to three standard errors. In
    the same way smoothing counts next to empirical Bayes only as far as it predicts clearly better.

    ``ldp.diagnose`` returns the estimators used as ``chosen``, and the differences as ``reason``. Every candidate is fitted
    once for each of ``splits`` folds: from a millisecond to a few seconds a group. After Hansen, Lunde, Nason, "The model
    confidence set", Econometrica 2011.

    With ``criterion := 'bootstrap'``, reports are simulated from that mean, and the estimate is by the candidate with the least
    ``metric`` in 20 simulations. ``em_mr`` and the mean are candidates too. It takes about 20 times as long. After Ye, Wang,
    Zhang, Feng, NDSS 2025, section VII.

    >>> from ldpsql.inference.operators import KeepOrSpreadOperator
    >>> few = Likelihood(KeepOrSpreadOperator(2, 0.75, 0.25), np.array([[60.0, 40.0]]))
    >>> Best().fit(few).theta.round(1).tolist()
    [[0.7, 0.3]]
    """

    name = "best"
    margin: Annotated[float, Field(ge=0, le=10)] = Field(1.0, description="what counts as alike, in standard errors")
    splits: Annotated[int, Field(ge=2, le=20)] = Field(3, description="folds that the reports are split into")
    criterion: Literal["held_out", "bootstrap"] = Field(
        "held_out",
        description="what decides: likelihood of reports that are 'held_out', or the error in simulations ('bootstrap')",
    )
    metric: MetricName = Field("mae", description="the error in simulations; positions are one apart for those that need them")

    def fit(self, likelihood: Likelihood) -> Fit:
        """Choose for every group, and estimate with the choice."""
        if self.criterion == "bootstrap":
            return self.each(likelihood, self._simulated)
        size = self.splits * (likelihood.operator.inputs + likelihood.operator.outputs)
        return self.each(likelihood, self._chosen, max(1, CELLS // size))

    def _chosen(self, part: Likelihood) -> Fit:
        parts = split(part, self.splits, certain_parts(part) if lift(part) >= NAMED[1][0] else None)
        kinds, untried = tried(part, parts)
        trials = [trial for kind in kinds for trial in kind]
        if not trials:
            return uncompared(part)
        weights = weighed(parts, kinds, self.margin)
        theta, steps = np.zeros((len(part.n), part.operator.inputs)), np.zeros(len(part.n), dtype=np.int64)
        for trial, weight in zip(trials, weights, strict=True):
            rows = np.flatnonzero(weight)
            if len(rows):
                shares, taken = trial.fitted(part, parts, rows)
                theta[rows] += weight[rows, None] * shares
                steps[rows] += taken
        status, groups = (Status.OUT_OF_TIME if untried else Status.REGULARISED,) * len(theta), range(len(theta))
        names = tuple(" + ".join(t.name(g) for t, weight in zip(trials, weights[:, g], strict=True) if weight) for g in groups)
        top, highest = leading(parts, trials)
        behind = [gained(parts, trial.expected, highest) for trial in trials]
        late = f"; there was no time to compare {', '.join(untried)}" if untried else ""
        return Fit(theta, steps, status, names, tuple(reason(trials, behind, int(top[g]), g) + late for g in groups))

    def _simulated(self, one: Likelihood) -> Fit:
        """Return the fit by the candidate with the least error in simulations, or the mean if there is no time for them."""
        if self.metric in OF_PLACES and len(one.layout) != 1:
            raise NotApplicable(f"the error '{self.metric}' needs values in order", "use metric := 'mae'")
        mean, error = self._chosen(one), metric_named(self.metric, np.arange(one.operator.inputs, dtype=np.float64))
        names = dict.fromkeys(["best", *(text for kind in candidates(one) for text in kind), "em_mr"])
        simulation = Simulation(tuple(map(registry().estimator, names)), self.metric)
        with within_part(COMPARING):
            compared = compare_simulated(one, mean.theta, simulation, error)
            errors = [(np.inf if row.error is None else row.error, row.estimator) for row in compared]
            text = ", ".join(f"{name} {size:.2g}" for size, name in sorted(errors) if np.isfinite(size))
            name = min(errors)[1]
            fit = mean if name == "best" else registry().estimator(name).fit(one)
            return replace(fit, chosen=(name,), reasons=(f"{self.metric} in simulations: {text}",))
        return replace(mean, reasons=("there was no time for simulations",))


@dataclass(frozen=True)
class Trial:
    """A candidate: what it expects of each fold, having learnt from the others, and how many steps it takes in each group."""

    estimator: Estimator
    expected: Floats
    scores: Floats
    steps: NDArray[np.int64] | None
    learnt: Floats

    @classmethod
    def of(cls, text: str, part: Likelihood, parts: Split) -> Trial | None:
        """Return the trial of an estimator; None if it does not apply."""
        estimator = registry().estimator(text)
        try:
            theta, steps = learnt(estimator, part, parts)
        except (NotApplicable, IllConditioned):
            return None
        check()  # an estimator that was cut short is not compared
        expected = part.operator.forward(theta)
        return cls(estimator, expected, parts.scores(expected), steps, theta)

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
        if self.steps is None:
            return str(self.estimator)
        return stopped(self.estimator.name, int(self.steps[group]))


def tried(part: Likelihood, parts: Split) -> tuple[list[list[Trial]], list[str]]:
    """Return the trials of each kind of candidates that apply, and the candidates for which there is no time."""
    kinds = candidates(part)
    texts = [(number, text) for number, kind in enumerate(kinds) for text in kind]
    trials: list[tuple[int, Trial | None]] = []
    with within_part(COMPARING):
        while texts:
            number, text = texts[0]
            trials.append((number, Trial.of(text, part, parts)))
            del texts[0]
    of_kinds = [[trial for of, trial in trials if of == number and trial is not None] for number in range(len(kinds))]
    return [kind for kind in of_kinds if kind], [text for _, text in texts]


def uncompared(part: Likelihood) -> Fit:
    """Return the estimates by the first candidate, if there is no time to compare any."""
    text, groups = candidates(part)[0][0], len(part.counts)
    fit = registry().estimator(text).fit(part).out_of_time()
    names, reasons = (text,) * groups, ("there was no time to compare it with others",) * groups
    return fit if fit.chosen else replace(fit, chosen=names, reasons=reasons)


@lru_cache(maxsize=4096)
def stopped(name: str, steps: int) -> str:
    """Return an estimator that takes this many steps."""
    return str(registry().estimator({"estimator": name, "stop": steps}))


def learnt(estimator: Estimator, part: Likelihood, parts: Split) -> tuple[Floats, NDArray[np.int64] | None]:
    """Return theta of each fold, learnt from the others, and the steps of each group if these folds choose them."""
    if not isinstance(estimator, IterativeEstimator) or estimator.stop != "held_out":
        return estimator.fit(parts.learnt).theta, None
    steps, theta = estimator.held_out_steps(parts, estimator.started(part), estimator.limits())
    return theta, steps


def lift(part: Likelihood) -> float:
    """Return by how much a value makes its own report more likely; 0 if reports do not name values, or have no votes."""
    votes = part.operator.votes
    return votes[1] - votes[0] if votes and part.operator.exchangeable else 0.0


def candidates(part: Likelihood) -> tuple[tuple[str, ...], ...]:
    """Return the estimators that may predict best: one kind, or two of which the second has to predict clearly better."""
    columns, work = len(part.variables), part.operator.inputs * part.operator.outputs
    if columns > 1 and (part.operator.complete or work <= TABLE_WORK):
        first, *second = of_values(part) if part.operator.votes else (STOPPED[1:],)
        return (first + TABLES[: 2 if columns == 2 else 3], *second)
    return of_values(part)


def of_values(part: Likelihood) -> tuple[tuple[str, ...], ...]:
    """Return the estimators of values without columns that may predict best."""
    line = len(part.layout) == 1
    if part.operator.votes:  # shrinking does what early stops do, in a hundredth of the time
        shrunk = next(names for least, names in NAMED if lift(part) >= least)
        smooth = in_steps(part, SMOOTH if line else SMOOTHED) if part.layout and not part.operator.isotropic else ()
        return (shrunk, smooth) if smooth else (shrunk,)
    if not part.layout and (part.operator.isotropic or part.operator.large):  # the others take too long
        return (STOPPED[1:],)
    if not part.operator.complete:
        return (("ibu", "uniform", *POOLED),)
    if line:
        return in_steps(part, SMOOTH), in_steps(part, ROUGH)
    return (in_steps(part, SMOOTHED),) if part.layout else (STOPPED + POOLED,)


def in_steps(part: Likelihood, texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the candidates for values with neighbours; with fewer steps, or none, if these would take minutes."""
    op = part.operator
    steps = STEPS if op.complete else min(STEPS, SET_CELLS // (op.inputs * op.outputs))
    return tuple(text.format(steps) for text in texts) if steps >= FEWEST_STEPS else ()


def weighed(parts: Split, kinds: list[list[Trial]], margin: float) -> Floats:
    """Return how much each trial counts in each group, (trials, groups).

    Those of one kind that are alike count the same. The second kind counts as far as its gain is clear. Its trials are as wrong
    as they are rough, so fewer of them count as alike.
    """
    weights = [alike(parts, trials, margin / (1 + kind)) for kind, trials in enumerate(kinds)]
    if len(kinds) == 1:
        return weights[0]
    second = clear(*gained(parts, *(leading(parts, trials)[1] for trials in kinds)))
    return np.concatenate([(1.0 - second) * weights[0], second * weights[1]])


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
    """Return how far the others are behind the best in a group."""
    lags = [
        f"{trial.name(group)} {-gain[group]:.1f} +- {error[group]:.1f}"
        for trial, (gain, error) in zip(trials, behind, strict=True)
    ]
    del lags[top]
    return f"log-likelihood of held-out reports, relative to {trials[top].name(group)}: {', '.join(lags)}"


@hookimpl
def ldpsql_estimators() -> list[type[Estimator]]:
    """Offer the choice by held-out reports."""
    return [Best]
