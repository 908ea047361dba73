"""``ldpsql vectors``: draws of a mechanism with the random words that made them."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from ldpsql.cli.options import MechanismOption


def vectors(
    mechanism: MechanismOption,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=100_000_000, help="How many draws.")] = 1000,
) -> None:
    """Write test vectors: a JSON object a line with a value, the 64-bit random words that one draw used, and its report.

    A program that draws the reports of a mechanism is right if it gives the same reports from the same words.

    Example: ldpsql vectors -m "krr(epsilon=1, domain=['a', 'b'])" --count 3
    """
    from ldpsql.cli.source import mechanism_from
    from ldpsql.clients.vectors import vectors as drawn

    sys.stdout.writelines(json.dumps(one) + "\n" for one in drawn(mechanism_from(mechanism), count))
