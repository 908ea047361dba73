"""Functions of SQL in C: every database that the process opens after `open_door` has them.

Some draw: they have the names of functions in Python, and DuckDB prefers them for columns of whole numbers and of text. What
they do not draw in C they leave to the function in Python of the same name. The others, after `offer`, call Python, and DuckDB
shows an error of ldpsql without words of its own before it. See ``door.c`` and `ldpsql.engine.in_c`.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ldpsql.engine.functions import Scalar

FUNCTIONS: dict[str, Callable[..., Any]] = {}  # those in Python by their names in SQL
_IN_C = "ldpsql.engine.in_c"  # loads Arrow, which no connection needs
_LOADED = threading.Event()
_KERNELS = Path(__file__).parents[1] / "channels" / "native" / "kernels.library"  # importing its package would load NumPy
_VERSION = 13  # of the kernels: see channels/native
_DUCKDB = ("v2.0.0", "v2.0.1")  # the versions whose interface in C is known to work


def _answer(address: int) -> None:
    """Answer a vector in Python; nothing is answered if Ctrl-C comes before that."""
    with suppress(KeyboardInterrupt):
        if not _LOADED.is_set() and threading.current_thread() is threading.main_thread():
            loading = threading.Thread(target=_load)
            loading.start()
            loading.join()
        import_module(_IN_C).answered(address, FUNCTIONS)


def _load() -> None:
    """Import what answers need, in a thread that Ctrl-C leaves alone: NumPy cannot be imported again after half an import."""
    import_module(_IN_C)
    import_module("ldpsql.registry.registry").registry()
    _LOADED.set()


def _prepare() -> None:
    """Offer the functions to the database that is being opened, if an earlier process has listed them."""
    if not _OFFERED and not _PREPARING:
        _PREPARING.append(True)
        try:
            import_module("ldpsql.sql.surface").offer()
        except Exception:  # noqa: BLE001  # what is wrong, such as a settings file, is reported when ldpsql attaches
            return
        finally:
            _PREPARING.clear()


# Kept: C may call them as long as the process lives.
_answering = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_answer)
_preparing = ctypes.CFUNCTYPE(None)(_prepare)
_PREPARING: list[bool] = []
_OFFERED: dict[str, _Offered] = {}  # what C holds of each function, by its name
_OFFERING = threading.Lock()  # a second offer would free what databases that have the first one read


class _Offered(ctypes.Structure):
    """A function in Python: ``offered`` of ``door.c``."""

    _fields_ = (("name", ctypes.c_char_p), ("type", ctypes.c_void_p), ("changes", ctypes.c_bool))


def offer(functions: Sequence[Scalar]) -> None:
    """Give every database that the process opens from now on these functions of ldpsql; the first offer stays."""
    library = open_door()
    if isinstance(library, str):
        return
    library.ldpsql_offer.argtypes = (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_char_p)
    library.ldpsql_offer.restype = ctypes.c_bool
    query = f"SELECT {', '.join(f'CAST(NULL AS {one.returns})' for one in functions)}"
    with _OFFERING:
        if _OFFERED:
            return
        offered = (_Offered * len(functions))(*(_Offered(one.name.encode(), None, one.volatile) for one in functions))
        FUNCTIONS.update((one.name, one.function) for one in functions)
        if library.ldpsql_offer(offered, len(functions), query.encode()):
            _OFFERED.update((one.name, kept) for one, kept in zip(functions, offered, strict=True))


def offered() -> frozenset[str]:
    """Return the names of the functions in Python that every database has that is opened from now on."""
    return frozenset(_OFFERED)


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
    enter.argtypes, enter.restype = (ctypes.c_void_p, type(_answering), type(_preparing)), ctypes.c_bool
    return kernels if enter(duckdb._handle, _answering, _preparing) else "DuckDB does not accept functions in C"
