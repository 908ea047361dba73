"""``ldpsql report``: an estimate as a page with pictures."""

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
    output: Annotated[
        Path, typer.Option("--output", "-o", help="A page (.html) or a picture (.svg, .png).", callback=in_a_folder)
    ] = Path("report.html"),
) -> None:
    """Write a page with pictures of an estimate.

    Estimates with intervals, maps of grids, likelihood and gap per step, the channel, and what other mechanisms would give.

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
    pages.write(output, found, known, shown)
    typer.echo(f"Wrote {output}", err=True)


def _counted(table: str, column: str, keys: list[str]) -> str:
    """Return the query for columns report and n, and the keys of the groups."""
    from ldpsql.quoting import quoted

    groups = "".join(f", {quoted(key)}" for key in keys)
    return f"""SELECT {quoted(column)} AS report, count(*) AS n{groups} FROM query_table({table})
               WHERE {quoted(column)} IS NOT NULL GROUP BY ALL"""
