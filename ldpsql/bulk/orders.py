"""The drawing of a run: its reports are written in a random order, over the whole run, or in the order of the source.

random: each part of the source is drawn and scattered over buckets, then the buckets are shuffled and written
keep:   each part of the source is drawn and written at once, into a file of its own if the destination is a folder
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Literal, TypeAlias, get_args

import pyarrow as pa
from duckdb import DuckDBPyConnection

from ldpsql.bulk.columns import CompactProjection, Projection
from ldpsql.bulk.shuffling import Scattered, buckets_for, scatter, schema_of
from ldpsql.bulk.sinks import Form, file_name, scratch_folder, write_table
from ldpsql.bulk.sources import Part, Source
from ldpsql.bulk.staging import Staging
from ldpsql.engine.interrupting import until_stopped
from ldpsql.errors import DestinationRefused, InvalidParameter, LdpError, SourceRefused

Progress: TypeAlias = Callable[[int, int | None], None]  # rows done; rows in all, None if unknown


class Meter:
    """The number of rows drawn, for the progress, and the error that was raised while DuckDB read the stream."""

    def __init__(self, total: int | None, progress: Progress | None) -> None:
        self.drawn = 0
        self._skipped = 0
        self._total, self._progress = total, progress
        self._refusal: LdpError | KeyboardInterrupt | None = None

    def skip(self, rows: int) -> None:
        """Count rows that an earlier run drew."""
        self._skipped += rows
        self._report_progress()

    def _report_progress(self) -> None:
        if self._progress:
            self._progress(self._skipped + self.drawn, self._total)

    def reports(self, part: Part, projection: Projection, names: list[str]) -> pa.RecordBatchReader:
        """Return the reports of a part as a stream that counts its rows."""
        with self._reading(part):
            reader = part.read(projection.read(names), projection.mechanisms.keys(), projection.keep)
        schema = projection.schema(reader.schema)

        def batches() -> Iterator[pa.RecordBatch]:
            with self._reading(part):
                for batch in reader:
                    yield projection.perturb(batch, schema)
                    self.drawn += batch.num_rows
                    self._report_progress()

        return pa.RecordBatchReader.from_batches(schema, batches())

    def check(self, part: Part, projection: Projection) -> pa.RecordBatchReader:
        """Return the perturbed columns of a part as a stream that ends in an error at a value that cannot be perturbed."""
        names = [*projection.mechanisms]
        with self._reading(part):
            reader = part.read(names, names, projection.keep)

        def batches() -> Iterator[pa.RecordBatch]:
            with self._reading(part):
                for batch in reader:
                    projection.check(batch)
                    yield batch

        return pa.RecordBatchReader.from_batches(reader.schema, batches())

    @contextmanager
    def _reading(self, part: Part) -> Iterator[None]:
        """Remember an error of the source: the writer sees only an error of DuckDB's or Arrow's."""
        try:
            yield
        except (LdpError, KeyboardInterrupt) as error:
            self._refusal = error
            raise
        except Exception:
            hint = "is it complete, and does every column have one type?"
            self._refusal = SourceRefused(f"{part.title} could not be read to its end", hint)
            raise

    def watch(self, write: Callable[[], None], hint: str = "is there space on the disk?") -> None:
        """Call ``write``; raise an error as it was before DuckDB reworded it, since DuckDB's message may hold raw values."""
        try:
            write()
        except LdpError as error:
            refusal = self._refusal or error
        except Exception:  # noqa: BLE001  # DuckDB, the file system
            refusal = self._refusal or DestinationRefused("the reports could not be written", hint)
        else:
            return
        refusal.__context__ = refusal.__cause__ = None  # raised outside of the handler, so that no other error is attached
        raise refusal.with_traceback(None)


Order: TypeAlias = Literal["random", "keep"]
_INTO_TABLE = "is there space on the disk, and does the table take their columns?"
FILE_BYTES = 1 << 26  # scattered rows per file of a folder


def check_order(order: str) -> None:
    """Check that an order is 'random' or 'keep'.

    Raises:
        InvalidParameter: if it is neither.

    """
    if order not in get_args(Order):
        raise InvalidParameter(
            "the order must be 'random' or 'keep'", "'random' shuffles all rows; 'keep' shows where in the source a row was"
        )


class Drawing:
    """One run of drawing: each row of the source once, in the order that was asked for."""

    def __init__(self, con: DuckDBPyConnection, source: Source, projection: Projection, meter: Meter) -> None:
        self.parts = self.resumed = 0
        self._con, self._source, self._meter = con, source, meter
        self._compact = CompactProjection.like(projection)
        self.buckets = buckets_for(source.rows)

    @property
    def rows(self) -> int:
        """The number of rows drawn."""
        return self._meter.drawn

    def into_files(self, form: Form, staging: Staging, order: Order) -> None:
        """Draw the parts that are not complete, and write all of them."""
        if order == "keep":
            self._each_part(staging, "part", partial(self._write, form))
            return

        def draw(part: Part, at: Path) -> None:
            with at.open("xb") as file:
                self._scatter(part, file, staging.files("drawn"))

        self._each_part(staging, "drawn", draw)
        with ExitStack() as stack:
            files: list[IO[bytes]] = [stack.enter_context(file.open("rb")) for file in staging.files("drawn")]
            self._meter.watch(lambda: self._write_shuffled(files, form, staging))

    def into_table(self, verb: str, order: Order, then: Callable[[DuckDBPyConnection], None]) -> None:
        """Draw all rows and write them by ``CREATE TABLE AS`` or ``INSERT INTO``; call ``then`` in the same transaction."""
        (part,) = self._source.parts
        if order == "keep":
            self._meter.watch(lambda: write_table(self._con, self._reports(part, encoded=True), verb, then), _INTO_TABLE)
            return
        with TemporaryFile(dir=scratch_folder(self._con)) as file:
            self._meter.watch(lambda: self._scatter(part, file))
            reports = self._shuffled(Scattered([file]), range(self.buckets), encoded=True)
            self._meter.watch(lambda: write_table(self._con, reports, verb, then), _INTO_TABLE)

    def _each_part(self, staging: Staging, kind: str, write: Callable[[Part, Path], None]) -> None:
        """Write each part that is not complete into a file of its own."""
        for number, part in enumerate(self._source.parts):
            if staging.done(number, kind):
                self.resumed += 1
                self._meter.skip(part.rows or 0)
                continue
            with staging.new_part(number, kind) as folder:
                self._meter.watch(partial(write, part, folder / file_name(number)))
            self.parts += 1

    def _write(self, form: Form, part: Part, at: Path) -> None:
        form.write(self._con, self._reports(part, encoded=form.kind != "arrow"), at.parent, at.name)

    def _reports(self, part: Part, *, encoded: bool) -> pa.RecordBatchReader:
        """Return the reports of a part, drawn as they are read."""
        reader = self._meter.reports(part, self._compact, self._source.names)
        return self._decoded(reader.schema, reader, encoded=encoded)

    def _scatter(self, part: Part, file: IO[bytes], earlier: Iterable[Path] = ()) -> None:
        """Draw a part into a file, if its columns have types that can be joined with those of earlier files."""
        reader = self._meter.reports(part, self._compact, self._source.names)
        try:
            pa.unify_schemas([*map(schema_of, earlier), reader.schema], promote_options="permissive")
        except pa.ArrowException:
            raise SourceRefused(
                f"a kept column has incompatible types in {part.title} and in an earlier file",
                "cast it in one",
            ) from None
        scatter(until_stopped(self._con, reader), reader.schema, file, self.buckets)

    def _write_shuffled(self, files: list[IO[bytes]], form: Form, staging: Staging) -> None:
        """Write one file, or a folder of files with some buckets each; neither shows which part of the source a row is from."""
        scattered = Scattered(files, staging.folder)
        size = sum(os.fstat(file.fileno()).st_size for file in files)
        outputs = min(self.buckets, 1 + size // FILE_BYTES) if form.folder else 1
        for number in range(outputs):
            if not staging.done(number):
                buckets = range(self.buckets * number // outputs, self.buckets * (number + 1) // outputs)
                reports = self._shuffled(scattered, buckets, encoded=form.kind != "arrow")
                with staging.new_part(number) as folder:
                    form.write(self._con, reports, folder, file_name(number))

    def _shuffled(self, scattered: Scattered, buckets: range, *, encoded: bool) -> pa.RecordBatchReader:
        """Return the reports of some buckets."""
        return self._decoded(scattered.schema, until_stopped(self._con, scattered.shuffled(buckets)), encoded=encoded)

    def _decoded(self, compact: pa.Schema, batches: Iterable[pa.RecordBatch], *, encoded: bool) -> pa.RecordBatchReader:
        """Return the reports that compact batches stand for."""
        schema = self._compact.decoded_schema(compact, encoded=encoded)
        return pa.RecordBatchReader.from_batches(schema, (self._compact.decoded(batch, schema) for batch in batches))
