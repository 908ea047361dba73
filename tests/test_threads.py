"""While anybody estimates, linear algebra keeps to one thread; afterwards it has its own number again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from ldpsql.functions import one_thread


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
