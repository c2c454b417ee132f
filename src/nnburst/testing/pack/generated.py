"""Checks every way to execute: equal results, right shapes, plausible times.

NNAPI: GeneratedTestHarness.cpp (GeneratedTest, DynamicOutputShapeTest, FencedComputeTest).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from nnburst.client.arguments import ExecutionResult
from nnburst.client.hal import create_reusable_execution, execute_fenced, open_aidl_burst
from nnburst.client.memory import Memory
from nnburst.client.prepared_model import PreparedModel
from nnburst.hal.errors import GeneralFailure, NnburstError, OutputInsufficientSize
from nnburst.hal.model import Model
from nnburst.hal.types import Timing
from nnburst.testing.pack.contract import SECONDS, BrokenContract, Check, NotApplicable, Subject
from nnburst.testing.pack.trial import outputs_of

Arrays = Sequence[npt.NDArray[Any]]
Way = Callable[[PreparedModel, Arrays, bool], ExecutionResult]


def _asynchronous(prepared: PreparedModel, arrays: Arrays, measure: bool) -> ExecutionResult:
    return prepared.execute_async(arrays, measure=measure).result(SECONDS)


def _fenced(prepared: PreparedModel, arrays: Arrays, measure: bool) -> ExecutionResult:
    with execute_fenced(prepared, arrays, measure=measure) as execution:
        return execution.result(SECONDS)


def _reusable(prepared: PreparedModel, arrays: Arrays, measure: bool) -> ExecutionResult:
    with create_reusable_execution(prepared, arrays, measure=measure) as execution:
        execution.run()
        return execution.run()


def _burst(prepared: PreparedModel, arrays: Arrays, measure: bool) -> ExecutionResult:
    with prepared.open_burst() as burst:
        return burst.execute(arrays, measure=measure)


def _aidl_burst(prepared: PreparedModel, arrays: Arrays, measure: bool) -> ExecutionResult:
    with open_aidl_burst(prepared) as burst:
        return burst.execute(arrays, measure=measure)


#: The ways to execute, by NNAPI's names.
_WAYS: Final[dict[str, Way]] = {
    "executeSynchronously": lambda p, arrays, measure: p.execute(arrays, measure=measure),
    "execute": _asynchronous,
    "executeFenced": _fenced,
    "createReusableExecution": _reusable,
    "burst": _burst,
    "AIDL burst": _aidl_burst,
}


def every_way_gives_the_same_bits(subject: Subject) -> None:
    """Execute each set of inputs in each way, measured and not; shapes are those of the results."""
    with subject.prepared() as prepared:
        for number in range(len(subject.case.feeds)):
            arrays = subject.arrays(number)
            wanted: list[bytes] | None = None
            for name, way in _WAYS.items():
                for measure in (False, True):
                    result = way(prepared, arrays, measure)
                    found = [np.asarray(output).tobytes() for output in result.outputs]
                    if wanted is None:
                        wanted = found
                    if found != wanted:
                        raise BrokenContract(
                            f"{name}, set {number}: other bits than by executeSynchronously"
                        )
                    _check_shapes(subject, result, name)
                    _check_times(result, name, measure)


def _check_shapes(subject: Subject, result: ExecutionResult, name: str) -> None:
    feed = subject.case.feeds[0]
    wanted = [feed.outputs[index].shape for index in outputs_of(subject.case)]
    found = [tuple(shape.dimensions) for shape in result.output_shapes]
    if found and (found != wanted or not all(s.is_sufficient for s in result.output_shapes)):
        raise BrokenContract(f"{name} reports shapes {found}, expected {wanted}")


def _check_times(result: ExecutionResult, name: str, measure: bool) -> None:
    timing = result.timing
    if not measure and timing != Timing():
        raise BrokenContract(f"{name} reports times {timing}, though none were asked for")
    known = timing.measured and timing.time_on_device != Timing().time_on_device
    if known and timing.time_on_device > timing.time_in_driver:
        raise BrokenContract(f"{name} reports {timing}: longer on the device than in the driver")


def _open_outputs(model: Model) -> Model:
    """Leave dimensions of the model's outputs open."""
    main = model.main
    operands = list(main.operands)
    for index in main.output_indexes:
        operand = operands[index]
        operands[index] = msgspec.structs.replace(
            operand, dimensions=(0,) * len(operand.dimensions)
        )
    return msgspec.structs.replace(
        model, main=msgspec.structs.replace(main, operands=tuple(operands))
    )


def open_outputs_get_shapes_and_room(subject: Subject) -> None:
    """Execute with open output dimensions: shapes are reported, and so is a buffer one byte too small.

    NNAPI: a driver that cannot do so may answer GENERAL_FAILURE; the check is then skipped.
    """
    built, pools = subject.model(subject.case)
    model = _open_outputs(built)
    if model == built:
        raise NotApplicable("all outputs of the case are scalars")
    if not all(subject.device.supported_operations(model, pools=pools)):
        raise NotApplicable("the driver does not support outputs of unspecified dimensions")
    with (
        subject.device.prepare(model, pools=pools, bursts=False) as prepared,
        subject.prepared() as closed,
    ):
        arrays, sizes = subject.arrays(), subject.sizes()
        wanted = subject.execute(closed, arrays, sizes)[1]
        _with_room(subject, prepared, arrays, sizes, wanted)
        if sizes[0] > 1:
            _without_room(subject, prepared, arrays, [sizes[0] - 1, *sizes[1:]])
    _close(pools)


def _with_room(
    subject: Subject,
    prepared: PreparedModel,
    arrays: Arrays,
    sizes: Sequence[int],
    wanted: tuple[bytes, ...],
) -> None:
    try:
        executed, found = subject.execute(prepared, arrays, sizes)
    except GeneralFailure as error:
        raise NotApplicable(f"outputs of unspecified dimensions: {error}") from error
    shapes = [tuple(shape.dimensions) for shape in executed.output_shapes]
    feed = subject.case.feeds[0]
    expected = [feed.outputs[index].shape for index in outputs_of(subject.case)]
    if shapes != expected:
        raise BrokenContract(
            f"outputs of unspecified dimensions: shapes {shapes}, expected {expected}"
        )
    if found != wanted:
        raise BrokenContract(
            "outputs of unspecified dimensions have other bits than those of specified ones"
        )


def _without_room(
    subject: Subject, prepared: PreparedModel, arrays: Arrays, sizes: Sequence[int]
) -> None:
    try:
        subject.execute(prepared, arrays, sizes)
    except OutputInsufficientSize as error:
        sufficient = [shape.is_sufficient for shape in error.output_shapes]
        if sufficient != [False, *[True] * (len(sizes) - 1)]:
            raise BrokenContract(
                f"output 0 lacks a byte: reported as sufficient {sufficient}"
            ) from error
    except GeneralFailure as error:
        raise NotApplicable(f"outputs of unspecified dimensions: {error}") from error
    except NnburstError as error:
        raise BrokenContract(f"output 0 lacks a byte: {error.status.name}") from error
    else:
        raise BrokenContract("output 0 lacks a byte, and the execution was successful")


def _close(pools: Sequence[Memory]) -> None:
    for pool in pools:
        pool.close()


#: Checks by name; each raises BrokenContract, or any other error, if the driver breaks its rule.
CHECKS: Final[dict[str, Check]] = {
    check.__name__: check
    for check in (every_way_gives_the_same_bits, open_outputs_get_shapes_and_room)
}
