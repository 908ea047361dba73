"""Numbers for the distinct values of a column of any type."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ldpsql.channels import Weights
from ldpsql.domains.columns import plain


def distinct(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the first row of each distinct value of a column without NULLs, and for each row the number of its value.

    Lists, structs and unions are compared part by part; Arrow itself cannot.
    """
    column = plain(column)
    if not pa.types.is_nested(column.type):
        number = _numbered(column)
        first = np.empty(number.max(initial=-1) + 1, dtype=np.int64)
        first[number[::-1]] = np.arange(len(number))[::-1]
        return first, number
    keys = _keys(column)
    rows = np.ascontiguousarray(keys).view(np.dtype((np.void, keys.dtype.itemsize * keys.shape[1]))).ravel()
    _, first, number = np.unique(rows, return_index=True, return_inverse=True)
    return first, number.ravel()


def _numbered(column: pa.Array) -> np.ndarray:
    """Number the distinct values of a flat column in the order of their appearance."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()  # a dictionary may hold values that no row has
    return np.asarray(column.dictionary_encode(null_encoding="encode").indices.to_numpy(zero_copy_only=False))


def _keys(column: pa.Array) -> Weights:
    """Return a row of words for each value of a column, equal where and only where the values are."""
    if pa.types.is_struct(column.type):
        return np.concatenate([_keys(part) for part in column.flatten()], axis=1)
    if pa.types.is_union(column.type):
        codes = column.type_codes.to_numpy()
        active = [np.where((codes == i)[:, None], _keys(column.field(i)), 0) for i in range(column.type.num_fields)]
        return np.concatenate([codes.astype(np.uint64)[:, None], *active], axis=1)
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        parts = _keys(column.flatten())
        longest = int(lengths.max(initial=0))
        out = np.zeros((len(column), longest, parts.shape[1]), dtype=np.uint64)
        out[np.arange(longest) < lengths[:, None]] = parts
        return np.concatenate([lengths.astype(np.uint64)[:, None], out.reshape(len(column), -1)], axis=1)
    if pa.types.is_integer(column.type) and not column.null_count:
        return np.asarray(column.to_numpy(zero_copy_only=False).astype(np.uint64)[:, None])
    return _numbered(column).astype(np.uint64)[:, None]
