"""Writes rows to stdout in the format of ``--format``, and text to a file or stdout."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyRelation

_AT_A_TIME = 10_000  # rows that are Python objects at the same time


class Format(StrEnum):
    """How rows are written."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"


FormatOption: TypeAlias = Annotated[Format, typer.Option("--format", envvar="LDPSQL_FORMAT", help="How to write the rows.")]


def rows_of(result: DuckDBPyRelation) -> Iterator[dict[str, Any]]:
    """Run a query once and yield its rows; the second of two columns with one name is renamed, as in a table.

    The result is complete, as Arrow, before the first row: a query that fails writes nothing.
    """
    return of_table(result.to_arrow_table())


def of_table(table: pa.Table) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table; the second of two columns with one name is renamed."""
    names: list[str] = []
    for name in table.column_names:
        others = (f"{name}_{number}" for number in range(1, len(table.column_names)))
        names.append(name if name not in names else next(other for other in others if other not in names + table.column_names))
    batches = table.rename_columns(names).to_batches(max_chunksize=_AT_A_TIME)
    return (row for batch in batches for row in batch.to_pylist())


def write_rows(rows: Iterable[Mapping[str, Any]], form: Format) -> None:
    """Write rows, all with the same keys: as aligned columns that awk can read, JSON, JSON lines or CSV.

    Only aligned columns need all rows in memory.
    """
    out = sys.stdout
    if form is Format.JSON:
        _write_json(rows)
    elif form is Format.JSONL:
        out.writelines(json.dumps(_plain(row), default=str) + "\n" for row in rows)
    elif form is Format.CSV:
        csv.writer(out, lineterminator="\n").writerows(_cells(rows))
    elif cells := list(_cells(rows)):
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        for line in cells:
            padded = (f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True))
            out.write("  ".join(padded).rstrip() + "\n")


def write_text(text: str, output: Path | None, note: str) -> None:
    """Write text into a file, with a note on stderr; to stdout if no file is named."""
    if output is None:
        sys.stdout.write(text)
        return
    output.write_text(text, encoding="utf-8")
    typer.echo(note, err=True)


def _write_json(rows: Iterable[Mapping[str, Any]]) -> None:
    """Write one JSON list, a row at a time."""
    encoder, before = json.JSONEncoder(default=str, indent=2), "[\n"
    for row in rows:
        sys.stdout.write(f"{before}{encoder.encode(_plain(row))}".replace("\n", "\n  "))
        before = ",\n"
    sys.stdout.write("[]\n" if before == "[\n" else "\n]\n")


def _cells(rows: Iterable[Mapping[str, Any]]) -> Iterator[list[str]]:
    """Yield the names of the columns, then the text of each row; yield nothing if there are no rows."""
    for number, row in enumerate(rows):
        if not number:
            yield list(row)
        yield ["" if value is None else str(value) for value in row.values()]


def _plain(value: Any) -> Any:
    """Return a value with None for numbers that JSON does not have, such as an infinite standard error."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _plain(inside) for key, inside in value.items()}
    return [_plain(inside) for inside in value] if isinstance(value, list | tuple) else value
