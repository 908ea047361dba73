"""Limits linear algebra to one thread during an estimate.

DuckDB calls us from threads of its own. If these and the threads of BLAS are more than the processors, small products wait for
each other: on two busy processors an estimate of 384 values took thirty times as long.
"""

from __future__ import annotations

import sys
from contextlib import ContextDecorator, ExitStack
from functools import lru_cache
from threading import Lock

from threadpoolctl import OpenBLASController, ThreadpoolController


@lru_cache(maxsize=2)
def _libraries(scipy: bool) -> ThreadpoolController:  # noqa: ARG001  # SciPy brings a BLAS of its own, when it is first needed
    return ThreadpoolController()


class _OneThread(ContextDecorator):
    """Limits the BLAS of the process while any thread is inside, and restores it when the last one leaves.

    OpenBLAS lets only the thread that first set a limit change it; here any thread may be the first or the last.
    """

    def __init__(self) -> None:
        self._lock, self._inside, self._limit = Lock(), 0, ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                OpenBLASController.clear_controlling_thread(force=True)
                self._limit.enter_context(_libraries("scipy.linalg" in sys.modules).limit(limits=1, user_api="blas"))
            self._inside += 1

    def __exit__(self, *raised: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                OpenBLASController.clear_controlling_thread(force=True)
                self._limit.close()
                OpenBLASController.clear_controlling_thread(force=True)


one_thread = _OneThread()
