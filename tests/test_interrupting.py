"""What runs in DuckDB can be stopped, and the connection goes on."""

from __future__ import annotations

import signal
import threading

import duckdb
import pytest
from duckdb import DuckDBPyConnection

import ldpsql
from ldpsql.interrupting import interrupted

ENDLESS = [
    "SELECT count(*) FROM range(100000000000) t(i) WHERE sin(i) > 2",
    "SELECT ldp.ibu(x, ldp.krr(1, range(50)), stop := 9000000, misfit := 'allow') FROM r",
]


@pytest.fixture
def con() -> DuckDBPyConnection:
    con = ldpsql.connect()
    con.execute("CREATE TABLE r AS SELECT range % 50 AS x FROM range(1000)")
    return con


def test_a_statement_that_speaks_of_interrupts_was_not_interrupted(con: DuckDBPyConnection) -> None:
    for sql in (
        "SELECT KeyboardInterrupt",
        "SELECT 'Python exception: KeyboardInterrupt'::INTEGER",
        "SELECT error('[LDP904] x')",
    ):
        with pytest.raises(duckdb.Error) as refused:
            con.execute(sql)
        assert not interrupted(refused.value)


def goes_on(con: DuckDBPyConnection) -> None:
    assert con.execute("SELECT len(ldp.ibu(x, ldp.krr(1, range(50)), misfit := 'allow')) FROM r").fetchall() == [(50,)]


@pytest.mark.parametrize("endless", ENDLESS, ids=["plain", "solve"])
def test_another_thread_stops_a_statement(con: DuckDBPyConnection, endless: str) -> None:
    ended = threading.Event()

    def stop() -> None:
        while not ended.wait(0.05):
            ldpsql.interrupt(con)

    thread = threading.Thread(target=stop)
    thread.start()
    try:
        with pytest.raises(duckdb.Error) as refused:
            con.execute(endless).fetchall()
    finally:
        ended.set()
        thread.join()
    assert interrupted(refused.value)
    goes_on(con)


@pytest.mark.parametrize("endless", ENDLESS, ids=["plain", "solve"])
def test_control_c_stops_a_statement(con: DuckDBPyConnection, endless: str) -> None:
    for _ in range(3):
        threading.Timer(0.3, signal.raise_signal, [signal.SIGINT]).start()
        with pytest.raises((KeyboardInterrupt, duckdb.Error, RuntimeError)) as refused, ldpsql.interruptible(con):
            con.execute(endless).fetchall()
        assert interrupted(refused.value)
    goes_on(con)
