"""Caches with a limit in bytes."""

from __future__ import annotations

import gc
from collections import OrderedDict
from collections.abc import Callable, Hashable
from sys import getsizeof
from threading import RLock
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    import numpy as np

_SHARED = (type, ModuleType, FunctionType)  # these exist with or without the cache
_HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class that is not built in, whose own methods are not called
_LONG = 64  # a longer list or tuple is weighed by its first elements

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def footprint(*things: object) -> int:
    """Return the bytes that objects hold, each part counted once: exact for arrays, approximate for long lists."""
    return _weighed(things, set())


def _weighed(things: tuple[object, ...], seen: set[int]) -> int:
    import numpy as np  # noqa: PLC0415  # slow to import, as pyarrow, and no connection needs it

    total, left = 0, list(things)
    while left:
        part = left.pop()
        if type(part) is np.ndarray:
            part = _owner(part)
        kind = type(part)
        if id(part) in seen or issubclass(kind, _SHARED):
            continue
        seen.add(id(part))
        if kind in (list, tuple) and isinstance(part, list | tuple) and len(part) > _LONG:
            total += getsizeof(part) + _weighed(tuple(part[:_LONG]), seen) * len(part) // _LONG
        else:
            total += _own(part)
            left += gc.get_referents(part)
    return total


def _own(part: object) -> int:
    """Return the bytes of an object without the objects that it refers to."""
    if type(part).__flags__ & _HEAP:
        return object.__sizeof__(part)
    import numpy as np  # noqa: PLC0415
    import pyarrow as pa  # noqa: PLC0415

    return part.nbytes if isinstance(part, np.ndarray | pa.Array | pa.ChunkedArray) else getsizeof(part, 0)


def _owner(array: np.ndarray) -> np.ndarray:
    """Return the array that owns the memory of a view."""
    while type(array.base) is type(array):
        array = array.base
    return array


class ByteCache(Generic[K, V]):
    """Values by key, of at most ``limit`` bytes together with their keys; the least recently used are dropped first.

    The latest value stays even if it exceeds the limit. A value may grow while it is used, so it is weighed again before the
    next one is added. If two threads miss the same key, both compute its value.
    """

    def __init__(self, limit: int, weigh: Callable[[K, V], int] = footprint) -> None:
        self.limit, self.bytes, self._measure = limit, 0, weigh
        self._kept: OrderedDict[K, V] = OrderedDict()
        self._weights: dict[K, int] = {}
        self._used: set[K] = set()  # since they were weighed
        self._lock = RLock()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: K) -> V | None:
        """Return the value of a key, None if it is not cached."""
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            self._used.add(key)
            return self._kept[key]

    def put(self, key: K, value: V) -> None:
        """Store a value under a key, and drop others until the limit holds."""
        with self._lock:
            self._kept[key] = value
            self._kept.move_to_end(key)
            for used in self._used | {key}:
                weight = self._measure(used, self._kept[used])
                self.bytes += weight - self._weights.get(used, 0)
                self._weights[used] = weight
            self._used.clear()
            while self.bytes > self.limit and len(self._kept) > 1:
                dropped, _ = self._kept.popitem(last=False)
                self.bytes -= self._weights.pop(dropped)

    def remembered(self, key: K, make: Callable[[K], V]) -> V:
        """Return the value of a key; if it is not cached, compute it with ``make`` and store it."""
        value = self.get(key)
        if value is None:
            value = make(key)
            self.put(key, value)
        return value

    def clear(self) -> None:
        """Drop everything."""
        with self._lock:
            self._kept.clear()
            self._weights.clear()
            self._used.clear()
            self.bytes = 0
