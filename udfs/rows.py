"""Tables of several columns: the joint estimate in long form."""

from __future__ import annotations

from ldpsql.functions import Macros, hookimpl


@hookimpl
def ldpsql_functions() -> list[Macros]:
    """Offer ``ldp.crosstab``."""
    return [Macros.beside(__file__)]
