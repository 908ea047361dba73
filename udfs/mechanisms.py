"""SQL constructors of mechanisms, generated from the registry: ``ldp.krr(epsilon, domain)`` returns a STRUCT."""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa

from ldpsql.domains.written import check_epsilon, check_listed, check_written
from ldpsql.engine.functions import changing
from ldpsql.engine.sql_struct import reports_type, values_type
from ldpsql.functions import SOURCES, Column, Macros, Registry, Scalar, Texts, by_row, guarded, hookimpl, plain
from ldpsql.mechanisms import InvalidParameter
from ldpsql.registry.agreement import read_source
from ldpsql.registry.handles import mechanism_number, numbers, read_parts


@guarded
def mechanism_handle(specs: Column) -> pa.Array:
    """Return the handle of each mechanism, from the STRUCT that its constructor returns."""
    return pa.array(numbers(plain(specs), mechanism_number), pa.int64())


@guarded
def source_handle(specs: Column, types: Texts) -> pa.Array:
    """Return the handle of what drew reports: a mechanism, or the mechanisms of levels.

    Args:
        specs: the mechanisms; false stands for the one that the type records.
        types: the types of the reports or of their counts in SQL; NULL if they do not matter.

    Raises:
        OtherMechanism: if the type records another mechanism.

    """
    rows = pa.StructArray.from_arrays([plain(specs), plain(types)], ["spec", "type"])
    return pa.array(numbers(rows, lambda row: SOURCES.number(read_source(row["spec"], row["type"].as_py()))), pa.int64())


@guarded
def drawn_handle(specs: Column) -> pa.Array:
    """Return the handle of the mechanism that is to draw; one that changes from row to row is refused before it is read."""
    column = plain(specs)
    if len(column) > 1 and not column.slice(1).equals(column.slice(0, len(column) - 1)):
        raise changing()
    return pa.array(numbers(column, mechanism_number), pa.int64())


@by_row(Column, returns=pa.string())
def row_values(columns: pa.Scalar) -> str:
    """Return the type of the rows of a struct of mechanisms, as from_json reads it."""
    return values_type(read_parts(columns))


@by_row(Column, returns=pa.string())
def row_reports(columns: pa.Scalar) -> str:
    """Return the type of the reports of a struct of mechanisms, as from_json reads it."""
    return reports_type(read_parts(columns))


@guarded
def written(*parameters: Texts) -> pa.Array:
    """Return a type, as from_json reads it, if parameters can be what they are named, and no list is too long.

    Args:
        parameters: for each, its name, empty if it may have another type than a list, and its SQL.

    """
    if len(parameters) % 2:
        raise InvalidParameter("each parameter needs its name and its SQL", "call the constructor of a mechanism")
    for row in zip(*(plain(column).to_pylist() for column in parameters), strict=True):
        for name, text in zip(row[::2], row[1::2], strict=True):
            (_check if len(text or "") > _SHORT else _checked)(name, text or "")
    return pa.array(['"VARCHAR"'] * len(parameters[0]))


def _check(name: str | None, text: str) -> None:
    if name == "epsilon":
        check_epsilon(text)
    elif name:
        check_listed(name, text)
    check_written(text)


_SHORT = 10_000  # characters
_checked = lru_cache(maxsize=256)(_check)  # a statement mentions its mechanism several times


@guarded
def missing(calls: Texts, parameters: Texts, given: Texts) -> pa.Array:  # noqa: ARG001  # not constant until there is a call
    """Refuse a constructor that was called without a parameter."""
    call, parameter = (plain(column)[0].as_py() or "" for column in (calls, parameters))
    raise InvalidParameter(f"{call.partition('(')[0]} needs {parameter}", f"write ldp.{call}")


@hookimpl
def ldpsql_functions(known: Registry) -> list[Scalar | Macros]:
    """Offer one constructor for each mechanism, and the function that reads them."""
    text = "\n".join(known.constructors.values())
    return [
        Scalar("__ldp_mechanism", mechanism_handle, "BIGINT"),
        Scalar("__ldp_source", source_handle, "BIGINT"),
        Scalar("__ldp_drawn", drawn_handle, "BIGINT"),
        Scalar("__ldp_row_values", row_values, "VARCHAR"),
        Scalar("__ldp_row_reports", row_reports, "VARCHAR"),
        Scalar("__ldp_written", written, "VARCHAR"),
        Scalar("__ldp_missing", missing, "VARCHAR"),
        Macros(text),
    ]
