"""Reports that are no values of a domain: what they look like outside, and how they are read back; one form a file.

Reports that are too many to be numbered travel as rows of 64-bit words, the others as positions, like those of a `Domain`.
``marker`` is the constructor's ``reports`` field in SQL: its type alone tells ``ldp.perturb`` what to return.
"""

from __future__ import annotations

from typing import TypeAlias

import pyarrow as pa

from ldpsql.domains.domain import Domain
from ldpsql.reports.base import NumberedReports, WordReports, impossible
from ldpsql.reports.hashed import HashReports, ListedHashReports
from ldpsql.reports.pairs import BinReports, PairReports, SignReports
from ldpsql.reports.sets import SetReports
from ldpsql.reports.symbols import SymbolReports

# The forms that SQL knows by the type of a column.
FORMS: tuple[type[WordReports], ...] = (SetReports, HashReports)

__all__ = [
    "FORMS",
    "Alphabet",
    "BinReports",
    "HashReports",
    "ListedHashReports",
    "NumberedReports",
    "PairReports",
    "SetReports",
    "SignReports",
    "SymbolReports",
    "WordReports",
    "impossible",
    "type_of",
]

Alphabet: TypeAlias = Domain | WordReports | NumberedReports


def type_of(alphabet: Alphabet) -> pa.DataType:
    """Return the type of a column of reports."""
    return alphabet.values.type if isinstance(alphabet, Domain) else alphabet.type
