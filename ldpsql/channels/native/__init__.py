"""Inner loops in C, next to the Python that gives the same numbers: an installation without a compiler works without them.

The library is built when ldpsql is installed (`hatch_build.py`). Calls release the interpreter's lock. Functions return None if
there is no library.
"""

from __future__ import annotations

import ctypes
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ldpsql.errors import InternalError

LIBRARY = Path(__file__).with_name("kernels.library")  # with the ending .so, `pkgutil` takes it for a module of Python
_VERSION = 13  # of the calls below; a library of another version, left by an earlier installation, is not used
_WHOLE, _COUNT, _ARRAY = ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p
_ARGUMENTS = {
    "random_words": (_COUNT, _ARRAY),
    "best_way": (),
    "expand": (_ARRAY, ctypes.c_int, _ARRAY, _COUNT),
    "hash_sets": (_ARRAY, _ARRAY, _COUNT, _WHOLE, _WHOLE, _ARRAY),
    "keep_or_spread": (_ARRAY, _COUNT, _WHOLE, _WHOLE, _ARRAY, _ARRAY),
    "alias": (_ARRAY, _COUNT, _WHOLE, ctypes.c_uint, _ARRAY, _ARRAY, _ARRAY),
    "bits": (_ARRAY, _COUNT, _WHOLE, _WHOLE, _WHOLE, _ARRAY, _ARRAY),
    "levels": (_ARRAY, _COUNT, _WHOLE, _ARRAY, _ARRAY, _ARRAY, _ARRAY, _ARRAY),
    "shuffle": (_COUNT, _COUNT, _COUNT, _ARRAY, _ARRAY),
    "by_bucket": (_ARRAY, _COUNT, _ARRAY, _COUNT, _ARRAY, _ARRAY),
    "hashes": (_ARRAY, _COUNT, _WHOLE, _WHOLE, _WHOLE, _WHOLE, _WHOLE, _ARRAY, _ARRAY, _ARRAY),
}
_FAILURES = {  # by what a kernel returns: see kernels.h
    1: ("the operating system gives no random key", "ldpsql doctor checks the random source"),
    2: ("a value is not a position of the channel", "please report the mechanism and the type of the column"),
}
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
        for name, arguments in _ARGUMENTS.items():
            getattr(library, f"ldpsql_{name}").argtypes = arguments
    except (OSError, AttributeError):  # of another system, or damaged
        return None
    seed, y, size, symbols, members = _KNOWN
    found = _hash_sets(library, np.array([seed], np.uint64), np.array([y], np.uint64), size, symbols)
    return library if found.tolist() == [[members]] else None


def description() -> str:
    """Return which of the two computes here, for `ldpsql doctor`."""
    if kernels() is not None:
        return "draws and inner loops run in C"
    if os.environ.get("LDPSQL_NATIVE") == "0":
        return "draws and inner loops run in Python: LDPSQL_NATIVE is 0"
    return "draws and inner loops run in Python: no C compiler (cc) when ldpsql was installed, or its library does not load"


def cipher() -> str | None:
    """Return the cipher of the generator of random words."""
    library = kernels()
    return None if library is None else "AES-256" if library.ldpsql_best_way() else "ChaCha20"


def random_words(count: int) -> NDArray[np.uint64] | None:
    """Return random 64-bit words from the generator of this thread."""
    return _filled("random_words", np.empty(count, np.uint64), count)


def shuffle(cells: NDArray[Any], given: NDArray[np.uint64] | None = None) -> bool:
    """Put cells in a uniformly random order, in place; return whether there is a kernel that does.

    Args:
        cells: of 1, 2, 4, 8 or 16 octets, at most 2**31.
        given: words, of which each half of 32 bits gives the place of one cell; by default random ones.

    """
    if len(cells) > 1 << 31:
        return False
    words = 0 if given is None else len(given)
    return _filled("shuffle", cells, cells.itemsize, len(cells), words, _address(given, 0)) is not None


def by_bucket(buckets: NDArray[np.uint8], cells: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]] | None:
    """Return cells of 1, 2, 4, 8 or 16 octets in the order of their buckets, and where those of each of 256 buckets end."""
    library, count = kernels(), len(buckets)
    if library is None or count > 1 << 31:
        return None
    buckets, out, ends = np.ascontiguousarray(buckets, np.uint8), np.empty_like(cells), np.empty(256, np.int64)
    width, own = cells.itemsize, np.ascontiguousarray(cells)
    library.ldpsql_by_bucket(buckets.ctypes.data, width, own.ctypes.data, count, out.ctypes.data, ends.ctypes.data)
    return out, ends


def expanded(key: bytes, count: int, way: int = 2) -> NDArray[np.uint64] | None:
    """Return the 64-bit words that the generator gives after a key of 32 octets.

    Args:
        key: the key.
        count: how many words.
        way: the best way that may be used: 0 for ChaCha20, 1 for AES, 2 for AES on two blocks at a time.

    """
    library, out = kernels(), np.empty(count, np.uint64)
    if library is None or len(key) != 32:
        return None
    library.ldpsql_expand(key, way, out.ctypes.data, count)
    return out


def keep_or_spread(
    values: NDArray[np.int32], size: int, spread: int, given: NDArray[np.uint64] | None = None
) -> NDArray[np.int32] | None:
    """Return the reports of `KeepOrSpread`.

    Args:
        values: positions of values.
        size: the number of values.
        spread: the weight of each other value.
        given: two words for each value, of which the first are used as by `ShortWords`; by default random ones.

    """
    return _drawn("keep_or_spread", values, (size, spread), np.empty(len(values), np.int32), _address(given, 2 * len(values)))


def alias(
    values: NDArray[np.int32], table: NDArray[np.uint64], bits: int, given: NDArray[np.uint64] | None = None
) -> NDArray[np.int32] | None:
    """Return the reports of `AliasTables`, from a table of shape (values, 2**bits) and a word for each value."""
    rows = np.ascontiguousarray(table, np.uint64)
    if rows.ndim != 2 or rows.shape[1] != 1 << bits:
        raise ValueError("a table has 2**bits columns")
    out, words = np.empty(len(values), np.int32), _address(given, len(values))
    return _drawn("alias", values, (len(rows), bits, rows.ctypes.data), out, words)


def bits(
    values: NDArray[np.int32], size: int, own: int, other: int, given: NDArray[np.uint64] | None = None
) -> NDArray[np.uint64] | None:
    """Return the reports of `IndependentBits`, shape (values, words).

    Up to 512 words of reports take given words in the order of Python; of more, each 512 take theirs one after the other.
    """
    width = -(-size // 64)
    needed = len(values) * (width * (65 - (other & -other).bit_length()) + 1)
    out = np.empty((len(values), width), np.uint64)
    return _drawn("bits", values, (size, own, other), out, _address(given, needed))


def hashes(
    values: NDArray[np.int32],
    size: int,
    numbers: tuple[int, ...],
    table: NDArray[np.uint8] | None = None,
    given: NDArray[np.uint64] | None = None,
) -> NDArray[Any] | None:
    """Return the reports of `PrivateHash`, shape (values, 2), or with a table those of `OrthogonalHash`.

    Args:
        values: positions of values.
        size: the number of values.
        numbers: see `PrivateHash.numbers` and `OrthogonalHash.numbers`.
        table: the hashes of all values under each seed.
        given: up to three words for each value; by default random ones.

    """
    out, words = np.empty((len(values), 2), np.uint64), _address(given, 3 * len(values))
    if table is None:
        return _drawn("hashes", values, (size, *numbers, 0, 0, None), out, words)
    symbols, _, seeds, _ = numbers
    rows = np.ascontiguousarray(table, np.uint8)
    if rows.size != seeds * size or symbols > 256:
        raise ValueError("a table has the hashes of all values under each seed")
    return _drawn("hashes", values, (size, *numbers, rows.ctypes.data), np.empty(len(values), np.int32), words)


def levels(
    values: NDArray[np.int32], size: int, tree: NDArray[np.uint64], given: NDArray[np.uint64] | None = None
) -> tuple[NDArray[np.uint8], NDArray[np.uint32], NDArray[np.uint16]] | None:
    """Return the reports of `Levels`: the level, the function and the symbol of each.

    Args:
        values: positions of values.
        size: the number of values.
        tree: see `LevelDraws.tree`.
        given: three words for each value; by default random ones.

    """
    numbers, seeds = np.empty(len(values), np.uint8), np.empty(len(values), np.uint32)
    words = (tree.ctypes.data, _address(given, 3 * len(values)), numbers.ctypes.data, seeds.ctypes.data)
    symbols = _drawn("levels", values, (size, *words[:1]), np.empty(len(values), np.uint16), *words[1:])
    return None if symbols is None else (numbers, seeds, symbols)


def _address(given: NDArray[np.uint64] | None, needed: int) -> int | None:
    """Return where given words are."""
    if given is None:
        return None
    if given.dtype != np.uint64 or given.ndim != 1 or len(given) < needed or not given.flags.c_contiguous:
        raise ValueError(f"this draw takes at least {needed} words of 64 bits")
    return given.ctypes.data


def _drawn(
    name: str, values: NDArray[np.int32], numbers: tuple[int | None, ...], out: NDArray[Any], *words: int | None
) -> NDArray[Any] | None:
    values = np.ascontiguousarray(values, np.int32)
    return _filled(name, out, values.ctypes.data, len(values), *numbers, *words)


def _filled(name: str, out: NDArray[Any], *arguments: int | None) -> NDArray[Any] | None:
    """Return what a kernel wrote."""
    library = kernels()
    if library is None:
        return None
    failure = getattr(library, f"ldpsql_{name}")(*arguments, out.ctypes.data)
    if failure:
        raise InternalError(*_FAILURES[failure])
    return out


def hash_sets(seeds: NDArray[np.uint64], y: NDArray[np.uint64], size: int, symbols: int) -> NDArray[np.uint8] | None:
    """Return which of the values 0 .. size-1 hash to y under each seed.

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
