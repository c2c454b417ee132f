"""Each SYNC POINT as a few accesses, checked against Armv8's axioms; the orders come from the sources.

What a function of atomics.h is on Armv8 follows from the memory order that it names there, by the mapping
that compilers use without LSE (relaxed: ldr, str; acquire: ldar; release: stlr; seq_cst and release fence:
dmb ish; acquire fence: dmb ishld; read-modify-write: ldaxr and stlxr, each by its half). Which function
stands at a SYNC POINT is read from the C files, so another one there, or another order in atomics.h, is
another program.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from csrc.armv8 import Access, outcomes

SOURCES = Path(__file__).parents[2] / "csrc"

pytestmark = pytest.mark.skipif(not SOURCES.is_dir(), reason="needs the C sources beside the tests")

Maker = Callable[[str], list[list[Access]]]


def w(place: str, value: int = 1, order: str = "") -> Access:
    return Access("W", place, value, order)


def r(place: str, order: str = "") -> Access:
    return Access("R", place, order=order)


def rmw(place: str, value: int, order: str = "AL") -> Access:
    return Access("RMW", place, value, order)


def f(order: str = "full") -> Access:
    return Access("F", order=order)


#: Program, outcome of its reads and last values by place, whether Armv8 allows it.
CLASSIC = {
    "MP": ([[w("x"), w("y")], [r("y"), r("x")]], (1, 0, 1, 1), True),
    "MP+rel+acq": ([[w("x"), w("y", order="L")], [r("y", "A"), r("x")]], (1, 0, 1, 1), False),
    "MP+rel+acqpc": ([[w("x"), w("y", order="L")], [r("y", "Q"), r("x")]], (1, 0, 1, 1), False),
    "MP+rel+po": ([[w("x"), w("y", order="L")], [r("y"), r("x")]], (1, 0, 1, 1), True),
    "MP+dmb.st+dmb.ld": ([[w("x"), f("st"), w("y")], [r("y"), f("ld"), r("x")]], (1, 0, 1, 1), False),
    "SB": ([[w("x"), r("y")], [w("y"), r("x")]], (0, 0, 1, 1), True),
    "SB+dmb": ([[w("x"), f(), r("y")], [w("y"), f(), r("x")]], (0, 0, 1, 1), False),
    "SB+stlr+ldar": (
        [[w("x", order="L"), r("y", "A")], [w("y", order="L"), r("x", "A")]], (0, 0, 1, 1), False,
    ),
    "SB+stlr+ldapr": (
        [[w("x", order="L"), r("y", "Q")], [w("y", order="L"), r("x", "Q")]], (0, 0, 1, 1), True,
    ),
    "SB+rmw+plain": ([[rmw("x", 1), r("y")], [rmw("y", 1), r("x")]], (0, 0, 0, 0, 1, 1), True),
    "LB": ([[r("x"), w("y")], [r("y"), w("x")]], (1, 1, 1, 1), True),
    "LB+acq": ([[r("x", "A"), w("y")], [r("y", "A"), w("x")]], (1, 1, 1, 1), False),
    "LB+rel": ([[r("x"), w("y", order="L")], [r("y"), w("x", order="L")]], (1, 1, 1, 1), False),
    "S": ([[w("x", 2), w("y")], [r("y"), w("x", 1)]], (1, 2, 1), True),
    "S+rel+acq": ([[w("x", 2), w("y", order="L")], [r("y", "A"), w("x", 1)]], (1, 2, 1), False),
    "R": ([[w("x"), w("y")], [w("y", 2), r("x")]], (0, 1, 2), True),
    "R+dmb": ([[w("x"), f(), w("y")], [w("y", 2), f(), r("x")]], (0, 1, 2), False),
    "2+2W": ([[w("x", 1), w("y", 2)], [w("y", 1), w("x", 2)]], (1, 1), True),
    "2+2W+rel": (
        [[w("x", 1), w("y", 2, "L")], [w("y", 1), w("x", 2, "L")]], (1, 1), False,
    ),
    "WRC": ([[w("x")], [r("x"), w("y")], [r("y"), r("x")]], (1, 1, 0, 1, 1), True),
    "WRC+rel+acq": ([[w("x")], [r("x"), w("y", order="L")], [r("y", "A"), r("x")]], (1, 1, 0, 1, 1), False),
    "IRIW": ([[w("x")], [w("y")], [r("x"), r("y")], [r("y"), r("x")]], (1, 0, 1, 0, 1, 1), True),
    "IRIW+acq": (
        [[w("x")], [w("y")], [r("x", "A"), r("y", "A")], [r("y", "A"), r("x", "A")]],
        (1, 0, 1, 0, 1, 1),
        False,
    ),
    "CoRR": ([[w("x")], [r("x"), r("x")]], (1, 0, 1), False),
}  # fmt: skip


@pytest.mark.parametrize("name", CLASSIC)
def test_classic_verdict_is_reproduced(name: str) -> None:
    program, outcome, allowed = CLASSIC[name]
    assert (outcome in outcomes(program)) is allowed


def orders() -> dict[str, str]:
    """For each function of atomics.h the memory order that it names; of a claim that succeeds."""
    text = (SOURCES / "atomics.h").read_text()
    functions = re.findall(
        r"static inline [\w ]+?(nnb_\w+)\([^)]*\) \{(.*?)^\}", text, re.DOTALL | re.MULTILINE
    )
    return {
        name: found[-1]
        for name, body in functions
        if (found := re.findall(r"memory_order_(\w+)(?:,\s+memory_order_relaxed)?\)", body))
    }


def access(function: str, place: str, value: int = 1) -> Access:
    """The instructions of a function of atomics.h on Armv8."""
    order = orders()[function]
    if "load" in function:
        return r(place, "A" if order in ("acquire", "seq_cst") else "")
    if "store" in function or function == "nnb_unlock":
        return w(place, value, "L" if order in ("release", "seq_cst") else "")
    if "fence" in function:
        return f({"seq_cst": "full", "release": "full", "acquire": "ld"}.get(order, ""))
    halves = {"seq_cst": "AL", "acq_rel": "AL", "acquire": "A", "release": "L"}
    return rmw(place, value, halves.get(order, ""))


def functions_at(letter: str) -> set[str]:
    """Functions of atomics.h within a few lines below a comment with this SYNC POINT."""
    known, found = orders(), set()
    for path in [*SOURCES.glob("*.c"), *SOURCES.glob("*.h")]:
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines):
            if path.name == "atomics.h" or not re.search(rf"SYNC POINT (\w, )*{letter}\b", line):
                continue
            below = " ".join(lines[number : number + 12])
            if call := next((c for c in re.findall(r"(nnb_\w+)\(", below) if c in known), None):
                found.add(call)
    return found


STORE, LOAD = "nnb_store_release_u64", "nnb_load_acquire_u64"
STORE32, LOAD32 = "nnb_store_release_u32", "nnb_load_acquire_u32"
CLAIM = "nnb_try_claim"
OR, AND, FENCE = "nnb_fetch_or_u32", "nnb_fetch_and_u32", "nnb_fence"
REPLACE = "nnb_try_replace_u32"


def message(store: str, load: str) -> list[list[Access]]:
    """Writes before the store are visible to a thread that loads its value."""
    return [[w("data"), access(store, "word")], [access(load, "word"), r("data")]]


def hand_back(store: str, load: str) -> list[list[Access]]:
    """Reads before the store are complete when a thread that loads its value writes there."""
    return [[r("data"), access(store, "word")], [access(load, "word"), w("data")]]


def locked(lock: str, unlock: str) -> list[list[Access]]:
    """Writes inside are visible to the thread that enters next."""
    return [[w("data"), access(unlock, "word", 2)], [access(lock, "word", 1), r("data")]]


def wake(look: list[Access], change: str = AND) -> list[list[Access]]:
    """One side publishes and reads the flag, the other changes the flag and reads: one must see the other."""
    return [[access(STORE, "data"), *look], [access(change, "flag", 1), access(LOAD, "data")]]


#: For each letter its functions, programs of them, and the outcome that must not be.
SHAPES: dict[str, tuple[set[str], list[tuple[list[list[Access]], tuple[int, ...]]]]] = {
    "A": ({STORE, LOAD}, [(message(STORE, LOAD), (1, 0, 1, 1))]),
    "B": ({STORE, LOAD}, [(hand_back(STORE, LOAD), (1, 1, 1, 1))]),
    "C": (
        {OR, AND, REPLACE, FENCE},
        [
            (wake([access(FENCE, ""), r("flag")], change), (0, 0, 0, 1, 1))
            for change in (AND, REPLACE)
        ]
        + [(wake([access(OR, "flag", 2)], change), (0, 2, 0, 1, 1)) for change in (AND, REPLACE)],
    ),
    "D": ({STORE32, LOAD32}, [(message(STORE32, LOAD32), (1, 0, 1, 1))]),
    "E": ({STORE32, LOAD32}, [(message(STORE32, LOAD32), (1, 0, 1, 1))]),
    "F": ({STORE32, LOAD32}, [(hand_back(STORE32, LOAD32), (1, 1, 1, 1))]),
    "H": ({STORE32, LOAD32}, [(message(STORE32, LOAD32), (1, 0, 1, 1))]),
    "I": ({CLAIM, STORE}, [(locked(CLAIM, STORE), (2, 0, 1, 1))]),
    "J": (
        {OR, AND, FENCE},
        [
            (
                [
                    [access(STORE, "data"), access(FENCE, ""), r("flag")],
                    [access(OR, "flag", 1), access(LOAD, "data")],
                ],
                (0, 0, 0, 1, 1),
            )
        ],
    ),
    "K": (
        {"nnb_store_relaxed_u64", "nnb_fence_reads"},
        [
            (
                [
                    [access("nnb_store_relaxed_u64", "claim"), access("nnb_fence_writes", ""), w("data")],
                    [r("data"), access("nnb_fence_reads", ""), access("nnb_load_relaxed_u64", "claim")],
                ],
                (1, 0, 1, 1),
            )
        ],
    ),
    "L": ({STORE, LOAD}, [(message(STORE, LOAD), (1, 0, 1, 1))]),
    "N": ({STORE32, LOAD32}, [(message(STORE32, LOAD32), (1, 0, 1, 1))]),
    # The collector is Python; what it needs of the order is that of these readers.
    "T": (
        {"nnb_fence_writes", STORE, STORE32},
        [
            (message(STORE, LOAD), (1, 0, 1, 1)),
            (message(STORE32, LOAD32), (1, 0, 1, 1)),
            (
                [
                    [access("nnb_store_relaxed_u64", "claim"), access("nnb_fence_writes", ""), w("data")],
                    [r("data"), access("nnb_fence_reads", ""), access("nnb_load_relaxed_u64", "claim")],
                ],
                (1, 0, 1, 1),
            ),
        ],
    ),
}  # fmt: skip
CASES = [
    (letter, index) for letter, (_, programs) in SHAPES.items() for index in range(len(programs))
]


def weakenings(program: list[list[Access]]) -> list[list[list[Access]]]:
    """Variants of a program that each lack one of its memory orders."""
    found = []
    for t, thread in enumerate(program):
        for n, each in enumerate(thread):
            if each.order:
                weaker = [] if each.kind == "F" else [Access(each.kind, each.place, each.value)]
                found.append(
                    [*program[:t], [*thread[:n], *weaker, *thread[n + 1 :]], *program[t + 1 :]]
                )
    return found


@pytest.mark.parametrize("letter", SHAPES)
def test_functions_at_the_sync_point_are_those_of_its_litmus_test(letter: str) -> None:
    assert functions_at(letter) == SHAPES[letter][0]


def test_every_sync_point_that_orders_anything_has_a_litmus_test() -> None:
    text = "".join(path.read_text() for path in [*SOURCES.glob("*.c"), *SOURCES.glob("*.h")])
    letters = set(re.findall(r"SYNC POINT (?:\w, )*([A-Z])\b", text))
    assert letters - SHAPES.keys() == {"G"}, "G is a single word, which every order keeps"


@pytest.mark.parametrize(("letter", "index"), CASES)
def test_forbidden_outcome_does_not_happen_on_armv8(letter: str, index: int) -> None:
    program, outcome = SHAPES[letter][1][index]
    assert outcome not in outcomes(program)


@pytest.mark.parametrize(("letter", "index"), CASES)
def test_one_relaxed_access_is_found(letter: str, index: int) -> None:
    program, outcome = SHAPES[letter][1][index]
    assert [weak for weak in weakenings(program) if outcome in outcomes(weak)]
