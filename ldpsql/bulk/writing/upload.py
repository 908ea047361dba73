"""Reports that go to a URL: they are staged on this machine, and the complete file is uploaded.

An object store shows an object when its upload is complete, so a run that is killed leaves nothing under the name of the
destination. Several objects do not appear at once: a folder of files cannot be published there.
"""

from __future__ import annotations

import filecmp
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from ldpsql.bulk.writing.staging import Staging, already_exists, staging_folder
from ldpsql.errors import DestinationRefused, LdpError
from ldpsql.places import Place

T = TypeVar("T")


class Upload(Staging):
    """The staging folder of a URL, on this machine."""

    place: Place

    def exists(self) -> bool:
        """Whether there is a file at the URL."""
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


def check_url(place: Place, *, folder: bool) -> None:
    """Refuse a URL to which reports cannot be published at once.

    Raises:
        DestinationRefused: if it is on the web, or stands for a folder.

    """
    if place.scheme in ("http", "https"):
        raise DestinationRefused("addresses on the web can only be read", "write to a file, or to a store such as s3://")
    if place.is_url and folder:
        raise DestinationRefused(
            "the files of a folder do not appear at a URL at once, so a run that is killed would publish some of them",
            "name one file, such as s3://bucket/reports.parquet, or write a folder on this machine and copy it",
        )


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
