"""Mechanisms that are declared once by name, so that a domain of any size is a constant in later statements."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ldpsql.functions import (
    DECLARATIONS,
    Column,
    Macros,
    Scalar,
    Settings,
    Wholes,
    as_struct,
    by_row,
    fingerprint,
    hookimpl,
    names_withheld,
    read_mechanism,
)
from ldpsql.mechanisms import certify

_ROW = 'STRUCT("name" VARCHAR, mechanism VARCHAR, "values" BIGINT, realised_epsilon DOUBLE, fingerprint VARCHAR)[]'


@by_row(Settings, Column, Settings, Wholes, returns=pa.string())
def declare(name: Any, spec: pa.Scalar, replace: Any, catalog: int) -> str:
    """Store a mechanism under its name, and return its fingerprint."""
    mechanism = read_mechanism(spec)
    DECLARATIONS.declare(catalog, name, mechanism, replace=replace is True)
    return fingerprint(mechanism).split()[0]


@by_row(Settings, Wholes, returns=pa.string())
def declared_values(name: Any, catalog: int) -> str:
    """Return the values of the STRUCT of a declared mechanism, as JSON."""
    return _struct(name, catalog)[0]


@by_row(Settings, Wholes, returns=pa.string())
def declared_type(name: Any, catalog: int) -> str:
    """Return the type of the STRUCT of a declared mechanism, as JSON."""
    return _struct(name, catalog)[1]


def _struct(name: Any, catalog: int) -> tuple[str, str]:
    with names_withheld():  # a name may come from a column
        return as_struct(DECLARATIONS.declared(catalog, name))


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
    """Offer ``ldp.declare`` and ``ldp.declared``."""
    return [
        Scalar("__ldp_declare", declare, "VARCHAR", volatile=True, draws=False),
        Scalar("__ldp_declared_values", declared_values, "VARCHAR"),
        Scalar("__ldp_declared_type", declared_type, "VARCHAR"),
        Scalar("__ldp_declarations", declarations, _ROW, volatile=True, draws=False),
        Macros.beside(__file__),
    ]
