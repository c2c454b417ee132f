"""Checks the promises that every driver makes, independent of its executor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from nnburst.client.burst.interface import BoundRequest
from nnburst.client.device import Device
from nnburst.client.memory import Memory
from nnburst.client.prepared_model import PreparedModel
from nnburst.control.channel import Fds
from nnburst.control.messages import Executed, ExecuteSynchronously, Message
from nnburst.hal.errors import InvalidArgument, MissedDeadline, NnburstError
from nnburst.hal.model import BufferToken, DataLocation, MemoryPool, Model
from nnburst.hal.types import Request, RequestArgument
from nnburst.testing.conformance.runners import DriverRequest
from nnburst.testing.faults.footprint import resident_bytes
from nnburst.testing.pack.cases import Case
from nnburst.testing.pack.trial import inputs_of, model_of, outputs_of

#: The byte that outputs are filled with before an execution: NaN, and an unlikely integer.
_STALE: Final = 0xA5


#: Seconds that a call may take.
SECONDS: Final = 60.0
NOTHING: Final[Mapping[int, int]] = {}
R = TypeVar("R", bound=Message)


class BrokenContract(Exception):
    """The driver breaks a rule; the message has the cause."""


class NotApplicable(Exception):
    """The driver does not have the feature that a check is about; the message names it."""


@dataclass(frozen=True)
class Subject:
    """A case on one connection.

    Attributes:
        device: a connection for this check alone.
        case: a case that the driver has executed correctly.
        others: cases of the pack, supported or not.
    """

    device: Device
    case: Case
    others: tuple[Case, ...] = ()

    def arrays(self, number: int = 0) -> list[npt.NDArray[Any]]:
        """The case's inputs of set `number`."""
        given = inputs_of(self.case, self.case.feeds[number % len(self.case.feeds)])
        return [array for array in given if array is not None]

    def sizes(self) -> list[int]:
        """Bytes of each output."""
        feed = self.case.feeds[0]
        return [feed.outputs[index].nbytes for index in outputs_of(self.case)]

    def execute(
        self,
        prepared: PreparedModel,
        arrays: Sequence[npt.NDArray[Any]],
        sizes: Sequence[int],
        *,
        inputs: Mapping[int, int] = NOTHING,
        outputs: Mapping[int, int] = NOTHING,
        deadline_ns: int | None = None,
    ) -> tuple[Executed, tuple[bytes, ...]]:
        """Execute synchronously without the client's checks; the answer, and the bytes of all outputs.

        Args:
            prepared: a model prepared on this device.
            arrays: the inputs.
            sizes: bytes of room for each output.
            inputs: tokens of the driver's buffers by number of the input that lies there.
            outputs: tokens of buffers by number of the output.
            deadline_ns: deadline on CLOCK_BOOTTIME.

        Raises:
            NnburstError: the driver's answer.
        """
        with DriverRequest(self.device, arrays, sizes) as staged:
            pools = [MemoryPool(staged.memory.size)]

            def argument(given: RequestArgument, token: int | None) -> RequestArgument:
                if token is None:
                    return given
                pools.append(BufferToken(token=token))
                return RequestArgument(location=DataLocation(len(pools) - 1, 0, 0))

            request = Request(
                tuple(argument(a, inputs.get(at)) for at, a in enumerate(staged.request.inputs)),
                tuple(argument(a, outputs.get(at)) for at, a in enumerate(staged.request.outputs)),
                tuple(pools),
            )
            message = ExecuteSynchronously(
                prepared._prepared.handle, request, deadline_ns=deadline_ns
            )
            executed = self.call(message, Executed, [staged.memory])
            return executed, staged.outputs()

    def call(self, message: Message, answer: type[R], memories: Sequence[Memory] = ()) -> R:
        """Send a message without checks.

        Raises:
            NnburstError: the driver's answer.
        """
        with Fds([memory.duplicate() for memory in memories]) as fds:
            found, _ = self.device._session.connection.call(
                message, answer, list(fds), timeout=SECONDS
            )
        return found

    def another(self) -> Case | None:
        """Another case with other results that the driver supports; None if it supports no other."""
        for case in self.others:
            if case.name != self.case.name and is_whole(case):
                model, pools = self.model(case)
                supported = all(self.device.supported_operations(model, pools=pools))
                for pool in pools:
                    pool.close()
                if supported:
                    return case
        return None

    @contextmanager
    def prepared(self) -> Iterator[PreparedModel]:
        """Prepare the subject's case with its pools."""
        model, pools = self.model(self.case)
        with self.device.prepare(model, pools=pools, bursts=False) as prepared:
            yield prepared

    def model(self, case: Case) -> tuple[Model, list[Memory]]:
        """A case's model, and its pools as memory of this connection."""
        built = model_of(case)
        pools = []
        for data in built.pools:
            memory = self.device.allocate(len(data))
            np.asarray(memory)[:] = np.frombuffer(data, np.uint8)
            pools.append(memory)
        return built.model, pools


def is_whole(case: Case) -> bool:
    """Whether every input of a case has a value, so that a burst can bind it once."""
    return all(array is not None for array in inputs_of(case, case.feeds[0]))


def run_once(bound: BoundRequest, case: Case, number: int, timeout: float | None = None) -> bytes:
    """Execute with set `number` of a case's inputs and return the bits of all outputs.

    Raises:
        BrokenContract: an input was written to.
    """
    given = inputs_of(case, case.feeds[number % len(case.feeds)])
    arrays: list[npt.NDArray[Any]] = [a for a in given if a is not None]
    for memory, array in zip(bound.inputs, arrays, strict=True):
        memory[...] = array
    for memory in bound.outputs:
        memory.view(np.uint8)[...] = _STALE
    result = bound.run(timeout)
    for memory, array in zip(bound.inputs, arrays, strict=True):
        if memory.tobytes() != array.tobytes():
            raise BrokenContract("an input was written to")
    assert len(result.outputs) == len(outputs_of(case))
    return b"".join(np.ascontiguousarray(output).tobytes() for output in result.outputs)


_TIMES: Final = 3


def support_does_not_change(subject: Subject) -> None:
    """Ask repeatedly about each of many models, with others in between."""
    first: dict[str, list[bool]] = {}
    for _ in range(_TIMES):
        for case in (subject.case, *subject.others):
            model, pools = subject.model(case)
            answer = subject.device.supported_operations(model, pools=pools)
            if len(answer) != len(model.main.operations):
                raise BrokenContract(
                    f"{len(answer)} answers for {len(model.main.operations)} operations of {case.name}"
                )
            if first.setdefault(case.name, answer) != answer:
                raise BrokenContract(
                    f"{case.name} was answered with {first[case.name]}, then {answer}"
                )
            for pool in pools:
                pool.close()


def support_is_what_prepare_accepts(subject: Subject) -> None:
    """Prepare models: supported ones must be accepted, and the others refused."""
    for case in (subject.case, *subject.others):
        model, pools = subject.model(case)
        supported = all(subject.device.supported_operations(model, pools=pools))
        try:
            subject.device.prepare(model, pools=pools).close()
        except NnburstError as error:
            if supported:
                raise BrokenContract(
                    f"{case.name} is reported as supported, but {error}"
                ) from error
            if not isinstance(error, InvalidArgument):
                raise BrokenContract(f"{case.name} is refused with {error.status.name}") from error
        else:
            if not supported:
                raise BrokenContract(f"{case.name} is prepared, but reported as not supported")
        for pool in pools:
            pool.close()


_RUNS: Final = 1000
_DEADLINES: Final = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
_ROUNDS: Final = 20


def thousand_executions_give_the_same_bits(subject: Subject) -> None:
    """Run one binding with three sets of inputs in turn, with outputs overwritten in between."""
    sets = len(subject.case.feeds)
    with subject.prepared() as prepared, prepared.open_burst() as burst:
        bound = burst.bind()
        first = [run_once(bound, subject.case, number) for number in range(sets)]
        for number in range(_RUNS):
            _equal(bound, subject, number, first, f"execution {number + sets + 1}")


def bindings_do_not_mix(subject: Subject) -> None:
    """Run two bindings of one model in turn with different inputs."""
    case = subject.case
    with subject.prepared() as prepared, prepared.open_burst() as burst:
        one, other = burst.bind(), burst.bind()
        first = [run_once(one, case, number) for number in range(len(case.feeds))]
        for number in range(_ROUNDS):
            _equal(one, subject, number, first, f"the first binding's execution {number + 1}")
            _equal(other, subject, number + 1, first, f"the other binding's {number + 1}")


def models_do_not_mix(subject: Subject) -> None:
    """Prepare the same model twice, and execute both in turn."""
    case = subject.case
    with (
        subject.prepared() as a,
        subject.prepared() as b,
        a.open_burst() as first_burst,
        b.open_burst() as second_burst,
    ):
        one, other = first_burst.bind(), second_burst.bind()
        first = [run_once(one, case, number) for number in range(len(case.feeds))]
        for number in range(_ROUNDS):
            _equal(one, subject, number, first, f"the first model's execution {number + 1}")
            _equal(other, subject, number + 1, first, f"the second model's {number + 1}")


def missed_deadline_harms_no_later_execution(subject: Subject) -> None:
    """Set deadlines before, during and after an execution: results are right or missing."""
    case = subject.case
    with subject.prepared() as prepared, prepared.open_burst() as burst:
        bound = burst.bind()
        first = [run_once(bound, case, number) for number in range(len(case.feeds))]
        for number in range(_ROUNDS):
            for seconds in _DEADLINES:
                try:
                    found = run_once(bound, case, number, seconds)
                except MissedDeadline:
                    continue
                if found != first[number % len(first)]:
                    raise BrokenContract(
                        f"a deadline of {seconds:g} s was kept, with another result"
                    )
            _equal(bound, subject, number + 1, first, "the execution after missed deadlines")


def _equal(
    bound: BoundRequest, subject: Subject, number: int, first: list[bytes], which: str
) -> None:
    found, wanted = run_once(bound, subject.case, number), first[number % len(first)]
    if found != wanted:
        at = next(i for i, (a, b) in enumerate(zip(found, wanted, strict=True)) if a != b)
        raise BrokenContract(
            f"{which} gave other bits than the first with these inputs, from byte {at} on"
        )


_WARM_UP: Final = 30
_LIVES: Final = 200
#: Bytes by which a worker may grow over _LIVES objects.
_GROWTH: Final = 1 << 20


def check_growth(subject: Subject, live: Callable[[], object], what: str) -> None:
    """Make and close an object repeatedly, and check that the worker does not grow.

    Args:
        subject: the driver.
        live: makes an object and closes it.
        what: name of the objects, for the message.

    Raises:
        BrokenContract: the worker grows by 1 MiB or more.
    """
    for _ in range(_WARM_UP):
        live()
    # Allocators grow in steps, but a leak grows in the second half as much as in the first.
    growth = []
    for _ in range(2):
        before = resident_bytes(subject.device.pid)
        for _ in range(_LIVES // 2):
            live()
        growth.append(resident_bytes(subject.device.pid) - before)
    if sum(growth) >= _GROWTH and min(growth) > _GROWTH // 8:
        raise BrokenContract(
            f"the worker grew by {sum(growth) >> 10} KiB over {_LIVES} {what} that were closed,"
            f" allowed are {_GROWTH >> 10}"
        )


def closed_models_leave_no_memory(subject: Subject) -> None:
    """Prepare, execute once and close repeatedly; the worker may not grow by 1 MiB."""
    model, pools = subject.model(subject.case)

    def live() -> None:
        with subject.device.prepare(model, pools=pools) as prepared, prepared.open_burst() as burst:
            run_once(burst.bind(), subject.case, 0)

    check_growth(subject, live, "models")


def closing_twice_is_closing_once(subject: Subject) -> None:
    """Close objects twice, which must harm neither the driver nor models that are prepared afterwards."""
    bits = []
    for _ in range(2):
        with subject.prepared() as prepared:
            burst = prepared.open_burst()
            bits.append(run_once(burst.bind(), subject.case, 0))
            for _ in range(2):
                burst.close()
                prepared.close()
    if bits[0] != bits[1] or not subject.device.is_alive:
        raise BrokenContract(
            "a model that was prepared after another was closed twice gives other bits"
        )


Check = Callable[[Subject], None]

#: Checks by name; each raises BrokenContract, or any other error, if the driver breaks its rule.
CHECKS: Final[dict[str, Check]] = {
    check.__name__: check
    for check in (
        support_does_not_change,
        support_is_what_prepare_accepts,
        thousand_executions_give_the_same_bits,
        bindings_do_not_mix,
        models_do_not_mix,
        missed_deadline_harms_no_later_execution,
        closed_models_leave_no_memory,
        closing_twice_is_closing_once,
    )
}
