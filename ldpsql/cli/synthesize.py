"""``ldpsql synthesize``: rows drawn from the estimate behind reports."""

from __future__ import annotations

from typing import Annotated

import typer

from ldpsql.cli.options import (
    ByOption,
    ColumnsOption,
    DatabaseOption,
    EstimatorOption,
    NamedArgument,
    RecordedOption,
    SourceArgument,
    columns_named,
)
from ldpsql.cli.output import Format, FormatOption, of_table, write_rows


def synthesize(
    source: SourceArgument,
    named: NamedArgument = None,
    rows: Annotated[int, typer.Option("--rows", "-n", help="How many rows.")] = 1000,
    column: ColumnsOption = None,
    mechanism: RecordedOption = None,
    estimator: EstimatorOption = "",
    by: ByOption = None,
    database: DatabaseOption = ":memory:",
    form: FormatOption = Format.CSV,
) -> None:
    """Draw rows from the estimate behind reports, for tools that need rows. They spend no epsilon.

    Example: ldpsql synthesize reports.parquet city --by region --rows 10000 > rows.csv
    """
    from ldpsql.cli.estimate import estimates
    from ldpsql.errors import NoReports
    from ldpsql.estimates.synthetic import synthesize as drawn

    shares = estimates(source, columns_named(named, column), by or [], mechanism, estimator, database)
    if not len(shares):
        raise NoReports(hint="is the column empty?")
    write_rows(of_table(drawn(shares, rows)), form)
