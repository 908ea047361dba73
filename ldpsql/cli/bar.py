"""A progress bar on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ldpsql.bulk.meter import Progress


@contextmanager
def bar(unit: str) -> Iterator[Progress | None]:
    """Show a progress bar with rate and time left on stderr, if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    count, rate = TextColumn(f"{{task.fields[done]}} {unit}"), TextColumn("{task.fields[rate]}")
    with Progress(count, BarColumn(), rate, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, done="0", rate="")

        def progress(done: int, total: int | None) -> None:
            speed = bar.tasks[0].speed
            pace = f"{speed / 1e6:.2f} M {unit}/s" if speed else ""
            bar.update(task, completed=done, total=total, done=f"{done:,}", rate=pace)

        yield progress
