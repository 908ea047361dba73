"""Columns as 64-bit words, such that two values of one type are equal if and only if their words are."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels import Words64

Numbers: TypeAlias = NDArray[Any]  # of int32 or int64, as Arrow has the ends of strings

_INLINE = 12  # bytes that a string view holds itself: the first four next to the length, then eight
_MASKS = np.array([(1 << 8 * length) - 1 for length in range(9)], dtype=np.uint64)
_WIDTHS: dict[int, np.dtype[Any]] = {8 * size: np.dtype(f"<u{size}") for size in (1, 2, 4, 8)}


def most_words(column: pa.Array) -> int:
    """Return how many words the values of a column have at most."""
    if not _is_text(column.type):
        return 2
    _, lengths = _extents(column)
    return 2 + max(0, int(lengths.max(initial=0)) - 5) // 8


def words_of(column: pa.Array, count: int) -> Words64 | None:
    """Return the words of each value, shape (values, words), ``count`` for a string; None if the type has no words.

    The first word of a string has its length, so strings of different lengths differ in it, however many words are read. The
    words of NULL mean nothing.
    """
    if _is_text(column.type):
        return _of_text(column, count)
    if pa.types.is_boolean(column.type):
        return words_of(column.cast(pa.uint8()), count)
    if pa.types.is_decimal128(column.type):
        return _fixed(column, np.dtype(np.uint64), 2)
    width = _WIDTHS.get(column.type.bit_width) if pa.types.is_primitive(column.type) else None
    return None if width is None else _fixed(column, width, 1).astype(np.uint64, copy=False)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _fixed(column: pa.Array, kind: np.dtype[Any], count: int) -> NDArray[Any]:
    """Return the bytes of values of equal size as whole numbers, ``count`` a value."""
    data, first = column.buffers()[1], column.offset * count
    if data is None or not len(column):
        return np.zeros((len(column), count), dtype=kind)
    whole = np.frombuffer(data, dtype=kind, count=first + len(column) * count)
    return whole[first:].reshape(len(column), count)


def _extents(column: pa.Array) -> tuple[Numbers, Numbers]:
    """Return where each string begins, and its length."""
    if not len(column):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    kind = np.int32 if pa.types.is_string(column.type) else np.int64
    ends = np.frombuffer(column.buffers()[1], dtype=kind, count=column.offset + len(column) + 1)[column.offset :]
    return ends[:-1], np.diff(ends)


def _of_text(column: pa.Array, count: int) -> Words64:
    """Return the length and the first four bytes of each string, then eight bytes a word, filled up with zeros."""
    views = _fixed(column.cast(pa.string_view()), np.dtype(np.uint64), 2)
    if count == 2:
        return views
    words = np.zeros((len(column), count), dtype=np.uint64)
    words[:, :2] = views
    begins, lengths = _extents(column)
    long = np.flatnonzero(lengths > _INLINE)
    if len(long):  # their views have an address instead of bytes
        _read_long(words, long, begins[long] - begins[0], lengths[long], _padded(column, begins, lengths))
    return words


def _read_long(
    words: Words64,
    rows: NDArray[np.int64],
    begins: Numbers,
    lengths: Numbers,
    text: NDArray[np.uint8],
) -> None:
    """Put bytes of some rows into all their words but the first."""
    # Eight bytes at any address: NumPy copies them one by one where they are not aligned.
    at = np.ndarray((len(text) - 7,), dtype="<u8", buffer=text, strides=(1,))
    for number, word in enumerate(words.T[1:]):
        left = lengths - (4 + 8 * number)
        if left.min() < 8:
            rows, begins, lengths, left = (part[left > 0] for part in (rows, begins, lengths, left))
        if not len(rows):
            return
        word[rows] = at[begins + (4 + 8 * number)] & _MASKS.take(left, mode="clip")


def _padded(column: pa.Array, begins: Numbers, lengths: Numbers) -> NDArray[np.uint8]:
    """Return the bytes of all strings, and eight more that may be read with the last one."""
    first, last = int(begins[0]), int(begins[-1] + lengths[-1])
    text = np.zeros(last - first + 8, dtype=np.uint8)
    if last > first:
        text[:-8] = np.frombuffer(column.buffers()[2], dtype=np.uint8, count=last)[first:]
    return text
