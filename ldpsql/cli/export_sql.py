"""``ldpsql export-sql``: estimates as one query for engines without ldpsql."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ldpsql.cli.options import ByOption, MechanismOption, in_a_folder
from ldpsql.cli.output import write_text


def export_sql(
    mechanism: MechanismOption,
    dialect: Annotated[
        str, typer.Option(help="Which SQL to write: duckdb, postgres, spark, snowflake or bigquery.")
    ] = "duckdb",
    table: Annotated[str, typer.Option(help="The table of reports.")] = "reports",
    column: Annotated[str, typer.Option("--column", "-c", help="The column of reports.")] = "report",
    counts: Annotated[str, typer.Option(help="The column of the number of each report, if the table has counts.")] = "",
    by: ByOption = None,
    name: Annotated[str, typer.Option(help="The name of a view; by default a query is written.")] = "",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A .sql file; by default stdout.", callback=in_a_folder)
    ] = None,
) -> None:
    """Write the estimates from a table of reports as one query of relational SQL, for engines without ldpsql.

    It returns a row for each value: the inversion with errors, and for k-RR the maximum of the likelihood as well. It is for
    k-RR, unary encodings, subset selection, hashes with orthogonal seeds, and channels of up to 16,384 probabilities. Nothing
    that perturbs is exported.

    Example: ldpsql export-sql --mechanism city --dialect postgres --table reports --column city --by region
    """
    from ldpsql.cli.source import mechanism_from
    from ldpsql.errors import DestinationRefused
    from ldpsql.sql.relational import ReportTable, query

    text = query(mechanism_from(mechanism), ReportTable(table, column, counts, tuple(by or ())), dialect, name)
    if output is not None and output.suffix != ".sql":  # a database would be overwritten
        raise DestinationRefused("the name of the file must end in .sql", "run it in the database that holds the reports")
    write_text(text, output, f"Wrote a query for {dialect} to {output}")
