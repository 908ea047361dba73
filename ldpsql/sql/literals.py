"""Values as SQL that all engines read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ldpsql.domains.domain import Domain
from ldpsql.domains.sql_types import shown_type
from ldpsql.errors import InvalidParameter


def number(value: float) -> str:
    """Return a double as SQL, from text: elsewhere than in DuckDB, a literal may be a decimal number."""
    return f"CAST('{float(value)!r}' AS DOUBLE)"


def text(value: str) -> str:
    """Return a string as SQL."""
    return exp.Literal.string(value).sql(dialect="duckdb")


def rows(columns: Iterable[tuple[object, ...]]) -> str:
    """Return rows of SQL expressions as those of VALUES."""
    return ", ".join(f"({', '.join(map(str, row))})" for row in columns)


def places(values: Domain) -> str:
    """Return the places and the values of a domain as the rows of VALUES."""
    literal = _literal_of(values.values.type)
    return rows((place, literal(value)) for place, value in enumerate(values.values.to_pylist()))


def _literal_of(kind: pa.DataType) -> Any:
    """Return the function that writes values of a type in SQL.

    Raises:
        InvalidParameter: if engines differ in how they write it.

    """
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return text
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return lambda value: str(value).upper()
    if pa.types.is_floating(kind):
        return number
    if pa.types.is_date(kind):
        return lambda value: f"CAST('{value.isoformat()}' AS DATE)"
    raise InvalidParameter(
        f"values of type {shown_type(kind)} have no SQL that all engines read", "declare text, numbers or dates"
    )
