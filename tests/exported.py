"""Tables of reports for queries of `ldpsql export-sql`, and the estimates that they must return."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

import ldpsql
from ldpsql.functions import registry
from tests.commands import printed

_BITS = "array_to_string(list_transform(range({}), lambda i: (x[i // 64 + 1] >> (i % 64)) & 1), '')"
# Mechanisms, a value for each number, and the columns that engines without lists and structs read.
LINEAR = {
    "krr(1, ['Lima', 'Oslo', 'Rome', 'Kyiv'])": ("['Lima', 'Rome', 'Rome'][1 + i % 3]", ["x"]),
    f"oue(1, {list(range(70))})": ("i % 9", [f"{_BITS.format(70)} AS x"]),
    "subset_selection(1, [1, 2, 3, 4, 5])": ("1 + i % 4", [f"{_BITS.format(5)} AS x"]),
    f"olh(1, {list(range(20))})": ("i % 9", ["x.seed::BIGINT AS x_seed", "x.y::INTEGER AS x_y"]),
    "square_wave(4, 0, 100, bins := 12)": ("i % 70", ["x"]),
    "truncated_geometric(1, 0, 6)": ("i % 7", ["x"]),
}
QUESTIONS = [(text, "w" if number % 2 else None, "outcome") for number, text in enumerate(LINEAR)]
QUESTIONS += [(text, weight, "mean") for text in LINEAR for weight in (None, "w") if text[:3] in ("squ", "tru")]
ASKED = [(text, weight) for text in LINEAR for weight in (None, "w") if not (weight and text[:3] in ("squ", "tru"))]
_FIELDS = ("estimate", "std_error", "low", "high")


@cache
def reports(text: str) -> tuple[pa.Table, dict[tuple[str | None, ...], np.ndarray]]:
    """Return reports of two regions, one of which is NULL, and the inversion of each, without weights and with.

    With the name of a question, the key is that of its answer: the mean of all values, or of an outcome for each value.
    """
    value, columns = LINEAR[text]
    with ldpsql.connect() as con:
        con.execute(f"""CREATE TABLE reports AS SELECT ['north', NULL][1 + i % 3 // 2] AS "re'gion", 0.25 + i % 4 AS w,
            nullif(i % 5 + 2 * (i % 3), 4)::DOUBLE AS y,
            ldp.perturb({value}, ldp.{text}) AS x FROM range(900) t(i)""")
        flat = con.sql(f"""SELECT "re'gion", w::DOUBLE AS w, y, {", ".join(columns)} FROM reports""").to_arrow_table()
        expected: dict[tuple[str | None, ...], np.ndarray] = {}
        for region, test in (("north", "NOT NULL"), (None, "NULL")):
            part = con.table("reports").filter(f""""re'gion" IS {test}""")
            for weight in (None, "w"):
                estimate = ldpsql.estimate(part, text, "inv(misfit='allow')", column="x", weight=weight)
                expected[region, weight] = np.array([getattr(estimate, field) for field in _FIELDS]).T
                for question, about in (("outcome", {"outcome": "y"}), ("mean", {})):
                    if (text, weight, question) in QUESTIONS:
                        method = "inv" if about else "inv(misfit='allow')"
                        asked: dict[str, Any] = {"column": "x", "weight": weight, "question": question, **about}
                        answer = ldpsql.estimate(part, text, method, **asked).to_arrow()
                        expected[region, weight, question] = np.array([answer[field].to_numpy() for field in _FIELDS]).T
    return flat, expected


def view(text: str, dialect: str, weight: str | None, question: str = "shares") -> str:
    """Return the statement that creates the view ``shares`` of the table ``exported``."""
    options = ["--weight", weight] if weight else []
    options += {"outcome": ["--outcome", "y"], "mean": ["--question", "mean"]}.get(question, [])
    named = ["--table", "exported", "-c", "x", "--by", "re'gion", "--name", "shares"]
    return printed("export-sql", "-m", text, "--dialect", dialect, *named, *options)


def check(text: str, weight: str | None, rows: list[tuple[Any, ...]]) -> None:
    """Check the rows that an engine returned."""
    places = {value: place for place, value in enumerate(registry().mechanism(text).values().listed.values.to_pylist())}
    rows = sorted(rows, key=lambda row: places[row[1]])  # of a view, they have no order
    for region in ("north", None):
        own = np.array([row[-6:] for row in rows if row[0] == region], dtype=np.float64)
        np.testing.assert_allclose(own[:, :4], reports(text)[1][region, weight], rtol=0, atol=1e-9)
        assert set(own[:, 4]) == {600.0 if region else 300.0}
        assert set(own[:, 5]) == {0.0}


def check_question(text: str, weight: str | None, question: str, rows: list[tuple[Any, ...]]) -> None:
    """Check the rows that an engine returned for a question; NULL is an infinite error."""
    places = {value: place for place, value in enumerate(registry().mechanism(text).values().listed.values.to_pylist())}
    if question == "outcome":
        rows = [(row[0], *row[2:]) for row in sorted(rows, key=lambda row: places[row[1]])]
    for region in ("north", None):
        own = np.array([row[1:] for row in rows if row[0] == region], dtype=np.float64)
        theirs = reports(text)[1][region, weight, question]
        if question == "mean":
            # The variance is that of these reports, not that under the estimate: they are close if no share was below zero.
            np.testing.assert_allclose(own[:, 0], theirs[:, 0], rtol=0, atol=1e-9)
            np.testing.assert_allclose(own[:, 1], theirs[:, 1], rtol=0.5)
        else:
            np.testing.assert_allclose(own[:, :4], theirs, rtol=0, atol=1e-9)
        if question == "mean":
            assert set(own[:, 4]) == {600.0 if region else 300.0}
        assert set(own[:, 5]) == {0.0}
