"""How long an iterative estimator may go on: steps for each group, and a deadline for all of them together."""

from __future__ import annotations

from time import monotonic

from ldpsql.estimator import Status


class Limits:
    """Counts the steps of a group; see `take`.

    Args:
        steps: the most for one group.
        seconds: the most for all groups together; None for no limit.

    """

    def __init__(self, steps: int = 10_000, seconds: float | None = None) -> None:
        self._most, self.steps = steps, 0
        self._end = None if seconds is None else monotonic() + seconds

    def renew(self) -> None:
        """Start with another group: its steps are counted from 0."""
        self.steps = 0

    @property
    def late(self) -> bool:
        """Whether the deadline has passed."""
        return self._end is not None and monotonic() > self._end

    def take(self) -> bool:
        """Take one more step, unless there is none left or the deadline has passed."""
        if self.steps >= self._most or self.late:
            return False
        self.steps += 1
        return True

    @property
    def status(self) -> Status:
        """Why a group that is not certified ended where it did."""
        if self.late:
            return Status.OUT_OF_TIME
        return Status.OUT_OF_STEPS if self.steps >= self._most else Status.ROUNDED
