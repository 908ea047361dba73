"""A folder next to the destination, in which reports are written and from which they are published by renaming.

    .NAME.ldpsql/state.json        the task of the run, written before the first draw
    .NAME.ldpsql/drawn-00000/      reports of a part of the source, scattered over buckets: not drawn again, never published
    .NAME.ldpsql/part-00000.tmp/   a part that is being written
    .NAME.ldpsql/part-00000/       a part that is complete and on the disk; it is not written again
    .NAME.ldpsql/whole/            all parts, about to be renamed to NAME
    .NAME.ldpsql/replaced/         what was at NAME before

A file gets its suffix only after all parts are complete: before that, no pattern such as ``**/*.parquet`` matches a file here.
"""

from __future__ import annotations

import filecmp
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Self, TypeVar

from ldpsql import system
from ldpsql.errors import DestinationExists, DestinationRefused, LdpError, UnfinishedRun
from ldpsql.places import Place
from ldpsql.system import synced

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


_STAGED = re.compile(r"state\.json|state\.tmp|whole|replaced|(part|drawn)-\d{5,}(\.tmp)?")
_COMPLETE = re.compile(r"(part|drawn)-\d{5,}")
_BEGIN_AGAIN = "begin again: --replace, in Python replace=True"


class Staging:
    """The staging folder of a destination, locked: only one process works in it."""

    def __init__(self, destination: Path, suffix: str, handle: int) -> None:
        self.destination = destination
        self.folder, self._suffix, self._handle = staging_folder(destination), suffix, handle
        self._whole = self.folder / "whole"

    @classmethod
    @contextmanager
    def at(cls, destination: Path, suffix: str) -> Iterator[Self]:
        """Lock the staging folder of a destination; ``suffix`` is the suffix of the published files.

        Complete parts stay in the folder until `remove`; all else is deleted at the end.

        Raises:
            DestinationRefused: if the folder cannot be made.
            UnfinishedRun: if another process works in it.

        """
        handle = locked_folder(staging_folder(destination))
        staging = cls(destination, suffix, handle)
        try:
            with disk_refusals():
                foreign = [inside for inside in staging.folder.iterdir() if not _STAGED.fullmatch(inside.name)]
            if foreign:
                raise DestinationRefused(
                    f"the folder {staging.folder.name} next to the destination holds files that ldpsql did not write",
                    f"move it away: {len(foreign)} files or folders",
                )
            yield staging
        finally:
            staging._leave()
            os.close(handle)

    def begin(self, task: Mapping[str, Any], *, replace: bool, resume: bool) -> str | None:
        """Return the token of the run that is resumed, None if no run is.

        Raises:
            DestinationExists: if the destination exists and is not to be replaced.
            UnfinishedRun: if an earlier run cannot be resumed, or is neither to be resumed nor replaced.

        """
        if replace:
            self._refuse_to_replace()
        state = None if replace and not resume else self._state()
        if state is None:
            self._clear()
            if self.exists() and not replace:
                raise already_exists(self.destination.name)
            return None
        if not resume:
            raise UnfinishedRun(
                "an earlier run to this destination was not finished",
                "continue it: --resume, resume=True; or begin again: --replace, replace=True",
            )
        if state["task"] != json.loads(json.dumps(task)):
            raise UnfinishedRun("the unfinished run had other inputs, columns, mechanisms or options", _BEGIN_AGAIN)
        if self.exists() and not (state["replace"] or state.get("publishing")):
            raise already_exists(self.destination.name)
        return str(state["release"])

    def exists(self) -> bool:
        """Whether there is anything at the destination."""
        return self.destination.exists()

    def _refuse_to_replace(self) -> None:
        """Check that a folder to be replaced holds only files that a run wrote: all of it will be deleted."""
        with disk_refusals():
            foreign = foreign_files(self.destination)
        if foreign:
            raise DestinationRefused(
                f"the folder to be replaced holds {foreign} files or folders that ldpsql did not write",
                "move them away, or choose another destination",
            )

    def _state(self) -> dict[str, Any] | None:
        """Return the state that a run wrote, None if there is none."""
        try:
            state = json.loads((self.folder / "state.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError):
            state = None
        if not isinstance(state, dict) or not {"task", "release", "replace"} <= state.keys():
            raise UnfinishedRun("the state of an unfinished run to this destination cannot be read", _BEGIN_AGAIN)
        return state

    def _clear(self) -> None:
        """Delete what an earlier run left; if the destination is empty, put back what the run took away from there."""
        replaced = self.folder / "replaced"
        with disk_refusals():
            if replaced.exists() and not self.destination.exists():
                replaced.rename(self.destination)
                synced(self.destination.parent)
            self._forget()
            for inside in self.folder.iterdir():
                delete(inside)

    def _forget(self) -> None:
        """Delete the state before the parts: a state without its parts would let them be drawn again."""
        if (self.folder / "state.json").is_file():
            (self.folder / "state.json").unlink()
            synced(self.folder)

    def add_release(self, tokens: str) -> str:
        """Add the tokens of a charge to those of the run that is resumed, in its state, and return all of them."""
        state = self._state() or {}
        state["release"] = f"{state['release']} {tokens}".strip()
        self.write_state(state)
        return str(state["release"])

    def write_state(self, state: Mapping[str, Any]) -> None:
        """Write the state; it is on the disk when this returns."""
        made = self.folder / "state.tmp"
        with disk_refusals():
            made.write_text(json.dumps(state), encoding="utf-8")
            synced(made)
            made.replace(self.folder / "state.json")
            synced(self.folder)
            synced(self.folder.parent)

    def done(self, part: int, kind: str = "part") -> bool:
        """Whether a part is complete."""
        return self._part(part, kind).exists()

    @contextmanager
    def new_part(self, part: int, kind: str = "part") -> Iterator[Path]:
        """Give a new folder for the files of a part; the part is complete when all of them are on the disk."""
        made = self._part(part, kind).with_suffix(".tmp")
        with disk_refusals():
            shutil.rmtree(made, ignore_errors=True)  # of a run that was killed; nobody has seen it
            made.mkdir()
        yield made
        with disk_refusals():
            for file in [*made.rglob("*"), made]:
                synced(file)
            made.rename(self._part(part, kind))
            synced(self.folder)

    def _part(self, part: int, kind: str) -> Path:
        return self.folder / f"{kind}-{part:05}"

    def files(self, kind: str) -> list[Path]:
        """Return the files of all complete parts of a kind, in order."""
        parts = [inside for inside in self.folder.glob(f"{kind}-*") if _COMPLETE.fullmatch(inside.name)]
        parts.sort(key=lambda part: int(part.name.removeprefix(f"{kind}-")))
        return [file for part in parts for file in sorted(part.rglob("*")) if file.is_file()]

    def publish(self, *, one_file: bool) -> None:
        """Move the complete parts to the destination; after a kill, continue where the earlier run stopped."""
        state = self._state() or {}
        if not state.get("publishing"):
            self.write_state(state | {"publishing": True})
        if state["replace"]:
            self._refuse_to_replace()
        with disk_refusals():
            staged = next(self._part(0, "part").iterdir(), None) if one_file else self._assembled()
            if staged is not None:  # otherwise it was renamed before the kill
                self._rename(staged, replace=state["replace"])

    def _rename(self, staged: Path, *, replace: bool) -> None:
        if self.destination.exists() and not replace:
            raise already_exists(self.destination.name)
        if self.destination.is_dir() or (self.destination.exists() and staged.is_dir()):  # a file can only replace a file
            self.destination.rename(self.folder / "replaced")
        staged.replace(self.destination)
        synced(self.destination.parent)

    def _assembled(self) -> Path | None:
        """Move the files of all parts into one folder and return it; None if that folder has been published."""
        waiting = self.files("part")
        if not waiting and not self._whole.exists():
            return None
        self._whole.mkdir(exist_ok=True)
        for file in waiting:
            inside = file.relative_to(self.folder)
            target = self._whole.joinpath(*inside.parts[1:]).with_suffix(self._suffix)
            target.parent.mkdir(parents=True, exist_ok=True)
            file.rename(target)
        for folder in (self._whole, *(inside for inside in self._whole.rglob("*") if inside.is_dir())):
            synced(folder)
        return self._whole

    def remove(self) -> None:
        """Remove everything that a run wrote into the folder, and the folder itself if it is then empty."""
        with disk_refusals():
            self._remove()

    def _remove(self) -> None:
        self._forget()
        for inside in self.folder.iterdir():
            if _STAGED.fullmatch(inside.name):
                delete(inside)
        if not any(self.folder.iterdir()):
            self.folder.rmdir()
        synced(self.folder.parent)

    def _leave(self) -> None:
        """Keep only complete parts, for a run that resumes; what cannot be deleted stays."""
        with suppress(OSError):
            for made in self.folder.glob("*.tmp"):
                if _STAGED.fullmatch(made.name):
                    delete(made)
            if not self.has_parts:
                self._remove()

    @property
    def has_parts(self) -> bool:
        """Whether any part is complete, so that a run can resume."""
        return any(_COMPLETE.fullmatch(inside.name) for inside in self.folder.iterdir())


def staging_folder(destination: Path) -> Path:
    """Return the folder in which the reports for a destination are written."""
    return destination.parent / f".{destination.name}.ldpsql"


def already_exists(name: str) -> DestinationExists:
    """Return the error for a destination that already exists."""
    return DestinationExists(
        f"the destination already exists: {name}",
        "choose another, or replace it: --replace, in Python replace=True",
    )


# Reports that go to a URL are staged on this machine, and the complete file is uploaded. An object store shows an object when
# its upload is complete, so a run that is killed leaves nothing under the name of the destination. Several objects do not
# appear at once: a folder of files cannot be published there.


T = TypeVar("T")


class Upload(Staging):
    """The staging folder of a URL, on this machine."""

    place: Place

    def exists(self) -> bool:
        return _of_store(lambda: self.place.state() is not None)

    def _rename(self, staged: Path, *, replace: bool) -> None:
        try:
            _of_store(lambda: self._uploaded(staged, replace=replace))
        except FileExistsError:
            if not self._is_there(staged):  # otherwise an earlier run was killed after its upload
                raise already_exists(self.place.path.name) from None

    def _uploaded(self, staged: Path, *, replace: bool) -> None:
        mode = "overwrite" if replace else "create"
        self.place.files_system().put_file(str(staged), self.place.text, mode=mode)

    def _is_there(self, staged: Path) -> bool:
        """Return whether the staged file is what the URL holds."""
        with tempfile.TemporaryDirectory(dir=self.folder.parent) as folder:
            copy = Path(folder, "copy")
            _of_store(lambda: self.place.files_system().get_file(self.place.text, str(copy)))
            return filecmp.cmp(staged, copy, shallow=False)


@contextmanager
def staging_at(place: Place, suffix: str) -> Iterator[Staging]:
    """Lock the staging folder of a path or a URL; see `Staging.at`."""
    if not place.is_url:
        with Staging.at(Path(place.text), suffix) as staging:
            yield staging
        return
    with Upload.at(_beside(place), suffix) as upload:
        upload.place = place
        yield upload


def staged_at(place: Place) -> Path:
    """Return the staging folder of a path or a URL: for a URL it is in the folder for temporary files (``TMPDIR``)."""
    return staging_folder(_beside(place) if place.is_url else Path(place.text))


def _beside(place: Place) -> Path:
    """Return the path on this machine that stands for a URL, by its name and a hash of it."""
    return Path(tempfile.gettempdir(), f"{place.path.name}-{sha256(place.shown.encode()).hexdigest()[:16]}")


def _of_store(call: Callable[[], T]) -> T:
    """Return what a call of a store returns; its own message may hold secrets."""
    try:
        return call()
    except (LdpError, FileExistsError):
        raise
    except Exception as error:  # noqa: BLE001  # each store has its own errors
        kind = type(error).__name__
    raise DestinationRefused(
        f"the store refused the destination with an error of the kind '{kind}'",
        "does the bucket exist, and may these credentials write to it? Then go on with the run: --resume, or resume=True",
    )
