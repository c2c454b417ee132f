"""VR1 to VR7: requests that a driver must refuse, whichever way they come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from nnburst.client.prepared_model import PreparedModel
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import NnburstError
from nnburst.hal.request import Request
from nnburst.testing.model_fuzzer.asking import (
    Ask,
    execute,
    execute_fenced,
    execute_in_burst,
    execute_synchronously,
)
from nnburst.testing.model_fuzzer.report import EVERYTHING, FuzzReport, Selection
from nnburst.testing.model_fuzzer.target import Target
from nnburst.testing.raw_burst import RawBurst

_NONE: Final = ErrorStatus.NONE
_INVALID: Final = ErrorStatus.INVALID_ARGUMENT
#: Slots that no request has named.
_UNKNOWN_SLOTS: Final = (12345, -1)


def fuzz_requests(target: Target, report: FuzzReport, selection: Selection = EVERYTHING) -> None:
    """Leave out each input and each output, every way; then free memory of the burst.

    Raises:
        NnburstError: the driver has died or does not answer; the last failure in `report` says to what.
    """
    with target.prepare() as prepared, RawBurst(prepared) as burst:
        for rule, ask in _ways(target, prepared, burst):
            _expect(target, report, f"{rule} valid", ask, target.request, {_NONE})
            for what, request in _shortened(target.request):
                description = f"{'VR5' if 'output' in what else rule} {what} ({rule})"
                if selection.takes(description):
                    report.count(description)
                    _expect(target, report, description, ask, request, {_INVALID})
            _expect(target, report, f"{rule} valid, at the end", ask, target.request, {_NONE})
        if selection.takes("VR6"):
            _free_memory(target, report, burst)


def fuzz_failing(target: Target, report: FuzzReport) -> None:
    """VR7: a model that cannot be executed, although it is valid, must say so without shapes."""
    with target.prepare() as prepared, RawBurst(prepared) as burst:
        failures = frozenset(ErrorStatus) - {_NONE}
        for _, ask in _ways(target, prepared, burst):
            report.count("VR7")
            _expect(target, report, "VR7", ask, target.request, failures)


def _ways(target: Target, prepared: PreparedModel, burst: RawBurst) -> Iterator[tuple[str, Ask]]:
    """The ways to execute, by the rule about them."""
    yield "VR1", execute(target, prepared)
    yield "VR2", execute_synchronously(target, prepared)
    yield "VR3", execute_in_burst(target, burst)
    if all(output.known for output in prepared.outputs):  # device:F1: shapes could not be told
        yield "VR4", execute_fenced(target, prepared)


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
