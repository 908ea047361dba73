"""Which mechanism answers a question about numbers or places best, before anything is collected."""

from __future__ import annotations

from math import isfinite

from ldpsql.functions import (
    Candidate,
    Doubles,
    Macros,
    Scalar,
    TextLists,
    Texts,
    Wholes,
    by_row,
    hookimpl,
    recommend,
    struct_type,
)
from ldpsql.mechanisms import InvalidParameter

_ANSWERS = f"{struct_type(Candidate)}[]"


@by_row(Texts, Wholes, Wholes, TextLists, Doubles, Doubles)
def recommended(
    question: str, reports: int | None, steps: int, epsilons: list[str], *more: float | None
) -> list[dict[str, object]]:
    """Return the answers of all mechanisms to a question; ``more`` are the width of a grid and the error to reach."""
    width, error = more
    if None in (question, steps, epsilons) or None in epsilons or (reports is None and error is None):
        raise InvalidParameter("a plan needs a question, numbers of reports and of values, and epsilons", "none may be NULL")
    columns = None if width is None else int(width) if isfinite(width) else 0  # which is no width
    return recommend(question, reports, steps, error=error, width=columns, epsilons=epsilons).to_dicts()


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer ``ldp.recommend``."""
    return [Scalar("__ldp_recommended", recommended, _ANSWERS), Macros.beside(__file__)]
