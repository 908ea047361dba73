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
    fingerprint,
    guarded,
    hookimpl,
    names_withheld,
    plain,
    read_mechanism,
)
from ldpsql.mechanisms import certify

_ROW = 'STRUCT("name" VARCHAR, mechanism VARCHAR, "values" BIGINT, realised_epsilon DOUBLE, fingerprint VARCHAR)[]'


@guarded
def declare(names: Settings, mechanisms: Column, replace: Settings, catalogs: Wholes) -> pa.Array:
    """Store each mechanism under its name, and return its fingerprint."""
    out = []
    others = zip(*(plain(column).to_pylist() for column in (names, replace, catalogs)), strict=True)
    for (name, instead, catalog), spec in zip(others, plain(mechanisms), strict=True):
        mechanism = read_mechanism(spec)
        DECLARATIONS.declare(catalog, name, mechanism, replace=instead is True)
        out.append(fingerprint(mechanism).split()[0])
    return pa.array(out, pa.string())


@guarded
def declared_values(names: Settings, catalogs: Wholes) -> pa.Array:
    """Return the values of the STRUCT of each declared mechanism, as JSON."""
    return _part(names, catalogs, 0)


@guarded
def declared_type(names: Settings, catalogs: Wholes) -> pa.Array:
    """Return the type of the STRUCT of each declared mechanism, as JSON."""
    return _part(names, catalogs, 1)


def _part(names: Settings, catalogs: Wholes, place: int) -> pa.Array:
    rows = zip(plain(names).to_pylist(), plain(catalogs).to_pylist(), strict=True)
    with names_withheld():  # a name may come from a column
        return pa.array([as_struct(DECLARATIONS.declared(catalog, name))[place] for name, catalog in rows], pa.string())


@guarded
def declarations(catalogs: Wholes) -> pa.Array:
    """Return the declared mechanisms of each catalog."""
    return pa.array([_declarations(catalog) for catalog in plain(catalogs).to_pylist()])


def _declarations(catalog: int) -> list[dict[str, Any]]:
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
