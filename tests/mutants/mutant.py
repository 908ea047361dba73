"""One planted fault, and the table of all of them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

ROOT = Path(__file__).parents[2]


class Misplaced(ValueError):
    """The text that a fault replaces is missing from its file, or stands there more than once."""


@dataclass(frozen=True)
class Mutant:
    """A fault: in ``file``, ``old`` becomes ``new``, and one of ``tests`` must fail.

    ``does`` says in a few words what goes wrong for a user. ``survives`` is empty, or the reason why no test can find it.
    """

    file: str
    old: str
    new: str
    does: str
    tests: str
    survives: str = ""

    def __str__(self) -> str:
        return f"{self.file}: {self.does}"

    @property
    def room(self) -> str:
        """The room of the file."""
        return self.file.split("/")[1]

    def planted(self, root: Path = ROOT) -> str:
        """Return the text of the file with the fault.

        Raises:
            Misplaced: if the text that it replaces does not stand in the file exactly once.

        """
        source = (root / self.file).read_text(encoding="utf-8") if (root / self.file).is_file() else ""
        if source.count(self.old) != 1 or self.old == self.new:
            raise Misplaced(f"{self}: found {source.count(self.old)} times: {self.old!r}")
        return source.replace(self.old, self.new)


def table() -> list[Mutant]:
    """Return all mutants, in the order of the files of this folder."""
    modules = (import_module(f"tests.mutants.{found.name}") for found in iter_modules([str(Path(__file__).parent)]))
    return [mutant for module in modules for mutant in getattr(module, "MUTANTS", ())]
