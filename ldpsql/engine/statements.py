"""Checks that a whole statement uses one mechanism, across all calls of a function, which each get 2,048 rows.

A mechanism that changes from row to row may be made from the value itself, such as ``ldp.krr(0.1, [city, 'none'])``. In a
sorted table, one call of a function may see a single value only, so the handles of all calls must be compared.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import count
from threading import Lock

from ldpsql.errors import NotPrivate

_KEPT = 10_000  # expressions; the least recently used one is forgotten first


class Statements:
    """The first handle that each expression of each statement was called with, in all threads."""

    def __init__(self, kept: int = _KEPT) -> None:
        self._first: OrderedDict[tuple[str, int], int] = OrderedDict()
        self._kept = kept
        self._numbers = count(1)
        self._lock = Lock()

    def number(self) -> int:
        """Return a number for one expression of one statement."""
        return next(self._numbers)

    def check(self, expression: str, transaction: int, handle: int) -> None:
        """Check a handle against the one that the expression had first in this transaction.

        Raises:
            NotPrivate: if they differ.

        """
        with self._lock:
            first = self._first.setdefault((expression, transaction), handle)
            self._first.move_to_end((expression, transaction))
            if len(self._first) > self._kept:
                self._first.popitem(last=False)
        if handle != first:
            raise changing()


def changing() -> NotPrivate:
    """Return the error for a mechanism that is not the same in the whole statement."""
    return NotPrivate(
        "the mechanism changes from row to row",
        "declare one mechanism, without a column in it; for users with an epsilon of their own there is "
        "ldp.perturb_mixed(x, level, MAP {'low': ldp.krr(1, ...), 'high': ldp.krr(3, ...)})",
    )


STATEMENTS = Statements()
