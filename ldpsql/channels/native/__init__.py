"""Inner loops in C, next to the Python that gives the same numbers: an installation without a compiler works without them.

The library is built when ldpsql is installed (`hatch_build.py`). Calls release the interpreter's lock.
"""

from __future__ import annotations

import ctypes
import os
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

LIBRARY = Path(__file__).with_name("kernels.library")  # with the ending .so, `pkgutil` takes it for a module of Python
_VERSION = 1  # of the calls below; a library of another version, left by an earlier installation, is not used
# A seed, y, five values and two symbols: which values hash to y, as the doctest of `hashing_to` says of the first four.
_KNOWN = (1, 1, 4, 2, 0b1110)


@lru_cache(maxsize=1)
def kernels() -> ctypes.CDLL | None:
    """Return the library of kernels; None if there is none that works, or the setting LDPSQL_NATIVE=0 asks for Python."""
    if os.environ.get("LDPSQL_NATIVE") == "0" or not LIBRARY.is_file():
        return None
    try:
        library = ctypes.CDLL(str(LIBRARY))
        library.ldpsql_version.restype = ctypes.c_uint32
        if library.ldpsql_version() != _VERSION:
            return None
        count, words = ctypes.c_uint64, ctypes.c_void_p
        library.ldpsql_hash_sets.argtypes = [words, words, ctypes.c_size_t, count, count, words]
        library.ldpsql_hash_sets.restype = None
    except (OSError, AttributeError):  # of another system, or damaged
        return None
    seed, y, size, symbols, members = _KNOWN
    found = _hash_sets(library, np.array([seed], np.uint64), np.array([y], np.uint64), size, symbols)
    return library if found.tolist() == [[members]] else None


def description() -> str:
    """Return which of the two computes here, for `ldpsql doctor`."""
    if kernels() is not None:
        return "inner loops run in C"
    if os.environ.get("LDPSQL_NATIVE") == "0":
        return "inner loops run in Python: LDPSQL_NATIVE is 0"
    return "inner loops run in Python: there was no C compiler (cc) when ldpsql was installed, or its library does not load"


def hash_sets(seeds: NDArray[np.uint64], y: NDArray[np.uint64], size: int, symbols: int) -> NDArray[np.uint8] | None:
    """Return which of the values 0 .. size-1 hash to y under each seed; None without kernels.

    Shape ((size + 7) // 8, reports): bit i of octet b is set if value 8 b + i does.
    """
    library = kernels()
    return None if library is None else _hash_sets(library, seeds, y, size, symbols)


def _hash_sets(
    library: ctypes.CDLL, seeds: NDArray[np.uint64], y: NDArray[np.uint64], size: int, symbols: int
) -> NDArray[np.uint8]:
    seeds, y = (np.ascontiguousarray(words, dtype=np.uint64) for words in (seeds, y))
    if seeds.ndim != 1 or seeds.shape != y.shape or size < 1 or symbols < 1:  # C reads what it is told to
        raise ValueError("hash_sets takes as many seeds as symbols, in one dimension")
    out = np.empty((-(-size // 8), len(seeds)), dtype=np.uint8)
    library.ldpsql_hash_sets(seeds.ctypes.data, y.ctypes.data, len(seeds), size, symbols, out.ctypes.data)
    return out
