"""The small program `examples/ldpsql-verify` agrees with every certificate, and refuses a document with one other number."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from fractions import Fraction
from importlib import import_module
from itertools import pairwise
from math import isqrt
from pathlib import Path
from typing import Any, cast

import pytest

from ldpsql import Mechanism, certify, document
from ldpsql.functions import registry
from ldpsql.mechanisms import ApproximateLdp
from tests import clients
from tests.commands import printed
from tests.laws.subjects import MORE, SMALL

FOLDER = Path(__file__).parents[2] / "examples" / "ldpsql-verify"
sys.path.insert(0, str(FOLDER))

import ldpsql_verify  # type: ignore[import-not-found]  # noqa: E402  # a program of its own

TEXTS = {
    **SMALL,
    **MORE,
    **{f"{name} of the clients": text for name, text in clients.TEXTS.items()},
    "row with delta": "row(city=krr(1, ['Lima', 'Oslo', 'Rome']), age=gaussian(2, 0, 4, '0.001', bins=4))",
    "one of a row with delta": "one_of(city=krr(2, ['Lima', 'Oslo', 'Rome']), age=gaussian(2, 0, 4, '0.001', bins=4))",
}
DRAWN = 50  # vectors
# Numbers of a channel that leave every ratio as it is: how numbers are rounded, and to which symbols values are hashed.
NEUTRAL = {"steps", "power", "prime", "dimension", "letters", "levels"}
FORMS = {"size", "symbols", "seeds", "bins"}  # how reports are written
TOGETHER = {"blocks", "bins"}  # which values lie together: refused if the sizes no longer fit


def mechanism(name: str) -> Mechanism:
    if name == "coin":
        plugin = import_module("ldpsql_coin")  # the plugin of a third party
        return cast("Mechanism", plugin.Coin(epsilon="1", domain=["no", "yes"]))
    return registry().mechanism(TEXTS[name])


def vectors(name: str, count: int) -> list[dict[str, Any]]:
    """Return test vectors of a mechanism."""
    return list(map(json.loads, printed("vectors", "-m", TEXTS[name], "-n", str(count)).splitlines()))


@pytest.mark.parametrize("name", [*TEXTS, "coin"])
def test_every_document_is_proved_with_the_figure_of_the_certificate_and_its_vectors_are_drawn_again(name: str) -> None:
    proof, written = certify(mechanism(name)).certificate, document(mechanism(name))
    if isinstance(proof.claim, ApproximateLdp):
        figure = f"exact delta {float(proof.delta):.9g}"
    elif written["channel"]["structure"] == "planar_noise":
        figure = "every pair of points within the claim"
    else:
        figure = f"largest ratio {proof.ratio} = e^"
    assert ldpsql_verify.verified(written).startswith(f"{proof.claim}; {figure}")
    if name in TEXTS and name != "pem":  # strings are not listed, and commands know no plugins here
        lines = [json.dumps(one) for one in vectors(name, DRAWN)]
        assert ldpsql_verify.replay(written, lines) == DRAWN


def numbers(part: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all numbers, also of those in text."""
    if isinstance(part, dict):
        for name, own in part.items():
            yield from numbers(own, (*path, name))
    elif isinstance(part, list):
        for at, own in enumerate(part):
            yield from numbers(own, (*path, at))
    elif (isinstance(part, int) and not isinstance(part, bool)) or (isinstance(part, str) and part[:1].isdigit()):
        yield path


def changed(part: Any, path: tuple[Any, ...]) -> Any:
    """Return a document with another number: larger by one, in fractions and distances an eighth."""
    out = deepcopy(part)
    *above, last = path
    held = out
    for name in above:
        held = held[name]
    own = held[last]
    if isinstance(own, int | float):
        held[last] = own + 1
    elif own.isdecimal() and last != "side":
        held[last] = str(int(own) + 1)
    else:
        held[last] = str(Fraction(own) / 8)
    return out


def deciding(written: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Return the paths of the numbers that decide: of claim, ratio and channel, and the number of values."""
    parts = {name: written[name] for name in ("privacy", "ratio", "channel")}
    sizes = [("values", "count")] if "count" in written["values"] else []
    paths = [path for path in (*numbers(parts), *sizes) if path[-1] not in NEUTRAL and not TOGETHER & {*path}]
    return [path for path in paths if "falling" not in path or is_sum_of_two_squares(path[-1])]


def is_sum_of_two_squares(number: int) -> bool:
    """Return whether points of a grid have this squared distance; the noise has weights for those that no point has, too."""
    return any(isqrt(number - a * a) ** 2 == number - a * a for a in range(isqrt(number) + 1))


def same_channel(written: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether two documents have the same weights: a table can be written in more than one way."""
    try:
        return bool(ldpsql_verify.read(written["channel"]) == ldpsql_verify.read(other["channel"]))
    except LookupError:
        return False


def test_a_document_with_one_number_changed_is_refused() -> None:
    tried = 0
    for name in (*SMALL, *MORE, "coin", "row with delta", "planar_geometric of many cells of the clients"):
        written = document(mechanism(name))
        paths = deciding(written)
        for path in paths[:: max(1, len(paths) // 40)]:
            other = changed(written, path)
            if "rows" in path and same_channel(written, other):
                continue
            tried += 1
            with pytest.raises(ldpsql_verify.No):
                pytest.fail(f"{name}: {path} was changed, and {ldpsql_verify.verified(other)}")
    assert tried > 500


def test_numbers_that_change_no_ratio_are_those_that_are_named() -> None:
    """So do the numbers of how reports are written, and of where values lie: neither is random."""
    tried = set()
    for name in TEXTS:
        written = document(mechanism(name))
        paths = [path for path in numbers(written["channel"], ("channel",)) if path[-1] in NEUTRAL]
        paths += [path for path in numbers(written["reports"], ("reports",)) if path[-1] in FORMS]
        paths += [("values", end) for end in ("low", "first", "width") if end in written["values"]]
        for path in paths[:8]:
            tried.add(path[-1])
            assert ldpsql_verify.verified(changed(written, path)) == ldpsql_verify.verified(written)
    assert tried >= NEUTRAL | FORMS | {"low", "first", "width"}


@pytest.mark.parametrize("claim", ["0.999999-LDP", "2-LDP", "1 per unit of distance", "(1, 0.001)-LDP"])
def test_another_claim_in_words_is_refused(claim: str) -> None:
    with pytest.raises(ldpsql_verify.No, match="not that of the document"):
        ldpsql_verify.verified(document(mechanism("krr")) | {"claim": claim})


@pytest.mark.parametrize("epsilon", ["0.999999999999", "0", "-1", "nan", "1e9", "1e3/0"])
def test_an_epsilon_below_the_ratio_is_refused_though_the_claim_says_the_same(epsilon: str) -> None:
    written = document(mechanism("krr")) | {"privacy": {"epsilon": epsilon}, "claim": f"{epsilon}-LDP"}
    with pytest.raises(ldpsql_verify.No):
        ldpsql_verify.verified(written)


@pytest.mark.parametrize("name", ["krr", "oue", "olh", "hierarchy", "pckv_ue", "row", "square_wave"])
def test_vectors_with_another_report_or_other_words_are_refused(name: str) -> None:
    """Reports of one value need not differ, so many are compared with the next one's words."""
    written, drawn = document(mechanism(name)), [*vectors(name, 200)]
    again = [one | {"report": other["report"]} for one, other in pairwise(drawn)]
    fewer, more = drawn[0] | {"words": drawn[0]["words"][1:]}, drawn[0] | {"words": [*drawn[0]["words"], "0" * 16]}
    for wrong in (again, [fewer], [more]):
        with pytest.raises(ldpsql_verify.No):
            ldpsql_verify.replay(written, [json.dumps(one) for one in (*drawn, *wrong)])


def test_a_row_cannot_claim_an_epsilon_per_unit_of_distance_for_a_column() -> None:
    written = document(mechanism("row"))
    metric = {"kind": "line", "count": 10**6}
    near = [part | {"epsilon": "0.5", "metric": metric} for part in written["privacy"]["parts"]]
    claimed = written | {"claim": "1-LDP", "privacy": {"epsilon": "1", "parts": near}}
    with pytest.raises(ldpsql_verify.No, match="above"):
        ldpsql_verify.verified(claimed)


def run(*arguments: Path) -> tuple[int, str]:
    """Return the exit status and the output of the program, without any installed package."""
    done = subprocess.run(
        [sys.executable, "-S", "-E", FOLDER / "ldpsql_verify.py", *arguments], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_the_program_answers_with_a_figure_and_an_exit_status(tmp_path: Path) -> None:
    whole, wrong, drawn = tmp_path / "whole.json", tmp_path / "wrong.json", tmp_path / "vectors.jsonl"
    whole.write_text(json.dumps(document(mechanism("krr"))))
    wrong.write_text(json.dumps(document(mechanism("krr")) | {"ratio": "3"}))
    drawn.write_text("".join(json.dumps(one) + "\n" for one in vectors("krr", 3)))
    yes = "yes: krr keeps 1-LDP; largest ratio 10627480729818066790/3909631671945742413 = e^1; 3 vectors replayed\n"
    assert run(whole, drawn) == (0, yes)
    assert run(wrong) == (1, "no: the largest ratio is 10627480729818066790/3909631671945742413, not that of the document\n")
    assert run(tmp_path / "missing.json")[0] == run()[0] == 2


def test_the_program_is_short_and_needs_the_standard_library_only() -> None:
    files = [*FOLDER.glob("*.py")]
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    assert len(text.splitlines()) <= 400
    roots = {node.module for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)}
    roots |= {one.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import) for one in node.names}
    assert {str(root).partition(".")[0] for root in roots} <= sys.stdlib_module_names
