"""Mechanisms of levels, one for each value of a public column."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa

from ldpsql.functions import (
    MECHANISMS,
    SOURCES,
    Column,
    Handles,
    InvalidSpec,
    Macros,
    Mixed,
    OutsideDomain,
    Perturbed,
    Scalar,
    Wholes,
    draws_handles,
    guarded,
    hookimpl,
    numbers,
    plain,
    read_levels,
    type_of,
)
from ldpsql.mechanisms import Domain, InvalidParameter, NotPrivate, certify


@guarded
def mixture_handle(mechanisms: Column) -> pa.Array:
    """Return the handle of each map from level to mechanism."""
    return pa.array(numbers(plain(mechanisms), lambda levels: SOURCES.number(read_levels(levels))), pa.int64())


@guarded
def level_handle(levels: Column, handles: Handles, guards: Wholes) -> pa.Array:
    """Return for each row the handle with which the mechanism of its level draws on a connection with this guard."""
    column, by_row = plain(levels), plain(handles).to_numpy(zero_copy_only=False)
    if not len(by_row):
        return pa.array([], pa.int64())
    if (by_row == by_row[0]).all():  # nearly always
        return pa.array(_drawing(column, int(by_row[0]), plain(guards)))
    out = np.empty(len(column), dtype=np.int64)
    for handle in np.unique(by_row):
        rows = np.flatnonzero(by_row == handle)
        out[rows] = _drawing(column.take(pa.array(rows)), int(handle), plain(guards))
    return pa.array(out)


def _levels(handle: int) -> Mixed:
    source = SOURCES.thing(handle)
    if not isinstance(source, Mixed):
        raise InvalidSpec("this is one mechanism, and levels need one each", "write MAP {'low': ldp.krr(1, ...), ...}")
    return source


def _drawing(levels: pa.Array, handle: int, guards: pa.Array) -> np.ndarray:
    """Return the handle with which the mechanism of each level draws under one mixture."""
    mixed = _levels(handle)
    places = mixed.places(levels)
    if places.min() < 0:
        raise OutsideDomain("a value to be perturbed has no level, or its level has no mechanism", "give every user a level")
    by_level = _handles(handle).copy()
    used = np.flatnonzero(np.bincount(places))
    by_level[used] = draws_handles(by_level[used], guards)
    return by_level.take(places)


@lru_cache(maxsize=256)
def _handles(handle: int) -> np.ndarray:
    """Return the handles of a mixture's mechanisms; refuse a mixture whose reports do not fit into one column."""
    mechanisms = [level.mechanism for level in _levels(handle).each if isinstance(level, Perturbed)]
    if len(mechanisms) < len(_levels(handle).each):
        raise NotPrivate("a level whose epsilon is infinite would publish the value", "do not perturb it, or choose an epsilon")
    alphabets = [certify(mechanism).reports for mechanism in mechanisms]
    alike = {alphabet if isinstance(alphabet, Domain) else type_of(alphabet) for alphabet in alphabets}
    if len(alike) > 1:
        raise InvalidParameter(
            "the mechanisms of the levels have different reports", "perturb each level in a statement of its own"
        )
    return np.array([MECHANISMS.number(mechanism) for mechanism in mechanisms])


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer what ``ldp.perturb`` needs for levels."""
    return [
        Scalar("__ldp_mixture", mixture_handle, "BIGINT"),
        Scalar("__ldp_level", level_handle, "BIGINT"),
        Macros.beside(__file__),
    ]
