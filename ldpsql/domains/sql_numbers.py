"""Parameters of mechanisms as numbers in SQL, for the lists of values that SQL computes in the same way as the domains here.

Constructors of mechanisms hold parameters as text, so that decimals stay exact. The error of a failing cast would show the
value, which may be a person's, hence `try_cast`. So would the error of a sum or a product that overflows, hence HUGEINT, which
holds the sum and the product of two BIGINTs.
"""

from __future__ import annotations

from ldpsql.quoting import quoted

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
