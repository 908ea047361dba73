"""Estimates and questions: ``ldpsql estimate``, ``ask``, ``report``, ``rappor-shares`` and ``synthesize``."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from ldpsql.cli.options import (
    BoundsOption,
    ByOption,
    ColumnsOption,
    DatabaseOption,
    EstimatorOption,
    Format,
    FormatOption,
    NamedArgument,
    NamedOption,
    RecordedOption,
    SourceArgument,
    WeightOption,
    bar,
    columns_named,
    compared,
    drawn_by,
    edges_of,
    existing,
    of_table,
    output_option,
    reading,
    write_rows,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

    from ldpsql.bulk.queries import Reports


def estimate(
    source: SourceArgument,
    named: NamedArgument = None,
    column: ColumnsOption = None,
    mechanism: RecordedOption = None,
    estimator: EstimatorOption = "",
    by: ByOption = None,
    weight: WeightOption = None,
    database: DatabaseOption = ":memory:",
    read: Annotated[
        str, typer.Option(help="Another library drew the reports, in this format: bits, array, position, positions or xxhash.")
    ] = "",
    form: FormatOption = Format.TABLE,
    into: Annotated[
        str | None, typer.Option("--into", help="With --by: a new table of --database for the estimates of very many groups.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace the table of --into.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="With --into: continue a run that was killed.")] = False,
) -> None:
    """Estimate the share of every value from reports.

    Parquet and Arrow files and tables record the mechanism that drew their reports. For other reports, pass --mechanism.

    Example: ldpsql estimate reports.parquet city --by region
    """
    from ldpsql.errors import InvalidParameter, NoReports

    keys, columns = by or [], columns_named(named, column)
    if into is not None:
        if not keys or len(columns) > 1 or read or weight or form is not Format.TABLE or database == ":memory:":
            raise InvalidParameter(
                "--into takes one column of reports, --by and --database, and neither --read nor --format",
                "ldpsql estimate reports.parquet city --by region --database warehouse.duckdb --into by_region",
            )
        estimate_into(source, columns[0], keys, mechanism, estimator, database, into, replace=replace, resume=resume)
        return
    if replace or resume:
        raise InvalidParameter("--replace and --resume are for --into", "add --into, or leave them out")
    rows = list(of_table(estimates(source, columns, keys, mechanism, estimator, database, read, weight)))
    if not rows:
        raise NoReports(hint="is the column empty?")
    write_rows(rows, form)


def estimates(
    source: str,
    columns: list[str],
    keys: list[str],
    mechanism: str | None,
    estimator: str,
    database: str,
    read: str = "",
    weight: str | None = None,
) -> pa.Table:
    """Return the estimate from columns of reports, for each group.

    Reports of another library are read in the format ``read``.
    """
    from ldpsql.bulk.queries import shares
    from ldpsql.quoting import text_literal
    from ldpsql.sql.named import sql_call

    with reading([source], columns, keys, mechanism, estimator, database, weight, read) as [stored]:
        reports = stored
        if read:
            made = sql_call(stored.mechanism, stored.con)
            reports = stored._replace(reports=f"ldp.read({stored.reports}, {made}, format := {text_literal(read)})")
        return reports.con.sql(shares(reports, keys)).to_arrow_table()


def estimate_into(
    source: str,
    column: str,
    keys: list[str],
    mechanism: str | None,
    estimator: str,
    database: str,
    into: str,
    *,
    replace: bool,
    resume: bool,
) -> None:
    """Estimate every group into a table of a database, with a progress bar."""
    import ldpsql
    from ldpsql.bulk.sources import sql_of
    from ldpsql.errors import UnmarkedReports
    from ldpsql.estimates.estimate import estimator_of_shares
    from ldpsql.places import pattern_of

    reports = pattern_of(source)
    with _written(database, source) as con, warnings.catch_warnings():
        warnings.simplefilter("ignore", UnmarkedReports)  # the note of `compared` says it
        sql_of(con, source, [column, *keys])  # columns that do not exist are refused by name
        drew = drawn_by(con, source, [column], mechanism)
        with compared(con, source, column, drew), bar("groups", "groups read to learn from") as progress:
            groups = ldpsql.estimate_groups(
                con,
                reports,
                into,
                report=column,
                keys=keys,
                mechanism=drew,
                estimator=estimator or estimator_of_shares(drew),
                replace=replace,
                resume=resume,
                progress=progress,
            )
    typer.echo(f"estimated {groups:,} groups", err=True)


@contextmanager
def _written(database: str, source: str) -> Iterator[DuckDBPyConnection]:
    """Open a database for writing; that for the groups of a file is made, and deleted if an error leaves it empty.

    Raises:
        SourceRefused: if there is no such database, and the source is not a file.

    """
    import ldpsql

    new = not Path(database).exists() and (Path(source).exists() or "://" in source or "*" in source)
    empty = False
    try:
        with ldpsql.connect(database if new else existing(database)) as con:
            try:
                yield con
            except BaseException:
                empty = new and not con.execute("SELECT count(*) FROM duckdb_tables() WHERE NOT temporary").fetchall()[0][0]
                raise
    finally:
        if empty:
            Path(database).unlink(missing_ok=True)


def rappor_shares(
    params: Annotated[str, typer.Argument(metavar="PARAMS", help="A file with one row: k, h, m, p, q and f.")],
    counts: Annotated[
        str,
        typer.Argument(metavar="COUNTS", help="A file with a row for each cohort: its reports, then a count for each bit."),
    ],
    candidates: Annotated[
        str,
        typer.Argument(metavar="MAP", help="A file with a row for each candidate: its name, then its bits."),
    ],
    rate: Annotated[
        float, typer.Option(help="The expected share of the detected candidates that nobody has, between 0 and 1.")
    ] = 0.05,
    form: FormatOption = Format.TABLE,
) -> None:
    """Estimate the shares of candidate strings from a collection of google/rappor, and detect those that people have.

    The last row is the share of all other strings. The three files are CSV, Parquet or JSON.

    Example: ldpsql rappor-shares params.csv counts.csv map.csv --rate 0.05
    """
    from ldpsql.bulk.frames import rappor_shares as shares

    write_rows(shares(params, counts, candidates, rate).iter_rows(named=True), form)


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
    from ldpsql.errors import NoReports
    from ldpsql.estimates.simulated import synthesize as drawn

    shares = estimates(source, columns_named(named, column), by or [], mechanism, estimator, database)
    if not len(shares):
        raise NoReports(hint="is the column empty?")
    write_rows(of_table(drawn(shares, rows)), form)


class _WithArguments(TyperCommand):
    """A command that also takes the arguments of its question as options, which `typer.Context.meta` keeps."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Set apart each option that the command itself does not have, with its value; it may be repeated."""
        known = {name for one in self.get_params(ctx) for name in (*one.opts, *one.secondary_opts)}
        own: dict[str, list[str]] = {}
        left, rest = iter(args), []
        for word in left:
            name, equals, value = word.partition("=")
            if name.startswith("--") and name not in known:
                own.setdefault(name[2:].replace("-", "_"), []).append(value if equals else next(left, ""))
            else:
                rest.append(word)
        ctx.meta["arguments"] = own
        return super().parse_args(ctx, rest)


def ask(
    context: typer.Context,
    question: Annotated[str, typer.Argument(help="What is asked: mean, share, top, or another question.")],
    source: SourceArgument,
    named: NamedArgument = None,
    against: Annotated[str | None, typer.Option(help="With compare: the reports of other people.")] = None,
    column: ColumnsOption = None,
    mechanism: RecordedOption = None,
    estimator: EstimatorOption = "",
    by: ByOption = None,
    weight: WeightOption = None,
    database: DatabaseOption = ":memory:",
    form: FormatOption = Format.TABLE,
) -> None:
    """Ask one question about the values behind reports; the answer has errors and intervals.

    The arguments of the question are options, named as in SQL. A value is JSON, the names of columns with commas between them,
    or a condition: city=Lima, city=Lima,Oslo, age=18..65; repeat the option for conditions on further columns.

    Questions of all plugins can be asked.

    Example: ldpsql ask share reports.parquet report --of income=high --given education=doctor

    Example: ldpsql ask top reports.parquet city --most 10 --by region

    Example: ldpsql ask outcome policies.parquet ethnicity --outcome premium --weight w
    """
    import duckdb

    from ldpsql.bulk.queries import answers, compared, raw_columns
    from ldpsql.cli.failures import in_options
    from ldpsql.cli.queries import Arguments
    from ldpsql.errors import InvalidParameter, NoReports
    from ldpsql.estimates.diagnosis import OF_RANGES
    from ldpsql.registry.registry import registry

    kind = registry().question(question)
    texts, keys, columns = context.meta["arguments"], by or [], columns_named(named, column)
    if kind.two_groups != (against is not None) or (kind.two_groups and keys):
        raise InvalidParameter(
            "--against is for compare, which needs it and has no --by", "ldpsql ask compare a.parquet city --against b.parquet"
        )
    named_raw = {name: [one for text in texts.pop(name) for one in text.split(",")] for name in kind.raw if name in texts}
    raw = raw_columns(kind, named_raw)
    kind.check_arguments([*texts, *raw], kind.options)
    read_too = [*keys, *(name for names in raw.values() for name in names)]
    with reading([source, *([against] if against else [])], columns, read_too, mechanism, estimator, database, weight) as read:
        one = read[0]
        given = {name: Arguments(one.mechanism, columns[0]).sql(each) for name, each in texts.items()}
        given |= {"estimator": one.method} if one.estimator else {}
        query = compared(one, read[1], question, given) if kind.two_groups else answers(one, kind, given, keys, raw)
        try:
            rows = list(of_table(one.con.sql(query).to_arrow_table()))
        except duckdb.Error as error:
            raise in_options(error) from None
    if not any(value is not None for row in rows for name, value in row.items() if name not in keys):
        raise NoReports(hint="is the column empty? Of strings, only those that are certain to occur are shown: --certain false")
    write_rows(rows, form)
    if kind.of_ranges and _orders(one.mechanism):
        typer.echo(f"note: {OF_RANGES}", err=True)


ask.of_class = _WithArguments  # type: ignore[attr-defined]


def _orders(mechanism: Any) -> bool:
    """Return whether values are in order, and the mechanism is not made for ranges of them."""
    from ldpsql.channels import Levels
    from ldpsql.mechanisms.base import CertifiedValues, Mechanism, certify

    certified = certify(mechanism) if isinstance(mechanism, Mechanism) else None
    if not isinstance(certified, CertifiedValues):
        return False
    return len(certified.layout) == 1 and not isinstance(certified.response, Levels)


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
    from ldpsql.estimates.spans import region_of
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
