"""How long an iterative estimator may go on: steps for each group, and a deadline for all of them together."""

from __future__ import annotations

from time import monotonic
from typing import ClassVar

from ldpsql.errors import Interrupted
from ldpsql.inference.deadline import soonest
from ldpsql.inference.outcome import Status


class Limits:
    """Counts the steps of a group; see `take`.

    Args:
        steps: the most for one group.
        seconds: the most for all groups together; None for no limit but that of `ldpsql.inference.deadline`.

    """

    _interrupts = 0  # in this process
    _ending: ClassVar[set[object]] = set()  # what was stopped and has not ended

    def __init__(self, steps: int = 10_000, seconds: float | None = None) -> None:
        self.most, self.steps, self._interrupts_before = steps, 0, Limits._interrupts
        self._end = soonest(seconds)

    @classmethod
    def interrupt(cls) -> None:
        """End every solve that runs, in whatever thread, at its next step; those begun later are not concerned."""
        cls._interrupts += 1

    @classmethod
    def refuse(cls, ending: object) -> None:
        """End every solve, also those not yet begun, until `allow`: a statement that was stopped may be about to begin one."""
        cls._ending.add(ending)

    @classmethod
    def allow(cls, ended: object) -> None:
        """Let solves run again, as far as this object is concerned."""
        cls._ending.discard(ended)

    def renew(self) -> None:
        """Start with another group: its steps are counted from 0."""
        self.steps = 0

    @property
    def late(self) -> bool:
        """Whether the deadline has passed; every loop of a solve asks for it.

        Raises:
            Interrupted: if `interrupt` was called since this was made, or what was stopped has not ended.

        """
        if Limits._ending or Limits._interrupts != self._interrupts_before:
            raise Interrupted
        return self._end is not None and monotonic() > self._end

    def take(self) -> bool:
        """Take one more step, unless there is none left or the deadline has passed."""
        if self.steps >= self.most or self.late:
            return False
        self.steps += 1
        return True

    @property
    def status(self) -> Status:
        """Why a group that is not certified ended where it did."""
        if self.late:
            return Status.OUT_OF_TIME
        return Status.OUT_OF_STEPS if self.steps >= self.most else Status.ROUNDED
