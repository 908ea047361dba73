"""Reports that other libraries drew."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from ldpsql.functions import (
    MECHANISMS,
    Column,
    Handles,
    Macros,
    Scalar,
    Texts,
    ToColumn,
    drawn_by_form,
    guarded,
    hookimpl,
    names_withheld,
    plain,
    read_foreign,
    same_in_all_rows,
    scalars_by_form,
    with_nulls,
)


def foreign_reports(to_column: ToColumn, kind: pa.DataType) -> Callable[..., pa.Array]:
    """Return a function that reads the reports of others, one a row; ``to_column`` makes a column of type ``kind`` of them."""

    @guarded
    def read(reports: Column, forms: Texts, handles: Handles) -> pa.Array:
        if not len(reports):
            return pa.array([], kind)
        form, handle = same_in_all_rows("mechanism and format of read", forms, handles)
        column = plain(reports)
        valid = column.is_valid()
        with names_withheld():
            certified, drawn = read_foreign(MECHANISMS.thing(handle), column.filter(valid), form)
        return with_nulls(plain(to_column(certified, drawn)), valid.to_numpy(zero_copy_only=False))

    return read


# Created once: DuckDB may call a function as long as the process lives, and does not keep it alive.
_BY_FORM = scalars_by_form("__ldp_read", foreign_reports, draws=False, volatile=False)


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer ``ldp.read``."""
    return [
        *dict.fromkeys(_BY_FORM.values()),
        drawn_by_form("_foreign", _BY_FORM, ("report", "form"), "report, form, __ldp_mechanism(m)"),
        Macros.beside(__file__),
    ]
