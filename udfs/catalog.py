"""Mechanisms by name: all of them, those that SQL declared, and what one is; and plans of which to use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from math import isfinite
from typing import Any

import pyarrow as pa

from ldpsql.bulk.frames import recommend
from ldpsql.estimates.planning import PlannedTable, plan_tables
from ldpsql.estimates.recommending import Candidate
from ldpsql.functions import (
    MECHANISMS,
    Column,
    Doubles,
    Handles,
    Macros,
    Scalar,
    Settings,
    TextLists,
    Texts,
    Wholes,
    by_row,
    document_text,
    fingerprint,
    guarded,
    hookimpl,
    names_withheld,
    read_mechanism,
    registry,
    struct_scalars,
    struct_type,
)
from ldpsql.mechanisms import InvalidParameter, Mechanism, NoClaim, certify
from ldpsql.mechanisms.spec import Spec
from ldpsql.registry.handles import DECLARATIONS

_ENTRY = "STRUCT(name VARCHAR, signature VARCHAR, summary VARCHAR, plugin VARCHAR)[]"
_DESCRIPTION = (
    "STRUCT(mechanism VARCHAR, claim VARCHAR, realised_epsilon DOUBLE, ratio VARCHAR, "
    "slack DOUBLE, delta DOUBLE, exact_delta VARCHAR, value VARCHAR, other VARCHAR, report VARCHAR, "
    "inputs BIGINT, outputs BIGINT, structure VARCHAR, summary VARCHAR, fingerprint VARCHAR)"
)


@by_row(Texts)
def catalog(kind: str) -> list[dict[str, str]]:
    """Return the mechanisms or the estimators of the registry."""
    specs: dict[str, Mapping[str, type[Spec]]] = {"mechanisms": registry().mechanisms, "estimators": registry().estimators}
    return [
        {
            "name": spec.name,
            "signature": spec.signature(),
            "summary": spec.summary(),
            "plugin": registry().owner(spec.name),
        }
        for spec in specs.get(kind, {}).values()
    ]


@guarded
def describe(handles: Handles) -> pa.Array:
    """Return for each mechanism its claim, what it keeps, the values and the report that reach it, size and fingerprint."""
    return pa.array(MECHANISMS.each(handles, _description))


def _description(mechanism: Mechanism) -> dict[str, Any]:
    certified = certify(mechanism)
    proof = certified.certificate
    return {
        "mechanism": certified.mechanism.name,
        "claim": str(proof.claimed),
        "realised_epsilon": proof.epsilon,
        "ratio": "infinite" if proof.ratio is None else str(proof.ratio),
        "slack": None if isinstance(proof.claimed, NoClaim) else proof.slack,
        "delta": float(proof.delta),
        "exact_delta": str(proof.delta),
        "value": certified.text(proof.value),
        "other": certified.text(proof.other),
        "report": certified.report_text(proof.report),
        "inputs": len(certified.values.listed) or None,  # strings are too many to number
        "outputs": getattr(certified.channel, "outputs", None),  # sets and private seeds are too many to number
        "structure": type(certified.channel).__name__,
        "summary": certified.mechanism.summary(),
        "fingerprint": fingerprint(certified.mechanism),
    }


@guarded
def document(handles: Handles) -> pa.Array:
    """Return each mechanism as a document, in JSON."""
    return pa.array(MECHANISMS.each(handles, document_text), pa.string())


# Mechanisms that are declared once by name, so that a domain of any size is a constant in later statements.

_ROW = 'STRUCT("name" VARCHAR, mechanism VARCHAR, "values" BIGINT, realised_epsilon DOUBLE, fingerprint VARCHAR)[]'


@by_row(Settings, Column, Settings, Wholes, returns=pa.string())
def declare(name: Any, spec: pa.Scalar, replace: Any, catalog: int) -> str:
    """Store a mechanism under its name, and return its fingerprint."""
    mechanism = read_mechanism(spec)
    DECLARATIONS.declare(catalog, name, mechanism, replace=replace is True)
    return fingerprint(mechanism).split()[0]


@struct_scalars("__ldp_declared", Settings, Wholes)
def _declared(name: Any, catalog: int) -> Mechanism:
    with names_withheld():  # a name may come from a column
        return DECLARATIONS.declared(catalog, name)


@by_row(Wholes)
def declarations(catalog: int) -> list[dict[str, Any]]:
    """Return the declared mechanisms of a catalog."""
    return [
        {
            "name": name,
            "mechanism": mechanism.name,
            "values": len(certify(mechanism).values.listed),
            "realised_epsilon": certify(mechanism).epsilon,
            "fingerprint": fingerprint(mechanism).split()[0],
        }
        for name, mechanism in DECLARATIONS.names(catalog).items()
    ]


_ANSWERS = f"{struct_type(Candidate)}[]"


@by_row(Texts, Wholes, Wholes, TextLists, Doubles, Doubles)
def recommended(
    question: str, reports: int | None, steps: int, epsilons: list[str], *more: float | None
) -> list[dict[str, object]]:
    """Return the answers of all mechanisms to a question; ``more`` are the width of a grid and the error to reach."""
    width, error = more
    if None in (question, steps, epsilons) or None in epsilons or (reports is None and error is None):
        raise InvalidParameter("a plan needs a question, numbers of reports and of values, and epsilons", "none may be NULL")
    columns = None if width is None else int(width) if isfinite(width) else 0  # which is no width
    return recommend(question, reports, steps, error=error, width=columns, epsilons=epsilons).to_dicts()


# Plans for tables of several columns.

_NUMBERS = {"cells": "BIGINT", "std_error": "DOUBLE", "l1": "DOUBLE", "best": "BOOLEAN"}
_PLANNED = ", ".join(f'"{field.name}" {_NUMBERS.get(field.name, "VARCHAR")}' for field in fields(PlannedTable))


@by_row(Settings, Settings, Texts, Settings)
def planned(columns: Any, reports: Any, epsilon: str, tables: list[list[str]] | None) -> list[dict[str, Any]]:
    """Return what each way to spend an epsilon makes of each table of a plan."""
    whole = isinstance(columns, dict) and all(type(size) is int for size in columns.values()) and type(reports) is int
    if not whole or not all(isinstance(table, list) for table in tables or []):
        raise InvalidParameter(
            "a plan needs the number of values of each column, the number of reports, and tables as lists of columns",
            "ldp.plan({education: 16, income: 2}, 50000, 2, tables := [['education', 'income']])",
        )
    return [asdict(table) for table in plan_tables(registry().mechanisms, columns, reports, epsilon, tables or [])]


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer lists of mechanisms, what one is, ``ldp.declare``, ``ldp.recommend`` and ``ldp.plan``."""
    return [
        Scalar("__ldp_catalog", catalog, _ENTRY),
        Scalar("__ldp_describe", describe, _DESCRIPTION),
        Scalar("__ldp_document", document, "VARCHAR"),
        Scalar("__ldp_declare", declare, "VARCHAR", volatile=True, draws=False),
        *_declared,
        Scalar("__ldp_declarations", declarations, _ROW, volatile=True, draws=False),
        Scalar("__ldp_recommended", recommended, _ANSWERS),
        Scalar("__ldp_plan_tables", planned, f"STRUCT({_PLANNED})[]"),
        Macros.beside(__file__),
    ]
