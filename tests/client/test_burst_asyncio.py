"""Runs in an event loop: nothing blocks, nothing is lost, cancelling leaves the burst usable."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import threading
import weakref
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client.burst_helpers import copy_model, numbered_requests, standing_still
from nnburst import BurstBusy, Closed, DeadObject, Device, InvalidArgument, MissedDeadline
from nnburst.client.burst.interface import Burst
from nnburst.fmq.event_flag import EventFlagBits
from nnburst.hal.errors import GeneralFailure
from waiting import wait_for

#: Seconds after which something that should have ended hangs.
HANG = 20.0
LIMIT = 3


@pytest.fixture
def burst(still: Device) -> Iterator[Burst]:
    with still.prepare(copy_model()) as prepared, prepared.open_burst() as opened:
        yield opened


@pytest.fixture
def wide(still: Device) -> Iterator[Burst]:
    with (
        still.prepare(copy_model()) as prepared,
        prepared.open_burst(max_in_flight=LIMIT) as opened,
    ):
        yield opened


async def started(coroutine: object) -> asyncio.Task[object]:
    """A task that has got as far as it can by itself."""
    task = asyncio.ensure_future(coroutine)  # type: ignore[arg-type]
    for _ in range(3):
        await asyncio.sleep(0)
    return task  # type: ignore[return-value]


def wakeups_waiting(burst: Burst) -> int:
    """Bytes that are not taken yet."""
    try:
        return len(burst._core.channels.wakeup_socket._socket.recv(100, socket.MSG_PEEK))
    except BlockingIOError:
        return 0


def wishes_for_a_wakeup(burst: Burst) -> bool:
    flag = burst._core.channels.results.event_flag
    assert flag is not None
    region = burst._core.channels.results
    (part,) = region.descriptor.grantors[3:4]
    view = region.memories[0].map(writable=False)[part.offset : part.offset + 4]
    return bool(int(view.view("<u4")[0]) & EventFlagBits.ASYNC)


def test_run_gives_what_the_other_run_gives(burst: Burst) -> None:
    (bound,) = numbered_requests(burst, 1)

    async def main() -> None:
        for number in range(50):
            bound.inputs[0][:] = number
            result = await bound.run_async()
            assert result.outputs[0].tolist() == [number] * 2

    asyncio.run(main())
    assert bound.run().outputs[0].tolist() == [49, 49]


def test_measured_run_has_a_timing_of_its_own(burst: Burst) -> None:
    bound = burst.bind(measure=True)

    async def main() -> None:
        for _ in range(5):
            timing = (await bound.run_async()).timing
            assert timing.measured
            assert timing.time_on_device <= timing.time_in_driver

    asyncio.run(main())


def test_loop_goes_on_while_the_driver_stands_still(still: Device, burst: Burst) -> None:
    (bound,) = numbered_requests(burst, 1)

    async def main() -> None:
        with standing_still(still):
            task = await started(bound.run_async())
            assert not task.done()
            assert wishes_for_a_wakeup(burst)
        assert (await task).outputs[0].tolist() == [0, 0]  # type: ignore[attr-defined]

    asyncio.run(main())
    assert not wishes_for_a_wakeup(burst)


@pytest.mark.parametrize("limit", [1, LIMIT])
def test_each_of_many_tasks_gets_its_own_result(still: Device, limit: int) -> None:
    with still.prepare(copy_model()) as prepared, prepared.open_burst(max_in_flight=limit) as burst:
        bound = numbered_requests(burst, 20)

        async def main() -> None:
            for _ in range(10):
                results = await asyncio.gather(*(request.run_async() for request in bound))
                assert [r.outputs[0].tolist() for r in results] == [[n, n] for n in range(20)]

        asyncio.run(main())


def test_several_bursts_run_side_by_side_in_one_loop(still: Device) -> None:
    async def use(burst: Burst, number: int) -> int:
        bound = burst.bind()
        for step in range(30):
            bound.inputs[0][:] = (number, step)
            assert (await bound.run_async()).outputs[0].tolist() == [number, step]
        return number

    async def main() -> list[int]:
        return await asyncio.gather(*(use(burst, n) for n, burst in enumerate(bursts)))

    with ExitStack() as stack:
        prepared = stack.enter_context(still.prepare(copy_model()))
        bursts = [stack.enter_context(prepared.open_burst()) for _ in range(5)]
        assert asyncio.run(main()) == list(range(5))


def test_submissions_are_awaited_in_any_order(still: Device, wide: Burst) -> None:
    bound = numbered_requests(wide, LIMIT)

    async def main() -> None:
        with standing_still(still):
            pending = [request.submit() for request in bound]
            tasks = [await started(one.result_async()) for one in reversed(pending)]
        results = await asyncio.gather(*tasks)
        assert [r.outputs[0][0] for r in reversed(results)] == list(range(LIMIT))  # type: ignore[attr-defined]
        assert (await pending[0].result_async()).outputs[0][0] == 0

    asyncio.run(main())


def test_submission_that_is_awaited_too_shortly_stays_out(still: Device, wide: Burst) -> None:
    bound = numbered_requests(wide, 2)

    async def main() -> None:
        with standing_still(still):
            pending = [request.submit() for request in bound]
            with pytest.raises(MissedDeadline):
                await pending[1].result_async(0.01)
            task = await started(pending[0].result_async())
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert (await pending[1].result_async()).outputs[0].tolist() == [1, 1]
        assert pending[0].result().outputs[0].tolist() == [0, 0]

    asyncio.run(main())


def test_result_taken_by_another_thread_wakes_the_task_that_awaits_it(
    still: Device, wide: Burst
) -> None:
    first, second = numbered_requests(wide, 2)

    async def main() -> None:
        with standing_still(still):
            task = await started(first.run_async())
        assert second.run().outputs[0].tolist() == [1, 1]  # collects the first one on the way
        assert (await task).outputs[0].tolist() == [0, 0]  # type: ignore[attr-defined]

    asyncio.run(main())


def test_cancelled_run_leaves_its_result_overdue_and_the_burst_usable(
    still: Device, burst: Burst
) -> None:
    first, second = numbered_requests(burst, 2)

    async def main() -> None:
        with standing_still(still):
            task = await started(first.run_async())
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert burst._core.client.overdue == burst._core.client.in_flight == 1
            waiting = await started(second.run_async())
            assert not waiting.done()
        assert (await waiting).outputs[0].tolist() == [1, 1]  # type: ignore[attr-defined]
        assert (await first.run_async()).outputs[0].tolist() == [0, 0]

    asyncio.run(main())
    assert burst.statistics()["dropped"] == 1
    assert second.run().outputs[0].tolist() == [1, 1]


def test_cancelled_run_is_dropped_by_the_next_run_that_blocks(still: Device, burst: Burst) -> None:
    (bound,) = numbered_requests(burst, 1)

    async def main() -> None:
        with standing_still(still):
            task = await started(bound.run_async())
            task.cancel()
            await asyncio.wait([task])

    asyncio.run(main())
    assert bound.run().outputs[0].tolist() == [0, 0]
    assert burst.statistics()["dropped"] == 1


def test_cancelled_run_between_others_takes_no_other_result(still: Device, wide: Burst) -> None:
    bound = numbered_requests(wide, LIMIT)

    async def main() -> None:
        with standing_still(still):
            tasks = [await started(request.run_async()) for request in bound]
            tasks[1].cancel()
            await asyncio.wait([tasks[1]])
        for number in (0, 2):
            assert (await tasks[number]).outputs[0].tolist() == [number] * 2  # type: ignore[attr-defined]
        results = await asyncio.gather(*(request.run_async() for request in bound))
        assert [r.outputs[0][0] for r in results] == list(range(LIMIT))

    asyncio.run(main())
    assert not wide._core.pending
    assert wide._core.client.in_flight == wide._core.client.overdue == 0


def test_run_that_misses_its_deadline_is_dropped_later(still: Device, burst: Burst) -> None:
    first, second = numbered_requests(burst, 2)

    async def main() -> None:
        with standing_still(still):
            for bound in (first, second):  # the second one does not even get its turn
                with pytest.raises(MissedDeadline):
                    await bound.run_async(0.01)
        assert (await second.run_async()).outputs[0].tolist() == [1, 1]

    asyncio.run(main())
    assert burst.statistics()["dropped"] == 1


@pytest.mark.parametrize("how", ["missed", "cancelled"])
def test_run_that_was_given_up_behind_another_tasks_may_be_run_again(
    still: Device, wide: Burst, how: str
) -> None:
    first, second = numbered_requests(wide, 2)

    async def give_up() -> None:
        if how == "missed":
            with pytest.raises(MissedDeadline):
                await second.run_async(0.01)
        else:
            task = await started(second.run_async())
            task.cancel()
            await asyncio.wait([task])

    async def main() -> None:
        with standing_still(still):
            other = await started(first.run_async())
            for _ in range(3):
                await give_up()
            again = await started(second.run_async())
            with pytest.raises(MissedDeadline):
                await second.run_async(0.01)
        assert (await again).outputs[0].tolist() == [1, 1]  # type: ignore[attr-defined]
        assert (await other).outputs[0].tolist() == [0, 0]  # type: ignore[attr-defined]

    asyncio.run(main())
    assert not wide._core.pending
    assert wide._core.client.in_flight == wide._core.client.overdue == 0


def test_run_that_blocks_follows_one_that_was_given_up_behind_another_tasks(
    still: Device, wide: Burst
) -> None:
    first, second = numbered_requests(wide, 2)

    async def main() -> None:
        with standing_still(still):
            other = await started(first.run_async())
            with pytest.raises(MissedDeadline):
                await second.run_async(0.01)
        assert second.run().outputs[0].tolist() == [1, 1]
        assert (await other).outputs[0].tolist() == [0, 0]  # type: ignore[attr-defined]

    asyncio.run(main())


def test_request_that_is_under_way_is_refused(still: Device, wide: Burst) -> None:
    (bound,) = numbered_requests(wide, 1)

    async def main() -> None:
        with standing_still(still):
            task = await started(bound.run_async())
            with pytest.raises(BurstBusy, match="its memory is in use"):
                await bound.run_async()
        await task

    asyncio.run(main())


@pytest.mark.parametrize("timeout", [0, -1, "1", float("nan")])
def test_timeout_is_checked_before_anything_is_sent(burst: Burst, timeout: float) -> None:
    (bound,) = numbered_requests(burst, 1)
    with pytest.raises(InvalidArgument, match="timeout"):
        asyncio.run(bound.run_async(timeout))
    assert burst._core.client.in_flight == 0


def test_failure_reaches_the_task_and_the_burst_goes_on(burst: Burst) -> None:
    (bound,) = numbered_requests(burst, 1)
    good = bound._packet.copy()
    bound._packet.view("u1").reshape(-1, 24)[1, 0] = 6

    async def main() -> None:
        with pytest.raises(GeneralFailure, match="GENERAL_FAILURE"):
            await bound.run_async()
        bound._packet[...] = good
        assert (await bound.run_async()).outputs[0].tolist() == [0, 0]

    asyncio.run(main())


def test_request_that_does_not_fit_the_channel_takes_the_ordinary_path(still: Device) -> None:
    with (
        still.prepare(copy_model(4)) as prepared,
        prepared.open_burst(channel_length=4, result_channel_length=64) as burst,
    ):
        bound = burst.bind()
        bound.inputs[3][:] = 7
        assert asyncio.run(bound.run_async()).outputs[3].tolist() == [7, 7]


def test_driver_sends_a_byte_only_to_who_waits(still: Device, burst: Burst) -> None:
    (bound,) = numbered_requests(burst, 1)
    for _ in range(20):
        bound.run()
    assert (wakeups_waiting(burst), wishes_for_a_wakeup(burst)) == (0, False)

    async def main() -> None:
        with standing_still(still):
            task = await started(bound.run_async())
            for _ in range(5):
                burst._core.waiter._take()
        results = burst._core.channels.results
        wait_for(lambda: results.available_to_read() > 0 and wakeups_waiting(burst) > 0)
        assert wakeups_waiting(burst) == 1
        await task

    asyncio.run(main())
    for _ in range(20):
        bound.run()
    assert (wakeups_waiting(burst), wishes_for_a_wakeup(burst)) == (0, False)


@pytest.mark.parametrize("wakes", [1, 3])
def test_dead_driver_ends_every_task_at_once(own_device: Device, wakes: int) -> None:
    with own_device.prepare(copy_model()) as prepared:
        burst = prepared.open_burst(max_in_flight=wakes)
        bound = [burst.bind() for _ in range(wakes + 1)]

        async def main() -> None:
            with standing_still(own_device):
                tasks = [await started(request.run_async()) for request in bound]
                os.kill(own_device.pid, signal.SIGKILL)
                done, _ = await asyncio.wait(tasks, timeout=HANG)
            assert len(done) == wakes + 1
            for task in done:
                assert isinstance(task.exception(), DeadObject)
            with pytest.raises(DeadObject):
                await bound[0].run_async()

        asyncio.run(main())
        burst.close()


@pytest.mark.parametrize("from_another_thread", [False, True])
def test_closing_the_burst_ends_every_task(still: Device, from_another_thread: bool) -> None:
    with still.prepare(copy_model()) as prepared:
        burst = prepared.open_burst(max_in_flight=2)
        bound = numbered_requests(burst, 3)

        async def main() -> None:
            with standing_still(still):
                tasks = [await started(request.run_async()) for request in bound]
                closing = threading.Thread(target=burst.close)
                closing.start()
                if not from_another_thread:
                    wait_for(lambda: burst._core.closed)
                done, _ = await asyncio.wait(tasks, timeout=HANG)
            assert [type(task.exception()) for task in done] == [Closed] * 3
            closing.join(HANG)

        asyncio.run(main())
        assert burst._core.channels.wakeup_socket.fileno() == -1


def test_closed_burst_refuses(still: Device) -> None:
    with still.prepare(copy_model()) as prepared:
        burst = prepared.open_burst()
        (bound,) = numbered_requests(burst, 1)
        burst.close()
        with pytest.raises(Closed):
            asyncio.run(bound.run_async())


def test_loops_may_follow_each_other_but_not_share_a_burst(still: Device, wide: Burst) -> None:
    first, second = numbered_requests(wide, 2)
    for _ in range(3):
        assert asyncio.run(first.run_async()).outputs[0].tolist() == [0, 0]
    raised: list[BaseException] = []

    def other_loop() -> None:
        try:
            asyncio.run(second.run_async())
        except BurstBusy as error:
            raised.append(error)

    async def main() -> None:
        with standing_still(still):
            task = await started(first.run_async())
            thread = threading.Thread(target=other_loop)
            thread.start()
            await asyncio.to_thread(thread.join)
            assert len(raised) == 1
        await task

    asyncio.run(main())


def test_loop_that_is_given_up_leaves_the_burst_usable(still: Device, wide: Burst) -> None:
    first, second = numbered_requests(wide, 2)
    loop = asyncio.new_event_loop()
    with standing_still(still):
        task = loop.create_task(first.run_async())
        loop.call_soon(loop.stop)
        loop.run_forever()
        loop.close()
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        task.get_coro().close()  # type: ignore[union-attr]
        del task
    assert asyncio.run(second.run_async()).outputs[0].tolist() == [1, 1]
    assert first.run().outputs[0].tolist() == [0, 0]


def test_task_of_a_closed_loop_keeps_no_other_loop_from_waiting(still: Device, wide: Burst) -> None:
    first, second = numbered_requests(wide, 2)
    loop = asyncio.new_event_loop()

    async def main() -> list[float]:
        with standing_still(still):
            running = await started(second.run_async())
        return (await running).outputs[0].tolist()  # type: ignore[attr-defined, no-any-return]

    with standing_still(still):
        task = loop.create_task(first.run_async())
        loop.call_soon(loop.stop)
        loop.run_forever()
        loop.close()
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    assert asyncio.run(main()) == [1, 1]
    task.get_coro().close()  # type: ignore[union-attr]
    assert asyncio.run(main()) == [1, 1]


def test_other_tasks_get_their_turn_beside_results_that_come_at_once(burst: Burst) -> None:
    (bound,) = numbered_requests(burst, 1)
    turns = 0

    async def ticking() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def main() -> None:
        ticker = await started(ticking())
        before = turns
        while turns == before:
            await bound.run_async()
        ticker.cancel()

    asyncio.run(asyncio.wait_for(main(), HANG))


def test_driver_that_closes_its_end_ends_the_burst(still: Device, burst: Burst) -> None:
    (bound,) = numbered_requests(burst, 1)

    async def main() -> None:
        with standing_still(still):
            task = await started(bound.run_async())
            burst._core.channels.wakeup_socket._socket.shutdown(
                socket.SHUT_RD
            )  # as its end looks from here
            with pytest.raises(GeneralFailure, match="closed its socket"):
                await task

    asyncio.run(main())
    with pytest.raises(GeneralFailure, match="closed its socket"):
        bound.run()


def test_driver_that_sends_bytes_for_nothing_only_makes_us_look(
    still: Device, burst: Burst
) -> None:
    (bound,) = numbered_requests(burst, 1)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    burst._core.channels.wakeup_socket._socket, kept = (
        ours,
        burst._core.channels.wakeup_socket._socket,
    )

    async def main() -> None:
        with standing_still(still):
            task = await started(bound.run_async())
            for _ in range(10):
                theirs.send(b"x" * 1000)
                await asyncio.sleep(0)
            assert not task.done()
        while not task.done():
            theirs.send(b"x")
            await asyncio.sleep(0)
        assert (await task).outputs[0].tolist() == [0, 0]  # type: ignore[attr-defined]

    with kept, theirs:
        asyncio.run(main())


def test_burst_that_was_used_in_a_loop_is_given_up_like_any_other(still: Device) -> None:
    with still.prepare(copy_model()) as prepared:
        burst = prepared.open_burst()
        asyncio.run(burst.bind().run_async())
        gone = weakref.ref(burst)
        del burst
        gc.collect()
        assert gone() is None


@settings(max_examples=25)
@given(
    limit=st.integers(1, 3),
    steps=st.lists(
        st.tuples(
            st.sampled_from(["run", "cancel", "expire", "block", "yield"]), st.integers(0, 3)
        ),
        max_size=25,
    ),
)
def test_any_mixture_of_runs_gives_each_its_own_result(
    still: Device, limit: int, steps: list[tuple[str, int]]
) -> None:
    with still.prepare(copy_model()) as prepared, prepared.open_burst(max_in_flight=limit) as burst:
        bound = numbered_requests(burst, 4)

        async def one(which: int, patience: float) -> None:
            try:
                result = await bound[which].run_async(patience)
            except BurstBusy:
                return
            assert result.outputs[0].tolist() == [which] * 2

        async def main() -> None:
            tasks = []
            for what, which in steps:
                if what == "yield":
                    await asyncio.sleep(0)
                elif what == "block" and not bound[which].in_flight:
                    assert bound[which].run(HANG).outputs[0].tolist() == [which] * 2
                else:
                    tasks.append(await started(one(which, 1e-9 if what == "expire" else HANG)))
                    if what == "cancel":
                        tasks[-1].cancel()
            found = await asyncio.gather(*tasks, return_exceptions=True)
            allowed = (type(None), asyncio.CancelledError, MissedDeadline)
            assert [f for f in found if not isinstance(f, allowed)] == []

        asyncio.run(main())
        for which, request in enumerate(bound):
            assert request.run(HANG).outputs[0].tolist() == [which] * 2
        assert (burst._core.client.in_flight, len(burst._core.pending)) == (0, 0)


def test_no_wakeup_is_lost_however_late_or_early_results_come(still: Device) -> None:
    rng = np.random.default_rng()
    with (
        still.prepare(copy_model()) as prepared,
        prepared.open_burst(max_in_flight=2, spin_window=0.0) as burst,
    ):
        bound = numbered_requests(burst, 2)

        async def runs(which: int, pauses: np.ndarray) -> None:
            for pause in pauses:
                result = await bound[which].run_async(HANG)
                assert result.outputs[0].tolist() == [which] * 2
                if pause > 0.5:
                    await asyncio.sleep(pause * 1e-4)

        async def main() -> None:
            await asyncio.gather(*(runs(which, rng.random(500)) for which in range(2)))

        asyncio.run(main())
