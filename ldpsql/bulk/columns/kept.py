"""Kept columns that hold only the values of their rows.

An Arrow array may hold more than it shows: values under its NULLs, as pandas leaves them; text around a substring or of rows
that were filtered out, as Polars leaves them; dictionary values that no row has. The data of string and list views stay in the
order of the source when rows are shuffled. Files and streams of Arrow carry all of these.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_EXTENSION = b"ARROW:extension:"


def kept_field(field: pa.Field) -> pa.Field:
    """Return the field of a kept column, without metadata except the name of its type."""
    metadata = {key: value for key, value in (field.metadata or {}).items() if key.startswith(_EXTENSION)}
    return field.with_type(kept_type(field.type)).with_metadata(metadata or None)


def kept_type(kind: pa.DataType) -> pa.DataType:
    """Return a type for the same values without dictionaries and views, whose arrays hold only what they show."""
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return kept_type(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        storage = kept_type(kind.storage_type)
        return kind if storage == kind.storage_type else storage
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    return _nested_type(kind)


def _nested_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind) or pa.types.is_list_view(kind):
        return pa.list_(kept_field(kind.value_field))
    if pa.types.is_large_list(kind) or pa.types.is_large_list_view(kind):
        return pa.large_list(kept_field(kind.value_field))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(kept_field(kind.value_field), kind.list_size)
    if pa.types.is_map(kind):
        return pa.map_(kept_field(kind.key_field), kept_field(kind.item_field), kind.keys_sorted)
    return pa.struct(list(map(kept_field, kind))) if pa.types.is_struct(kind) else kind


def kept(column: pa.Array) -> pa.Array:
    """Return the same rows in their `kept_type`, with only their values in the buffers."""
    if pa.types.is_dictionary(column.type):
        return kept(column.dictionary).take(column.indices)
    if pa.types.is_run_end_encoded(column.type):
        whole = pa.RunEndEncodedArray.from_arrays(column.run_ends, kept(column.values))
        return pc.run_end_decode(whole.slice(column.offset, len(column)))
    kind = kept_type(column.type)
    if isinstance(column.type, pa.BaseExtensionType):
        storage = kept(column.storage)
        return pa.ExtensionArray.from_storage(kind, storage) if kind == column.type else storage
    if pa.types.is_struct(kind) and len(kind):
        return pa.StructArray.from_arrays([kept(child) for child in column.flatten()], fields=list(kind), mask=_nulls(column))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _list(column, kind)
    return _without_hidden(column if column.type == kind else column.cast(kind))


def _list(column: pa.Array, kind: pa.DataType) -> pa.Array:
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    ends = np.concatenate([[0], np.cumsum(lengths)])
    array, offset = (pa.ListArray, pa.int32()) if pa.types.is_list(kind) else (pa.LargeListArray, pa.int64())
    return array.from_arrays(pa.array(ends, offset), kept(column.flatten()), type=kind, mask=_nulls(column))


def _nulls(column: pa.Array) -> pa.Array | None:
    return column.is_null() if column.null_count else None


def _without_hidden(column: pa.Array) -> pa.Array:
    """Return a column without the values under its NULLs."""
    if not column.null_count or pa.types.is_null(column.type):
        return column
    rows = pa.array(np.arange(len(column)), mask=column.is_null().to_numpy(zero_copy_only=False))
    return column.take(rows)
