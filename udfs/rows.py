"""Plans for tables of several columns."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from ldpsql.functions import Macros, PlannedTable, Scalar, Settings, Texts, by_row, hookimpl, plan_tables, registry
from ldpsql.mechanisms import InvalidParameter

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
    """Offer ``ldp.plan``."""
    return [Scalar("__ldp_plan_tables", planned, f"STRUCT({_ROW})[]"), Macros.beside(__file__)]
