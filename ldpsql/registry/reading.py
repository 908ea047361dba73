"""Mechanisms and estimators from the ways to write them: a call in text, or a mapping of parameters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from duckdb import DuckDBPyConnection

from ldpsql.errors import InvalidSpec, UnknownName
from ldpsql.mechanisms.base import Mechanism
from ldpsql.mechanisms.calls import bind, read_call
from ldpsql.mechanisms.parts import Nested
from ldpsql.mechanisms.spec import Spec
from ldpsql.registry.references import resolved

S = TypeVar("S", bound=Spec)


def read(spec: S | str | Mapping[str, Any], base: type[S], kinds: Mapping[str, type[S]], named: Collection[str] = ()) -> S:
    """Return an instance of a class of this base.

    Args:
        spec: the instance itself, a call in text, or a mapping of parameters with the name under ``base.kind``.
        base: the base class.
        kinds: its classes, by name.
        named: names of the settings, each of an instance with its parameters.

    Raises:
        UnknownName, InvalidSpec, InvalidParameter: if it cannot be read.

    """
    if isinstance(spec, base):
        return spec
    if isinstance(spec, str):
        name, arguments, options = read_call(spec, base.kind)
    elif isinstance(spec, Mapping) and isinstance(spec.get(base.kind), str):
        name, arguments, options = spec[base.kind], [], {k: v for k, v in spec.items() if k != base.kind}
    else:
        raise InvalidSpec(f"this is not a {base.kind}", f"write it like a call, or name it under '{base.kind}'")
    if name not in kinds and name in named:
        hint = f"use {name} itself, or write out a mechanism, such as krr(1, ['a', 'b'])"
        raise InvalidSpec(f"'{name}' is declared in the settings with all its parameters, and nothing else is made of it", hint)
    if name not in kinds:
        raise UnknownName(base.kind, name, [*named, *kinds])
    return bind(kinds[name], arguments, options)  # type: ignore[return-value]  # kinds holds classes of this base


def with_domains(
    spec: Mechanism | str | Mapping[str, Any],
    kinds: Mapping[str, type[Mechanism]],
    con: DuckDBPyConnection | None,
    mechanism: Callable[[str], Mechanism],
) -> Mechanism | str | Mapping[str, Any]:
    """Return a mechanism with the domains in place of references to columns, also in the mechanisms of columns of a row.

    Args:
        spec: the mechanism, as it is written.
        kinds: the classes of mechanisms, by name.
        con: the connection that reads the columns.
        mechanism: reads the mechanism of a column of a row.

    Raises:
        SourceRefused, InvalidDomain, OtherMechanism: if a column cannot be read.

    """

    def part(value: Any) -> Any:
        if isinstance(value, Nested):
            return mechanism(str(value))
        if isinstance(value, Mapping) and any(isinstance(inner, Nested) for inner in value.values()):
            return {name: part(inner) for name, inner in value.items()}
        return resolved(value, con)

    if isinstance(spec, str) and "{" in spec:
        name, arguments, named = read_call(spec)
        if name in kinds:
            parameters = [parameter.name for parameter in kinds[name].parameters()]
            spec = {"mechanism": name, **dict(zip(parameters, arguments, strict=False)), **named}
    return {name: part(value) for name, value in spec.items()} if isinstance(spec, Mapping) else spec
