"""Permanent reports in Spark: each worker reads the key from its file, and only fingerprints travel to the driver."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ldpsql.bulk.charging import Charge, is_permanent, permanent_of, reported_in
from ldpsql.bulk.columns import Permanent, Projection
from ldpsql.errors import InvalidParameter
from ldpsql.errors.boundary import withheld_stream
from ldpsql.ledger.digests import DIGEST, SIZE
from ldpsql.ledger.permanent import Key
from ldpsql.ledger.permanent_charges import Reported
from ldpsql.mechanisms.base import Mechanism, certify

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SCHEMA = pa.schema([("name", pa.string()), ("fingerprint", pa.binary()), ("person", pa.binary())])
_COLUMNS = "name string, fingerprint binary, person binary"


@dataclass(frozen=True)
class KeyFile:
    """The path of a key, which must be the same file on every worker, its fingerprint, and the column of user ids."""

    path: str
    fingerprint: str
    user: str

    @classmethod
    def of(cls, path: str | Path, user: str) -> KeyFile:
        """Return the file of a key.

        Raises:
            KeyUnusable: if it cannot be used.

        """
        return cls(str(Path(path).absolute()), Key.read(path).fingerprint, user)

    def permanent(self) -> Permanent:
        """Return the permanent reports under the key, which is read here."""
        return Permanent(Key.read(self.path, self.fingerprint), self.user)


def key_file(charge: Charge | None, *, permanent: bool, key: str | Path | None, user: str | None) -> KeyFile | None:
    """Return the key file of permanent reports, None if the reports are not permanent.

    Raises:
        InvalidParameter: as `permanent_of` does, or if the key is not a path.

    """
    if not is_permanent(permanent=permanent, key=key, user=user):
        return None
    if not isinstance(key, str | Path):
        raise InvalidParameter("workers read the key of permanent reports from its file", "key='people.key'")
    return KeyFile.of(key, permanent_of(key, user, charge).user)


def reported(frame: DataFrame, projection: Projection, file: KeyFile) -> dict[str, Reported]:
    """Return the distinct permanent reports of each column of a frame, without the values."""
    compute = partial(_fingerprints, mechanisms=projection.uncertified, file=file)
    made = frame.select(*projection.read(frame.columns)).mapInArrow(compute, _COLUMNS).distinct().toArrow()
    return {name: _of_column(made, name, mechanism) for name, mechanism in projection.uncertified.items() if len(made)}


def _of_column(made: pa.Table, name: str, mechanism: Mechanism) -> Reported:
    rows = made.filter(pc.field("name") == name)
    fingerprints = np.array(rows.column("fingerprint").to_pylist(), dtype=DIGEST)
    return Reported.of(certify(mechanism), fingerprints, rows.column("person").combine_chunks().cast(pa.large_binary()))


@withheld_stream
def _fingerprints(
    batches: Iterable[pa.RecordBatch], mechanisms: Mapping[str, Mechanism], file: KeyFile
) -> Iterator[pa.RecordBatch]:
    projection = Projection.of(mechanisms, (), file.permanent())
    for batch in batches:
        for name, one in reported_in(projection, [batch]).items():
            fingerprints = pa.array([bytes(each).ljust(SIZE, b"\0") for each in one.fingerprints.tolist()], pa.binary())
            names = pa.array([name] * len(fingerprints), pa.string())
            yield pa.RecordBatch.from_arrays([names, fingerprints, one.people.cast(pa.binary())], schema=_SCHEMA)
