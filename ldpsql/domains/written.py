"""Lists in SQL, by their types and their SQL: ``range(100000000)`` is refused before it fills the memory."""

from __future__ import annotations

import re

from ldpsql.domains.domain import MOST_LISTED
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
