"""``ldpsql plan``: which mechanism, and which epsilon?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ldpsql.cli.options import Format, FormatOption, mechanism_from, opened, output_option, working, write_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from ldpsql.estimates.planning import Expected
    from ldpsql.mechanisms.base import Mechanism
    from ldpsql.pages.figures import AnyChart


_STEPS = "in steps from one value to the next"
_DEVIATIONS = "in standard deviations of the column, if all values are equally common"
_UNIT = "in the unit of the values, in days for dates and in seconds for timestamps"
ERRORS = {
    "mean": f"error: of the mean, {_STEPS}",
    "distribution": f"error: expected Wasserstein distance to the true distribution, {_STEPS}",
    "ranges": "error: of the share of a random range",
    "quantiles": f"error: of the quartiles, {_STEPS}",
    "rectangles": "error: of the share of a random rectangle",
    "share": "error: of the share of a value, if all are equally common",
    "outcome": f"error: of the mean of a raw column by value, {_DEVIATIONS}",
    "regression": f"error: of the coefficient of a value, {_DEVIATIONS}",
}
UNDETERMINED = "empty: such reports do not determine the shares of single values; use fewer bins or a larger epsilon"


def plan(
    reports: Annotated[
        int | None,
        typer.Option("--reports", "-n", min=1, help="How many reports will be collected; with --error it may be left out."),
    ] = None,
    values: Annotated[int | None, typer.Option("--values", "-k", help="How many values the domain has.")] = None,
    epsilon: Annotated[list[str] | None, typer.Option(help="An epsilon to compare, such as 0.5; repeat it.")] = None,
    mechanism: Annotated[
        list[str] | None,
        typer.Option("--mechanism", "-m", help="Compare this one: krr, or square_wave(1, 0, 100, bins=20); repeat it."),
    ] = None,
    question: Annotated[
        str | None,
        typer.Option(
            "--question",
            "-q",
            help="Recommend by question: mean, distribution, ranges, quantiles, rectangles, share, outcome or regression.",
        ),
    ] = None,
    error: Annotated[
        float | None,
        typer.Option(help="An error to reach, for --question or a share: with which epsilon, or how many reports?"),
    ] = None,
    width: Annotated[int | None, typer.Option(help="For rectangles of a grid: how many of the values are in a row.")] = None,
    output: Annotated[
        Path | None, output_option("Also draw error against epsilon: a page (.html) or a picture (.svg, .png).")
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option("--column", "-c", help="A column with its number of values: education=16; repeat it. Or that of --like."),
    ] = None,
    like: Annotated[
        str | None,
        typer.Option(help="With --question: a file of public or synthetic data of a similar shape, never your own."),
    ] = None,
    table: Annotated[
        list[str] | None, typer.Option("--table", help="The columns of a table you need: education,income; repeat it.")
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Compare mechanisms: expected error by epsilon.

    std_error is the expected standard error of a share, total_variation the expected distance of the shares to the truth,
    and reports_needed the number of reports that makes std_error 0.01. mean_error is the expected standard error of the mean of
    numbers, in their unit.

    With --column, compare ways to spend one epsilon on several columns: l1 is the expected sum of a table's absolute errors.

    With --question the values are numbers, dates or times in order, and --values says how many: 101 for 0 to 100, 365 for the
    days of a year. Mechanisms are compared by the error of that answer on two model distributions, one smooth and one in which
    a third of all people have one value; the best one at each epsilon is recommended.

    For rectangles the values are the cells of a grid, --width of them in a row.

    With --error, find the smallest epsilon with which --reports reach it or, without --reports, how many do at each --epsilon.

    With --like, reports of people like those in --column of a file, and somewhat unlike them, are simulated and estimated, and
    the error is that of the estimates. The file is read without privacy, so it must not be the data that you will collect.

    Example: ldpsql plan --reports 100000 --values 50 --epsilon 0.5 --epsilon 1 --epsilon 2

    Example: ldpsql plan --reports 100000 --values 101 --question ranges

    Example: ldpsql plan --reports 100000 --values 384 --width 24 --question rectangles

    Example: ldpsql plan --reports 100000 --question ranges --like census.parquet --column age

    Example: ldpsql plan --error 0.02 --reports 100000 --values 6 --question outcome
    """
    from ldpsql.errors import InvalidParameter

    if table or (column and like is None):
        others = (question, mechanism, output, values, width, like, error)
        if reports is None or any(one not in (None, []) for one in others):
            raise InvalidParameter(
                "a plan of several columns takes --reports, --column, --table and --epsilon only",
                "leave out the other options, and write each column with its number of values: --column education=16",
            )
        plan_columns(reports, column or [], table or [], epsilon or [], form)
        return
    from ldpsql.pages import page as pages

    if output:
        pages.check(output)
    texts, epsilons = mechanism or [], epsilon or ["0.5", "1", "2", "4"]
    if question or error is not None:
        if output:
            raise InvalidParameter("pages and pictures show the error of shares", "leave out --question or --output")
        options = {"values": values, "width": width, "epsilons": epsilons, "mechanisms": texts, "error": error}
        plan_by_question(
            question or "share", reports, options, None if like is None else read_example(like, column or []), form
        )
        return
    if reports is None:
        raise InvalidParameter("a plan needs the number of reports, or an error to reach", "--reports 100000 or --error 0.02")
    if width is not None:
        raise InvalidParameter("only a plan for rectangles takes a width", "add --question rectangles")
    if like is not None:
        raise InvalidParameter("only a plan by question takes an example", "add --question distribution")
    expected = compare(reports, mechanisms_of(texts, values), epsilons, form)
    if output:
        draw(output, expected, reports)
        typer.echo(f"Wrote {output}", err=True)


def compare(reports: int, mechanisms: list[Mechanism], epsilons: list[str], form: Format) -> list[Expected]:
    """Write the expected error of each mechanism at each epsilon, and return it."""
    from ldpsql.estimates import planning
    from ldpsql.estimates.planning import quicker

    with working():
        expected = planning.compare(epsilons, reports, mechanisms)
    write_rows(_shown([asdict(one) for one in expected], form), form)
    if any(one.std_error is None for one in expected):
        typer.echo(UNDETERMINED, err=True)
    for line in quicker(mechanisms, epsilons):
        typer.echo(line, err=True)
    return expected


def mechanisms_of(texts: list[str], values: int | None) -> list[Mechanism]:
    """Return the mechanisms to compare: those with parameters, and over so many values those of a name, by default all."""
    from ldpsql.errors import InvalidParameter
    from ldpsql.estimates.planning import over_declared_values
    from ldpsql.registry.registry import registry

    registered = registry().mechanisms
    names = [text for text in texts if text in registered]
    compared = [mechanism_from(text) for text in texts if text not in registered]
    if compared and not names:
        if values is not None:
            raise InvalidParameter(
                "--values does not apply to mechanisms with a domain", "leave out --values, or name a mechanism: -m krr"
            )
        return compared
    if values is None:
        raise InvalidParameter("a plan needs the size of the domain", "for example --values 50")
    return compared + over_declared_values(registered, values, names)


def plan_columns(reports: int, columns: list[str], tables: list[str], epsilon: list[str], form: Format) -> None:
    """Write the expected error of each table for each way to spend one epsilon on the columns."""
    from ldpsql.errors import InvalidParameter
    from ldpsql.estimates.planning import plan_tables
    from ldpsql.registry.registry import registry

    sizes = {name: size for name, _, size in (text.rpartition("=") for text in columns)}
    if len(epsilon) != 1 or not sizes or len(sizes) < len(columns) or not all(size.isdecimal() for size in sizes.values()):
        raise InvalidParameter(
            "a plan of tables needs one epsilon, and each column once with its number of values",
            "ldpsql plan -n 50000 --epsilon 2 --column education=16 --column income=2 --table education,income",
        )
    asked = [[name.strip() for name in text.split(",")] for text in tables]
    numbers = {name: int(size) for name, size in sizes.items()}
    with working():
        rows = plan_tables(registry().mechanisms, numbers, reports, epsilon[0], asked)
    write_rows(_shown([asdict(row) for row in rows], form), form)


def _shown(rows: list[dict[str, Any]], form: Format) -> list[dict[str, Any]]:
    """Return rows as a terminal shows them, with four digits of each error; with all digits in other forms."""
    if form is not Format.TABLE:
        return rows
    return [{name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in row.items()} for row in rows]


def plan_by_question(
    question: str, reports: int | None, options: Mapping[str, Any], example: pa.ChunkedArray | None, form: Format
) -> None:
    """Write the error of each mechanism for a question, in the unit of an example if there is one."""
    from ldpsql import recommend

    with working():
        rows = recommend(question, reports, like=example, **options).to_dicts()
    write_rows(_shown(rows, form), form)
    typer.echo(ERRORS[question] if example is None else ERRORS[question].replace(_STEPS, _UNIT), err=True)


def read_example(source: str, columns: list[str]) -> pa.ChunkedArray:
    """Return the column of an example.

    Raises:
        InvalidParameter: if not one column is named.
        SourceRefused, UnknownName: if the file cannot be read, or has no such column.

    """
    from ldpsql.bulk.sources import sql_of
    from ldpsql.errors import InvalidParameter
    from ldpsql.quoting import quoted

    if len(columns) != 1:
        raise InvalidParameter("an example is one column of a file", "--like census.parquet --column age")
    with opened(":memory:") as con:
        query = f"SELECT {quoted(columns[0])} FROM query_table({sql_of(con, source, columns)})"
        return con.sql(query).to_arrow_table().column(0)


def draw(path: Path, expected: list[Expected], reports: int) -> None:
    """Write the curves as a page, or as a picture."""
    from ldpsql.pages.page import write_as
    from ldpsql.pages.report import plan_page

    def chart() -> AnyChart:
        import polars as pl

        from ldpsql.pages import figures

        return figures.plan_chart(pl.DataFrame([asdict(one) for one in expected]))

    write_as(path, lambda: plan_page(expected, reports), chart)
