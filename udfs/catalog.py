"""What there is: mechanisms, estimators, and one mechanism in full."""

from __future__ import annotations

import pyarrow as pa

from ldpsql.functions import MECHANISMS, Macros, Scalar, Spec, fingerprint, guarded, hookimpl, plain, registry
from ldpsql.mechanisms import certify

_ENTRY = "STRUCT(name VARCHAR, signature VARCHAR, summary VARCHAR, plugin VARCHAR)[]"
_DESCRIPTION = (
    "STRUCT(mechanism VARCHAR, claim VARCHAR, realised_epsilon DOUBLE, ratio VARCHAR, "
    "inputs BIGINT, outputs BIGINT, structure VARCHAR, summary VARCHAR, fingerprint VARCHAR)"
)


@guarded
def catalog(kinds: pa.ChunkedArray) -> pa.Array:
    """List the mechanisms or the estimators of the registry."""
    known: dict[str, list[type[Spec]]] = {
        "mechanisms": list(registry().mechanisms.values()),
        "estimators": list(registry().estimators.values()),
    }
    return pa.array([[_entry(spec) for spec in known[kind]] for kind in plain(kinds).to_pylist()])


def _entry(spec: type[Spec]) -> dict[str, str]:
    return {
        "name": spec.name,
        "signature": spec.signature(),
        "summary": spec.summary(),
        "plugin": registry().owner(spec.name),
    }


@guarded
def describe(handles: pa.ChunkedArray) -> pa.Array:
    """Return name, claim, realised epsilon, the exact largest ratio, size, structure and fingerprint of each mechanism."""
    out = []
    for handle in plain(handles).to_pylist():
        known = certify(MECHANISMS.thing(handle))
        out.append(
            {
                "mechanism": known.mechanism.name,
                "claim": str(known.certificate.claim),
                "realised_epsilon": known.certificate.epsilon,
                "ratio": str(known.certificate.ratio),
                "inputs": len(known.values.listed),
                "outputs": getattr(known.channel, "outputs", None),  # sets and private seeds are too many to number
                "structure": type(known.channel).__name__,
                "summary": known.mechanism.summary(),
                "fingerprint": fingerprint(known.mechanism),
            }
        )
    return pa.array(out)


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer ``ldp.mechanisms()``, ``ldp.estimators()`` and ``ldp.describe(m)``."""
    return [
        Scalar("__ldp_catalog", catalog, _ENTRY),
        Scalar("__ldp_describe", describe, _DESCRIPTION),
        Macros.beside(__file__),
    ]
