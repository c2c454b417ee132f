"""VM1 to VM23: models, preferences and priorities that a driver must refuse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from nnburst.client.memory import Memory
from nnburst.control.channel import Fds
from nnburst.control.connection import Connection
from nnburst.control.messages import (
    GetSupportedOperations,
    Message,
    Nothing,
    Opened,
    PrepareModel,
    Release,
    SupportedOperations,
)
from nnburst.hal.errors import DeadObject, InvalidArgument, NnburstError
from nnburst.testing.model_fuzzer.report import EVERYTHING, FuzzReport, Selection
from nnburst.testing.model_fuzzer.target import Target
from nnburst.testing.model_mutators import suite_mutations

_TIMEOUT: Final = 60.0
#: VM22 and VM23: neither preference nor priority.
_UNKNOWN: Final = (-1, 3)


def fuzz_model(target: Target, report: FuzzReport, selection: Selection = EVERYTHING) -> None:
    """Send every mutation of a model twice: as a question, and to be prepared.

    The model itself must be accepted before and after.

    Raises:
        NnburstError: the driver has died or does not answer; the last failure in `report` says to what.
    """
    connection = target.device.connection
    _accept(target, report, "the valid model")
    for description, model in suite_mutations(target.model):
        if selection.takes(description):
            report.count(description)
            for message, expected in (
                (GetSupportedOperations(model), SupportedOperations),
                (PrepareModel(model), Opened),
            ):
                _refused(connection, message, expected, target, description, report)
    for rule, field in (("VM22", "preference"), ("VM23", "priority")):
        for value in _UNKNOWN:
            description = f"{rule} {field} {value}"
            if selection.takes(description):
                report.count(description)
                wrong = msgspec.structs.replace(PrepareModel(target.model), **{field: value})
                _refused(connection, wrong, Opened, target, description, report)
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


def _refused(
    connection: Connection,
    message: Message,
    expected: type[Message],
    target: Target,
    description: str,
    report: FuzzReport,
) -> None:
    """Send a call that must be answered with INVALID_ARGUMENT, and note any other answer."""
    call = type(message).__name__
    try:
        with _descriptors(target.pools) as fds:
            result, _ = connection.call(message, expected, list(fds), timeout=_TIMEOUT)
    except InvalidArgument as error:
        report.refused(str(error))
    except DeadObject as error:
        report.fail(target.name, description, f"{call}: the driver died: {error}")
        raise
    except NnburstError as error:
        report.fail(target.name, description, f"{call}: {error.status.name}: {error}")
    else:
        report.fail(target.name, description, f"{call}: accepted")
        if isinstance(result, Opened):
            connection.call(Release(result.handle), Nothing, timeout=_TIMEOUT)


def _descriptors(pools: Sequence[Memory]) -> Fds:
    return Fds([pool.duplicate() for pool in pools])
