"""Ctrl-C while DuckDB runs."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from duckdb import DuckDBPyConnection


@contextmanager
def interruptible(con: DuckDBPyConnection) -> Iterator[DuckDBPyConnection]:
    """Make Ctrl-C stop the statement that runs in a connection.

    DuckDB 2.0 sees the signal by itself but then waits for its other threads, which in some five of a hundred runs were not
    told and went on to the end of the statement.
    """

    def stop(_signal: int, _frame: object) -> None:
        con.interrupt()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield con
    finally:
        signal.signal(signal.SIGINT, before)
