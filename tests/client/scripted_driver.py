"""Has a driver in this process whose executor the test controls."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any, Self

from nnburst import DeadObject, Device, Model, Priority
from nnburst.client.session.handshake import Session
from nnburst.control.channel import Channel, ProtocolError
from nnburst.control.messages import Message, decode_call
from nnburst.control.service import Service
from nnburst.driver.service.worker import Worker
from nnburst.executor import base as executor_base
from nnburst.executor.base import Argument, NativeCall, Outcome

HANG = 20.0


class Execution(executor_base.Execution):
    """Runs the script."""

    native: NativeCall | None = None

    def __init__(
        self, model: Prepared, inputs: Sequence[Argument], outputs: Sequence[Argument]
    ) -> None:
        self.model, self.inputs, self.outputs = model, inputs, outputs

    def run(self, deadline_ns: int | None = None, loop_timeout_ns: int = 0) -> Outcome:
        self.deadline_ns, self.loop_timeout_ns = deadline_ns, loop_timeout_ns
        return self.model.script.on_run(self)

    def close(self) -> None:
        self.model.script.closed_executions += 1


class Prepared(executor_base.Prepared):
    """A model that the script prepared."""

    def __init__(self, script: Script, priority: Priority) -> None:
        self.script, self.priority = script, priority

    def bind(self, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> Execution:
        self.script.on_bind()
        return Execution(self, inputs, outputs)

    def close(self) -> None:
        self.script.closed.release()


class Script(executor_base.Executor):
    """An executor: `on_prepare`, `on_bind` and `on_run` are the test's, and run on the driver's threads.

    Attributes:
        supports: every operation.
        closed: released by every prepared model that is closed.
    """

    name = "scripted"

    def __init__(self) -> None:
        self.on_prepare: Callable[[], object] = lambda: None
        self.on_bind: Callable[[], object] = lambda: None
        self.on_run: Callable[[Execution], Outcome] = lambda _execution: Outcome()
        self.supports = True
        self.closed = threading.Semaphore(0)
        self.closed_executions = 0

    def supported(self, model: Model) -> list[bool]:
        return [self.supports] * len(model.main.operations)

    def prepare(self, *arguments: Any) -> Prepared:
        self.on_prepare()
        return Prepared(self, arguments[2].priority)


#: What `executor` gives to the next driver: executors are found by name.
_next: list[Script] = []


def executor() -> Script:
    return _next.pop()


class ScriptedDriver:
    """A worker on a thread of this process, and a device on it. A context manager."""

    def __init__(self) -> None:
        self.script = Script()
        _next.append(self.script)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.channel = Channel(theirs)
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        assert self._started.wait(HANG)
        self.session = Session(ours, "scripted", lambda: DeadObject("it has died"), timeout=HANG)
        self.device = Device(self.session)

    def _serve(self) -> None:
        # Here, since it is the thread that makes it whose death its client watches for.
        self.worker = Worker(f"{__name__}:executor", "scripted")
        self._started.set()
        try:
            Service[Message](
                self.channel, decode_call, self.worker.handle, self.worker.submit
            ).serve()
        except ProtocolError:
            pass

    def die(self) -> None:
        """End the connection as if the driver had died."""
        self.channel.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.device.close()
        self._thread.join(HANG)
        self.channel.close()
        os.close(self.worker._liveness._pidfd)  # a worker that is a process leaves this to its end
        if self.worker._session is not None:
            self.worker._session.upcalls.close()


class Gate:
    """Holds up the driver's threads until it is opened."""

    def __init__(self) -> None:
        self.reached = threading.Semaphore(0)
        self.opened = threading.Event()

    def __call__(self) -> None:
        self.reached.release()
        assert self.opened.wait(HANG)

    def wait(self) -> None:
        """Wait until a thread has arrived."""
        assert self.reached.acquire(timeout=HANG)
