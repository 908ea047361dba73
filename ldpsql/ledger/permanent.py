"""Permanent reports: the same person with the same value gives the same report, today and in a year.

The random bits of a report are a keyed function (BLAKE2b) of person, column, mechanism and value. Keys have a version: those
of version 1 also read the order and the types of a domain and the rules for NULL, those of version 2 only what the fingerprint
of the mechanism reads, the digits of its channel, and the exact ratio of the channel. Without the key the bits cannot be
distinguished from random bits. With the key they can be drawn again for every value, so it is as secret as the raw values, and
stays in Python: no statement, plan or message shows it.
"""

from __future__ import annotations

import json
import os
import secrets
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import NoReturn

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels import Codes, Drawn, RepeatedHash
from ldpsql.channels.randomness import Words
from ldpsql.errors import InvalidParameter, KeyUnusable
from ldpsql.errors.boundary import withheld
from ldpsql.ledger.keyed import Keyed, RowWords, Stream, fingerprints_of
from ldpsql.mechanisms.base import CertifiedMechanism, CertifiedPairs, CertifiedValues
from ldpsql.system import is_shared

_HEADS = {"ldpsql-key-1": 1, "ldpsql-key-2": 2}
_SIZE = 32


@dataclass(frozen=True)
class Key:
    """A secret key, which its ``repr`` hides. ``fingerprint`` is public and distinguishes it from other keys.

    A file keeps the ``version`` with which it was made, so that its reports stay the same; new files have the latest one.
    """

    secret: bytes = field(repr=False)
    version: int = 1

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: a pickle is a file or a message with the secret in it."""
        raise KeyUnusable("a key cannot be sent to another process", "read it from its file there")

    @property
    def fingerprint(self) -> str:
        """A public number that identifies the key."""
        return blake2b(b"fingerprint", key=self.secret, digest_size=8).hexdigest()

    @classmethod
    def create(cls, path: str | Path) -> Key:
        """Make a key file, readable by its owner only.

        Raises:
            KeyUnusable: if the file exists, or cannot be made.

        """
        key, path = cls(secrets.token_bytes(_SIZE), max(_HEADS.values())), Path(path)
        try:
            handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mode 0600
            try:
                with os.fdopen(handle, "w", encoding="ascii") as file:
                    file.write(f"{list(_HEADS)[key.version - 1]} {key.secret.hex()} {key.fingerprint}\n")
                    file.flush()
                    os.fsync(file.fileno())
                os.link(name, path)  # unlike a rename, refuses to replace another key
            finally:
                with suppress(OSError):
                    Path(name).unlink()
        except FileExistsError:
            raise KeyUnusable("the key file already exists", "choose another path: a replaced key is lost") from None
        except OSError:
            raise KeyUnusable("the key file cannot be made", "its folder must exist and be writable") from None
        return key

    @classmethod
    def read(cls, path: str | Path, fingerprint: str | None = None) -> Key:
        """Read a key file.

        Raises:
            KeyUnusable: if it is missing, damaged, readable by others, or not the key of that fingerprint.

        """
        try:
            with Path(path).open(encoding="ascii") as file:
                shared = is_shared(file.fileno())
                parts = file.read(200).split()
        except FileNotFoundError:
            raise KeyUnusable(
                f"there is no key file {path}",
                "restore it: a new key gives everybody new reports; ldpsql budget new-key makes the first",
            ) from None
        except (OSError, UnicodeDecodeError):
            raise KeyUnusable("the key file cannot be read", "restore it from a backup") from None
        if shared:
            raise KeyUnusable("the key file can be read by others", "chmod 600, and consider who may have read it")
        whole = len(parts) == 3 and parts[0] in _HEADS and len(parts[1]) == 2 * _SIZE and _is_hex(parts[1])
        key = cls(bytes.fromhex(parts[1]), _HEADS[parts[0]]) if whole else None
        if key is None or parts[2] != key.fingerprint:
            raise KeyUnusable("the key file is damaged", "restore it from a backup")
        if fingerprint is not None and fingerprint != key.fingerprint:
            raise KeyUnusable("this is not the key that drew the earlier reports", "use the key file of these reports")
        return key

    def words(self, person: bytes, purpose: bytes, value: int) -> Words:
        """Return the source of random words for one report: always the same words in the same order."""
        parts = (purpose, person, value.to_bytes(8, "little"))
        message = b"".join(len(part).to_bytes(8, "little") + part for part in parts)
        return Stream(blake2b(message, key=self.secret, digest_size=_SIZE).digest())

    @withheld
    def draw(
        self,
        mechanism: CertifiedMechanism,
        column: pa.Array,
        people: pa.Array,
        name: str,
        words: RowWords | None = None,
    ) -> Drawn:
        """Return the permanent report of each row, in the channel's own terms; no report depends on the other rows.

        Args:
            mechanism: the mechanism that draws.
            column: the values, at least one.
            people: the person of each value, as bytes.
            name: the name of the column. Two columns with the same name and mechanism give equal reports for equal values.
            words: what `row_words` returned for these arguments, if it was called.

        Raises:
            InvalidParameter: if the mechanism is over sets of pairs or unlisted strings, which are too many to number.

        """
        values = _listed(mechanism)
        codes = values.codes(column)
        if self.version == 1 and not isinstance(values.channel, RepeatedHash):
            return self._drawn_one_by_one(values, codes, people, name)
        return Keyed(self.secret, values, name).draw(codes, people, words)

    @withheld
    def row_words(self, mechanism: CertifiedMechanism, column: pa.Array, people: pa.Array, name: str) -> RowWords:
        """Return the words of each row, which its report and its fingerprint are made of.

        Takes the arguments of `draw`, and raises what `fingerprints` does.
        """
        if self.version == 1:
            raise KeyUnusable("a ledger cannot recognise the permanent reports of a key of ldpsql 0.1.0", "make a new key")
        values = _listed(mechanism)
        return Keyed(self.secret, values, name).words(values.codes(column), people)

    def fingerprints(self, mechanism: CertifiedMechanism, column: pa.Array, people: pa.Array, name: str) -> NDArray[np.bytes_]:
        """Return 16 bytes for each row: equal if person, channel and value are, and for LOLOHA the symbol of the value.

        Takes the arguments of `draw`.

        Raises:
            KeyUnusable: if the key is of version 1, whose reports can differ for one value of a channel.
            InvalidParameter: as `draw` does.

        """
        return fingerprints_of(self.row_words(mechanism, column, people, name))

    def _drawn_one_by_one(self, mechanism: CertifiedValues, codes: Codes, people: pa.Array, name: str) -> Drawn:
        column_and_mechanism = json.dumps([name, mechanism.mechanism.to_json()], sort_keys=True, default=str).encode()
        purpose = blake2b(column_and_mechanism, digest_size=_SIZE).digest()
        rows = zip(people.to_pylist(), codes.tolist(), strict=True)
        sources = (self.words(person, purpose, value) for person, value in rows)
        return np.concatenate([mechanism.channel.draw(codes[at : at + 1], source) for at, source in enumerate(sources)])


def _listed(mechanism: CertifiedMechanism) -> CertifiedValues:
    if not isinstance(mechanism, CertifiedValues):
        what = "sets of pairs" if isinstance(mechanism, CertifiedPairs) else mechanism.over
        raise InvalidParameter(f"{what} cannot have permanent reports", "perturb them once, into a table or a file")
    return mechanism


def _is_hex(text: str) -> bool:
    return set(text) <= set("0123456789abcdef")
