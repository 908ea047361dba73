"""Folders on the disk: they are locked, and only what a run wrote is deleted."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ldpsql import system
from ldpsql.errors import DestinationRefused, LdpError, UnfinishedRun

_PUBLISHED = re.compile(r"([^/]+=[^/]*/)*part-\d{5,}(_\d+)?(\.tmp|\.parquet)?")  # what a run writes into a folder


@contextmanager
def disk_refusals() -> Iterator[None]:
    """Within a ``with`` block, raise DestinationRefused if the file system fails: its own message may name folders."""
    try:
        yield
    except OSError:
        raise DestinationRefused(
            "the disk refused to write, to synchronise or to rename",
            "check the disk; then go on with the run: --resume, or resume=True",
        ) from None


def locked_folder(folder: Path) -> int:
    """Create a folder unless it exists, lock it, and return its handle; the lock ends with the process.

    Raises:
        DestinationRefused: if the folder cannot be created, or is a link or another user's.
        UnfinishedRun: if another process has locked it.

    """
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        handle = system.opened(folder)
    except OSError:
        raise _no_folder(folder) from None
    try:
        _lock(folder, handle)
    except LdpError:
        os.close(handle)
        raise
    if system.stands_for(folder, handle):
        return handle
    os.close(handle)  # the last owner of the lock removed the folder in the meantime
    return locked_folder(folder)


def _lock(folder: Path, handle: int) -> None:
    if not system.is_own(handle):
        raise _no_folder(folder)
    try:
        system.lock(handle)
    except BlockingIOError:
        raise UnfinishedRun("another run is writing to this destination", "wait until it has ended") from None
    except OSError:
        raise DestinationRefused("the destination's file system cannot lock folders", "write to a local disk") from None


def _no_folder(folder: Path) -> DestinationRefused:
    return DestinationRefused(
        f"the destination cannot be written, or {folder.name} next to it is a link or another user's folder",
        "the destination's folder must exist and be writable",
    )


def foreign_files(folder: Path) -> int:
    """Return how many files in a folder were not written by a run, judging by their names; 0 if it is not a folder."""
    if not folder.is_dir():
        return 0
    inside = [path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir() or not any(path.iterdir())]
    return sum(path.is_symlink() or not _PUBLISHED.fullmatch(path.relative_to(folder).as_posix()) for path in inside)


def delete(path: Path) -> None:
    """Delete what a run wrote; files that somebody else put into a folder that is being replaced stay there."""
    if path.is_symlink() or not path.is_dir():
        path.unlink()
    elif path.name != "replaced" or not foreign_files(path):
        shutil.rmtree(path)
