"""What happens to the columns of a stream: perturbed, kept or left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import pyarrow as pa

from ldpsql.bulk.columns.kept import kept, kept_field
from ldpsql.bulk.columns.mechanisms import Columns, by_column, check_columns, names_of
from ldpsql.bulk.permanent import Permanent
from ldpsql.channels import Drawn
from ldpsql.errors import InvalidParameter, of_column
from ldpsql.errors.boundary import withheld
from ldpsql.mechanisms.base import CertifiedMechanism, Mechanism, certify
from ldpsql.registry.agreement import metadata
from ldpsql.reports import type_of

Made = TypeVar("Made")


class Projection:
    """What happens to the columns of a stream: the certified mechanism of each perturbed column, and the kept columns."""

    def __init__(
        self, mechanisms: Mapping[str, CertifiedMechanism], keep: tuple[str, ...], permanent: Permanent | None = None
    ) -> None:
        self.mechanisms = mechanisms
        self.keep = keep
        self.permanent = permanent

    @classmethod
    def of(cls, columns: Columns, keep: Iterable[str], permanent: Permanent | None = None) -> Projection:
        """Return the projection for the mechanism of each column, and for the columns to keep.

        The mechanism of a row stands for those of its columns. With ``permanent``, the reports are permanent.

        Raises:
            InvalidParameter: if no column is to be perturbed, or a column is to be both perturbed and kept.

        """
        kept, mechanisms = tuple(dict.fromkeys(names_of(keep, "keep"))), by_column(columns)
        if not mechanisms:
            raise InvalidParameter("there is no column to perturb", "columns={'city': 'krr(epsilon=1, domain=[...])'}")
        if set(kept) & set(mechanisms):
            raise InvalidParameter("a column cannot be both perturbed and kept", "name it once")
        return cls({name: certify(mechanism) for name, mechanism in mechanisms.items()}, kept, permanent)

    @property
    def columns(self) -> list[str]:
        """The names of all columns that are read, perturbed or kept."""
        return [*self.mechanisms, *self.keep]

    @property
    def uncertified(self) -> dict[str, Mechanism]:
        """The mechanism of each perturbed column, without its certificate."""
        return {name: certified.mechanism for name, certified in self.mechanisms.items()}

    def among(self, names: Sequence[str]) -> list[str]:
        """Return the columns of the projection, in the order in which ``names`` has them.

        Raises:
            UnknownName, SourceRefused: if one is missing, or occurs twice.

        """
        check_columns(self.columns, names)
        return [name for name in names if name in set(self.columns)]

    def read(self, names: Sequence[str]) -> list[str]:
        """Return the columns to read: those of the projection, and the user ids of permanent reports."""
        columns = self.among(names)
        user = [] if self.permanent is None else [self.permanent.user]
        check_columns(user, names)
        return [*columns, *(name for name in user if name not in columns)]

    def check_types(self, source: pa.Schema) -> None:
        """Check, before anything is charged, that the mechanisms take the types of their columns.

        Raises:
            WrongType: if one does not.

        """
        for name, mechanism in self.mechanisms.items():
            check_type(mechanism, source.field(name).type, name)

    def schema(self, source: pa.Schema) -> pa.Schema:
        """Return the schema of the reports: perturbed columns in the type of their reports, with their fingerprints."""
        reports = {name: pa.field(name, type_of(mechanism.reports)) for name, mechanism in self.mechanisms.items()}
        fields = [reports.get(name) or kept_field(source.field(name)) for name in self.among(source.names)]
        return pa.schema(fields, self.fingerprints)

    @property
    def fingerprints(self) -> dict[str, str]:
        """The metadata that record which mechanism drew each column."""
        return metadata(self.uncertified)

    def check(self, batch: pa.RecordBatch) -> None:
        """Check that each value of a batch can be perturbed; nothing is drawn.

        Raises:
            MissingValue, OutsideDomain, WrongType: if one cannot; the error names the column.

        """
        for name, mechanism in self.mechanisms.items():
            drawn(mechanism, batch.column(name), name, CertifiedMechanism.check)

    def perturb(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """Draw the reports of one batch."""
        people = None if self.permanent is None else self.permanent.people(batch)
        arrays = [self._column(name, batch.column(name), people) for name in schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _column(self, name: str, column: pa.Array, people: pa.Array | None) -> pa.Array:
        mechanism = self.mechanisms.get(name)
        if mechanism is None:
            return kept(column)

        def draw(certified: CertifiedMechanism, values: pa.Array) -> pa.Array:
            if self.permanent is None or people is None:
                return self._reports(certified, certified.draw(values))
            return self._reports(certified, self.permanent.draw(certified, values, people, name))

        return drawn(mechanism, column, name, draw)

    @withheld
    def _reports(self, mechanism: CertifiedMechanism, drawn: Drawn) -> pa.Array:
        """Return what was drawn as a column of reports."""
        return mechanism.shown(drawn)


def check_type(mechanism: CertifiedMechanism, kind: pa.DataType, name: object) -> None:
    """Check that a mechanism takes a column of a type; the error names the column.

    Raises:
        WrongType: if it does not.

    """
    drawn(mechanism, pa.nulls(0, kind), name, CertifiedMechanism.check)


def drawn(
    mechanism: CertifiedMechanism, column: pa.Array, name: object, draw: Callable[[CertifiedMechanism, pa.Array], Made]
) -> Made:
    """Return what ``draw`` makes of a column; an error names the column if it has a name."""
    with of_column(name):
        return draw(mechanism, column)
