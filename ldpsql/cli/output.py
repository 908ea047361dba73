"""Rows on stdout, in the format that was asked for."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

if TYPE_CHECKING:
    from duckdb import DuckDBPyRelation


class Format(StrEnum):
    """How rows are written."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"


FormatOption: TypeAlias = Annotated[Format, typer.Option("--format", envvar="LDPSQL_FORMAT", help="How to write the rows.")]


def rows_of(result: DuckDBPyRelation) -> list[dict[str, Any]]:
    """Run a query once and return its rows; of two columns of one name the second gets another, as it does in a table."""
    table = result.to_arrow_table()
    names: list[str] = []
    for name in table.column_names:
        others = (f"{name}_{number}" for number in range(1, len(table.column_names)))
        names.append(name if name not in names else next(other for other in others if other not in names + table.column_names))
    return list(table.rename_columns(names).to_pylist())


def write_rows(rows: Sequence[Mapping[str, Any]], form: Format) -> None:
    """Write rows, all with the same keys: as aligned columns that awk can read, JSON, JSON lines or CSV."""
    out = sys.stdout
    if form is Format.JSON:
        out.write(json.dumps(_plain(rows), default=str, indent=2) + "\n")
    elif form is Format.JSONL:
        out.writelines(json.dumps(_plain(row), default=str) + "\n" for row in rows)
    elif rows:
        head = list(rows[0])
        cells = [["" if row[name] is None else str(row[name]) for name in head] for row in rows]
        if form is Format.CSV:
            csv.writer(out, lineterminator="\n").writerows([head, *cells])
        else:
            widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
            for line in [head, *cells]:
                padded = (f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True))
                out.write("  ".join(padded).rstrip() + "\n")


def _plain(value: Any) -> Any:
    """Return a value with null for numbers that JSON does not have, such as the infinite error of what is not known."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _plain(inside) for key, inside in value.items()}
    return [_plain(inside) for inside in value] if isinstance(value, list | tuple) else value
