"""Errors that leave a public function, without the frames and the exceptions that hold columns.

A traceback keeps the local variables of every frame, and services that collect errors transmit them. So each public function
that sees values or user ids raises its errors from the caller's own frame: `withheld` for a function, `withheld_stream` for an
iterator that draws while it is read, `withheld_block` for a ``with`` block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from inspect import signature
from pathlib import Path
from traceback import walk_tb
from types import TracebackType
from typing import Generic, ParamSpec, TypeVar

import duckdb

from ldpsql.errors import (
    ChangedReports,
    FetchedReports,
    InternalError,
    LdpError,
    PrivacyLeakWarning,
    UnchargedReports,
    UnmarkedReports,
)
from ldpsql.errors.wording import restated

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
