"""Estimators that take steps: the loop is here, and a subclass defines one step."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from ldpsql.errors import InvalidParameter
from ldpsql.estimators.base import Estimator
from ldpsql.estimators.resampling import FOLDS, folds
from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.operators import Floats
from ldpsql.inference.outcome import Fit, Status
from ldpsql.inference.solver.limits import Limits
from ldpsql.inference.solver.mle import em_step, maximum_likelihood, uniform

RULES = ("certified", "paper", "held_out")
PATIENCE = 100  # steps without a better prediction of held-out reports, at first
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

    stop: StopField = Field("certified", description="'certified', 'held_out', 'paper' or a number of steps")
    tolerance: Annotated[float, Field(gt=0, lt=1)] = Field(1e-9, description="largest gap, or change of the log-likelihood")
    max_iterations: Annotated[int, Field(ge=1, le=10_000_000)] = Field(10_000, description="most steps")
    # Declared again here, so that arguments by position keep their meaning.
    deadline: Annotated[float, Field(gt=0)] | None = Field(None, description="most seconds for all groups; NULL: no limit")
    start: Start | None = Field(None, description="the shares to start from, all above 0; by default all are equal")

    def step(self, likelihood: Likelihood, theta: Floats) -> Floats:
        """Return the next theta of every group: one step of IBU, theta * g, unless a subclass overrides it."""
        return em_step(likelihood, theta)

    def started(self, likelihood: Likelihood) -> Floats:
        """Return the start of every group.

        Raises:
            InvalidParameter: if ``start`` does not have one share for each value.

        """
        theta = uniform(likelihood)
        if self.start is None:
            return theta
        if len(self.start) != likelihood.operator.inputs:
            raise InvalidParameter("start must have one share for each value of the domain", self.signature())
        return np.broadcast_to(np.array(self.start) / sum(self.start), theta.shape)

    def limits(self) -> Limits:
        """Return how long all groups together may take."""
        return Limits(self.max_iterations, self.deadline)

    def stepped(self, likelihood: Likelihood, status: Status) -> Fit:
        """Take steps until the rule ``stop`` holds; ``status`` is that of the outcome then."""
        theta, limits = self.started(likelihood), self.limits()
        if self.stop == "certified":
            return maximum_likelihood(likelihood, self.tolerance, limits, None if self.start is None else theta)
        if self.stop == "paper":
            return self._until_still(likelihood, theta, status, limits)
        if self.stop == "held_out":
            parts = FOLDS_OF_LARGE if likelihood.operator.large else FOLDS
            numbers = [
                self.held_out_steps(*folds(likelihood.group(i), parts), theta[i : i + 1], limits)[0]
                for i in range(len(likelihood.counts))
            ]
        else:
            numbers = [int(self.stop)] * len(theta)
        steps = np.array(numbers, dtype=np.int64)
        theta, taken = self._after(likelihood, theta, steps, limits)
        return Fit(theta, taken, tuple(status if done else Status.OUT_OF_TIME for done in taken == steps))

    def _after(
        self, likelihood: Likelihood, theta: Floats, steps: NDArray[np.int64], limits: Limits
    ) -> tuple[Floats, NDArray[np.int64]]:
        """Return theta after this many steps of each group, or as many as there is time for, and the numbers of steps."""
        theta, taken = theta.copy(), np.zeros_like(steps)
        for target in np.unique(steps):
            going = np.flatnonzero(steps >= target)
            part = likelihood.with_counts(likelihood.counts[going])
            while taken[going[0]] < target and not limits.late:
                theta[going] = self.step(part, theta[going])
                taken[going] += 1
        return theta, taken

    def _until_still(self, likelihood: Likelihood, theta: Floats, status: Status, limits: Limits) -> Fit:
        theta, groups = theta.copy(), len(theta)
        steps = np.full(groups, self.max_iterations, dtype=np.int64)
        ended = [Status.OUT_OF_STEPS] * groups
        going, height = np.arange(groups), np.full(groups, -np.inf)
        for taken in range(self.max_iterations):
            if limits.late:
                steps[going], ended = taken, [Status.OUT_OF_TIME if i in going else e for i, e in enumerate(ended)]
                break
            part = likelihood.with_counts(likelihood.counts[going])
            risen = part.log_likelihood(theta[going])
            still = np.abs(risen - height[going]) < self.tolerance
            for group in going[still]:
                steps[group], ended[group] = taken, status
            height[going] = risen
            if still.any():
                going = going[~still]
                if not len(going):
                    break
                part = likelihood.with_counts(likelihood.counts[going])
            theta[going] = self.step(part, theta[going])
        return Fit(theta, steps, tuple(ended))

    def held_out_steps(self, learnt: Likelihood, held_out: Likelihood, start: Floats, limits: Limits) -> tuple[int, Floats]:
        """Return how many steps on the other folds best predict each fold, and the log-likelihood of each fold there.

        The candidates are 0, 1, 2, ... and, from 20 on, numbers about a twentieth apart. Splitting counts at random
        keeps the folds independent (Neufeld, Gao, Popp, Battle, Witten, "Inference after latent variable estimation for
        single-cell RNA sequencing data", Biostatistics 2024).
        """
        theta = np.repeat(start, len(learnt.counts), axis=0)
        best, taken, scores = 0, 0, held_out.log_likelihood(theta)
        patience = PATIENCE_WITH_LARGE if learnt.operator.large else PATIENCE
        while taken < min(self.max_iterations, 2 * best + patience) and not limits.late:
            ahead = min(max(1, taken // 20), self.max_iterations - taken)
            for _ in range(ahead):
                theta = self.step(learnt, theta)
            taken += ahead
            here = held_out.log_likelihood(theta)
            if here.sum() > scores.sum():
                best, scores = taken, here
        return best, scores
