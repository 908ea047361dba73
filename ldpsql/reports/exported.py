"""Forms of reports as JSON: how what a channel drew is written."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, cast

from ldpsql.channels.exported import name_of
from ldpsql.domains.domain import Domain
from ldpsql.domains.exported import exported as exported_domain
from ldpsql.domains.exported import exported_list
from ldpsql.domains.product import Product
from ldpsql.domains.ranges import Whole
from ldpsql.reports import Alphabet


def exported(reports: Alphabet) -> dict[str, Any]:
    """Return a form of reports as plain JSON: its ``form`` and the parts that determine it.

    >>> from ldpsql.reports import SetReports
    >>> exported(SetReports(70))
    {'form': 'set', 'size': 70}
    """
    if isinstance(reports, Domain):
        own = exported_domain if isinstance(reports, Product | Whole) else exported_list
        return {"form": "value", "values": own(reports)}
    parts = {part.name: _part(getattr(reports, part.name)) for part in fields(cast("Any", reports))}
    return {"form": name_of(type(reports)).removesuffix("_reports"), **parts}


def _part(part: Any) -> Any:
    if isinstance(part, tuple):
        return [_part(one) for one in part]
    if isinstance(part, bool | int | str):
        return part
    return exported(part)
