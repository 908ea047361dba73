"""The cells of a grid, numbered row by row from 0: cell = row * columns + column."""

from __future__ import annotations

from ldpsql.domains.domain import Domain
from ldpsql.domains.sql_types import counted, wide


def cells(columns: int, rows: int) -> Domain:
    """Return the numbers of the cells."""
    return Domain.of(range(columns * rows))


def sql_cells(columns: str, rows: str) -> str:
    """Return the SQL for the list of the cells, in terms of the parameters."""
    return counted(f"{wide(columns)} * {wide(rows)}")
