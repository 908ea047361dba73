"""Parameters of mechanisms as numbers in SQL, for the lists of values that SQL computes as the domains do here.

Constructors of mechanisms hold parameters as text, so that decimals stay exact. The error of a failing cast would show the
value, and that may be somebody's, hence `try_cast`. So would that of a sum or a product that overflows: HUGEINT holds those of
two BIGINT.
"""

from __future__ import annotations

from ldpsql.quoting import quoted


def whole(parameter: str) -> str:
    """Return a parameter as a whole number."""
    return f"try_cast({quoted(parameter)} AS BIGINT)"


def wide(parameter: str) -> str:
    """Return a parameter as a whole number that may be added to others, and multiplied by one."""
    return f"{whole(parameter)}::HUGEINT"


def double(parameter: str) -> str:
    """Return a parameter in double precision."""
    return f"try_cast({quoted(parameter)} AS DOUBLE)"


def counted(number: str) -> str:
    """Return the whole numbers from 0 up to another one."""
    return f"range(try_cast({number} AS BIGINT))"


def unless_null(parameter: str, expression: str, otherwise: str) -> str:
    """Return an expression for when a parameter is given, and another one for when it is NULL."""
    return f"CASE WHEN {quoted(parameter)} IS NULL THEN {otherwise} ELSE {expression} END"
