"""Which mechanism answers a question about numbers or places best, before anything is collected."""

from __future__ import annotations

import pyarrow as pa

from ldpsql.functions import Macros, Scalar, TextLists, Texts, Wholes, guarded, hookimpl, plain, recommend
from ldpsql.mechanisms import InvalidParameter

_ANSWERS = "STRUCT(question VARCHAR, mechanism VARCHAR, estimator VARCHAR, epsilon DOUBLE, error DOUBLE, recommended BOOLEAN)[]"


@guarded
def recommended(
    questions: Texts,
    reports: Wholes,
    steps: Wholes,
    epsilons: TextLists,
    widths: Wholes,
) -> pa.Array:
    """Return the answers of all mechanisms to each question."""
    columns = [plain(column).to_pylist() for column in (questions, reports, steps, epsilons, widths)]
    return pa.array([_answers(*row) for row in zip(*columns, strict=True)])


def _answers(question: str, reports: int, steps: int, epsilons: list[str], width: int | None) -> list[dict[str, object]]:
    if None in (question, reports, steps, epsilons) or None in epsilons:
        raise InvalidParameter("a plan needs a question, numbers of reports and of values, and epsilons", "none may be NULL")
    return recommend(question, reports, steps, width=width, epsilons=epsilons).to_dicts()


@hookimpl
def ldpsql_functions() -> list[Scalar | Macros]:
    """Offer ``ldp.recommend``."""
    return [Scalar("__ldp_recommended", recommended, _ANSWERS), Macros.beside(__file__)]
