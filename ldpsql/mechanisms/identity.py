"""Keys under which specs are cached: their classes and stored parameters, never their own `__eq__` and `__hash__`."""

from __future__ import annotations

import inspect
from dataclasses import fields, is_dataclass
from fractions import Fraction
from types import NoneType
from typing import Any

from pydantic import BaseModel

from ldpsql.domains.domain import Domain
from ldpsql.domains.product import Product
from ldpsql.errors import PluginError
from ldpsql.mechanisms.parts import Parts
from ldpsql.mechanisms.spec import Spec
from ldpsql.privacy.claims import Epsilon, of_core

_PLAIN = (int, str, float, bool, NoneType, Fraction, Domain)
_FINAL = ("__init__", "__eq__", "__hash__", "given", "to_json", "__str__", "parameters", "model_fields")


class SpecKey:
    """An object compared by its class and parts. The key keeps the object alive, so that no other object gets its id."""

    __slots__ = ("_hash", "_parts", "thing")

    def __init__(self, thing: Any) -> None:
        self.thing = thing
        self._parts = _parts(thing)
        self._hash = hash(self._parts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return type(other) is SpecKey and (self.thing is other.thing or self._parts == other._parts)


class Same:
    """An object compared by identity."""

    __slots__ = ("thing",)

    def __init__(self, thing: Any) -> None:
        self.thing = thing

    def __hash__(self) -> int:
        return id(self.thing)

    def __eq__(self, other: object) -> bool:
        return type(other) is Same and self.thing is other.thing


def stored(spec: Spec) -> dict[str, Any]:
    """Return the stored parameters by name, whatever the class makes of its attributes.

    For a class from outside the core it returns everything that is stored: such a class could misstate its fields.
    """
    own: dict[str, Any] = BaseModel.__dict__["__dict__"].__get__(spec)
    kept = type(spec).model_fields if of_core(type(spec)) else own.keys() - {"_hash"}
    return {name: part for name, part in own.items() if name in kept}


def refuse_overrides(kind: type[Spec]) -> None:
    """Refuse a class that changes how its specs are compared and written: caches and budgets rely on both."""
    for name in _FINAL:
        if inspect.getattr_static(kind, name) is not inspect.getattr_static(Spec, name):
            raise PluginError(f"the {Spec.kind} class {kind.__name__} has its own {name}", "leave it to ldpsql")


def _parts(thing: Any) -> Any:
    if isinstance(thing, Spec):
        return id(type(thing)), *((name, _leaf(part, thing)) for name, part in sorted(stored(thing).items()))
    if type(thing) is tuple:
        return tuple(_parts(part) for part in thing)
    if is_dataclass(thing) and type(thing).__eq__ is not object.__eq__:
        return id(type(thing)), *(_parts(getattr(thing, part.name)) for part in fields(thing))
    return thing


def _leaf(value: Any, spec: Spec) -> Any:
    """Return a parameter as part of a key; a parameter whose type is not plain makes its spec equal to itself only."""
    if type(value) is Epsilon:
        return value.value.numerator, value.value.denominator
    if type(value) is tuple and (items := _items(value)) is not None:
        return items
    if type(value) is Product:
        return Product, value
    if type(value) is Parts:
        return tuple((part.column, _parts(part.mechanism)) for part in value)
    return (type(value).__name__, value) if type(value) in _PLAIN else Same(spec)


def _items(value: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return plain items, with the class and two whole numbers for a fraction, whose hash is slow; None if one is not plain."""
    items: list[Any] = []
    for item in value:
        kind = type(item)
        if kind is Fraction:
            items += (Fraction, *item.as_integer_ratio())
        elif kind is tuple and (inner := _items(item)) is not None:
            items.append((tuple, inner))
        elif kind in _PLAIN:
            items.append(item)
        else:
            return None
    return tuple(items)
