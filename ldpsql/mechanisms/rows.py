"""The base class of mechanisms over rows of several columns, each of which has a mechanism of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, cast

from pydantic import Field

from ldpsql.channels import Rows
from ldpsql.domains.product import Product, ProductField
from ldpsql.mechanisms.base import CertifiedRow, Mechanism, certify
from ldpsql.mechanisms.parts import Nested, PartsField
from ldpsql.mechanisms.spec import EpsilonField
from ldpsql.names import ROW_REPORTS, ROW_VALUES
from ldpsql.privacy.claims import Claim
from ldpsql.reports import RowReports


class RowMechanism(Mechanism):
    """A mechanism over structs: an implementation sets ``name``. Each column keeps its rules for NULL and for other values."""

    # The list is empty: only its type matters. The subscript keeps CREATE MACRO from binding what does not exist yet.
    sql_domain = f"""from_json('[]', '[' || {ROW_VALUES}(["columns"][1]) || ']')"""
    sql_reports = f"""{{'{RowReports.mark}': {ROW_REPORTS}(["columns"][1])}}"""
    single: ClassVar[bool] = False  # whether each row reports one column, drawn at random
    columns: PartsField = Field(description="the mechanism of each column, by its name")
    nulls: ClassVar[None] = None  # type: ignore[misc]  # the mechanisms of the columns have these rules
    outside: ClassVar[None] = None  # type: ignore[misc]

    def values(self) -> Product:
        """Return the rows of one value of each column."""
        return self._row.values

    def alphabet(self) -> RowReports:
        """Return the rows of one report of each column."""
        return self._row.reports

    def claim(self) -> Claim:
        """Return the sum of the columns' epsilons, and of their deltas; the largest if one column is reported."""
        return self._row.certificate.claim

    def channel(self) -> Rows:
        """Return the channels of the columns, side by side."""
        return self._row.channel

    @property
    def _row(self) -> CertifiedRow:
        """What `certify` made of the columns: no code of this class runs there."""
        return cast("CertifiedRow", certify(self))

    @classmethod
    def arranged(cls, keywords: Mapping[str, Any]) -> dict[str, Any]:
        """Return named values of a call, with mechanisms under the names of columns gathered in ``columns``."""
        columns = {name: value for name, value in keywords.items() if _is_mechanism(value)}
        rest = {name: value for name, value in keywords.items() if name not in columns}
        return {**rest, **({"columns": columns} if columns else {})}


class JointMechanism(Mechanism):
    """An epsilon-LDP mechanism over the cells of a table: an implementation adds ``name`` and `channel`.

    If reports are not rows, it also sets `alphabet` and ``sql_reports``. The table is never listed.
    """

    sql_domain = RowMechanism.sql_domain
    sql_reports = RowMechanism.sql_reports
    epsilon: EpsilonField = Field(description="privacy parameter of the whole row")
    columns: ProductField = Field(description="the values of each column, by its name; together at most 16,777,216 rows")
    nulls: ClassVar[None] = None  # type: ignore[misc]  # a value that stands for NULL belongs to a column
    outside: ClassVar[None] = None  # type: ignore[misc]

    def values(self) -> Product:
        return self.columns

    def layout(self) -> tuple[int, ...]:
        """Return (): rows have no neighbours."""
        return ()


def _is_mechanism(value: Any) -> bool:
    named = isinstance(value, Mapping) and isinstance(value.get(Mechanism.kind), str)
    return isinstance(value, Nested | Mechanism) or named
