"""DuckDB's connections: the own one behind wrappers, those with functions by number, and how Ctrl-C stops what they run."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from itertools import count
from threading import Lock
from time import monotonic, sleep
from types import FrameType
from typing import Any, Concatenate, NoReturn, ParamSpec, TypeVar
from weakref import ref

import duckdb
from duckdb import DuckDBPyConnection, ResourceInUseException, TransactionException

from ldpsql.engine.functions import GUARD_MACRO, MARK
from ldpsql.errors import ConnectionRefused, Interrupted
from ldpsql.inference.limits import Limits
from ldpsql.quoting import quoted, text_literal

FINDING_FILES = ("home_directory", "file_search_path")  # settings of a connection


def duckdb_of(con: Any) -> DuckDBPyConnection:
    """Return the DuckDB connection that a connection of another library wraps, or the connection itself if it is DuckDB's.

    SQLAlchemy's connection holds one of the driver, whose cursors pass attributes that they do not have to DuckDB's connection.
    """
    if isinstance(con, DuckDBPyConnection):
        return con
    try:
        pooled = con if hasattr(con, "driver_connection") else getattr(con, "connection", con)
        inner = getattr(pooled, "driver_connection", pooled).cursor().sql.__self__
    except Exception:  # noqa: BLE001  # another library may raise anything
        inner = None
    if not isinstance(inner, DuckDBPyConnection):
        from ldpsql.domains.columns import shown_class  # noqa: PLC0415  # no DuckDB connection needs it

        raise ConnectionRefused(
            f"a {shown_class(con)} is not an open connection of DuckDB",
            "pass duckdb.connect(...), or engine.connect() of SQLAlchemy with duckdb-engine",
        )
    return inner


@contextmanager
def transaction(cursor: DuckDBPyConnection) -> Iterator[None]:
    """Run a ``with`` block in a transaction, which an exception rolls back."""
    cursor.execute("BEGIN")
    try:
        yield
        cursor.execute("COMMIT")
    except BaseException:
        with suppress(duckdb.Error):  # a failed statement may have ended it
            cursor.execute("ROLLBACK")
        raise


_numbers = count(1)


def new_catalog() -> int:
    """Return a number for a catalog."""
    return next(_numbers)


def guard_number(cursor: DuckDBPyConnection, catalog: str) -> int | None:
    """Return the number of the guard that the macro of a catalog holds; None if it holds none."""
    ((number,),) = cursor.execute(f"SELECT {quoted(catalog)}.{GUARD_MACRO}()").fetchall()
    return number if isinstance(number, int) and number >= 0 else None


class Connections:
    """The connections that a catalog of ldpsql was attached to; they may be closed and forgotten at any time."""

    def __init__(self) -> None:
        self._connections: dict[int, list[ref[DuckDBPyConnection]]] = {}
        self._lock = Lock()

    def remember(self, catalog: int, con: DuckDBPyConnection) -> None:
        """Remember a connection of a catalog, without keeping it or its database open."""
        with self._lock:
            alive = [one for one in self._connections.get(catalog, []) if one() not in (None, con)]
            self._connections[catalog] = [*alive, ref(con)]

    def cursor(self, catalog: int) -> DuckDBPyConnection:
        """Return a cursor of one of the connections of a catalog."""
        with self._lock:
            connections = [con for one in self._connections.get(catalog, []) if (con := one()) is not None]
        for con in reversed(connections):
            with suppress(duckdb.Error):
                return con.cursor()
        raise ConnectionRefused("the connection that ldpsql was attached to is closed", "attach ldpsql to this one")

    @contextmanager
    def cursor_at(self, catalog: int, search_path: str) -> Iterator[DuckDBPyConnection]:
        """Open a cursor of the database of a catalog, with the search path of a statement.

        It sees neither temporary tables nor what the statement's own transaction has not committed.
        """
        with self.cursor(catalog) as cursor:
            set_in(cursor, {"search_path": search_path})
            yield cursor


CONNECTIONS = Connections()


# Ctrl-C while the main thread is inside DuckDB, where Python runs no handler.
#
# Python calls its handlers in the main thread, between two steps of Python code. There is no such step while DuckDB waits for
# its own threads, so a second Ctrl-C would change nothing. The C handler below Python's writes a byte for each signal into a
# socket at once (`signal.set_wakeup_fd`), and a thread of this module reads it.


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
                if self._first is None:
                    self._first = monotonic()
                    self._stop_work()
                elif self._ends and self._last_resort is None:
                    self._last_resort = threading.Timer(max(0.0, self._first + PATIENCE - monotonic()), _end_process)
                    self._last_resort.daemon = True
                    self._last_resort.start()
        self._ear.close()

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


P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


@dataclass(eq=False)
class _Block:
    """A ``with`` block that an interrupt of ``con`` stops; ``working`` is the connection that runs its statements."""

    con: DuckDBPyConnection
    working: DuckDBPyConnection
    stopped: bool = False
    closed: bool = False

    def stop(self) -> None:
        """Stop the running statement, and every solve that it begins before the block ends."""
        self.stopped = True
        Limits.refuse(self)
        if self.closed:  # its own thread may have closed it in the meantime
            Limits.allow(self)
        self.working.interrupt()

    def close(self) -> None:
        """Let solves run again."""
        self.closed = True
        Limits.allow(self)


_BLOCKS: list[_Block] = []
_BUSY = "busy with another call"  # DuckDB's words if another thread uses a connection
_PATIENCE = 10.0  # seconds that a call of another thread may take
_SCHEMAS = f"""
    SELECT database_name, schema_name FROM duckdb_schemas()
    WHERE database_name NOT IN ('system', 'temp') AND schema_name NOT IN ('information_schema', 'pg_catalog')
    AND database_name NOT IN (SELECT database_name FROM duckdb_functions() WHERE function_name = '{MARK}')"""  # noqa: S608


def interrupt(con: DuckDBPyConnection) -> None:
    """Stop the statement that runs in a connection, and every solve that runs in this process; call it from another thread.

    A solve that is stopped raises `Interrupted`, a statement raises that or DuckDB's own error, and neither writes anything.
    A statement within `interruptible` begins no other solve; outside of it, a solve that begins after the interrupt goes on.
    """
    Limits.interrupt()
    con.interrupt()
    for block in [block for block in _BLOCKS if block.con is con]:
        block.stop()


@contextmanager
def stopped_with(con: DuckDBPyConnection, working: DuckDBPyConnection) -> Iterator[_Block]:
    """Within a ``with`` block, let an interrupt of one connection also stop another that works for it, such as a cursor."""
    with _open(_Block(con, working)) as block:
        yield block


@contextmanager
def _open(block: _Block) -> Iterator[_Block]:
    _BLOCKS.append(block)
    try:
        yield block
    finally:
        _BLOCKS.remove(block)
        block.close()


def until_stopped(con: DuckDBPyConnection, batches: Iterable[T]) -> Iterator[T]:
    """Yield batches until the connection is interrupted: for work without a running statement that DuckDB could stop."""
    with stopped_with(con, con) as block:
        for batch in batches:
            if block.stopped:
                raise Interrupted
            yield batch


def cursor_like(con: DuckDBPyConnection) -> DuckDBPyConnection:
    """Return a cursor with the search path, the home and the folders of files of its connection: a plain cursor forgets USE.

    If a result of the connection is open or its transaction has failed, its search path cannot be read. The cursor then has
    that of a new connection, if all tables are in one schema.
    """
    cursor = con.cursor()
    try:
        settings = _settings(con)
    except (ResourceInUseException, TransactionException):
        if len(cursor.sql(_SCHEMAS).fetchall()) > 1:
            raise ConnectionRefused(
                "the connection has an open result or a failed transaction, so its search path cannot be read",
                "fetch the result or roll back first, or pass con.cursor()",
            ) from None
        return cursor
    set_in(cursor, settings)
    return cursor


def _settings(con: DuckDBPyConnection) -> dict[str, str]:
    """Return what a connection finds tables and files by, as soon as no other thread uses it."""
    names = ("search_path", *FINDING_FILES)
    query = f"SELECT {', '.join(f'current_setting({text_literal(name)})' for name in names)}"
    ((*values,),) = when_free(lambda: con.sql(query).fetchall())
    return dict(zip(names, values, strict=True))


def set_in(cursor: DuckDBPyConnection, settings: Mapping[str, str | None]) -> None:
    """Set in a cursor what is set elsewhere."""
    for name, value in settings.items():
        if value:
            cursor.execute(f"SET {name} = ?", [value])


def when_free(read: Callable[[], T]) -> T:
    """Return what reading from a connection returns, as soon as no other thread uses the connection."""
    end = monotonic() + _PATIENCE
    while True:
        try:
            return read()
        except ResourceInUseException as error:
            if _BUSY not in str(error):
                raise
            if monotonic() > end:
                raise ConnectionRefused(
                    "another thread uses this connection", "give each thread a cursor of its own: con.cursor()"
                ) from None
            sleep(0.001)


@contextmanager
def cursor_of(con: DuckDBPyConnection) -> Iterator[DuckDBPyConnection]:
    """Open a cursor as `cursor_like` does, for a ``with`` block; an interrupt of the connection stops it."""
    with cursor_like(con) as cursor, stopped_with(con, cursor):
        yield cursor


class _ControlC:
    """The handler of Ctrl-C within a block: it interrupts a connection, then calls the handler that was there before.

    While the block is entered or left, the handler only remembers the signal: an exception at that moment would leave it
    installed.
    """

    def __init__(self, con: DuckDBPyConnection) -> None:
        self._con, self._before = con, signal.getsignal(signal.SIGINT)
        self.pressed = self._inside = self._waiting = False

    def hear(self) -> None:
        """Interrupt the connection; another thread calls this, too, because the main thread may be inside DuckDB."""
        self.pressed = True
        interrupt(self._con)

    def __call__(self, _: int, frame: FrameType | None) -> None:
        self.hear()
        self._waiting = True
        if self._inside:
            self.hand_on(frame)

    def hand_on(self, frame: FrameType | None = None) -> None:
        """Call the handler that was there before, unless it was called since the last Ctrl-C."""
        if self._waiting:
            self._waiting = False
            self._before(signal.SIGINT, frame)  # type: ignore[misc, operator]  # installed only if it can be called

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle Ctrl-C within a ``with`` block, in the main thread."""
        if not callable(self._before) or threading.current_thread() is not threading.main_thread():
            yield
            return
        try:
            signal.signal(signal.SIGINT, self)
            with heard(self.hear, ends=self._before is signal.default_int_handler), self._entered():
                yield
        finally:
            signal.signal(signal.SIGINT, self._before)

    @contextmanager
    def _entered(self) -> Iterator[None]:
        try:
            self._inside = True
            self.hand_on()
            yield
        finally:
            self._inside = False


@contextmanager
def interruptible(con: DuckDBPyConnection) -> Iterator[DuckDBPyConnection]:
    """Let Ctrl-C `interrupt` a connection, within a ``with`` block in the main thread.

    DuckDB 2.0 sees the signal by itself, but then waits for its other threads, which do not learn of it: always until a solve
    ends, and in about five of a hundred runs until plain SQL ends. If the block still runs two seconds after a first Ctrl-C, a
    second one ends the process with exit code 130; nothing half-written is left under its final name. If the program has
    installed a handler of its own, that handler is called after the interrupt, and the process is not ended.

    Raises:
        KeyboardInterrupt: after Ctrl-C, instead of the error that Arrow or DuckDB make of it.
        Interrupted: after `interrupt` by another thread, instead of their error.

    """
    control_c, block = _ControlC(con), _Block(con, con)
    try:
        with _open(block), control_c.installed():
            yield con
    except (Exception, KeyboardInterrupt):
        if not block.stopped:
            raise
    else:
        control_c.hand_on()
        return
    control_c.hand_on()
    raise (
        KeyboardInterrupt if control_c.pressed else Interrupted
    )  # outside of the handler, so that no other error is attached


def stops_with_connection(
    function: Callable[Concatenate[DuckDBPyConnection, P], R],
) -> Callable[Concatenate[DuckDBPyConnection, P], R]:
    """Make a function `interruptible` through its first argument, a connection of DuckDB or one that wraps it."""

    @wraps(function)
    def call(con: DuckDBPyConnection, /, *args: P.args, **options: P.kwargs) -> R:
        own = duckdb_of(con)
        with interruptible(own):
            return function(own, *args, **options)

    return call
