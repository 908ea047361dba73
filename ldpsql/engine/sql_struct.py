"""A mechanism written as text becomes the STRUCT that its SQL constructor makes: its values as JSON, and its type.

A macro passes both to DuckDB's from_json, which reads the type while it binds a statement. So reports keep the type of the
domain.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from ldpsql.domains.domain import Domain
from ldpsql.domains.pinned import is_long, pin
from ldpsql.errors import InvalidSpec
from ldpsql.mechanisms.base import Mechanism
from ldpsql.reports import Alphabet, MarkedReports

_CONSTRUCTOR = "make the mechanism with its constructor, such as ldp.krr(1, ['a', 'b'])"
_SQL_TYPES = {
    pa.string(): "VARCHAR",
    pa.large_string(): "VARCHAR",
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


def long_domains(mechanism: Mechanism) -> dict[str, Domain]:
    """Return the parameters of a mechanism that are domains with too many values for a list in SQL."""
    parameters = {name: getattr(mechanism, name) for name in type(mechanism).model_fields}
    return {name: value for name, value in parameters.items() if is_long(value)}


def as_struct(mechanism: Mechanism) -> tuple[str, str]:
    """Return the values and the type of a mechanism's STRUCT, both as from_json reads them.

    Raises:
        InvalidSpec: if SQL has no type for the values of the domain.

    """
    long = long_domains(mechanism)
    plain = mechanism.given(without=long).items()
    made = {
        mechanism.kind: (mechanism.name, "VARCHAR"),
        **{name: _parameter(getattr(mechanism, name), value) for name, value in plain},
        **{name: _empty(domain) for name, domain in long.items()},
        "domain": _listed(mechanism.values().listed, pinned=bool(long)),
        "reports": _reports(mechanism.alphabet(), pinned=bool(long)),
    }
    if long:
        made["pinned"] = {name: pin(domain) for name, domain in long.items()}, dict.fromkeys(long, "VARCHAR")
    values, types = ({name: part[i] for name, part in made.items()} for i in range(2))
    return json.dumps(values), json.dumps(types)


def _listed(domain: Domain, *, pinned: bool) -> tuple[Any, Any]:
    """Return the values of a domain; if domains of the mechanism are pinned, a long one as an empty list of its type."""
    return _empty(domain) if pinned and is_long(domain) else _column(domain.values)


def _empty(domain: Domain) -> tuple[Any, Any]:
    return [], _column(domain.values[:1])[1]


def _parameter(own: Any, plain: Any) -> tuple[Any, Any]:
    """Return the value and the type of a parameter; anything but a domain is passed as text, as a constructor does."""
    if isinstance(own, Domain):
        return _column(own.values)
    if isinstance(plain, list | tuple):
        items = [_parameter(None, item) for item in plain]
        return [value for value, _ in items], [items[0][1]] if items else ["VARCHAR"]
    return str(plain), "VARCHAR"


def _reports(alphabet: Alphabet, *, pinned: bool) -> tuple[Any, Any]:
    """Return the value and the type of the field ``reports``: a list, or a mark if there are too many reports for one."""
    if isinstance(alphabet, Domain):
        return _listed(alphabet, pinned=pinned)
    if isinstance(alphabet, MarkedReports):
        return {alphabet.mark: 1}, {alphabet.mark: "INTEGER"}
    return _column(alphabet.distinct())


def _column(values: pa.Array) -> tuple[Any, Any]:
    """Return a list of values as text, and the type of the list."""
    if not pa.types.is_struct(values.type):
        return values.cast(pa.string()).to_pylist(), [_sql_type(values.type)]
    names = values.type.names
    parts = [_column(part) for part in values.flatten()]
    rows = [dict(zip(names, row, strict=True)) for row in zip(*(texts for texts, _ in parts), strict=True)]
    return rows, [{name: kind for name, (_, [kind]) in zip(names, parts, strict=True)}]


def _sql_type(kind: pa.DataType) -> str:
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return "TIMESTAMP WITH TIME ZONE"
    if kind not in _SQL_TYPES:
        raise InvalidSpec(f"SQL has no values of the type {kind}", _CONSTRUCTOR)
    return _SQL_TYPES[kind]
