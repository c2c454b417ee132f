"""Sends invalid models, requests and packets to a running driver and checks that each is refused."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace

from nnburst.client.device import Device
from nnburst.client.memory import Memory
from nnburst.client.prepared_model import PreparedModel
from nnburst.control.channel import Fds
from nnburst.control.messages import (
    GetSupportedOperations,
    Message,
    Nothing,
    OpenAidlBurst,
    Opened,
    PrepareModel,
    Release,
    ReleaseMemoryResource,
    SupportedOperations,
)
from nnburst.hal.enums import ErrorStatus, MeasureTiming
from nnburst.hal.errors import DeadObject, InvalidArgument, NnburstError
from nnburst.hal.limits import BURST_CHANNEL_LENGTH
from nnburst.hal.model import Model
from nnburst.hal.types import Request
from nnburst.serialize import serialize_request
from nnburst.testing.fuzzing.model_asking import (
    EVERYTHING,
    KINDS,
    Ask,
    FuzzFailure,
    FuzzReport,
    FuzzSelection,
    Target,
    call_async,
    execute,
    execute_fenced,
    execute_in_aidl_burst,
    execute_in_burst,
    execute_reusable,
    execute_synchronously,
    execute_with_fence,
)
from nnburst.testing.fuzzing.model_mutators import suite_mutations
from nnburst.testing.fuzzing.packet_fuzzer import (
    Mutation,
    Packet,
    insertions,
    judge,
    removals,
    replacements,
)
from nnburst.testing.models.small_models import SmallModel, missing_row, open_outputs
from nnburst.testing.raw_peer import RawBurst

_TIMEOUT: Final = 60.0
#: VM22 and VM23: numbers that are neither a preference nor a priority.
_UNKNOWN: Final = (-1, 3)
#: The mutation of `fuzz_overlong_result`.
_OVERLONG: Final = "VB5 result ring of 8 elements"


def fuzz_model(target: Target, report: FuzzReport, selection: FuzzSelection = EVERYTHING) -> None:
    """Send every mutation of a model twice: to getSupportedOperations, and to be prepared.

    The model itself must be accepted before and after.

    Raises:
        NnburstError: the driver has died or does not answer; the last failure in `report` has the cause.
    """
    _accept(target, report, "the valid model")
    for description, model in suite_mutations(target.model):
        if selection.takes(description):
            report.count(description)
            _question_is_refused(target, model, description, report)
            _call_is_refused(target, PrepareModel(model, 0), description, report)
    for rule, field in (("VM22", "preference"), ("VM23", "priority")):
        for value in _UNKNOWN:
            description = f"{rule} {field} {value}"
            if selection.takes(description):
                report.count(description)
                wrong = msgspec.structs.replace(PrepareModel(target.model, 0), **{field: value})
                _call_is_refused(target, wrong, description, report)
    _accept(target, report, "the valid model, after all mutations")


def _accept(target: Target, report: FuzzReport, description: str) -> None:
    try:
        supported = target.device.supported_operations(target.model, pools=target.pools)
        target.prepare().close()
    except DeadObject:
        raise
    except NnburstError as error:
        report.fail(target.name, description, f"refused: {error}")
        return
    if len(supported) != len(target.model.main.operations) or not all(supported):
        report.fail(target.name, description, f"supported operations: {supported}")


def _question_is_refused(
    target: Target, model: Model, description: str, report: FuzzReport
) -> None:
    """Call getSupportedOperations, which must answer INVALID_ARGUMENT."""
    message = GetSupportedOperations(model)
    error: NnburstError | None = None
    try:
        with _descriptors(target.pools) as fds:
            target.device._session.connection.call(
                message, SupportedOperations, list(fds), timeout=_TIMEOUT
            )
    except NnburstError as answer:
        error = answer
    _judge(target, message, error, description, report)


def _call_is_refused(
    target: Target, message: PrepareModel, description: str, report: FuzzReport
) -> None:
    """Prepare a model; the answer and the notification must be INVALID_ARGUMENT."""
    try:
        with _descriptors(target.pools) as fds:
            refused = call_async(
                target.device,
                lambda number: msgspec.structs.replace(message, callback=number),
                list(fds),
                _TIMEOUT,
            )
    except DeadObject as error:
        _judge(target, message, error, description, report)
        return
    if not refused.agree:
        report.fail(target.name, description, f"notified of {refused.status.name}")
    _judge(target, message, refused.answer, description, report)


def _judge(
    target: Target,
    message: Message,
    answer: NnburstError | None,
    description: str,
    report: FuzzReport,
) -> None:
    """Note every answer but INVALID_ARGUMENT as a failure; raise if the driver has died."""
    call = type(message).__name__
    if isinstance(answer, InvalidArgument):
        report.refused(str(answer))
    elif isinstance(answer, DeadObject):
        report.fail(target.name, description, f"{call}: the driver died: {answer}")
        raise answer
    else:
        how = f"{answer.status.name}: {answer}" if answer else "accepted"
        report.fail(target.name, description, f"{call}: {how}")


def _descriptors(pools: Sequence[Memory]) -> Fds:
    return Fds([pool.duplicate() for pool in pools])


# -- Mutated packets over a burst ------------------------------------------------------------------


_NO_ERROR: Final = frozenset({ErrorStatus.NONE})
_ERRORS: Final = frozenset(ErrorStatus) - _NO_ERROR
#: VB5: elements of a result ring that is too short.
_SHORT_RING: Final = 8

_KINDS: Final[tuple[tuple[str, Callable[[Packet], Iterator[Mutation]]], ...]] = (
    ("VB1", removals),
    ("VB2", insertions),
    ("VB3", replacements),
)


def fuzz_packets_of(
    target: Target, report: FuzzReport, selection: FuzzSelection = EVERYTHING
) -> None:
    """Send all mutations of VB1 to VB4, and check VB6 on every answer; skip requests larger than a ring.

    Raises:
        NnburstError: no answer, or none that can be read; the last failure in `report` has the cause.
    """
    with target.prepare() as prepared, RawBurst(prepared) as burst:
        slot = burst.slot_of(target.memory)
        valid = serialize_request(target.request, [slot], MeasureTiming.YES)
        if len(valid) >= BURST_CHANNEL_LENGTH:
            return
        _exchange(target, report, burst, "the valid packet", valid, _NO_ERROR)
        for rule, mutate in _KINDS:
            for mutation in mutate(valid):
                kind = "VB4" if _is_unknown_slot(mutation, valid) else rule
                description = f"{kind} {mutation.description}"
                if selection.takes(description):
                    report.count(description)
                    _exchange(target, report, burst, description, mutation.packet, _ERRORS)
                    _exchange(
                        target, report, burst, f"valid, after {description}", valid, _NO_ERROR
                    )


def fuzz_overlong_result(target: Target, report: FuzzReport) -> None:
    """VB5: let a result be longer than its ring, of a model that reports enough shapes."""
    with (
        target.prepare() as prepared,
        RawBurst(prepared, (BURST_CHANNEL_LENGTH, _SHORT_RING)) as burst,
    ):
        slot = burst.slot_of(target.memory)
        valid = serialize_request(target.request, [slot], MeasureTiming.YES)
        report.count("VB5")
        _exchange(target, report, burst, _OVERLONG, valid, _ERRORS)


def _is_unknown_slot(mutation: Mutation, valid: Packet) -> bool:
    """Whether a mutation is VB4: only the number of a pool identifier became INT32_MAX."""
    kinds = mutation.packet["discriminator"], valid["discriminator"]
    return mutation.description.endswith(" by pool_identifier") and np.array_equal(*kinds)


def _exchange(
    target: Target,
    report: FuzzReport,
    burst: RawBurst,
    description: str,
    packet: Packet,
    allowed: Container[ErrorStatus],
) -> None:
    """Send a packet and note the faults of the answer."""
    try:
        _, problems = judge(burst.exchange(packet), allowed)
    except NnburstError as error:
        report.fail(target.name, description, f"no answer: {error}")
        raise
    for problem in problems:
        report.fail(target.name, description, problem)


# -- Mutated requests ------------------------------------------------------------------------------


_NONE: Final = ErrorStatus.NONE
_INVALID: Final = ErrorStatus.INVALID_ARGUMENT
#: Slots that no request names.
_UNKNOWN_SLOTS: Final = (12345, -1)


def fuzz_requests(
    target: Target, report: FuzzReport, selection: FuzzSelection = EVERYTHING
) -> None:
    """Leave out each input and each output, for every way to execute; then free memory of the burst.

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
    """Open an AIDL burst; its handle."""
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
    """All ways to execute, each with the id of its rule."""
    yield "VR1", execute(target, prepared)
    yield "VR2", execute_synchronously(target, prepared)
    yield "VR3", execute_in_burst(target, burst)
    if all(output.known for output in prepared.outputs):  # device:F1: else no way to report shapes
        yield "VR4", execute_fenced(target, prepared)
        yield "VR9 fenced object", execute_reusable(target, prepared, fenced=True)
    yield "VR9 object", execute_reusable(target, prepared, fenced=False)
    yield "VR9 burst", execute_in_aidl_burst(target, aidl)


def _shortened(request: Request) -> Iterator[tuple[str, Request]]:
    """Requests that each lack one of the arguments."""
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
    """Execute with and without timing; an error must have neither shapes nor timing."""
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
    """VR6: free a known slot, unknown slots, and the first one again."""
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
    """VR8: execute with a fence that is missing, or with a descriptor that is not a fence."""
    with Path(os.devnull).open("rb") as null, Fds([target.memory.duplicate()]) as memory:
        for what, fds in (("missing", []), ("a file", [null.fileno()]), ("memory", list(memory))):
            report.count("VR8")
            ask = execute_with_fence(target, prepared, fds)
            _expect(target, report, f"VR8 fence is {what}", ask, target.request, {_INVALID})


def _wrong_identifiers(target: Target, report: FuzzReport, aidl: int) -> None:
    """VR9 (validateBurst): send identifiers below -1, too few or too many; and one to be released."""
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


# -- One model -------------------------------------------------------------------------------------


#: Failures after which a campaign stops, since further ones add nothing.
_ENOUGH = 50


def fuzz(
    device: Device,
    models: Iterable[SmallModel],
    selection: FuzzSelection = EVERYTHING,
    progress: Callable[[int], None] = lambda _: None,
) -> FuzzReport:
    """Send all mutations of all `models` to `device`; stop early if the driver dies.

    Models and requests are mutated for every model, packets for the first model of each operation.
    """
    report = FuzzReport()
    seen: set[int] = set()
    for small in models:
        if not device.is_alive or len(report.failures) >= _ENOUGH:
            break
        steps = [fuzz_model, fuzz_requests]
        if not small.operations <= seen:
            steps.append(fuzz_packets_of)
            seen |= small.operations
        with Target(device, small) as target:
            for step in steps:
                _attempt(report, target, partial(step, target, report, selection))
        progress(1)
    if seen and device.is_alive:
        _fuzz_special(device, report, selection)
    return report


def _fuzz_special(device: Device, report: FuzzReport, selection: FuzzSelection) -> None:
    """Run the two steps that need a special model, if the device supports that model."""
    for description, small, step in (
        ("VR7", missing_row(), fuzz_failing),
        (_OVERLONG, open_outputs(), fuzz_overlong_result),
    ):
        if not selection.takes(description) or not all(device.supported_operations(small.model)):
            continue
        with Target(device, small) as target:
            _attempt(report, target, partial(step, target, report))


def _attempt(report: FuzzReport, target: Target, step: Callable[[], None]) -> None:
    try:
        step()
    except NnburstError as error:
        report.fail(target.name, "(the campaign)", str(error))


__all__ = ["fuzz", "FuzzSelection", "EVERYTHING", "FuzzReport", "FuzzFailure", "KINDS"]
