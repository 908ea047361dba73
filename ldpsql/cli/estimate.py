"""``ldpsql estimate``: the distribution behind a column of reports."""

from __future__ import annotations

from typing import Annotated

import typer

from ldpsql.cli.options import ByOption, ColumnOption, DatabaseOption, EstimatorOption, MechanismOption, SourceArgument
from ldpsql.cli.output import Format, FormatOption, rows_of, write_rows
from ldpsql.names import IBU


def estimate(
    source: SourceArgument,
    column: ColumnOption,
    mechanism: MechanismOption,
    estimator: EstimatorOption = IBU,
    by: ByOption = None,
    database: DatabaseOption = ":memory:",
    top: Annotated[int | None, typer.Option("--top", min=1, help="Only the most frequent values, so many.")] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Estimate the share of every value from reports.

    Example: ldpsql estimate reports.parquet --column city --mechanism city --by region
    """
    from ldpsql.bulk.sources import sql_of
    from ldpsql.cli.source import compared, estimating, estimating_top, opened
    from ldpsql.errors import NoReports
    from ldpsql.registry.registry import registry
    from ldpsql.sql.named import mechanism_of

    keys, method = by or [], registry().estimator(estimator)
    with opened(database) as con:
        made = mechanism_of(mechanism, con)
        table = sql_of(con, source, [column, *keys])
        with compared(con, source, column, made):
            if top is None:
                query = estimating(con, table, column, keys, made, method)
            else:
                query = estimating_top(con, table, column, keys, made, method, top)
            rows = list(rows_of(con.sql(query)))
    if not rows:
        raise NoReports(hint="is the column empty?")
    write_rows(rows, form)
