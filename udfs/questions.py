"""Questions about the values behind reports: an aggregate for each, over reports of every source and over their counts."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from ldpsql.engine.forms import EVERYBODY, aggregate
from ldpsql.engine.groups import answering, as_structs, sql_type
from ldpsql.estimates.estimate import check_size, estimated
from ldpsql.estimates.tables import difference
from ldpsql.estimators import Estimator, InvalidParameter
from ldpsql.functions import (
    Column,
    Handles,
    Registry,
    Scalar,
    Settings,
    TextLists,
    Texts,
    by_row,
    counts_of,
    guarded,
    hookimpl,
    names_withheld,
    one_thread,
    plain,
    python_value,
    registry,
)
from ldpsql.questions import SHARES, TESTED, Asked, Estimates, Fields, Kind, Lines, Mean, Variance
from ldpsql.quoting import fields_of
from ldpsql.registry.agreement import read_source, records_in, refuse_groups, values_type_of
from ldpsql.registry.handles import ASKED, numbers, without_inversion

_ASKED = "nsreoa"  # the fields of what is asked: name, source, record, estimator, its options, arguments


@guarded
def ask(names: Texts, specs: Column, records: Texts, estimators: Texts, *more: Column) -> pa.Array:
    """Return the handle of each question with the source of the reports and the estimator.

    Args:
        names: the questions.
        specs: what drew the reports: a mechanism or those of levels; false stands for the one that the type records.
        records: the types of the reports or of their counts in SQL.
        estimators: the estimators; NULL is what fits the mechanism.
        more: structs of their options, of which NULL is the default, and structs of the arguments of the questions.

    """
    columns = list(map(plain, (names, specs, records, estimators, *more)))
    if len(columns) != len(_ASKED):
        raise InvalidParameter(f"a question has {len(_ASKED)} arguments, and got {len(columns)}", "call its aggregate in ldp")
    rows = pa.StructArray.from_arrays(columns, list(_ASKED))
    return pa.array(numbers(rows, lambda row: ASKED.number(_asked(*(row[i] for i in range(len(columns)))))), pa.int64())


def _asked(*row: Any) -> Asked:
    name, spec, record, estimator, options, arguments = row
    with names_withheld():
        question = registry().question(name.as_py() or "")
    asked = question.asked(**_fields(arguments))
    source = read_source(spec, record.as_py())
    chosen = {option: python_value(value) for option, value in _fields(options).items() if value.is_valid}
    with names_withheld():
        method = registry().estimator(estimator.as_py() or question.estimator(source))
        if chosen:
            method = registry().estimator({"estimator": method.name, **method.given(), **chosen})
    check_size(source, method)
    return _without_inversion(Asked.of(asked, source, method, recorded=records_in(record.as_py() or "") is not None))


def _fields(struct: pa.Scalar) -> dict[str, pa.Scalar]:
    return {field: struct[field] for field in struct.type.names} if struct.is_valid else {}


def _without_inversion(asked: Asked) -> Asked:
    """Return a question about a mean without an inversion, if the channel has no useful inverse."""
    number = asked.functional
    if not (isinstance(number, Mean | Variance) and number.is_plain(asked.unit)):
        return asked
    unbiased: Estimator | None = without_inversion(asked.source, asked.estimator)
    return asked if unbiased is None else replace(asked, estimator=unbiased, functional=replace(number, unbiased=True))


@guarded
@one_thread
def compared(histograms: Column, one: Handles, others: Column, other: Handles) -> pa.Array:
    """Return the difference between two groups of people in each row; NULL if one is empty."""
    first, second = _each(histograms, one), _each(others, other)
    both = sorted(first.keys() & second.keys())
    tested = [difference(*first[row], *second[row]) for row in both]
    lines = Lines.of_numbers({name: np.array([getattr(test, name)[0] for test in tested]) for name in TESTED})
    place = np.full(len(histograms), -1)
    place[both] = np.arange(len(both))
    return as_structs(TESTED, lines).take(pa.array(place, mask=place < 0))


def _each(histograms: Column, handles: Handles) -> dict[int, tuple[Estimates, Any]]:
    """Return the estimates of each row that holds reports, and the number that is compared."""
    out: dict[int, tuple[Estimates, Any]] = {}
    for handle, counts in counts_of(histograms, handles):
        asked = ASKED.thing(handle)
        for groups, estimates in estimated(asked.source, counts, asked.estimator):
            out |= {int(group): (estimates.only(place), asked.functional) for place, group in enumerate(groups)}
    return out


@by_row(Texts, returns=pa.string())
def unnamed(row: str | None) -> str | None:
    """Return the type of a tuple of a key, or of a tuple of keys, as from_json reads it; ``row`` is that of a tuple of it."""
    if not row:
        return row
    if records_in(row):
        refuse_groups()
    kind = row.removeprefix("TUPLE(").removesuffix(")")
    if kind in ('"NULL"', "UNKNOWN"):  # nobody asked for groups; CREATE MACRO does not know the type
        kind = "INTEGER"
    elif kind.startswith("STRUCT("):
        kind = f"TUPLE({', '.join(fields_of(kind).values())})"
    return json.dumps(f"TUPLE({kind})")


@by_row(Texts, TextLists, returns=pa.string())
def key_type(row: str | None, columns: list[str | None] | None) -> str | None:
    """Return the type of a struct of the keys of groups, as from_json reads it.

    Args:
        row: the type of a row of the key in SQL, which is named like the key.
        columns: the other columns of the result, whose names keys must not have.

    """
    if not row:
        return row
    fields = fields_of(row)
    if len(fields) != 1:
        raise InvalidParameter("a row of a key has one field", "call a question with by := region")
    [(name, kind)] = fields.items()
    if name == "NULL":  # nobody asked for groups
        return json.dumps({EVERYBODY: "INTEGER"})
    several = kind.startswith("STRUCT(")
    keys = fields_of(kind) if several else {_QUALIFIED.sub("", name) if "(" in name else name: kind}
    if any(one.endswith("]") or one.startswith("MAP(") for one in keys.values()):
        raise InvalidParameter(
            "the key of groups cannot be a list or a map", "by := region, or by := {region: region, day: day}"
        )
    taken = {column.casefold() for column in filter(None, columns or [])}
    named = {f"{key}_1" if key.casefold() in taken else key: one for key, one in keys.items()}
    return json.dumps({name: named} if several else named)


_QUALIFIED = re.compile(r'(?:(?:[A-Za-z_]\w*|"(?:[^"]|"")*")\.){1,3}')  # the places of a column in an expression


@by_row(Texts, Texts, Texts, Settings, Texts)
def answer_type(name: str, *of: Any) -> str:
    """Return the type of an answer, as from_json reads it; ``of`` says what drew the reports, as `values_type_of` takes it."""
    with names_withheld():  # a name may come from a column
        question = registry().question(name)
        fields = _types(question.fields, values_type_of(*of))
    return json.dumps([fields] if question.rows else fields)


def _types(fields: Fields, values: Any) -> dict[str, Any]:
    mean = _MEANS.get(str(values).partition("_")[0], "DOUBLE")
    own = {Kind.VALUE: values, Kind.MEAN: mean}
    return {
        name: own.get(kind, kind.value) if isinstance(kind, Kind) else [_types(kind, values)] for name, kind in fields.items()
    }


_MEANS = {kind: kind for kind in ("TIMESTAMP", "TIMESTAMP WITH TIME ZONE")} | {"DATE": "TIMESTAMP"}


@hookimpl
def ldpsql_functions(known: Registry) -> list[Any]:
    """Offer an aggregate for each question and each estimator, and the functions that they call."""
    questions = list(known.questions.values())
    return [
        Scalar("__ldp_ask", ask, "BIGINT"),
        Scalar("__ldp_answer_type", answer_type, "VARCHAR"),
        Scalar("__ldp_unnamed", unnamed, "VARCHAR"),
        Scalar("__ldp_key_type", key_type, "VARCHAR"),
        Scalar("__ldp_compared", compared, sql_type(TESTED)),
        *(answering(question, ASKED.thing) for question in questions if not question.two_groups),
        *map(aggregate, questions),
        *(aggregate(known.questions[SHARES], estimator) for estimator in known.estimators.values()),
    ]
