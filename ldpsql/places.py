"""Places that hold rows: paths of this machine."""

from __future__ import annotations

import os


def pattern_of(path: str) -> str:
    """Return the pattern of the Parquet files below a folder; any other path as it is."""
    return os.path.join(path, "**", "*.parquet") if os.path.isdir(path) else path
