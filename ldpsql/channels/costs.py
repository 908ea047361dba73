"""What work costs, stated from its arguments before it begins, and the one limit above which it is refused.

DuckDB cannot stop a statement while one of our functions runs, so no call of a function may take long or much memory. Rates are
those of an ordinary processor; what they multiply (cells, words, reports) is exact.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from ldpsql.errors import InvalidParameter

_log = logging.getLogger("ldpsql")

SECONDS = 10.0  # of one processor, about, for one call
SOON = 2.0  # seconds; what takes longer says so before it begins
BYTES = 2 << 30  # held at once
VECTOR = 2048  # rows that DuckDB passes to a function at once
HELD = 8  # vectors of reports that are held at once: two threads fill two each, and each is copied into DuckDB


@dataclass(frozen=True)
class Cost:
    """The seconds of one processor that work takes, about, and the bytes that it holds at once."""

    seconds: float = 0.0
    bytes: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.seconds + other.seconds, self.bytes + other.bytes)

    def __mul__(self, times: float) -> Cost:
        return Cost(self.seconds * times, self.bytes * times)

    def check(self, what: str, hint: str, most: float = SECONDS) -> None:
        """Return if the work is within the limit, after a warning in the log if it is slow.

        Args:
            what: the work, as the subject of a sentence, without a value.
            hint: what to do instead.
            most: the limit in seconds, if the work is done once and its result is kept.

        Raises:
            InvalidParameter: if it is not.

        """
        if self.bytes > BYTES:
            raise InvalidParameter(
                f"{what} would take {_memory(self.bytes)} of memory, and the limit is {_memory(BYTES)}", hint
            )
        if self.seconds > most:
            raise InvalidParameter(f"{what} would take about {_time(self.seconds)}, and the limit is {_time(most)}", hint)
        if self.seconds > SOON:
            _log.warning("%s will take about %s", what, _time(self.seconds))


def _memory(size: float) -> str:
    return f"{size / (1 << 30):,.1f} GiB" if size >= 1 << 30 else f"{size / (1 << 20):,.2f} MiB"


def _time(seconds: float) -> str:
    return f"{seconds:,.0f} seconds" if seconds < 3600 else f"{seconds / 3600:,.0f} hours"
