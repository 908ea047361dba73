"""``ldpsql report``: an estimate as a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ldpsql.cli.options import (
    BoundsOption,
    ByOption,
    DatabaseOption,
    NamedArgument,
    NamedOption,
    RecordedOption,
    SourceArgument,
    columns_named,
    edges_of,
    output_option,
    reading,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from ldpsql.bulk.queries import Reports


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
    output: Annotated[Path, output_option("A page (.html) or a picture (.svg, .png).")] = Path("report.html"),
) -> None:
    """Write an estimate as a page that works offline.

    The page has a summary; shares with intervals, to sort and download; mean, quartiles and curves of numbers; maps of grids;
    frequency and mean of each key of key-value reports; the error at other values of epsilon; how the estimate was computed.

    Example: ldpsql report reports.parquet city --by region --output report.html
    """
    from ldpsql.bulk.fingerprints import of_source
    from ldpsql.bulk.queries import answers, shares
    from ldpsql.bulk.sources import sql_of
    from ldpsql.errors import InvalidParameter
    from ldpsql.estimates.estimate import estimator_of_shares
    from ldpsql.estimates.rectangles import region_of
    from ldpsql.mechanisms.families import KeyValueMechanism
    from ldpsql.names import INV
    from ldpsql.pages import key_value, page
    from ldpsql.registry.registry import registry

    page.check(output)
    [reported], keys = columns_named(named, None if column is None else [column]), by or []
    with reading([source], [reported], keys, mechanism, estimator, database) as [read]:
        made: Any = read.mechanism
        of_keys = isinstance(made, KeyValueMechanism)
        method = read.estimator or registry().estimator(INV if of_keys else estimator_of_shares(made))
        of = read._replace(estimator=method)
        if of_keys and (truth or bounds):
            option = "--truth" if truth else "--bounds"
            raise InvalidParameter(f"{option} does not apply to key-value reports", f"leave out {option}")
        counted = _counted(of, keys, f"{of.reports} IS NOT NULL")
        if of_keys:
            sql = answers(of, registry().question("key_value"), {"estimator": of.method}, keys, {})
            key_value.write_key_values(output, key_value.key_values(counted, made, method), sql)
        else:
            recorded = bool(of_source(of.con, source, reported))
            estimates = page.estimates(counted, made, method, recorded=recorded)
            of_truth = of._replace(table=sql_of(of.con, truth, [reported, *keys])) if truth else None
            true = page.truths(_counted(of_truth, keys), made) if of_truth else {}
            region = region_of(made, edges_of(bounds)) if bounds else None
            page.write(output, estimates, true, shares(of, keys), region)
    typer.echo(f"Wrote {output}", err=True)


def _counted(of: Reports, keys: list[str], condition: str = "true") -> pa.Table:
    """Return the counts of reports, or of values in their place: columns report and n, and the keys of the groups."""
    from ldpsql.quoting import quoted

    groups = "".join(f", {quoted(key)}" for key in keys)
    query = f"""SELECT {of.reports} AS report, count(*) AS n{groups} FROM query_table({of.table})
                WHERE {condition} GROUP BY ALL"""  # quoted
    return of.con.sql(query).to_arrow_table()
