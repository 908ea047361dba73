"""Limits linear algebra to one thread during an estimate.

DuckDB calls us from threads of its own. If these and the threads of BLAS are more than the processors, small products wait for
each other: on two busy processors an estimate of 384 values took thirty times as long.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ContextDecorator, ExitStack
from functools import lru_cache
from threading import Lock
from typing import TypeVar

from threadpoolctl import OpenBLASController, ThreadpoolController

T = TypeVar("T")
R = TypeVar("R")
_AT_ONCE = 4


def at_once(function: Callable[[T], R], parts: Sequence[T]) -> list[R]:
    """Return what a function returns for each part; several threads share the parts, for NumPy and Arrow let others run."""
    if len(parts) < 2:
        return [function(part) for part in parts]
    with ThreadPoolExecutor(min(_AT_ONCE, os.cpu_count() or 1, len(parts))) as pool:
        return list(pool.map(function, parts))


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
