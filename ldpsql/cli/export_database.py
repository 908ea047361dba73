"""``ldpsql export-database``: reports for clients of DuckDB without ldpsql."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ldpsql.cli.output import Format, FormatOption, write_rows

if TYPE_CHECKING:
    from ldpsql.sql.portable import Portability


def export_database(
    database: Annotated[str, typer.Argument(help="A DuckDB file.")],
    folder: Annotated[Path, typer.Argument(help="The folder to write; it must not exist.")],
    table: Annotated[
        list[str] | None, typer.Option("--table", "-t", help="A table to export although it records no mechanism.")
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Export the reports of a database, with their records, so that any client of DuckDB can import them.

    It exports the tables that record a mechanism, those that --table names, and the views and macros that need nothing else.
    Raw tables stay behind, and so do deleted rows, which a copy of the file would contain. What needs ldpsql is written into
    ldpsql.sql. The rows say what was exported, and which columns are in the clear.

    Example: ldpsql export-database warehouse.duckdb shared
    """
    from ldpsql.cli.source import existing
    from ldpsql.sql.portable import export

    write_rows(_rows(export(existing(database), folder, table or [])), form)


def _rows(result: Portability) -> Iterator[dict[str, str]]:
    for table in result.tables:
        clear = [column for column in table.columns if column not in table.records]
        note = f"reports: {', '.join(table.records)}; " if table.records else ""
        yield _row("table", table.shown, "exported", f"{note}in the clear: {', '.join(clear) or 'nothing'}")
    for one in result.plain:
        if one.kind not in ("table", "schema"):
            yield _row(one.kind, one.name, "exported", "any client can use it")
    for one in result.needing:
        yield _row(one.kind, one.name, "in ldpsql.sql", "it needs ldpsql")
    for one in result.broken:
        yield _row(one.kind, one.name, "left out", "it needs a table that is left out, or an extension")
    for table in result.left:
        yield _row("table", table.shown, "left out", "no column records a mechanism")


def _row(kind: str, name: str, outcome: str, note: str) -> dict[str, str]:
    return {"kind": kind, "name": name, "outcome": outcome, "note": note}
