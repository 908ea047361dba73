"""Plans, before anything is collected: mechanisms by question, and ways to spend an epsilon on tables of several columns."""

from __future__ import annotations

from dataclasses import asdict, fields
from math import isfinite
from typing import Any

from ldpsql.functions import (
    Candidate,
    Doubles,
    Macros,
    PlannedTable,
    Scalar,
    Settings,
    TextLists,
    Texts,
    Wholes,
    by_row,
    hookimpl,
    plan_tables,
    recommend,
    registry,
    struct_type,
)
from ldpsql.mechanisms import InvalidParameter

_ANSWERS = f"{struct_type(Candidate)}[]"


@by_row(Texts, Wholes, Wholes, TextLists, Doubles, Doubles)
def recommended(
    question: str, reports: int | None, steps: int, epsilons: list[str], *more: float | None
) -> list[dict[str, object]]:
    """Return the answers of all mechanisms to a question; ``more`` are the width of a grid and the error to reach."""
    width, error = more
    if None in (question, steps, epsilons) or None in epsilons or (reports is None and error is None):
        raise InvalidParameter("a plan needs a question, numbers of reports and of values, and epsilons", "none may be NULL")
    columns = None if width is None else int(width) if isfinite(width) else 0  # which is no width
    return recommend(question, reports, steps, error=error, width=columns, epsilons=epsilons).to_dicts()


# Plans for tables of several columns.

_NUMBERS = {"cells": "BIGINT", "std_error": "DOUBLE", "l1": "DOUBLE", "best": "BOOLEAN"}
_ROW = ", ".join(f'"{field.name}" {_NUMBERS.get(field.name, "VARCHAR")}' for field in fields(PlannedTable))


@by_row(Settings, Settings, Texts, Settings)
def planned(columns: Any, reports: Any, epsilon: str, tables: list[list[str]] | None) -> list[dict[str, Any]]:
    """Return what each way to spend an epsilon makes of each table of a plan."""
    whole = isinstance(columns, dict) and all(type(size) is int for size in columns.values()) and type(reports) is int
    if not whole or not all(isinstance(table, list) for table in tables or []):
        raise InvalidParameter(
            "a plan needs the number of values of each column, the number of reports, and tables as lists of columns",
            "ldp.plan({education: 16, income: 2}, 50000, 2, tables := [['education', 'income']])",
        )
    return [asdict(table) for table in plan_tables(registry().mechanisms, columns, reports, epsilon, tables or [])]


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer ``ldp.recommend`` and ``ldp.plan``."""
    return [
        Scalar("__ldp_recommended", recommended, _ANSWERS),
        Scalar("__ldp_plan_tables", planned, f"STRUCT({_ROW})[]"),
        Macros.beside(__file__),
    ]
