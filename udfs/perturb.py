"""Reports of values, row by row: new ones, those of a mechanism for each level, and permanent ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pyarrow as pa

from ldpsql.engine.arguments import same_in_all_rows
from ldpsql.engine.forms import ToColumn, drawn_by_form, scalars_by_form
from ldpsql.engine.functions import STATEMENTS, changing
from ldpsql.engine.in_c import learn
from ldpsql.errors import InvalidSpec, KeyUnusable, OutsideDomain
from ldpsql.functions import MECHANISMS, SOURCES, Column, Handles, Macros, Scalar, Texts, Wholes, guarded, hookimpl, plain
from ldpsql.ledger.guard import Statements, drawing, drawing_permanent, draws_handles, guard_at, naming_column, statement_of
from ldpsql.ledger.people import id_bytes
from ldpsql.mechanisms import CertifiedMechanism, Domain, InvalidParameter, NotPrivate, certify
from ldpsql.questions import Mixed, Perturbed
from ldpsql.registry.handles import numbers, read_levels
from ldpsql.reports import type_of


def drawing_reports(to_column: ToColumn, kind: pa.DataType) -> Callable[..., pa.Array]:
    """Return a function that draws one report for each value; ``to_column`` makes a column of type ``kind`` of the draws."""

    @guarded
    def perturb(values: Column, handles: Handles) -> pa.Array:
        return _each(plain(values), plain(handles), to_column, kind)

    return perturb


@lru_cache(maxsize=256)
def _repeated(handle: int) -> pa.Array:
    """Return a handle as often as a vector of DuckDB has rows."""
    return pa.array([handle] * 2048, pa.int64())


def _each(column: pa.Array, handles: pa.Array, to_column: ToColumn, kind: pa.DataType) -> pa.Array:
    """Draw with the mechanism of each row; nearly always all rows have the same mechanism."""
    if not len(column):
        return pa.array([], kind)
    first = handles[0].as_py()
    if handles.equals(_repeated(first)[: len(handles)]):
        mechanism = certify(drawing(first, len(column)))
        with naming_column(first):
            if to_column is CertifiedMechanism.shown:
                drawn = mechanism.perturb(column)
                if drawn.type != kind:
                    raise InvalidParameter("the reports of this mechanism have another type", "call ldp.perturb")
            else:
                drawn = to_column(mechanism, mechanism.draw(column))
        learn(first, mechanism)
        return drawn
    by_row = handles.to_numpy(zero_copy_only=False)
    rows = [np.flatnonzero(by_row == handle) for handle in np.unique(by_row)]
    mechanisms = [certify(drawing(int(by_row[at[0]]), len(at))) for at in rows]
    if len({mechanism.values for mechanism in mechanisms}) > 1:
        raise NotPrivate("the domain changes from row to row", "declare one domain; only epsilon may differ between users")
    drawn = [mechanism.draw(column.take(pa.array(at))) for mechanism, at in zip(mechanisms, rows, strict=True)]
    parts = [to_column(mechanism, part) for mechanism, part in zip(mechanisms, drawn, strict=True)]
    for at, mechanism in zip(rows, mechanisms, strict=True):
        learn(int(by_row[at[0]]), mechanism)
    back = np.empty(len(column), dtype=np.int64)
    back[np.concatenate(rows)] = np.arange(len(column))
    return pa.concat_arrays([plain(part) for part in parts]).take(pa.array(back))


@guarded
def expression(rows: Column) -> pa.Array:
    """Return a new number, as text: DuckDB calls this once for each expression of a statement, when it binds it."""
    return pa.array([str(STATEMENTS.number())] * len(rows), pa.string())


@guarded
def same(handles: Handles, expressions: Texts, transactions: Wholes) -> pa.Array:
    """Return the handles; refuse them if this expression has more than one handle in the whole statement."""
    column = plain(handles)
    distinct = column.unique()
    if len(distinct) > 1:
        raise changing()
    if len(distinct):
        STATEMENTS.check(expressions[0].as_py(), transactions[0].as_py(), distinct[0].as_py())
    return column


@guarded
def allowed(handles: Handles, drawn: Texts, statements: Statements) -> pa.Array:
    """Return the handles with which a statement draws; refuse one that a policy refuses, or that an open release is not for."""
    for handle in handles.unique().to_pylist():
        statement_of(statements[0]).check(handle, drawn[0].as_py())
    return plain(handles)


@guarded
def draws(handles: Handles, guards: Wholes) -> pa.Array:
    """Return the handles with which mechanisms draw on connections with these guards; a guard that is NULL means none."""
    return pa.array(draws_handles(plain(handles).to_numpy(zero_copy_only=False), plain(guards)))


# Created once: DuckDB may call a function as long as the process lives, and does not keep it alive.
_FRESH = scalars_by_form("__ldp_perturb", drawing_reports)
_OF_LEVEL = "__ldp_level(level, ldp._allowed(ldp._same(__ldp_mixture(m)), 'levels'), ldp._guard())"


# Mechanisms of levels, one for each value of a public column.


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


# Permanent reports: the same person with the same value gives the same report.


def permanent_reports(to_column: ToColumn, kind: pa.DataType) -> Callable[..., pa.Array]:
    """Return a function of permanent reports, one a row; ``to_column`` makes a column of type ``kind`` of the draws."""

    @guarded
    def once(values: Column, people: Column, names: Texts, handles: Handles, guards: Wholes) -> pa.Array:
        if not len(values):
            return pa.array([], kind)
        name, handle, number = same_in_all_rows("mechanism and column_name of perturb_once", names, handles, guards)
        guard = guard_at(number)
        if guard is None or guard.key is None:
            hint = "in Python: ldpsql.attach(con, key='people.key'); for ldpsql sql: key in the section [ledger] of ldpsql.toml"
            raise KeyUnusable("this connection has no key for permanent reports", hint)
        if not isinstance(name, str):
            raise InvalidParameter("column_name must be the name of the column", "for example column_name := 'city'")
        key, column, persons = guard.key, plain(values), id_bytes(plain(people))
        mechanism = drawing_permanent(handle, len(column), name, lambda one: key.fingerprints(one, column, persons, name))
        return to_column(mechanism, key.draw(mechanism, column, persons, name))

    return once


# Created once: DuckDB may call a function as long as the process lives, and does not keep it alive.
_PERMANENT = scalars_by_form("__ldp_once", permanent_reports, draws=False)
_PASSED = "x, person, named, ldp._allowed(__ldp_draws(ldp._same(__ldp_drawn(m)), ldp._guard()), 'permanent'), ldp._guard()"


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer ``ldp.perturb`` and ``ldp.perturb_once``."""
    return [
        Scalar("__ldp_expression", expression, "VARCHAR"),
        Scalar("__ldp_same", same, "BIGINT"),
        Scalar("__ldp_allowed", allowed, "BIGINT"),
        Scalar("__ldp_draws", draws, "BIGINT"),
        *dict.fromkeys(_FRESH.values()),
        drawn_by_form("_report", _FRESH, ("x",), "x, ldp._draws(m)"),
        drawn_by_form("_mixed_report", _FRESH, ("x", "level"), f"x, {_OF_LEVEL}", "ldp._any(m, m)"),
        Scalar("__ldp_mixture", mixture_handle, "BIGINT"),
        Scalar("__ldp_level", level_handle, "BIGINT"),
        *dict.fromkeys(_PERMANENT.values()),
        drawn_by_form("_permanent", _PERMANENT, ("x", "person", "named"), _PASSED),
        Macros.beside(__file__),
    ]
