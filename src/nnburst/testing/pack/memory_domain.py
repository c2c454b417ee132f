"""Checks memory domains: buffers that the driver keeps, with their uses, states and dimensions.

NNAPI: MemoryDomainTests.cpp, device:§6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Final

import numpy as np

from nnburst.client.execution.buffer import handle_of, token_of
from nnburst.client.prepared_model import PreparedModel
from nnburst.control.messages import Allocate, Allocated, CopyFrom, CopyTo, Nothing
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import GeneralFailure, InvalidArgument, MissedDeadline, NnburstError
from nnburst.hal.limits import MAX_RANK
from nnburst.hal.types import BufferDesc, BufferRole
from nnburst.testing.pack.contract import (
    NOTHING,
    SECONDS,
    BrokenContract,
    Check,
    NotApplicable,
    Subject,
    check_growth,
)

#: A handle that no driver has issued.
_UNKNOWN: Final = 2**30


@contextmanager
def _prepared(subject: Subject) -> Iterator[PreparedModel]:
    with subject.prepared() as prepared:
        try:
            with subject.device.allocate_buffer(outputs=[(prepared, 0)]):
                pass
        except GeneralFailure as error:
            raise NotApplicable(f"the driver keeps no memory for this case: {error}") from None
        yield prepared


def _refused(subject: Subject, message: Allocate, expects: ErrorStatus, why: str) -> None:
    """Send a call without checks; the driver must refuse it with this status."""
    try:
        subject.call(message, Allocated)
    except NnburstError as error:
        if error.status != expects:
            raise BrokenContract(f"{why}: {error.status.name}, expected {expects.name}") from error
        return
    raise BrokenContract(f"{why}: memory was allocated")


def bad_descriptions_are_refused(subject: Subject) -> None:
    """Describe buffers with no model, no use, unknown models, wrong or repeated uses, wrong dimensions."""
    with _prepared(subject) as prepared:
        handle = (prepared._prepared.handle,)
        first, many = BufferRole(0, 0), BufferRole(0, 1000)
        rank = len(prepared.outputs[0].dimensions)
        dimensions = tuple(extent + 1 for extent in prepared.outputs[0].dimensions)
        bad: list[tuple[str, Allocate]] = [
            ("no model (validation:D1)", Allocate(BufferDesc(), (), (), (first,))),
            ("no use (validation:D2)", Allocate(BufferDesc(), handle)),
            ("unknown model", Allocate(BufferDesc(), (_UNKNOWN,), (), (first,))),
            ("use of model 1 of 1", Allocate(BufferDesc(), handle, (), (BufferRole(1, 0),))),
            ("output 1000", Allocate(BufferDesc(), handle, (), (many,))),
            ("input 1000", Allocate(BufferDesc(), handle, (many,))),
            ("a use twice (validation:D6)", Allocate(BufferDesc(), handle, (), (first, first))),
            (
                f"rank {MAX_RANK + 1}",
                Allocate(BufferDesc((1,) * (MAX_RANK + 1)), handle, (), (first,)),
            ),
        ]
        if rank:
            bad.append(("other dimensions", Allocate(BufferDesc(dimensions), handle, (), (first,))))
        for why, message in bad:
            _refused(subject, message, ErrorStatus.INVALID_ARGUMENT, why)


def tokens_count_from_one_and_name_one_buffer(subject: Subject) -> None:
    """Compare the tokens of two buffers: positive, and different while both buffers exist."""
    with _prepared(subject) as prepared:
        allocate = subject.device.allocate_buffer
        with allocate(outputs=[(prepared, 0)]) as one, allocate(outputs=[(prepared, 0)]) as other:
            if token_of(one) <= 0 or token_of(one) == token_of(other):
                raise BrokenContract(f"tokens {token_of(one)} and {token_of(other)} of two buffers")


def unknown_token_is_refused(subject: Subject) -> None:
    """Use tokens 0 and 1,000,000, and that of a closed buffer: INVALID_ARGUMENT (device:E6)."""
    with _prepared(subject) as prepared:
        closed = subject.device.allocate_buffer(outputs=[(prepared, 0)])
        closed.close()
        for token in (0, 1_000_000, token_of(closed)):
            _must_fail(
                partial(_execute, subject, prepared, outputs={0: token}),
                InvalidArgument,
                f"output 0 in token {token}, which names no buffer",
            )


def _execute(
    subject: Subject,
    prepared: PreparedModel,
    *,
    inputs: Mapping[int, int] = NOTHING,
    outputs: Mapping[int, int] = NOTHING,
) -> None:
    arrays, sizes = subject.arrays(), subject.sizes()
    subject.execute(prepared, arrays, sizes, inputs=inputs, outputs=outputs)


def _must_fail(call: Callable[[], object], permitted: type[NnburstError], why: str) -> None:
    try:
        call()
    except permitted:
        return
    except NnburstError as error:
        raise BrokenContract(
            f"{why}: {type(error).__name__}, expected {permitted.__name__}"
        ) from error
    raise BrokenContract(f"{why}: no error")


def uninitialised_memory_is_not_read(subject: Subject) -> None:
    """Read uninitialised memory as an input and by copyTo: GENERAL_FAILURE (device:§6)."""
    with _prepared(subject) as prepared:
        array = subject.arrays()[0]
        allocate = subject.device.allocate_buffer
        with allocate(inputs=[(prepared, 0)], dimensions=array.shape) as buffer:
            _must_fail(
                partial(_execute, subject, prepared, inputs={0: token_of(buffer)}),
                GeneralFailure,
                "a buffer without content as input 0",
            )
            with subject.device.allocate(max(array.nbytes, 1)) as memory:
                message = CopyTo(handle_of(buffer), memory.size)
                _must_fail(
                    partial(subject.call, message, Nothing, [memory]),
                    GeneralFailure,
                    "copyTo of a buffer without content",
                )


def uses_that_were_not_declared_are_refused(subject: Subject) -> None:
    """Use a buffer for outputs as input, and one for inputs as output: INVALID_ARGUMENT (device:E6)."""
    with _prepared(subject) as prepared:
        arrays = subject.arrays()
        allocate = subject.device.allocate_buffer
        with allocate(inputs=[(prepared, 0)], dimensions=arrays[0].shape) as read:
            read.copy_from(arrays[0])
            _must_fail(
                partial(_execute, subject, prepared, outputs={0: token_of(read)}),
                InvalidArgument,
                "a buffer for input 0 as output 0",
            )
        with allocate(outputs=[(prepared, 0)]) as written:
            _must_fail(
                partial(_execute, subject, prepared, inputs={0: token_of(written)}),
                InvalidArgument,
                "a buffer for output 0 as input 0",
            )


def buffer_of_another_model_is_refused(subject: Subject) -> None:
    """Use a buffer for the same model prepared again: INVALID_ARGUMENT."""
    with (
        _prepared(subject) as prepared,
        subject.prepared() as other,
        subject.device.allocate_buffer(outputs=[(prepared, 0)]) as buffer,
    ):
        _must_fail(
            partial(_execute, subject, other, outputs={0: token_of(buffer)}),
            InvalidArgument,
            "a buffer that was allocated for another prepared model",
        )


def content_comes_back_as_it_was_copied_in(subject: Subject) -> None:
    """Copy each set of inputs in turn into one buffer for each input, and back."""
    with _prepared(subject) as prepared, ExitStack() as stack:
        buffers = [
            stack.enter_context(
                subject.device.allocate_buffer(inputs=[(prepared, at)], dimensions=array.shape)
            )
            for at, array in enumerate(subject.arrays())
        ]
        for number in range(len(subject.case.feeds)):
            arrays = subject.arrays(number)
            for buffer, array in zip(buffers, arrays, strict=True):
                buffer.copy_from(np.asarray(array, order="C"))
            for at, (buffer, array) in enumerate(zip(buffers, arrays, strict=True)):
                if buffer.copy_to().tobytes() != array.tobytes():
                    raise BrokenContract(
                        f"input {at} comes back with other bits than were copied in"
                    )


def copies_of_another_size_are_refused(subject: Subject) -> None:
    """Copy a byte more and, for copyTo, a byte less than the content: INVALID_ARGUMENT (device:§6)."""
    with _prepared(subject) as prepared:
        array = np.asarray(subject.arrays()[0], order="C")
        allocate = subject.device.allocate_buffer
        with allocate(inputs=[(prepared, 0)], dimensions=array.shape) as buffer:
            buffer.copy_from(array)
            for size in {array.nbytes + 1, array.nbytes - 1} - {0}:
                with subject.device.allocate(size) as memory:
                    calls: list[tuple[str, CopyTo | CopyFrom]] = [
                        ("copyTo", CopyTo(handle_of(buffer), size)),
                        ("copyFrom", CopyFrom(handle_of(buffer), size, ())),
                    ]
                    for name, message in calls:
                        _must_fail(
                            partial(subject.call, message, Nothing, [memory]),
                            InvalidArgument,
                            f"{name} of {size} bytes, the buffer has {array.nbytes}",
                        )


def results_are_those_of_shared_memory(subject: Subject) -> None:
    """Execute each set of inputs in turn with every argument in a buffer: equal bits."""
    with _prepared(subject) as prepared, ExitStack() as stack:
        allocate = subject.device.allocate_buffer
        inputs = [
            stack.enter_context(allocate(inputs=[(prepared, at)], dimensions=array.shape))
            for at, array in enumerate(subject.arrays())
        ]
        outputs = [
            stack.enter_context(allocate(outputs=[(prepared, at)]))
            for at in range(len(prepared.outputs))
        ]
        for number in range(len(subject.case.feeds)):
            arrays = subject.arrays(number)
            wanted = [output.tobytes() for output in prepared.execute(arrays).outputs]
            for buffer, array in zip(inputs, arrays, strict=True):
                buffer.copy_from(np.asarray(array, order="C"))
            prepared.execute(inputs, outputs)
            for at, buffer in enumerate(outputs):
                if buffer.copy_to().tobytes() != wanted[at]:
                    raise BrokenContract(
                        f"set {number}: output {at} in a buffer has other bits than in shared memory"
                    )


def failed_execution_leaves_its_output_uninitialised(subject: Subject) -> None:
    """Execute after the deadline (device:§6); the output's buffer can be written afterwards."""
    with _prepared(subject) as prepared:
        arrays = subject.arrays()
        with subject.device.allocate_buffer(outputs=[(prepared, 0)]) as buffer:
            others = [None] * (len(prepared.outputs) - 1)
            prepared.execute(arrays, [buffer, *others])
            wanted = buffer.copy_to().tobytes()
            try:
                prepared.execute_async(arrays, [buffer, *others], deadline_ns=1).result(SECONDS)
            except MissedDeadline:
                pass
            else:
                raise BrokenContract("an execution whose deadline has passed was successful")
            prepared.execute(arrays, [buffer, *others])
            if buffer.copy_to().tobytes() != wanted:
                raise BrokenContract("after a failed execution, the same one gives other bits")


def closed_buffers_leave_no_memory(subject: Subject) -> None:
    """Allocate, write and close buffers repeatedly; the worker may not grow by 1 MiB."""
    with _prepared(subject) as prepared:
        arrays = subject.arrays()
        others = [None] * (len(prepared.outputs) - 1)

        def live() -> None:
            with subject.device.allocate_buffer(outputs=[(prepared, 0)]) as buffer:
                prepared.execute(arrays, [buffer, *others])

        check_growth(subject, live, "buffers")


#: Checks by name; each raises BrokenContract, or any other error, if the driver breaks its rule.
CHECKS: Final[dict[str, Check]] = {
    check.__name__: check
    for check in (
        bad_descriptions_are_refused,
        tokens_count_from_one_and_name_one_buffer,
        unknown_token_is_refused,
        uninitialised_memory_is_not_read,
        uses_that_were_not_declared_are_refused,
        buffer_of_another_model_is_refused,
        content_comes_back_as_it_was_copied_in,
        copies_of_another_size_are_refused,
        results_are_those_of_shared_memory,
        failed_execution_leaves_its_output_uninitialised,
        closed_buffers_leave_no_memory,
    )
}
