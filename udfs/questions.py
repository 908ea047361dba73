"""Questions about the values behind reports: an aggregate for each, over reports of every source and over their counts."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa

from ldpsql.estimators import Estimator
from ldpsql.functions import (
    ASKED,
    REQUIRED,
    SHOWN,
    SOURCES,
    Aggregate,
    Asked,
    Column,
    Handles,
    MeanOf,
    Mixed,
    Registry,
    Scalar,
    Settings,
    TableFunctional,
    Texts,
    VarianceOf,
    aggregates,
    answers,
    check_size,
    estimator_of_shares,
    guarded,
    hookimpl,
    names_withheld,
    narrowed,
    once_a_run,
    plain,
    quoted,
    read_estimator,
    registry,
    sql_literal,
    struct_text,
    values_of,
    values_type_of,
    without_inversion,
)
from ldpsql.mechanisms import Mechanism
from ldpsql.questions import Question, Shown


@guarded
def ask(names: Texts, sources: Handles, estimators: Texts, confidences: Settings, arguments: Column) -> pa.Array:
    """Return the handle of each question with the source of the reports and the estimator."""
    texts = (plain(column).to_pylist() for column in (names, sources, estimators, confidences))
    return pa.array([ASKED.number(_asked(*row)) for row in zip(*texts, plain(arguments), strict=True)], pa.int64())


def _asked(name: str, handle: int, estimator: str | None, confidence: Any, arguments: pa.StructScalar) -> Asked:
    source, options = SOURCES.thing(handle), {} if confidence is None else {"confidence": confidence}
    method = read_estimator(estimator or estimator_of_shares(source), **options)
    check_size(source, method)
    given = {} if not arguments.is_valid else {field: arguments[field] for field in arguments.type.names}
    with names_withheld():
        question = registry().question(name)
    return _of_source(question.asked(**given), source, method)


def _of_source(question: Question, source: Mechanism | Mixed, estimator: Estimator) -> Asked:
    values = values_of(source)
    question.check(source)
    functional, unit = question.about(values), question.unit(values)
    if isinstance(functional, MeanOf | VarianceOf) and functional.is_plain(values):
        unbiased = without_inversion(source, estimator)
        if unbiased is not None:
            return Asked(source, unbiased, replace(functional, unbiased=True), unit)
    if not isinstance(functional, TableFunctional):
        return Asked(source, estimator, functional, unit)
    (own, method), number = narrowed((source, estimator), functional)
    return Asked(own, method, number, unit)


@guarded
def answer_type(names: Texts, types: Texts, ofs: Column, records: Texts) -> pa.Array:
    """Return the type of each answer, as from_json reads it.

    Args:
        names: the questions.
        types: the type of what drew the reports in SQL, see `type_of_values`.
        ofs: the name of a column of a table; anything else stands for the values themselves.
        records: the types of the reports or of their counts, which may record what drew them.

    """
    rows = zip(*(plain(column).to_pylist() for column in (names, types, ofs, records)), strict=True)
    with names_withheld():  # a name may come from a column
        return pa.array([json.dumps(_type(registry().question(name), values_type_of(*of))) for name, *of in rows])


def _type(question: type[Question], values: Any) -> Any:
    unit = values if question.shown is Shown.VALUE else _MEANS.get(str(values).partition("_")[0], "DOUBLE")
    fields = {field: unit if field in SHOWN else "DOUBLE" for field in question.fields}
    return [fields] if question.rows else fields


_MEANS = {kind: kind for kind in ("TIMESTAMP", "TIMESTAMP WITH TIME ZONE")} | {"DATE": "TIMESTAMP"}


def _scalar(question: type[Question]) -> Scalar:
    """Return the function that answers a question from counts."""

    def answer(histograms: Column, handles: Handles) -> pa.Array:
        return answers(histograms, handles, ASKED.thing, question)

    shown = "DOUBLE" if question.shown is Shown.NUMBER else "VARCHAR"
    fields = ", ".join(f"{field} {shown if field in SHOWN else 'DOUBLE'}" for field in question.fields)
    return Scalar(f"__ldp_answer_{question.name}", guarded(once_a_run(answer)), f"STRUCT({fields}){'[]' * question.rows}")


def _aggregate(question: type[Question]) -> Aggregate:
    own = question.parameters()
    required = {name: None for name, default in own.items() if default is REQUIRED}
    optional = {name: sql_literal(default) for name, default in own.items() if default is not REQUIRED}
    chosen = struct_text({name: quoted(name) for name in own}) if own else "NULL"
    asked = f"__ldp_ask('{question.name}', __ldp_source(m, {{record}}), estimator, confidence, {chosen})"
    answer = f"__ldp_answer_{question.name}({{counts}}, {asked})"
    if question.shown is not Shown.NUMBER:
        of = "[of][1]" if "of" in own else "NULL"
        kind = f"'' || __ldp_answer_type('{question.name}', typeof([ldp._struct(m)][1]), {of}, {{record}})"
        answer = f"cast_to_type({answer}, from_json('null', {kind}))"
    return Aggregate(
        question.name,
        answer,
        {"m": None, **required, "estimator": "'ibu'", "keep": "true", **optional, "confidence": "NULL"},
        question.summary,
        rows=question.rows,
    )


@hookimpl
def ldpsql_functions(known: Registry) -> list[Any]:
    """Offer an aggregate for each question, and the functions that it calls."""
    questions = list(known.questions.values())
    return [
        Scalar("__ldp_ask", ask, "BIGINT"),
        Scalar("__ldp_answer_type", answer_type, "VARCHAR"),
        *map(_scalar, questions),
        aggregates(*map(_aggregate, questions)),
    ]
