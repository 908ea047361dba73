"""Errors that leave a public function: without frames that hold columns, and in words that cannot be raw values.

A traceback keeps the local variables of every frame, and services that collect errors transmit them. So each public function
that sees values or user ids raises its errors from the caller's own frame: `withheld` for a function, `withheld_stream` for an
iterator that draws while it is read, `withheld_block` for a ``with`` block.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from inspect import signature
from pathlib import Path
from traceback import walk_tb
from types import TracebackType
from typing import Any, Generic, ParamSpec, TypeVar

import duckdb

from ldpsql.errors import (
    ChangedReports,
    FetchedReports,
    InternalError,
    LdpError,
    PrivacyLeakWarning,
    SourceRefused,
    UnchargedReports,
    UnmarkedReports,
)

# DuckDB's messages, reduced to words that cannot be raw values.
#
# A message about a statement repeats names that the user typed, and also names that come from data: the labels of an ENUM,
# the columns of a PIVOT, of a struct or of a CSV file without a header, and the text passed to ``query(...)``. So a message
# keeps a word only if the user typed it or if it belongs to DuckDB's own sentences; any other word becomes ``…``.

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
    """Return an error of DuckDB as ours if it is, else without raw values: of the same class if it is about a statement."""
    if ours := of_sql(error, typed):
        return ours
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


P = ParamSpec("P")
R = TypeVar("R")
_END = object()


def withheld(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function whose errors carry none of its frames, and no message that may contain a raw value."""

    @wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> R:
        try:
            return function(*args, **options)
        except BaseException as error:  # noqa: BLE001  # of any exception, the frames stay here
            refusal = _unfit(function, error, args, options) or bare(error, function.__name__, _texts((args, options)))
        del args, options
        raise refusal  # outside of the handler, so that no other exception is attached

    return call


def withheld_stream(function: Callable[P, Iterator[R]]) -> Callable[P, Iterator[R]]:
    """Return a generator function whose errors carry none of its frames, at any time while it is read."""

    @wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> Iterator[R]:
        iterator = function(*args, **options)
        del args, options
        step = withheld(lambda: next(iterator, _END))
        while (item := step()) is not _END:
            yield item  # type: ignore[misc]  # an item of the iterator, since it is not the end
            del item

    return call


def withheld_block(function: Callable[P, Iterator[R]]) -> Callable[P, AbstractContextManager[R]]:
    """Return a context manager from a generator: its own errors carry none of its frames; errors of the block are unchanged."""
    opened = contextmanager(function)

    @wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> AbstractContextManager[R]:
        return _Block(opened(*args, **options))

    return call


class _Block(AbstractContextManager[R], Generic[R]):
    def __init__(self, inner: AbstractContextManager[R]) -> None:
        self._inner = inner

    @withheld
    def __enter__(self) -> R:
        return self._inner.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return withheld(self._inner.__exit__)(kind, error, traceback)


@contextmanager
def replaced(refusal: Callable[[Exception], LdpError]) -> Iterator[None]:
    """Replace an error of another system within a ``with`` block: its message may hold values. Errors of ldpsql pass."""
    try:
        yield
    except LdpError:
        raise
    except Exception as error:  # noqa: BLE001  # whatever another system raises
        replacement = refusal(error)
    else:
        return
    raise replacement from None


def bare(error: BaseException, name: str, typed: str = "") -> BaseException:
    """Return the error that may leave a function: the same without frames and causes, or one that withholds the message.

    Args:
        error: the exception that was raised.
        name: the name of the function.
        typed: the text that the caller wrote, such as names of tables and columns: DuckDB's message may repeat it.

    """
    refusal = _stated(error, name, typed)
    refusal.__cause__ = refusal.__context__ = None
    return refusal.with_traceback(None)


def _stated(error: BaseException, name: str, typed: str) -> BaseException:
    if isinstance(error, KeyboardInterrupt):
        return KeyboardInterrupt()
    # Warnings are raised if a filter turns them into errors.
    ours = LdpError | ChangedReports | FetchedReports | PrivacyLeakWarning | UnchargedReports | UnmarkedReports
    if not isinstance(error, Exception) or isinstance(error, ours | duckdb.InterruptException):
        return error
    if isinstance(error, duckdb.Error):
        return restated(error, typed)
    if isinstance(error, OSError) and error.errno is not None:  # a message of the system; without a number it is Arrow's
        return error
    if isinstance(error, TypeError) and error.__traceback__ is not None and error.__traceback__.tb_next is None:
        return error  # the call does not fit the signature: the message has names of parameters
    return internal(error, name)


def _unfit(
    function: Callable[..., object], error: BaseException, args: tuple[object, ...], options: dict[str, object]
) -> TypeError | None:
    """Return the error of a call that does not fit the signature, also of a function that others wrap; None if it fits."""
    if not isinstance(error, TypeError):
        return None
    try:
        signature(function).bind(*args, **options)
    except TypeError as misfit:  # its message has names of parameters
        return TypeError(f"{function.__name__}(): {misfit}")
    return None


def internal(error: Exception, name: str) -> InternalError:
    """Return an error with the place in the code where an unexpected exception was raised; its message is withheld."""
    frames = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    file, line = frames[-1] if frames else ("", 0)
    place = f"{type(error).__name__} in {Path(file).name}, line {line}"
    return InternalError(f"{name} failed: {place}", "please report how it was called, without the data")


def _texts(arguments: object) -> str:
    """Return the strings among the arguments of a call: names of tables and columns, mechanisms; no columns of values."""
    if isinstance(arguments, str | Path):
        return str(arguments)
    if isinstance(arguments, dict):
        return _texts((*arguments.keys(), *arguments.values()))
    return "\n".join(map(_texts, arguments)) if isinstance(arguments, tuple) else ""
