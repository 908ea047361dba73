"""Python columns and frames as Arrow arrays: lists, NumPy, pandas, Polars, and objects with Arrow's interfaces.

pandas is never imported here: if somebody passes a pandas frame, it is imported already. NaN, NaT and NA of pandas and NumPy
are NULL, since these libraries have no other sign of a missing value; so are the masked values of a masked array.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from ldpsql.domains.columns import plain
from ldpsql.errors import WrongType

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
    if isinstance(values, pl.Series):
        return values.to_arrow()
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if isinstance(values, np.ndarray) or _is_pandas_column(values):
        return _nan_as_null(pa.array(values, from_pandas=True))
    if isinstance(values, Sequence) and not isinstance(values, str | bytes):
        return pa.array(values)
    if hasattr(values, "__arrow_c_array__") and not is_frame(values):
        return pa.array(values)
    raise TypeError


def _nan_as_null(column: pa.Array) -> pa.Array:
    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)


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
        return "pass one column, such as frame['city']"
    if getattr(values, "ndim", 1) != 1:
        return "pass one dimension, such as array[:, 0]"
    if isinstance(values, np.ndarray) or _is_pandas_column(values):
        return "cast it, for example with astype, to text, numbers, booleans, dates or times"
    return "pass a list or one column, such as frame['city']"
