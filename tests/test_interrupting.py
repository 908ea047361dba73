"""What runs in DuckDB can be stopped, and the connection goes on."""

from __future__ import annotations

import itertools
import os
import signal
import threading
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

KRR = "krr(1, [0, 1])"
ENDLESS = [
    "SELECT count(*) FROM range(100000000000) t(i) WHERE sin(i) > 2",
    "SELECT ldp.ibu(x, ldp.krr(1, range(50)), stop := 9000000, misfit := 'allow') FROM r",
]


@pytest.fixture
def con() -> DuckDBPyConnection:
    con = ldpsql.connect()
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


@pytest.mark.parametrize("endless", ENDLESS, ids=["plain", "solve"])
def test_another_thread_stops_a_statement(con: DuckDBPyConnection, endless: str) -> None:
    with pytest.raises(duckdb.Error) as refused, another_thread(partial(ldpsql.interrupt, con)):
        con.execute(endless).fetchall()
    assert isinstance(refused.value, duckdb.InterruptException) or Interrupted.code in str(refused.value)
    goes_on(con)


@pytest.mark.parametrize("endless", ENDLESS, ids=["plain", "solve"])
def test_control_c_stops_a_statement(con: DuckDBPyConnection, endless: str) -> None:
    for _ in range(3):
        threading.Timer(0.3, signal.raise_signal, [signal.SIGINT]).start()
        with pytest.raises(KeyboardInterrupt), ldpsql.interruptible(con):
            con.execute(endless).fetchall()
    goes_on(con)


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
    threading.Timer(0.5, signal.raise_signal, [signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
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
