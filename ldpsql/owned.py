"""What a mechanism returns, taken over as objects of the core that nobody else holds.

A class of the core can only do what the core does. A class of somebody else's may show one thing to the certificate and
another to the sampler, or see the values that are to be perturbed. So claims, epsilons, metrics, domains and alphabets must
have exactly the types of the core, and are built again from their numbers and arrays: a method put on an object, a result put
into its cache, or a later change reaches nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import fields
from fractions import Fraction
from math import prod
from types import NoneType
from typing import Any, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ldpsql.columns import family
from ldpsql.domain import Domain
from ldpsql.errors import InvalidDomain, InvalidParameter, NotPrivate
from ldpsql.metric import Distances, Metric
from ldpsql.privacy import ApproximateLdp, Claim, Epsilon, MetricLdp, PureLdp
from ldpsql.reports import Alphabet
from ldpsql.reports.base import FormedReports

T = TypeVar("T")
_NUMBERS = (bool, int, float, str, NoneType)


def of_core(kind: type) -> bool:
    """Tell whether a class is one that a module of ldpsql defines, whatever it says about itself."""
    module, name = kind.__module__, kind.__name__
    if type(module) is not str or type(name) is not str or not module.startswith("ldpsql."):
        return False
    return getattr(sys.modules.get(module), name, None) is kind


def own_claim(claim: object) -> Claim:
    """Return a copy of a claim.

    Raises:
        NotPrivate: unless it, its epsilon and its metric have types of the core.

    """
    if type(claim) is PureLdp:
        return PureLdp(own_epsilon(claim.epsilon))
    if type(claim) is MetricLdp:
        return MetricLdp(own_epsilon(claim.epsilon), _own_metric(claim.metric))
    if type(claim) is ApproximateLdp:
        return ApproximateLdp(own_epsilon(claim.epsilon), own_fraction(claim.delta))
    raise NotPrivate("a claim must be one of the core's", "see ldpsql.privacy")


def own_epsilon(epsilon: object) -> Epsilon:
    """Return a copy of an epsilon.

    Raises:
        NotPrivate: unless it is one, above 0 and at most the largest.

    """
    value = own_fraction(epsilon.value) if type(epsilon) is Epsilon else Fraction(0)
    if not 0 < value <= Epsilon.maximum:
        raise NotPrivate(f"epsilon must be an Epsilon above 0 and at most {Epsilon.maximum}", "see ldpsql.privacy.Epsilon")
    return Epsilon(value)


def own_fraction(number: object) -> Fraction:
    """Return a copy of a fraction.

    Raises:
        NotPrivate: unless it is one, of plain whole numbers.

    """
    parts = (number.numerator, number.denominator) if type(number) is Fraction else ()
    if not parts or not all(type(part) is int for part in parts):
        raise NotPrivate("the numbers of a claim must be plain fractions", "see fractions.Fraction")
    return Fraction(*parts)


def _own_metric(metric: Metric) -> Metric:
    kind = _of_core_as(metric, Metric, "a metric")
    if type(metric) is Distances:  # up to 16 million numbers, which nothing reads again after they were compared
        return Distances(_own_table(metric.table))
    return kind(**{part.name: _own_size(getattr(metric, part.name)) for part in fields(cast("Any", kind))})


def _own_size(number: object) -> int | Fraction:
    return number if type(number) is int else own_fraction(number)


def _own_table(table: object) -> tuple[tuple[Fraction, ...], ...]:
    if type(table) is not tuple or not all(type(row) is tuple and len(row) == len(table) for row in table):
        raise NotPrivate("distances must be a square table", "a tuple of tuples of fractions")
    if not all(type(d) is Fraction for row in table for d in row):
        raise NotPrivate("distances must be plain fractions", "see fractions.Fraction")
    return table


def own_values(values: Domain) -> Domain:
    """Return a copy of a domain, with its array copied and its caches empty.

    Raises:
        NotPrivate: unless it is a domain of the core: another one would see the values that are to be perturbed.
        InvalidDomain: if its values are not an array of at least two values without NULL.

    """
    kind = _of_core_as(values, Domain, "a domain")
    copy = object.__new__(kind)
    copy._in_type = {}
    for name, part in vars(values).items():
        if name != "_in_type" and not hasattr(kind, name):  # what the class has too is a cache, or hides a method
            setattr(copy, name, _own_part(part))
    return copy


def _own_part(part: object) -> object:
    if isinstance(part, pa.Array):
        return _own_array(part)
    if type(part) is np.ndarray:
        return part.copy()
    if type(part) in _NUMBERS:
        return part
    return own_values(part) if isinstance(part, Domain) else own_fraction(part)


def _own_array(values: pa.Array) -> pa.Array:
    plain = pa.concat_arrays([values])  # in the class that Arrow has for the type
    if len(plain) < 2 or plain.null_count or family(plain.type) is None:
        raise InvalidDomain("a domain must hold at least two values and no NULL", "make it with ldpsql.Domain.of")
    return pc.take(plain, pa.array(np.arange(len(plain))))


def own_alphabet(reports: Alphabet) -> Alphabet:
    """Return a copy of an alphabet.

    Raises:
        NotPrivate: unless it is one of the core's.

    """
    if isinstance(reports, Domain):
        return own_values(reports)
    kind = _of_core_as(reports, FormedReports, "an alphabet")
    return cast("Alphabet", kind(**{part.name: _own_part(getattr(reports, part.name)) for part in fields(cast("Any", kind))}))


def own_layout(layout: Sequence[int], size: int) -> tuple[int, ...]:
    """Return a copy of a layout.

    Raises:
        InvalidParameter: unless it is () or whole numbers that multiply to the number of values.

    """
    whole = type(layout) is tuple and all(type(n) is int and n > 0 for n in layout)
    if not whole or (layout and prod(layout) != size):
        raise InvalidParameter("a layout must be (), (values,) or (rows, columns)", "see ldpsql.Mechanism.layout")
    return tuple(layout)


def _of_core_as(thing: object, base: type[T], noun: str) -> type[T]:
    kind = type(thing)
    if not of_core(kind) or not issubclass(kind, base):
        raise NotPrivate(f"{noun} must have exactly a type of the core", f"no class derived from {base.__name__}")
    return kind
