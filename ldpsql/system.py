"""What differs between operating systems in locks on folders, in files on the disk and in who may read them.

A lock ends with the process, however that ends. Where there is flock, the folder itself is locked. Windows locks files only:
there it is a file next to the folder, which the system deletes when it is closed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

if sys.platform == "win32":
    import msvcrt

    def opened(folder: Path) -> int:
        """Return a handle that stands for a folder; a link is refused."""
        if folder.is_symlink():
            raise NotADirectoryError
        return os.open(folder.with_name(f"{folder.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_TEMPORARY)

    def lock(handle: int) -> None:
        """Lock a handle, or raise BlockingIOError if another process has."""
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            raise BlockingIOError from None

    def is_own(_: int) -> bool:
        """Return whether the folder is this user's: Windows lets others write only where they may."""
        return True

    def stands_for(folder: Path, _: int) -> bool:
        """Return whether the folder is still there."""
        return folder.is_dir()

    def is_shared(_: int) -> bool:
        """Return whether others may read a file: not known on Windows, where its folder decides."""
        return False

    def synced(path: Path) -> None:
        """Wait until a file is on the disk; Windows takes care of folders by itself."""
        if not path.is_dir():
            _flush(path, os.O_RDWR)

else:
    import fcntl

    def opened(folder: Path) -> int:
        """Return a handle of a folder; a link is refused."""
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)

    def lock(handle: int) -> None:
        """Lock a handle, or raise BlockingIOError if another process has."""
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def is_own(handle: int) -> bool:
        """Return whether the folder is this user's."""
        return os.fstat(handle).st_uid == os.geteuid()

    def stands_for(folder: Path, handle: int) -> bool:
        """Return whether the handle is that of the folder which is there now."""
        return folder.exists() and os.fstat(handle).st_ino == folder.stat().st_ino

    def is_shared(handle: int) -> bool:
        """Return whether others may read or write a file."""
        return bool(os.fstat(handle).st_mode & 0o077)

    def synced(path: Path) -> None:
        """Wait until a file or a folder is on the disk."""
        _flush(path, os.O_RDONLY)


def _flush(path: Path, mode: int) -> None:
    handle = os.open(path, mode)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
