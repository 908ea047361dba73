"""``ldpsql report``: an estimate as a page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ldpsql.cli.options import (
    BoundsOption,
    ByOption,
    DatabaseOption,
    NamedArgument,
    NamedOption,
    RecordedOption,
    SourceArgument,
    column_of,
    compared,
    drawn_by,
    edges_of,
    in_a_folder,
    opened,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

    from ldpsql.bulk.queries import Reports
    from ldpsql.estimators.base import Estimator
    from ldpsql.mechanisms.base import Mechanism
    from ldpsql.mechanisms.key_value import KeyValueMechanism


def report(
    source: SourceArgument,
    named: NamedArgument = None,
    column: NamedOption = None,
    mechanism: RecordedOption = None,
    estimator: Annotated[
        str,
        typer.Option(
            envvar="LDPSQL_ESTIMATOR",
            help="The estimator, with its options: ibu(stop=100). By default ibu, ibu(stop='held_out') for maps "
            "above 4,096 cells, and unbiased for key-value reports.",
        ),
    ] = "",
    by: ByOption = None,
    database: DatabaseOption = ":memory:",
    truth: Annotated[str, typer.Option(help="A file or table whose same column holds the true values, to compare.")] = "",
    bounds: BoundsOption = "",
    output: Annotated[
        Path, typer.Option("--output", "-o", help="A page (.html) or a picture (.svg, .png).", callback=in_a_folder)
    ] = Path("report.html"),
) -> None:
    """Write an estimate as a page that works offline.

    The page has a summary; shares with intervals, to sort and download; mean, quartiles and curves of numbers; maps of grids;
    frequency and mean of each key of key-value reports; the error at other values of epsilon; how the estimate was computed.

    Example: ldpsql report reports.parquet city --by region --output report.html
    """
    from ldpsql.errors import InvalidParameter
    from ldpsql.estimates.fitting import estimator_of_shares
    from ldpsql.mechanisms.key_value import KeyValueMechanism
    from ldpsql.names import INV
    from ldpsql.pages import page as pages
    from ldpsql.registry.registry import registry

    pages.check(output)
    reported = column_of(named, column)
    with opened(database) as con:
        made = drawn_by(con, source, [reported], mechanism)
        method = registry().estimator(estimator or (INV if isinstance(made, KeyValueMechanism) else estimator_of_shares(made)))
        reports = _Source(con, source, reported, by or [], method)
        if isinstance(made, KeyValueMechanism):
            if truth or bounds:
                option = "--truth" if truth else "--bounds"
                raise InvalidParameter(f"{option} does not apply to key-value reports", f"leave out {option}")
            _write_keys(reports, made, output)
        else:
            _write_values(reports, made, output, truth, bounds)
    typer.echo(f"Wrote {output}", err=True)


@dataclass(frozen=True)
class _Source:
    """A column of reports, the columns to group it by, and the estimator."""

    con: DuckDBPyConnection
    source: str
    column: str
    keys: list[str]
    estimator: Estimator

    def table(self, source: str) -> str:
        """Return the SQL of a file or a table, after a check that it has these columns."""
        from ldpsql.bulk.sources import sql_of

        return sql_of(self.con, source, [self.column, *self.keys])

    def in_sql(self, mechanism: Mechanism) -> Reports:
        """Return the reports as queries read them."""
        from ldpsql.bulk.queries import Reports
        from ldpsql.quoting import quoted

        return Reports(self.con, self.table(self.source), quoted(self.column), mechanism, self.estimator)

    def counted(self, source: str) -> pa.Table:
        """Return the counts of a file or a table: columns report and n, and the keys of the groups."""
        from ldpsql.quoting import quoted

        groups = "".join(f", {quoted(key)}" for key in self.keys)
        query = f"""SELECT {quoted(self.column)} AS report, count(*) AS n{groups} FROM query_table({self.table(source)})
                    WHERE {quoted(self.column)} IS NOT NULL GROUP BY ALL"""
        return self.con.sql(query).to_arrow_table()


def _write_values(reports: _Source, mechanism: Mechanism, output: Path, truth: str, bounds: str) -> None:
    """Write the page of a distribution."""
    from ldpsql.bulk.queries import shares
    from ldpsql.estimates.rectangles import region_of
    from ldpsql.pages import page as pages

    with compared(reports.con, reports.source, reports.column, mechanism) as recorded:
        estimates = pages.estimates(reports.counted(reports.source), mechanism, reports.estimator, recorded=recorded)
    true = pages.truths(reports.counted(truth), mechanism) if truth else {}
    sql = shares(reports.in_sql(mechanism), reports.keys)
    pages.write(output, estimates, true, sql, region_of(mechanism, edges_of(bounds)) if bounds else None)


def _write_keys(reports: _Source, mechanism: KeyValueMechanism, output: Path) -> None:
    """Write the page of key-value reports."""
    from ldpsql.bulk.queries import answers
    from ldpsql.pages import key_value as pages
    from ldpsql.registry.registry import registry

    with compared(reports.con, reports.source, reports.column, mechanism):
        estimates = pages.key_values(reports.counted(reports.source), mechanism, reports.estimator)
    of, question = reports.in_sql(mechanism), registry().question("key_value")
    pages.write_key_values(output, estimates, answers(of, question, {"estimator": of.method}, reports.keys, {}))
