"""Permanent reports: the same person with the same value gives the same report."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from ldpsql.functions import (
    Column,
    Handles,
    KeyUnusable,
    Macros,
    Scalar,
    Texts,
    ToColumn,
    Wholes,
    drawing_permanent,
    drawn_by_form,
    guard_at,
    guarded,
    hookimpl,
    id_bytes,
    plain,
    same_in_all_rows,
    scalars_by_form,
)
from ldpsql.mechanisms import InvalidParameter


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
_BY_FORM = scalars_by_form("__ldp_once", permanent_reports, draws=False)
_PASSED = "x, person, named, ldp._allowed(__ldp_draws(ldp._same(__ldp_drawn(m)), ldp._guard()), 'permanent'), ldp._guard()"


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer ``ldp.perturb_once``."""
    return [
        *dict.fromkeys(_BY_FORM.values()),
        drawn_by_form("_permanent", _BY_FORM, ("x", "person", "named"), _PASSED),
        Macros.beside(__file__),
    ]
