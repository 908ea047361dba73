"""``ldpsql estimate --into``: the estimates of very many groups, as a table."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from ldpsql.estimators.base import Estimator


def check_into(columns: list[str], keys: list[str], database: str, *, part: bool) -> None:
    """Refuse options that do not go together with ``--into``; ``part``: only a part of each estimate is asked for.

    Raises:
        InvalidParameter: unless there are keys, one column of reports and a database file.

    """
    from ldpsql.errors import InvalidParameter

    if not keys or len(columns) > 1 or part or database == ":memory:":
        raise InvalidParameter(
            "--into takes one column of reports, --by and --database, and neither --top nor --rectangle",
            "ldpsql estimate reports.parquet city --by region --database warehouse.duckdb --into by_region",
        )


def estimate_into(
    source: str,
    column: str,
    keys: list[str],
    mechanism: str | None,
    estimator: Estimator,
    database: str,
    into: str,
    *,
    replace: bool,
    resume: bool,
) -> None:
    """Estimate every group into a table of a database, with a progress bar."""
    import ldpsql
    from ldpsql.cli.bar import bar
    from ldpsql.cli.source import compared, drawn_by, existing
    from ldpsql.errors import UnmarkedReports

    reports = str(Path(source) / "**" / "*.parquet") if Path(source).is_dir() else source
    with ldpsql.connect(existing(database)) as con, warnings.catch_warnings():
        warnings.simplefilter("ignore", UnmarkedReports)  # the note of `compared` says it
        drew = drawn_by(con, source, [column], mechanism)
        with compared(con, source, column, drew), bar("groups") as progress:
            groups = ldpsql.estimate_groups(
                con,
                reports,
                into,
                report=column,
                keys=keys,
                mechanism=drew,
                estimator=estimator,
                replace=replace,
                resume=resume,
                progress=progress,
            )
    typer.echo(f"estimated {groups:,} groups", err=True)
