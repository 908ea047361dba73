"""The base class of estimators. An estimator turns a likelihood into a distribution; it does not depend on a mechanism."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ldpsql.errors import InvalidParameter, OutOfTime
from ldpsql.inference.likelihood import Likelihood
from ldpsql.inference.limits import check, late
from ldpsql.inference.outcome import Fit, Status
from ldpsql.inference.score_intervals import of_each
from ldpsql.mechanisms.spec import Spec


class Estimator(Spec):
    """Counts under a channel -> a distribution over the values: an implementation sets ``name`` and `fit`.

    It is a function of the counts: an estimator that draws takes its generator from `ldpsql.estimators.resampling`.
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
