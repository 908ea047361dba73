"""Functions of SQL that draw in C: every database that the process opens after `open_door` has them.

They have the names of functions in Python, and DuckDB prefers them for columns of whole numbers and of text. What they do not
draw in C they leave to the function in Python of the same name: see ``door.c`` and `ldpsql.engine.in_c`.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

FUNCTIONS: dict[str, Callable[..., Any]] = {}  # those in Python by their names in SQL
_KERNELS = Path(__file__).parents[1] / "channels" / "native" / "kernels.library"  # importing its package would load NumPy
_VERSION = 6  # of the kernels: see channels/native
_DUCKDB = ("v2.0.0", "v2.0.1")  # the versions whose interface in C is known to work


def _draw(address: int) -> int:
    """Draw a vector in Python; return whether that was possible."""
    from ldpsql.engine.in_c import drawn_in_python  # noqa: PLC0415  # loads Arrow, which no connection needs

    return drawn_in_python(address, FUNCTIONS)


_in_python = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(_draw)  # kept: C may call it as long as the process lives


@cache
def open_door() -> ctypes.CDLL | str:
    """Give every database that the process opens from now on the functions; return their library, or why there is none."""
    import _duckdb  # noqa: PLC0415  # slow to import; it is the library of DuckDB that calls the functions

    if os.environ.get("LDPSQL_NATIVE") == "0":
        return "LDPSQL_NATIVE is 0"
    try:
        kernels, duckdb = ctypes.CDLL(str(_KERNELS)), ctypes.CDLL(_duckdb.__file__)
        duckdb.duckdb_library_version.restype = ctypes.c_char_p
        version = duckdb.duckdb_library_version().decode()
        kernels.ldpsql_version.restype = ctypes.c_uint32
        if kernels.ldpsql_version() != _VERSION:
            return "the kernels are of another version of ldpsql"
        enter = kernels.ldpsql_open_door
    except (OSError, AttributeError):
        return "there are no kernels, or no DuckDB that can call them"
    if version not in _DUCKDB:
        return f"DuckDB {version} is not known to call functions in C correctly: {', '.join(_DUCKDB)}"
    enter.argtypes, enter.restype = (ctypes.c_void_p, type(_in_python)), ctypes.c_bool
    return kernels if enter(duckdb._handle, _in_python) else "DuckDB does not accept functions in C"
