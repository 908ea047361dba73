"""Streams that end in an error if their files or their users changed: only what was charged is drawn.

A stream is read to its end before its reports are published, so an error at the end leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

import duckdb
import pyarrow as pa

from ldpsql.bulk.reading.parts import Part, Source
from ldpsql.errors import SourceRefused
from ldpsql.ledger.witness import Digest, digest, together
from ldpsql.places import Place

Read: TypeAlias = Callable[[list[str], Collection[str], Collection[str]], pa.RecordBatchReader]


def unchanged(files: Sequence[str], read: Read, stamp: Callable[[str], object]) -> Read:
    """Return ``read`` with a check: the stream ends in an error if the stamp of a file changed since this call."""
    before = [stamp(file) for file in files]

    def checked(wanted: list[str], encoded: Collection[str], kept: Collection[str]) -> pa.RecordBatchReader:
        reader = read(wanted, encoded, kept)

        def batches() -> Iterator[pa.RecordBatch]:
            yield from reader
            for file, earlier in zip(files, before, strict=True):
                if _now(stamp, file) != earlier:
                    raise changed(f"the file '{Place(file).path.name}'")

        return pa.RecordBatchReader.from_batches(reader.schema, batches())

    return checked


def witnessed(source: Source, user: str | None, keep: Collection[str]) -> Source:
    """Return a source with its user ids, whose streams end in an error if their rows are of other users.

    Args:
        source: its tables are read in one snapshot, for the ids and for the draw.
        user: the column of user ids; if None, the source is returned as it is.
        keep: the columns whose values pass through.

    Raises:
        UnknownName, SourceRefused: if the column does not exist, or the source can be read only once.

    """
    if user is None:
        return source
    source.check([user])
    source = readable_twice(source)
    pairs = [_with_users(part, user, keep) for part in source.parts]
    users = pa.chunked_array([chunk for _, ids in pairs for chunk in ids.chunks])
    return replace(source, parts=[part for part, _ in pairs], users=[users])


def readable_twice(source: Source) -> Source:
    """Return a source whose tables are as they are now, whatever is written later.

    Raises:
        SourceRefused: if it can be read only once.

    """
    if source.once:
        raise SourceRefused("a stream cannot be read twice, for its user ids and to perturb", "pass a frame or a file")
    return replace(source, parts=[part.snapshot() if part.snapshot else part for part in source.parts])


def counted(source: Source) -> Source:
    """Return a source whose streams end in an error if they have fewer rows than were counted: shuffling then hides less."""
    return replace(source, parts=[replace(part, read=_all_rows(part)) for part in source.parts])


def _all_rows(part: Part) -> Read:
    def checked(wanted: list[str], encoded: Collection[str], kept: Collection[str]) -> pa.RecordBatchReader:
        reader = part.read(wanted, encoded, kept)

        def batches() -> Iterator[pa.RecordBatch]:
            rows = 0
            for batch in reader:
                rows += batch.num_rows
                yield batch
            if rows < (part.rows or 0):
                raise changed()

        return pa.RecordBatchReader.from_batches(reader.schema, batches())

    return checked


def _with_users(part: Part, user: str, keep: Collection[str]) -> tuple[Part, pa.ChunkedArray]:
    """Return a part that checks its user ids, and these ids as they are charged."""
    ids = _column(part, user, keep)
    expected = digest(ids)
    if user in keep:  # perhaps in a type of its own; an id is the same user in any type
        ids = _column(part, user, ())
    return replace(part, identity=(*part.identity, *expected), read=_compared(part.read, user, expected)), ids


def _column(part: Part, name: str, keep: Collection[str]) -> pa.ChunkedArray:
    reader = part.read([name], (), keep)
    kind = reader.schema.field(name).type
    return pa.chunked_array([batch.column(name) for batch in reader], type=kind)


def _compared(read: Read, user: str, expected: Digest) -> Read:
    """Return ``read`` with a check: the user ids are read, too, compared at the end, and not passed on."""

    def compared(wanted: list[str], encoded: Collection[str], kept: Collection[str]) -> pa.RecordBatchReader:
        reader = read([*wanted, *({user} - set(wanted))], [name for name in encoded if name != user], kept)
        names = [name for name in reader.schema.names if name in wanted]

        def batches() -> Iterator[pa.RecordBatch]:
            drawn: Digest = (0, 0, 0)
            for batch in reader:
                drawn = together(drawn, digest(batch.column(user)))
                yield batch.select(names)
            if drawn != expected:
                raise changed()

        return pa.RecordBatchReader.from_batches(pa.schema([reader.schema.field(name) for name in names]), batches())

    return compared


def _now(stamp: Callable[[str], object], file: str) -> object:
    """Return the stamp of a file; None if it is gone."""
    try:
        return stamp(file)
    except (OSError, duckdb.Error):
        return None


def changed(what: str = "the source") -> SourceRefused:
    """Return the error for a source that changed while it was read."""
    return SourceRefused(
        f"{what} changed while it was read, so its reports may be of people who were not charged",
        "nothing was published; run again with --replace, replace=True, while nobody writes to it",
    )
