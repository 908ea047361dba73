"""Frequent strings that nobody listed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa

from ldpsql.questions import (
    INV,
    NULL,
    Argument,
    Asked,
    GroupedCounts,
    Lines,
    Question,
    Source,
    fields_of,
    hookimpl,
    python_value,
)
from ldpsql.strings import HeavyHitter, HeavyHitters, heavy_hitters


@dataclass(frozen=True)
class Strings(Question):
    """The most frequent strings, without a list of strings; the arguments are those of `HeavyHitters`."""

    name = "heavy_hitters"
    summary = "the most frequent strings, without a list of strings: shares with intervals that hold together"
    fields = fields_of(HeavyHitter)
    rows = True
    options = {}
    lists = True
    top: Argument = pa.scalar(20)
    confidence: Argument = pa.scalar(0.95)
    certain: Argument = pa.scalar(True)
    kept: Argument = NULL
    deadline: Argument = NULL

    def about(self, values: Any) -> HeavyHitters:  # noqa: ARG002
        """Return what to search for."""
        given = {field.name: python_value(getattr(self, field.name)) for field in fields(self)}
        return HeavyHitters(**{name: value for name, value in given.items() if value is not None})

    @classmethod
    def estimator(cls, source: Source) -> str:  # noqa: ARG003
        """Return any: the search needs none."""
        return INV

    @classmethod
    def values(cls, source: Source) -> Any:
        """Return nothing: the strings are not listed."""

    @classmethod
    def estimated(cls, asked: Asked, counts: GroupedCounts) -> Iterator[tuple[Any, Lines]]:
        """Yield the strings of every group, the most frequent first."""
        for group, hitters in heavy_hitters(asked.source, counts, asked.functional):
            yield np.array([group]), Lines.of_records(cls.fields, [list(map(asdict, hitters))])


@hookimpl
def ldpsql_questions() -> list[type[Question]]:
    """Offer the search."""
    return [Strings]
