"""``ldpsql audit``: the privacy of a mechanism, computed exactly and measured."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from ldpsql.cli.options import MechanismOption
from ldpsql.cli.output import Format, FormatOption, write_rows


def audit(
    mechanism: MechanismOption,
    draws: Annotated[
        int, typer.Option(min=0, max=1_000_000_000, help="Also draw this many reports, and bound epsilon from below.")
    ] = 0,
    reports: Annotated[
        int | None, typer.Option(help="Also state the privacy of this many shuffled reports without ids.")
    ] = None,
    delta: Annotated[float, typer.Option(help="The delta of the shuffled reports.")] = 1e-9,
    form: FormatOption = Format.TABLE,
) -> None:
    """Compute the privacy of a mechanism exactly.

    With --draws also measure it, and fail if it exceeds the claim. With --reports also bound the central epsilon of that many
    reports without ids and in random order.

    Example: ldpsql audit --mechanism "krr(epsilon=1, domain=['a', 'b', 'c'])" --draws 1000000
    """
    from ldpsql.cli.source import mechanism_from
    from ldpsql.errors import NotPrivate
    from ldpsql.mechanisms import audit as audits
    from ldpsql.mechanisms.shuffled import shuffled

    audited = mechanism_from(mechanism)
    facts = [asdict(audits.analytic(audited))]
    if draws:
        facts.append(asdict(audits.empirical(audited, draws)))
    if reports is not None:
        central = shuffled(audited, reports=reports, delta=delta)
        names = ("reports", "delta", "epsilon", "epsilon_at_least")
        facts.append({f"shuffled_{name}": getattr(central, name) for name in names})
    write_rows([{"fact": name, "value": value} for part in facts for name, value in part.items()], form)
    if draws and not facts[1]["passed"]:
        raise NotPrivate(
            "the draws show more than the claimed epsilon, or do not follow the channel", "do not use this mechanism"
        )
