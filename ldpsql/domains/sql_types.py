"""The names of Arrow's types in SQL, and the parameters of mechanisms as numbers there."""

from __future__ import annotations

import re

import pyarrow as pa

from ldpsql.quoting import quoted

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


# Parameters of mechanisms as numbers in SQL, for the lists of values that SQL computes in the same way as the domains here.
#
# Constructors of mechanisms hold parameters as text, so that decimals stay exact. The error of a failing cast would show the
# value, which may be a person's, hence `try_cast`. So would the error of a sum or a product that overflows, hence HUGEINT,
# which holds the sum and the product of two BIGINTs.

MOST = 1 << 18  # no mechanism has as many values or reports that its numbers determine


def whole(parameter: str) -> str:
    """Return the SQL for a parameter as a whole number."""
    return f"try_cast({quoted(parameter)} AS BIGINT)"


def wide(parameter: str) -> str:
    """Return the SQL for a parameter as a whole number that can be added to others, and multiplied by one other."""
    return f"{whole(parameter)}::HUGEINT"


def double(parameter: str) -> str:
    """Return the SQL for a parameter in double precision."""
    return f"try_cast({quoted(parameter)} AS DOUBLE)"


def counted(number: str, most: int = MOST) -> str:
    """Return the SQL for the list of the whole numbers from 0 up to, not including, a number; empty if it is above ``most``."""
    end = f"try_cast({number} AS BIGINT)"
    return f"range(CASE WHEN {end} > {most} THEN 0 ELSE {end} END)"


def between(first: str, last: str) -> str:
    """Return the SQL for the list of the whole numbers from one to another, both HUGEINTs.

    It is empty if it would hold more than `MOST` or a number is too large: Python refuses such parameters, and DuckDB makes the
    list first.
    """
    end = f"CASE WHEN {last} - ({first}) > {MOST} THEN {first} ELSE {last} + 1 END"
    return f"coalesce(range(try_cast({first} AS BIGINT), try_cast({end} AS BIGINT)), [])"


def unless_null(parameter: str, expression: str, otherwise: str) -> str:
    """Return SQL that evaluates ``expression`` unless a parameter is NULL, else ``otherwise``."""
    return f"CASE WHEN {quoted(parameter)} IS NULL THEN {otherwise} ELSE {expression} END"


def after(first: list[int], numbers: str) -> str:
    """Return the SQL for a list of whole numbers that follow the numbers ``first``."""
    return f"list_concat({first}, {numbers})"
