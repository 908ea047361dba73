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
ASKED = [(text, weight) for text in LINEAR for weight in (None, "w") if not (weight and text[:3] in ("squ", "tru"))]
_FIELDS = ("estimate", "std_error", "low", "high")


@cache
def reports(text: str) -> tuple[pa.Table, dict[tuple[str | None, str | None], np.ndarray]]:
    """Return reports of two regions, one of which is NULL, and the inversion of each, without weights and with."""
    value, columns = LINEAR[text]
    with ldpsql.connect() as con:
        con.execute(f"""CREATE TABLE reports AS SELECT ['north', NULL][1 + i % 3 // 2] AS "re'gion", 0.25 + i % 4 AS w,
            ldp.perturb({value}, ldp.{text}) AS x FROM range(900) t(i)""")
        flat = con.sql(f"""SELECT "re'gion", w::DOUBLE AS w, {", ".join(columns)} FROM reports""").to_arrow_table()
        expected = {}
        for region, test in (("north", "NOT NULL"), (None, "NULL")):
            part = con.table("reports").filter(f""""re'gion" IS {test}""")
            for weight in (None, "w"):
                estimate = ldpsql.estimate(part, text, "inv(misfit='allow')", column="x", weight=weight)
                expected[region, weight] = np.array([getattr(estimate, field) for field in _FIELDS]).T
    return flat, expected


def view(text: str, dialect: str, weight: str | None) -> str:
    """Return the statement that creates the view ``shares`` of the table ``exported``."""
    options = ["--weight", weight] if weight else []
    named = ["--table", "exported", "-c", "x", "--by", "re'gion", "--name", "shares"]
    return printed("export-sql", "-m", text, "--dialect", dialect, *named, *options)


def check(text: str, weight: str | None, rows: list[tuple[Any, ...]]) -> None:
    """Check the rows that an engine returned."""
    places = {value: place for place, value in enumerate(registry().mechanism(text).values().listed.values.to_pylist())}
    rows = sorted(rows, key=lambda row: places[row[1]])  # of a view, they have no order
    for (region, weighed), expected in reports(text)[1].items():
        if weighed == weight:
            own = np.array([row[-6:] for row in rows if row[0] == region], dtype=np.float64)
            np.testing.assert_allclose(own[:, :4], expected, rtol=0, atol=1e-9)
            assert set(own[:, 4]) == {600.0 if region else 300.0}
            assert set(own[:, 5]) == {0.0}
