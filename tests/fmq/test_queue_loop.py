"""Ends of a queue in event loops: asyncio, selectors, and bytes only for ends that wait for them."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import multiprocessing
import os
import selectors
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fmq.queues import ELEMENT, opened_again
from fmq.test_waiting_ends import start
from nnburst.fmq.event_flag import EventFlagBits
from nnburst.fmq.message_queue import MessageQueue
from nnburst.fmq.named_queue import create_named_queue, open_named_queue
from nnburst.fmq.shared_memory import Flavor
from nnburst.hal.errors import BadState, Closed, DeadObject, InvalidArgument, ResourceExhausted


@pytest.fixture
def elements() -> Iterator[tuple[MessageQueue, MessageQueue]]:
    with MessageQueue.create(ELEMENT, 4) as writer, opened_again(writer) as reader:
        yield writer, reader


@pytest.fixture
def messages() -> Iterator[tuple[MessageQueue, MessageQueue]]:
    with MessageQueue.create(bytes, 64) as writer, opened_again(writer) as reader:
        yield writer, reader


def test_read_goes_on_when_another_thread_writes(
    elements: tuple[MessageQueue, MessageQueue],
) -> None:
    writer, reader = elements

    async def read() -> Any:
        task = asyncio.ensure_future(reader.read_async(3, timeout=20))
        await asyncio.sleep(0)
        threads = [
            threading.Thread(target=writer.write, args=(np.full(n, n, ELEMENT),)) for n in (1, 2)
        ]
        for thread in threads:
            thread.start()
            await asyncio.to_thread(thread.join)
        return await task

    assert asyncio.run(read()).tolist() == [1, 2, 2]


def test_write_goes_on_when_the_reader_has_made_room(
    elements: tuple[MessageQueue, MessageQueue],
) -> None:
    writer, reader = elements

    async def write() -> bool:
        assert await writer.write_async(np.arange(4, dtype=ELEMENT))
        task = asyncio.ensure_future(writer.write_async(np.arange(2, dtype=ELEMENT), timeout=20))
        for _ in range(2):
            await asyncio.sleep(0)
            assert not task.done()
            assert reader.read(1) is not None
        return await task

    assert asyncio.run(write())
    found = reader.read(4)
    assert found is not None
    assert found.tolist() == [2, 3, 0, 1]


def test_messages_are_sent_and_received_in_one_loop(
    messages: tuple[MessageQueue, MessageQueue],
) -> None:
    writer, reader = messages
    sent = [bytes([n]) * (n % 40) for n in range(200)]

    async def send() -> None:
        for message in sent:
            assert await writer.send_async(message, timeout=20)
        writer.close()

    async def both() -> list[bytes]:
        sending = asyncio.ensure_future(send())
        found = [message async for message in reader]
        await sending
        return found

    assert asyncio.run(both()) == sent


def test_iteration_over_elements_gives_all_that_are_there(
    elements: tuple[MessageQueue, MessageQueue],
) -> None:
    writer, reader = elements
    writer.write(np.arange(3, dtype=ELEMENT))

    async def collect() -> list[list[int]]:
        found = []
        async for array in reader:
            found.append(array.tolist())
            if len(found) == 1:
                writer.write(np.array([7], ELEMENT))
                writer.close()
        return found

    assert asyncio.run(collect()) == [[0, 1, 2], [7]]


def test_wait_in_a_loop_ends_at_its_timeout(elements: tuple[MessageQueue, MessageQueue]) -> None:
    assert asyncio.run(elements[1].read_async(1, timeout=0.01)) is None
    assert asyncio.run(elements[1].read_async(1, timeout=0)) is None
    elements[0].write(np.zeros(4, ELEMENT))
    assert not asyncio.run(elements[0].write_async(np.zeros(1, ELEMENT), timeout=0.01))


@pytest.mark.parametrize("timeout", [-1, float("nan"), float("inf"), "1", None])
def test_call_with_a_timeout_that_is_no_time_is_refused_and_moves_nothing(
    elements: tuple[MessageQueue, MessageQueue], timeout: Any
) -> None:
    writer, reader = elements
    writer.write(np.zeros(1, ELEMENT))
    with pytest.raises(InvalidArgument, match="timeout"):
        asyncio.run(reader.read_async(1, timeout=timeout))
    with pytest.raises(InvalidArgument, match="timeout"):
        asyncio.run(writer.write_async(np.zeros(1, ELEMENT), timeout=timeout))
    assert reader.available_to_read() == 1


@pytest.mark.parametrize("timeout", [np.float32(20), np.int64(20), np.float16(20), 10**400])
def test_timeouts_of_any_type_of_number_are_taken(
    elements: tuple[MessageQueue, MessageQueue], timeout: Any
) -> None:
    writer, reader = elements

    async def read() -> Any:
        task = asyncio.ensure_future(reader.read_async(1, timeout=timeout))
        await asyncio.sleep(0)
        writer.write(np.array([7], ELEMENT))
        return await task

    assert asyncio.run(read()).tolist() == [7]


def test_call_for_more_than_the_queue_has_does_not_wait(
    elements: tuple[MessageQueue, MessageQueue], messages: tuple[MessageQueue, MessageQueue]
) -> None:
    writer, reader = elements
    assert not asyncio.run(writer.write_async(np.zeros(5, ELEMENT), timeout=10**6))
    assert asyncio.run(reader.read_async(np.int64(5), timeout=10**6)) is None
    reader.fileno()
    writer.write(np.zeros(4, ELEMENT))
    assert not reader.read_into(np.zeros(5, ELEMENT))
    assert reader.read(5) is None


def test_objects_that_are_neither_elements_nor_messages_are_refused_in_event_loops(
    elements: tuple[MessageQueue, MessageQueue], messages: tuple[MessageQueue, MessageQueue]
) -> None:
    for found in ([1, 2], 3, None, "text"):
        with pytest.raises(InvalidArgument, match="of type"):
            asyncio.run(elements[0].write_async(found))  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="of type"):
            asyncio.run(messages[0].send_async(found))  # type: ignore[arg-type]


def test_cancelled_reader_of_a_queue_that_is_never_empty_loses_nothing(
    elements: tuple[MessageQueue, MessageQueue],
) -> None:
    writer, reader = elements
    got: list[int] = []

    async def read() -> None:
        while True:
            found = await reader.read_async(1, timeout=20)
            assert found is not None
            got.append(int(found[0]))
            writer.write(np.array([got[-1] + 4], ELEMENT))

    async def cancel() -> None:
        for _ in range(20):
            task = asyncio.ensure_future(read())
            for _ in range(3):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    writer.write(np.arange(4, dtype=ELEMENT))
    asyncio.run(cancel())
    assert got == list(range(len(got)))


def test_file_that_gets_the_number_of_a_closed_queue_is_watched_by_its_own_reader(
    elements: tuple[MessageQueue, MessageQueue],
) -> None:
    reader = elements[1]

    async def close() -> bytes:
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(reader.read_async(1, timeout=20))
        await asyncio.sleep(0)
        number = reader._opened(writes=False).watch()
        mine, other = socket.socketpair()
        with mine, other:
            mine.setblocking(False)
            reader.close()
            os.dup2(mine.fileno(), number)
            with socket.socket(fileno=number) as same:
                receiving = asyncio.ensure_future(loop.sock_recv(same, 1))
                with pytest.raises(Closed):
                    await task
                other.send(b"x")
                return await asyncio.wait_for(receiving, 20)

    assert asyncio.run(close()) == b"x"


def test_cancelled_wait_takes_nothing_and_the_next_one_goes_on(
    elements: tuple[MessageQueue, MessageQueue],
) -> None:
    writer, reader = elements

    async def cancel() -> Any:
        task = asyncio.ensure_future(reader.read_async(1, timeout=20))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        writer.write(np.array([3], ELEMENT))
        return await reader.read_async(1, timeout=20)

    assert asyncio.run(cancel()).tolist() == [3]


def test_task_of_a_closed_loop_keeps_no_other_loop_from_waiting(
    elements: tuple[MessageQueue, MessageQueue],
) -> None:
    writer, reader = elements
    loop = asyncio.new_event_loop()
    kept = loop.create_task(reader.read_async(1, timeout=20))
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    kept._log_destroy_pending = False  # type: ignore[attr-defined]

    async def read() -> Any:
        task = asyncio.ensure_future(reader.read_async(1, timeout=20))
        await asyncio.sleep(0)
        writer.write(np.array([3], ELEMENT))
        return await task

    assert asyncio.run(read()).tolist() == [3]
    kept.get_coro().close()  # type: ignore[union-attr]
    assert asyncio.run(read()).tolist() == [3]


def test_second_task_is_refused_while_one_waits(
    elements: tuple[MessageQueue, MessageQueue],
) -> None:
    writer, reader = elements

    async def both() -> Any:
        task = asyncio.ensure_future(reader.read_async(1, timeout=20))
        await asyncio.sleep(0)
        with pytest.raises(BadState, match="another task"):
            await reader.read_async(1, timeout=20)
        writer.write(np.zeros(1, ELEMENT))
        return await task

    assert asyncio.run(both()) is not None


def test_byte_is_sent_only_to_an_end_that_waits_for_it(
    elements: tuple[MessageQueue, MessageQueue],
) -> None:
    writer, reader = elements
    flag = reader.event_flag
    assert flag is not None
    with selectors.DefaultSelector() as selector:
        selector.register(reader, selectors.EVENT_READ)
        assert selector.select(0) == []
        writer.write(np.zeros(1, ELEMENT))
        assert len(selector.select(20)) == 1
        assert flag.wait(EventFlagBits.ASYNC, 0.001) == 0, "the bit is taken back with the byte"
        writer.write(np.zeros(1, ELEMENT))
        assert reader.read(1) is not None
        assert len(selector.select(0)) == 1, "something is left"
        assert reader.read(1) is not None
        assert reader.read(1) is None
        assert selector.select(0) == []


def test_descriptor_is_readable_at_once_if_something_is_there(
    messages: tuple[MessageQueue, MessageQueue],
) -> None:
    writer, reader = messages
    writer.send(b"before")
    with selectors.DefaultSelector() as selector:
        selector.register(reader, selectors.EVENT_READ)
        assert len(selector.select(20)) == 1
        assert reader.receive() == b"before"
        assert reader.receive() is None
        for number in range(100):
            writer.send(b"%d" % number)
            assert len(selector.select(20)) == 1
            assert reader.receive() == b"%d" % number
            assert reader.receive() is None


def test_close_of_the_writer_makes_the_descriptor_readable(
    messages: tuple[MessageQueue, MessageQueue],
) -> None:
    writer, reader = messages
    writer.send(b"")
    with selectors.DefaultSelector() as selector:
        selector.register(reader, selectors.EVENT_READ)
        assert reader.receive() == b""
        assert reader.receive() is None
        writer.close()
        assert len(selector.select(20)) == 1
        with pytest.raises(Closed):
            reader.receive()


@pytest.mark.parametrize("written", [0, 1])
def test_death_of_the_writers_process_makes_the_descriptor_readable(written: int) -> None:
    program = f"""
writes = queue._opened(writes=True)
for number in range({written}):
    queue.write(np.full(1, 7, "<u4"))
print(flush=True)
input()
"""
    with (
        MessageQueue.create(ELEMENT, 4, reopen=True) as queue,
        selectors.DefaultSelector() as selector,
    ):
        selector.register(queue, selectors.EVENT_READ)
        for _ in range(2):
            with start(queue, program) as peer:
                assert peer.stdout is not None
                peer.stdout.readline()
                assert len(selector.select(20)) == 1
                for _ in range(written):
                    assert queue.read(1) is not None
                assert queue.read(1) is None
                assert selector.select(0) == []
                peer.kill()
                assert len(selector.select(20)) == 1
                peer.wait(20)
            with pytest.raises(DeadObject):
                queue.read(1)


def test_end_of_a_process_that_only_has_the_number_of_the_writer_is_shown_once(
    elements: tuple[MessageQueue, MessageQueue],
) -> None:
    writer, reader = elements
    with (
        selectors.DefaultSelector() as selector,
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other,
    ):
        assert writer.write(np.zeros(1, ELEMENT))
        words = writer.memories[0].map(writable=True)[writer.descriptor.grantors[4].offset :]
        words[4:8].view("<u4")[0] = other.pid
        selector.register(reader, selectors.EVENT_READ)
        assert len(selector.select(20)) == 1
        assert reader.read(1) is not None
        assert reader.read(1) is None
        assert selector.select(0) == []
        other.kill()
        assert len(selector.select(20)) == 1
        assert reader.read(1) is None
        assert selector.select(0) == []


def test_queues_without_words_of_their_ends_have_no_event_loop() -> None:
    for queue, message in (
        (MessageQueue.create(ELEMENT, 4, ends=False), "words of its ends"),
        (MessageQueue.create(ELEMENT, 4, event_flag=False), "event flag"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            asyncio.run(queue.read_async(1, timeout=1))
        with pytest.raises(InvalidArgument, match=message):
            queue.fileno()


def test_death_of_the_writer_ends_a_wait_in_a_loop() -> None:
    queue = MessageQueue.create(ELEMENT, 4)
    program = 'queue.write(np.zeros(1, "<u4")); print("ready", flush=True); sys.stdin.read()'

    async def wait() -> None:
        assert await queue.read_async(1, timeout=20) is not None
        task = asyncio.ensure_future(queue.read_async(1, timeout=20))
        await asyncio.sleep(0)
        peer.kill()
        with pytest.raises(DeadObject):
            await task

    with start(queue, program) as peer:
        assert peer.stdout is not None
        assert peer.stdout.readline() == "ready\n"
        asyncio.run(wait())


def test_event_loop_has_its_turns_however_full_the_queue_is(
    elements: tuple[MessageQueue, MessageQueue],
) -> None:
    writer, reader = elements
    turns, over = 0, False

    async def count_turns() -> None:
        nonlocal turns
        while not over:
            turns += 1
            await asyncio.sleep(0)

    async def exchange() -> None:
        nonlocal over
        other = asyncio.ensure_future(count_turns())
        for _ in range(200_000):  # seconds, unless the other task has its turns
            assert await writer.write_async(np.zeros(4, ELEMENT))
            assert await reader.read_async(4) is not None
            if turns >= 10:
                break
        assert turns >= 10
        over = True
        await other

    asyncio.run(exchange())


# -- Broadcasts ------------------------------------------------------------------------------------


@pytest.fixture
def broadcast() -> Iterator[MessageQueue]:
    with MessageQueue.create(ELEMENT, 8, Flavor.UNSYNCHRONIZED_WRITE) as writer:
        yield writer


def test_one_write_wakes_every_reader_of_a_broadcast_that_waits_in_a_loop(
    broadcast: MessageQueue,
) -> None:
    async def read_all(readers: list[MessageQueue]) -> list[Any]:
        tasks = [asyncio.ensure_future(reader.read_async(1, timeout=20)) for reader in readers]
        await asyncio.sleep(0)
        assert not any(task.done() for task in tasks)
        await asyncio.to_thread(broadcast.write, np.array([5], ELEMENT))
        return await asyncio.gather(*tasks)

    with contextlib.ExitStack() as stack:
        readers = [stack.enter_context(opened_again(broadcast)) for _ in range(30)]
        for reader in readers:
            assert reader.read(1) is None
        found = asyncio.run(read_all(readers))
    assert [array.tolist() for array in found] == 30 * [[5]]


def test_iteration_over_a_broadcast_ends_with_its_writer(broadcast: MessageQueue) -> None:
    async def collect() -> list[list[int]]:
        found = []
        async for array in reader:
            found.append(array.tolist())
            if len(found) == 1:
                broadcast.write(np.array([2], ELEMENT))
                broadcast.close()
        return found

    with opened_again(broadcast) as reader:
        assert reader.read(1) is None
        broadcast.write(np.array([1], ELEMENT))
        assert asyncio.run(collect()) == [[1], [2]]


def test_descriptor_of_a_reader_of_a_broadcast_is_readable_after_a_write_and_a_close(
    broadcast: MessageQueue,
) -> None:
    with (
        opened_again(broadcast) as one,
        opened_again(broadcast) as other,
        selectors.DefaultSelector() as selector,
    ):
        for reader in (one, other):
            selector.register(reader, selectors.EVENT_READ)
            assert reader.read(1) is None
        assert not selector.select(0)
        for number in range(3):
            broadcast.write(np.array([number], ELEMENT))
            assert {key.fileobj for key, _ in selector.select(20)} == {one, other}
            for reader in (one, other):
                found = reader.read(1)
                assert found is not None
                assert found.tolist() == [number]
                assert reader.read(1) is None
            assert not selector.select(0)
        broadcast.close()
        assert {key.fileobj for key, _ in selector.select(20)} == {one, other}


def test_readers_that_sleep_leave_those_in_event_loops_their_byte(broadcast: MessageQueue) -> None:
    with (
        opened_again(broadcast) as in_loop,
        opened_again(broadcast) as asleep,
        selectors.DefaultSelector() as selector,
    ):
        selector.register(in_loop, selectors.EVENT_READ)
        assert in_loop.read(1) is None
        assert not selector.select(0)
        assert asleep.read(1, timeout=0.001) is None  # it counts its look in the same word
        broadcast.write(np.array([1], ELEMENT))
        assert selector.select(20)


def test_named_broadcasts_do_not_wake_each_others_readers() -> None:
    names = [f"/nnburst-test-{os.getpid()}-{letter}" for letter in "ab"]
    flavor = Flavor.UNSYNCHRONIZED_WRITE
    with contextlib.ExitStack() as stack:
        writers = [
            stack.enter_context(create_named_queue(name, ELEMENT, 8, flavor)) for name in names
        ]
        readers = [
            stack.enter_context(open_named_queue(name, ELEMENT, timeout=20)) for name in names
        ]
        selector = stack.enter_context(selectors.DefaultSelector())
        for reader in readers:
            selector.register(reader, selectors.EVENT_READ)
            assert reader.read(1) is None
        writers[1].write(np.array([7], ELEMENT))
        assert [key.fileobj for key, _ in selector.select(20)] == [readers[1]]


def test_no_more_than_72_readers_of_a_broadcast_wait_in_loops_and_a_closed_one_makes_room(
    broadcast: MessageQueue,
) -> None:
    with contextlib.ExitStack() as stack:
        readers = [stack.enter_context(opened_again(broadcast)) for _ in range(73)]
        for reader in readers[:72]:
            reader.fileno()
        with pytest.raises(ResourceExhausted, match=os.strerror(errno.EUSERS)):
            readers[72].fileno()
        readers[0].close()
        assert readers[72].fileno() >= 0


def test_iteration_does_not_split_what_is_written_while_it_looks(
    broadcast: MessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened_again(broadcast) as reader:
        look = reader.available_to_read

        def look_too_early() -> int:
            monkeypatch.undo()
            count = look()
            broadcast.write(np.array([3, 4], ELEMENT))
            return count

        async def first() -> list[int]:
            assert reader.read(1) is None
            monkeypatch.setattr(reader, "available_to_read", look_too_early)
            return (await anext(aiter(reader))).tolist()

        assert asyncio.run(first()) == [3, 4]


def read_to_the_end(queue: MessageQueue, found: Any) -> None:
    async def read() -> None:
        assert queue.read(1) is None
        found.send("waits")
        async for array in queue:
            found.send(array.tolist())

    asyncio.run(read())
    found.send("the end")


def test_reader_of_a_broadcast_in_another_process_waits_in_its_loop(
    broadcast: MessageQueue,
) -> None:
    context = multiprocessing.get_context("spawn")
    found, sends = context.Pipe(duplex=False)
    child = context.Process(target=read_to_the_end, args=(broadcast, sends))
    child.start()
    assert found.poll(20)
    assert found.recv() == "waits"
    broadcast.write(np.array([3, 4], ELEMENT))
    assert found.poll(20)
    assert found.recv() == [3, 4]
    broadcast.close()
    assert found.poll(20)
    assert found.recv() == "the end"
    child.join(20)
    assert child.exitcode == 0
