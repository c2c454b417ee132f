"""Mutated .tflite files: each is imported or refused, in bounded time and memory."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import FrameType
from typing import Final

from nnburst.executor.operations import SIGNATURES
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.validation import validate_model
from nnburst.importer.load import load

#: What importing a file may take: this many times its size, and a fixed part; and seconds.
MEMORY_PER_BYTE: Final = 16
MEMORY_AT_LEAST: Final = 64 * 2**20
SECONDS: Final = 10.0

_MOST_FAILURES: Final = 20
_NUMBERS: Final = (0, 1, 2, 4, 127, 255, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 4, 2**32 - 1)

Mutation = Callable[[bytearray, Random], None]


@dataclass(slots=True)
class ImporterFuzzReport:
    """What happened.

    Attributes:
        files: how many were read.
        outcomes: how many were imported, refused by the importer, or by validation after it.
        failures: what must not happen, with the number of the file: the first of them.
        slowest: seconds of the slowest file.
        largest: bytes of memory that importing one file took at most.
    """

    files: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    slowest: float = 0.0
    largest: int = 0


def fuzz_importer(
    files: Sequence[bytes],
    count: int,
    seed: int = 0,
    progress: Callable[[int], None] = lambda _done: None,
) -> ImporterFuzzReport:
    """Import `count` mutations of `files`. Only in the main thread: an alarm ends what hangs.

    Args:
        files: intact files.
        count: how many mutations.
        seed: file `number` of a run depends on it and on its number only.
        progress: called with 1 after each.
    """
    report = ImporterFuzzReport()
    for number in range(count):
        content = mutated(files, Random(f"{seed}/{number}"))  # noqa: S311 - not for secrets
        began, before = time.monotonic(), _start_of_peak()
        outcome = _outcome(content)
        growth = _status("VmHWM") - before
        seconds = time.monotonic() - began
        allowed = MEMORY_PER_BYTE * len(content) + MEMORY_AT_LEAST
        if growth > allowed:
            outcome = f"{growth} bytes for a file of {len(content)}"
        if outcome not in ("imported", "refused", "invalid"):
            if len(report.failures) < _MOST_FAILURES:
                report.failures.append(f"file {number}: {outcome}")
            outcome = "failed"
        report.files += 1
        report.outcomes[outcome] += 1
        report.slowest, report.largest = max(report.slowest, seconds), max(report.largest, growth)
        progress(1)
    return report


def _outcome(content: bytes) -> str:
    """Import one file; anything but an answer or InvalidArgument is a failure."""
    try:
        with _time_limit(SECONDS):
            imported = load(content)
    except InvalidArgument:
        return "refused"
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return f"{type(error).__name__}: {error}"
    try:
        validate_model(imported.model, SIGNATURES)
    except InvalidArgument:
        return "invalid"
    return "imported"


class _TooSlow(Exception):
    """The alarm rang."""


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    def ring(_signal: int, _frame: FrameType | None) -> None:
        raise _TooSlow(f"not done after {seconds} s")

    previous = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def _start_of_peak() -> int:
    """Bytes resident now; the kernel's peak starts again from there."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return _status("VmRSS")


def _status(name: str) -> int:
    """A number of /proc/self/status in bytes."""
    with Path("/proc/self/status").open(encoding="ascii", errors="replace") as lines:
        for line in lines:
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {name}")


def mutated(files: Sequence[bytes], random: Random) -> bytes:
    """One of the files with one to eight mutations."""
    content = bytearray(random.choice(files))
    for _ in range(random.choice((1, 1, 1, 2, 3, 8))):
        random.choice(_MUTATIONS)(content, random)
        if len(content) < 16:
            break
    return bytes(content)


def _flip_bit(content: bytearray, random: Random) -> None:
    content[random.randrange(len(content))] ^= 1 << random.randrange(8)


def _set_byte(content: bytearray, random: Random) -> None:
    content[random.randrange(len(content))] = random.randrange(256)


def _set_number(content: bytearray, random: Random) -> None:
    """An aligned 32-bit number becomes an extreme, the file's size, or a little more or less."""
    at = random.randrange(len(content) // 4) * 4
    old = int.from_bytes(content[at : at + 4], "little")
    near = random.choice((-64, -8, -4, -1, 1, 4, 8, 64)) + old
    new = random.choice((*_NUMBERS, len(content), near, near, near))
    content[at : at + 4] = (new & 0xFFFFFFFF).to_bytes(4, "little")


def _set_half(content: bytearray, random: Random) -> None:
    """An aligned 16-bit number, as in a table of fields, becomes a small even one."""
    at = random.randrange(len(content) // 2) * 2
    content[at : at + 2] = (2 * random.randrange(64)).to_bytes(2, "little")


def _point_elsewhere(content: bytearray, random: Random) -> None:
    """An offset becomes one to another aligned place behind it."""
    at = random.randrange(len(content) // 4) * 4
    target = random.randrange(at, len(content)) & ~3
    content[at : at + 4] = (target - at).to_bytes(4, "little")


def _repeat_number(content: bytearray, random: Random) -> None:
    """A number is copied over those behind it: vectors of one thing."""
    at = random.randrange(len(content) // 4) * 4
    count = min(random.choice((1, 4, 64)), (len(content) - at) // 4)
    content[at : at + 4 * count] = content[at : at + 4] * count


def _copy_part(content: bytearray, random: Random) -> None:
    length = random.choice((4, 8, 32, 256))
    source, target = (random.randrange(len(content)) & ~3 for _ in range(2))
    part = content[source : source + length]
    content[target : target + len(part)] = part


def _truncate(content: bytearray, random: Random) -> None:
    del content[random.randrange(len(content)) :]


def _cut_out(content: bytearray, random: Random) -> None:
    at = random.randrange(len(content))
    del content[at : at + random.choice((1, 4, 16))]


_MUTATIONS: Final[tuple[Mutation, ...]] = (
    _flip_bit,
    _set_byte,
    _set_number,
    _set_number,
    _set_half,
    _point_elsewhere,
    _repeat_number,
    _copy_part,
    _truncate,
    _cut_out,
)
