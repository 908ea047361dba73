"""A progress bar on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ldpsql.bulk.orders import Progress


@contextmanager
def bar(unit: str, of_unknown: str = "") -> Iterator[Progress | None]:
    """Show a progress bar with rate and time left on stderr, if stderr is a terminal.

    Args:
        unit: what is counted.
        of_unknown: what is counted as long as the total is unknown, if that is something else.

    """
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    count, rate = TextColumn("{task.fields[done]}"), TextColumn("{task.fields[rate]}")
    with Progress(count, BarColumn(), rate, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, done=f"0 {unit}", rate="")

        def progress(done: int, total: int | None) -> None:
            speed = bar.tasks[0].speed
            pace = f"{speed / 1e6:.2f} M {unit}/s" if speed else ""
            counted = unit if total is not None else of_unknown or unit
            bar.update(task, completed=done, total=total, done=f"{done:,} {counted}", rate=pace)

        yield progress
