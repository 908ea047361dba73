"""Lists of all mechanisms and estimators, and the description of one mechanism."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from ldpsql.functions import (
    MECHANISMS,
    Handles,
    Macros,
    Scalar,
    Spec,
    Texts,
    by_row,
    document_text,
    fingerprint,
    guarded,
    hookimpl,
    registry,
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


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer ``ldp.mechanisms()``, ``ldp.estimators()``, ``ldp.describe(m)`` and ``ldp.document(m)``."""
    return [
        Scalar("__ldp_catalog", catalog, _ENTRY),
        Scalar("__ldp_describe", describe, _DESCRIPTION),
        Scalar("__ldp_document", document, "VARCHAR"),
        Macros.beside(__file__),
    ]
