"""Keys under which specs are cached, by their stored parameters, and copies of what mechanisms return, that nobody else has."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from fractions import Fraction
from math import prod
from types import NoneType
from typing import Any, cast

import numpy as np
import pyarrow as pa
from pydantic import BaseModel

from ldpsql.domains.columns import copied, family
from ldpsql.domains.composite import PairSets, Product
from ldpsql.domains.domain import Domain
from ldpsql.domains.strings import Strings
from ldpsql.errors import InvalidDomain, InvalidParameter, PluginError
from ldpsql.mechanisms.spec import Parts, Spec
from ldpsql.privacy.claims import Epsilon, core_type, of_core, own_fraction
from ldpsql.reports import Alphabet
from ldpsql.reports.base import FormedReports

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


# Copies of what a mechanism returns, made of objects of the core that nobody else holds.
#
# A class from outside the core could show one channel to the certificate and another to the sampler, or see the values that
# are perturbed. So claims, epsilons, metrics, domains and alphabets must have exactly the types of the core, and are built
# again from their numbers and arrays: a method set on an object, a result put into its cache, or a later change has no effect.

_NUMBERS = (bool, int, float, str, NoneType)


def own_values(values: Domain | PairSets | Strings) -> Domain | PairSets | Strings:
    """Return a copy of a domain, or of a description of sets of pairs or strings, with arrays copied and caches empty.

    Raises:
        NotPrivate: unless its class belongs to the core: any other would see the values that are perturbed.
        InvalidDomain: if its values are not an array of at least two values without NULL.

    """
    if type(values) is PairSets:
        parts: dict[str, Any] = {part.name: _own_part(getattr(values, part.name)) for part in fields(PairSets)}
        return PairSets(**parts)
    if type(values) is Strings:
        length, alphabet = values.length, values.alphabet
        if type(length) is not int or type(alphabet) is not bytes or not 0 < len(set(alphabet)) == len(alphabet) < 256:
            raise InvalidDomain("an alphabet must hold at least one byte, and none twice")
        return Strings(length, alphabet)
    return _own_domain(cast("Domain", values))


def _own_domain(values: Domain) -> Domain:
    kind = core_type(values, Domain, "a domain")
    copy = object.__new__(kind)
    copy._in_type = {}
    for name, part in vars(values).copy().items():  # another thread may be filling a cache of this domain
        if name != "_in_type" and not hasattr(kind, name):  # an attribute that the class has too is a cache, or hides a method
            setattr(copy, name, _own_part(part))
    return copy


def _own_part(part: object) -> object:
    if isinstance(part, pa.Array):
        copy = copied(part)  # in the class that Arrow has for the type
        if len(copy) < 2 or copy.null_count or family(copy.type) is None:
            raise InvalidDomain("a domain must hold at least two values and no NULL", "make it with ldpsql.Domain.of")
        return copy
    if type(part) is np.ndarray:
        return part.copy()
    if type(part) in _NUMBERS:
        return part
    if type(part) is tuple:
        return tuple(map(_own_part, part))
    return _own_domain(part) if isinstance(part, Domain) else own_fraction(part)


def own_alphabet(reports: Alphabet) -> Alphabet:
    """Return a copy of an alphabet.

    Raises:
        NotPrivate: unless its class belongs to the core.

    """
    if isinstance(reports, Domain):
        return _own_domain(reports)
    kind = core_type(reports, FormedReports, "an alphabet")
    return cast("Alphabet", kind(**{part.name: _own_part(getattr(reports, part.name)) for part in fields(cast("Any", kind))}))


def own_layout(layout: Sequence[int], size: int) -> tuple[int, ...]:
    """Return a copy of a layout."""
    whole = type(layout) is tuple and all(type(n) is int and n > 0 for n in layout)
    if not whole or (layout and prod(layout) != size):
        raise InvalidParameter("a layout must be (), (values,) or (rows, columns)", "see ldpsql.Mechanism.layout")
    return tuple(layout)
