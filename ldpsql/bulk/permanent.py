"""Permanent reports of a run: the same person with the same value gives the same report, today and in a year."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from duckdb import DuckDBPyConnection
from numpy.typing import NDArray

from ldpsql.bulk.reading.unchanged import changed
from ldpsql.channels import Drawn
from ldpsql.domains.columns import plain
from ldpsql.errors import InvalidParameter, KeyUnusable, WrongType
from ldpsql.ledger.configured import configured_key
from ldpsql.ledger.digests import all_among
from ldpsql.ledger.guard import keys_of
from ldpsql.ledger.keyed import RowWords, fingerprints_of
from ldpsql.ledger.people import id_bytes
from ldpsql.ledger.permanent import Key
from ldpsql.ledger.policy import ROW
from ldpsql.mechanisms.base import CertifiedMechanism

if TYPE_CHECKING:
    from ldpsql.bulk.charging import Charge


_AHEAD = 1 << 27  # bytes of words that are kept between the charge and the draw


class Ahead:
    """The words of batches from their charge to their draw, so that these are not hashed twice: of the first batches only."""

    def __init__(self, limit: int = _AHEAD) -> None:
        self._left, self._kept = limit, dict[bytes, RowWords]()

    def put(self, content: bytes, words: RowWords) -> None:
        """Keep the words of a batch if there is room for them."""
        if content not in self._kept and words.nbytes <= self._left:
            self._left -= words.nbytes
            self._kept[content] = words

    def take(self, content: bytes) -> RowWords | None:
        """Return the words of a batch, which are kept no longer; None if they are not kept."""
        return self._kept.pop(content, None)


@dataclass(frozen=True)
class Permanent:
    """The key and the column of user ids of permanent reports.

    ``charged`` has the fingerprints of each column that was charged, in ascending order; no other report is drawn then. If what
    is charged is drawn here too, its words are in ``ahead`` until then.
    """

    key: Key
    user: str
    charged: dict[str, NDArray[np.bytes_]] = field(default_factory=dict)
    ahead: Ahead | None = field(default=None, repr=False)

    def people(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the person of each row, as bytes.

        Raises:
            WrongType: if the column has a type such as UUID, which is text unless the column is kept.

        """
        users = batch.column(self.user)
        if isinstance(users.type, pa.BaseExtensionType):
            raise WrongType(
                "user ids of permanent reports must be strings, bytes or whole numbers", "cast the column of user ids"
            )
        return id_bytes(users)

    def fingerprints(self, certified: CertifiedMechanism, values: pa.Array, people: pa.Array, name: str) -> NDArray[np.bytes_]:
        """Return the fingerprint of each report of the column of this name."""
        column = plain(values)
        words = self.key.row_words(certified, column, people, name)
        if self.ahead is not None:
            self.ahead.put(_content(column, people, name), words)
        return fingerprints_of(words)

    def draw(self, certified: CertifiedMechanism, values: pa.Array, people: pa.Array, name: str) -> Drawn:
        """Return the permanent reports of a column in the channel's own terms.

        Raises:
            SourceRefused: if one was not charged.

        """
        if not len(values):
            return certified.draw(values)
        column = plain(values)
        words = self._words(certified, column, people, name) if name in self.charged else None
        return self.key.draw(certified, column, people, name, words)

    def _words(self, certified: CertifiedMechanism, column: pa.Array, people: pa.Array, name: str) -> RowWords:
        """Return the words of rows that were charged: those of a batch that is as it was, or else compared one by one."""
        words = None if self.ahead is None else self.ahead.take(_content(column, people, name))
        if words is None:
            words = self.key.row_words(certified, column, people, name)
            if not all_among(self.charged[name], fingerprints_of(words)):
                raise changed()
        return words


def _content(column: pa.Array, people: pa.Array, name: str) -> bytes:
    """Return a digest of the rows of a column and of their people.

    A stream holds their types and the values of dictionaries, too, which the buffers of a batch alone leave out.
    """
    batch, written = pa.record_batch([column, people], ["value", "person"]), pa.BufferOutputStream()
    with pa.ipc.new_stream(written, batch.schema) as stream:
        stream.write_batch(batch)
    return blake2b(written.getvalue(), key=blake2b(name.encode(), digest_size=32).digest()).digest()


def is_permanent(*, permanent: bool, key: object, user: object) -> bool:
    """Return whether the arguments of a run ask for permanent reports.

    Raises:
        InvalidParameter: if there is a key or a column of user ids without them.

    """
    if not permanent and not (key is None and user is None):
        raise InvalidParameter("a key and a column of user ids are for permanent reports", "permanent=True")
    return permanent


def permanent_of(
    key: Key | str | Path | None,
    user: str | None,
    charge: Charge | None,
    con: DuckDBPyConnection | None = None,
) -> Permanent:
    """Return the permanent reports of a run from its arguments.

    Args:
        key: the key or the path of its file; by default that of a connection with a ledger, else that of the settings.
        user: the column of user ids; by default that of the charge.
        charge: the charge of the run.
        con: the connection of the run, if it has one.

    Raises:
        KeyUnusable: if there is no key, or it cannot be used.
        InvalidParameter: if there is no column of user ids, or the charge is by other people, or for a part of the data.

    """
    chosen = _default_key(con) if key is None else opened(key)
    unit = None if charge is None else charge.user or charge.ledger.policy.privacy_unit
    user = unit if user is None else user
    if not isinstance(user, str) or user == ROW:
        raise InvalidParameter("permanent reports need the column of user ids", "user='id'")
    if charge is not None and charge.user not in (None, user):
        raise InvalidParameter("permanent reports are charged to the people who give them", "name the same column of user ids")
    if charge is not None and charge.part:
        raise InvalidParameter("permanent reports are charged once, over all parts of the data", "leave out part")
    return Permanent(chosen, user, ahead=Ahead())


def opened(key: object) -> Key:
    """Return a key, read if it is the path of a file.

    Raises:
        KeyUnusable: if the file cannot be used.
        InvalidParameter: if it is neither a key nor a path.

    """
    chosen = Key.read(key) if isinstance(key, str | Path) else key
    if not isinstance(chosen, Key):
        raise InvalidParameter("a key must be a path or an opened key", "Key.read(path)")
    return chosen


def _default_key(con: DuckDBPyConnection | None) -> Key:
    keys = [] if con is None else keys_of(con)
    key = keys[0] if len(keys) == 1 else configured_key()
    if key is None:
        raise KeyUnusable(
            "there is no key for permanent reports", "pass key='people.key', or write key in [ledger] of ldpsql.toml"
        )
    return key
