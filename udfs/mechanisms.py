"""SQL constructors of mechanisms, generated from the registry: ``ldp.krr(epsilon, domain)`` is a STRUCT, named by users."""

from __future__ import annotations

import pyarrow as pa

from ldpsql import Mechanism, hookimpl
from ldpsql.columns import plain
from ldpsql.handles import MECHANISMS, numbers, read_mechanism
from ldpsql.registry import Registry
from ldpsql.spec import Parameter, sql_literal
from ldpsql.sql import Macros, Scalar, guarded, quoted, struct_text


@guarded
def mechanism_handle(specs: pa.ChunkedArray) -> pa.Array:
    """Return the handle of each mechanism, given as the STRUCT that a constructor makes."""
    return pa.array(numbers(plain(specs), lambda spec: MECHANISMS.number(read_mechanism(spec))), pa.int64())


def constructor(mechanism: type[Mechanism]) -> str:
    """Return the macro that makes a mechanism: scalars travel as text, so that decimals stay exact."""
    parameters = mechanism.parameters()
    arguments = [quoted(p.name) if p.required else f"{quoted(p.name)} := {sql_literal(p.default)}" for p in parameters]
    fields = {"mechanism": f"'{mechanism.name}'"} | {p.name: _expression(p) for p in parameters}
    if mechanism.sql_domain:
        fields["domain"] = mechanism.sql_domain
    fields["reports"] = mechanism.sql_reports
    return f"CREATE OR REPLACE MACRO ldp.{mechanism.name}({', '.join(arguments)}) AS {struct_text(fields)};"


def _expression(parameter: Parameter) -> str:
    return quoted(parameter.name) if parameter.is_list else f"{quoted(parameter.name)}::VARCHAR"


@hookimpl
def ldpsql_functions(known: Registry) -> list[Scalar | Macros]:
    """Offer one constructor for each mechanism, and the function that reads them."""
    text = "\n".join(constructor(mechanism) for mechanism in known.mechanisms.values())
    return [Scalar("__ldp_mechanism", mechanism_handle, "BIGINT"), Macros(text)]
