"""Linear algebra keeps to one thread while anybody estimates; threads that read mechanisms do not get those of others."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from duckdb import DuckDBPyConnection
from threadpoolctl import threadpool_info, threadpool_limits

from ldpsql.functions import one_thread
from ldpsql.registry.handles import mechanism_number


def threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_the_number_of_threads_is_one_inside_and_what_it_was_outside() -> None:
    np.linalg.inv(np.eye(2))
    with threadpool_limits(2, "blas"):
        before = threads()
        with one_thread:
            with one_thread:
                assert threads() == {1}
            assert threads() == {1}  # the inner one leaves the limit to the outer
        assert threads() == before == {2}


def test_many_threads_that_come_and_go_restore_the_number() -> None:
    @one_thread
    def work(size: int) -> set[int]:
        np.linalg.inv(np.eye(size))
        return threads()

    with threadpool_limits(2, "blas"):
        with ThreadPoolExecutor(8) as pool:
            assert all(seen == {1} for seen in pool.map(work, range(1, 200)))
        assert threads() == {2}


def test_threads_that_read_two_mechanisms_in_turn_get_their_own(con: DuckDBPyConnection) -> None:
    calls = (f"SELECT ldp.krr({epsilon}, range(400)::VARCHAR[])" for epsilon in (1, 2))
    specs = [con.sql(call).to_arrow_table().column(0)[0] for call in calls]
    own, before = [mechanism_number(spec) for spec in specs], sys.getswitchinterval()

    def others(thread: int) -> int:
        return sum(mechanism_number(specs[thread]) != own[thread] for _ in range(20_000))

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(2) as pool:
            assert list(pool.map(others, (0, 1))) == [0, 0]
    finally:
        sys.setswitchinterval(before)
