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
from ldpsql.names import IBU


def report(
    source: SourceArgument,
    column: ColumnOption,
    mechanism: MechanismOption,
    estimator: EstimatorOption = IBU,
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
    from ldpsql.bulk.sources import sql_of
    from ldpsql.cli.source import compared, estimating, opened
    from ldpsql.pages import page as pages
    from ldpsql.registry.registry import registry

    pages.check(output)
    keys, made, method = by or [], registry().mechanism(mechanism), registry().estimator(estimator)
    with opened(database) as con:
        table = sql_of(con, source, [column, *keys])
        with compared(con, source, column, made):
            found = pages.estimates(con.sql(_counted(table, column, keys)).to_arrow_table(), made, method)
        shown = estimating(con, table, column, keys, made, method)
        known = {}
        if truth:
            true = sql_of(con, truth, [column, *keys])
            known = pages.truths(con.sql(_counted(true, column, keys)).to_arrow_table(), made)
    pages.write(output, found, known, shown, pages.region_of(made, edges_of(bounds)) if bounds else None)
    typer.echo(f"Wrote {output}", err=True)


def _counted(table: str, column: str, keys: list[str]) -> str:
    """Return the query for columns report and n, and the keys of the groups."""
    from ldpsql.quoting import quoted

    groups = "".join(f", {quoted(key)}" for key in keys)
    return f"""SELECT {quoted(column)} AS report, count(*) AS n{groups} FROM query_table({table})
               WHERE {quoted(column)} IS NOT NULL GROUP BY ALL"""
