"""Named mechanisms as SQL: ``city = "krr(...)"`` in ldpsql.toml becomes ``ldp.m.city()`` on every connection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from duckdb import DuckDBPyConnection

from ldpsql.domains.composite import Product
from ldpsql.domains.domain import Domain
from ldpsql.domains.sql_types import sql_type
from ldpsql.engine.functions import CATALOG_NUMBER, MARK, Macros, struct_text
from ldpsql.engine.sql_struct import columns_of, long_domains, struct_sql
from ldpsql.errors import BadSettings, InvalidParameter, LdpError, OtherMechanism, RowBudgetExceeded, SourceRefused
from ldpsql.errors.boundary import of_sql
from ldpsql.inference.mixed import Mixed
from ldpsql.mechanisms.base import Mechanism
from ldpsql.mechanisms.families import OrderedMechanism
from ldpsql.names import MECHANISM_HANDLE
from ldpsql.quoting import quoted, text_literal
from ldpsql.registry.documents import from_file
from ldpsql.registry.handles import DECLARATIONS, MECHANISMS, NAME
from ldpsql.registry.registry import registry

# The catalogs of ldpsql on this connection, each with whether it names a mechanism; usually there is one, ldp.
_CATALOGS = """
    SELECT database_name, bool_or(schema_name = 'm') FROM duckdb_functions()
    WHERE (schema_name = 'main' AND function_name = $2) OR (schema_name = 'm' AND lower(function_name) = lower($1))
    GROUP BY database_name HAVING bool_or(schema_name = 'main') ORDER BY database_name <> 'ldp', database_name"""


def macros(named: Mapping[str, Any], con: DuckDBPyConnection) -> Macros:
    """Return one macro in the schema ``m`` for each named mechanism; the connection supplies DuckDB's names of types."""
    if len({name.lower() for name in named}) < len(named):
        raise BadSettings(
            "two mechanisms in the settings have names that differ only in case", "SQL ignores case: rename one of them"
        )
    made = "".join(
        f"\nCREATE OR REPLACE MACRO ldp.m.{quoted(name)}() AS {_call(name, spec, con)};" for name, spec in named.items()
    )
    return Macros(made)


def _call(name: str, spec: Any, con: DuckDBPyConnection) -> str:
    """Return the SQL of a named mechanism."""
    if not NAME.fullmatch(name):
        raise BadSettings("a mechanism in the settings needs a name of letters, digits and _", "for example city")
    written = name if registry().named.get(name) is spec else spec
    try:
        return sql_call(registry().mechanism(written, con), con)
    except SourceRefused as error:  # the table may be made later, as dbt does
        return _refusal(error, "attach ldpsql again as soon as it can be read")
    except (RowBudgetExceeded, OtherMechanism) as error:  # of the policy or the domain of one table
        return _refusal(error, error.hint)
    except LdpError as error:
        raise BadSettings(f"the mechanism '{name}' in the settings: {error.message}", error.hint) from None


def _refusal(error: LdpError, hint: str) -> str:
    """Return SQL in place of a mechanism that raises an error when it is used."""
    refusal = f"error({text_literal(f'[{error.code}] {error.message}. Hint: {hint}')})::VARCHAR"
    return f"{{'mechanism': {refusal}, 'domain': []::VARCHAR[], 'reports': []::VARCHAR[]}}"


def mechanism_of(spec: Mechanism | str, con: DuckDBPyConnection | None) -> Mechanism:
    """Return the mechanism that ``spec`` is, writes as text, or names on this connection (see `attach`) or in the settings.

    A name that ends in .json is the path of a document. Without a connection, domains may be in files, and not in tables.

    Raises:
        UnknownName, InvalidSpec, InvalidParameter: if it cannot be read.
        SourceRefused, OtherMechanism: if a document cannot be read, or describes another mechanism than its parameters make.

    """
    if isinstance(spec, str) and spec.endswith(".json"):
        return registry().mechanism(from_file(Path(spec)))
    if con is None or not isinstance(spec, str) or not NAME.fullmatch(name := spec.strip()):
        return registry().mechanism(spec, con, files=True)
    if name in registry().policies:
        registry().mechanism(name, con)  # refused here, as DuckDB's own errors are withheld
    with con.cursor() as cursor:
        catalogs = cursor.execute(_CATALOGS, [name, MARK]).fetchall()
        named = [catalog for catalog, is_named in catalogs if is_named]
        declared = _declared(cursor, [catalog for catalog, _ in catalogs], name)
        if declared is not None:
            if named:
                raise InvalidParameter("ldp.declare and the settings both name this mechanism", "declare it under another name")
            return declared
        if not named:
            return registry().mechanism(spec, con)
        call = f"{quoted(named[0])}.m.{quoted(name)}()"
        try:
            ((number,),) = cursor.execute(f"SELECT system.main.{MECHANISM_HANDLE}({call})").fetchall()
        except duckdb.InvalidInputException as error:
            raise of_sql(error) or error from None
    return MECHANISMS.thing(number)


def _declared(cursor: DuckDBPyConnection, catalogs: Iterable[str], name: str) -> Mechanism | None:
    """Return the mechanism that ``ldp.declare`` stored under a name in one of these catalogs, or None."""
    for catalog in catalogs:
        ((number,),) = cursor.execute(f"SELECT {quoted(catalog)}.{CATALOG_NUMBER}()").fetchall()
        if name.casefold() in (names := DECLARATIONS.names(number)):
            return names[name.casefold()]
    return None


def sql_call(mechanism: Mechanism | Mixed, con: DuckDBPyConnection) -> str:
    """Return SQL for a mechanism: its constructor, ``ldp.krr("epsilon" := '1', ...)``, or JSON if its domain is long.

    That of the mechanisms of levels is a MAP of them.
    """
    if isinstance(mechanism, Mixed):
        each = [sql_call(one, con) for one in mechanism.mechanisms if isinstance(one, Mechanism)]
        return f"map({list_literal(mechanism.levels.values, con)}, [{', '.join(each)}])"
    if parts := columns_of(mechanism):
        columns = {part.column: sql_call(part.mechanism, con) for part in parts}
        return f"ldp.{quoted(mechanism.name)}({struct_text(columns)})"
    if long_domains(mechanism):
        return struct_sql(mechanism)
    written = mechanism.given()  # domains as plain lists, without their type
    domains = {name: domain for name in written if isinstance(domain := getattr(mechanism, name), Domain)}
    arguments = {name: _literal(value, con) for name, value in (written | domains).items()}
    if isinstance(mechanism, OrderedMechanism):  # its values have the type of the lower end
        arguments["low"] = f"CAST({arguments['low']} AS {sql_type(mechanism.values().values.type)})"
    return f"ldp.{mechanism.name}({', '.join(f'{quoted(name)} := {value}' for name, value in arguments.items())})"


def _literal(value: Any, con: DuckDBPyConnection) -> str:
    if isinstance(value, Product):
        return struct_text({name: _literal(part, con) for name, part in zip(value.names, value.parts, strict=True)})
    if isinstance(value, Domain):
        return list_literal(value.values, con)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_literal(item, con) for item in value)}]"
    return text_literal(str(value))


def list_literal(values: pa.Array, con: DuckDBPyConnection) -> str:
    """Return values as a SQL list with the type of the values."""
    kind = con.from_arrow(pa.table([values], ["value"])).types[0]
    return f"[{', '.join(text_literal(text) for text in values.cast(pa.string()).to_pylist())}]::{kind}[]"
