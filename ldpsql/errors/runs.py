"""LDP5xx: a connection, a source or a destination cannot be used."""

from __future__ import annotations

from ldpsql.errors.base import LdpError


class ConnectionRefused(LdpError):
    """The functions could not be attached to this connection.

    Cause: The object is not an open DuckDB connection, or a database or schema of yours has the name ``ldp``.
    Remedy: Pass ``duckdb.connect(...)``, or choose another name: ``ldpsql.attach(con, name='dp')``.
    """

    code = "LDP501"


class SourceRefused(LdpError):
    """A table or a file does not exist, or cannot be read as requested.

    Cause: The path or the name is wrong, the file is not of the expected kind, or it changed during the run.
    Remedy: Correct the name, and run again while nobody writes to the source.
    """

    code = "LDP520"
    exit_code = 5


class DestinationExists(LdpError):
    """The destination of the reports already exists.

    Cause: A file, a folder or a table of this name is there.
    Remedy: Choose another name, or pass ``replace=True`` (``--replace``).
    """

    code = "LDP521"


class UnfinishedRun(LdpError):
    """An earlier run to this destination has not finished, or is still running.

    Cause: A run was stopped before it published, or another process is still writing.
    Remedy: Continue with ``resume=True`` (``--resume``), or start again with ``replace=True`` (``--replace``).
    """

    code = "LDP522"


class DestinationRefused(LdpError):
    """The reports cannot be written as requested.

    Cause: The folder contains other files, the disk is full, or the table has other columns.
    Remedy: Choose another destination, or correct what the message names.
    """

    code = "LDP523"


class SparkRefused(LdpError):
    """Spark cannot, or must not, do this.

    Cause: A setting of Spark would draw reports twice, or Spark lacks the type of the reports.
    Remedy: Change the setting or the mechanism that the message names, or use ``ldpsql.perturb_copy``.
    """

    code = "LDP530"
