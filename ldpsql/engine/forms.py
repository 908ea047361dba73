"""SQL that is generated: functions that draw for each form of reports, overloads of macros, and the macros of a question."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels import Drawn
from ldpsql.domains.composite import Product
from ldpsql.domains.domain import Domain
from ldpsql.domains.sql_types import SQL_TYPES, sql_type
from ldpsql.engine.functions import CATALOG_NUMBER, Macros, Scalar, struct_text
from ldpsql.errors import BadCounts, InvalidParameter
from ldpsql.estimates.question import REQUIRED, Fields, Kind, Question
from ldpsql.estimators.base import Estimator
from ldpsql.mechanisms.base import CertifiedMechanism, Mechanism, certify
from ldpsql.mechanisms.spec import sql_literal
from ldpsql.names import (
    AGREED,
    ANSWER_TYPE,
    ASK,
    COLUMN_NAME,
    COMPARED,
    COUNTED_BY,
    FEW,
    HERE,
    KEPT,
    KEYS,
    LISTED,
    LISTED_BY,
    MERGED,
    ONE_OR_EACH,
    PEOPLE,
    READING,
    RECORD_OF,
    RECORDING,
    REPORT_KIND,
    SHARES,
    STRUCT,
    SUMS,
    TEXT,
    WEIGHED,
    WEIGHED_BY,
    WRITTEN,
    WRITTEN_CALL,
)
from ldpsql.quoting import fields_of, quoted, text_literal
from ldpsql.reports import FORMS, RowReports
from ldpsql.reports.base import MarkedReports, NumberedReports

# The macros of a question: ``ldp.NAME`` takes a column of reports, or counts of them, which DuckDB tells apart by their type.
#
# Each is also a table function: ``FROM ldp.NAME(reports, report, m, ...)``.

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


def aggregate(question: type[Question], estimator: type[Estimator] | None = None) -> Macros:
    """Return the aggregate of a question, and its table function.

    If all other arguments are optional, the mechanism ``m`` may be left out or false: then the type of the reports must record
    it. Reports of another one are refused.

    Args:
        question: the question.
        estimator: the only estimator of which it is asked, under whose name and with whose options; it has no table function.

    """
    named, options = estimator or question, question.options
    if estimator:
        options = {parameter.name: sql_literal(parameter.default) for parameter in estimator.parameters()}
    name, summary = named.name, estimator.summary() if estimator else question.summary
    own = question.parameters()
    required: dict[str, str | None] = {one: None for one, default in own.items() if default is REQUIRED}
    optional: dict[str, str | None] = {one: sql_literal(default) for one, default in own.items() if default is not REQUIRED}
    # Sums of rows stand in place of reports, and need no raw column.
    raw: dict[str, str | None] = {one: default or "NULL" for one, default in question.raw.items()}
    optional = raw | optional
    arguments = required | optional | dict(options) | {"keep": "true"}
    method = text_literal(name) if estimator else "estimator" if "estimator" in options else "NULL"
    chosen = _struct(one for one in options if one != "estimator")

    def asked(record: str) -> str:
        return f"{ASK}({text_literal(question.name)}, m, {record}, {method}, {chosen}, {_struct(own)})"

    if question.two_groups:
        over = {"counts": None, "others": None, "m": "false"} | optional | dict(options)
        compared = f"{COMPARED}(counts, {asked('typeof(counts)')}, others, {asked('typeof(others)')})"
        return Macros("\n".join([_macro(name, over, compared), _comment(name, summary)]))
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
    made.append(_comment(name, f"aggregate: {summary}"))
    if not estimator:
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
    table_of = f"query({READING}(reports, {HERE}()))"
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


ToColumn: TypeAlias = Callable[[CertifiedMechanism, Drawn], pa.Array]  # how the draws of a mechanism become a column

# Values of these types come as text, which DuckDB casts; without an entry of their own, DuckDB would take another one for them.
AS_TEXT = ("DECIMAL", "HUGEINT", "UHUGEINT", "TIMESTAMP WITH TIME ZONE", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS")
_SAME = {name: kind for kind, name in SQL_TYPES.items() if name not in AS_TEXT}
_PAIRS = {
    f'STRUCT("key" {name}, {field} {sql})': pa.struct([("key", _SAME[name]), (field, number)])
    for name in ("VARCHAR", "BIGINT", "INTEGER")
    for field, sql, number in (("sign", "TINYINT", pa.int8()), ("bin", "SMALLINT", pa.int16()))
}
KINDS: dict[str, pa.DataType] = _SAME | _PAIRS  # by their names in SQL


def mark_of(kind: str) -> str:
    """Return a type in SQL as a part of a name."""
    return "_".join(re.findall(r"\w+", kind)).lower()


def column_of_kind(kind: pa.DataType) -> ToColumn:
    """Return how draws of a mechanism whose reports are listed become a column of a type of `KINDS`."""
    if pa.types.is_string(kind):
        return _texts
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return _numbers(kind)

    def column(mechanism: CertifiedMechanism, drawn: Drawn) -> pa.Array:
        return _cast(mechanism.shown(drawn), kind)

    return column


def _cast(reports: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        return reports if reports.type == kind else reports.cast(kind)
    except pa.ArrowException:
        raise InvalidParameter("the reports of this mechanism have another type", "call ldp.perturb") from None


def _numbers(kind: pa.DataType) -> ToColumn:
    """Return how draws become numbers: NumPy takes 2,048 of them out of the list in half the time of Arrow."""

    def listed(mechanism: CertifiedMechanism) -> NDArray[Any] | None:
        return _cast(mechanism.reports.values, kind).to_numpy() if isinstance(mechanism.reports, Domain) else None

    def column(mechanism: CertifiedMechanism, drawn: Drawn) -> pa.Array:
        numbers = mechanism.derived(listed)
        return _cast(mechanism.shown(drawn), kind) if numbers is None else pa.array(numbers.take(drawn))

    return column


def _texts(mechanism: CertifiedMechanism, drawn: Drawn) -> pa.Array:
    if not isinstance(mechanism.reports, Domain):
        raise InvalidParameter("the reports of this mechanism are not text", "call ldp.perturb")
    return mechanism.reports.views_at(drawn)


# What is not a list is refused when the statement is bound, before DuckDB refuses the subscript.
# True, after a call of Python while DuckDB binds the statement: from_json reads a type then, and passes errors on.
_BOUND = "from_json('null', {}) IS NULL"
_IS_LIST = _BOUND.format(
    f"'' || {WRITTEN}('domain', ' ELSE CAST(NULL AS ' || typeof(CASE WHEN true THEN {{0}} END) || ') END')"
)
COUNTED_ALREADY = BadCounts("counts of reports take no weight", "count with weights: ldp.counts(report, weight := w)")
# Types of lists with strings, by the marks that stand for them if the reports need no cast.
_STRINGS = {f"{kind}[]": f"STRUCT({mark_of(kind)} INTEGER)" for kind in KINDS if "VARCHAR" in kind}
_LISTED = {f"{sql}[]" for sql in (*KINDS, *AS_TEXT, "ENUM")}  # types of lists of values, without their arguments
CELL = "STRUCT(n UBIGINT)"  # the number of rows behind one row of counts
COUNTS = "MAP(VARCHAR, VARCHAR)"  # what DuckDB casts all counts to, and no reports


def scalars_by_form(
    scalar: str,
    function: Callable[[ToColumn, pa.DataType], Callable[..., Any]],
    *,
    draws: bool = True,
    volatile: bool = True,
    rows: bool = False,
) -> dict[str, Scalar]:
    """Return the function of each form of reports, by the type in SQL of the field ``reports`` of a mechanism.

    That type is a list of the reports, or the marker of their form. The function of '' is for any other list.

    Args:
        scalar: the name of the function that returns positions in a list, from 1; the names of those that return reports have
            the mark of a form or a type appended.
        function: takes how draws become a column, and the type of that column; returns a function of Arrow columns.
        draws: whether every call of the functions draws a new report.
        volatile: whether DuckDB must call the functions for every row.
        rows: whether the functions return a list of reports for a list of values.

    """
    made: dict[str, Scalar] = {}

    def add(mark: str, own: Callable[..., Any], returns: str, *kinds: str) -> None:
        name = f"{scalar}_{mark}" if mark else scalar
        one = Scalar(name, own, f"{returns}[]" if rows else returns, volatile=volatile, draws=draws)
        made.update(dict.fromkeys(kinds, one))

    for mark, form in FORMS.items():
        add(mark, function(CertifiedMechanism.shown, form.type), form.sql_type, f"STRUCT({mark} INTEGER)")
    for kind, arrow in KINDS.items():
        like = (kind, *AS_TEXT) if kind == "VARCHAR" else (kind,)
        add(mark_of(kind), function(column_of_kind(arrow), arrow), kind, *(f"{sql}[]" for sql in like))
    if not rows:
        add(RowReports.mark, function(_row_texts, pa.string()), "VARCHAR", f'STRUCT("{RowReports.mark}" VARCHAR)')
    add("", function(positions, pa.int32()), "INTEGER", "")
    return made


def drawn_by_form(
    macro: str, scalars: Mapping[str, Scalar], arguments: tuple[str, ...], passed: str, mechanism: str = "m"
) -> Macros:
    """Return a macro that draws reports of any form by the function of that form.

    The macro takes these arguments, then the mechanism ``m`` and ``ldp._report_kind(m)``, whose type chooses the function. Its
    body contains each argument once, because a second mention of a value would draw twice, and a second mention of a mechanism
    is bound again.

    Args:
        macro: the name of the macro in the catalog ``ldp``.
        scalars: the functions, see `scalars_by_form`.
        arguments: the arguments of the macro before the mechanism.
        passed: SQL of the arguments of the functions, in terms of those of the macro.
        mechanism: SQL of the mechanism whose reports have the type of all, in terms of ``m``.

    """
    reports = f"({STRUCT}({mechanism})).reports"
    overloads = [(mark, f"{scalars[kind].name}({passed})") for kind, mark in _STRINGS.items()]
    for kind, one in scalars.items():
        call = f"{one.name}({passed})"
        if not kind:
            call = f"CASE WHEN {_IS_LIST.format(reports)} THEN {reports}[{call}] END"
        elif one.name.endswith(f"_{RowReports.mark}"):
            call = f'from_json({call}, ({reports})."{RowReports.mark}")'
        elif kind.endswith("[]") and "VARCHAR" in one.returns:  # also of any other type that DuckDB casts to a list of strings
            call = f"cast_to_type({call}, {REPORT_KIND}({mechanism})[1])"  # `kind` was cast to the type of the overload
        overloads.append((kind, call))
    return overloaded(macro, [((*arguments, "m", f"kind {kind}"), body) for kind, body in overloads])


def positions(mechanism: CertifiedMechanism, drawn: Drawn) -> pa.Array:
    """Return draws as positions in SQL's list of the reports, counted from 1."""
    if isinstance(mechanism.reports, NumberedReports):
        drawn = mechanism.reports.told_apart(drawn)
    elif isinstance(mechanism.reports, MarkedReports):
        raise InvalidParameter("the reports of this mechanism are not positions", "call ldp.perturb")
    return pa.array(drawn + np.int32(1))


def _row_texts(mechanism: CertifiedMechanism, drawn: Drawn) -> pa.Array:
    """Return draws of rows as JSON."""
    if isinstance(mechanism.reports, Product):
        rows = mechanism.reports
        return RowReports(rows.names, rows.parts).to_json(np.column_stack(rows.places(drawn)))
    if not isinstance(mechanism.reports, RowReports):
        raise InvalidParameter("the reports of this mechanism are not rows", "call ldp.perturb")
    return mechanism.reports.to_json(drawn)


def counted_by_form() -> Macros:
    """Return ``ldp._counted_by(report, keep)``: the counts of a column of reports, as their form declares.

    Counts are returned as they are, or NULL if ``keep`` is not true. Whoever asks checks what the type of the reports records.
    """
    own = [form for form in FORMS.values() if form.counted != MarkedReports.counted]
    names = [COUNTED, *(f"{COUNTED}_{form.mark}" for form in own[1:])]
    others, statements = MarkedReports.counted, ""
    # a macro for each form: DuckDB cannot choose between two types while the type of the report is not known
    for name, form in reversed(list(zip(names, own, strict=True))):
        statements += overloaded(name, [((f"report {form.sql_type}", "keep"), form.counted), (("report", "keep"), others)]).text
        others = f"ldp.{name}(report, keep)"
    return Macros(statements + _of_recorded(COUNTED_BY, f"ldp.{COUNTED}({{report}}, {{keep}})"))


def listed_by() -> Macros:
    """Return ``ldp._listed_by(report, keep)``: the list of the reports, as `counted_by_form` counts them."""
    return Macros(_of_recorded(LISTED_BY, f"list({{report}}) FILTER (WHERE {KEPT}({{keep}}))"))


def weighed_by() -> Macros:
    """Return ``ldp._weighed_by(report, keep, weight)``: the counts of reports, with weights unless ``weight`` is NULL.

    A ``weight`` of the type `CELL` says for how many rows without weights the report stands.
    """
    cells = f"{MERGED}({LISTED_BY}(report, keep), list((weight).n) FILTER (WHERE {KEPT}(keep)))"
    weighed = f"{WEIGHED}({LISTED_BY}(report, keep), list(weight) FILTER (WHERE {KEPT}(keep)))"
    refused = f"error({text_literal(str(COUNTED_ALREADY))})"
    parameters, name = ("report", "keep"), WEIGHED_BY.removeprefix("ldp.")
    by_kind = [((*parameters, "weight", f"kind {COUNTS}"), refused), ((*parameters, "weight", "kind"), weighed)]
    without = ((*parameters, 'weight "NULL"'), f"{COUNTED_BY}(report, keep)")
    by_weight = [
        ((*parameters, f"weight {CELL}"), cells),
        ((*parameters, "weight"), f"{WEIGHED_BY}_kind(report, keep, weight, report)"),
    ]
    of_rows = ((*parameters, "weight"), f"{WEIGHED_BY}_weight(report, keep, weight)")
    inner = overloaded(f"{name}_kind", by_kind).text + overloaded(f"{name}_weight", by_weight).text
    return Macros(inner + overloaded(name, [without, of_rows]).text)


def _of_recorded(macro: str, aggregate: str) -> str:
    """Return the statements of a macro of a report and a condition that applies an aggregate to plain reports."""
    of_plain, of_recorded = (aggregate.format(report=one, keep="keep") for one in ("report", "struct_extract_at(report, 1)"))
    parameters, name = ("report", "keep"), macro.removeprefix("ldp.")
    # One type at a time: DuckDB cannot choose between two while the type of the report is not known.
    inner = overloaded(f"{name}_type", [((*parameters, "kind BOOLEAN"), of_recorded), ((*parameters, "kind"), of_plain)]).text
    # A list and || keep CREATE MACRO from binding the type of a report that is not known yet.
    kind = f"from_json('null', '' || {RECORDING}(typeof([report][1])))"
    counts = f"CASE WHEN {KEPT}(keep) THEN report END"
    reports = f"{macro}_type(report, keep, {kind})"
    any_kind = overloaded(f"{name}_kind", [((*parameters, f"kind {COUNTS}"), counts), ((*parameters, "kind"), reports)]).text
    return inner + any_kind + overloaded(name, [(parameters, f"{macro}_kind(report, keep, report)")]).text


def kind_of_reports(mechanism: Mechanism) -> str:
    """Return the type in SQL of the field ``reports`` of a mechanism, '' if it is a list of nested values."""
    reports = certify(mechanism).reports
    if isinstance(reports, Domain) and not isinstance(reports, Product):
        return f"{sql_type(reports.values.type)}[]"
    if isinstance(reports, MarkedReports):
        return f"STRUCT({reports.mark} INTEGER)"
    return f'STRUCT("{RowReports.mark}" VARCHAR)' if isinstance(reports, Product | RowReports) else ""


def type_of_reports(listed: str | None) -> str:
    """Return the type of a report in SQL, from the type of the mechanism's reports: that of a list of them, or of a marker."""
    listed = listed or "NULL"
    mark = listed.removeprefix("STRUCT(").removesuffix(" INTEGER)")
    return FORMS[mark].sql_type if mark in FORMS else listed.removesuffix("[]")


def drawn_kind(kind: str) -> str:
    """Return the type that chooses the overload of a macro of `drawn_by_form` for this type of reports in SQL."""
    return _STRINGS.get("VARCHAR[]" if kind == '"NULL"' else kind, kind)  # NULL is refused when the mechanism is read


def kind_in_type(struct: str) -> str:
    """Return the type in SQL of the reports of a mechanism, see `kind_of_reports`, from the type of its STRUCT.

    Without a field for them, the reports are the values of the domain.
    """
    fields = fields_of(struct)
    kind = fields.get("reports") or fields.get("domain", '"NULL"')
    return kind if "reports" in fields or _is_listed(kind) else '"NULL"'  # a domain cannot hold other values


def scalar_of_kind(scalars: Mapping[str, Scalar], kind: str) -> Scalar:
    """Return the function for reports of this type in SQL; it may return text, to be cast to that type.

    A domain of another type than those of reports, such as UUID, is one of text.
    """
    return scalars.get(kind) or scalars["VARCHAR[]" if kind == '"NULL"' or _is_listed(kind) else ""]


def _is_listed(kind: str) -> bool:
    return kind.endswith("[]") and f"{kind.partition('(')[0].removesuffix('[]')}[]" in _LISTED


def overloaded(macro: str, overloads: Sequence[tuple[tuple[str, ...], str]]) -> Macros:
    """Return a macro of several overloads, each a pair of parameters and body; the last one takes what no other does."""
    bodies = [f"\n    ({', '.join(map(str.strip, parameters))}) AS {body}" for parameters, body in overloads]
    return Macros(f"CREATE OR REPLACE MACRO ldp.{macro}{','.join(bodies)};")
