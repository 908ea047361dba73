"""The command line: ``ldpsql [--version] COMMAND``."""

from __future__ import annotations

import os
import sys

from ldpsql import __version__


def main() -> None:
    """Run the command line; ``--version`` answers before anything else is loaded."""
    _open_closed_streams()
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"ldpsql {__version__}\n")
        return
    from ldpsql.cli.app import run

    run()


def _open_closed_streams() -> None:
    """Open the streams that the caller closed; otherwise a file of a run would get the number of one, and what is printed."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  # open until the process ends
