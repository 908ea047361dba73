"""What a run reads: a source and its parts. A part is read, perturbed and published as one: a file, or some row groups."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pyarrow as pa
from duckdb import DuckDBPyConnection

from ldpsql.bulk.columns.mechanisms import check_columns
from ldpsql.engine.identity import Identity
from ldpsql.errors import SourceRefused
from ldpsql.places import Place

FileFormat: TypeAlias = Literal["parquet", "csv", "json", "arrow"]
Kind: TypeAlias = FileFormat | Literal["table"]
_LINES = "check the spelling; the first line of a CSV file must name the columns, and every line must have as many fields"
_DELIMITER = re.compile(r"[,;|\t]")


@dataclass(frozen=True)
class Part:
    """One part of a source: its identity, its number of rows (None if unknown), and how it is read.

    ``read`` takes three lists of columns: all that are wanted; those of which only the domain's positions matter, which may
    come encoded by a dictionary; and those that are kept, which come in types that hold all of their values.
    A stream of files that changed meanwhile ends in `SourceRefused`. ``snapshot``, if possible, returns the part as it is now,
    whatever is written later. ``empty``, if reading may begin with much work, such as that of a view, reads the columns without
    a row.
    """

    identity: tuple[Any, ...]
    rows: int | None
    read: Callable[[list[str], Collection[str], Collection[str]], pa.RecordBatchReader]
    snapshot: Callable[[], Part] | None = None
    empty: Callable[[list[str], Collection[str], Collection[str]], pa.RecordBatchReader] | None = None
    files: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """What a message calls it: its file, without folders, whose names may hold values; else the source."""
        return f"the file '{Place(self.files[0]).path.name}'" if len(self.files) == 1 else "the source"


@dataclass(frozen=True)
class Source:
    """The names of the columns, the parts, the files and their format; a stream can be read only ``once``.

    ``header`` is False if the names may be values: the keys of JSON, and the first line of a CSV file of text alone. Above
    numbers or dates, a line of text is a header.
    ``users`` holds the user ids that were read from the source, until they are charged. ``whose`` returns whose rows they are,
    from a cursor and whether to read all of them; a frame or a stream is not identified.
    """

    names: list[str]
    parts: list[Part]
    once: bool = False
    files: tuple[str, ...] = ()
    kind: Kind | None = None
    header: bool = True
    users: list[Any] = field(default_factory=list)
    whose: Callable[[DuckDBPyConnection, bool], Identity] = field(default=lambda *_: Identity("", ()))

    @property
    def rows(self) -> int | None:
        """The number of rows, None if it is not known beforehand."""
        sizes = [part.rows for part in self.parts]
        return None if None in sizes else sum(rows or 0 for rows in sizes)

    def check(self, columns: Iterable[str]) -> None:
        """Check that each column exists exactly once.

        Raises:
            UnknownName, SourceRefused: if a column is missing, or occurs twice.

        """
        columns = list(columns)
        if self.kind == "csv" and len(self.names) == 1 and _DELIMITER.search(self.names[0]) and self.names[0] not in columns:
            raise SourceRefused(
                "the lines of the CSV file cannot be split into columns",
                "every line must have as many fields as the first one; quote a field that contains the delimiter",
            )
        hint = {"hint": _LINES} if self.kind == "csv" else {}
        check_columns(columns, self.names, hint_names=self.header, **hint)

    def check_folders(self, columns: Iterable[str]) -> None:
        """Check that no column is the name of folders ``column=value/``, since all files of one value are read in a row.

        Raises:
            SourceRefused: if a column is.

        """
        folders = {name.split("=")[0] for file in self.files for name in Path(file).parent.parts if "=" in name}
        if self.kind != "arrow" and (named := sorted(folders & set(columns))):
            raise SourceRefused(
                f"the folders of the source are named after the values of the column '{named[0]}'",
                "read them into a table first: CREATE TABLE people AS FROM 'folder/**/*.parquet'",
            )
