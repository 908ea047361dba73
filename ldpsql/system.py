"""What differs between operating systems: locks on folders, files on the disk and who may read them, the user's folders.

A lock ends with the process, however that ends. Where there is flock, the folder itself is locked. Windows locks files only:
there it is a file next to the folder, which the system deletes when it is closed.
"""

from __future__ import annotations

import os
import stat
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

    def is_safe(_: Path) -> bool:
        """Return whether only this user may put files into a folder: so it is for the user's own folders on Windows."""
        return True

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

    def is_safe(folder: Path) -> bool:
        """Return whether only this user, and root, may put files into a folder or replace it or one of those above it."""
        own = folder.resolve(strict=True)
        above = all(_is_fixed(one.lstat()) for one in own.parents)
        return above and own.stat().st_uid == os.geteuid() and not own.stat().st_mode & 0o077

    def _is_fixed(folder: os.stat_result) -> bool:
        """Return whether no other user may replace what a folder contains: in one with the sticky bit, only its owner may."""
        private_group = folder.st_gid == folder.st_uid  # a group of this user alone, as most distributions make them
        others = stat.S_IWOTH if private_group else stat.S_IWOTH | stat.S_IWGRP
        return folder.st_uid in (0, os.geteuid()) and not (folder.st_mode & others and not folder.st_mode & stat.S_ISVTX)

    def synced(path: Path) -> None:
        """Wait until a file or a folder is on the disk."""
        _flush(path, os.O_RDONLY)


def _flush(path: Path, mode: int) -> None:
    handle = os.open(path, mode)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def settings_folder() -> Path:
    """Return the user's folder for the settings of programs."""
    return _folder("XDG_CONFIG_HOME", ".config", "Application Support", "APPDATA")


def cache_folder() -> Path:
    """Return the user's folder for what programs can make again."""
    return _folder("XDG_CACHE_HOME", ".cache", "Caches", "LOCALAPPDATA")


def _folder(variable: str, unix: str, mac: str, windows: str) -> Path:
    home = Path(os.path.expanduser("~"))  # Path.home() raises where there is none
    if sys.platform == "win32":
        return Path(os.environ.get(windows) or home)
    if sys.platform == "darwin":
        return home / "Library" / mac
    chosen = os.environ.get(variable, "")
    return Path(chosen) if Path(chosen).is_absolute() else home / unix


def private_bytes(path: Path) -> bytes:
    """Return the content of a file that only this user may read or write.

    Raises:
        OSError: if it cannot be read, is a link, or if others may use it.

    """
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(handle, "rb") as file:
        if not is_own(handle) or is_shared(handle):
            raise PermissionError(f"other users may write {path.name}")
        return file.read()
