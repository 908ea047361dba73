"""``ldpsql export-sql``: estimators for clients without Python."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ldpsql.cli.options import ByOption, MechanismOption, in_a_folder

if TYPE_CHECKING:
    from ldpsql.mechanisms.base import Mechanism
    from ldpsql.sql.relational import Source


def export_sql(
    mechanism: MechanismOption,
    name: Annotated[str, typer.Option(help="What the macros are called by: NAME_ibu, NAME_inv.")] = "",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A .sql file, or a DuckDB database; by default stdout.", callback=in_a_folder),
    ] = None,
    dialect: Annotated[
        str, typer.Option(help="Instead of macros, one query for duckdb, postgres, spark, snowflake or bigquery; for k-RR.")
    ] = "",
    table: Annotated[str, typer.Option(help="With --dialect: the table of the reports.")] = "reports",
    column: Annotated[str, typer.Option("--column", "-c", help="With --dialect: the column of the reports.")] = "",
    counts: Annotated[
        str, typer.Option(help="With --dialect: the column of the number of each report, if the table has counts.")
    ] = "",
    by: ByOption = None,
) -> None:
    """Write estimators in pure SQL: as macros for DuckDB, or as a query for other engines.

    Macros run in any DuckDB client (shell, Node, Java) without ldpsql. With --dialect, a query counts the reports and returns
    the maximum of the likelihood and the inversion with errors; with --name, it becomes a view. Perturbing is never exported.

    Example: ldpsql export-sql --mechanism city --name city --output city.sql

    Example: ldpsql export-sql --mechanism city --dialect postgres --table reports --column city --by region
    """
    from ldpsql.cli.source import mechanism_from
    from ldpsql.errors import InvalidParameter
    from ldpsql.registry.registry import registry
    from ldpsql.sql import export
    from ldpsql.sql.relational import Source

    made = mechanism_from(mechanism)
    if dialect:
        _write_query(made, dialect, Source(table, column or "report", counts, tuple(by or ())), name, output)
        return
    if column or counts or by:
        raise InvalidParameter("--column, --counts and --by are for --dialect", "macros take the reports as an argument")
    called = name or (mechanism if mechanism in registry().named else made.name)
    if output is None:
        sys.stdout.write(export.macros(made, called))
        return
    export.write(made, called, output)
    typer.echo(f"Wrote {called}_ibu and the related macros to {output}", err=True)


def _write_query(mechanism: Mechanism, dialect: str, source: Source, view: str, output: Path | None) -> None:
    """Write a query in a dialect of SQL into a file, or to stdout."""
    from ldpsql.sql.relational import query

    text = query(mechanism, source, dialect, view)
    if output is None:
        sys.stdout.write(text)
        return
    output.write_text(text, encoding="utf-8")
    typer.echo(f"Wrote a query for {dialect} to {output}", err=True)
