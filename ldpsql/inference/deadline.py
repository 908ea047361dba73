"""The time at which the work on an estimate must end: operators, solvers and errors check it here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from time import monotonic

from ldpsql.errors import OutOfTime

_END: ContextVar[float | None] = ContextVar("end", default=None)


def soonest(seconds: float | None = None) -> float | None:
    """Return the time at which the work ends: this many seconds from now, or an earlier end already set; None means never."""
    ends = [end for end in (_END.get(), None if seconds is None else monotonic() + seconds) if end is not None]
    return min(ends, default=None)


@contextmanager
def until(end: float | None) -> Iterator[None]:
    """Make `check` raise after this time, within a ``with`` block."""
    token = _END.set(end)
    try:
        yield
    finally:
        _END.reset(token)


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
    """Return whether there is no time left."""
    end = _END.get()
    return end is not None and monotonic() > end
