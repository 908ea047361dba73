"""Where Spark writes: a folder of any file system of Hadoop, and next to it one for what waits to be shuffled."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ldpsql.errors import DestinationExists, SparkRefused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OWNER_ONLY = "700"


class Destination:
    """A folder that is to be written."""

    def __init__(self, session: SparkSession, into: str) -> None:
        self._hadoop = session._jvm.org.apache.hadoop.fs
        path = self._hadoop.Path(into)
        self._files = path.getFileSystem(session._jsparkSession.sessionState().newHadoopConf())
        self._path = self._files.makeQualified(path)

    @property
    def name(self) -> str:
        """The full path with its file system, by which a ledger recognises the folder."""
        return str(self._path.toString())

    def check(self, frame: DataFrame, *, replace: bool) -> None:
        """Check that the folder does not exist, or may be replaced.

        Raises:
            DestinationExists: if it exists and ``replace`` is false.
            SparkRefused: if the frame reads files that would be replaced.

        """
        if not replace and self._files.exists(self._path):
            raise DestinationExists("the folder to write exists", "choose another one, or pass replace=True")
        own = f"{self._path.toString()}/"
        if any(f"{self._hadoop.Path(file).toString()}/".startswith(own) for file in frame.inputFiles()):
            raise SparkRefused("the frame reads the folder that it would be written into", "write another folder")

    @contextmanager
    def temporary(self) -> Iterator[str]:
        """Yield a folder next to the destination, for its owner only if the file system has owners; delete it at the end."""
        name = f".{self._path.getName()}.ldpsql-{secrets.token_hex(8)}"
        path = self._hadoop.Path(self._path.getParent(), name)
        try:
            self._files.mkdirs(path)
            self._files.setPermission(path, self._hadoop.permission.FsPermission(_OWNER_ONLY))
            yield self._hadoop.Path(path, "drawn").toString()
        finally:
            self._files.delete(path, True)
