"""Arrow columns in plain form, made of lists, arrays and frames of Python, too, and which values are the same.

Everything that reads a column of values or reports reads it through `plain`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ldpsql.channels import Words64
from ldpsql.channels.hashed import splitmix
from ldpsql.errors import InvalidSpec, WrongType

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


def python_value(value: pa.Scalar) -> Any:
    """Return a parameter as Python has it.

    Raises:
        InvalidSpec: if it is a date or a time beyond those of Python, such as infinity, or holds one.

    """
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        raise InvalidSpec("a parameter is a date or a time that cannot be read", "years 1 to 9999") from None


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


def as_numbers(column: pa.Array) -> NDArray[np.float64]:
    """Return a column of numbers or booleans as doubles; NULL is NaN."""
    if family(column.type) != "number" and not pa.types.is_boolean(column.type) and not pa.types.is_null(column.type):
        raise WrongType("raw columns and weights must be numbers or booleans", "such as (city = 'Lima')::INTEGER")
    whole = column.cast(pa.uint8()) if pa.types.is_boolean(column.type) else column
    return np.asarray(whole.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))


# Numbers for the distinct values of a column of any type, in little more memory than the column itself.

_CELLS = 1 << 16  # words at a time, so that what is mixed stays in the cache


def distinct(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the first row of each distinct value of a column without NULLs, and for each row the number of its value.

    Lists, structs and unions are compared part by part, which Arrow does not offer.
    """
    column = plain(column)
    if not pa.types.is_nested(column.type):
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()  # a dictionary may hold values that no row has
        number = np.asarray(column.dictionary_encode(null_encoding="encode").indices.to_numpy(zero_copy_only=False))
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


def _in_lists(column: pa.Array) -> pa.Array:
    """Return arrays, and maps in the order of their entries, as lists; other columns as they are."""
    if pa.types.is_fixed_size_list(column.type):
        return column.cast(pa.list_(column.type.value_type))
    if pa.types.is_map(column.type):
        entries = pa.StructArray.from_arrays([column.keys, column.items], ["key", "value"])
        return pa.ListArray.from_arrays(column.offsets, entries)
    return column


def _keys(column: pa.Array) -> Words64:
    """Return a row of words for each value of a column; rows are equal if and only if the values are."""
    column = _in_lists(column)
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
        return np.concatenate([lengths.astype(np.uint64)[:, None], out.reshape(len(column), longest * parts.shape[1])], axis=1)
    if pa.types.is_integer(column.type) and not column.null_count:
        return np.asarray(column.to_numpy(zero_copy_only=False).astype(np.uint64, copy=False)[:, None])
    return _ranked(column).astype(np.uint64)[:, None]


# Python columns and frames as Arrow arrays: lists, NumPy, pandas, Polars, and objects with Arrow's interfaces.
#
# pandas is never imported here: if somebody passes a pandas frame, it is imported already. NaN, NaT and NA of pandas and NumPy
# are NULL, since these libraries have no other sign of a missing value; so are the masked values of a masked array.

_REFUSED = (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError, NotImplementedError)


def column_of(values: Any, name: str = "") -> pa.Array:
    """Return a column as one plain Arrow array.

    Args:
        values: a list, an Arrow array, a Polars or pandas series, a pandas index or array, a NumPy array of one dimension.
        name: the name for messages, if it is a column of a frame.

    Raises:
        WrongType: if it is not a column of values of one Arrow type; the message names the type of the argument.

    """
    try:
        return plain(_converted(values))
    except _REFUSED:
        pass  # their messages quote values
    refused = f"the column '{name}' ({_described(values)})" if name else f"this {_described(values)}"
    raise WrongType(f"{refused} is not a column of values of one type", _advice(values))


def type_of_column(values: Any) -> pa.DataType:
    """Return the type of a column in Arrow, of reports with their record; see `column_of`."""
    try:
        return _converted(values).type
    except _REFUSED:
        return pa.null()  # `column_of` raises it


def is_frame(values: Any) -> bool:
    """Return whether this object has named columns: a Polars or pandas frame, an Arrow table or stream, a DuckDB relation."""
    if isinstance(values, pl.DataFrame | pl.LazyFrame) or is_pandas_frame(values):
        return True
    is_column = isinstance(values, pl.Series | pa.Array | pa.ChunkedArray) or _is_pandas_column(values)
    return not is_column and hasattr(values, "__arrow_c_stream__")


def _pandas() -> Any:
    """Return pandas, or None if it is not imported: then nothing comes from it."""
    pandas = sys.modules.get("pandas")
    return pandas if hasattr(pandas, "api") else None  # its classes come before `api`; another thread may be importing it


def is_pandas_frame(values: Any) -> bool:
    """Return whether this is a pandas DataFrame."""
    pandas = _pandas()
    return pandas is not None and isinstance(values, pandas.DataFrame)


def is_pandas_series(values: Any) -> bool:
    """Return whether this is a pandas Series."""
    pandas = _pandas()
    return pandas is not None and isinstance(values, pandas.Series)


def pandas_names(frame: Any) -> list[str]:
    """Return the names of the columns of a DataFrame; labels that are not strings are converted to strings."""
    return [str(label) for label in frame.columns]


def pandas_table(frame: Any, wanted: Collection[str]) -> pa.Table:
    """Return columns of a DataFrame, without its index.

    Raises:
        WrongType: if a column does not have values of one Arrow type.

    """
    names = pandas_names(frame)
    places = [place for place, name in enumerate(names) if name in wanted]
    return pa.table([column_of(frame.iloc[:, place], names[place]) for place in places], [names[place] for place in places])


def like_series(reports: pa.Array, series: Any) -> Any:
    """Return reports as a pandas Series with the index and the name of another."""
    # Arrow's own conversion turns whole numbers next to a NULL in structs into floats.
    structs = pa.types.is_struct(reports.type)
    drawn = sys.modules["pandas"].Series(reports.to_pylist(), dtype=object) if structs else reports.to_pandas()
    drawn.index, drawn.name = series.index, series.name
    return drawn


def shown_class(values: object) -> str:
    """Return the name of an object's class for a message."""
    kind = type(values)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__.split('.')[0]}.{kind.__qualname__}"


def _converted(values: Any) -> pa.Array | pa.ChunkedArray:
    if isinstance(values, pl.Series | pa.Array | pa.ChunkedArray):
        return values.to_arrow() if isinstance(values, pl.Series) else values
    if isinstance(values, np.ndarray) or _is_pandas_column(values):
        column = pa.array(values, from_pandas=True)
        if not pa.types.is_floating(column.type):
            return column
        return pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
    if isinstance(values, Sequence) and not isinstance(values, str | bytes):
        with suppress(OverflowError):
            return pa.array(values)
        return pa.array(values, pa.decimal128(38, 0))  # whole numbers above 64 bits, as a HUGEINT arrives here
    if hasattr(values, "__arrow_c_array__") and not is_frame(values):
        return pa.array(values)
    raise TypeError


def _is_pandas_column(values: Any) -> bool:
    pandas = _pandas()
    return pandas is not None and isinstance(values, pandas.Series | pandas.Index | pandas.api.extensions.ExtensionArray)


def _described(values: Any) -> str:
    """Return class and type of values for a message; for a pandas type only its class, since its name may hold values."""
    dtype, dimensions = getattr(values, "dtype", None), getattr(values, "ndim", 1)
    if is_frame(values) or dtype is None:
        return shown_class(values)
    if dimensions != 1:
        return f"{shown_class(values)} of {dimensions} dimensions"
    return f"{shown_class(values)} of {dtype.name if isinstance(dtype, np.dtype) else type(dtype).__name__}"


def _advice(values: Any) -> str:
    if is_frame(values):
        return "pass one column, such as frame['city'], or the frame to ldpsql.perturb_batches"
    if getattr(values, "ndim", 1) != 1:
        return "pass one dimension, such as array[:, 0]"
    if isinstance(values, np.ndarray) or _is_pandas_column(values):
        return "cast it, for example with astype, to text, numbers, booleans, dates or times"
    return "pass a list or one column, such as frame['city']"
