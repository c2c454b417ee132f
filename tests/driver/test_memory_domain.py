"""A live driver's buffers keep the rules of the original's suite (VTS MemoryDomainTests.cpp)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from nnburst.client.execution.sync_fence import SyncFence
from nnburst.control.messages import (
    Allocate,
    Allocated,
    CopyFrom,
    CopyTo,
    Execute,
    ExecuteFenced,
    ExecuteSynchronously,
    GetExecutionInfo,
    Release,
    Reply,
    encode,
)
from nnburst.fmq.shared_memory import SharedMemory
from nnburst.hal.enums import ErrorStatus, OperandType, OperationType
from nnburst.hal.model import BufferToken, DataLocation, MemoryPool, Model
from nnburst.hal.model_builder import ModelBuilder
from nnburst.hal.types import BufferDesc, BufferRole, Request, RequestArgument

NONE, INVALID, FAILURE = (
    ErrorStatus.NONE,
    ErrorStatus.INVALID_ARGUMENT,
    ErrorStatus.GENERAL_FAILURE,
)
FLOAT, QUANT = OperandType.TENSOR_FLOAT32, OperandType.TENSOR_QUANT8_ASYMM
DIMENSIONS = (1, 32, 32, 8)
SIZE = 4 * 32 * 32 * 8


def add(
    dimensions: Sequence[int] = DIMENSIONS,
    kind: OperandType = FLOAT,
    scale: float = 0.0,
    zero_point: int = 0,
) -> Model:
    """An ADD of two inputs, with the fused activation as a third input."""
    builder = ModelBuilder()
    a, b, c = (
        make(kind, dimensions, scale=scale, zero_point=zero_point)
        for make in (builder.input, builder.input, builder.output)
    )
    builder.operation(OperationType.ADD, [a, b, builder.input(OperandType.INT32)], [c])
    return builder.build()


@dataclass
class Driver:
    """A running driver: calls, and their answers."""

    raw: Any
    models: dict[Any, int] = field(default_factory=dict)

    def prepare(self, model: Model) -> int:
        handle = self.models.get(model)
        if handle is None:
            handle = self.models[model] = self.raw.prepare(model)
        return handle

    def allocate(
        self,
        models: Sequence[Model | int],
        inputs: Sequence[tuple[int, int] | BufferRole] = (),
        outputs: Sequence[tuple[int, int] | BufferRole] = (),
        dimensions: tuple[int, ...] = (),
    ) -> Reply:
        roles = [
            tuple(r if isinstance(r, BufferRole) else BufferRole(*r) for r in given)
            for given in (inputs, outputs)
        ]
        handles = tuple(m if isinstance(m, int) else self.prepare(m) for m in models)
        reply: Reply = self.raw.call(Allocate(BufferDesc(dimensions), handles, roles[0], roles[1]))
        assert (reply.result is None) == (reply.status != NONE)
        return reply

    def buffer(self, *arguments: Any, **options: Any) -> Allocated:
        reply = self.allocate(*arguments, **options)
        assert isinstance(reply.result, Allocated), reply.message
        return reply.result

    def copy_from(
        self, buffer: Allocated, dimensions: tuple[int, ...] = DIMENSIONS, size: int = SIZE
    ) -> ErrorStatus:
        memory = SharedMemory.create(size)
        with memory:
            status: ErrorStatus = self.raw.call(
                CopyFrom(buffer.handle, size, dimensions), [memory.fd]
            ).status
        return status

    def copy_to(self, buffer: Allocated, size: int = SIZE) -> ErrorStatus:
        with SharedMemory.create(size) as memory:
            status: ErrorStatus = self.raw.call(CopyTo(buffer.handle, size), [memory.fd]).status
        return status

    def execute(
        self,
        way: str,
        model: Model,
        places: Sequence[int | None],
        dimensions: tuple[int, ...] = (),
        input_dimensions: tuple[int, ...] = (),
    ) -> Any:
        """Execute `add`; `places` has a token, or None for memory, for both inputs and the output."""
        pools: list[MemoryPool | BufferToken] = []
        arguments = []
        fds = []
        extents = (input_dimensions, input_dimensions, dimensions)
        with SharedMemory.create(SIZE) as memory:
            for place, given in zip(places, extents, strict=True):
                if place is None:
                    location = DataLocation(len(pools), 0, SIZE)
                    pools.append(MemoryPool(SIZE, len(fds)))
                    fds.append(memory.fd)
                else:
                    location = DataLocation(len(pools))
                    pools.append(BufferToken(token=place))
                arguments.append(RequestArgument(location=location, dimensions=given))
            fused = RequestArgument(location=DataLocation(len(pools), 0, 4))
            pools.append(MemoryPool(4, len(fds)))
            with SharedMemory.create(4) as scalar:
                fds.append(scalar.fd)
                request = Request((*arguments[:2], fused), (arguments[2],), tuple(pools))
                return getattr(self, f"_{way}")(self.prepare(model), request, fds)

    def _sync(self, handle: int, request: Request, fds: Sequence[int]) -> ErrorStatus:
        status: ErrorStatus = self.raw.call(ExecuteSynchronously(handle, request), fds).status
        return status

    def _async(self, handle: int, request: Request, fds: Sequence[int]) -> ErrorStatus:
        launched, notified = self.raw.launch(Execute(handle, request, callback=5), fds)
        if launched.status != NONE:
            assert notified.status == launched.status
        status: ErrorStatus = notified.status
        return status

    def _fenced(self, handle: int, request: Request, fds: Sequence[int]) -> ErrorStatus:
        reply, fence = self.raw.exchange(encode(ExecuteFenced(handle, request)), fds)
        with fence:
            if reply.status != NONE:
                refused: ErrorStatus = reply.status
                return refused
            with SyncFence(fence.take(0)) as done:
                done.wait(30)
        info = self.raw.call(GetExecutionInfo(reply.result.handle)).result
        assert self.raw.call(Release(reply.result.handle)).status == NONE
        status: ErrorStatus = info.status
        return status


@pytest.fixture(scope="module")
def driver(known: Any) -> Iterator[Driver]:
    return Driver(known)


# allocate


def test_token_is_positive_and_names_nothing_when_released(driver: Driver) -> None:
    buffer = driver.buffer([add()], [(0, 0)])
    assert buffer.token > 0
    assert driver.raw.call(Release(buffer.handle)).status == NONE
    assert driver.execute("sync", add(), [buffer.token, None, None]) == INVALID


ALLOCATIONS: list[tuple[str, str, dict[str, Any]]] = [
    ("no model", "D1", {"models": [], "inputs": [(0, 0)]}),
    ("no role", "D2", {"models": [add()]}),
    ("unknown model", "D3", {"models": [99_999], "inputs": [(0, 0)]}),
    ("model index of an input", "D3", {"models": [add()], "inputs": [(1, 0)]}),
    ("model index of an output", "D3", {"models": [add()], "outputs": [(-1, 0)]}),
    ("input index", "D4", {"models": [add()], "inputs": [(0, 3)]}),
    ("output index", "D4", {"models": [add()], "outputs": [(0, 1)]}),
    *(
        (f"probability {p}", "D5", {"models": [add()], kind: [BufferRole(0, 0, p)]})
        for p in (10.0, 0.0, -0.5)
        for kind in ("inputs", "outputs")
    ),
    ("same role twice", "D6", {"models": [add()], "inputs": [(0, 0), (0, 0)]}),
    ("same model twice", "D6", {"models": [add(), add()], "inputs": [(0, 0), (1, 0)]}),
    ("same output twice", "D6", {"models": [add(), add()], "outputs": [(0, 0), (1, 0)]}),
    (
        "types",
        "D7",
        {"models": [add(), add(kind=QUANT, scale=1.0)], "inputs": [(0, 0), (1, 0)]},
    ),
    (
        "scales",
        "D8",
        {
            "models": [add(kind=QUANT, scale=1.0), add(kind=QUANT, scale=0.5)],
            "inputs": [(0, 0), (1, 0)],
        },
    ),
    (
        "zero points",
        "D9",
        {
            "models": [add(kind=QUANT, scale=1.0), add(kind=QUANT, scale=1.0, zero_point=10)],
            "outputs": [(0, 0), (1, 0)],
        },
    ),
    ("ranks", "D11", {"models": [add(), add((1, 2))], "inputs": [(0, 0), (1, 0)]}),
    (
        "rank of the description",
        "D11",
        {"models": [add()], "inputs": [(0, 0)], "dimensions": (1, 5)},
    ),
    (
        "dimensions",
        "D11",
        {"models": [add(), add((1, 32, 32, 4))], "inputs": [(0, 0)], "outputs": [(1, 0)]},
    ),
    (
        "dimensions of the description",
        "D11",
        {"models": [add()], "inputs": [(0, 0)], "dimensions": (1, 32, 32, 9)},
    ),
    ("scalar with dimensions", "D12", {"models": [add()], "inputs": [(0, 2)], "dimensions": (1,)}),
]


@pytest.mark.parametrize(
    ("rule", "arguments"),
    [pytest.param(rule, given, id=name) for name, rule, given in ALLOCATIONS],
)
def test_description_that_breaks_a_rule_is_refused(
    driver: Driver, rule: str, arguments: dict[str, Any]
) -> None:
    reply = driver.allocate(**arguments)
    assert reply.status == INVALID
    assert reply.message.startswith(f"validation:{rule}:")


def test_buffer_can_have_roles_in_several_models(driver: Driver) -> None:
    models = [add(), add((0, 32, 32, 8)), add((1, 0, 0, 8))]
    buffer = driver.buffer(models, [(0, 0), (1, 1), (2, 0)], [(0, 0), (2, 0)])
    assert driver.copy_from(buffer, ()) == NONE
    assert driver.copy_to(buffer) == NONE


def test_scalar_can_lie_in_a_buffer(driver: Driver) -> None:
    buffer = driver.buffer([add()], [(0, 2)])
    assert driver.copy_from(buffer, (), 4) == NONE
    assert driver.copy_from(buffer, (1,), 4) == INVALID


# copyFrom and copyTo

DYNAMIC = add((0, 32, 32, 8))


@pytest.mark.parametrize("model", [add(), DYNAMIC], ids=["static", "dynamic"])
@pytest.mark.parametrize("size", [SIZE // 2, SIZE * 2])
def test_copy_of_another_size_is_refused(driver: Driver, model: Model, size: int) -> None:
    buffer = driver.buffer([model], [(0, 0)])
    assert driver.copy_from(buffer, size=size) == INVALID
    assert driver.copy_from(buffer) == NONE
    assert driver.copy_to(buffer, size) == INVALID
    assert driver.copy_to(buffer) == NONE


@pytest.mark.parametrize(
    "dimensions", [(1, 32, 32), (1, 32, 32, 4), (1, 32, 0, 8), (2, 32, 32, 8), (-1, 32, 32, 8)]
)
def test_copy_of_other_dimensions_is_refused(driver: Driver, dimensions: tuple[int, ...]) -> None:
    assert driver.copy_from(driver.buffer([add()], [(0, 0)]), dimensions) == INVALID


@pytest.mark.parametrize("dimensions", [(), (0, 32, 32, 8), (1, 32, 32), (1, 32, 32, 4)])
def test_copy_that_leaves_dimensions_open_is_refused(
    driver: Driver, dimensions: tuple[int, ...]
) -> None:
    assert driver.copy_from(driver.buffer([DYNAMIC], [(0, 0)]), dimensions) == INVALID


@pytest.mark.parametrize("model", [add(), DYNAMIC], ids=["static", "dynamic"])
def test_what_is_uninitialised_cannot_be_copied_out(driver: Driver, model: Model) -> None:
    assert driver.copy_to(driver.buffer([model], [(0, 0)])) == FAILURE


def test_failed_copy_leaves_nothing(driver: Driver) -> None:
    buffer = driver.buffer([add()], [(0, 0)])
    assert driver.copy_from(buffer) == NONE
    assert driver.copy_from(buffer, (9, 9)) == INVALID
    assert driver.copy_to(buffer) == FAILURE


def test_memory_that_cannot_be_mapped_fails_the_copy(driver: Driver, tmp_path: Any) -> None:
    buffer = driver.buffer([add()], [(0, 0)])
    assert driver.copy_from(buffer) == NONE
    with (tmp_path / "file").open("wb+") as file:
        file.truncate(SIZE)
        to = driver.raw.call(CopyTo(buffer.handle, SIZE), [file.fileno()])
        assert (to.status, driver.copy_to(buffer)) == (FAILURE, NONE)
        came = driver.raw.call(CopyFrom(buffer.handle, SIZE, DIMENSIONS), [file.fileno()])
        assert (came.status, driver.copy_to(buffer)) == (FAILURE, FAILURE)


def test_read_only_memory_can_be_copied_from_and_not_to(driver: Driver) -> None:
    buffer = driver.buffer([add()], [(0, 0)])
    with SharedMemory.create(SIZE, read_only_for_others=True) as memory:
        memory.map_then_protect()
        message = CopyFrom(buffer.handle, SIZE, DIMENSIONS)
        assert driver.raw.call(message, [memory.fd]).status == NONE
        assert driver.raw.call(CopyTo(buffer.handle, SIZE), [memory.fd]).status == FAILURE
    assert driver.copy_to(buffer) == NONE


def test_fresh_buffer_holds_no_bytes_of_an_earlier_one(driver: Driver) -> None:
    first = driver.buffer([add()], [(0, 0)], [(0, 0)])
    with SharedMemory.create(SIZE) as memory:
        memory.map(writable=True)[...] = 0x5A
        message = CopyFrom(first.handle, SIZE, DIMENSIONS)
        assert driver.raw.call(message, [memory.fd]).status == NONE
    driver.raw.call(Release(first.handle))
    second = driver.buffer([add()], [(0, 0)], [(0, 0)])
    assert second.token == first.token
    # The null executor writes nothing, so what comes out is what lay there.
    assert driver.execute("sync", add(), [None, None, second.token]) == NONE
    with SharedMemory.create(SIZE) as memory:
        assert driver.raw.call(CopyTo(second.handle, SIZE), [memory.fd]).status == NONE
        assert not np.any(memory.map(writable=False))


# execute

ways = pytest.mark.parametrize("way", ["sync", "async", "fenced"])


@ways
@pytest.mark.parametrize("token", [100_000, 0, -1])
@pytest.mark.parametrize("place", [0, 2])
def test_unknown_token_is_refused(driver: Driver, way: str, token: int, place: int) -> None:
    places: list[int | None] = [None, None, None]
    places[place] = token
    assert driver.execute(way, add(), places) == INVALID


@ways
def test_use_by_another_model_is_refused(driver: Driver, way: str) -> None:
    other = add((1, 32, 0, 8))
    given, taken = driver.buffer([add()], [(0, 0)]), driver.buffer([add()], [], [(0, 0)])
    assert driver.copy_from(given) == NONE
    assert driver.execute(way, other, [given.token, None, None], (), DIMENSIONS) == INVALID
    assert driver.execute(way, other, [None, None, taken.token], (), DIMENSIONS) == INVALID


@ways
def test_use_as_another_argument_is_refused(driver: Driver, way: str) -> None:
    given, taken = driver.buffer([add()], [(0, 0)]), driver.buffer([add()], [], [(0, 0)])
    for buffer in (given, taken):
        assert driver.copy_from(buffer) == NONE
    assert driver.execute(way, add(), [None, given.token, None]) == INVALID
    assert driver.execute(way, add(), [None, None, given.token]) == INVALID
    assert driver.execute(way, add(), [taken.token, None, None]) == INVALID


@ways
def test_uninitialised_input_fails_and_output_does_not(driver: Driver, way: str) -> None:
    given, taken = driver.buffer([add()], [(0, 0)]), driver.buffer([add()], [], [(0, 0)])
    assert driver.execute(way, add(), [given.token, None, None]) == FAILURE
    assert driver.execute(way, add(), [None, None, taken.token]) == NONE
    assert driver.copy_to(taken) == NONE
    assert driver.execute(way, add(), [given.token, None, taken.token]) == FAILURE
    assert driver.copy_to(taken) == FAILURE


@ways
def test_buffer_in_several_roles_of_one_request_is_refused_unless_all_are_inputs(
    driver: Driver, way: str
) -> None:
    buffer = driver.buffer([add()], [(0, 0), (0, 1)], [(0, 0)])
    assert driver.copy_from(buffer) == NONE
    assert driver.execute(way, add(), [buffer.token, buffer.token, None]) == NONE
    assert driver.execute(way, add(), [buffer.token, None, buffer.token]) == INVALID
    assert driver.copy_to(buffer) == FAILURE


@ways
def test_dimensions_of_a_request_must_be_those_of_the_buffer(driver: Driver, way: str) -> None:
    model = add((0, 0, 0, 8))
    given = driver.buffer([model], [(0, 0)], dimensions=DIMENSIONS)
    taken = driver.buffer([model], [], [(0, 0)], dimensions=DIMENSIONS)
    assert driver.copy_from(given) == NONE
    bad = (2, 16, 32, 8)
    assert driver.execute(way, model, [given.token, None, None], (), bad) == INVALID
    assert driver.execute(way, model, [None, None, taken.token], bad, DIMENSIONS) == INVALID
    places = [given.token, None, taken.token]
    assert driver.execute(way, model, places, DIMENSIONS, DIMENSIONS) == NONE
