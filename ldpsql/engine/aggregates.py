"""The macros of a question: ``ldp.NAME`` takes a column of reports, or counts of them, which DuckDB tells apart by their type.

Each is also a table function: ``FROM ldp.NAME(reports, report, m, ...)``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
    KEYS,
    LISTED_BY,
    PEOPLE,
    RECORD_OF,
    TABLE_PLACE,
    TEXT,
    WEIGHED_BY,
    WRITTEN_CALL,
)
from ldpsql.quoting import quoted, text_literal

_LOCAL = '"ldp counts"'  # no column of a user has this name
_NAME, _KEYS = '"ldp report"', '"ldp keys"'
EVERYBODY = "ldp everybody"  # the name of the key of all reports together
_ANSWER = '"ldp answer"'  # a column, since DuckDB binds an expression again for each field that unnest makes of it
_FEW = '"ldp few"'  # apart from the column: a table may have the name of its column
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
    arguments = required | optional | dict(options) | {"keep": "true"}
    answer = _answer(question, options, text_literal(estimator) if estimator else "")
    if question.two_groups:
        each = (_asked(question, options, "").format(record=f"typeof({side})") for side in ("counts", "others"))
        over = {"counts": None, "others": None, "m": "false"} | optional | dict(options)
        compared = f"{COMPARED}(counts, {next(each)}, others, {next(each)})"
        return Macros("\n".join([_macro(name, over, compared), _comment(name, question.summary)]))
    if not question.lists:
        arguments["weight"] = "NULL"
    counted = f"{LISTED_BY}(report, keep, {{m}})" if question.lists else f"{WEIGHED_BY}(report, keep, {{m}}, weight)"
    of_reports = answer.format(counts=counted.format(m="false"), record=f"{RECORD_OF}(report, report)")
    made = [_macro(name, {"report": None, "m": None if required else "false"} | arguments, of_reports)]
    if not estimator:
        made.append(_comment(name, f"aggregate: {question.summary}"))
    if not estimator:
        answered = answer.format(counts=_LOCAL, record=f"typeof({_LOCAL})")
        size = f"len({_LOCAL})" if question.lists else f"{PEOPLE}({_LOCAL})"
        keys = f'{KEYS}("by", [{", ".join(map(text_literal, [*question.fields, "n"]))}])'
        made += _over_tables(name, {"m": None} | arguments, counted.format(m="m"), answered, f"{size}::BIGINT", keys)
    return Macros("\n".join(made))


def _comment(name: str, text: str) -> str:
    return f"COMMENT ON MACRO ldp.{name} IS {text_literal(text)};"


def _asked(question: type[Question], options: Mapping[str, str], estimator: str) -> str:
    """Return the SQL of the handle of a question, with a place for the type of the reports or of their counts."""
    chosen, arguments = ([one for one in names if one != "estimator"] for names in (options, question.parameters()))
    estimator = estimator or ("estimator" if "estimator" in options else "NULL")
    return f"{ASK}('{question.name}', m, {{record}}, {estimator}, {_struct(chosen)}, {_struct(arguments)})"


def _answer(question: type[Question], options: Mapping[str, str], estimator: str) -> str:
    """Return the SQL of an answer, with places for the counts of reports and for the type of these."""
    answer = f"__ldp_answer_{question.name}({{counts}}, {_asked(question, options, estimator)})"
    if not _of_values(question.fields):
        return answer
    by = f"[{quoted(question.typed_by)}][1]" if question.typed_by else "NULL"
    # || keeps CREATE MACRO from binding what does not exist yet, as the subscripts do.
    kind = f"'' || {ANSWER_TYPE}('{question.name}', typeof([m][1]), {TEXT}(m), {by}, {{record}})"
    return f"cast_to_type({answer}, from_json('null', {kind}))"


def _struct(names: Iterable[str]) -> str:
    fields = struct_text({name: quoted(name) for name in names})
    return fields.replace("{", "{{").replace("}", "}}") if fields != "{}" else "NULL"


def _of_values(fields: Fields) -> bool:
    return any(kind in _OF_VALUES if isinstance(kind, Kind) else _of_values(kind) for kind in fields.values())


def _over_tables(name: str, arguments: Mapping[str, str | None], counted: str, *columns: str) -> Iterable[str]:
    """Yield the statements that create a table function and comment on it.

    Its rows begin with the keys of ``by``: the column, or those of a struct, by their own names.
    """
    over_table, table = {"reports": None, "report": None} | dict(arguments) | {"by": "NULL"}, f"_table_{name}"
    answer, size, keys = columns
    rows = (
        f"WITH {_FEW} AS MATERIALIZED (SELECT {FEW}(reports, report, keep, m) AS few) "  # noqa: S608
        f"SELECT {counted} AS {_LOCAL}, any_value({COLUMN_NAME}(report)) AS {_NAME}, "
        f"any_value({keys}) AS {_KEYS} "
        f'FROM query_table({TABLE_PLACE}(reports)) WHERE (SELECT few FROM {_FEW}) GROUP BY "by"'
    )
    answered = f"SELECT {_KEYS}, {answer} AS {_ANSWER}, {size} AS n FROM ({rows}) WHERE {AGREED}(reports, {_NAME}, m)"  # noqa: S608
    answers = f"SELECT unnest({_KEYS}, recursive := true), unnest({_ANSWER}, recursive := true), n FROM ({answered})"  # noqa: S608
    select = f"SELECT COLUMNS(lambda c: c <> {text_literal(EVERYBODY)}) FROM ({answers})"  # noqa: S608
    yield _macro(table, over_table, f"TABLE ({select})")
    call = (
        f"{WRITTEN_CALL}('ldp.{table}', reports, current_setting('search_path'), ldp.{CATALOG_NUMBER}(), report, alias(report))"
    )
    alone = [one for one, default in arguments.items() if default is None] == ["m"]
    recorded = f", (reports, report) AS TABLE (FROM query({call}))" if alone else ""
    passed = ", ".join(map(quoted, over_table))
    yield _macro(name, over_table, f"TABLE (FROM ldp.{table}({passed})){recorded}")
    yield f"COMMENT ON MACRO TABLE ldp.{name} IS 'the same over a table, a file or a frame, a row for each line of the answer';"


def _macro(name: str, parameters: Mapping[str, Any], body: str) -> str:
    """Return the statement that creates one macro."""
    listed = [quoted(p) if default is None else f"{quoted(p)} := {default}" for p, default in parameters.items()]
    return f"CREATE OR REPLACE MACRO ldp.{name}({', '.join(listed)}) AS {body};"
