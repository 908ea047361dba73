"""Stopping what runs: a statement of DuckDB, and the solves inside its aggregates, to which DuckDB shows no interrupt."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from duckdb import DuckDBPyConnection, ResourceInUseException, TransactionException

from ldpsql.connections import duckdb_of
from ldpsql.errors import Interrupted
from ldpsql.solver.limits import Limits

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


@dataclass(eq=False)
class _Block:
    """A with block that stops with a connection: what works in it, and whether it was stopped."""

    con: DuckDBPyConnection
    working: DuckDBPyConnection
    stopped: bool = False


_BLOCKS: list[_Block] = []


def interrupt(con: DuckDBPyConnection) -> None:
    """Stop the statement that runs in a connection, and every solve that runs in this process; to be called by another thread.

    What is stopped fails and writes nothing: a solve with `Interrupted`, a statement with that or with DuckDB's own error.
    """
    Limits.interrupt()
    con.interrupt()
    for block in [block for block in _BLOCKS if block.con is con]:
        block.stopped = True
        block.working.interrupt()


@contextmanager
def stopped_with(con: DuckDBPyConnection, working: DuckDBPyConnection) -> Iterator[_Block]:
    """Let an interrupt of one connection stop another that works for it, such as a cursor, within a ``with`` block."""
    block = _Block(con, working)
    _BLOCKS.append(block)
    try:
        yield block
    finally:
        _BLOCKS.remove(block)


def until_stopped(con: DuckDBPyConnection, batches: Iterable[T]) -> Iterator[T]:
    """Give what there is until the connection is interrupted: for work in which no statement runs that DuckDB could stop.

    Raises:
        Interrupted: once it is.

    """
    with stopped_with(con, con) as block:
        for batch in batches:
            if block.stopped:
                raise Interrupted
            yield batch


def cursor_like(con: DuckDBPyConnection) -> DuckDBPyConnection:
    """Return a cursor on which names mean what they mean on its connection: DuckDB's own forgets USE.

    While a result of the connection is open DuckDB does not tell; then names are looked for where a new connection does.
    """
    cursor = con.cursor()
    try:
        ((path,),) = con.sql("SELECT current_setting('search_path')").fetchall()
    except (ResourceInUseException, TransactionException):
        return cursor
    if path:
        cursor.execute("SET search_path = ?", [path])
    return cursor


@contextmanager
def cursor_of(con: DuckDBPyConnection) -> Iterator[DuckDBPyConnection]:
    """Give a cursor like the connection, which an interrupt of it stops, within a ``with`` block."""
    with cursor_like(con) as cursor, stopped_with(con, cursor):
        yield cursor


@contextmanager
def interruptible(con: DuckDBPyConnection) -> Iterator[DuckDBPyConnection]:
    """Let Ctrl-C `interrupt` a connection, within a ``with`` block in the main thread.

    DuckDB 2.0 alone sees the signal too, but then waits for its other threads, which are not told: for a solve always, and in
    about five of a hundred runs for plain SQL to end. Another handler than Python's own is called after the interrupt.

    Raises:
        KeyboardInterrupt: in the place of whatever error Arrow or DuckDB make of Ctrl-C.
        Interrupted: in the place of theirs where another thread called `interrupt`.

    """
    before, pressed = signal.getsignal(signal.SIGINT), False

    def stop(number: int, frame: object) -> None:
        nonlocal pressed
        pressed = True
        interrupt(con)
        before(number, frame)  # type: ignore[misc, operator, arg-type]  # installed only where it can be called

    install = callable(before) and threading.current_thread() is threading.main_thread()
    if install:
        signal.signal(signal.SIGINT, stop)
    try:
        with stopped_with(con, con) as block:
            yield con
    except (Exception, KeyboardInterrupt):
        if not block.stopped:
            raise
    else:
        return
    finally:
        if install:
            signal.signal(signal.SIGINT, before)
    raise KeyboardInterrupt if pressed else Interrupted  # outside of the handler: no message of theirs comes along


def stops_with_connection(
    function: Callable[Concatenate[DuckDBPyConnection, P], R],
) -> Callable[Concatenate[DuckDBPyConnection, P], R]:
    """Make a function `interruptible` by its first argument, a connection of DuckDB or one that wraps it."""

    @wraps(function)
    def call(con: DuckDBPyConnection, /, *args: P.args, **options: P.kwargs) -> R:
        own = duckdb_of(con)
        with interruptible(own):
            return function(own, *args, **options)

    return call
