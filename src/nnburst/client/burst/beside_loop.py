"""Calls functions that block on threads beside an event loop, for the loop's tasks."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from nnburst.client.arguments import ExecutionResult
from nnburst.hal.errors import ResourceExhausted
from nnburst.hal.utils import DaemonThread

if TYPE_CHECKING:
    import asyncio  # a program with an event loop has imported it; others need not


async def call_on_a_thread(work: Callable[[], ExecutionResult]) -> ExecutionResult:
    """Call `work` on a thread of the event loop's executor, like `asyncio.to_thread`.

    If the executor starts none, as after the end of the main thread, `work` gets a thread of its own.

    Raises:
        ResourceExhausted: the process may have no more threads.
    """
    import asyncio

    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    is_refused = False

    def run() -> ExecutionResult:
        if is_refused:
            raise ResourceExhausted("the event loop cannot start a thread")
        return context.run(work)

    try:
        future = loop.run_in_executor(None, run)
    except RuntimeError:
        is_refused = True  # the executor has queued `run` for a thread that becomes free
        future = loop.create_future()
        DaemonThread(partial(settle_by, loop, future, partial(context.run, work)))
    return await future


def settle_by(
    loop: asyncio.AbstractEventLoop,
    future: asyncio.Future[ExecutionResult],
    work: Callable[[], ExecutionResult],
) -> None:
    """Call `work` on a thread beside an event loop, and settle a future of the loop with the outcome."""
    try:
        outcome: ExecutionResult | BaseException = work()
    except BaseException as error:  # the task raises it
        outcome = error

    def settle() -> None:
        if future.done():
            return
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    with contextlib.suppress(RuntimeError):  # the loop was closed with its task
        loop.call_soon_threadsafe(settle)
