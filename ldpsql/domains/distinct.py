"""Numbers for the distinct values of a column of any type, in little more memory than the column itself."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ldpsql.channels import Words64
from ldpsql.channels.splitmix import splitmix
from ldpsql.domains.columns import plain, struct_parts

_CELLS = 1 << 16  # words at a time, so that what is mixed stays in the cache


def distinct(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the first row of each distinct value of a column without NULLs, and for each row the number of its value.

    Lists, structs and unions are compared part by part, which Arrow does not offer.
    """
    column = plain(column)
    if not pa.types.is_nested(column.type):
        number = _numbered(column)
        first = np.empty(number.max(initial=-1) + 1, dtype=np.int64)
        first[number[::-1]] = np.arange(len(number))[::-1]
        return first, number
    return _rows(_keys(column))


def taken(column: pa.Array, at: NDArray[np.int64]) -> pa.Array:
    """Return rows of a column without NULLs; lists of equal length take only the memory they need, half of what Arrow takes."""
    if not (pa.types.is_list(column.type) and pa.types.is_integer(column.type.value_type)):
        return column.take(pa.array(at))
    words, length = column.flatten(), _length(column)
    if length is None or words.null_count or length * len(at) >= 2**31:
        return column.take(pa.array(at))
    chosen = words.to_numpy(zero_copy_only=False).reshape(len(column), length)[at]
    ends = np.arange(len(at) + 1, dtype=np.int32) * np.int32(length)
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(chosen.ravel()), type=column.type)


def _length(column: pa.Array) -> int | None:
    """Return the number of elements of every list of a column; None if the lists differ in length, or there is no list."""
    ends = pc.min_max(column.value_lengths().fill_null(0))
    shortest, longest = ends["min"].as_py(), ends["max"].as_py()
    return longest if shortest == longest else None


def _rows(keys: Words64) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first of equal rows, and the number of each row, in an order that depends only on which rows occur.

    Rows are sorted by a hash. Only if different rows have the same hash are the rows themselves sorted, which takes several
    times their memory.
    """
    hashes = _hashes(keys)
    order = np.argsort(hashes, kind="stable")
    new = np.diff(hashes[order], prepend=np.uint64(0)) != 0
    new[:1] = True
    again = np.flatnonzero(~new)
    if not _same(keys, order[again - 1], order[again]):
        return _sorted(keys)
    number = np.empty(len(keys), dtype=np.int64)
    number[order] = np.cumsum(new) - 1
    return order[new], number


def _hashes(keys: Words64) -> Words64:
    """Return a hash of each row: the sum of the hashes of its words, each with its position."""
    out, step = np.empty(len(keys), dtype=np.uint64), max(1, _CELLS // max(1, keys.shape[1]))
    places = splitmix(np.arange(keys.shape[1], dtype=np.uint64))
    for start in range(0, len(keys), step):
        part = slice(start, start + step)
        out[part] = splitmix(keys[part] + places).sum(axis=1)
    return out


def _same(keys: Words64, some: NDArray[np.int64], others: NDArray[np.int64]) -> bool:
    """Return whether some rows equal others, one by one."""
    step = max(1, _CELLS // max(1, keys.shape[1]))
    parts = (slice(start, start + step) for start in range(0, len(some), step))
    return all(np.array_equal(keys[some[part]], keys[others[part]]) for part in parts)


def _sorted(keys: Words64) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the same as `_rows` if different rows have the same hash: rows are sorted by their bytes."""
    rows = np.ascontiguousarray(keys).view(np.dtype((np.void, keys.dtype.itemsize * keys.shape[1]))).ravel()
    _, first, number = np.unique(rows, return_index=True, return_inverse=True)
    return first, number.ravel()


def _numbered(column: pa.Array) -> np.ndarray:
    """Return the numbers of the distinct values of a flat column, in the order of their appearance."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()  # a dictionary may hold values that no row has
    return np.asarray(column.dictionary_encode(null_encoding="encode").indices.to_numpy(zero_copy_only=False))


def _ranked(column: pa.Array) -> np.ndarray:
    """Return the numbers of the distinct values of a flat column, in ascending order, wherever in the column they are."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    encoded = column.dictionary_encode(null_encoding="encode")
    number, values = encoded.indices.to_numpy(zero_copy_only=False), encoded.dictionary
    try:
        order = pc.array_sort_indices(values).to_numpy()
    except pa.ArrowNotImplementedError:  # Arrow sorts no views, and no half floats
        return np.asarray(number)
    ranks = np.empty(len(values), dtype=np.int64)
    ranks[order] = np.arange(len(values))
    return np.asarray(ranks[number])


def _keys(column: pa.Array) -> Words64:
    """Return a row of words for each value of a column; rows are equal if and only if the values are."""
    if pa.types.is_struct(column.type):
        return np.concatenate([_keys(part) for part in struct_parts(column)], axis=1)
    if pa.types.is_union(column.type):
        codes = column.type_codes.to_numpy()
        active = [np.where((codes == i)[:, None], _keys(column.field(i)), 0) for i in range(column.type.num_fields)]
        return np.concatenate([codes.astype(np.uint64)[:, None], *active], axis=1)
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        parts = _keys(column.flatten())
        if (length := _length(column)) is not None:
            return parts.reshape(len(column), length * parts.shape[1])
        lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        longest = int(lengths.max(initial=0))
        out = np.zeros((len(column), longest, parts.shape[1]), dtype=np.uint64)
        out[np.arange(longest) < lengths[:, None]] = parts
        return np.concatenate([lengths.astype(np.uint64)[:, None], out.reshape(len(column), -1)], axis=1)
    if pa.types.is_integer(column.type) and not column.null_count:
        return np.asarray(column.to_numpy(zero_copy_only=False).astype(np.uint64, copy=False)[:, None])
    return _ranked(column).astype(np.uint64)[:, None]
