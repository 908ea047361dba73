"""``python -m ldpsql`` is ``ldpsql``."""

from ldpsql.cli import main

if __name__ == "__main__":
    main()
