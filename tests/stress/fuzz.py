"""Feed texts, epsilons, domains, values and reports that nobody would write, and see that nothing but a refusal comes.

    python -m tests.stress.fuzz --count 1000000              # mutated texts and values
    python -m tests.stress.fuzz --count 100000 --atheris     # guided by coverage; needs `pip install atheris`

A crash is any exception that is not ldpsql's own, a hang is an input that takes two seconds of the processor or a minute of the
clock, and a leak is a message with the value that was planted. The first one stops the run with the input that caused it.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from typing import Any

import ldpsql
from ldpsql.domains.domain import Domain
from ldpsql.errors import LdpError
from ldpsql.privacy.claims import Epsilon
from ldpsql.registry.registry import registry
from tests.seeds import SEED

CANARY = "canary-7f3a"
LONGEST = {signal.ITIMER_PROF: 2.0, signal.ITIMER_REAL: 60.0}  # seconds for one input

TEXTS = [
    "krr(epsilon=1, domain=['a', 'b', 'c'])",
    "krr(1, [1, 2, 3], nulls='as:1', outside='as:2')",
    "oue(epsilon='0.5', domain=[True, False])",
    "olh(1, ['a', 'b'], seeds='private')",
    "geometric(1, -3, 3, margin := 5)",
    "laplace(epsilon=1, low=0, high=10, bins=16)",
    "square_wave(2, 0, 1, bins=8)",
    "planar_geometric(1, 3, 3, side=0.5)",
    "matrix(1, ['a', 'b'], [[0.7, 0.3], [0.3, 0.7]])",
    "gaussian(1, 0, 5, delta=0.001)",
    "piecewise(1, -1, 1)",
    "subset_selection(1, ['a', 'b', 'c', 'd'])",
    "ibu(stop=100)",
    "krr",
]
PIECES = [
    *"()[],='\"\\#;0é",
    *(
        "-1",
        "1e400",
        "nan",
        "inf",
        "1_0",
        "\u0661",
        "None",
        "True",
        "lambda: 0",
        "**{}",
        "*[1]",
        "[1]*9",
        "{}",
        "\x00",
        "\ud800",
    ),
    *("\n", "ldp.", "9" * 40, "[" * 50, "(" * 200, "-" * 200, "as:", "epsilon", "domain", "0.5", "b'x'", "f'{1}'", "1j", "..."),
    *(":=", "a if b else c", "\u202e", "domain=['a','a']", f"'as:{CANARY}'"),
]
VALUES: list[Any] = [
    *(CANARY, "a", "b", "", "\ud800" + CANARY, b"a", CANARY.encode(), None, 0, 1, -1, 2**63, 2**80, -(2**63), 1.5, -0.0, True),
    *(float("nan"), float("inf"), 1j, object, Ellipsis, (1, 2), [], ["a"], [CANARY], [0], [2**64 - 1], [None]),
    *({"a": 1}, {CANARY: 1}, {"seed": 1, "y": 1}, {"seed": 2**64, "y": -1}),
]
EPSILONS = ["1", "0.5", "32", "0", "32.000001", "0.000000000001", "007", "1.", ".5", "+1", " 1", "1e3", "1_0"]


def text_of(chance: random.Random) -> str:
    """Return a mechanism's text after a few accidents."""
    text = chance.choice(TEXTS)
    for _ in range(chance.choice((0, 1, 1, 1, 2, 4))):
        at, end = sorted((chance.randrange(len(text) + 1), chance.randrange(len(text) + 1)))
        cut = text[: min(end, at + chance.randrange(4))] if chance.random() < 0.5 else text[:at]
        text = cut + chance.choice(PIECES) + text[end if chance.random() < 0.3 else at :]
    return text


def column_of(chance: random.Random) -> list[Any]:
    """Return a short column, of one kind of value more often than not."""
    length = chance.randrange(6)
    return [chance.choice(VALUES)] * length if chance.random() < 0.4 else chance.choices(VALUES, k=length)


def epsilon_of(chance: random.Random) -> object:
    """Return something that somebody took for an epsilon."""
    plain = chance.choice(["1", "0.5", "32", "0", "32.000001", "0.000000000001", "007", "1.", ".5", "+1", " 1", "1e3", "1_0"])
    return chance.choice(
        [plain, plain + chance.choice(PIECES), chance.choice(PIECES), chance.choice(VALUES), float(chance.random())]
    )


def try_text(text: str) -> None:
    """Read a text; what can be read must say itself in a text that can be read."""
    mechanism = registry().mechanism(text)
    assert registry().mechanism(mechanism.to_json()) == mechanism


def try_epsilon(epsilon: object) -> None:
    """Read an epsilon; what can be read is in range."""
    assert 0 < Epsilon.parse(epsilon).value <= Epsilon.maximum


def try_domain(values: list[Any]) -> None:
    """Read a domain; what can be read is the domain it says it is."""
    domain = Domain.of(values)
    assert Domain.of(domain.to_json()) == domain


MECHANISMS = [
    "krr(1, ['a', 'b'])", "krr(1, [0, 1], nulls='as:0')", "oue(1, ['a', 'b'])", "olh(1, ['a', 'b'])", "geometric(1, 0, 5)",
    "laplace(1, 0, 5, bins=8)", "planar_geometric(1, 3, 3)", "krr(1, [True, False], outside='as:True')",
]  # fmt: skip


def try_values(case: tuple[str, list[Any]]) -> None:
    """Perturb a column; there is a report for each value."""
    mechanism, column = case
    assert len(ldpsql.perturb(column, mechanism)) == len(column)


def try_reports(case: tuple[str, list[Any]]) -> None:
    """Estimate from a column; the shares are numbers."""
    mechanism, column = case
    estimate = ldpsql.estimate(column, mechanism, "inv(misfit='allow')")
    assert all(share == share for share in estimate.estimate.tolist())  # noqa: PLR0124  # not a NaN


Kind = tuple[Callable[[random.Random], Any], Callable[[Any], None]]
KINDS: dict[str, Kind] = {
    "text": (text_of, try_text),
    "epsilon": (epsilon_of, try_epsilon),
    "domain": (column_of, try_domain),
    "values": (lambda chance: (chance.choice(MECHANISMS), column_of(chance)), try_values),
    "reports": (lambda chance: (chance.choice(MECHANISMS), column_of(chance)), try_reports),
}
_SHARE = {"text": 45, "epsilon": 20, "domain": 20, "values": 10, "reports": 5}


def feed(attempt: Callable[[Any], None], case: Any) -> bool:
    """Try one input; tell whether it was taken.

    Raises:
        AssertionError: for a leak, or a result that is wrong.
        Exception: for a crash.

    """
    refusal: LdpError | None = None
    try:
        attempt(case)
    except LdpError as error:
        refusal = error
    if refusal is None:
        return True
    planted = case[1] if isinstance(case, tuple) else case
    if not isinstance(planted, str):  # a text is the developer's own, a value is a person's
        assert CANARY not in f"{refusal!s} {refusal!r} {refusal.__dict__}", "a raw value in a message"
    return False


def stopped(*_: object) -> None:
    """Stop an input that hangs."""
    raise TimeoutError("this input hangs")


def fuzz(count: int, seed: int | None = None) -> Counter[str]:
    """Feed so many inputs; return how many of each kind were taken and refused."""
    chance = random.Random(seed)
    counts: Counter[str] = Counter()
    names = chance.choices(list(_SHARE), weights=list(_SHARE.values()), k=count)
    signal.signal(signal.SIGALRM, stopped)
    signal.signal(signal.SIGPROF, stopped)
    for name in names:
        make, attempt = KINDS[name]
        case = make(chance)
        for timer, seconds in LONGEST.items():
            signal.setitimer(timer, seconds)
        try:
            counts[f"{name} {'taken' if feed(attempt, case) else 'refused'}"] += 1
        except BaseException:
            sys.stderr.write(f"{name}: {case!r}\n")
            raise
        finally:
            for timer in LONGEST:
                signal.setitimer(timer, 0)
    return counts


def guided(count: int) -> None:
    """Feed so many texts and epsilons that atheris finds by the coverage of the readers."""
    atheris = import_module("atheris")  # installed for this only

    def one(data: bytes) -> None:
        text = data[1:].decode("utf-8", "surrogateescape")
        feed(try_epsilon if data[:1] < b"\x40" else try_text, text)

    registry()  # plugins are not what is looked at
    atheris.instrument_all()
    atheris.Setup([sys.argv[0], f"-runs={count}", "-timeout=2", "-max_len=400", "-rss_limit_mb=4096"], one)
    atheris.Fuzz()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--atheris", action="store_true")
    chosen = parser.parse_args()
    if chosen.atheris:
        guided(chosen.count)
    else:
        print(f"--seed {chosen.seed}")
        print(dict(sorted(fuzz(chosen.count, chosen.seed).items())))
