"""The command line: ``ldpsql [--version] COMMAND``."""

from __future__ import annotations

import os
import sys

from ldpsql import __version__


def main() -> None:
    """Run the command line; ``--version`` answers before anything else is loaded."""
    # If the caller closed a stream, a file of a run would get its number, and what is printed.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  # open until the process ends
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"ldpsql {__version__}\n")
        return
    from ldpsql.cli.app import run

    run()
