"""The command line: ``ldpsql [--version] COMMAND``."""

from __future__ import annotations

import sys

from ldpsql import __version__


def main() -> None:
    """Run the command line; ``--version`` is answered before anything else is loaded."""
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"ldpsql {__version__}\n")
        return
    from ldpsql.cli.app import run

    run()
