"""DuckDB's messages, reduced to words that cannot be raw values.

A message about a statement repeats names that the user typed, and also names that come from data: the labels of an ENUM, the
columns of a PIVOT, of a struct or of a CSV file without a header, and the text passed to ``query(...)``. So a message keeps a
word only if the user typed it or if it belongs to DuckDB's own sentences; any other word becomes ``…``.
"""

from __future__ import annotations

import re
import sys
from types import TracebackType
from typing import Any

import duckdb

from ldpsql.errors import LdpError, SourceRefused

_OF_STATEMENTS = (
    duckdb.ParserException,
    duckdb.SyntaxException,
    duckdb.CatalogException,
    duckdb.BinderException,
    duckdb.PermissionException,
    duckdb.IOException,
    duckdb.ConnectionException,
    duckdb.OutOfMemoryException,
    duckdb.TransactionException,
    duckdb.NotImplementedException,
)
_OURS = re.compile(
    r"[\w ]+: (Python exception [\w ]+: \w+:\s+)?\[(LDP\d{3})\] (.*?)\.?(?: Hint: (.*?)\.?)?(?:\n\nLINE \d+: .*)?", re.DOTALL
)
_CALLS_ERROR = re.compile(r"\berror\s*\(", re.IGNORECASE)
_SUGGESTED = re.compile(r"\n+(Did you mean:? \"[\w.]+\"\??)", re.DOTALL)  # in a CatalogException, from the catalog
_APPENDED = re.compile(r"\s*(Candidate (?!functions)\w+:|Did you mean|LINE \d+:).*", re.DOTALL)
_ECHO = re.compile(r"\n\nLINE (\d+): (.*)\n *\^+", re.DOTALL)
_SIGNATURES = re.compile(r"\n\tCandidate functions:.*", re.DOTALL)  # of functions, not of columns
_WORD = re.compile(r"[\w\x80-\U0010ffff]+")
_QUOTED = re.compile(r'("[^"]*")')
_GAPS = re.compile(r"…(?:[^\w\s]*\s*…)+")
_SENTENCES = """
    a able about access add added after aggregate alias aliases all allocate allowed already alter ambiguous an and any
    any_value appear arg argument arguments array as at attach attached available base be because been before begin bind
    binder bit but by bytes call called can cannot case cast casts catalog cause check clause clauses close closed column
    columns combine commit concurrent config configuration conflict connect connection constant constraint contain contains
    context convert copy correlated could count create created current data database databases default define defined
    definition delete denied depend depends detach differ directory disabled disk distinct do does drop duplicate each
    either element empty enable encountered end entries entry enum error exact exceeded except exclude execute exist
    existing exists expect expected explicit expression expressions extension external failed fewer field file files filter
    find first for format found from function functions generated get given global group grouping handle has have having
    height if implement implemented important in index information input insert inserted install instance instead integer
    interval into invalid io is it its join json key keyword lambda lambdas lateral limit list load local lock macro macros
    main many map match matches matching maximum may mean memory might missing mode more multiple must name named names near
    need needs nested never no node none not null number object of offset on once one only open opened opening operation
    operator option options or order ordering other out outer output over parameter parameters parse parser part partition
    path pattern permission pivot please position possible pragma prepared primary qualified query quotes read reading
    recursive reference referenced references regular rename replace required requires reserved result return returned
    returning returns row rows same scalar schema schemas search select sequence serialize server set setting settings side
    size specified specify statement statements string struct subqueries subquery such supplied support supported syntax
    system table tables temp temporary than that the there this to too transaction try trying type types unable under union
    unique unknown unnest unpivot unrecognized unsupported update use used using valid value values variable view views was
    wants were when where which while window with within without would write writing you your bigint bignum blob boolean
    date decimal double float hugeint integer_literal smallint string_literal time timestamp tinyint tz ubigint uhugeint
    uinteger usmallint utinyint uuid varchar zone
"""  # the words of DuckDB's messages, of its types and of its clauses
_DUCKDB = frozenset(_SENTENCES.split())


def of_sql(error: duckdb.Error, typed: str = "") -> LdpError | None:
    """Return an error of ldpsql that SQL raised, as Python raises it.

    Args:
        error: the error that DuckDB raised.
        typed: the text that the user wrote.

    Returns:
        None for any other error, and for one that may be of the function ``error()`` in the text.

    """
    quoted = _OURS.fullmatch(str(error).strip()) if isinstance(error, duckdb.InvalidInputException) else None
    if quoted is None or (quoted[1] is None and _CALLS_ERROR.search(typed)):
        return None
    kind = next((kind for kind in _tree(LdpError) if kind.code == quoted[2]), LdpError)
    made = kind.__new__(kind)
    LdpError.__init__(made, quoted[3], quoted[4] or "")
    return made


def _tree(kind: type[LdpError]) -> list[type[LdpError]]:
    return [kind, *(leaf for below in kind.__subclasses__() for leaf in _tree(below))]


def without_values(error: duckdb.Error, typed: str) -> str | None:
    """Return DuckDB's message about a statement, which the user typed, without raw values; None if it may be about data."""
    if not isinstance(error, _OF_STATEMENTS):
        return None
    message = str(error).strip()
    suggestion = _SUGGESTED.search(message) if isinstance(error, duckdb.CatalogException) else None
    signatures, echo = _SIGNATURES.search(message), _ECHO.search(message)
    # Only words that were typed are left and, outside of double quotes, words of DuckDB's sentences.
    names = {word.casefold() for word in _WORD.findall(typed)}
    parts = _QUOTED.split(_APPENDED.sub("", _SIGNATURES.sub("", message)))
    sentence = "".join(_kept(part, names if place % 2 else names | _DUCKDB) for place, part in enumerate(parts))
    if suggestion and "…" not in sentence:  # a suggestion resembles the word that is left out
        sentence += f"\n{suggestion[1]}"
    if echo and echo[2].strip(". ") in typed:
        sentence += echo[0]
    return sentence + (signatures[0] if signatures else "")


def restated(error: duckdb.Error, typed: str) -> Exception:
    """Return an error of DuckDB without raw values: of the same class if it is about a statement, else one with its kind."""
    if of_sql(error, typed):
        return error
    message = without_values(error, typed)
    return type(error)(message) if message is not None else SourceRefused(*withheld_message(error))


def withheld_message(error: BaseException) -> tuple[str, str]:
    """Return a message with only the kind of an error, and a hint."""
    kind = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(error).__name__.removesuffix("Exception").removesuffix("Error")).lower()
    source = "DuckDB" if isinstance(error, duckdb.Error) else "a library"
    hint = "its message may show raw values; run the statement in DuckDB itself to read it"
    return f"{source} stopped with an error of the kind '{kind}'", hint


def _kept(text: str, allowed: frozenset[str] | set[str]) -> str:
    return _GAPS.sub("…", _WORD.sub(lambda word: word[0] if word[0].casefold() in allowed else "…", text))


# Errors in notebooks: ``%load_ext ldpsql`` shows those that ldpsql raises in SQL as one sentence, without a traceback.
#
# JupySQL shows any error of DuckDB, except one about the catalog or the syntax, with the frames of its own code: 58 lines.


def load_ipython_extension(shell: Any) -> None:
    """Show errors that ldpsql raises in SQL as one sentence in this notebook; IPython calls this for ``%load_ext ldpsql``."""
    shell.set_custom_exc((duckdb.Error,), _show)


def _show(
    shell: Any,
    kind: type[BaseException],
    error: duckdb.Error,
    traceback: TracebackType | None,
    tb_offset: int | None = None,
) -> None:
    """Write an error of ldpsql as one line, as IPython does with its own UsageError; leave any other to IPython."""
    if ours := of_sql(error):
        print(ours, file=sys.stderr)
    else:
        shell.showtraceback((kind, error, traceback), tb_offset=tb_offset)
