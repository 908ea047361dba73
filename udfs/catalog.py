"""Mechanisms by name: lists of all of them and of estimators, those that SQL declared, and what one of them is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from ldpsql.functions import (
    DECLARATIONS,
    MECHANISMS,
    Column,
    Handles,
    Macros,
    Scalar,
    Settings,
    Spec,
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
)
from ldpsql.mechanisms import Mechanism, NoClaim, certify

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


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer lists of mechanisms and estimators, what a mechanism is, ``ldp.declare`` and ``ldp.declared``."""
    return [
        Scalar("__ldp_catalog", catalog, _ENTRY),
        Scalar("__ldp_describe", describe, _DESCRIPTION),
        Scalar("__ldp_document", document, "VARCHAR"),
        Scalar("__ldp_declare", declare, "VARCHAR", volatile=True, draws=False),
        *_declared,
        Scalar("__ldp_declarations", declarations, _ROW, volatile=True, draws=False),
        Macros.beside(__file__),
    ]
