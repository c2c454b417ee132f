"""VM1 to VM23: models, preferences and priorities that a driver must refuse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from nnburst.client.memory.memory import Memory
from nnburst.control.channel import Fds
from nnburst.control.messages.device import (
    GetSupportedOperations,
    PrepareModel,
    SupportedOperations,
)
from nnburst.control.messages.message import Message
from nnburst.hal.errors import DeadObject, InvalidArgument, NnburstError
from nnburst.hal.model import Model
from nnburst.testing.fuzzing.model_fuzzer.async_calls import call_async
from nnburst.testing.fuzzing.model_fuzzer.report import EVERYTHING, FuzzReport, FuzzSelection
from nnburst.testing.fuzzing.model_fuzzer.target import Target
from nnburst.testing.fuzzing.model_mutators import suite_mutations

_TIMEOUT: Final = 60.0
#: VM22 and VM23: neither preference nor priority.
_UNKNOWN: Final = (-1, 3)


def fuzz_model(target: Target, report: FuzzReport, selection: FuzzSelection = EVERYTHING) -> None:
    """Send every mutation of a model twice: as a question, and to be prepared.

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
    """Ask what of a model is supported, which must be answered with INVALID_ARGUMENT."""
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
    """Have a model prepared, which must be answered and notified of with INVALID_ARGUMENT."""
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
