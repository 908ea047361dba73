"""When the work on an estimate ends: a deadline for operators, solvers and errors, and the steps that a solver may take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from time import monotonic, thread_time
from typing import TYPE_CHECKING, ClassVar

from ldpsql.errors import Interrupted, InvalidParameter, OutOfTime

if TYPE_CHECKING:
    from ldpsql.inference.outcome import Status


SECONDS = 60.0  # of the processor, and one more for each group: what work without a deadline may take
_END: ContextVar[float | None] = ContextVar("end", default=None)
# If there is no deadline: the seconds of this thread at which the work must end, and a time before which it cannot be there,
# as reading the clock of a thread takes ten times as long.
_MOST: ContextVar[tuple[float, float] | None] = ContextVar("most", default=None)


def soonest(seconds: float | None = None) -> float | None:
    """Return the time at which the work ends: this many seconds from now, or an earlier end already set; None means never."""
    ends = [end for end in (_END.get(), None if seconds is None else monotonic() + seconds) if end is not None]
    return min(ends, default=None)


@contextmanager
def until(end: float | None, groups: int = 0) -> Iterator[None]:
    """Make `check` raise after this time, within a ``with`` block; if it is None, after what so many groups may take."""
    most = None if end is not None else _MOST.get() or _after(SECONDS + groups)
    tokens = _END.set(end), _MOST.set(most)
    try:
        yield
    finally:
        _END.reset(tokens[0])
        _MOST.reset(tokens[1])


@contextmanager
def within_part(part: float) -> Iterator[None]:
    """Let the work within a ``with`` block take at most this part of the time that is left; the block ends without an error."""
    end = _END.get()
    with until(None if end is None else monotonic() + part * (end - monotonic())), suppress(OutOfTime):
        yield


def check() -> None:
    """Return if there is time left.

    Raises:
        OutOfTime: if there is none.

    """
    if late():
        raise OutOfTime


def late() -> bool:
    """Return whether there is no time left.

    Raises:
        InvalidParameter: if there is no deadline, and the work takes too long.

    """
    end, most = _END.get(), _MOST.get()
    if most is not None and monotonic() > most[1] and thread_time() > most[0]:
        raise InvalidParameter(
            f"the estimate takes more than {SECONDS:.0f} seconds of the processor and one more for each group",
            "pass deadline := 600, in seconds, or use what fits so many values: inv, or ibu with stop := 'held_out'",
        )
    return end is not None and monotonic() > end


def _after(seconds: float) -> tuple[float, float]:
    return thread_time() + seconds, monotonic() + seconds


class Limits:
    """Counts the steps of a group; see `take`.

    Args:
        steps: the most for one group.
        seconds: the most for all groups together; None if only the limit of `ldpsql.inference.limits` applies.

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
