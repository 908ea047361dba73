"""Ten questions that every engine answers from counts of the same reports, and the answers that DuckDB gives to ldpsql."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

import ldpsql

CITY = "krr(1, ['Lima', \"O'slo\", 'Rome'])"
AGES = list(range(50))
ASKED: list[tuple[str, str, dict[str, Any]]] = [
    ("city", CITY, {}),
    ("city", CITY, {"by": "Reg ion"}),
    ("city", CITY, {"by": ["Reg ion", "day"], "estimator": "shared"}),
    ("city", CITY, {"weight": "w"}),
    ("city", CITY, {"by": "Reg ion", "question": "share", "of": "Lima", "weight": "w"}),
    ("city", CITY, {"question": "top", "most": 2}),
    ("interests", "oue(1, ['a', 'b', 'c', 'd'])", {"by": "Reg ion"}),
    ("age", f"olh(1, {AGES})", {"by": "Reg ion", "question": "mean"}),
    ("score", "square_wave(2, 0, 50, bins := 10)", {"by": "Reg ion", "question": "median"}),
    ("score", "square_wave(2, 0, 50, bins := 10)", {"question": "diagnose"}),
]
ROW = f"row(city={CITY}, age=olh(1, {AGES}))"
PAIRS = "pckv_grr(2, ['k', 'l'], padding := 2)"
PRIVATE = "olh(1, ['a', 'b', 'c'], seeds := 'private')"
# More questions: about rows of several columns, levels, raw columns, pairs, and hashes whose seeds all differ.
FURTHER: list[tuple[Any, Any, dict[str, Any]]] = [
    (["city", "age"], ROW, {"question": "share", "of": {"city": "Lima"}, "by": "day"}),
    ("leveled", {"low": "krr(1, ['a', 'b'])", "high": "krr(3, ['a', 'b'])"}, {"by": "day", "weight": "w"}),
    ("city", CITY, {"by": "Reg ion", "question": "outcome", "outcome": "premium", "weight": "w"}),
    ("age", f"olh(1, {AGES})", {"question": "outcome", "outcome": "premium", "measure": "share"}),
    (["city", "age"], ROW, {"question": "regression", "outcome": "premium", "regressors": ["w"], "of": ["city"], "by": "day"}),
    ("city", CITY, {"question": "regression", "outcome": "smoker", "family": "logistic", "weight": "w"}),
    ("pairs", PAIRS, {"question": "key_value", "by": "day"}),
    ("code", PRIVATE, {"by": "day"}),
]
_REPORTS = f"""
    SELECT ldp.perturb(['Lima', 'O''slo', 'Rome'][1 + i % 3], ldp.krr(1, ['Lima', 'O''slo', 'Rome'])) AS city,
           ldp.perturb('abcd'[1 + i % 4], ldp.oue(1, ['a', 'b', 'c', 'd'])) AS interests,
           ldp.perturb(i % 50, ldp.olh(1, {AGES})) AS age,
           ldp.perturb(i % 31, ldp.square_wave(2.0, 0, 50, bins := 10)) AS score,
           ldp.perturb([{{key: 'kl'[1 + i % 2], value: 0.5}}], ldp.pckv_grr(2.0, ['k', 'l'], padding := 2)) AS pairs,
           ldp.perturb('abc'[1 + i % 3], ldp.olh(1, ['a', 'b', 'c'], seeds := 'private')) AS code,
           {{level: ['low', 'high'][1 + i % 2], report: 'ab'[1 + i // 2 % 2]}} AS leveled,
           1.5::DOUBLE * nullif(i % 7, 3) AS premium, i % 11 < 3 AS smoker, i // 3 AS person,
           ['north', 'O''est', ''][1 + i % 3] AS "Reg ion", DATE '2026-01-01' + (i % 5)::INT AS day, 0.5 + i % 4 AS w
    FROM range(3000) AS people(i)
    UNION ALL SELECT NULL, NULL, NULL, NULL, {{key: NULL, sign: NULL}}, NULL, NULL, 1, true, 0,
           'nobody', DATE '2026-01-02', 1 FROM range(3)"""
_FLAT = """
    SELECT city, array_to_string(list_transform(range(4), lambda i: (interests[1] >> i) & 1), '') AS interests,
           age.seed::BIGINT AS age_seed, age.y::INTEGER AS age_y, score,
           pairs.key AS pairs_key, pairs.sign::INTEGER AS pairs_sign,
           code.seed::VARCHAR AS code_seed, code.y::INTEGER AS code_y, leveled.level AS leveled_level,
           leveled.report AS leveled_report, premium, smoker::INTEGER AS smoker, person,
           "Reg ion", day, w::DOUBLE AS w FROM reports"""


@cache
def reports() -> pa.Table:
    """Return reports of four columns, with groups, days and weights."""
    with ldpsql.connect() as con:
        return con.sql(_REPORTS).to_arrow_table()


@cache
def flat_reports() -> pa.Table:
    """Return the same reports for engines without lists and structs."""
    with ldpsql.connect() as con:
        con.register("reports", reports())
        return con.sql(_FLAT).to_arrow_table()


@cache
def answers(asked: str = "ASKED") -> list[pa.Table]:
    return [_answer(reports(), *one) for one in globals()[asked]]


def _answer(table: Any, column: Any, mechanism: Any, options: dict[str, Any]) -> pa.Table:
    options = dict(options)
    return ldpsql.estimate(table, mechanism, options.pop("estimator", None), column=column, **options).to_arrow()


def differences(table: Any, asked: str = "ASKED") -> Iterator[float]:
    """Yield how far each of the ten answers, or of those to ``FURTHER``, from a table of an engine is from DuckDB's."""
    for one, expected in zip(globals()[asked], answers(asked), strict=True):
        yield _distance(_answer(table, *one), expected)


def _distance(one: pa.Table, other: pa.Table) -> float:
    assert one.schema.names == other.schema.names
    worst = 0.0
    for left, right in zip(one.columns, other.columns, strict=True):
        if not pa.types.is_floating(left.type):
            assert [str(value) for value in left.to_pylist()] == [str(value) for value in right.to_pylist()]
            continue
        numbers = left.to_numpy(), right.to_numpy()
        assert np.array_equal(*map(np.isnan, numbers))
        worst = max(worst, float(np.nanmax(np.abs(numbers[0] - numbers[1]), initial=0.0)))
    return worst


def repeated_differences(table: Any) -> Iterator[float]:
    """Yield how far estimates from the three reports of each person, as lists that the engine makes, are from DuckDB's."""
    with ldpsql.connect() as con:
        con.register("reports", reports())
        query = "SELECT list(city) AS city, min(day) AS day FROM reports WHERE city IS NOT NULL GROUP BY person"
        expected = _answer(con.sql(query).to_arrow_table(), "city", CITY, {"by": "day"})
    some = table.filter(table.city.notnull()).group_by("person").agg(city=table.city.collect(), day=table.day.min())
    yield _distance(_answer(some, "city", CITY, {"by": "day"}), expected)
