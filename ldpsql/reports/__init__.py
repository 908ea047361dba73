"""Reports that are too many to be listed: what they look like outside, and how they are read back; one form a file.

Where the reports can be listed they are a `Domain`, and travel as positions in it. The others travel as rows of 64-bit words.
``marker`` is the constructor's ``reports`` field in SQL: its type alone tells ``ldp.perturb`` what to return.
"""

from __future__ import annotations

from typing import TypeAlias

import pyarrow as pa

from ldpsql.domain import Domain
from ldpsql.reports.base import WordReports, impossible
from ldpsql.reports.hashed import HashReports
from ldpsql.reports.pairs import PairReports
from ldpsql.reports.sets import SetReports
from ldpsql.reports.symbols import SymbolReports

__all__ = [
    "Alphabet",
    "HashReports",
    "PairReports",
    "SetReports",
    "SymbolReports",
    "WordReports",
    "impossible",
    "type_of",
]

Alphabet: TypeAlias = Domain | SetReports | HashReports | PairReports | SymbolReports


def type_of(alphabet: Alphabet) -> pa.DataType:
    """Return the type of a column of reports."""
    return alphabet.values.type if isinstance(alphabet, Domain) else alphabet.type
