"""Reacts to Ctrl-C while the main thread is inside DuckDB, where Python runs no handler.

Python calls its handlers in the main thread, between two steps of Python code. There is no such step while DuckDB waits for its
own threads, so a second Ctrl-C would change nothing. The C handler below Python's writes a byte for each signal into a socket
at once (`signal.set_wakeup_fd`), and a thread of this module reads it.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import NoReturn

PATIENCE = 2.0  # seconds after the first Ctrl-C; a quick double press does not end a process that is about to stop by itself
_EXIT_CODE = 130  # what shells report for a process that Ctrl-C ended
_FAREWELL = b"\nldpsql: DuckDB did not stop, so the second Ctrl-C ended the process (LDP904)\n"


class _Listener(threading.Thread):
    """A thread that hears the signals of the process until its socket is closed.

    Args:
        stop: what the first Ctrl-C calls.
        ends: whether the second Ctrl-C ends the process.

    """

    def __init__(self, stop: Callable[[], None], *, ends: bool) -> None:
        super().__init__(name="ldpsql-control-c", daemon=True)
        self._stop_work, self._ends = stop, ends
        self._ear, self._mouth = socket.socketpair()
        self._mouth.setblocking(False)
        self._first: float | None = None
        self._last_resort: threading.Timer | None = None
        self._before = signal.set_wakeup_fd(self._mouth.fileno(), warn_on_full_buffer=False)

    def run(self) -> None:
        while number := self._ear.recv(1):
            if self._before >= 0:
                _pass_on(self._before, number)
            if number[0] == signal.SIGINT:
                self._press()
        self._ear.close()

    def _press(self) -> None:
        if self._first is None:
            self._first = monotonic()
            self._stop_work()
        elif self._ends and self._last_resort is None:
            self._last_resort = threading.Timer(max(0.0, self._first + PATIENCE - monotonic()), _end_process)
            self._last_resort.daemon = True
            self._last_resort.start()

    def close(self) -> None:
        """Give the signals back to their former listener; return when this one can do nothing more."""
        signal.set_wakeup_fd(self._before, warn_on_full_buffer=False)
        self._mouth.close()
        self.join()
        if self._last_resort is not None:
            self._last_resort.cancel()


@contextmanager
def heard(stop: Callable[[], None], *, ends: bool) -> Iterator[None]:
    """Within a ``with`` block of the main thread, call ``stop`` from another thread at the first Ctrl-C.

    Args:
        stop: the function to call; it must not raise.
        ends: whether a second Ctrl-C ends the process if the block still runs `PATIENCE` seconds after the first.

    """
    listener = _Listener(stop, ends=ends)
    listener.start()
    try:
        yield
    finally:
        listener.close()


def _pass_on(descriptor: int, number: bytes) -> None:
    """Write a signal's byte for an event loop that listens, too."""
    with suppress(OSError):
        if os.name == "nt":  # a socket, which Windows does not take for a file
            with socket.socket(fileno=os.dup(descriptor)) as other:
                other.send(number)
        else:
            os.write(descriptor, number)


def _end_process() -> NoReturn:
    with suppress(OSError):
        os.write(2, _FAREWELL)
    os._exit(_EXIT_CODE)
