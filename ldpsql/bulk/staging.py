"""A folder beside the destination in which reports are written, and from which they are published by renaming.

    .NAME.ldpsql/state.json        what is being done, written before the first draw
    .NAME.ldpsql/part-00000.tmp/   a part that is being written
    .NAME.ldpsql/part-00000/       a part that is complete and on the disk; it is never drawn again
    .NAME.ldpsql/whole/            all parts, about to be renamed to NAME

A file gets its suffix only when all parts are complete: until then no pattern such as ``**/*.parquet`` finds anything here.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ldpsql.errors import DestinationExists, DestinationRefused, UnfinishedRun


class Staging:
    """The staging folder of a destination, locked: only one process works in it."""

    def __init__(self, destination: Path, suffix: str, handle: int) -> None:
        self.destination = destination
        self._folder, self._suffix, self._handle = staging_folder(destination), suffix, handle
        self._whole = self._folder / "whole"

    @classmethod
    @contextmanager
    def at(cls, destination: Path, suffix: str) -> Iterator[Staging]:
        """Lock the staging folder of a destination; ``suffix`` is what its files get in the end.

        Complete parts stay in it until `remove`, the rest goes.

        Raises:
            DestinationRefused: where there can be none.
            UnfinishedRun: where another process works in it.

        """
        handle = _locked(staging_folder(destination))
        staging = cls(destination, suffix, handle)
        try:
            yield staging
        finally:
            staging._leave()
            os.close(handle)

    def begin(self, task: Mapping[str, Any], *, replace: bool, resume: bool) -> str | None:
        """Return the release of the run that is resumed, None where there is none.

        Raises:
            DestinationExists: where something is at the destination that is not to be replaced.
            UnfinishedRun: where there is an earlier run that cannot be resumed, or that nobody said what to do with.

        """
        state = self._state()
        if state is None or (replace and not resume):
            self._clear()
            if self.destination.exists() and not replace:
                raise DestinationExists(*exists(self.destination.name))
            return None
        if not resume:
            raise UnfinishedRun(
                "an earlier run to this destination was not finished",
                "go on with it: --resume, resume=True; or begin anew: --replace, replace=True",
            )
        if state["task"] != json.loads(json.dumps(task)):
            raise UnfinishedRun(
                "the unfinished run had other inputs, columns or mechanisms", "begin anew: --replace, in Python replace=True"
            )
        if self.destination.exists() and not (state["replace"] or state.get("publishing")):
            raise DestinationExists(*exists(self.destination.name))
        return str(state["release"])

    def _state(self) -> dict[str, Any] | None:
        file = self._folder / "state.json"
        return dict(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else None

    def _clear(self) -> None:
        for inside in self._folder.iterdir():
            shutil.rmtree(inside) if inside.is_dir() else inside.unlink()

    def write_state(self, state: Mapping[str, Any]) -> None:
        """Write down what is done; it is on the disk when this returns."""
        made = self._folder / "state.tmp"
        made.write_text(json.dumps(state), encoding="utf-8")
        synced(made)
        made.rename(self._folder / "state.json")
        synced(self._folder)
        synced(self._folder.parent)

    def done(self, part: int) -> bool:
        """Whether a part is complete."""
        return self._part(part).exists()

    @contextmanager
    def new_part(self, part: int) -> Iterator[Path]:
        """Give a new folder to be filled; the part is complete when all its files are on the disk."""
        made = self._part(part).with_suffix(".tmp")
        shutil.rmtree(made, ignore_errors=True)  # of a run that was killed; nothing of it has left
        made.mkdir()
        yield made
        for file in [*made.rglob("*"), made]:
            synced(file)
        made.rename(self._part(part))
        synced(self._folder)

    def _part(self, part: int) -> Path:
        return self._folder / f"part-{part:05}"

    def publish(self, *, one_file: bool) -> None:
        """Put the complete parts where they belong; after a kill it goes on where it stopped."""
        state = self._state() or {}
        if not state.get("publishing"):
            self.write_state(state | {"publishing": True})
        staged = next(self._part(0).iterdir(), None) if one_file else self._assembled()
        if staged is None:  # it was renamed before the kill
            return
        if self.destination.exists() and not state["replace"]:
            raise DestinationExists(*exists(self.destination.name))
        if self.destination.is_dir() or (self.destination.exists() and staged.is_dir()):  # a file gives way to a file only
            self.destination.rename(self._folder / "replaced")
        staged.replace(self.destination)
        synced(self.destination.parent)

    def _assembled(self) -> Path | None:
        """Move the files of all parts into one folder; None where that folder has been published."""
        waiting = [file for part in sorted(self._folder.glob("part-?????")) for file in part.rglob("*") if file.is_file()]
        if not waiting and not self._whole.exists():
            return None
        self._whole.mkdir(exist_ok=True)
        for file in waiting:
            inside = file.relative_to(self._folder)
            target = self._whole.joinpath(*inside.parts[1:]).with_suffix(self._suffix)
            target.parent.mkdir(parents=True, exist_ok=True)
            file.rename(target)
        for folder in (self._whole, *(inside for inside in self._whole.rglob("*") if inside.is_dir())):
            synced(folder)
        return self._whole

    def remove(self) -> None:
        """Remove the folder and all that is in it."""
        shutil.rmtree(self._folder)
        synced(self._folder.parent)

    def _leave(self) -> None:
        """Keep complete parts for a run that resumes, and nothing else."""
        if self._folder.exists():
            for made in self._folder.glob("part-*.tmp"):
                shutil.rmtree(made)
            if not any(self._folder.glob("part-*")):
                self.remove()


def staging_folder(destination: Path) -> Path:
    """Return where the reports for a destination are written."""
    return destination.parent / f".{destination.name}.ldpsql"


def _locked(folder: Path) -> int:
    """Make a folder and lock it; the lock ends with the process."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        raise DestinationRefused("the destination cannot be written", "its folder must exist and be writable") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise UnfinishedRun("another run is writing to this destination", "wait for its end") from None
    if folder.exists() and os.fstat(handle).st_ino == folder.stat().st_ino:
        return handle
    os.close(handle)  # its last owner removed it just now
    return _locked(folder)


def exists(name: str) -> tuple[str, str]:
    """Return the words of a refusal."""
    return (
        f"there is something at the destination already: {name}",
        "choose another, or replace it: --replace, in Python replace=True",
    )


def synced(path: Path) -> None:
    """Wait until a file or a folder is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
