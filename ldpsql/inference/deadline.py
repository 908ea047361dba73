"""The time at which the work on an estimate must end: operators, solvers and errors check it here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from time import monotonic, thread_time

from ldpsql.errors import InvalidParameter, OutOfTime

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
