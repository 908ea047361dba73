"""Stopping what runs: a statement of DuckDB, and the solves inside its aggregates, to which DuckDB shows no interrupt."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
from duckdb import DuckDBPyConnection

from ldpsql.errors import Interrupted
from ldpsql.solver.limits import Limits

_HANDED_ON = re.compile(rf"Python exception.*(KeyboardInterrupt:?|\[{Interrupted.code}\] interrupted\.)\s*\Z", re.DOTALL)


def interrupt(con: DuckDBPyConnection) -> None:
    """Stop the statement that runs in a connection, and every solve that runs in this process; to be called by another thread.

    What is stopped fails and writes nothing: a solve with `Interrupted`, a statement with that or with DuckDB's own error.
    """
    Limits.interrupt()
    con.interrupt()


def interrupted(error: BaseException) -> bool:
    """Tell whether an error says that something was stopped: Arrow and DuckDB hand Ctrl-C on as errors of their own."""
    ours = isinstance(error, KeyboardInterrupt | Interrupted | duckdb.InterruptException)
    return ours or str(error) == "Query interrupted" or _HANDED_ON.search(str(error)) is not None


@contextmanager
def interruptible(con: DuckDBPyConnection) -> Iterator[DuckDBPyConnection]:
    """Let Ctrl-C `interrupt` a connection, within a ``with`` block in the main thread.

    DuckDB 2.0 alone sees the signal too, but then waits for its other threads, which are not told: for a solve always, and in
    about five of a hundred runs for plain SQL to end.

    Raises:
        KeyboardInterrupt: or the error of what was stopped.

    """

    def stop(_signal: int, _frame: object) -> None:
        interrupt(con)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield con
    finally:
        signal.signal(signal.SIGINT, before)
