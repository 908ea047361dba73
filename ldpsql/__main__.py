"""``python -m ldpsql`` is ``ldpsql``."""

from ldpsql.cli import main

main()
