"""VR2, VR3 and VR5 to VR7: requests that a driver must refuse, over the socket and over a burst."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from nnburst.client.prepared_model import PreparedModel
from nnburst.control.channel import Fds
from nnburst.control.messages import Executed, ExecuteSynchronously
from nnburst.hal.enums import ErrorStatus, MeasureTiming
from nnburst.hal.errors import DeadObject, NnburstError
from nnburst.hal.request import Request
from nnburst.serialize import deserialize_result, serialize_request
from nnburst.testing.model_fuzzer.report import EVERYTHING, FuzzReport, Selection
from nnburst.testing.model_fuzzer.target import Target
from nnburst.testing.packet_fuzzer import judge
from nnburst.testing.raw_burst import RawBurst

_TIMEOUT: Final = 60.0
_NONE: Final = ErrorStatus.NONE
_INVALID: Final = ErrorStatus.INVALID_ARGUMENT
#: Slots that no request has named.
_UNKNOWN_SLOTS: Final = (12345, -1)


class Answer(NamedTuple):
    """How a request was answered: its status, whether it was timed, what else is wrong with it."""

    status: ErrorStatus
    measured: bool
    problems: Sequence[str]


Ask = Callable[[Request, bool], Answer]


def fuzz_requests(target: Target, report: FuzzReport, selection: Selection = EVERYTHING) -> None:
    """Leave out each input and each output, every way; then free memory of the burst.

    Raises:
        NnburstError: the driver has died or does not answer; the last failure in `report` says to what.
    """
    with target.prepare() as prepared, RawBurst(prepared) as burst:
        ways: tuple[tuple[str, Ask], ...] = (
            ("VR2", lambda request, measure: _execute(target, prepared, request, measure)),
            ("VR3", lambda request, measure: _exchange(target, burst, request, measure)),
        )
        for rule, ask in ways:
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
        ways: tuple[Ask, ...] = (
            lambda request, measure: _execute(target, prepared, request, measure),
            lambda request, measure: _exchange(target, burst, request, measure),
        )
        for ask in ways:
            report.count("VR7")
            _expect(target, report, "VR7", ask, target.request, failures)


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


def _execute(target: Target, prepared: PreparedModel, request: Request, measure: bool) -> Answer:
    message = ExecuteSynchronously(prepared.handle, request, measure)
    try:
        with Fds([target.memory.duplicate()]) as fds:
            connection = target.device.connection
            executed, _ = connection.call(message, Executed, list(fds), timeout=_TIMEOUT)
    except DeadObject:
        raise
    except NnburstError as error:
        problems = [f"{error.status.name} with shapes"] if error.output_shapes else []
        return Answer(error.status, measured=False, problems=problems)
    return Answer(_NONE, executed.timing.measured, ())


def _exchange(target: Target, burst: RawBurst, request: Request, measure: bool) -> Answer:
    timing = MeasureTiming.YES if measure else MeasureTiming.NO
    packet = serialize_request(request, [burst.slot_of(target.memory)], timing)
    answer = burst.exchange(packet, _TIMEOUT)
    status, problems = judge(answer, frozenset(ErrorStatus))
    return Answer(status, deserialize_result(answer)[2].measured, problems)


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
            lambda request, measure: _exchange(target, burst, request, measure),
            target.request,
            {_NONE},
        )
