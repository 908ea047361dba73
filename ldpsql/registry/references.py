"""Domains that are columns of tables or files: ``{table = "items", column = "item"}`` or ``{file = "items.parquet", ...}``.

A column is read once, when its mechanism is declared; what happens to the table later changes nothing. Rows have no order, so
the values are sorted, unless another column is named that orders them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from duckdb import DuckDBPyConnection

from ldpsql.domains.domain import Domain
from ldpsql.errors import InvalidDomain, LdpError, OtherMechanism, SourceRefused
from ldpsql.places import Place
from ldpsql.quoting import quoted, text_literal

_KEYS = {"table", "file", "column", "order", "fingerprint"}
_FORM = 'write domain = {table = "items", column = "item"}, or {file = "items.parquet", column = "item"}'
_REPAIR = "make a view for the domain: CREATE VIEW domain AS SELECT DISTINCT item FROM items WHERE item IS NOT NULL"


def is_reference(value: object) -> bool:
    """Return whether a parameter is a reference to a column."""
    return isinstance(value, Mapping) and bool({"table", "file", "column"} & value.keys())


def tables_of(spec: object) -> list[str]:
    """Return the tables that a mechanism in the settings refers to."""
    parameters = spec.values() if isinstance(spec, Mapping) else ()
    return [str(value["table"]) for value in parameters if is_reference(value) and "table" in value]


def resolved(value: Any, con: DuckDBPyConnection | None) -> Any:
    """Return the domain that a reference stands for; any other value as it is."""
    if not is_reference(value):
        return value
    if value.keys() - _KEYS or ("table" in value) == ("file" in value) or not all(isinstance(v, str) for v in value.values()):
        raise InvalidDomain("a domain in a table needs the table or the file, and the column", _FORM)
    if "column" not in value:
        raise InvalidDomain("a domain in a table needs the name of its column", _FORM)
    if con is None and "table" in value:
        raise SourceRefused(
            f"the domain is in the table '{value['table']}', and here no database is open",
            "use the mechanism on a connection, such as ldp.m.item(), or put the domain into a Parquet file",
        )
    with duckdb.connect() if con is None else con.cursor() as cursor:
        domain = _domain(_read(cursor, value))
    if value.get("fingerprint", domain.digits) != domain.digits:
        raise OtherMechanism(
            f"the domain in {_place(value)} is not the version that the settings name: {len(domain):,} values",
            f"its fingerprint is now {domain.digits}; give the new version a name of its own",
        )
    return domain


def _read(cursor: DuckDBPyConnection, reference: Mapping[str, str]) -> pa.Array:
    """Return the column of a reference in the order of another column, or sorted."""
    try:
        names = [reference["column"], *([reference["order"]] if "order" in reference else [])]
        if "table" in reference:
            source = cursor.table(reference["table"])
        elif not (place := Place.of(reference["file"])).is_url and not Path(place.text).is_file():
            raise SourceRefused(f"there is no file {reference['file']}", "give its path, relative to ldpsql.toml")
        else:
            place.open_to(cursor)
            source = cursor.sql(f"FROM {text_literal(place.text)}")  # a literal
        table = source.project(", ".join(f"{quoted(name)} AS c{place}" for place, name in enumerate(names))).to_arrow_table()
    except LdpError as error:
        refusal = error
    except (duckdb.Error, pa.ArrowException):  # their messages may quote values
        refusal = SourceRefused(f"the column '{reference['column']}' of {_place(reference)} cannot be read", _FORM)
    else:
        column = table.column(table.num_columns - 1)
        return table.column(0).take(pc.sort_indices(column)).combine_chunks()
    raise refusal


def _place(reference: Mapping[str, str]) -> str:
    return (
        f"the table '{reference['table']}'" if "table" in reference else f"the file '{Place.of(reference['file']).path.name}'"
    )


def _domain(column: pa.Array) -> Domain:
    try:
        return Domain.of(column)
    except InvalidDomain as error:
        raise InvalidDomain(
            error.message, _REPAIR if "NULL" in error.message or "twice" in error.message else error.hint
        ) from None
