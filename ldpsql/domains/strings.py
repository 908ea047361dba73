"""Strings that are too many to list: at most so many bytes, each from an alphabet."""

from __future__ import annotations

import codecs
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ldpsql.channels import Letters
from ldpsql.domains.columns import family, plain
from ldpsql.domains.domain import MISSING, Domain, in_rows
from ldpsql.domains.sql_types import shown_type
from ldpsql.errors import MissingValue, OutsideDomain, WrongType
from ldpsql.errors.boundary import withheld

UTF8 = bytes([*range(0xC0), *range(0xC2, 0xF5)])  # the bytes that can occur
_OUTSIDE = (
    "a string to be perturbed is longer than max_bytes, or has a character that is not among the declared ones",
    "raise max_bytes, add to characters, or write outside := 'as:STRING' in the mechanism",
)


@dataclass(frozen=True)
class Strings:
    """The strings of at most ``length`` bytes of an alphabet, whose bytes are its letters.

    A character of several bytes adds all of them to the alphabet. Letters are numbered from 1, in the order of their bytes; 0
    stands after the end of a string.

    >>> Strings(4, b"abc").letters(pa.array(["cab", "", None]))[0].tolist()
    [[3, 1, 2, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    """

    length: int
    alphabet: bytes
    _listed: Domain = field(init=False, repr=False, compare=False, default_factory=lambda: Domain(pa.array([], pa.string())))

    @property
    def listed(self) -> Domain:
        """The values that can be listed: none."""
        return self._listed

    @cached_property
    def _number(self) -> NDArray[np.uint8]:
        """The number of each byte as a letter, 0 if it is not in the alphabet."""
        out = np.zeros(256, dtype=np.uint8)
        out[np.frombuffer(self.alphabet, dtype=np.uint8)] = np.arange(1, len(self.alphabet) + 1)
        return out

    def position(self, text: str) -> Letters | None:
        """Return the letters of one string, None if it does not fit."""
        letters, fits = self.letters(pa.array([text]))
        return letters[0] if fits[0] else None

    def letters(self, column: pa.Array) -> tuple[Letters, NDArray[np.bool_]]:
        """Return the letters of plain strings, shape (strings, length), and which strings fit; NULL counts as empty."""
        text = column.cast(pa.large_binary())
        _, offsets, data = text.buffers()
        ends = np.frombuffer(offsets, np.int64)[text.offset :][: len(text) + 1]
        sizes = np.diff(ends)
        if text.null_count:
            sizes = np.where(text.is_null().to_numpy(zero_copy_only=False), 0, sizes)
        fits = sizes <= self.length
        octets = np.frombuffer(data or b"", np.uint8)
        out = np.zeros((len(text), self.length), dtype=np.uint8)
        for place in range(int(sizes[fits].max(initial=0))):
            rows = np.flatnonzero(fits & (sizes > place))
            out[rows, place] = self._number[octets[ends[rows] + place]]
            fits[rows] = out[rows, place] > 0
        out[~fits] = 0
        return out, fits

    @withheld
    def codes(
        self, column: pa.Array | pa.ChunkedArray, *, null: Letters | None = None, outside: Letters | None = None
    ) -> Letters:
        """Return the letters of every string; ``null`` stands for NULL, ``outside`` for strings that do not fit.

        Raises:
            WrongType: if the column does not hold text.
            MissingValue: for a NULL without ``null``.
            OutsideDomain: for a string that does not fit without ``outside``.

        """
        texts = _texts(plain(column))
        missing = texts.is_null().to_numpy(zero_copy_only=False)
        if null is None and missing.any():
            raise MissingValue(*in_rows(MISSING, missing))
        letters, fits = self.letters(texts)
        if outside is None and not fits.all():
            raise OutsideDomain(*in_rows(_OUTSIDE, ~fits))
        letters[~fits] = 0 if outside is None else outside
        letters[missing] = 0 if null is None else null
        return letters

    def text(self, letters: Letters) -> str | None:
        """Return the letters of a whole string as text, None if they are not text in UTF-8."""
        try:
            return self._bytes(letters).decode()
        except UnicodeDecodeError:
            return None

    def begins(self, letters: Letters) -> bool:
        """Return whether text in UTF-8 can begin with these letters."""
        try:
            codecs.getincrementaldecoder("utf-8")().decode(self._bytes(letters))
        except UnicodeDecodeError:
            return False
        return True

    def _bytes(self, letters: Letters) -> bytes:
        return bytes(self.alphabet[letter - 1] for letter in letters.tolist() if letter)


def _texts(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_null(column.type):
        return column.cast(pa.string())
    if family(column.type) != "text":
        raise WrongType(f"the column has type {shown_type(column.type)}, the mechanism perturbs text", "cast it to VARCHAR")
    return column
