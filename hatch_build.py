"""Build the kernels of `ldpsql/channels/native` if the machine has a C compiler; without one, ldpsql works in Python."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_FLAGS = ("-std=c11", "-O3", "-shared", "-fPIC", "-pthread", "-fvisibility=hidden")


class KernelsHook(BuildHookInterface[Any]):
    """Compile with `CC`, by default `cc`: into the checkout if it is installed as editable, else into the wheel only."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the library to a wheel, which then fits this system only."""
        folder = Path(self.root, "ldpsql", "channels", "native")
        self._built = Path(tempfile.mkdtemp())
        library = self._built / "kernels.library"
        if not self._compiled(sorted(folder.glob("*.c")), library):
            return
        if version == "editable":
            fresh = folder / f"kernels.{os.getpid()}.library"  # next to the place, so that replacing is one step
            shutil.copyfile(library, fresh)
            fresh.replace(folder / library.name)
            return
        build_data["force_include"][str(library)] = "ldpsql/channels/native/kernels.library"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove what was compiled for a wheel."""
        shutil.rmtree(self._built, ignore_errors=True)

    def _compiled(self, sources: list[Path], library: Path) -> bool:
        compiler = shlex.split(os.environ.get("CC", "cc"))
        if sys.platform == "win32" or not compiler or shutil.which(compiler[0]) is None:
            self.app.display_info("no C compiler: inner loops will run in Python")
            return False
        done = subprocess.run(  # noqa: S603
            [*compiler, *_FLAGS, "-o", str(library), *map(str, sources), "-lm"], capture_output=True, text=True, check=False
        )
        if done.returncode:
            self.app.display_warning("the C compiler failed: inner loops will run in Python")
        return not done.returncode
