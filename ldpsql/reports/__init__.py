"""Forms of reports that are not values of a domain: how they look in a column, and how they are read back.

If there are too many reports to number, they are rows of 64-bit words; others are positions, like the values of a `Domain`.
New files here are found automatically: SQL derives all it needs from the declarations of a form, see `MarkedReports`.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import TypeAlias

import pyarrow as pa

from ldpsql.domains.domain import Domain
from ldpsql.reports.base import MarkedReports, NumberedReports, WordReports, impossible
from ldpsql.reports.nodes import NodeReports, PrefixReports
from ldpsql.reports.pairs import BinReports, PairReports, SignReports
from ldpsql.reports.rows import RowReports
from ldpsql.reports.sets import HashReports, ListedHashReports, SetReports, SymbolReports, octets, of_octets

__all__ = [
    "FORMS", "Alphabet", "BinReports", "HashReports", "ListedHashReports", "MarkedReports", "NodeReports", "NumberedReports",
    "PairReports", "PrefixReports", "RowReports", "SetReports", "SignReports", "SymbolReports", "WordReports", "impossible",
    "octets", "of_octets", "type_of",
]  # fmt: skip

Alphabet: TypeAlias = Domain | WordReports | NumberedReports | RowReports


def type_of(alphabet: Alphabet) -> pa.DataType:
    """Return the type of a column of reports."""
    return alphabet.type


def _marked() -> Iterator[type[MarkedReports]]:
    """Yield the marked forms of reports that the files of this room define."""
    for module in sorted(info.name for info in iter_modules(__path__)):
        for form in vars(import_module(f"{__name__}.{module}")).values():
            if isinstance(form, type) and issubclass(form, MarkedReports) and hasattr(form, "mark"):
                yield form


FORMS: dict[str, type[MarkedReports]] = {form.mark: form for form in _marked()}
