"""``ldpsql report``: an estimate as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ldpsql.cli.options import (
    ByOption,
    ColumnOption,
    DatabaseOption,
    EstimatorOption,
    MechanismOption,
    SourceArgument,
    edges_of,
    in_a_folder,
)


def report(
    source: SourceArgument,
    column: ColumnOption,
    mechanism: MechanismOption,
    estimator: EstimatorOption = "ibu",
    by: ByOption = None,
    database: DatabaseOption = ":memory:",
    truth: Annotated[str, typer.Option(help="A file or table whose same column holds the true values, to compare.")] = "",
    bounds: Annotated[
        str, typer.Option(help="WEST,SOUTH,EAST,NORTH of the grid, for maps with longitudes and latitudes.")
    ] = "",
    output: Annotated[
        Path, typer.Option("--output", "-o", help="A page (.html) or a picture (.svg, .png).", callback=in_a_folder)
    ] = Path("report.html"),
) -> None:
    """Write an estimate as a page that works offline.

    A summary; shares with intervals to sort and download; mean, quartiles and curves of numbers; maps of grids; what another
    epsilon would give; how the estimate came about.

    Example: ldpsql report reports.parquet --column city --mechanism city --by region --output report.html
    """
    from ldpsql.cli.source import Question, compared, opened
    from ldpsql.pages import page as pages

    pages.check(output)
    question = Question.of(column, by, mechanism, estimator)
    drawn_by = question.mechanism
    with opened(database) as con:
        table = question.table(con, source)
        with compared(con, source, column, drawn_by):
            counts = con.sql(_counted(table, column, question.keys)).to_arrow_table()
            estimates = pages.estimates(counts, drawn_by, question.estimator)
        query, truths = question.query(con, table), {}
        if truth:
            counts = con.sql(_counted(question.table(con, truth), column, question.keys)).to_arrow_table()
            truths = pages.truths(counts, drawn_by)
    pages.write(output, estimates, truths, query, pages.region_of(drawn_by, edges_of(bounds)) if bounds else None)
    typer.echo(f"Wrote {output}", err=True)


def _counted(table: str, column: str, keys: list[str]) -> str:
    """Return the query for columns report and n, and the keys of the groups."""
    from ldpsql.quoting import quoted

    groups = "".join(f", {quoted(key)}" for key in keys)
    return f"""SELECT {quoted(column)} AS report, count(*) AS n{groups} FROM query_table({table})
               WHERE {quoted(column)} IS NOT NULL GROUP BY ALL"""
