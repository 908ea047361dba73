"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

MechanismOption: TypeAlias = Annotated[
    str,
    typer.Option("--mechanism", "-m", help="The mechanism: krr(epsilon=1, domain=['a', 'b']), or its name in ldpsql.toml."),
]
EstimatorOption: TypeAlias = Annotated[
    str, typer.Option("--estimator", envvar="LDPSQL_ESTIMATOR", help="The estimator, with its options: ibu(stop=100).")
]
SourceArgument: TypeAlias = Annotated[
    str,
    typer.Argument(
        help="The reports: a Parquet, CSV, JSON or Arrow file, a folder, or a table of --database.", metavar="REPORTS"
    ),
]
ColumnOption: TypeAlias = Annotated[str, typer.Option("--column", "-c", help="The column that holds the reports.")]
ByOption: TypeAlias = Annotated[list[str] | None, typer.Option("--by", help="Estimate each group of this column; repeat it.")]
DatabaseOption: TypeAlias = Annotated[str, typer.Option("--database", "-d", help="A DuckDB file that holds the reports.")]
