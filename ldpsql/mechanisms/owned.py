"""Copies of what a mechanism returns, made of objects of the core that nobody else holds.

A class from outside the core could show one channel to the certificate and another to the sampler, or see the values that
are perturbed. So claims, epsilons, metrics, domains and alphabets must have exactly the types of the core, and are built
again from their numbers and arrays: a method set on an object, a result put into its cache, or a later change has no effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from math import prod
from types import NoneType
from typing import Any, cast

import numpy as np
import pyarrow as pa

from ldpsql.domains.columns import copied, family
from ldpsql.domains.domain import Domain
from ldpsql.domains.pair_sets import PairSets
from ldpsql.domains.strings import Strings
from ldpsql.errors import InvalidDomain, InvalidParameter
from ldpsql.privacy.claims import core_type, own_fraction
from ldpsql.reports import Alphabet
from ldpsql.reports.base import FormedReports

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
