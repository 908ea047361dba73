"""The macros of a question: ``ldp.NAME`` takes a column of reports, or counts of them, which DuckDB tells apart by their type.

Each is also a table function: ``FROM ldp.NAME(reports, report, m, ...)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ldpsql.engine.functions import CATALOG_NUMBER, Macros, struct_text
from ldpsql.estimates.question import REQUIRED, Fields, Kind, Question
from ldpsql.mechanisms.spec import sql_literal
from ldpsql.names import (
    AGREED,
    ANSWER_TYPE,
    ASK,
    COLUMN_NAME,
    COMPARED,
    FEW,
    KEPT,
    KEYS,
    LISTED,
    LISTED_BY,
    ONE_OR_EACH,
    PEOPLE,
    RECORD_OF,
    SHARES,
    SUMS,
    TABLE_PLACE,
    TEXT,
    WEIGHED_BY,
    WRITTEN_CALL,
)
from ldpsql.quoting import quoted, text_literal

_LOCAL = '"ldp counts"'  # no column of a user has this name
_NAME, _KEYS = '"ldp report"', '"ldp keys"'
_BY = 'CASE WHEN true THEN "by" END'  # GROUP BY NULL makes of each NULL in SELECT the key, which is no constant
EVERYBODY = "ldp everybody"  # the name of the key of all reports together
_SUMS = '"ldp sums"'
_ANSWER = '"ldp answer"'  # a column, since DuckDB binds an expression again for each field that unnest makes of it
_ASKED, _FEW, _ANSWERED = (
    '"ldp asked"',
    '"ldp few"',
    '"ldp answered"',
)  # apart from the columns: a table may have the name of its column
COUNTED = "_counted"  # the macro that counts reports of any form, see `ldpsql.engine.forms`
_OF_VALUES = (Kind.VALUE, Kind.MEAN)


def aggregate(
    question: type[Question], name: str = "", estimator: str = "", options: Mapping[str, str] | None = None
) -> Macros:
    """Return the aggregate of a question, and its table function.

    If all other arguments are optional, the mechanism ``m`` may be left out or false: then the type of the reports must record
    it. Reports of another one are refused.

    Args:
        question: the question.
        name: another name than that of the question, under which it is asked of one estimator.
        estimator: the name of that estimator.
        options: the options of the estimator that SQL takes, each with its default as SQL.

    """
    name, options = name or question.name, question.options if options is None else options
    own = question.parameters()
    required: dict[str, str | None] = {one: None for one, default in own.items() if default is REQUIRED}
    optional: dict[str, str | None] = {one: sql_literal(default) for one, default in own.items() if default is not REQUIRED}
    # Sums of rows stand in place of reports, and need no raw column.
    raw: dict[str, str | None] = {one: default or "NULL" for one, default in question.raw.items()}
    optional = raw | optional
    arguments = required | optional | dict(options) | {"keep": "true"}
    method = text_literal(estimator) if estimator else "estimator" if "estimator" in options else "NULL"
    chosen = _struct(one for one in options if one != "estimator")

    def asked(record: str) -> str:
        return f"{ASK}({text_literal(question.name)}, m, {record}, {method}, {chosen}, {_struct(own)})"

    if question.two_groups:
        over = {"counts": None, "others": None, "m": "false"} | optional | dict(options)
        compared = f"{COMPARED}(counts, {asked('typeof(counts)')}, others, {asked('typeof(others)')})"
        return Macros("\n".join([_macro(name, over, compared), _comment(name, question.summary)]))
    if not question.lists:
        arguments["weight"] = "NULL"
    listed = f"{LISTED_BY}(report, keep)"
    counts = listed if question.lists else f"{WEIGHED_BY}(report, keep, weight)"
    if question.raw:
        rows = _struct([*question.raw, "weight"])
        counts = struct_text({"reports": listed, "rows": f"list({rows}) FILTER (WHERE {KEPT}(keep))"})
    record = f"{RECORD_OF}(report, report)"
    answer = _answer(question, counts, asked(record), record)
    made = [_macro(name, {"report": None, "m": None if required else "false"} | arguments, answer)]
    if not estimator:
        made.append(_comment(name, f"aggregate: {question.summary}"))
        made += _over_tables(question, arguments, counts, asked, record)
    return Macros("\n".join(made))


def _comment(name: str, text: str) -> str:
    return f"COMMENT ON MACRO ldp.{name} IS {text_literal(text)};"


def _answer(question: type[Question], counts: str, asked: str, record: str) -> str:
    """Return the SQL of an answer from counts and a handle; ``record`` is the type of the reports or of their counts."""
    answer = f"__ldp_answer_{question.name}({counts}, {asked})"
    if _of_values(question.fields):
        answer = _typed(question, answer, record)
    return answer if isinstance(question.rows, bool) else f"{ONE_OR_EACH}({answer}, {LISTED}({quoted(question.rows)}))"


def _typed(question: type[Question], answer: str, record: str) -> str:
    """Return the SQL of an answer with values in their own type."""
    by = f"[{quoted(question.typed_by)}][1]" if question.typed_by else "NULL"
    # ||, CASE and the subscript keep CREATE MACRO from binding what does not exist yet.
    kind = f"'' || {ANSWER_TYPE}('{question.name}', typeof(CASE WHEN true THEN m END), {TEXT}(m), {by}, {record})"
    return f"cast_to_type({answer}, from_json('null', {kind}))"


def _struct(names: Iterable[str]) -> str:
    """Return a struct of parameters by their names; NULL if there is none."""
    fields = {name: quoted(name) for name in names}
    return struct_text(fields) if fields else "NULL"


def _of_values(fields: Fields) -> bool:
    return any(kind in _OF_VALUES if isinstance(kind, Kind) else _of_values(kind) for kind in fields.values())


def _over_tables(
    question: type[Question], arguments: Mapping[str, str | None], counts: str, asked: Callable[[str], str], record: str
) -> Iterable[str]:
    """Yield the statements that create a table function and comment on it.

    Its rows begin with the keys of ``by``: the column, or those of a struct, by their own names. If the mechanism ``m`` is left
    out, the type of the reports, the comment of the column or the file must record it.
    """
    name, table = question.name, f"_table_{question.name}"
    parameters = {"reports": None, "report": None, "m": None} | dict(arguments) | {"by": "NULL"}
    keys = f'{KEYS}("by", [{", ".join(map(text_literal, [*question.fields, "n"]))}])'
    size = f"len({_LOCAL})" if question.lists else f"{PEOPLE}({_LOCAL})"
    source = f"(SELECT asked FROM {_ASKED})"  # noqa: S608  # DuckDB binds a mechanism wherever it is mentioned
    table_of = f"query_table({TABLE_PLACE}(reports))"
    named = f"any_value({COLUMN_NAME}(report)) AS {_NAME}, any_value({keys}) AS {_KEYS}"
    reports_of = f"FROM {table_of} WHERE (SELECT few FROM {_FEW})"  # noqa: S608
    rows = f"SELECT {counts} AS {_LOCAL}, {named} {reports_of} GROUP BY {_BY}"
    if len(question.raw) == 1:  # the sums of one raw column are added up here, by group and report
        sums = (
            f'SELECT {_BY} AS "ldp by", {SUMS}(report, {next(iter(question.raw))}, weight := weight) AS {_SUMS}, {named} '
            f"{reports_of} AND {KEPT}(keep) GROUP BY {_BY}, report"
        )
        added = struct_text({"reports": f"list({_SUMS})", "rows": "NULL"})
        rows = (
            f"SELECT {added} AS {_LOCAL}, any_value({_NAME}) AS {_NAME}, any_value({_KEYS}) AS {_KEYS} "  # noqa: S608
            f'FROM ({sums}) GROUP BY "ldp by"'
        )
    answer = _answer(question, _LOCAL, source, "NULL")
    answers = (
        f"WITH {_ASKED} AS MATERIALIZED (SELECT {asked(record)} AS asked FROM (FROM {table_of} LIMIT 0) GROUP BY ()), "  # noqa: S608
        f"{_FEW} AS MATERIALIZED (SELECT {FEW}(reports, report, keep, {source}) AS few), "
        f"{_ANSWERED} AS (SELECT {_KEYS}, {answer} AS {_ANSWER}, {size}::BIGINT AS n FROM ({rows}) "
        f"WHERE {AGREED}(reports, {_NAME}, {source})) "
        f"SELECT unnest({_KEYS}, recursive := true), unnest({_ANSWER}, recursive := true), n FROM {_ANSWERED}"
    )
    select = f"SELECT COLUMNS(lambda c: c <> {text_literal(EVERYBODY)}) FROM ({answers})"  # noqa: S608
    if name != SHARES:  # estimators of all shares may learn from all groups: `frequency.sql`
        yield _macro(table, parameters, f"TABLE ({select})")
    options = {one: default or "NULL" for one, default in arguments.items() if one not in ("keep", "weight", *question.raw)}
    columns = ["report", *(one for one in ("by", "weight", *question.raw) if one in parameters)]
    written = ", ".join(f"{quoted(one)}, alias({quoted(one)})" for one in columns)
    call = (
        f"{WRITTEN_CALL}('ldp.{table}', reports, current_setting('search_path'), ldp.{CATALOG_NUMBER}(), "
        f"m, {_struct(options)}, [{', '.join(map(text_literal, columns[1:]))}], {written})"
    )
    # A column without a table in FROM fits any type: as a BLOB, it can be refused in words.
    recorded = _parameters(options | dict.fromkeys(columns[1:], "NULL"))
    yield (
        f"CREATE OR REPLACE MACRO ldp.{name}"
        f"({_parameters(parameters)}) AS TABLE (FROM ldp.{table}({', '.join(map(quoted, parameters))})), "
        f"(reports, report, m BLOB := NULL, {recorded}) AS TABLE (FROM query({call}));"
    )
    yield f"COMMENT ON MACRO TABLE ldp.{name} IS 'the same over a table, a file or a frame, a row for each line of the answer';"


def _macro(name: str, parameters: Mapping[str, Any], body: str) -> str:
    """Return the statement that creates one macro."""
    return f"CREATE OR REPLACE MACRO ldp.{name}({_parameters(parameters)}) AS {body};"


def _parameters(parameters: Mapping[str, str | None]) -> str:
    return ", ".join(quoted(one) if default is None else f"{quoted(one)} := {default}" for one, default in parameters.items())
