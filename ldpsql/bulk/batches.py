"""Perturb streams of record batches, from any engine that speaks Arrow."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import pyarrow as pa

from ldpsql.bulk.kept import kept, kept_field
from ldpsql.bulk.parquet import BATCH_ROWS
from ldpsql.channels import Drawn
from ldpsql.domains.arrays import is_frame, is_pandas_frame, pandas_names, pandas_table, shown_class
from ldpsql.engine.sql_struct import columns_of
from ldpsql.errors import NOT_PERTURBED, InvalidParameter, LdpError, SourceRefused, UnknownName, WrongType
from ldpsql.errors.boundary import withheld, withheld_stream
from ldpsql.ledger.uncharged import uncharged
from ldpsql.mechanisms.base import CertifiedMechanism, Mechanism, certify
from ldpsql.mechanisms.parts import Parts
from ldpsql.mechanisms.rows import RowMechanism
from ldpsql.names import ROW
from ldpsql.registry.fingerprint import metadata
from ldpsql.registry.registry import registry
from ldpsql.reports import type_of

if TYPE_CHECKING:
    from ldpsql.bulk.charging import Charged
    from ldpsql.bulk.in_memory import Charging
    from ldpsql.bulk.permanent import Permanent

_SPELLING = "check the spelling; the columns are not listed, since their names may be values"
Columns: TypeAlias = Mapping[str, Mechanism | str] | Mechanism | str  # by column, or of a row
Made = TypeVar("Made")


@withheld
def perturb_batches(
    batches: Any,
    columns: Columns | None = None,
    *,
    policy: str | None = None,
    keep: Iterable[str] = (),
    charge: Charged = None,
) -> pa.RecordBatchReader:
    """Return a stream of record batches with some columns perturbed; each batch is drawn when it is read.

    Rows stay in the order of the stream. If that order depends on the values, shuffle the rows first, or use `perturb_copy`.

    Args:
        batches: anything that speaks Arrow's stream interface: a RecordBatchReader, an Arrow table, a Polars frame; or a pandas
            frame, whose NaN is NULL.
        columns: the mechanism of each column, or one of a row, such as ``row(city=krr(...), age=...)``, which is the same; the
            reports replace each column under its name.
        policy: the name of a policy in ``ldpsql.toml``, ``[tables.NAME]``, instead of ``columns`` and ``keep``.
        keep: columns whose values pass through. All others are left out. Dictionaries and views become plain columns, so that
            they hold only the values of their rows.
        charge: the ledger that is charged before the first draw, or the name of the people, for the ledger of ``ldpsql.toml``.
            If it charges by user and the rows come as a stream, each batch is charged before it is drawn. The metadata of the
            schema record the release under ``ldpsql.release``, or that the ledger of ``ldpsql.toml`` was not charged.

    Raises:
        UnknownName, SourceRefused: if a column is missing, or occurs twice.
        BudgetExceeded: if somebody's budget would be exceeded; for a stream that is charged by user while reading.
        MissingValue, OutsideDomain, WrongType: while reading, if a value cannot be perturbed.

    Warns:
        UnchargedReports: once, if ``ldpsql.toml`` names a ledger and there is no charge.

    """
    from ldpsql.bulk.in_memory import Charging, is_held  # noqa: PLC0415  # charges use projections
    from ldpsql.bulk.policies import chosen_columns  # noqa: PLC0415

    chosen = chosen_columns(columns, keep, policy)
    charged = chosen.charge(charge)
    projection = Projection.of(chosen.mechanisms, chosen.keep)
    charging = Charging(charged, projection.uncertified)
    user = [] if charging.user is None else [charging.user]
    reader = stream(batches, [*projection.columns, *user])
    schema = projection.schema(reader.schema)
    check_columns(user, reader.schema.names)
    if user and is_held(batches):
        table = reader.read_all()
        charging.whole(table.column(user[0]), len(table))
        reader = table.to_reader(BATCH_ROWS)
    elif not user:
        charging.whole()
    schema = schema.with_metadata(schema.metadata | charging.metadata(uncharged=charged is None and uncharged()))
    return pa.RecordBatchReader.from_batches(schema, _drawn(reader, projection, schema, charging))


@withheld_stream
def _drawn(
    reader: pa.RecordBatchReader, projection: Projection, schema: pa.Schema, charging: Charging
) -> Iterator[pa.RecordBatch]:
    for batch in batches_of(reader):
        with charging.drawing(batch):
            reports = projection.perturb(batch, schema)
        yield reports
    charging.end()


def batches_of(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a stream.

    Raises:
        SourceRefused: if the stream fails. Its own message may quote values, so it is dropped.

    """
    try:
        yield from reader
    except LdpError:
        raise
    except Exception:  # noqa: BLE001  # whatever the stream's producer raises
        hint = "does every batch have the types that the stream declares?"
        raise SourceRefused("the stream could not be read to its end", hint) from None


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
        kept, mechanisms = tuple(dict.fromkeys(keep)), by_column(columns)
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

    def schema(self, source: pa.Schema) -> pa.Schema:
        """Return the schema of the reports: perturbed columns in the type of their reports, with their fingerprints."""
        reports = {name: pa.field(name, type_of(mechanism.reports)) for name, mechanism in self.mechanisms.items()}
        fields = [reports.get(name) or kept_field(source.field(name)) for name in self.among(source.names)]
        return pa.schema(fields, self.fingerprints)

    @property
    def fingerprints(self) -> dict[str, str]:
        """The metadata that record which mechanism drew each column."""
        return metadata(self.uncertified)

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


def by_column(columns: Columns, read: Callable[[Mechanism | str], Mechanism] | None = None) -> dict[str, Mechanism]:
    """Return the mechanism of each column; that of a row holds those of its columns.

    Args:
        columns: the mechanism of each column, or of a row.
        read: returns the mechanism that a text writes or names; by default the registry does.

    Raises:
        InvalidParameter: if a single mechanism is not that of a row.

    """
    read = read or registry().mechanism
    if isinstance(columns, Mapping):
        return {name: read(mechanism) for name, mechanism in columns.items()}
    row = read(columns)
    parts = columns_of(row)
    if getattr(row, "single", False):
        raise InvalidParameter(
            f"{row.name} draws one column of each row, so it needs the row in one column", "perturb a column of structs"
        )
    if not parts:
        raise InvalidParameter("a mechanism without the name of its column", "columns={'city': 'krr(epsilon=1, domain=[...])'}")
    return dict(parts)


def drawn_apart(columns: Sequence[str], mechanism: Mechanism) -> dict[str, Mechanism]:
    """Return the mechanism that drew each column of reports; several columns were drawn by those of a row, one by one.

    Raises:
        InvalidParameter: if several columns are not columns of the mechanism.

    """
    if len(columns) == 1:
        return {columns[0]: mechanism}
    parts = dict(columns_of(mechanism))
    if len(set(columns)) < len(columns) or not parts.keys() >= set(columns):
        needed = f"the columns of the row are {', '.join(parts)}" if parts else f"{mechanism.name} has one column"
        raise InvalidParameter("these are not the columns of the mechanism", needed)
    return {name: parts[name] for name in columns}


def row_part(columns: Sequence[str], mechanism: Mechanism) -> Mechanism:
    """Return the mechanism of the reports of some columns of a row: that of the row of these columns."""
    parts = columns_of(mechanism)
    if not isinstance(mechanism, RowMechanism) or not 1 < len(columns) < len(parts):
        return mechanism
    return type(mechanism)(columns=Parts(part for part in parts if part.column in columns))


def row_of(columns: Mapping[str, Mechanism]) -> Mechanism:
    """Return the mechanism of a row of these columns."""
    return registry().mechanism({Mechanism.kind: ROW, "columns": columns})


def check_columns(wanted: Iterable[str], existing: Sequence[str], *, hint_names: bool = True, hint: str = _SPELLING) -> None:
    """Check that each wanted column exists exactly once.

    Args:
        wanted: the names to look for.
        existing: the names of all columns.
        hint_names: whether a hint may name a column with a similar spelling. The first line of a text file may be somebody's
            data. A hint never lists all names: those of a PIVOT, or of a file without a header, are values.
        hint: what to say if it does not.

    Raises:
        UnknownName: if a column is missing.
        SourceRefused: if a column occurs twice.

    """
    for name in wanted:
        if name not in existing:
            alike = get_close_matches(name, existing, n=1) if hint_names else ()
            raise UnknownName("column", name, alike, hint)
        if existing.count(name) > 1:
            raise SourceRefused(f"there are two columns named '{name}'", "rename one")


def drawn(
    mechanism: CertifiedMechanism, column: pa.Array, name: object, draw: Callable[[CertifiedMechanism, pa.Array], Made]
) -> Made:
    """Return what ``draw`` makes of a column; an error names the column if it has a name."""
    try:
        return draw(mechanism, column)
    except NOT_PERTURBED as error:
        raise error.of_column(name) if isinstance(name, str) and name else error from None


def stream(frame: Any, wanted: Collection[str]) -> pa.RecordBatchReader:
    """Return a frame as a stream of record batches with at least the wanted columns.

    Raises:
        WrongType: if the frame neither speaks Arrow's stream interface nor is a pandas frame.
        UnknownName, SourceRefused: if a pandas frame lacks a column, or has it twice.

    """
    if isinstance(frame, pa.RecordBatchReader):
        return frame
    if is_pandas_frame(frame):
        check_columns(wanted, pandas_names(frame))
        return pandas_table(frame, wanted).to_reader(BATCH_ROWS)
    if not is_frame(frame) or not hasattr(frame, "__arrow_c_stream__"):
        hint = "pass an Arrow table or reader, or a Polars or pandas frame"
        raise WrongType(f"a {shown_class(frame)} is not a stream of record batches", hint)
    return pa.RecordBatchReader.from_stream(frame)
