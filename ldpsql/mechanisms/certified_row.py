"""A certified row: the certified mechanisms of its columns, which draw independently of each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels import Codes, Drawn, OneOfRows, Rows
from ldpsql.domains.product import Product
from ldpsql.errors import InvalidParameter, of_column
from ldpsql.mechanisms.certified import CertifiedMechanism, CertifiedValues
from ldpsql.mechanisms.parts import Parts
from ldpsql.privacy.certificate import of_one, of_rows
from ldpsql.privacy.claims import ApproximateLdp, Claim, Epsilon, PureLdp
from ldpsql.reports import RowReports

if TYPE_CHECKING:
    from ldpsql.mechanisms.base import Mechanism


@dataclass(frozen=True, eq=False)
class CertifiedRow(CertifiedMechanism):
    """A mechanism over rows; the values 0 and 1 of its certificate are the rows of those of its columns' certificates."""

    channel: Rows
    values: Product
    reports: RowReports
    parts: tuple[CertifiedValues, ...]
    over = "rows of several columns"
    remedy = "estimate their table with ldp.margin, or one column with its own mechanism"

    @property
    def response(self) -> Rows:
        """The channel itself."""
        return self.channel

    @property
    def event(self) -> str:
        """The events of all columns together."""
        texts = [part.event.format(report=part.report_text(part.certificate.report)) for part in self.parts]
        event = " and ".join(f"of {name}: {text}" for name, text in zip(self.values.names, texts, strict=True))
        return event.replace("{", "{{").replace("}", "}}")

    @property
    def width(self) -> int:
        """The sum of the widths of the columns."""
        return sum(part.width for part in self.parts)

    def text(self, place: int) -> str:
        """Return the row of the values of the columns' certificates for 0, of the other values for 1."""
        texts = [repr(part.text(_place(part, place))) for part in self.parts]
        return "{" + ", ".join(f"{name}: {text}" for name, text in zip(self.values.names, texts, strict=True)) + "}"

    def report_text(self, report: int) -> str:  # noqa: ARG002  # a row has no number
        """Return the reports of the columns' certificates."""
        texts = [part.report_text(part.certificate.report) for part in self.parts]
        return "{" + ", ".join(f"{name}: {text}" for name, text in zip(self.values.names, texts, strict=True)) + "}"

    def draw_value(self, place: int, count: int) -> Drawn:
        """Draw reports of one of the two rows of the certificate."""
        row = np.array([_place(part, place) for part in self.parts], dtype=np.int32)
        return self.channel.draw(np.tile(row, (count, 1)))

    def happened(self, drawn: Drawn) -> NDArray[np.bool_]:
        """Return for which reports the events of all columns happen."""
        each = zip(self.parts, self.reports.split(drawn), strict=True)
        return np.logical_and.reduce([part.happened(own) for part, own in each])

    def codes(self, column: pa.Array | pa.ChunkedArray) -> Codes:
        """Return the positions of the values of every row, by the rules of the columns' mechanisms; shape (rows, columns).

        An error names the column.
        """
        out = np.empty((len(column), len(self.parts)), dtype=np.int32)
        fields = zip(self.values.names, self.parts, self.values.fields(column), strict=True)
        for j, (name, part, field) in enumerate(fields):
            with of_column(name):
                out[:, j] = part.codes(field)
        return out

    def _inputs(self, column: pa.Array | pa.ChunkedArray) -> Codes:
        return self.codes(column)


@dataclass(frozen=True, eq=False)
class CertifiedOne(CertifiedRow):
    """A mechanism that reports one column of a row; its certificate is that of the column with the largest ratio."""

    remedy = "estimate each column with its own mechanism: rows that do not report it are NULL there, and left out"

    @property
    def _tight(self) -> int:
        return max(range(len(self.parts)), key=lambda j: self.parts[j].epsilon)

    @property
    def event(self) -> str:
        """That the column with the largest ratio is reported, and its event."""
        part = self.parts[self._tight]
        event = part.event.format(report=part.report_text(part.certificate.report))
        return f"of {self.values.names[self._tight]}: {event}".replace("{", "{{").replace("}", "}}")

    def happened(self, drawn: Drawn) -> NDArray[np.bool_]:
        """Return for which reports the event happens."""
        own = list(self.reports.split(drawn))[self._tight]
        return (drawn[:, 0] == self._tight) & self.parts[self._tight].happened(own)


def _place(part: CertifiedValues, place: int) -> int:
    return part.certificate.other if place else part.certificate.value


def certified_row(mechanism: Mechanism, columns: Parts, parts: Sequence[CertifiedValues], *, single: bool) -> CertifiedRow:
    """Return the certified row of certified columns: its epsilon is the sum of theirs, or the largest if one is reported.

    Raises:
        InvalidParameter: if the epsilons do not add up, or to more than an epsilon can be.

    """
    channels, claims = tuple(part.channel for part in parts), [part.certificate.claim for part in parts]
    values = Product(columns.columns, tuple(part.values for part in parts))
    reports = RowReports(columns.columns, tuple(part.reports for part in parts), single)
    proofs = [part.certificate for part in parts]
    if single:
        proof = of_one(largest_of(claims), proofs)
        return CertifiedOne(mechanism, OneOfRows(channels), proof, values, reports, (), tuple(parts))
    return CertifiedRow(mechanism, Rows(channels), of_rows(sum_of(claims), proofs), values, reports, (), tuple(parts))


def largest_of(claims: Sequence[Claim]) -> PureLdp | ApproximateLdp:
    """Return the claim of a row that reports one of columns with these claims: the largest epsilon, and the largest delta.

    Raises:
        InvalidParameter: if a claim is about distances.

    """
    for claim in claims:
        sum_of([claim])
    epsilon = max(claim.epsilon for claim in claims)
    delta = max(claim.delta if isinstance(claim, ApproximateLdp) else Fraction(0) for claim in claims)
    return ApproximateLdp(epsilon, delta) if delta else PureLdp(epsilon)


def sum_of(claims: Iterable[Claim]) -> PureLdp | ApproximateLdp:
    """Return the claim of a row of columns with these claims: epsilons and deltas add up.

    Raises:
        InvalidParameter: if a claim is about distances, or the sum is more than an epsilon can be.

    """
    epsilon, delta = Fraction(0), Fraction(0)
    for claim in claims:
        if not isinstance(claim, PureLdp | ApproximateLdp):
            raise InvalidParameter(
                "a column of a row claims an epsilon per unit of distance, which does not add up with those of other columns",
                "perturb it by itself, or choose a mechanism of epsilon-LDP",
            )
        epsilon += claim.epsilon.value
        delta += claim.delta if isinstance(claim, ApproximateLdp) else 0
    if epsilon > Epsilon.maximum:
        raise InvalidParameter(
            f"the epsilons of the columns add up to more than {Epsilon.maximum}", "give each column a smaller one"
        )
    return ApproximateLdp(Epsilon(epsilon), delta) if delta else PureLdp(Epsilon(epsilon))
