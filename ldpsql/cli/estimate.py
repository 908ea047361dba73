"""``ldpsql estimate``: the distribution behind a column of reports."""

from __future__ import annotations

from typing import Annotated

import typer

from ldpsql.cli.options import ByOption, DatabaseOption, EstimatorOption, MechanismOption, SourceArgument
from ldpsql.cli.output import Format, FormatOption, rows_of, write_rows
from ldpsql.names import IBU


def estimate(
    source: SourceArgument,
    column: Annotated[
        list[str],
        typer.Option("--column", "-c", help="The column that holds the reports; of a row(...), each of its columns."),
    ],
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
    from contextlib import ExitStack

    from ldpsql.bulk.batches import drawn_apart
    from ldpsql.bulk.sources import sql_of
    from ldpsql.cli.source import compared, estimating, estimating_top, opened
    from ldpsql.engine.functions import struct_text
    from ldpsql.errors import NoReports
    from ldpsql.quoting import quoted
    from ldpsql.registry.registry import registry
    from ldpsql.sql.named import mechanism_of

    keys, method = by or [], registry().estimator(estimator)
    with opened(database) as con:
        made = mechanism_of(mechanism, con)
        table, drawn = sql_of(con, source, [*column, *keys]), drawn_apart(column, made)
        with ExitStack() as comparisons:
            for name, part in drawn.items():
                comparisons.enter_context(compared(con, source, name, part))
            reports = struct_text({name: quoted(name) for name in drawn}) if len(drawn) > 1 else quoted(column[0])
            if top is None:
                query = estimating(con, table, reports, keys, made, method)
            else:
                query = estimating_top(con, table, reports, keys, made, method, top)
            rows = list(rows_of(con.sql(query)))
    if not rows:
        raise NoReports(hint="is the column empty?")
    write_rows(rows, form)
