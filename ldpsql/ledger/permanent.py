"""Permanent reports: the same person with the same value gives the same report, today and in a year, and pays for it once.

The random bits of a report are a keyed function (BLAKE2b) of person, column, mechanism and value: one hash a row, for many rows
at a time.

    purpose = BLAKE2b(column, digits of the mechanism and of its channel, exact ratio of the channel; key)
    row     = BLAKE2b(purpose, person, value): 64 bytes, of which the first 48 give random words and the others a fingerprint
    stream  = SHAKE-128(purpose, person, value): as many random words as a set of values needs

Values are numbered in the order of the fingerprint, so that mechanisms that draw alike give the same reports. Without the key
the bits look random. With the key they can be drawn again for every value, so it is as secret as the raw values, and stays in
Python: no statement, plan or message shows it.

The ledger keeps the fingerprint of each person, column, channel and value that was charged, as an account of its own, so that
fingerprints are sealed and written together with what people spent. Without the key, a fingerprint says nothing.
"""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
import tempfile
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import blake2b, shake_128
from pathlib import Path
from typing import NoReturn, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ldpsql.channels import Channel, Codes, Drawn, RepeatedHash
from ldpsql.channels.hashed import hashed
from ldpsql.engine.identity import Identity
from ldpsql.errors import ChangedReports, InternalError, InvalidParameter, KeyUnusable, NotPrivate, PolicyMismatch
from ldpsql.errors.boundary import withheld
from ldpsql.ledger.book import Ledger, Undone
from ldpsql.ledger.entries import (
    ColumnCost,
    Release,
    ReleaseName,
    column_costs,
    now_of,
    policy_of,
    release_digest,
    write_charge,
    write_release,
)
from ldpsql.ledger.file import load, reading, snapshot, store, writing
from ldpsql.ledger.people import DIGEST, People, distinct, keyed_digests, placed, warn_of_alike
from ldpsql.ledger.policy import PERMANENT, ROW, Cost, Policy
from ldpsql.ledger.spending import AccountKey, accounts_of, spend
from ldpsql.mechanisms.base import CertifiedMechanism, CertifiedPairs, CertifiedValues
from ldpsql.privacy.claims import PureLdp, own_epsilon
from ldpsql.registry.agreement import digit_pairs
from ldpsql.registry.documents import fingerprint, order_of
from ldpsql.system import is_shared

_WORDS = 8  # in one BLAKE2b digest
_USED = 6  # of them for draws; the rest stays apart
_SEED = 32  # bytes
_BLOCK = 1 << 12  # rows at a time, which channels draw in step
_CELLS = 1 << 20  # rows times values at a time, which channels draw abreast

RowWords: TypeAlias = NDArray[np.uint64]  # shape (rows, 8)
_Draw: TypeAlias = Callable[[Channel, Codes, NDArray[np.uint64]], Drawn]


@dataclass(frozen=True)
class Keyed:
    """The permanent reports of one column: its name, the mechanism that draws it, and the key."""

    secret: bytes = field(repr=False)
    mechanism: CertifiedValues
    name: str

    def words(self, codes: Codes, people: pa.Array) -> RowWords:
        """Return the words of each row, which are equal if a permanent report of the same person depends on equal values.

        Args:
            codes: the position of each value in the domain, at least one.
            people: the person of each row, as bytes.

        """
        channel = self.mechanism.channel
        numbers = self._symbols(channel, codes, people)[1] if isinstance(channel, RepeatedHash) else self._numbers(codes)
        return _row_words(self._purpose(), numbers, people)

    def draw(self, codes: Codes, people: pa.Array, words: RowWords | None = None) -> Drawn:
        """Return the permanent report of each row in the channel's own terms.

        Args:
            codes: the position of each value in the domain, at least one.
            people: the person of each row, as bytes.
            words: the words of these rows, if they are computed already.

        """
        channel = self.mechanism.channel
        if isinstance(channel, RepeatedHash):
            return self._repeated(channel, codes, people, words)
        if channel.abreast:
            return _abreast(channel, codes, people, self._purpose("stream"))
        order, numbers = order_of(self.mechanism), self._numbers(codes)
        own = _row_words(self._purpose(), numbers, people) if words is None else words
        reports = _drawn(channel, numbers, own, _in_step if channel.in_step else _one_by_one)
        return reports if order is None else order.astype(np.int32)[reports]

    def _repeated(self, channel: RepeatedHash, codes: Codes, people: pa.Array, words: RowWords | None) -> Drawn:
        """Return a report under the seed and the response that each person keeps; only the last response is new."""
        seeds, symbols = self._symbols(channel, codes, people)
        own = _row_words(self._purpose(), symbols, people) if words is None else words
        return channel.repeated(seeds, _drawn(channel.response, symbols, own, _in_step))

    def _symbols(self, channel: RepeatedHash, codes: Codes, people: pa.Array) -> tuple[NDArray[np.uint64], Codes]:
        """Return the seed of each person, and the symbol of the value under it."""
        seeds = np.ascontiguousarray(_row_words(self._purpose("seed"), np.zeros_like(codes), people)[:, 0])
        return seeds, hashed(seeds, codes, channel.response.size)

    def _numbers(self, codes: Codes) -> Codes:
        """Return the number of each value: its place in the order of the fingerprint."""
        order = order_of(self.mechanism)
        if order is None:
            return codes
        places = np.empty(len(order), dtype=np.int32)
        places[order] = np.arange(len(order), dtype=np.int32)
        return places[codes]

    def _purpose(self, *what: str) -> bytes:
        """Return the key of the reports of the column and the channel, or of something else of them."""
        drawn = [self.name, *channel_of(self.mechanism), *what]
        return blake2b(json.dumps(drawn).encode(), key=self.secret, digest_size=_SEED).digest()


def channel_of(mechanism: CertifiedMechanism) -> list[str]:
    """Return what identifies the channel of permanent reports: the digits of the fingerprint, and the exact ratio.

    A new version of a plugin may draw otherwise from the same parameters: then its channel has other digits or another ratio.
    """
    ((own, channel),) = digit_pairs([fingerprint(mechanism.mechanism)])
    return [own, channel, str(mechanism.certificate.ratio)]


def fingerprints_of(words: RowWords) -> NDArray[np.bytes_]:
    """Return 16 bytes a row: the words that no draw uses."""
    return np.ascontiguousarray(words[:, _USED:].astype("<u8", copy=False)).view(DIGEST).ravel()


def _row_words(purpose: bytes, numbers: Codes, people: pa.Array) -> RowWords:
    """Return the words of each row."""
    steps = range(0, len(numbers), _BLOCK)
    messages = (_messages(purpose, numbers[at : at + _BLOCK], people[at : at + _BLOCK]) for at in steps)
    return _matrix(b"".join([b"".join(map(blake2b.digest, map(blake2b, some))) for some in messages]), len(numbers))


def _messages(purpose: bytes, numbers: Codes, people: pa.Array) -> list[bytes]:
    """Return the purpose, the person and the number of each row; only persons differ in length, so no two rows share a message.

    The purpose is secret. As the key of BLAKE2b, instead of the beginning of the message, it would take a block of its own.
    """
    kind, octets = pa.large_binary(), pa.py_buffer(numbers.astype("<u8"))
    values = pa.FixedSizeBinaryArray.from_buffers(pa.binary(8), len(numbers), [None, octets]).cast(kind)
    parts = pa.scalar(purpose, kind), people.cast(kind), values, pa.scalar(b"", kind)
    return pc.binary_join_element_wise(*parts).to_pylist()


def _matrix(digests: bytes, rows: int) -> NDArray[np.uint64]:
    """Return the words of digests of one length, a row each."""
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64, copy=False).reshape(rows, -1)


def _abreast(channel: Channel, codes: Codes, people: pa.Array, purpose: bytes) -> Drawn:
    """Return the report of each row, drawn from a stream of words of its own."""
    needed, step = _needed(channel), max(1, min(_BLOCK, _CELLS // channel.inputs))

    def drawn(at: int) -> Drawn:
        rows, messages = codes[at : at + step], _messages(purpose, codes[at : at + step], people[at : at + step])
        words = _matrix(b"".join([shake_128(row).digest(8 * needed) for row in messages]), len(messages))
        try:
            return channel.draw(rows, _Streams(words))
        except _Uneven:  # keys of a subset are equal, which happens once in 2**40 reports
            sources = [_Streams(_matrix(shake_128(row).digest(64 * needed), 1)) for row in messages]
            return np.concatenate([channel.draw(rows[one : one + 1], source) for one, source in enumerate(sources)])

    return np.concatenate([drawn(at) for at in range(0, len(codes), step)])


def _needed(channel: Channel) -> int:
    """Return how many words a report takes: those that one value takes whose words are all different."""
    counts: list[int] = []

    def counted(count: int) -> NDArray[np.uint64]:
        first = sum(counts)
        counts.append(count)
        return np.arange(first, first + count, dtype=np.uint64)

    channel.draw(np.zeros(1, dtype=np.int32), counted)
    return sum(counts)


def _drawn(channel: Channel, numbers: Codes, words: NDArray[np.uint64], draw: _Draw) -> Drawn:
    """Return the report of each row, some thousand rows at a time."""
    steps = range(0, len(numbers), _BLOCK)
    return np.concatenate([draw(channel, numbers[at : at + _BLOCK], words[at : at + _BLOCK]) for at in steps])


def _in_step(channel: Channel, numbers: Codes, words: NDArray[np.uint64]) -> Drawn:
    return channel.draw(numbers, _Steps(words))


def _one_by_one(channel: Channel, numbers: Codes, words: NDArray[np.uint64]) -> Drawn:
    seeds = words[:, : _SEED // 8].astype("<u8")
    sources = (Stream(seed.tobytes()) for seed in seeds)
    return np.concatenate([channel.draw(numbers[at : at + 1], source) for at, source in enumerate(sources)])


class _Steps:
    """Words of many rows: at each call the next word of every row."""

    def __init__(self, words: NDArray[np.uint64]) -> None:
        self._words, self._next = words, 0

    def __call__(self, count: int) -> NDArray[np.uint64]:
        if count != len(self._words) or self._next == _USED:
            raise InternalError("a channel did not draw its rows in step", "please report the mechanism")
        self._next += 1
        return np.ascontiguousarray(self._words[:, self._next - 1])


class _Uneven(Exception):  # caught in this file
    """A channel asked for words of some rows only, or for more than a report takes."""


class _Streams:
    """Words of many rows: at each call equally many words of every row."""

    def __init__(self, words: NDArray[np.uint64]) -> None:
        self._words, self._next = words, 0

    def __call__(self, count: int) -> NDArray[np.uint64]:
        each, rest = divmod(count, len(self._words))
        first, self._next = self._next, self._next + each
        if rest or self._next > self._words.shape[1]:
            raise _Uneven
        return self._words[:, first : self._next].ravel()


class Stream:
    """Words from a seed: BLAKE2b of 0, 1, 2, ... under it."""

    def __init__(self, seed: bytes) -> None:
        self._seed, self._blocks, self._ahead = seed, 0, b""

    def __call__(self, count: int) -> NDArray[np.uint64]:
        """Return the next words."""
        while len(self._ahead) < 8 * count:
            self._ahead += blake2b(self._blocks.to_bytes(8, "little"), key=self._seed, digest_size=8 * _WORDS).digest()
            self._blocks += 1
        taken, self._ahead = self._ahead[: 8 * count], self._ahead[8 * count :]
        return np.frombuffer(taken, dtype="<u8").astype(np.uint64)


_HEAD = "ldpsql-key-2"
_SIZE = 32


@dataclass(frozen=True)
class Key:
    """A secret key, which its ``repr`` hides. ``fingerprint`` is public and distinguishes it from other keys."""

    secret: bytes = field(repr=False)

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
        key, path = cls(secrets.token_bytes(_SIZE)), Path(path)
        try:
            handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mode 0600
            try:
                with os.fdopen(handle, "w", encoding="ascii") as file:
                    file.write(f"{_HEAD} {key.secret.hex()} {key.fingerprint}\n")
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
        whole = len(parts) == 3 and parts[0] == _HEAD and len(parts[1]) == 2 * _SIZE and _is_hex(parts[1])
        key = cls(bytes.fromhex(parts[1])) if whole else None
        if key is None or parts[2] != key.fingerprint:
            raise KeyUnusable("the key file is damaged, or of another version", "restore it from a backup")
        if fingerprint is not None and fingerprint != key.fingerprint:
            raise KeyUnusable("this is not the key that drew the earlier reports", "use the key file of these reports")
        return key

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
        return Keyed(self.secret, values, name).draw(values.codes(column), people, words)

    @withheld
    def row_words(self, mechanism: CertifiedMechanism, column: pa.Array, people: pa.Array, name: str) -> RowWords:
        """Return the words of each row, which its report and its fingerprint are made of; takes the arguments of `draw`."""
        values = _listed(mechanism)
        return Keyed(self.secret, values, name).words(values.codes(column), people)

    def fingerprints(self, mechanism: CertifiedMechanism, column: pa.Array, people: pa.Array, name: str) -> NDArray[np.bytes_]:
        """Return 16 bytes for each row: equal if person, channel and value are, and for LOLOHA the symbol of the value.

        Takes the arguments of `draw`, and raises what it does.
        """
        return fingerprints_of(self.row_words(mechanism, column, people, name))


def _listed(mechanism: CertifiedMechanism) -> CertifiedValues:
    if not isinstance(mechanism, CertifiedValues):
        what = "sets of pairs" if isinstance(mechanism, CertifiedPairs) else mechanism.over
        raise InvalidParameter(f"{what} cannot have permanent reports", "perturb them once, into a table or a file")
    return mechanism


def _is_hex(text: str) -> bool:
    return set(text) <= set("0123456789abcdef")


@dataclass(frozen=True)
class Reported:
    """The different permanent reports of a column: fingerprints in ascending order, and the person of each, as bytes."""

    certified: CertifiedMechanism
    fingerprints: NDArray[np.bytes_]
    people: pa.Array

    @classmethod
    def of(cls, certified: CertifiedMechanism, fingerprints: NDArray[np.bytes_], people: pa.Array) -> Reported:
        """Return the different reports among those of all rows."""
        different, rows, _ = distinct(fingerprints)
        return cls(certified, different, people.take(pa.array(rows)))

    def unpaid(self, charged: NDArray[np.bytes_], salt: bytes) -> _Unpaid:
        """Return those that were not charged; the fingerprints of those that were are in ascending order."""
        _, new = placed(charged, self.fingerprints)
        people = self.people if new.all() else self.people.filter(pa.array(new))
        channel = blake2b(json.dumps(channel_of(self.certified)).encode(), digest_size=8).hexdigest()
        return _Unpaid(channel, self.fingerprints[new], keyed_digests(people, salt))


@dataclass(frozen=True)
class _Unpaid:
    """Reports of a channel that were not charged: fingerprints in ascending order, and the pseudonym of each person."""

    channel: str
    fingerprints: NDArray[np.bytes_]
    pseudonyms: NDArray[np.bytes_]

    def among(self, chosen: NDArray[np.bool_]) -> _Unpaid:
        """Return some of them."""
        return _Unpaid(self.channel, self.fingerprints[chosen], self.pseudonyms[chosen])


@withheld
def charge_columns_once(
    ledger: Ledger, dataset: str | Identity, columns: Mapping[str, Reported], destination: str, *, trial: bool = False
) -> list[Release]:
    """Record what the permanent reports of columns cost each person; those that were charged before cost nothing.

    The charge is on the disk when this returns, together with the fingerprints of what was charged: of all columns, or of none.

    Args:
        ledger: the ledger, which charges by user.
        dataset: the name of the data, for the history.
        columns: the reports of each column.
        destination: where the reports go, for the history.
        trial: refuse what would be refused now, and record nothing.

    Returns:
        the release of each column; none on trial.

    Raises:
        BudgetExceeded: if somebody's budget would be exceeded; then nothing is charged.
        InvalidParameter: if the ledger charges by row, or a mechanism has no permanent reports.
        LedgerError: if the ledger cannot be used; then nothing may be drawn.

    """
    data = Identity.named(dataset) if isinstance(dataset, str) else dataset
    name = ReleaseName(data.name, "", destination)
    for one in columns.values():
        warn_of_alike(one.people.unique())
    with reading(ledger.path) as db:
        with snapshot(db):
            policy, salt = policy_of(db)
            if policy.privacy_unit == ROW:
                raise InvalidParameter("the ledger charges by row, and permanent reports need persons", "privacy_unit = 'id'")
            costs = [_cost(policy, column, one.certified) for column, one in columns.items()]
            charged = [_charged(db, policy, one.fingerprints) for one in columns.values()]
        # People are hashed here, as others wait while this process writes.
        unpaid = [one.unpaid(before, salt) for one, before in zip(columns.values(), charged, strict=True)]
        with suppress(Undone), writing(db):
            if policy_of(db) != (policy, salt):
                raise PolicyMismatch("the policy of the ledger was changed meanwhile", "try again")
            tokens = [
                _charge(db, policy, cost, reports, name, source=data.source)
                for cost, reports in zip(costs, unpaid, strict=True)
            ]
            if trial:
                raise Undone
    if trial:
        return []
    return [Release(token, *name, "charged") for token in tokens]


def _warn_if_changed(db: sqlite3.Connection, token: str, column: str, dataset: str, drawn: str) -> None:
    """Warn if the reports of a column were last charged for another channel."""
    latest = """SELECT r.identity FROM release r JOIN charge c ON c.release = r.id
        WHERE r.token <> ? AND c.column_name = ? AND r.dataset = ? AND r.identity GLOB ? ORDER BY r.id DESC LIMIT 1"""
    before = db.execute(latest, [token, column, dataset, f"{PERMANENT} ???????????????? *"]).fetchone()
    if before is not None and before[0].removeprefix(f"{PERMANENT} ").partition(" ")[0] != drawn:
        warnings.warn(
            f"the permanent reports of the column '{column}' were charged for another mechanism before: people get new ones",
            ChangedReports,
            stacklevel=7,
        )


def _kept(policy: Policy) -> AccountKey:
    """Return the key of the account that holds the fingerprints."""
    return AccountKey(policy.privacy_unit, "", "", PERMANENT)


def _charged(db: sqlite3.Connection, policy: Policy, fingerprints: NDArray[np.bytes_]) -> NDArray[np.bytes_]:
    """Return charged fingerprints, including all of these that were charged; an empty array before the first charge."""
    kept = accounts_of(db, [""], _kept(policy), made=False)
    return load(db, kept[0], fingerprints, DIGEST) if kept else np.empty(0, dtype=DIGEST)


def _charge(
    db: sqlite3.Connection, policy: Policy, cost: ColumnCost, unpaid: _Unpaid, name: ReleaseName, *, source: str
) -> str:
    """Charge for reports unless others charged them meanwhile, within a transaction, and return the token of the release."""
    (kept,) = accounts_of(db, [""], _kept(policy))
    before = load(db, kept, unpaid.fingerprints, DIGEST)
    at, unknown = placed(before, unpaid.fingerprints)
    new, now = unpaid.among(unknown), now_of(db)
    pseudonyms, _, reports = distinct(new.pseudonyms)
    people = People(pseudonyms, reports)
    identity = f"{PERMANENT} {new.channel} {release_digest(policy, people, name, {})}"
    token = write_release(db, now, identity, name, people, source=source)
    account_key = AccountKey(policy.privacy_unit, "", cost.group, cost.cost.currency)
    for account in accounts_of(db, [""], account_key):
        if len(people.reports):
            spend(db, account, people, cost.cost, policy, now=now)
        write_charge(db, token, cost, account)
    if len(people.reports):
        store(db, kept, np.insert(before, at[unknown], new.fingerprints))
        _warn_if_changed(db, token, cost.column, name.dataset, new.channel)
    return token


def _cost(policy: Policy, column: str, certified: CertifiedMechanism) -> ColumnCost:
    """Return the cost of all reports of one value; of LOLOHA, that of the response that is kept."""
    cost, *others = column_costs(policy, {column: certified.mechanism})
    if others:
        raise InvalidParameter(
            f"the columns of the row '{column}' have budgets of their own, and permanent reports of a whole row have one",
            "perturb the columns one by one",
        )
    if not isinstance(certified.channel, RepeatedHash):
        return cost
    claim = permanent_claim(certified)
    return replace(cost, claim=f"{claim} for all reports of a symbol", cost=Cost.of(claim))


def permanent_claim(certified: CertifiedMechanism) -> PureLdp:
    """Return the claim of all reports of LOLOHA that share the response that is kept."""
    claim = PureLdp(own_epsilon(getattr(certified.mechanism, "permanent", None)))
    if not isinstance(certified.channel, RepeatedHash) or certified.channel.response.widest().ratio > claim.limit:
        raise NotPrivate("the permanent response does not keep its epsilon", "use a mechanism that check_mechanism accepts")
    return claim
