"""IBurst of AIDL and IExecution as a hostile client uses them: numbers, counts, handles."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nnburst.control.messages import (
    BurstExecute,
    CreateReusableExecution,
    Executed,
    ExecuteReusable,
    ExecuteReusableFenced,
    GetExecutionInfo,
    OpenAidlBurst,
    Opened,
    Ping,
    Release,
    ReleaseMemoryResource,
    encode,
)
from nnburst.driver.calls.execution import MAX_IDENTIFIERS
from nnburst.fmq.shared_memory import SharedMemory
from nnburst.hal import environment
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.model import BufferToken, DataLocation, MemoryPool, Model
from nnburst.hal.types import Request, RequestArgument
from waiting import wait_for

INVALID, NONE = ErrorStatus.INVALID_ARGUMENT, ErrorStatus.NONE


def request(*pools: MemoryPool | BufferToken) -> Request:
    """Inputs in the first pool, the output in the last one."""
    last = max(len(pools) - 1, 0)
    at = [
        RequestArgument(location=DataLocation(index, offset, 24))
        for index, offset in ((0, 0), (0, 64), (last, 128))
    ]
    return Request((at[0], at[1]), (at[2],), pools)


def pools(*fd_indexes: int) -> tuple[MemoryPool, ...]:
    return tuple(MemoryPool(4096, index) for index in fd_indexes)


@pytest.fixture
def burst(known: Any, model: Model) -> Iterator[int]:
    handle = int(known.prepare(model))
    reply = known.call(OpenAidlBurst(handle))
    assert isinstance(reply.result, Opened), reply.message
    known.call(Release(handle))
    yield reply.result.handle
    known.call(Release(reply.result.handle))


@pytest.fixture(scope="module")
def memory() -> Iterator[SharedMemory]:
    with SharedMemory.create(4096) as shared:
        yield shared


@pytest.mark.rule("VR9", "accepts")
def test_memory_without_identity_is_forgotten_after_the_execution(
    known: Any, burst: int, memory: SharedMemory
) -> None:
    message = BurstExecute(burst, request(*pools(0, 1)), memory_identifiers=(-1, -1))
    assert known.call(message, [memory.fd] * 2).status == NONE
    before = known.count_fds()
    for _ in range(20):
        assert isinstance(known.call(message, [memory.fd] * 2).result, Executed)
    known.wait_for_fds(before)
    bare = BurstExecute(burst, request(*pools(-1)), memory_identifiers=(-1,))
    reply = known.call(bare)
    assert (reply.status, reply.message[:24]) == (INVALID, "validation:R2: pools[0]:")


@pytest.mark.rule("VR9", "rejects")
@pytest.mark.parametrize("identifiers", [(), (0,), (0, 1, 2), (-1, -1, -1)])
def test_each_pool_needs_its_identifier(
    known: Any, burst: int, memory: SharedMemory, identifiers: tuple[int, ...]
) -> None:
    before = known.count_fds()
    message = BurstExecute(burst, request(*pools(0, 1)), memory_identifiers=identifiers)
    reply = known.call(message, [memory.fd] * 2)
    assert (reply.status, reply.output_shapes) == (INVALID, ())
    known.wait_for_fds(before)


@pytest.mark.rule("VR9", "rejects")
@pytest.mark.parametrize("identifier", [-2, -(2**63), 2**63])
def test_numbers_that_are_not_identifiers_are_refused(
    known: Any, burst: int, memory: SharedMemory, identifier: int
) -> None:
    message = BurstExecute(burst, request(*pools(0)), memory_identifiers=(identifier,))
    assert known.call(message, [memory.fd]).status == INVALID
    body = encode(ReleaseMemoryResource(burst, 0))
    assert known.send(body).status == NONE
    assert known.call(ReleaseMemoryResource(burst, identifier)).status == INVALID


def test_unknown_identifier_needs_memory(known: Any, burst: int, memory: SharedMemory) -> None:
    bare = BurstExecute(burst, request(*pools(-1)), memory_identifiers=(5,))
    reply = known.call(bare)
    assert reply.status == INVALID
    assert "memory identifier 5 is not known" in reply.message
    full = BurstExecute(burst, request(*pools(0)), memory_identifiers=(5,))
    assert known.call(full, [memory.fd]).status == NONE
    assert known.call(bare).status == NONE
    assert known.call(ReleaseMemoryResource(burst, 5)).status == NONE
    assert known.call(bare).status == INVALID


@pytest.mark.parametrize("identifier", [-1, 0, 77, 2**63 - 1])
def test_releasing_what_is_not_known_is_fine(known: Any, burst: int, identifier: int) -> None:
    for _ in range(2):
        assert known.call(ReleaseMemoryResource(burst, identifier)).status == NONE


def test_memory_that_came_first_counts_whatever_comes_later(
    known: Any, burst: int, memory: SharedMemory
) -> None:
    message = BurstExecute(burst, request(*pools(0)), memory_identifiers=(1,))
    assert known.call(message, [memory.fd]).status == NONE
    before = known.count_fds()
    with SharedMemory.create(200) as smaller:  # too small for the request, and not looked at
        ignored = BurstExecute(burst, request(MemoryPool(200, 0)), memory_identifiers=(1,))
        assert known.call(ignored, [smaller.fd]).status == NONE
    known.wait_for_fds(before)


def test_same_identifier_twice_in_a_request_is_the_same_memory(
    known: Any, burst: int, memory: SharedMemory
) -> None:
    with SharedMemory.create(200) as smaller:
        twice = Request(*_arguments(), (MemoryPool(4096, 0), MemoryPool(200, 1)))
        message = BurstExecute(burst, twice, memory_identifiers=(9, 9))
        assert known.call(message, [memory.fd, smaller.fd]).status == NONE
        message = BurstExecute(burst, twice, memory_identifiers=(8, 7))
        assert known.call(message, [memory.fd, smaller.fd]).status == INVALID


def _arguments() -> tuple[tuple[RequestArgument, ...], tuple[RequestArgument, ...]]:
    at = [RequestArgument(location=DataLocation(i, o, 24)) for i, o in ((0, 0), (1, 64), (1, 1000))]
    return (at[0], at[1]), (at[2],)


def test_request_that_is_refused_leaves_nothing_behind(
    known: Any, burst: int, memory: SharedMemory
) -> None:
    bad = os.open("/dev/zero", os.O_RDWR)
    before = known.count_fds()
    for _ in range(20):
        message = BurstExecute(burst, request(*pools(0, 1)), memory_identifiers=(20, 21))
        assert known.call(message, [memory.fd, bad]).status == INVALID
    known.wait_for_fds(before)
    os.close(bad)
    bare = BurstExecute(burst, request(*pools(-1)), memory_identifiers=(20,))
    assert known.call(bare).status == INVALID  # all or nothing


def test_token_of_no_buffer_is_refused(known: Any, burst: int) -> None:
    message = BurstExecute(burst, request(BufferToken(token=99)), memory_identifiers=(3,))
    reply = known.call(message)
    assert reply.status == INVALID
    assert "token: 99 does not name a buffer" in reply.message


def test_more_identifiers_than_a_burst_remembers_are_refused(
    known: Any, burst: int, memory: SharedMemory
) -> None:
    before = known.count_fds()
    statuses = [
        known.call(
            BurstExecute(burst, request(*pools(0)), memory_identifiers=(number,)), [memory.fd]
        ).status
        for number in range(MAX_IDENTIFIERS + 2)
    ]
    assert statuses[:MAX_IDENTIFIERS] == [NONE] * MAX_IDENTIFIERS
    assert set(statuses[MAX_IDENTIFIERS:]) == {ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT}
    for number in range(MAX_IDENTIFIERS):
        assert known.call(ReleaseMemoryResource(burst, number)).status == NONE
    known.wait_for_fds(before)


def test_passed_deadline_is_missed_for_good(known: Any, burst: int, memory: SharedMemory) -> None:
    message = BurstExecute(burst, request(*pools(0)), deadline_ns=1, memory_identifiers=(0,))
    assert known.call(message, [memory.fd]).status == ErrorStatus.MISSED_DEADLINE_PERSISTENT


_numbers = st.sampled_from([-1, 0, 1, 2, 5, 2**31, 2**63 - 1])


@given(
    st.lists(st.tuples(_numbers, st.sampled_from([-1, 0, 1, 2]), st.booleans()), max_size=4),
    st.integers(0, 4),
)
@settings(
    max_examples=2 * environment.EXAMPLES.read(),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_any_numbers_are_executed_or_refused(
    known: Any,
    burst: int,
    memory: SharedMemory,
    described: list[tuple[int, int, bool]],
    fds: int,
) -> None:
    named = [
        BufferToken(token=7) if token else MemoryPool(4096, index) for _, index, token in described
    ]
    identifiers = tuple(identifier for identifier, _, _ in described)
    message = BurstExecute(burst, request(*named), memory_identifiers=identifiers)
    assert known.call(message, [memory.fd] * fds).status in (NONE, INVALID)
    assert known.call(Ping()).status == NONE


@pytest.mark.rule("VR9")
def test_execution_object_is_validated_once_and_runs_often(
    known: Any, model: Model, memory: SharedMemory
) -> None:
    handle = int(known.prepare(model))
    whole = request(*pools(0))
    for shortened in (
        Request(whole.inputs[:1], whole.outputs, whole.pools),
        Request(whole.inputs, (), whole.pools),
    ):
        refused = known.call(CreateReusableExecution(handle, shortened), [memory.fd])
        assert (refused.status, refused.result) == (INVALID, None)
    reply = known.call(CreateReusableExecution(handle, whole), [memory.fd])
    assert isinstance(reply.result, Opened), reply.message
    known.call(Release(handle))
    for _ in range(3):
        assert known.call(ExecuteReusable(reply.result.handle)).status == NONE
    missed = known.call(ExecuteReusable(reply.result.handle, deadline_ns=1))
    assert missed.status == ErrorStatus.MISSED_DEADLINE_PERSISTENT
    known.call(Release(reply.result.handle))
    assert known.call(ExecuteReusable(reply.result.handle)).status == INVALID


def test_execution_object_in_use_is_refused_and_kept(
    known: Any, model: Model, memory: SharedMemory
) -> None:
    handle = int(known.prepare(model))

    def use() -> None:
        opened = known.call(CreateReusableExecution(handle, request(*pools(0))), [memory.fd])
        execution = opened.result.handle
        ours, theirs = socket.socketpair()
        with ours:
            fenced = known.call(ExecuteReusableFenced(execution, 1), [ours.fileno()])
        assert fenced.status == NONE
        for message in (ExecuteReusable(execution), ExecuteReusableFenced(execution)):
            reply = known.call(message)
            assert reply.status == ErrorStatus.GENERAL_FAILURE
            assert "one run at a time" in reply.message
        known.call(Release(execution))  # what is under way keeps it
        theirs.send(b"\x01")
        theirs.close()
        info = GetExecutionInfo(fenced.result.handle)
        wait_for(lambda: known.call(info).status == NONE)
        assert known.call(info).result.status == NONE
        known.call(Release(fenced.result.handle))

    use()
    before = known.count_fds()
    for _ in range(10):
        use()
    known.wait_for_fds(before)
    known.call(Release(handle))
