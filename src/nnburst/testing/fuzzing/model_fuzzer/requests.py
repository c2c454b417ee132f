"""VR1 to VR9: requests that a driver must refuse, whichever way they come."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from nnburst.client.prepared_model import PreparedModel
from nnburst.control.channel import Fds
from nnburst.control.messages.aidl_burst import OpenAidlBurst, ReleaseMemoryResource
from nnburst.control.messages.session import Nothing, Opened, Release
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import NnburstError
from nnburst.hal.request import Request
from nnburst.testing.fuzzing.model_fuzzer.asking import (
    Ask,
    execute,
    execute_fenced,
    execute_in_aidl_burst,
    execute_in_burst,
    execute_reusable,
    execute_synchronously,
    execute_with_fence,
)
from nnburst.testing.fuzzing.model_fuzzer.report import EVERYTHING, FuzzReport, FuzzSelection
from nnburst.testing.fuzzing.model_fuzzer.target import Target
from nnburst.testing.peers.raw_burst import RawBurst

_TIMEOUT: Final = 60.0
_NONE: Final = ErrorStatus.NONE
_INVALID: Final = ErrorStatus.INVALID_ARGUMENT
#: Slots that no request has named.
_UNKNOWN_SLOTS: Final = (12345, -1)


def fuzz_requests(
    target: Target, report: FuzzReport, selection: FuzzSelection = EVERYTHING
) -> None:
    """Leave out each input and each output, every way; then free memory of the burst.

    Raises:
        NnburstError: the driver has died or does not answer; the last failure in `report` has the cause.
    """
    with (
        target.prepare() as prepared,
        RawBurst(prepared) as burst,
        _aidl_burst(target, prepared) as aidl,
    ):
        for rule, ask in _ways(target, prepared, burst, aidl):
            _expect(target, report, f"{rule} valid", ask, target.request, {_NONE})
            for what, request in _shortened(target.request):
                description = f"{'VR5' if 'output' in what else rule} {what} ({rule})"
                if selection.takes(description):
                    report.count(description)
                    _expect(target, report, description, ask, request, {_INVALID})
            _expect(target, report, f"{rule} valid, at the end", ask, target.request, {_NONE})
        if selection.takes("VR6"):
            _free_memory(target, report, burst)
        if selection.takes("VR8"):
            _fences_that_are_none(target, report, prepared)
        if selection.takes("VR9"):
            _wrong_identifiers(target, report, aidl)


def fuzz_failing(target: Target, report: FuzzReport) -> None:
    """VR7: a model that cannot be executed, although it is valid, must be refused without shapes."""
    with (
        target.prepare() as prepared,
        RawBurst(prepared) as burst,
        _aidl_burst(target, prepared) as aidl,
    ):
        failures = frozenset(ErrorStatus) - {_NONE}
        for _, ask in _ways(target, prepared, burst, aidl):
            report.count("VR7")
            _expect(target, report, "VR7", ask, target.request, failures)


@contextmanager
def _aidl_burst(target: Target, prepared: PreparedModel) -> Iterator[int]:
    """The handle of an open burst of AIDL."""
    connection = target.device._session.connection
    message = OpenAidlBurst(prepared._prepared.handle)
    opened, _ = connection.call(message, Opened, timeout=_TIMEOUT)
    try:
        yield opened.handle
    finally:
        connection.post(Release(opened.handle))


def _ways(
    target: Target, prepared: PreparedModel, burst: RawBurst, aidl: int
) -> Iterator[tuple[str, Ask]]:
    """The ways to execute, by the rule about them."""
    yield "VR1", execute(target, prepared)
    yield "VR2", execute_synchronously(target, prepared)
    yield "VR3", execute_in_burst(target, burst)
    if all(output.known for output in prepared.outputs):  # device:F1: shapes could not be reported
        yield "VR4", execute_fenced(target, prepared)
        yield "VR9 fenced object", execute_reusable(target, prepared, fenced=True)
    yield "VR9 object", execute_reusable(target, prepared, fenced=False)
    yield "VR9 burst", execute_in_aidl_burst(target, aidl)


def _shortened(request: Request) -> Iterator[tuple[str, Request]]:
    """The request without each of its arguments."""
    for kind in ("inputs", "outputs"):
        arguments = getattr(request, kind)
        for n in range(len(arguments)):
            rest = arguments[:n] + arguments[n + 1 :]
            yield f"without {kind[:-1]} {n}", replace(request, **{kind: rest})


def _expect(
    target: Target,
    report: FuzzReport,
    description: str,
    ask: Ask,
    request: Request,
    allowed: set[ErrorStatus] | frozenset[ErrorStatus],
) -> None:
    """Ask once with timing and once without; errors come without shapes and without timing."""
    for measure in (True, False):
        try:
            answer = ask(request, measure)
        except NnburstError as error:
            report.fail(target.name, description, f"no answer: {error}")
            raise
        if answer.status not in allowed:
            report.fail(target.name, description, f"answered {answer.status.name}")
        elif answer.measured != (measure and answer.status == _NONE):
            report.fail(target.name, description, f"measured: {answer.measured}, asked: {measure}")
        for problem in answer.problems:
            report.fail(target.name, description, problem)


def _free_memory(target: Target, report: FuzzReport, burst: RawBurst) -> None:
    """VR6: free a slot that is known, slots that never were, and the first one again."""
    slot = burst.slot_of(target.memory)
    for wanted in (slot, *_UNKNOWN_SLOTS, slot):
        report.count("VR6")
        try:
            burst.channels.free_memory(wanted)
        except NnburstError as error:
            report.fail(target.name, f"VR6 slot {wanted}", f"freeMemory: {error}")
        _expect(
            target,
            report,
            f"VR6 valid, after slot {wanted} was freed",
            execute_in_burst(target, burst),
            target.request,
            {_NONE},
        )


def _fences_that_are_none(target: Target, report: FuzzReport, prepared: PreparedModel) -> None:
    """VR8: a fenced execution whose fence is missing, or something else."""
    with Path(os.devnull).open("rb") as null, Fds([target.memory.duplicate()]) as memory:
        for what, fds in (("missing", []), ("a file", [null.fileno()]), ("memory", list(memory))):
            report.count("VR8")
            ask = execute_with_fence(target, prepared, fds)
            _expect(target, report, f"VR8 fence is {what}", ask, target.request, {_INVALID})


def _wrong_identifiers(target: Target, report: FuzzReport, aidl: int) -> None:
    """VR9 (validateBurst): identifiers below -1, too few, too many; and one to be released."""
    for identifiers in ((-2,), (), (-1, -1)):
        report.count("VR9")
        ask = execute_in_aidl_burst(target, aidl, identifiers)
        description = f"VR9 identifiers {list(identifiers)}"
        _expect(target, report, description, ask, target.request, {_INVALID})
    for identifier, refused in ((-2, True), (-1, False), (0, False), (0, False)):
        report.count("VR9")
        message = ReleaseMemoryResource(aidl, identifier)
        try:
            target.device._session.connection.call(message, Nothing, timeout=_TIMEOUT)
            status = _NONE
        except NnburstError as error:
            status = error.status
        if status != (_INVALID if refused else _NONE):
            description = f"VR9 identifier {identifier} released"
            report.fail(target.name, description, f"answered {status.name}")
    for _ in range(2):
        ask = execute_in_aidl_burst(target, aidl, (0,))
        _expect(target, report, "VR9 valid, with an identifier", ask, target.request, {_NONE})
