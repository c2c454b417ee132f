"""Computes the outcomes that Armv8 allows for small programs, from every execution and the axioms.

An execution is a choice of the write that each read reads from, and of the order in which writes to one place
become visible. It is allowed if it keeps order within each place (internal), if no observation contradicts
the required order (external: acyclic `ob`), and if no write comes between the halves of an exclusive pair
(atomic).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product

#: What a program may hold.
Program = Sequence[Sequence["Access"]]
Edge = tuple[int, int]


@dataclass(frozen=True)
class Access:
    """An instruction.

    Attributes:
        kind: "R" reads, "W" writes, "RMW" does both at once, "F" is a barrier.
        place: variable.
        value: the written value; that of a read is computed.
        order: of R and W: "" plain, "A" acquire (ldar), "Q" weaker acquire (ldapr), "L" release (stlr); of
            RMW the two halves' together, "AL" say; of F: "full", "ld" or "st".
        depends: whether it is a write that depends on an earlier read of its thread (control).
    """

    kind: str
    place: str = ""
    value: int = 0
    order: str = ""
    depends: bool = False


@dataclass(frozen=True)
class _Event:
    thread: int
    access: Access
    is_read: bool
    is_write: bool
    order: str
    pair: int = -1


def outcomes(program: Program) -> set[tuple[int, ...]]:
    """Values of all reads, thread after thread, then the last value of each place by name."""
    events, order = _events(program)
    writes = [n for n, event in enumerate(events) if event.is_write]
    reads = [n for n, event in enumerate(events) if event.is_read]
    sources = [
        [-1, *(w for w in writes if events[w].access.place == events[r].access.place)]
        for r in reads
    ]
    ordered = _ordered_before(events, order)
    found = set()
    for chosen in product(*sources):
        rf = {(source, read) for source, read in zip(chosen, reads, strict=True) if source >= 0}
        for co in _coherences(events, writes):
            if _allowed(events, order, ordered, rf, co, dict(zip(reads, chosen, strict=True))):
                values = [events[s].access.value if s >= 0 else 0 for s in chosen]
                found.add((*values, *_last_values(events, writes, co)))
    return found


def _events(program: Program) -> tuple[list[_Event], set[Edge]]:
    events: list[_Event] = []
    order: set[Edge] = set()
    for thread, accesses in enumerate(program):
        before: list[int] = []
        for access in accesses:
            first = len(events)
            if access.kind == "RMW":
                read = "A" if "A" in access.order else ""
                events.append(_Event(thread, access, True, False, read, first + 1))
                events.append(
                    _Event(thread, access, False, True, "L" if "L" in access.order else "", first)
                )
            else:
                kind = access.kind
                events.append(_Event(thread, access, kind == "R", kind == "W", access.order))
            for new in range(first, len(events)):
                order |= {(old, new) for old in before}
                before.append(new)
    return events, order


def _coherences(events: list[_Event], writes: list[int]) -> Iterator[set[Edge]]:
    """Every order of the writes to each place."""
    places = sorted({events[w].access.place for w in writes})
    rows = [permutations(w for w in writes if events[w].access.place == place) for place in places]
    for chosen in product(*map(list, rows)):
        yield {
            (row[a], row[b])
            for row in chosen
            for a in range(len(row))
            for b in range(a + 1, len(row))
        }


def _last_values(events: list[_Event], writes: list[int], co: set[Edge]) -> list[int]:
    last = {events[w].access.place: w for w in writes if not any(edge[0] == w for edge in co)}
    return [events[last[place]].access.value for place in sorted(last)]


def _ordered_before(events: list[_Event], order: set[Edge]) -> set[Edge]:
    """The pairs that are ordered whatever is read: bob, the control part of dob, and rmw."""
    found = set()
    for a, b in order:
        first, second = events[a], events[b]
        between = [events[f].access.order for f in range(a + 1, b) if events[f].access.kind == "F"]
        memory = (first.is_read or first.is_write) and (second.is_read or second.is_write)
        if not memory:
            continue
        if (
            "full" in between
            or ("ld" in between and first.is_read)
            or ("st" in between and first.is_write and second.is_write)
            or (first.is_read and first.order in ("A", "Q"))
            or (second.is_write and second.order == "L")
            or (first.order == "L" and second.is_read and second.order == "A")
            or (first.is_read and second.is_write and second.access.depends)
            or first.pair == b
        ):
            found.add((a, b))
    return found


def _allowed(
    events: list[_Event],
    order: set[Edge],
    ordered: set[Edge],
    rf: set[Edge],
    co: set[Edge],
    source: dict[int, int],
) -> bool:
    fr = {
        (read, write)
        for read, before in source.items()
        for write, event in enumerate(events)
        if event.is_write
        and event.access.place == events[read].access.place
        and write != before
        and (before < 0 or (before, write) in co)
    }
    local = {
        (a, b)
        for a, b in order
        if events[a].access.place and events[a].access.place == events[b].access.place
    }
    if _has_cycle(len(events), local | rf | co | fr):
        return False
    for read, event in enumerate(events):
        if event.is_read and event.pair >= 0:
            write = event.pair
            if any(
                (read, w) in fr and (w, write) in co and events[w].thread != event.thread
                for w in range(len(events))
            ):
                return False
    observed = {(a, b) for a, b in rf | co | fr if events[a].thread != events[b].thread}
    # What an exclusive pair has written is read by an acquiring read of the same thread in order.
    pairs = {
        (a, b)
        for a, b in rf
        if events[a].thread == events[b].thread
        and events[a].pair >= 0
        and events[b].order in ("A", "Q")
    }
    return not _has_cycle(len(events), ordered | observed | pairs)


def _has_cycle(count: int, edges: set[Edge]) -> bool:
    after: dict[int, list[int]] = {n: [] for n in range(count)}
    incoming = dict.fromkeys(range(count), 0)
    for a, b in edges:
        after[a].append(b)
        incoming[b] += 1
    free = [n for n in range(count) if not incoming[n]]
    seen = 0
    while free:
        seen += 1
        for b in after[free.pop()]:
            incoming[b] -= 1
            if not incoming[b]:
                free.append(b)
    return seen != count
