"""Perturbation, row by row."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pyarrow as pa

from ldpsql.functions import (
    STATEMENTS,
    CertifiedMechanism,
    Column,
    Handles,
    Macros,
    Scalar,
    Statements,
    Texts,
    ToColumn,
    Wholes,
    changing,
    drawing,
    drawn_by_form,
    draws_handles,
    guarded,
    hookimpl,
    learn,
    naming_column,
    plain,
    scalars_by_form,
    statement_of,
)
from ldpsql.mechanisms import InvalidParameter, NotPrivate, certify


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
_BY_FORM = scalars_by_form("__ldp_perturb", drawing_reports)
_OF_LEVEL = "__ldp_level(level, ldp._allowed(ldp._same(__ldp_mixture(m)), 'levels'), ldp._guard())"


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer ``ldp.perturb``."""
    return [
        Scalar("__ldp_expression", expression, "VARCHAR"),
        Scalar("__ldp_same", same, "BIGINT"),
        Scalar("__ldp_allowed", allowed, "BIGINT"),
        Scalar("__ldp_draws", draws, "BIGINT"),
        *dict.fromkeys(_BY_FORM.values()),
        drawn_by_form("_report", _BY_FORM, ("x",), "x, ldp._draws(m)"),
        drawn_by_form("_mixed_report", _BY_FORM, ("x", "level"), f"x, {_OF_LEVEL}", "ldp._any(m, m)"),
        Macros.beside(__file__),
    ]
