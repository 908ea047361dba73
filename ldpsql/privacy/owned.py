"""Copies of a mechanism's claim, made of objects of the core that nobody else holds; see also `ldpsql.mechanisms.owned`."""

from __future__ import annotations

import sys
from dataclasses import fields
from fractions import Fraction
from typing import Any, TypeVar, cast

from ldpsql.errors import NotPrivate
from ldpsql.privacy.claims import ApproximateLdp, Claim, Epsilon, MetricLdp, PureLdp
from ldpsql.privacy.metric import Distances, Metric

T = TypeVar("T")


def of_core(kind: type) -> bool:
    """Return whether a module of ldpsql defines a class; attributes of the class cannot fake it."""
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
    raise NotPrivate("a claim must be one of the core's", "see ldpsql.privacy.claims")


def own_epsilon(epsilon: object) -> Epsilon:
    """Return a copy of an epsilon.

    Raises:
        NotPrivate: unless it is an `Epsilon` above 0 and at most the maximum.

    """
    value = own_fraction(epsilon.value) if type(epsilon) is Epsilon else Fraction(0)
    if not 0 < value <= Epsilon.maximum:
        raise NotPrivate(
            f"epsilon must be an Epsilon above 0 and at most {Epsilon.maximum}", "see ldpsql.privacy.claims.Epsilon"
        )
    return Epsilon(value)


def own_fraction(number: object) -> Fraction:
    """Return a copy of a fraction.

    Raises:
        NotPrivate: unless it is a fraction of plain whole numbers.

    """
    parts = (number.numerator, number.denominator) if type(number) is Fraction else ()
    if not parts or not all(type(part) is int for part in parts):
        raise NotPrivate("the numbers of a claim must be plain fractions", "see fractions.Fraction")
    return Fraction(*parts)


def _own_metric(metric: Metric) -> Metric:
    kind = core_type(metric, Metric, "a metric")
    if type(metric) is Distances:  # up to 16 million numbers, which are not read again after the comparison
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


def core_type(thing: object, base: type[T], noun: str) -> type[T]:
    """Return the type of an object, which must be a class of the core derived from ``base``.

    Raises:
        NotPrivate: if it is any other class.

    """
    kind = type(thing)
    if not of_core(kind) or not issubclass(kind, base):
        raise NotPrivate(f"{noun} must have exactly a type of the core", f"no class derived from {base.__name__}")
    return kind
