"""``ldpsql export-sql``: estimators for clients without Python."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ldpsql.cli.options import ByOption, MechanismOption, in_a_folder
from ldpsql.cli.output import write_text

if TYPE_CHECKING:
    from ldpsql.mechanisms.base import Mechanism
    from ldpsql.sql.relational import Source


def export_sql(
    mechanism: MechanismOption,
    name: Annotated[
        str,
        typer.Option(
            help="The name of the macros, NAME_ibu and NAME_inv; by default that of the mechanism. With --dialect, of a view."
        ),
    ] = "",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="A .sql file, or for macros a DuckDB file; by default stdout.", callback=in_a_folder
        ),
    ] = None,
    dialect: Annotated[
        str, typer.Option(help="Instead of macros, one query for duckdb, postgres, spark, snowflake or bigquery; for k-RR.")
    ] = "",
    table: Annotated[str, typer.Option(help="With --dialect: the table of reports; by default reports.")] = "",
    column: Annotated[
        str, typer.Option("--column", "-c", help="With --dialect: the column of reports; by default report.")
    ] = "",
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
    from ldpsql.registry.fingerprint import identifier
    from ldpsql.registry.registry import registry
    from ldpsql.sql import export
    from ldpsql.sql.relational import Source

    made = mechanism_from(mechanism)
    if dialect:
        _write_query(made, dialect, Source(table or "reports", column or "report", counts, tuple(by or ())), name, output)
        return
    if table or column or counts or by:
        raise InvalidParameter(
            "--table, --column, --counts and --by are for --dialect", "macros take the reports as an argument"
        )
    called = name or (mechanism if mechanism in registry().named else f"{made.name}_{identifier(made)}")
    if output is None:
        sys.stdout.write(export.macros(made, called))
        return
    export.write(made, called, output)
    typer.echo(f"Wrote {called}_ibu and the related macros to {output}", err=True)


def _write_query(mechanism: Mechanism, dialect: str, source: Source, view: str, output: Path | None) -> None:
    """Write a query in a dialect of SQL into a file of SQL, or to stdout."""
    from ldpsql.errors import DestinationRefused
    from ldpsql.sql.relational import query

    if output is not None and output.suffix != ".sql":  # a database would be overwritten
        raise DestinationRefused("a query is written into a .sql file", "leave out --dialect to put macros into a database")
    write_text(query(mechanism, source, dialect, view), output, f"Wrote a query for {dialect} to {output}")
