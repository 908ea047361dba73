"""Whole numbers that stand for mechanisms, plans and grids inside a query.

DuckDB folds the function that makes a handle to one constant at plan time, so a query reads a mechanism once and each row
carries eight bytes instead of a domain. Handles live as long as the process: a prepared statement may hold one.
"""

from __future__ import annotations

from collections.abc import Hashable
from threading import Lock
from typing import Generic, TypeAlias, TypeVar

from ldpsql.errors import InternalError
from ldpsql.estimator import Estimator
from ldpsql.mechanism import Mechanism
from ldpsql.region import Region

H = TypeVar("H", bound=Hashable)


class Handles(Generic[H]):
    """A growing list of distinct things; equal things have equal handles."""

    def __init__(self) -> None:
        self._things: list[H] = []
        self._numbers: dict[H, int] = {}
        self._lock = Lock()

    def number(self, thing: H) -> int:
        """Return the handle of a thing."""
        with self._lock:
            if thing not in self._numbers:
                self._things.append(thing)
                self._numbers[thing] = len(self._things) - 1
            return self._numbers[thing]

    def thing(self, number: int | None) -> H:
        """Return what a handle stands for."""
        if number is None or not 0 <= number < len(self._things):
            raise InternalError("a handle of another process was used", "pass the mechanism itself, not its handle")
        return self._things[number]


Plan: TypeAlias = tuple[Mechanism, Estimator]
MECHANISMS: Handles[Mechanism] = Handles()
PLANS: Handles[Plan] = Handles()
GRIDS: Handles[Region] = Handles()
