"""Named mechanisms as SQL: ``city = "krr(...)"`` in ldpsql.toml becomes ``ldp.m.city()`` on every connection."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from duckdb import DuckDBPyConnection

from ldpsql.domains.domain import Domain
from ldpsql.engine.functions import MARK, Macros
from ldpsql.errors import BadSettings, LdpError
from ldpsql.mechanisms.base import Mechanism
from ldpsql.names import MECHANISM_HANDLE
from ldpsql.quoting import quoted, text_literal
from ldpsql.registry.handles import MECHANISMS
from ldpsql.registry.registry import registry

# The catalogs of ldpsql on this connection that name a mechanism; usually there is one, ldp.
_CATALOGS = """
    SELECT database_name FROM duckdb_functions()
    WHERE schema_name = 'm' AND lower(function_name) = lower($1) AND database_name IN
        (SELECT database_name FROM duckdb_functions() WHERE schema_name = 'main' AND function_name = $2)
    ORDER BY database_name <> 'ldp', database_name"""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}", re.ASCII)


def macros(named: Mapping[str, Any], con: DuckDBPyConnection) -> Macros:
    """Return the schema ``m`` with one macro for each named mechanism; the connection supplies DuckDB's names of types.

    Raises:
        BadSettings: if a name is not a SQL name, two names differ in case only, or a mechanism cannot be read.

    """
    if len({name.lower() for name in named}) < len(named):
        raise BadSettings(
            "two mechanisms in the settings have names that differ in case only", "SQL takes them for one: rename one"
        )
    made = "".join(
        f"\nCREATE OR REPLACE MACRO ldp.m.{quoted(name)}() AS {_call(name, spec, con)};" for name, spec in named.items()
    )
    return Macros(f"CREATE SCHEMA IF NOT EXISTS ldp.m;{made}")


def _call(name: str, spec: Any, con: DuckDBPyConnection) -> str:
    """Return the constructor call of a named mechanism."""
    if not _NAME.fullmatch(name):
        raise BadSettings("a mechanism in the settings needs a name of letters, digits and _", "for example city")
    try:
        return sql_call(registry().mechanism(spec), con)
    except LdpError as error:
        raise BadSettings(f"the mechanism '{name}' in the settings: {error.message}", error.hint) from None


def mechanism_of(spec: Mechanism | str, con: DuckDBPyConnection) -> Mechanism:
    """Return the mechanism that ``spec`` is, writes as text, or names on this connection (see `attach`) or in the settings.

    Raises:
        UnknownName, InvalidSpec, InvalidParameter: if it cannot be read.

    """
    if not isinstance(spec, str) or not _NAME.fullmatch(name := spec.strip()):
        return registry().mechanism(spec)
    with con.cursor() as cursor:
        catalogs = cursor.execute(_CATALOGS, [name, MARK]).fetchall()
        if not catalogs:
            return registry().mechanism(spec)
        call = f"{quoted(catalogs[0][0])}.m.{quoted(name)}()"
        ((number,),) = cursor.execute(f"SELECT system.main.{MECHANISM_HANDLE}({call})").fetchall()
    return MECHANISMS.thing(number)


def sql_call(mechanism: Mechanism, con: DuckDBPyConnection) -> str:
    """Return the constructor call that makes this mechanism in SQL: ``ldp.krr("epsilon" := '1', ...)``."""
    written = mechanism.given()  # domains as plain lists, without their type
    domains = {name: domain for name in written if isinstance(domain := getattr(mechanism, name), Domain)}
    arguments = (f"{quoted(name)} := {_literal(value, con)}" for name, value in (written | domains).items())
    return f"ldp.{mechanism.name}({', '.join(arguments)})"


def _literal(value: Any, con: DuckDBPyConnection) -> str:
    if isinstance(value, Domain):
        return list_literal(value.values, con)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_literal(item, con) for item in value)}]"
    return text_literal(str(value))


def list_literal(values: pa.Array, con: DuckDBPyConnection) -> str:
    """Return values as a SQL list with the type of the values."""
    kind = con.from_arrow(pa.table([values], ["value"])).types[0]
    return f"[{', '.join(text_literal(text) for text in values.cast(pa.string()).to_pylist())}]::{kind}[]"
