"""SQL text as DuckDB's own tokenizer reads it: statements, the functions that they call, macros, constants.

The tokenizer never fails, and it takes for comments and strings exactly what DuckDB takes for them.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import duckdb

_TO_MACRO = {"create", "or", "replace", "temp", "temporary", "macro", "function", "if", "not", "exists"}
_DOLLARS = re.compile(r"\$\w*\$")
_NOT_IN_NAMES = re.compile(r"[^\w$]")  # DuckDB skips the blanks of all scripts, Python's strip() only some of them


@dataclass(frozen=True, slots=True)
class Token:
    """A word, sign, constant or comment; ``offset`` is its first byte in the UTF-8 text."""

    kind: duckdb.token_type
    text: str
    offset: int

    @property
    def is_name(self) -> bool:
        """Return whether this can be a name: an identifier, or a keyword, which may also name a function."""
        return self.kind in (duckdb.token_type.identifier, duckdb.token_type.keyword)

    @property
    def is_string(self) -> bool:
        """Return whether this is a string constant."""
        return self.kind is duckdb.token_type.string_const

    @property
    def name(self) -> str:
        """Return the name in lowercase, without its quotes."""
        if self.text[:1] in ('"', "`"):
            return self.text[1:-1].replace('""', '"').lower()
        return _NOT_IN_NAMES.sub("", self.text).lower()

    @property
    def constant(self) -> str:
        """Return the text of a string constant; that of ``E'...'`` keeps its backslashes, which do not matter for names."""
        if dollars := _DOLLARS.match(self.text):
            return self.text[dollars.end() : -dollars.end()]
        return self.text.partition("'")[2].removesuffix("'").replace("''", "'")


@dataclass(frozen=True)
class Statement:
    """One SQL statement: its text, its first line, and its tokens without comments."""

    sql: str
    line: int
    tokens: tuple[Token, ...]

    @cached_property
    def calls(self) -> frozenset[str]:
        """Return the names before a parenthesis, in lowercase: the functions that are called, and possibly others."""
        return frozenset(token.name for token, after in pairwise(self.tokens) if token.is_name and after.text.startswith("("))

    @cached_property
    def strings(self) -> list[str]:
        """Return the string constants."""
        return [token.constant for token in self.tokens if token.is_string]

    @cached_property
    def words(self) -> list[str]:
        """Return the names and keywords at the beginning, in lowercase, up to the first sign."""
        signs = (i for i, token in enumerate(self.tokens) if not token.is_name)
        return [token.name for token in self.tokens[: next(signs, None)]]

    @cached_property
    def macro(self) -> str | None:
        """Return the name of the macro that this statement creates, or None if it creates none."""
        if self.words[:1] != ["create"] or not {"macro", "function"} & set(self._head(_TO_MACRO)):
            return None
        opening = next((i for i, token in enumerate(self.tokens) if token.text.startswith("(")), 0)
        return self.tokens[opening - 1].name

    @cached_property
    def body(self) -> Statement:
        """Return what follows the name of the macro that this statement creates: its parameters and its definition."""
        opening = next((i for i, token in enumerate(self.tokens) if token.text.startswith("(")), 0)
        return Statement("", self.line, self.tokens[opening:])

    def after(self, word: str) -> str:
        """Return the text after the first such keyword, or an empty string."""
        behind = next((after for token, after in pairwise(self.tokens) if token.is_name and token.name == word), None)
        return "" if behind is None else self.sql.encode()[behind.offset - self.tokens[0].offset :].decode()

    def only_constants(self, function: str, *, or_calls: tuple[str, ...]) -> bool:
        """Return whether the argument of every call of a function is a string constant, or a call of one of others."""
        calls = [i for i, token in enumerate(self.tokens) if token.is_name and token.name == function]
        return all(
            self._is_constant(i + 2) or self._is_call(i + 2, or_calls)
            for i in calls
            if len(self.tokens) > i + 1 and self.tokens[i + 1].text.startswith("(")
        )

    def _is_constant(self, place: int) -> bool:
        """Return whether a string constant and a closing parenthesis are at a place."""
        at = self.tokens[place : place + 2]
        return len(at) == 2 and at[0].is_string and at[1].text.startswith(")")

    def _is_call(self, place: int, functions: tuple[str, ...]) -> bool:
        """Return whether a call of one of these functions is at a place, with or without its schema."""
        at = itertools.takewhile(lambda token: token.is_name or token.text == ".", self.tokens[place:])
        return "".join([token.name for token in at if token.is_name][-1:]) in functions

    def _head(self, words: set[str]) -> list[str]:
        """Return the words at the beginning that belong to a set."""
        others = (i for i, word in enumerate(self.words) if word not in words)
        return self.words[: next(others, None)]


def statements(sql: str) -> list[Statement]:
    """Return the statements of a text, each with its first line."""
    encoded = sql.replace("\0", " ").encode("utf-8", "replace")
    read, begun, made = _tokens(encoded), 0, []
    for i, token in enumerate(read):
        if token.text.startswith(";"):
            made.append(_statement(encoded, read[begun:i], token.offset))
            begun = i + 1
    made.append(_statement(encoded, read[begun:], len(encoded)))
    return [statement for statement in made if statement.tokens]


def _tokens(encoded: bytes) -> list[Token]:
    """Return the tokens of a text, without comments."""
    marks = duckdb.tokenize(encoded.decode())
    ends = [*(offset for offset, _ in marks), len(encoded)][1:]
    return [
        Token(kind, encoded[offset:end].decode("utf-8", "replace").strip(), offset)
        for (offset, kind), end in zip(marks, ends, strict=False)
        if kind is not duckdb.token_type.comment
    ]


def _statement(encoded: bytes, tokens: list[Token], end: int) -> Statement:
    """Return the statement made of these tokens; ``end`` is the byte of the text after it."""
    start = tokens[0].offset if tokens else end
    return Statement(encoded[start:end].decode("utf-8", "replace"), encoded[:start].count(b"\n") + 1, tuple(tokens))
