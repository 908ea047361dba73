"""Limits of an iterative estimator: steps for each group, and a deadline for all groups together."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, ClassVar

from ldpsql.errors import Interrupted
from ldpsql.inference.deadline import late, soonest

if TYPE_CHECKING:
    from ldpsql.inference.outcome import Status


class Limits:
    """Counts the steps of a group; see `take`.

    Args:
        steps: the most for one group.
        seconds: the most for all groups together; None if only the limit of `ldpsql.inference.deadline` applies.

    """

    _interrupts = 0  # in this process
    _ending: ClassVar[set[object]] = set()  # statements that were stopped and have not ended

    def __init__(self, steps: int = 10_000, seconds: float | None = None) -> None:
        self.most, self.steps, self._interrupts_before = steps, 0, Limits._interrupts
        self._end, self._untimed = soonest(seconds), steps

    @classmethod
    def interrupt(cls) -> None:
        """End every solve that runs, in any thread, at its next step; later solves are not affected."""
        cls._interrupts += 1

    @classmethod
    def refuse(cls, ending: object) -> None:
        """End every solve, including later ones, until `allow`: a statement that was stopped may be about to begin one."""
        cls._ending.add(ending)

    @classmethod
    def allow(cls, ended: object) -> None:
        """Let solves run again, unless another object refuses them."""
        cls._ending.discard(ended)

    def untimed(self, steps: int) -> None:
        """Take at most this many steps if there is no deadline: for steps that take long."""
        self._untimed = steps

    @property
    def _allowed(self) -> int:
        return min(self.most, self._untimed) if self._end is None else self.most

    def renew(self) -> None:
        """Start with another group: its steps are counted from 0."""
        self.steps = 0

    @property
    def late(self) -> bool:
        """Whether the deadline has passed; every loop of a solve checks it.

        Raises:
            Interrupted: if `interrupt` was called since this object was created, or a stopped statement has not ended.
            InvalidParameter: if there is no deadline, and the work takes too long.

        """
        if Limits._ending or Limits._interrupts != self._interrupts_before:
            raise Interrupted
        return late() or (self._end is not None and monotonic() > self._end)

    def take(self) -> bool:
        """Count one more step; return False if no step is left or the deadline has passed."""
        if self.steps >= self._allowed or self.late:
            return False
        self.steps += 1
        return True

    @property
    def status(self) -> Status:
        """Why the solve of a group that is not certified ended."""
        from ldpsql.inference.outcome import Status  # noqa: PLC0415  # loads NumPy, and every connection has limits

        if self.late:
            return Status.OUT_OF_TIME
        return Status.OUT_OF_STEPS if self.steps >= self._allowed else Status.ROUNDED
