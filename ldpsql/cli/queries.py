"""Arguments of questions as commands write them: conditions, names of columns, and plain values."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from ldpsql.domains.columns import family
from ldpsql.domains.composite import Product
from ldpsql.domains.domain import Domain
from ldpsql.engine.functions import struct_text
from ldpsql.engine.sql_struct import domain_type
from ldpsql.errors import InvalidParameter
from ldpsql.estimates.conditions import column_place, values_of
from ldpsql.inference.mixed import Mixed
from ldpsql.mechanisms.base import Mechanism
from ldpsql.mechanisms.spec import sql_literal
from ldpsql.quoting import text_literal

_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)", re.ASCII)
_RANGE = ".."


@dataclass(frozen=True)
class Arguments:
    """Arguments as options write them, for the values of a mechanism; ``column`` is the name of its column, if it has one."""

    source: Mechanism | Mixed
    column: str

    @cached_property
    def values(self) -> Domain:
        """The values, or the cells of a table of several columns."""
        return values_of(self.source)

    def sql(self, texts: Sequence[str]) -> str:
        """Return an argument as SQL: JSON, conditions such as age=18..65, names with commas between them, or other text."""
        text, *further = texts
        try:
            return sql_literal(json.loads(text))
        except ValueError:
            pass
        own = self._own_values() if "=" not in text and ("," in text or _RANGE in text) else None
        if own and not further and own.position(text) is not None:  # not two names
            return text_literal(text)
        if own and _RANGE in text and family(own.values.type) != "text":
            raise InvalidParameter("a range is a condition on a column, which it names", f"{self.column}=18..65")
        if "=" in text:
            parts = dict(self._one(one) for one in texts)
            return struct_text(parts) if isinstance(self.values, Product) else next(iter(parts.values()))
        names = [name.strip() for one in texts for name in one.split(",")]
        if further or len(names) > 1:
            return f"[{', '.join(map(text_literal, names))}]"
        return "NULL" if text == self.column and not isinstance(self.values, Product) else text_literal(text)

    def _own_values(self) -> Domain | None:
        """Return the values of a column of listed values, None for a table of columns, sets and strings."""
        try:
            return None if isinstance(self.values, Product) else self.values
        except InvalidParameter:
            return None

    def _one(self, text: str) -> tuple[str, str]:
        name, equals, values = text.partition("=")
        if not equals:
            raise InvalidParameter("a condition names a column and its values", "city=Lima, city=Lima,Oslo or age=18..65")
        own = self._domain(name.strip())
        if _RANGE in values and family(own.values.type) != "text":
            ends = zip(("low", "high"), values.split(_RANGE, 1), strict=True)
            return name.strip(), struct_text({end: _end(own, value) for end, value in ends if value.strip()})
        return name.strip(), "[" + ", ".join(_value(own, value) for value in values.split(",")) + "]"

    def _domain(self, name: str) -> Domain:
        if isinstance(self.values, Product):
            return self.values.parts[column_place(self.values, name)]
        if name != self.column:
            raise InvalidParameter("the reports are of one column, and the condition names another", f"{self.column}=...")
        return self.values


def _value(own: Domain, text: str) -> str:
    """Return a value in the type of a domain; NULL, which conditions refuse, if it has no such value."""
    return f"TRY_CAST({text_literal(text.strip())} AS {json.loads(domain_type(own))})"


def _end(own: Domain, text: str) -> str:
    """Return the end of a range."""
    number = family(own.values.type) == "number"
    if number and _NUMBER.fullmatch(text.strip()):
        return text.strip()
    try:
        pa.scalar(text.strip()).cast(own.values.type)
        fits = not number
    except pa.ArrowException:
        fits = False
    if not fits:
        raise InvalidParameter("the end of a range is not a number, date or time", "age=18..65 or day=2013-01-01..2013-01-31")
    return _value(own, text)
