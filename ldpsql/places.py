"""Places that hold rows: paths of this machine, and URLs such as ``s3://bucket/people.parquet``.

DuckDB reads a URL. If it has no extension for the scheme, fsspec opens it, as it writes all of them.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any

from duckdb import DuckDBPyConnection

from ldpsql.errors import SourceRefused

_SCHEME = re.compile(r"\A([A-Za-z][A-Za-z0-9+.-]+):///?")
_COLLAPSED = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/(?=[^/])")  # what pathlib makes of a URL
_LOCAL = re.compile(r"file:(//(localhost)?)?(?=/)", re.IGNORECASE)
_SECRETS = re.compile(r"(?<=://)[^/]*@|\?.*|#.*", re.DOTALL)
_WEB = ("http", "https")
_EXTENSIONS = dict.fromkeys((*_WEB, "s3", "s3a", "s3n", "gs", "gcs", "r2", "hf"), "httpfs") | dict.fromkeys(
    ("az", "azure", "abfs", "abfss"), "azure"
)  # of DuckDB, by scheme
DATABASES = ("postgresql", "postgres", "sqlite", "snowflake", "bigquery")  # schemes of databases that ldpsql opens itself
SCHEMES = frozenset({"file", *_EXTENSIONS, *DATABASES})  # none of these can be a plugin's
_PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "http": "aiohttp", "https": "aiohttp"}  # of fsspec


@dataclass(frozen=True)
class Place:
    """A path of this machine, or a URL."""

    text: str

    @classmethod
    def of(cls, given: str | os.PathLike[str]) -> Place:
        """Return the place of a path or a URL; ``file:///people.csv`` is a path, and a `Path` of a URL is the URL."""
        text = _LOCAL.sub("", os.fspath(given), count=1)
        if not isinstance(given, str) and _COLLAPSED.match(text) and not os.path.exists(text):
            text = text.replace(":/", "://", 1)
        return cls(_SCHEME.sub(lambda match: f"{match[1].lower()}://", text, count=1))

    def __fspath__(self) -> str:
        return self.text

    @property
    def scheme(self) -> str:
        """The scheme of a URL in lowercase; '' for a path."""
        match = _SCHEME.match(self.text)
        return match[1].lower() if match else ""

    @property
    def is_url(self) -> bool:
        """Whether this is a URL."""
        return bool(self.scheme)

    @property
    def shown(self) -> str:
        """The place without the user and the query of a URL, which may hold secrets."""
        return _SECRETS.sub("", self.text) if self.is_url else self.text

    @property
    def path(self) -> PurePosixPath | Path:
        """The path, with the name and the suffixes of the file; of a URL without its secrets."""
        return PurePosixPath(self.shown) if self.is_url else Path(self.text)

    @property
    def is_pattern(self) -> bool:
        """Whether it stands for several files; the ``?`` of an address on the web begins its query."""
        return bool(re.search(r"[*\[]" if self.scheme in _WEB else r"[*?\[]", self.text))

    def absolute(self) -> Place:
        """Return the place with an absolute path; a URL is absolute."""
        return self if self.is_url else Place(os.path.abspath(self.text))

    def state(self) -> tuple[object, ...] | None:
        """Return what distinguishes a file or a folder from what replaces it; None if there is none.

        Raises:
            SourceRefused: if nothing opens the URL.

        """
        if self.is_url:
            with suppress(FileNotFoundError):
                return (str(self.files_system().ukey(self.text)),)
            return None
        with suppress(OSError):
            status = os.stat(self.text)
            return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
        return None

    def below(self) -> Place:
        """Return the pattern of the Parquet files below a folder."""
        if self.is_url:
            return Place(f"{self.text.rstrip('/')}/**/*.parquet")
        return Place(os.path.join(self.text, "**", "*.parquet"))

    def files_system(self) -> Any:
        """Return fsspec's file system of a URL."""
        package = _PACKAGES.get(self.scheme, "adlfs" if _EXTENSIONS.get(self.scheme) == "azure" else "fsspec")
        try:
            return import_module("fsspec").filesystem(self.scheme)
        except (ImportError, ValueError):
            problem = f"nothing here opens URLs of the scheme '{self.scheme}'"
        raise SourceRefused(problem, f"python -m pip install 'ldpsql[urls]' {package}")

    def open_to(self, con: DuckDBPyConnection) -> None:
        """Let a connection read a URL: by an extension that it has, by a file system registered before, or by fsspec.

        Raises:
            SourceRefused: if nothing opens it.

        """
        if not self.is_url or con.filesystem_is_registered(self.scheme):
            return
        installed = "SELECT 1 FROM duckdb_extensions() WHERE installed AND extension_name = ?"
        with con.cursor() as cursor:
            if not cursor.execute(installed, [_EXTENSIONS.get(self.scheme, "")]).fetchall():
                files = self.files_system()
                if type(files).modified is import_module("fsspec").AbstractFileSystem.modified:  # as on the web
                    files.modified = partial(_changed_at, files)
                con.register_filesystem(files)


def _changed_at(files: Any, url: str) -> datetime:
    """Return a time that differs if the server says that the content does: DuckDB asks when a file changed."""
    said = files.info(url)
    marks = repr([said.get(name) for name in ("ETag", "Content-MD5", "Digest", "Last-Modified")])
    return datetime.fromtimestamp(int.from_bytes(blake2b(marks.encode(), digest_size=4).digest()), UTC)


def pattern_of(path: str) -> str:
    """Return the pattern of the Parquet files below a folder; any other path as it is."""
    return Place(path).below().text if os.path.isdir(path) else path
