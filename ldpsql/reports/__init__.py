"""Reports that are no values of a domain: what they look like outside, and how they are read back; one form a file.

Reports that are too many to be numbered travel as rows of 64-bit words, the others as positions, like those of a `Domain`.
A file that is put here is found: what SQL does with its form follows from what the form declares, see `MarkedReports`.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import TypeAlias

import pyarrow as pa

from ldpsql.domains.domain import Domain
from ldpsql.reports.base import MarkedReports, NumberedReports, WordReports, impossible
from ldpsql.reports.hashed import HashReports, ListedHashReports
from ldpsql.reports.pairs import BinReports, PairReports, SignReports
from ldpsql.reports.sets import SetReports, octets, of_octets
from ldpsql.reports.symbols import SymbolReports

__all__ = [
    "FORMS",
    "Alphabet",
    "BinReports",
    "HashReports",
    "ListedHashReports",
    "MarkedReports",
    "NumberedReports",
    "PairReports",
    "SetReports",
    "SignReports",
    "SymbolReports",
    "WordReports",
    "impossible",
    "octets",
    "of_octets",
    "type_of",
]

Alphabet: TypeAlias = Domain | WordReports | NumberedReports


def type_of(alphabet: Alphabet) -> pa.DataType:
    """Return the type of a column of reports."""
    return alphabet.values.type if isinstance(alphabet, Domain) else alphabet.type


def _marked() -> Iterator[type[MarkedReports]]:
    """Yield the marked forms of reports: all that the files of this room define."""
    for module in sorted(info.name for info in iter_modules(__path__)):
        for form in vars(import_module(f"{__name__}.{module}")).values():
            if isinstance(form, type) and issubclass(form, MarkedReports) and hasattr(form, "mark"):
                yield form


FORMS: dict[str, type[MarkedReports]] = {form.mark: form for form in _marked()}
