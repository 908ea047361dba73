"""Questions: ``ldpsql ask``."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from ldpsql.cli.options import (
    ByOption,
    ColumnsOption,
    DatabaseOption,
    EstimatorOption,
    Format,
    FormatOption,
    NamedArgument,
    RecordedOption,
    SourceArgument,
    WeightOption,
    columns_named,
    of_table,
    reading,
    write_rows,
)


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
    read_too = [*keys, *(name for names in raw.values() for name in names)]
    with reading([source, *([against] if against else [])], columns, read_too, mechanism, estimator, database, weight) as read:
        one = read[0]
        given = {name: Arguments(one.mechanism, columns[0]).sql(each) for name, each in texts.items()}
        given |= {"estimator": one.method} if one.estimator else {}
        kind.check_arguments([*given, *raw])
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
