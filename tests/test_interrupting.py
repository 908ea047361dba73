"""What runs in DuckDB can be stopped, and the connection goes on."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from duckdb import DuckDBPyConnection

import ldpsql
from ldpsql.errors import Interrupted
from ldpsql.estimators import Limits

pytestmark = pytest.mark.slow
KRR = "krr(1, [0, 1])"
ENDLESS = [
    "SELECT count(*) FROM range(100000000000) t(i) WHERE sin(i) > 2",
    "SELECT ldp.ibu(x, ldp.krr(1, range(50)), stop := 9000000, misfit := 'allow') FROM r",
]


@pytest.fixture
def con(con: DuckDBPyConnection) -> DuckDBPyConnection:
    con.execute("CREATE TABLE r AS SELECT range % 50 AS x FROM range(1000)")
    return con


def goes_on(con: DuckDBPyConnection) -> None:
    assert con.execute("SELECT len(ldp.ibu(x, ldp.krr(1, range(50)), misfit := 'allow')) FROM r").fetchall() == [(50,)]


@contextmanager
def another_thread(stop: Callable[[], None]) -> Iterator[None]:
    """Stop again and again: what has not begun cannot be stopped."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(0.1):
            stop()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def control_c_soon() -> Iterator[None]:
    """Press Ctrl-C in a moment; entered where the exception is expected, as a loaded machine may take longer to get there."""
    threading.Timer(0.2, signal.raise_signal, [signal.SIGINT]).start()
    yield


@pytest.mark.parametrize("endless", ENDLESS, ids=["plain", "solve"])
def test_another_thread_stops_a_statement(con: DuckDBPyConnection, endless: str) -> None:
    with pytest.raises(duckdb.Error) as refused, another_thread(partial(ldpsql.interrupt, con)):
        con.execute(endless).fetchall()
    assert isinstance(refused.value, duckdb.InterruptException) or Interrupted.code in str(refused.value)
    goes_on(con)


@pytest.mark.parametrize("endless", ENDLESS, ids=["plain", "solve"])
def test_control_c_stops_a_statement(con: DuckDBPyConnection, endless: str) -> None:
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt), ldpsql.interruptible(con), control_c_soon():
            con.execute(endless).fetchall()
    goes_on(con)


@pytest.mark.parametrize("milliseconds", [1, 3, 10, 40])
def test_control_c_in_the_first_statement_crashes_nothing(milliseconds: int) -> None:
    statement = "SELECT ldp.ibu(x, ldp.krr(1, range(50)), stop := 9000000, misfit := 'allow') FROM range(50) t(x)"
    program = f"""
    import signal, threading, ldpsql
    con, ended = ldpsql.connect(), 0
    for _ in range(5):
        try:
            with ldpsql.interruptible(con):
                threading.Timer({milliseconds / 1000}, signal.raise_signal, [signal.SIGINT]).start()
                con.execute({statement!r}).fetchall()
        except KeyboardInterrupt:
            ended += 1
    print(ended)
    """
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "5\n"), done.stderr


def endless_reader() -> pa.RecordBatchReader:
    batch = pa.record_batch({"x": np.zeros(100_000, dtype=np.int64)})
    return pa.RecordBatchReader.from_batches(batch.schema, itertools.repeat(batch))


def write_file(con: DuckDBPyConnection, source: Any) -> None:
    ldpsql.perturb_copy(con, source, "out.parquet", {"x": KRR})


def write_arrow(con: DuckDBPyConnection, source: Any) -> None:
    ldpsql.perturb_copy(con, source, "out.arrow", {"x": KRR})


def write_table(con: DuckDBPyConnection, source: Any) -> None:
    ldpsql.perturb_table(con, source, "out", {"x": KRR})


@pytest.mark.parametrize("run", [write_file, write_arrow, write_table])
@pytest.mark.parametrize("source", [endless_reader, lambda: "slow"], ids=["endless", "slow"])
def test_a_bulk_run_is_stopped_and_leaves_nothing(
    con: DuckDBPyConnection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run: Callable[[DuckDBPyConnection, Any], None],
    source: Callable[[], Any],
) -> None:
    monkeypatch.chdir(tmp_path)
    con.execute("CREATE VIEW slow AS SELECT (sum(i) % 2)::BIGINT AS x FROM range(100000000000) t(i) WHERE sin(i) > 2")
    with pytest.raises(KeyboardInterrupt), control_c_soon():
        run(con, source())
    with pytest.raises(Interrupted), another_thread(partial(ldpsql.interrupt, con)):
        run(con, source())
    assert os.listdir() == []
    assert con.execute("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'out'").fetchall() == [(0,)]
    goes_on(con)


def test_an_applications_own_handler_is_called_too(con: DuckDBPyConnection) -> None:
    called: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: called.append(number))
    try:
        control_c = partial(signal.raise_signal, signal.SIGINT)
        with another_thread(control_c), pytest.raises(KeyboardInterrupt), ldpsql.interruptible(con):
            con.execute(ENDLESS[0]).fetchall()
        assert set(called) == {signal.SIGINT}
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_error_of_its_own_stays_what_it_is(con: DuckDBPyConnection) -> None:
    with pytest.raises(duckdb.BinderException), ldpsql.interruptible(con):
        con.execute("SELECT KeyboardInterrupt")


@pytest.mark.parametrize("stop", ["control_c", "another thread"])
def test_a_solve_that_begins_after_the_interrupt_is_stopped(
    con: DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch, stop: str
) -> None:
    """The interrupt comes while a thread of DuckDB prepares the solve; it used to go on for all its nine million steps."""
    preparing, stopped, steps = threading.Event(), threading.Event(), itertools.count()
    take = Limits.take

    class Late(Limits):
        def __init__(self, *limits: Any) -> None:
            preparing.set()
            stopped.wait(100)
            super().__init__(*limits)

        def take(self) -> bool:
            next(steps)
            return take(self)

    monkeypatch.setattr("ldpsql.estimators.base.Limits", Late)

    def press() -> None:
        preparing.wait()
        signal.raise_signal(signal.SIGINT) if stop == "control_c" else ldpsql.interrupt(con)
        while not Limits._ending:
            time.sleep(0.001)
        stopped.set()

    threading.Thread(target=press).start()
    with pytest.raises((KeyboardInterrupt, Interrupted)), ldpsql.interruptible(con):
        con.execute(ENDLESS[1]).fetchall()
    assert next(steps) <= 1
    monkeypatch.undo()
    goes_on(con)


STUBBORN = """
    import sys, time
    import duckdb, ldpsql, pyarrow as pa
    from ldpsql.engine import connections

    def stubborn(column):
        while True:
            try:
                print("runs", flush=True)
                while True:
                    time.sleep(0.01)
            except KeyboardInterrupt:
                pass

    connections.PATIENCE = 0.5
    con = ldpsql.connect()
    con.create_function("stubborn", stubborn, ["BIGINT"], "BIGINT", type="arrow", side_effects=True)
    with ldpsql.interruptible(con):
        con.execute("SELECT stubborn(i) FROM range(5) t(i)").fetchall()
    """


@pytest.mark.skipif(os.name == "nt", reason="Windows sends Ctrl-C to all processes of a console")
def test_a_second_control_c_ends_the_process_whatever_duckdb_does() -> None:
    program = [sys.executable, "-c", textwrap.dedent(STUBBORN)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "runs\n"
        child.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.3)
        end = time.monotonic() + 30
        while child.poll() is None and time.monotonic() < end:  # two that arrive together are one
            child.send_signal(signal.SIGINT)
            time.sleep(0.2)
        _, errors = child.communicate(timeout=1)
    assert child.returncode == Interrupted.exit_code
    assert "second Ctrl-C" in errors


def test_control_c_at_any_moment_leaves_the_handlers_as_they_were(con: DuckDBPyConnection) -> None:
    before, stopped = signal.getsignal(signal.SIGINT), 0
    for number in range(200):
        begun = threading.Event()

        def press(begun: threading.Event = begun, delay: float = number % 20 / 20_000) -> None:
            begun.wait()
            time.sleep(delay)
            signal.raise_signal(signal.SIGINT)

        presser = threading.Thread(target=press)
        presser.start()
        try:
            begun.set()
            while True:
                with ldpsql.interruptible(con):
                    pass
        except KeyboardInterrupt:
            stopped += 1
        presser.join()
        assert signal.getsignal(signal.SIGINT) is before
    assert stopped == 200
    assert signal.set_wakeup_fd(-1) == -1
    assert not any(thread.name == "ldpsql-control-c" for thread in threading.enumerate())
    goes_on(con)


def test_an_event_loop_that_listens_for_signals_still_hears_them(con: DuckDBPyConnection) -> None:
    ear, mouth = socket.socketpair()
    with ear, mouth:
        mouth.setblocking(False)
        ear.settimeout(10)
        before = signal.set_wakeup_fd(mouth.fileno())
        try:
            with pytest.raises(KeyboardInterrupt), ldpsql.interruptible(con), control_c_soon():
                con.execute(ENDLESS[0]).fetchall()
            assert ear.recv(1) == bytes([signal.SIGINT])
        finally:
            assert signal.set_wakeup_fd(before) == mouth.fileno()


def test_a_command_on_a_terminal_says_that_it_works_and_ends_with_control_c() -> None:
    ours, its = os.openpty()
    command = [sys.executable, "-m", "ldpsql", "audit", "-m", KRR, "--draws", "1000000000"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=its) as process:
        os.close(its)
        shown = b""
        while b"Ctrl-C stops it" not in shown:
            shown += os.read(ours, 4096)
        process.send_signal(signal.SIGINT)
        assert not process.communicate(timeout=60)[0]
    shown += os.read(ours, 4096)
    os.close(ours)
    assert process.returncode == 130
    assert b"working for" in shown
    assert shown.endswith(b"\x1b[Kerror: interrupted\r\n")
