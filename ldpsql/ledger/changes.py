"""What got weaker between two versions of the settings."""

from __future__ import annotations

from dataclasses import dataclass

from ldpsql.ledger.review import Level, Term

WEAKER, STRONGER, CHANGED = "weaker", "stronger", "changed"


@dataclass(frozen=True)
class Change:
    """A term that differs between two policies; an empty value stands for a term that is not there."""

    verdict: str
    place: str
    term: str
    old: str
    new: str


def changes(old: list[Term], new: list[Term]) -> list[Change]:
    """Return the terms that differ, the weaker ones first."""
    before, after = ({(term.place, term.term): term for term in each} for each in (old, new))
    differing = (
        Change(
            _verdict(before.get(key), after.get(key)),
            *key,
            *(each[key].value if key in each else "" for each in (before, after)),
        )
        for key in {**before, **after}
        if before.get(key) != after.get(key)
    )
    return sorted(differing, key=lambda change: (WEAKER, CHANGED, STRONGER).index(change.verdict))


def _verdict(old: Term | None, new: Term | None) -> str:
    some = new or old
    if some is None or (old and new and (old.level is None or new.level is None)):
        return WEAKER  # values without an order
    before, after = (some.without if term is None else _level(term) for term in (old, new))
    if before is None or after is None:
        return WEAKER
    if before == after:
        return CHANGED
    return WEAKER if after > before else STRONGER


def _level(term: Term) -> Level:
    """Return the level of a term; one without an order permits more than nothing, and less than no limit."""
    return 0 if term.level is None else term.level
