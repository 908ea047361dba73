"""Domains as they are written: lists in SQL, refused before they fill the memory, and JSON that other programs read."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from ldpsql.domains.composite import PairSets, Product
from ldpsql.domains.domain import MOST_LISTED, Domain
from ldpsql.domains.unlisted import Bins, Moments, Steps, Strings, Whole
from ldpsql.errors import InvalidDomain, InvalidParameter
from ldpsql.privacy.claims import Epsilon

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


def check_length(length: int) -> None:
    """Refuse a list of more values than a domain may have, before it is made."""
    if length > MOST_LISTED:
        raise InvalidParameter(
            f"a domain may list at most {MOST_LISTED:,} values, and this would make a list of {length:,}",
            "group values, for example by a prefix, or divide numbers by a step",
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


_EXACT = 1 << 53  # whole numbers below are exact in every reader of JSON


def exported(values: Domain | PairSets | Strings) -> dict[str, Any]:
    """Return a domain, or a description of sets of pairs or strings, as plain JSON; its ``kind`` says how it is written.

    >>> exported(Domain.of(["Lima", "Oslo"])), exported(Domain.of(range(3, 9)))
    ({'kind': 'listed', 'type': 'string', 'values': ['Lima', 'Oslo']}, {'kind': 'whole', 'first': 3, 'count': 6, 'clip': False})
    """
    if isinstance(values, PairSets):
        rules = {"clip": values.clip, "drop_missing": values.drop_missing, "drop_unknown": values.drop_unknown}
        return {"kind": "pairs", "keys": exported(values.keys), "low": values.low, "high": values.high, **rules}
    if isinstance(values, Strings):
        return {"kind": "strings", "length": values.length, "letters": list(values.alphabet)}
    if isinstance(values, Product):
        return {"kind": "rows", "names": list(values.names), "parts": [exported(part) for part in values.parts]}
    return _by_ends(values) or exported_list(values)


def exported_list(values: Domain) -> dict[str, Any]:
    """Return a domain as plain JSON whose values are whole numbers in a row, or a list."""
    first = values._first_of_range
    if first is not None and abs(first) + len(values) < _EXACT:
        return _whole(first, values) | {"clip": False}
    return {"kind": "listed", "type": str(values.values.type), "values": listed(values)}


def _by_ends(values: Domain) -> dict[str, Any] | None:
    """Return a domain that is given by its ends; None if its values must be listed."""
    if isinstance(values, Whole):
        return _whole(values._low, values) | {"clip": values.clip}
    if isinstance(values, Bins):
        ends = {"low": values._low, "high": values._high, "width": values._width}
        return {"kind": "bins", **ends, "count": len(values), "clip": values.clip}
    if isinstance(values, Steps):
        steps = {"low": values._low, "high": values._high, "step": values._step, "each": values._each, "last": values._last}
        return {"kind": "steps", **steps, "clip": values.clip}
    if isinstance(values, Moments):
        unit = {"unit": values._unit // 1000, "first": values._first}  # milliseconds, as programs count time
        return {"kind": "moments", **unit, "count": len(values), "clip": values.clip}
    return None


def _whole(first: int, values: Domain) -> dict[str, Any]:
    return {"kind": "whole", "first": first, "count": len(values)}


def listed(values: Domain) -> list[Any]:
    """Return values as JSON has them: text, booleans, and numbers that are exact in doubles; all others as text."""
    kind = values.values.type
    if pa.types.is_float64(kind) or pa.types.is_boolean(kind):
        return list(values.values.to_pylist())
    if pa.types.is_integer(kind) and all(abs(number) < _EXACT for number in values.values.to_pylist()):
        return list(values.values.to_pylist())
    return values.texts
