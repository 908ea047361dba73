"""The names of Arrow's types in SQL."""

from __future__ import annotations

import re

import pyarrow as pa

SQL_TYPES = {
    pa.string(): "VARCHAR",
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.uint8(): "UTINYINT",
    pa.uint16(): "USMALLINT",
    pa.uint32(): "UINTEGER",
    pa.uint64(): "UBIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.date32(): "DATE",
    pa.timestamp("s"): "TIMESTAMP_S",
    pa.timestamp("ms"): "TIMESTAMP_MS",
    pa.timestamp("us"): "TIMESTAMP",
    pa.timestamp("ns"): "TIMESTAMP_NS",
}
_SHOWN = {  # the other types that columns may have, by the first word of Arrow's name
    "string_view": "VARCHAR",
    "binary": "BLOB",
    "date64": "DATE",
    "duration": "INTERVAL",
    "extension": "extension of Arrow",
    "fixed_size_binary": "BLOB",
    "fixed_size_list": "ARRAY",
    "large_binary": "BLOB",
    "large_list": "LIST",
    "month_day_nano_interval": "INTERVAL",
    "time32": "TIME",
    "time64": "TIME",
}


def sql_type(kind: pa.DataType) -> str | None:
    """Return the name in SQL of a type that values of a domain may have; None for any other type."""
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return "TIMESTAMP WITH TIME ZONE"
    return "VARCHAR" if pa.types.is_large_string(kind) else SQL_TYPES.get(kind)


def shown_type(kind: pa.DataType) -> str:
    """Return the name of a type in SQL for a message.

    Of a nested type it is only the outermost, since the names of its fields may be raw values.

    >>> shown_type(pa.int64()), shown_type(pa.struct([("Lima", pa.int8())]))
    ('BIGINT', 'STRUCT')
    """
    if pa.types.is_dictionary(kind):
        return shown_type(kind.value_type)
    outermost = re.split(r"[<(\[]", str(kind))[0]
    return sql_type(kind) or _SHOWN.get(outermost, outermost.upper())
