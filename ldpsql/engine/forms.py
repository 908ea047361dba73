"""SQL for each form of reports, generated from the forms: functions that draw, and overloads of macros."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels import Drawn
from ldpsql.domains.domain import Domain
from ldpsql.domains.product import Product
from ldpsql.domains.sql_types import SQL_TYPES, sql_type
from ldpsql.engine.aggregates import COUNTED
from ldpsql.engine.functions import Macros, Scalar
from ldpsql.errors import BadCounts, InvalidParameter
from ldpsql.mechanisms.base import CertifiedMechanism, Mechanism, certify
from ldpsql.names import (
    COUNTED_BY,
    KEPT,
    LISTED_BY,
    MERGED,
    RECORDING,
    REPORT_KIND,
    STRUCT,
    WEIGHED,
    WEIGHED_BY,
    WRITTEN,
)
from ldpsql.quoting import fields_of, text_literal
from ldpsql.reports import FORMS, RowReports
from ldpsql.reports.base import MarkedReports, NumberedReports

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
