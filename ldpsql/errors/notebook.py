"""Errors in notebooks: ``%load_ext ldpsql`` shows those that ldpsql raises in SQL as one sentence, without a traceback.

JupySQL shows any error of DuckDB, except one about the catalog or the syntax, with the frames of its own code: 58 lines.
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

import duckdb

from ldpsql.errors.wording import of_ldpsql, of_macro


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
    if quoted := of_ldpsql(error) or of_macro(error, typed=""):
        code, message, hint = quoted.groups()
        print(f"[{code}] {message}." + (f" Hint: {hint}." if hint else ""), file=sys.stderr)
    else:
        shell.showtraceback((kind, error, traceback), tb_offset=tb_offset)
