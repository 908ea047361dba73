"""``ldpsql report``: an estimate as a page with pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ldpsql.cli.options import ByOption, ColumnOption, DatabaseOption, EstimatorOption, MechanismOption, SourceArgument

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection


def report(
    source: SourceArgument,
    column: ColumnOption,
    mechanism: MechanismOption,
    estimator: EstimatorOption = "ibu",
    by: ByOption = None,
    database: DatabaseOption = ":memory:",
    truth: Annotated[str, typer.Option(help="A file or table whose same column holds the true values, to compare.")] = "",
    output: Annotated[Path, typer.Option("--output", "-o", help="A page (.html) or a picture (.svg, .png).")] = Path(
        "report.html"
    ),
) -> None:
    """Write a page with pictures of an estimate.

    Estimates with intervals, maps of grids, likelihood and gap per step, the channel, and what other mechanisms would give.

    Example: ldpsql report reports.parquet --column city --mechanism city --by region --output report.html
    """
    from ldpsql import report as reports
    from ldpsql.cli.source import checked, opened
    from ldpsql.registry import registry

    reports.needs_extra()
    made, keys = registry().mechanism(mechanism), by or []
    with opened(database) as con:
        query = _counted(checked(con, source, [column, *keys]), column, keys)
        found = reports.estimates(con.sql(query).to_arrow_table(), made, registry().estimator(estimator))
        known = reports.truths(_table(con, truth, column, keys), made) if truth else {}
    reports.write(output, found, known)
    typer.echo(f"Wrote {output}", err=True)


def _table(con: DuckDBPyConnection, source: str, column: str, keys: list[str]) -> pa.Table:
    from ldpsql.cli.source import checked

    return con.sql(_counted(checked(con, source, [column, *keys]), column, keys)).to_arrow_table()


def _counted(table: str, column: str, keys: list[str]) -> str:
    """Return the query for columns report and n, and the keys of the groups."""
    from ldpsql.sql import quoted

    groups = "".join(f", {quoted(key)}" for key in keys)
    return f"""SELECT {quoted(column)} AS report, count(*) AS n{groups} FROM query_table({table})
               WHERE {quoted(column)} IS NOT NULL GROUP BY ALL"""
