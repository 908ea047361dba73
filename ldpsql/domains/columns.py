"""Arrow columns in plain form, and the types of their values: which types can be compared, and when two values are the same.

Everything that reads a column of values or reports reads it through `plain`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ldpsql.errors import WrongType

Family: TypeAlias = Literal["text", "number", "boolean", "date", "timestamp", "timestamp with time zone"]
_FAMILIES: dict[Family, Callable[[pa.DataType], bool]] = {
    "text": lambda t: pa.types.is_string(t) or pa.types.is_large_string(t),
    "number": lambda t: pa.types.is_integer(t) or pa.types.is_decimal(t) or pa.types.is_float32(t) or pa.types.is_float64(t),
    "boolean": pa.types.is_boolean,
    "date": pa.types.is_date,
    "timestamp": lambda t: pa.types.is_timestamp(t) and t.tz is None,
    "timestamp with time zone": lambda t: pa.types.is_timestamp(t) and t.tz is not None,
}
_PLAIN_TYPES = {
    str(t): t
    for t in (
        *(pa.string(), pa.large_string(), pa.bool_(), pa.date32(), pa.float32(), pa.float64()),
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    )
}
_ALREADY_PLAIN = frozenset(t.id for t in _PLAIN_TYPES.values())
RECORD = "ldpsql:"  # how the name of the only field of a STRUCT begins that records what drew a report


@lru_cache(maxsize=256)
def family(arrow_type: pa.DataType) -> Family | None:
    """Return the family of values that a type can be compared with; None if it can be compared with none."""
    return next((name for name, holds in _FAMILIES.items() if holds(arrow_type)), None)


def plain(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the column as one array (DuckDB passes chunks), of a type in which Arrow can look values up."""
    whole = column
    if isinstance(column, pa.ChunkedArray):
        whole = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if whole.type.id in _ALREADY_PLAIN:
        return whole
    if pa.types.is_dictionary(whole.type):
        return _of_dictionary(whole)
    if pa.types.is_run_end_encoded(whole.type):
        return plain(pc.run_end_decode(whole))
    if isinstance(whole.type, pa.BaseExtensionType):
        return _of_extension(whole)
    if not _readable(whole.type):
        raise WrongType("a column holds intervals, which cannot be compared", "cast it to VARCHAR, or pass dates")
    if _holds_records(whole.type):
        return plain(_without_records(whole))
    kind = _plainer(whole.type)
    return whole if kind == whole.type else whole.cast(kind)  # a cast of an empty map to its own type crashes the process


@lru_cache(maxsize=256)
def _readable(kind: pa.DataType) -> bool:
    """Return whether Arrow can pass values of a type to NumPy: without pandas, it ends the process at an interval."""
    if pa.types.is_interval(kind):
        return False
    own = [kind.value_type] if pa.types.is_dictionary(kind) else [kind.field(i).type for i in range(kind.num_fields)]
    return all(map(_readable, own))


def is_record(kind: pa.DataType) -> bool:
    """Return whether values of a type are reports whose type records what drew them."""
    return pa.types.is_struct(kind) and kind.num_fields == 1 and kind.field(0).name.startswith(RECORD)


@lru_cache(maxsize=256)
def _holds_records(kind: pa.DataType) -> bool:
    return is_record(kind) or any(_holds_records(kind.field(i).type) for i in range(kind.num_fields))


def struct_parts(column: pa.StructArray) -> list[pa.Array]:
    """Return the fields of a struct, each NULL where the struct is, except for a UNION, which keeps what it holds there.

    A UNION has no bitmap of NULLs: Arrow ends the process if one is to be NULL because its struct is.
    """
    kinds = [field.type for field in column.type]
    return [column.field(i) if pa.types.is_union(kind) else pc.struct_field(column, [i]) for i, kind in enumerate(kinds)]


def _without_records(column: pa.Array) -> pa.Array:
    """Return a column with plain reports instead of those that record what drew them, also in lists, structs and maps."""
    kind = column.type
    if not _holds_records(kind):
        return column
    if is_record(kind):
        return _without_records(pc.struct_field(column, [0]))
    missing = column.is_null() if column.null_count else None
    if pa.types.is_struct(kind):
        return pa.StructArray.from_arrays([_without_records(part) for part in struct_parts(column)], kind.names, mask=missing)
    whole = pa.concat_arrays([column])  # its offsets begin at 0
    ends = whole.offsets.cast(pa.int32())
    if pa.types.is_map(kind):
        parts = [_without_records(part) for part in (whole.keys, whole.items)]
        return pa.MapArray.from_arrays(ends, *parts, mask=missing)
    return pa.ListArray.from_arrays(ends, _without_records(whole.values), mask=missing)


def copied(values: pa.Array) -> pa.Array:
    """Return a copy of a column of a family in memory of its own: Arrow joins even a single column into new buffers."""
    return pa.concat_arrays([values])


def with_nulls(column: pa.Array, valid: NDArray[np.bool_]) -> pa.Array:
    """Return a column with NULL in the rows that are not valid, which it leaves out."""
    return column if valid.all() else column.take(pa.array(np.cumsum(valid) - 1, mask=~valid))


def _plainer(kind: pa.DataType) -> pa.DataType:
    """Return the type for the same values in which Arrow can look them up, also in lists and structs."""
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):  # Polars has large ones
        return pa.list_(kind.value_field.with_type(_plainer(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plainer(field.type)) for field in kind])
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_decimal32(kind) or pa.types.is_decimal64(kind):
        return pa.decimal128(kind.precision, kind.scale)
    return kind


def _of_dictionary(column: pa.Array) -> pa.Array:
    """Return a dictionary column, with plain strings for string views (as in Polars), and decoded if it contains NULL."""
    if pa.types.is_string_view(column.type.value_type):
        column = column.cast(pa.dictionary(column.type.index_type, pa.string(), column.type.ordered))
    return column.dictionary_decode() if column.dictionary.null_count else column


def _of_extension(column: pa.Array) -> pa.Array:
    """Return the booleans and HUGEINTs that DuckDB passes in its lossless mode as plain columns; others unchanged."""
    if isinstance(column.type, pa.Bool8Type):
        return column.storage.cast(pa.bool_())
    if isinstance(column.type, pa.OpaqueType) and column.type.type_name == "hugeint":  # the bytes are those of a decimal
        stored = column.storage
        return pa.Array.from_buffers(pa.decimal128(38, 0), len(stored), stored.buffers(), offset=stored.offset)
    return column


def named_type(name: str) -> pa.DataType:
    """Return the type of plain values that Arrow gives this name.

    Raises:
        KeyError: if no such type exists.

    """
    if match := re.fullmatch(r"decimal128\((\d+), (\d+)\)", name):
        return pa.decimal128(int(match[1]), int(match[2]))
    if match := re.fullmatch(r"timestamp\[(s|ms|us|ns)(?:, tz=([\w/+:-]+))?\]", name):
        return pa.timestamp(match[1], match[2])
    return _PLAIN_TYPES[name]


def widened(values: pa.Array, target: pa.DataType) -> pa.Array | None:
    """Return whole numbers or strings in another such type, None if it cannot hold them all, or for values of other types."""
    whole = pa.types.is_integer(values.type) and pa.types.is_integer(target)
    if not whole and not (family(values.type) == family(target) == "text"):
        return None
    try:
        return values.cast(target)
    except pa.ArrowException:
        return None


def in_utc(values: pa.Array) -> pa.Array:
    """Return times with a time zone in UTC, which are the same times; other values as they are."""
    zoned = pa.types.is_timestamp(values.type) and values.type.tz is not None
    return values.cast(pa.timestamp(values.type.unit, "UTC")) if zoned else values


def exactly(value: pa.Scalar, target: pa.DataType) -> pa.Scalar | None:
    """Return a value in another type of its family if that type can hold the same value, else None.

    A decimal is the same as a float if it rounds to it: 0.1 and 0.1::DOUBLE.
    """
    try:
        number = value.as_py()
        if not isinstance(number, int | float | Decimal) or isinstance(number, bool):
            converted = value.cast(target)
            return converted if converted.cast(value.type).equals(value) else None
        if pa.types.is_floating(target):
            near = np.float32(number) if target == pa.float32() else np.float64(number)
            same = isinstance(number, Decimal) or Fraction(float(near)) == Fraction(number)
            return pa.scalar(float(near), target) if same else None
        if pa.types.is_decimal(target):
            exact = Decimal(repr(number) if isinstance(number, float) else number)
            rounded = exact.quantize(Decimal(1).scaleb(-target.scale))
            same = float(rounded) == number if isinstance(number, float) else rounded == number
            return pa.scalar(rounded, target) if same else None
        return pa.scalar(int(number), target) if int(number) == number else None
    except (pa.ArrowException, ArithmeticError, ValueError):
        return None


def finite_or_null(numbers: NDArray[np.float64] | NDArray[np.int64]) -> pa.Array:
    """Return numbers as a column in which infinite ones, errors of what reports do not determine, are NULL."""
    return pa.array(numbers, mask=np.isinf(numbers))
