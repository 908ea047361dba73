"""Mechanisms inside a mechanism: those of the columns of a row, by the names of the columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import BeforeValidator, PlainSerializer

from ldpsql.domains.product import Product, check_names
from ldpsql.errors import InvalidParameter, InvalidSpec

if TYPE_CHECKING:
    from ldpsql.mechanisms.base import Mechanism

_EXAMPLE = "write ldp.row({city: ldp.krr(1, ['a', 'b']), age: ldp.square_wave(1, 0, 100)})"
_READERS: list[Callable[[Any], Mechanism]] = []


class ColumnMechanism(NamedTuple):
    """A column of a row, and its mechanism."""

    column: str
    mechanism: Mechanism


class Parts(tuple[ColumnMechanism, ...]):
    """The mechanisms of the columns of a row, in the order of the columns."""

    __slots__ = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(part.column for part in self)

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """The mechanisms of the columns."""
        return tuple(part.mechanism for part in self)

    def to_json(self) -> dict[str, Any]:
        """Return each mechanism as plain JSON by its column."""
        return {part.column: part.mechanism.to_json() for part in self}

    def __str__(self) -> str:
        if all(column.isidentifier() for column in self.columns):
            return ", ".join(f"{part.column}={part.mechanism}" for part in self)
        return "columns={" + ", ".join(f"{part.column!r}: {part.mechanism}" for part in self) + "}"


class Nested(str):
    """A part of a text that is a spec of its own: a call, or a name in the settings."""

    __slots__ = ()


def read_by(reader: Callable[[Any], Mechanism]) -> None:
    """Set the function that reads a mechanism from its text or JSON: the registry, which is above this room."""
    _READERS[:] = [reader]


def mechanism_of(given: Any) -> Mechanism:
    """Return a mechanism from its text, its name in the settings or its JSON.

    Raises:
        InvalidSpec, UnknownName, InvalidParameter: if it cannot be read.

    """
    if not _READERS:
        import_module("ldpsql.registry.registry")  # sets the reader
    return _READERS[0](given)


def parts_of(given: Any) -> Parts:
    """Return the mechanisms of the columns of a row from a mapping of mechanisms, their texts or their JSON.

    Raises:
        InvalidSpec, UnknownName, InvalidParameter: if they cannot be read, or cannot be the columns of a row.

    """
    if isinstance(given, Parts):
        return given
    if not isinstance(given, Mapping):
        raise InvalidSpec("the columns of a row must be mechanisms by the names of the columns", _EXAMPLE)
    check_names(tuple(given))
    parts = Parts(ColumnMechanism(column, mechanism_of(spec)) for column, spec in given.items())
    if any(isinstance(vars(mechanism).get("columns"), Parts | Product) for mechanism in parts.mechanisms):
        raise InvalidParameter("a column of a row cannot be a row itself", "write the columns of both rows next to each other")
    return parts


PartsField = Annotated[Parts, BeforeValidator(parts_of), PlainSerializer(Parts.to_json)]
