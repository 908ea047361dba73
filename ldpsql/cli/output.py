"""Rows on stdout, in the format that was asked for."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, TypeAlias

import typer


class Format(StrEnum):
    """How rows are written."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"


FormatOption: TypeAlias = Annotated[Format, typer.Option("--format", envvar="LDPSQL_FORMAT", help="How to write the rows.")]


def write_rows(rows: Sequence[Mapping[str, Any]], form: Format) -> None:
    """Write rows, all with the same keys: as aligned columns that awk can read, JSON, JSON lines or CSV."""
    out = sys.stdout
    if form is Format.JSON:
        out.write(json.dumps(rows, default=str, indent=2) + "\n")
    elif form is Format.JSONL:
        out.writelines(json.dumps(row, default=str) + "\n" for row in rows)
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
