"""Estimators that take steps: the loop is here, and a subclass defines one step."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, ClassVar

import numpy as np
from pydantic import BeforeValidator, Field

from ldpsql.errors import InvalidParameter, OutOfTime
from ldpsql.estimators.base import Estimator
from ldpsql.estimators.resampling import FOLDS, Split, split
from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.limits import Limits
from ldpsql.inference.operators import Floats
from ldpsql.inference.outcome import Fit, Status
from ldpsql.inference.solver.mle import begun, maximum_likelihood
from ldpsql.inference.solver.together import TINY, Rows, moved, until_still

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
