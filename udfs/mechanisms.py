"""SQL constructors of mechanisms, generated from the registry: ``ldp.krr(epsilon, domain)`` returns a STRUCT."""

from __future__ import annotations

import re
from functools import lru_cache

import pyarrow as pa

from ldpsql.engine.functions import changing
from ldpsql.engine.sql_struct import reports_type, values_type
from ldpsql.errors import InvalidDomain
from ldpsql.functions import SOURCES, Column, Macros, Registry, Scalar, Texts, by_row, guarded, hookimpl, plain
from ldpsql.mechanisms import Epsilon, InvalidParameter
from ldpsql.registry.agreement import read_source
from ldpsql.registry.handles import mechanism_number, numbers, read_parts

_NEITHER = re.compile(r"'(?:[^']|'')*'|CAST\(| AS \w+\)")  # strings and casts
_CALL = re.compile(r'(?:"range"|(?<!["\w])(generate_series))\(([-+\de., ]+)\)')  # a column named range(9) is without quotes
_KIND = re.compile(r"ELSE CAST\(NULL AS (.*)\) END", re.DOTALL)
_UNDECIDED = ("NULL", "UNKNOWN", "JSON")
_NUMBER = re.compile(r"-?\d+(?:\.\d*)?(?:e\+?\d{1,2})?")
_CONSTANTS = re.compile(r"THEN \(list_value\((.*)\)\) ELSE", re.DOTALL)
_CONSTANT = re.compile(r"(?:CAST\()?(?:'(?:[^']|'')*'|-?[\d.]+|true|false)(?: AS \w+(?:\([\d,]+\))?\))?")
_ONE = re.compile(rf"THEN \({_CONSTANT.pattern}\) ELSE")
_VALUE = re.compile(r"'(?:[^']|'')*'|-?\d[\d.]*")
MOST_WRITTEN = 1 << 22  # values of a list in a statement
_SHORT = 10_000  # characters; equal values in longer lists are found when the mechanism is used


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


_checked = lru_cache(maxsize=256)(_check)  # a statement mentions its mechanism several times


def check_written(text: str) -> None:
    """Refuse an expression that makes a list of more values than a statement may hold.

    DuckDB copies a list in a statement several times, as objects of 64 bytes a value, before it calls any function. Only calls
    of ``range`` and ``generate_series`` with plain numbers are read, in the form in which DuckDB writes a bound expression: it
    has already computed sums and products of constants.
    """
    calls = _CALL.findall(_NEITHER.sub("", text)) if "range" in text or "generate_series" in text else []
    longest = max((_length(numbers, with_end=bool(series)) for series, numbers in calls), default=0)
    if longest > MOST_WRITTEN:
        raise InvalidParameter(
            f"a list in a statement may have at most {MOST_WRITTEN:,} values, and this would have {longest:,}",
            "declare the domain from a table with ldp.declare, group values by a prefix, or divide numbers by a step",
        )


def check_listed(parameter: str, text: str) -> None:
    """Refuse a parameter that cannot be a list, by its type; the type of NULL and of a placeholder is not known yet.

    Args:
        parameter: the name of the parameter.
        text: its SQL, as the alias of ``CASE WHEN false THEN parameter END``, which ends with the type.

    Raises:
        InvalidDomain: if the list is empty.
        InvalidParameter: for any other type that is not a list.

    >>> check_listed("domain", "CASE  WHEN (false) THEN ('a') ELSE CAST(NULL AS VARCHAR[]) END")
    """
    if "THEN (list_value()) ELSE" in text:
        raise InvalidDomain(f"{parameter} is an empty list", "list at least two values, such as ['yes', 'no']")
    if parameter == "domain" and len(text) < _SHORT and (constants := _CONSTANTS.search(text)):
        values = _CONSTANT.findall(constants[1])
        if ", ".join(values) == constants[1] and len(set(values)) < len(values):
            raise InvalidDomain("a domain must not hold a value twice", "list every value once")
    kind = found[1] if (found := _KIND.search(text[text.rfind(" ELSE ") :])) else "NULL"
    if not kind.endswith("]") and kind.strip('"') not in _UNDECIDED:
        outer = kind.partition("(")[0]  # without the values of an ENUM
        raise InvalidParameter(
            f"{parameter} must be a list of all possible values, not of type {outer}",
            f"{parameter} := ['Lima', 'Oslo'], or a subquery of public values: (SELECT list(city) ...)",
        )


def check_epsilon(text: str) -> None:
    """Refuse an epsilon that is a constant, and not one that a mechanism can have, nor infinity, which a level can have.

    Args:
        text: its SQL, as for `check_listed`.

    Raises:
        InvalidEpsilon: see `Epsilon.parse`.

    >>> check_epsilon("CASE  WHEN (false) THEN (CAST('0.5' AS VARCHAR)) ELSE CAST(NULL AS VARCHAR) END")
    """
    value = _VALUE.search(constant[0]) if (constant := _ONE.search(text)) else None
    if value and value[0].strip("'").lower() not in ("inf", "infinity"):
        Epsilon.parse(value[0].strip("'"))


def _length(arguments: str, *, with_end: bool) -> int:
    """Return the length of the list that a call makes; 0 if DuckDB refuses the call."""
    numbers = [int(float(number)) for number in _NUMBER.findall(arguments)]
    start, end, step = {1: (0, *numbers, 1), 2: (*numbers, 1), 3: tuple(numbers)}.get(len(numbers), (0, 0, 1))
    end += (1 if step > 0 else -1) * with_end
    return max(0, -((start - end) // step)) if step else 0  # not len(range(..)), which refuses lengths above 2^63


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
