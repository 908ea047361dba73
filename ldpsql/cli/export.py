"""What leaves ldpsql: ``ldpsql describe``, ``vectors``, ``export-client``, ``export-sql`` and ``export-database``."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Annotated

import typer

from ldpsql.cli.options import (
    ByOption,
    Format,
    FormatOption,
    MechanismOption,
    existing,
    mechanism_from,
    output_option,
    write_rows,
    write_text,
)

if TYPE_CHECKING:
    from ldpsql.sql.portable import Portability


def describe(
    mechanism: MechanismOption,
    output: Annotated[Path | None, output_option("A .json file; by default stdout.")] = None,
) -> None:
    """Write a mechanism as a document: JSON with its parameters, its exact weights, its reports and its fingerprint.

    Every option -m takes the path of a document, and ldpsql.toml a {document = "city.json"}. A document is refused if its
    parameters no longer make the weights that it holds.

    Example: ldpsql describe -m "krr(epsilon=1, domain=['a', 'b'])" -o city.json
    """
    from ldpsql.errors import InvalidParameter
    from ldpsql.registry.documents import document_text

    if output is not None and output.suffix != ".json":
        raise InvalidParameter("the name of a document must end in .json", "ldpsql describe -m city -o city.json")
    write_text(document_text(mechanism_from(mechanism)), output, f"Wrote {output}")


def vectors(
    mechanism: MechanismOption,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=100_000_000, help="How many draws.")] = 1000,
) -> None:
    """Write test vectors: a JSON object a line with a value, the 64-bit random words that one draw used, and its report.

    A program that draws the reports of a mechanism is right if it gives the same reports from the same words.

    Example: ldpsql vectors -m "krr(epsilon=1, domain=['a', 'b'])" --count 3
    """
    from ldpsql.clients.module import vectors as drawn

    sys.stdout.writelines(json.dumps(one) + "\n" for one in drawn(mechanism_from(mechanism), count))


def export_client(
    mechanism: MechanismOption,
    output: Annotated[Path | None, output_option("A .mjs file; by default stdout.")] = None,
    max_bytes: Annotated[
        int | None, typer.Option(help="Refuse to write a larger module; by default any size is written.", min=1)
    ] = None,
) -> None:
    """Write an ES module that draws reports in a browser or in Node, so that values never leave the device.

    It has no dependencies, takes its random bits from the platform's cryptographic generator, and draws the same reports as
    ldpsql from the same words: see ldpsql vectors.

    Example: ldpsql export-client -m "krr(epsilon=1, domain=['a', 'b'])" -o city.mjs
    """
    from ldpsql.clients.module import module
    from ldpsql.engine.identity import Identity
    from ldpsql.errors import NotApplicable
    from ldpsql.registry.tables import check_policies

    made = mechanism_from(mechanism)
    check_policies(Identity("", ()), {"": made})
    text = module(made)
    size = len(text.encode())
    if max_bytes is not None and size > max_bytes:
        raise NotApplicable(
            f"the module has {size:,} bytes, and at most {max_bytes:,} are allowed",
            f"raise --max-bytes to {size}, or declare fewer values: their text and their table of weights take most of it",
        )
    write_text(text, output, f"Wrote {output}, {size:,} bytes")


def export_sql(
    mechanism: MechanismOption,
    dialect: Annotated[
        list[str] | None,
        typer.Option(
            help="Which SQL to write: duckdb (the default), postgres, sqlite, datafusion, clickhouse, snowflake, bigquery, "
            "trino or spark; for a macro, repeat it."
        ),
    ] = None,
    table: Annotated[str, typer.Option(help="The table of reports, or the argument of a macro.")] = "reports",
    column: Annotated[str, typer.Option("--column", "-c", help="The column of reports.")] = "report",
    counts: Annotated[str, typer.Option(help="The column of the number of each report, if the table has counts.")] = "",
    weight: Annotated[str, typer.Option(help="The column of the weights of the rows, if they have any.")] = "",
    question: Annotated[str, typer.Option(help="What it answers: shares (the default), or the mean of the values.")] = "",
    outcome: Annotated[str, typer.Option(help="A raw column, whose mean for each value the query returns.")] = "",
    by: ByOption = None,
    name: Annotated[str, typer.Option(help="The name of a view; by default a query is written.")] = "",
    macro: Annotated[str, typer.Option(help="The name of a macro of dbt, for adapters of these dialects.")] = "",
    output: Annotated[Path | None, output_option("A .sql file; by default stdout.")] = None,
) -> None:
    """Write the estimates from a table of reports as one query of relational SQL, for engines without ldpsql.

    It returns a row for each value: the inversion with errors, and for k-RR the maximum of the likelihood as well. It is for
    k-RR, unary encodings, subset selection, hashes with orthogonal seeds, and channels of up to 16,384 probabilities. Nothing
    that perturbs is exported. Ibis compiles the query: pip install 'ldpsql[ibis]'. With --macro, the query is a macro of dbt.

    Example: ldpsql export-sql --mechanism city --dialect postgres --table reports --column city --by region
    """
    from ldpsql.bulk.views import ReportTable, query
    from ldpsql.errors import DestinationRefused, InvalidParameter

    dialects, made = dialect or ["duckdb"], mechanism_from(mechanism)
    if not macro and len(dialects) > 1:
        raise InvalidParameter("a query has one dialect", "give one --dialect, or write a macro of dbt: --macro city_shares")
    if macro and not (_JINJA_NAME.fullmatch(macro) and _JINJA_NAME.fullmatch(table) and not name):
        raise InvalidParameter(
            "a macro and its argument, --table, have names of letters, digits and underscores, and it makes no view",
            "--macro city_shares --table reports, without --name",
        )
    place = f"ldp_{token_hex(8)}" if macro else table  # in no other text of a query
    source = ReportTable(place, column, counts, weight, tuple(by or ()), outcome)
    question = question or ("outcome" if outcome else "shares")
    queries = {one: query(made, source, one, name, question) for one in dialects}
    text = _macro(macro, table, place, queries) if macro else queries[dialects[0]]
    if output is not None and output.suffix != ".sql":  # a database would be overwritten
        raise DestinationRefused("the name of the file must end in .sql", "run it in the database that holds the reports")
    write_text(text, output, f"Wrote a {'macro' if macro else 'query'} for {', '.join(dialects)} to {output}")


_JINJA_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def _macro(name: str, argument: str, place: str, queries: Mapping[str, str]) -> str:
    """Return a macro of dbt that returns the query of its adapter, whose table, ``place``, is the argument."""
    dispatched = f"{{{{ return(adapter.dispatch('{name}')({argument})) }}}}"
    macros = [f"{{% macro {name}({argument}) %}}{dispatched}{{% endmacro %}}"]
    for dialect, text in queries.items():
        escaped = text.rstrip().rstrip(";").replace("{", "{{ '{' }}")  # Jinja reads no value
        body = re.sub(rf"[\"`]{place}[\"`]", f"{{{{ {argument} }}}}", escaped)
        macros.append(f"{{% macro {dialect}__{name}({argument}) %}}\n{body}\n{{% endmacro %}}")
    return "\n\n".join(macros) + "\n"


def export_database(
    database: Annotated[str, typer.Argument(help="A DuckDB file.")],
    folder: Annotated[Path, typer.Argument(help="The folder to write; it must not exist.")],
    table: Annotated[
        list[str] | None, typer.Option("--table", "-t", help="A table to export although it records no mechanism.")
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Export the reports of a database, with their records, so that any client of DuckDB can import them.

    It exports the tables that record a mechanism, those that --table names, and the views and macros that need nothing else.
    Raw tables stay behind, and so do deleted rows, which a copy of the file would contain. What needs ldpsql is written into
    ldpsql.sql. The rows say what was exported, and which columns are in the clear.

    Example: ldpsql export-database warehouse.duckdb shared
    """
    from ldpsql.sql.portable import export

    write_rows(_rows(export(existing(database), folder, table or [])), form)


def _rows(result: Portability) -> Iterator[dict[str, str]]:
    for table in result.tables:
        clear = [column for column in table.columns if column not in table.records]
        note = f"reports: {', '.join(table.records)}; " if table.records else ""
        yield _row("table", table.shown, "exported", f"{note}in the clear: {', '.join(clear) or 'nothing'}")
    for one in result.plain:
        if one.kind not in ("table", "schema"):
            yield _row(one.kind, one.name, "exported", "any client can use it")
    for one in result.needing:
        yield _row(one.kind, one.name, "in ldpsql.sql", "it needs ldpsql")
    for one in result.broken:
        yield _row(one.kind, one.name, "left out", "it needs a table that is left out, or an extension")
    for table in result.left:
        yield _row("table", table.shown, "left out", "no column records a mechanism")


def _row(kind: str, name: str, outcome: str, note: str) -> dict[str, str]:
    return {"kind": kind, "name": name, "outcome": outcome, "note": note}
