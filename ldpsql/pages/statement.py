"""The page for the person who approves a collection, and its entry in the public registry of deployments."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from hashlib import sha256
from importlib import import_module
from math import ceil, exp
from pathlib import Path
from typing import Any

from ldpsql.channels import KeepOrSpread, RepeatedHash
from ldpsql.channels.base import TOTAL
from ldpsql.domains.composite import PairSets, Product
from ldpsql.domains.domain import Domain
from ldpsql.domains.unlisted import Numbers
from ldpsql.ledger.permanent import permanent_claim
from ldpsql.ledger.policy import EPSILON, ONCE, PER_DISTANCE, ROW
from ldpsql.ledger.review import WORDS, Collection, Limit, distances
from ldpsql.mechanisms.audit import empirical
from ldpsql.mechanisms.base import CertifiedMechanism
from ldpsql.mechanisms.spec import decimal_text
from ldpsql.pages.document import Fact, Markup, counted, document, joined, percent, tag
from ldpsql.privacy.claims import MetricLdp
from ldpsql.registry.documents import digits_of

# What people answer and how the answers are protected, in words that need no knowledge of privacy or of this project.

_LISTED = 8  # so many possible answers are listed
_SAID = 40  # characters of an answer


def possible(certified: CertifiedMechanism) -> str:
    """Return the possible answers of an item."""
    values, mechanism = certified.values, certified.mechanism
    if isinstance(values, PairSets):
        return f"any of {counted(len(values.keys), 'entry').replace('entrys', 'entries')}, each with a number"
    if not isinstance(values, Domain):
        return "any text"
    if isinstance(values, Product):
        parts = zip(values.names, values.parts, strict=True)
        return f"any combination of {', '.join(f'{name} ({len(part):,} answers)' for name, part in parts)}"
    low, high = getattr(mechanism, "low", None), getattr(mechanism, "high", None)
    if isinstance(values, Numbers) and low is not None and high is not None:
        return f"a number from {float(low):g} to {float(high):g}"
    if len(certified.layout) == 2:
        return f"one of {len(values):,} squares of a map, {certified.layout[1]:,} wide and {certified.layout[0]:,} high"
    texts = [text[:_SAID] for text in values.written[:_LISTED].to_pylist()]
    return ", ".join(texts) if len(values) <= _LISTED else f"one of {len(values):,}, such as {', '.join(texts[:3])}"


def protection(certified: CertifiedMechanism) -> str:
    """Return what happens to an answer before it is handed on."""
    return "; ".join(_protection(certified))


def _protection(certified: CertifiedMechanism) -> Iterator[str]:
    channel, claim, mechanism = certified.channel, certified.certificate.claim, certified.mechanism
    if isinstance(channel, KeepOrSpread) and isinstance(certified.values, Domain) and certified.reports is certified.values:
        kept = channel.keep / TOTAL
        yield f"replaced at random: the true answer is handed on in {percent(kept)} of cases, any other with equal chance"
    else:
        yield "replaced by a random message that depends on the answer"
    if isinstance(claim, MetricLdp):
        yield f"only near answers are hard to tell apart, where {distances(certified, claim.metric)}"
    if claim.delta:
        yield f"the limit may fail with a chance of {float(claim.delta):g}"
    if isinstance(channel, RepeatedHash):
        together = permanent_claim(certified).epsilon
        yield f"if each person's first random choice is kept, all messages about one answer have epsilon {together} together"
    for absent, rule in (("a missing answer", mechanism.nulls), ("any other answer", mechanism.outside)):
        if rule is not None:
            yield (
                f"{absent} counts as {rule.removeprefix('as:')[:_SAID]}"
                if rule != "clip"
                else f"{absent} counts as the nearest"
            )


def factor(epsilon: Fraction) -> str:
    """Return the largest factor by which an answer may change the odds of a guess, rounded up.

    >>> factor(Fraction(1)), factor(Fraction(20))
    ('2.8', 'more than a million')
    """
    if epsilon > 13:
        return "more than a million"
    value = exp(float(epsilon))
    return f"{ceil(10 * value) / 10:,.1f}" if value < 100 else f"{ceil(value):,}"


def certainty(epsilon: Fraction) -> str:
    """Return the largest probability that a guess between two equally likely answers can reach, rounded up.

    >>> certainty(Fraction(1)), certainty(Fraction(20))
    ('74 %', 'more than 99.9 %')
    """
    percents = 100 / (1 + exp(-min(float(epsilon), 700)))
    if percents > 99.9:
        return "more than 99.9 %"
    return f"{ceil(percents)} %" if percents < 99 else f"{ceil(10 * percents) / 10:.1f} %"


_LITTLE = 8  # a total epsilon from which on answers are practically open
_ASKED = ("Who collects", "What for", "From whom", "Who receives the answers", "How long they are kept", "How often")
_QUESTIONS = dict(zip(WORDS, _ASKED, strict=True))
_KEPT = "not protected: handed on as it is"
_MEANING = (
    "Epsilon limits what anybody can find out. Somebody who sees what is handed on about a person can change the odds of any "
    "guess about the protected answers by at most the factor below, with any other knowledge and any computation. "
    "Epsilons add up: two collections of epsilon 1 are worth one of epsilon 2."
)
_HANDED_ON = (
    "For each person, one line is handed on, not only totals; shares and averages are then computed from all lines. Nothing "
    "else that is stored about the person is handed on."
)
_ALWAYS = (
    "The stored original. Answers are replaced on the computer that holds them, and people with access to it see the true "
    "answers, unless this is the person's own device.",
    "Taking part. The recipient can see that a person took part, and when and how often answers arrived.",
    "What is true of a whole group. If nearly everybody in a town answers alike, this becomes known, also about those who did "
    "not take part.",
    "Other collections from the same people that this page does not list. Their epsilons add to the figures here.",
    "Addresses on the network, device numbers and times that are stored next to an answer.",
)


@dataclass(frozen=True)
class Section:
    """A part of the statement: sentences, then rows of a table (the first one is its head), then points of a list."""

    title: str
    sentences: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    points: tuple[str, ...] = ()


def sections(collected: Collection) -> list[Section]:
    """Return the parts of the statement."""
    words = collected.words
    if (frequency := words.get("frequency", ONCE)) != ONCE:
        words = {**words, "frequency": f"every {frequency}"}
    asked = [(question, words.get(key, "NOT STATED")) for key, question in _QUESTIONS.items()]
    parts = [
        Section("The collection", rows=(("Question", "Answer"), *asked, ("How a person is recognised", _unit(collected)))),
        Section("What is collected", (_HANDED_ON,), _items(collected)),
        Section("How much can be found out", (_MEANING, *_exceptions(collected)), _figures(collected)),
        Section("What limits it", tuple(_limits(collected))),
        Section("What is not protected", points=tuple(_unprotected(collected))),
    ]
    missing = tuple(open_points(collected))
    if missing:
        parts.append(Section("To be settled before this is approved", points=missing))
    approved = (("Approved by", "Date", "Signature"), ("", "", ""))
    settings = f"This approval is for settings whose file has the SHA-256 {collected.digest}."
    return [*parts, Section("Approval", (settings,), approved)]


def markdown(collected: Collection) -> str:
    """Return the statement as Markdown."""
    parts = (f"## {part.title}\n\n{_text(part)}" for part in sections(collected))
    return f"# {_escaped(_title(collected))}\n\n{_LEAD}\n\n" + "\n".join(parts)


def page(collected: Collection) -> str:
    """Return the statement as a page of HTML."""
    kept = f"{len(collected.keep)} more without protection" if collected.keep else ""
    facts = [Fact("Items", str(len(collected.items)), kept)]
    for currency, name, between in ((EPSILON, "Epsilon", ""), (PER_DISTANCE, "Epsilon per unit of distance", _NEAR)):
        if once := collected.epsilon(currency):
            note = f"a guess at 50 % can become {certainty(once)}{between}"
            facts.append(Fact(f"{name}, one collection", decimal_text(once), note))
            facts.append(Fact(f"{name}, first year", *_year(collected, currency)))
    return document(_title(collected), _LEAD, facts, joined(*map(_html, sections(collected))))


_NEAR = ", two answers one unit apart"
_LEAD = "For the person who approves it. It follows from the settings of the software."


def _title(collected: Collection) -> str:
    return f"What is collected: {collected.name}"


def _unit(collected: Collection) -> str:
    if collected.unit == ROW:
        return "not at all: each line of the data counts as another person"
    return f"by {collected.unit}: a person may give answers in several lines, and each line has the epsilon of one collection"


def _items(collected: Collection) -> tuple[tuple[str, ...], ...]:
    rows = [
        (column, possible(certified), protection(certified), _epsilon_of(certified.certificate.claim))
        for column, certified in collected.items.items()
    ]
    kept = [(column, "anything", _KEPT, "no limit") for column in collected.keep]
    return (("Item", "Possible answers", "What happens to the answer", "Epsilon"), *rows, *kept)


def _epsilon_of(claim: object) -> str:
    return str(getattr(claim, "epsilon", "")) + (" per unit of distance" if hasattr(claim, "metric") else "")


def _exceptions(collected: Collection) -> Iterator[str]:
    yield "The figures of a collection are for one line. Those of a person with several lines add up."
    if collected.epsilon(PER_DISTANCE):
        yield (
            "Items with an epsilon per unit of distance are protected otherwise: the limit is for two answers one unit apart, "
            "and answers that are far apart can be distinguished."
        )
    if collected.permanent:
        yield (
            "Each answer of a person is replaced once and for all: collected again, the same answer reveals nothing more. Only "
            "an answer that the person has not given before adds its epsilon."
        )
    if collected.delta:
        yield f"In each collection, these limits may fail with a chance of at most {float(collected.delta):g}."


def _figures(collected: Collection) -> tuple[tuple[str, ...], ...]:
    head = ("For one person", "Epsilon", "Odds change by a factor of at most", "A guess that was 50 % sure becomes at most")
    near = _totals(collected, EPSILON)
    far = [(name + _NEAR, total) for name, total in _totals(collected, PER_DISTANCE)]
    return (head, *((name, decimal_text(total), factor(total), certainty(total)) for name, total in near + far))


def _totals(collected: Collection, currency: str) -> list[tuple[str, Fraction]]:
    """Return the epsilons of one collection and of a year, as planned and at the limit, if any item has one."""
    once = collected.epsilon(currency)
    if not once:
        return []
    totals = [("One collection", once)]
    totals += _planned(collected, currency)
    if collected.limit is not None and (most := collected.limit.in_a_year(currency)):
        totals.append(("The first year at the limit", most))
    return totals


def _planned(collected: Collection, currency: str) -> Iterator[tuple[str, Fraction]]:
    """Yield the epsilon of a year as planned; of permanent reports, the least and the most of it."""
    total = collected.planned(currency)
    if total is None or collected.rounds is None:
        return
    name = f"A year as planned: {counted(collected.rounds, 'collection')}"
    if not collected.permanent:
        yield name, total
        return
    yield f"{name}, if no answer changes", collected.planned(currency, 1) or total
    yield f"{name}, if all answers change every time", total


def _year(collected: Collection, currency: str) -> tuple[str, str]:
    """Return the epsilon of a year, the smaller one of plan and limit, and where it comes from."""
    planned = collected.planned(currency)
    limit = None if collected.limit is None else collected.limit.in_a_year(currency)
    if limit == 0:
        return "none", "the limit does not allow it, so the software refuses to collect"
    if limit is not None and (planned is None or limit <= planned):
        return decimal_text(limit), "the limit that the software enforces"
    if planned is None:
        return "no limit", "nothing states how often"
    return decimal_text(planned), "as planned, without a limit"


def _limits(collected: Collection) -> Iterator[str]:
    limit = collected.limit
    if limit is None:
        yield "Nothing. The software keeps no account of what each person has given, so it refuses no further collection."
        return
    window, budget = limit.policy.budget_window, decimal_text(limit.epsilon(EPSILON))
    whose = "each line of these data" if limit.policy.privacy_unit == ROW else f"every {limit.policy.privacy_unit}"
    per = f"in {window} that begin with a collection" if window else "in total, for ever"
    yield f"The software keeps an account for {whose} and refuses collections beyond epsilon {budget} {per}."
    if window:
        yield "After that the account is empty again: over several such periods there is no limit."
    if limit.policy.privacy_unit == ROW:
        yield "A person who is also in other lines or other data has several accounts, and their epsilons add up."
    else:
        yield "Other collections that use the same account count too."
    if limit.groups > 1:
        each = decimal_text(limit.epsilon(EPSILON) / limit.groups)
        yield f"The items have {limit.groups} separate accounts of epsilon {each} each."
    if limit.policy.max_epsilon_per_report is not None:
        yield f"A single answer may have epsilon {limit.policy.max_epsilon_per_report} at most."
    yield from _so_far(limit)


def _so_far(limit: Limit) -> Iterator[str]:
    if not limit.published:
        yield "Nothing has been collected yet."
        return
    first, last = limit.published[0][:10], limit.published[-1][:10]
    spent = max((Fraction(balance.spent) for balance in limit.balances if balance.currency == EPSILON), default=Fraction(0))
    yield (
        f"Entries of this account so far: {len(limit.published):,}, first on {first}, last on {last}. An entry is a collection "
        "or, of answers that stay the same whenever they are asked for, one item of a collection. "
        f"The person who has given most has used epsilon {decimal_text(spent)}."
    )


def _unprotected(collected: Collection) -> Iterator[str]:
    if collected.keep:
        kept = ", ".join(collected.keep)
        yield (
            f"{kept}: handed on as stored, for every person. Together with other data this may show who a line belongs to; the "
            "figures above hold for the other items even then."
        )
    if collected.unit in collected.keep:
        yield f"Who a line belongs to. It carries {collected.unit}, so the lines of one person can be put together."
    if collected.permanent:
        yield "Changes. The recipient may see when an answer of a person changes, and when it is again what it was."
    yield from _ALWAYS


def open_points(collected: Collection) -> Iterator[str]:
    """Yield what a person who approves the collection would ask for."""
    missing = [question.lower() for key, question in _QUESTIONS.items() if key not in collected.words]
    if missing:
        yield f"The settings do not state: {', '.join(missing)}."
    yield "This page does not state the legal basis, and whom people can ask to delete their answers."
    limit, total = collected.limit, collected.epsilon()
    if limit is None:
        yield "No account is kept, so nothing stops further collections from the same people."
    elif limit.policy.privacy_unit != collected.unit:
        yield "The account counts other persons than the collection does: the software refuses to collect until both agree."
    elif any((collected.planned(one) or collected.epsilon(one)) > limit.in_a_year(one) for one in (EPSILON, PER_DISTANCE)):
        yield "The plan of a year exceeds the limit: the software refuses the collections beyond it."
    if (collected.planned() or total) > _LITTLE:
        more = " if answers change" if collected.permanent and (collected.planned(EPSILON, 1) or total) <= _LITTLE else ""
        yield f"As planned, a year has more than epsilon {_LITTLE}{more}: such answers are hardly protected."


def _text(part: Section) -> str:
    table = [f"| {' | '.join(map(_cell, row))} |" for row in part.rows]
    if table:
        table.insert(1, "|" + "---|" * len(part.rows[0]))
    blocks = [*map(_escaped, part.sentences), "\n".join(table), "\n".join(f"* {_escaped(point)}" for point in part.points)]
    return "\n\n".join(filter(None, blocks)) + "\n"


def _cell(text: str) -> str:
    return _escaped(text).replace("|", "\\|")


def _escaped(text: str) -> str:
    """Return text in which Markdown finds no marks of its own, in one line."""
    plain_text = " ".join(text.split())
    return "".join(f"\\{character}" if character in "\\`*_[]<>#" else character for character in plain_text)


def _html(part: Section) -> Markup:
    inside: list[Markup] = [tag("h2", part.title), *(tag("p", sentence) for sentence in part.sentences)]
    if part.rows:
        inside.append(_table(part.rows))
    if part.points:
        inside.append(tag("ul", *(tag("li", point) for point in part.points)))
    return tag("section", *inside)


def _table(rows: Sequence[Sequence[str]]) -> Markup:
    head = tag("thead", tag("tr", *(tag("th", text, scope="col") for text in rows[0])))
    body = tag("tbody", *(tag("tr", *(tag("td", text) for text in row)) for row in rows[1:]))
    return tag("table", head, body, class_="words")


# A collection as an entry of the public registry of deployments of differential privacy, at its highest tier: YAML.
#
# The names of the fields are those of https://github.com/opendp/deployments-registry-data in July 2026.

_DRAWS = 100_000  # of each mechanism, that the audit compares with its claim
_UNSTATED = "Not stated"
_CODE = {".py", ".sql", ".c", ".h", ".mjs"}
_SAFE = (
    "Floating point: probabilities are whole numbers out of 2^64, draws compare whole numbers with 64 random bits, and claims "
    "are checked in whole numbers, so the rounding of doubles cannot raise a ratio above the claim. Random bits: AES-256 or "
    "ChaCha20 with a key of the operating system, or OpenSSL. Platform: DuckDB's spill files, deleted pages and statistics may "
    "hold the original values on the machine that perturbs; messages and logs of ldpsql hold none. Timing: reports are written "
    "in one batch in random order, or in the order of the rows if that was asked for; a draw may take longer for some values, "
    "which only somebody who shares the machine can measure."
)
_CHECKED = (
    "Before it draws, each channel is compared with its claim in whole numbers. Anybody can do so again with `ldpsql-verify`, "
    "which shares no code with ldpsql, from the output of `ldpsql describe`."
)
_ACTORS = (
    "Everybody whose values are perturbed trusts the machine that perturbs, and nobody else. Adversaries: all who receive the "
    "reports, with any other knowledge, any computation, and all other reports. Not defended against: people with access to "
    "the original values, people who send false reports, and the parameters of plugins that change between collections."
)


def deployment(collected: Collection) -> str:
    """Return the entry as YAML; what the policy does not say is "Not stated"."""
    name = re.sub(r"[^a-z0-9]+", "_", collected.name.lower()).strip("_") or "collection"
    deployment = {
        "basic": _basic(collected),
        "dp_variant": _variant(collected),
        "privacy_loss": _loss(collected),
        "deployment_model": _model(collected),
        "accounting": {
            "post_processing": "Estimates are computed from the reports alone, and cost no further epsilon.",
            "composition": _composition(collected),
        },
        "implementation": _implementation(collected),
        "administrative": _administrative(collected),
    }
    whole = {"url_slug": name, "status": "Draft", "tier": 3, "deployment": deployment}
    return "\n".join(_yaml(whole)) + "\n"


def _yaml(value: Any, indent: str = "") -> Iterator[str]:
    """Yield the lines of a mapping; JSON's texts and numbers are YAML, too."""
    for key, held in value.items():
        if isinstance(held, dict):
            yield f"{indent}{key}:"
            yield from _yaml(held, f"{indent}  ")
        elif isinstance(held, list):
            yield from (f"{indent}{key}:", *(f"{indent}  - {json.dumps(one, ensure_ascii=False)}" for one in held))
        else:
            yield f"{indent}{key}: {json.dumps(held, ensure_ascii=False)}"


def _basic(collected: Collection) -> dict[str, Any]:
    words = collected.words
    return {
        "name": collected.name,
        "data_curators": [words.get("collector", _UNSTATED)],
        "description": f"Records of people, each value changed at random. From: {words.get('people', _UNSTATED)}.",
        "intended_use": words.get("purpose", _UNSTATED),
        "data_product_type": "Dataset",
        "data_product_region": f"That of: {words.get('people', _UNSTATED)}",
        "publication_date": _published(collected) or datetime.now(UTC).date().isoformat(),
    }


def _published(collected: Collection) -> str | None:
    """Return the day of the first release of the ledger, None if nothing was released."""
    return collected.limit.published[0][:10] if collected.limit and collected.limit.published else None


def _variant(collected: Collection) -> dict[str, Any]:
    answers = [f"{column}: {possible(certified)}" for column, certified in collected.items.items()]
    far, delta = collected.epsilon(PER_DISTANCE), collected.delta
    return {
        "variant_name": "Custom" if far else "Approximate DP" if delta else "Pure DP",
        "data_domain": "; ".join(answers),
        "unprotected_quantities": "; ".join(["who takes part, and when", *collected.keep]),
    }


def _loss(collected: Collection) -> dict[str, Any]:
    by_row, year = collected.unit == ROW, collected.planned()
    once, far, delta = collected.epsilon(), collected.epsilon(PER_DISTANCE), collected.delta
    unit = "a row is a person" if by_row else f"a row of a person; people have a {collected.unit}"
    parts = [f"epsilon {decimal_text(once)} of one collection"] if once else []
    parts += [f"epsilon {decimal_text(far)} per unit of distance of one collection (metric privacy)"] if far else []
    parts += [f"a year as planned: {decimal_text(year)}"] if year and once else []
    return {
        "privacy_unit": "user-level" if by_row else "event-level",
        "privacy_unit_details": f"{unit}. Adjacent: any two values of the columns of one row.",
        "privacy_parameters": {"epsilon": float(once or far)} | ({"delta": float(delta)} if delta else {}),
        "privacy_parameters_details": "; ".join([*parts, _composition(collected)]),
    }


def _model(collected: Collection) -> dict[str, Any]:
    words, rounds = collected.words, collected.rounds
    release = {} if rounds is None else {"release_type": "One release" if rounds == 1 else "Many releases"}
    return {
        "model_name": "Local",
        "model_name_details": "Each value is replaced at random before it is handed on.",
        "actors": f"Recipient: {words.get('recipient', _UNSTATED)}. {_ACTORS}",
        **release,
        "release_type_details": f"How often: {words.get('frequency', _UNSTATED)}. Kept: {words.get('retention', _UNSTATED)}.",
        "data_source_type": "Static" if rounds == 1 else "Dynamic",
        "access_type": "Non-interactive",
        "access_type_details": "The recipient gets the reports, and asks the people nothing.",
    }


def _composition(collected: Collection) -> str:
    limit = collected.limit
    if limit is None:
        return "epsilons of collections add up, and nothing limits their sum"
    window = limit.policy.budget_window
    return f"at most epsilon {decimal_text(limit.epsilon(EPSILON))} for a person {f'in {window}' if window else 'in total'}"


def _implementation(collected: Collection) -> dict[str, str]:
    from ldpsql import __version__  # noqa: PLC0415  # the package imports this module

    names = "; ".join(
        f"{column}: {made.name}, fingerprint {digits_of(made.mechanism)}" for column, made in collected.items.items()
    )
    return {
        "preprocessing_and_hyperparameter_tuning": "Domains are declared: ldpsql infers none from the values that it perturbs.",
        "mechanisms": f"{names}. ldpsql {__version__}, SHA-256 of the code {code_digest()}. {_SAFE}",
        "justification": f"{_CHECKED} {_tested(collected.items)}",
    }


def _tested(items: Mapping[str, CertifiedMechanism]) -> str:
    """Return what certificates and audits say of each column."""
    audits = ((column, made, empirical(made.mechanism, _DRAWS)) for column, made in items.items())
    found = [
        f"{column}: certified {made.certificate.claim}, exact ratio {made.certificate.ratio}; {audit.draws:,} draws of each of "
        f"two values prove epsilon at least {audit.epsilon_at_least:.3g} ({'passed' if audit.passed else 'FAILED'})"
        for column, made, audit in audits
    ]
    return f"Adversarial testing with `ldpsql audit`, false alarms below 1e-6: {'; '.join(found)}."


def _administrative(collected: Collection) -> dict[str, Any]:
    unpublished = (
        "" if _published(collected) else "Nothing is published: publication_date is the day on which this was written. "
    )
    return {
        "notes": f"{unpublished}Settings: SHA-256 {collected.digest}. Written by `ldpsql statement`.",
        "registry_authors": [collected.words.get("collector", _UNSTATED)],
    }


def code_digest() -> str:
    """Return the SHA-256 of the code of ldpsql, the same for an installation and a checkout of one version."""
    digest = sha256()
    for package in ("ldpsql", "ldpsql.plugins", "ldpsql.udfs"):
        folder = Path(import_module(package).__path__[0])
        files = {file.relative_to(folder).as_posix(): file for file in folder.rglob("*") if file.suffix in _CODE}
        for name in sorted(files):
            if package != "ldpsql" or name.partition("/")[0] not in {"plugins", "udfs"}:
                digest.update(f"{package}/{name}\n".encode() + files[name].read_bytes())
    return digest.hexdigest()
