"""Count the rows of a run for its progress, and keep its errors as they were before DuckDB reworded them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

import pyarrow as pa

from ldpsql.bulk.columns.projection import Projection
from ldpsql.bulk.reading.parts import Part
from ldpsql.errors import DestinationRefused, LdpError, SourceRefused

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
