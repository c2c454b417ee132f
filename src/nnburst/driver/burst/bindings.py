"""Requests that a burst has decoded, validated and bound before, known again by their bytes.

The C loop compares packets with the private copies kept here and runs native executions by itself;
this table owns what the loop points to.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from nnburst._native import ffi, lib
from nnburst.driver.model.raised import outcome_of
from nnburst.executor.base import Execution
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.timing import OutputShape
from nnburst.serialize import DATUM_BYTES, serialize_result_bytes
from nnburst.tracing.slices import Layer, Phase, trace

if TYPE_CHECKING:
    from nnburst._native import nnb_server

CAPACITY: Final = int(lib.NNB_MAX_BINDINGS)


class Reply(msgspec.Struct):
    """A result packet to send.

    Attributes:
        packet: its bytes, a cffi buffer; stays valid while this object does.
        count: elements.
        device_ns: how long the executor took.
    """

    packet: Any
    count: int
    device_ns: int = 0


def reply_with(
    status: ErrorStatus, shapes: tuple[OutputShape, ...] = (), device_ns: int = 0
) -> Reply:
    """The reply for an outcome; timing is filled in when it is sent."""
    packet = serialize_result_bytes(status, shapes)
    return Reply(ffi.from_buffer("uint8_t[]", packet), len(packet) // DATUM_BYTES, device_ns)


def success_of(execution: Execution, *, shapes_vary: bool) -> Reply | None:
    """The reply of every success of an execution; None if each one has its own.

    Args:
        execution: bound.
        shapes_vary: the model leaves an output's shape open, so results must report shapes.
    """
    if not shapes_vary:
        return reply_with(ErrorStatus.NONE)
    native = execution.native
    if native is None or native.output_shapes is None:
        return None
    return reply_with(ErrorStatus.NONE, native.output_shapes)


class Binding(msgspec.Struct):
    """One bound request.

    Attributes:
        execution: runs it.
        slots: slots whose memory it uses.
        success: the packet of every success; None if its shapes are known only after each run.
    """

    execution: Execution
    slots: frozenset[int]
    success: Reply | None

    def run(self) -> Reply:
        """Execute once."""
        began = time.perf_counter_ns()
        try:
            with trace(Layer.DRIVER, Phase.EXECUTION, "burst: run"):
                outcome = self.execution.run()
        except BaseException as error:
            outcome = outcome_of(error)
        device_ns = time.perf_counter_ns() - began
        if outcome.status == ErrorStatus.NONE and self.success is not None:
            self.success.device_ns = device_ns
            return self.success
        return reply_with(outcome.status, outcome.output_shapes, device_ns)


class BindingTable:
    """The bindings of one burst. Used by the burst's thread only."""

    def __init__(self, server: nnb_server) -> None:
        """Fill the table of `server`."""
        self._server = server
        self._bindings: dict[int, Binding] = {}
        self._requests: dict[int, Any] = {}  # the C side compares with these copies
        self._hand = 0

    def __len__(self) -> int:
        return len(self._bindings)

    def __getitem__(self, index: int) -> Binding:
        return self._bindings[index]

    def add(self, packet: bytes, binding: Binding) -> None:
        """Remember a binding under its packet; the oldest one goes when the table is full."""
        index = self._hand
        self._hand = (self._hand + 1) % CAPACITY
        self._remove(index)
        request = ffi.new("uint8_t[]", packet)
        native = binding.execution.native
        entry = ffi.new(
            "struct nnb_binding *",
            {
                "request": request,
                "request_count": len(packet) // int(lib.NNB_DATUM_BYTES),
            },
        )
        if native is not None and binding.success is not None:
            entry.result, entry.result_count = binding.success.packet, binding.success.count
            entry.call = ffi.cast("nnb_native_call", native.function)
            entry.context = ffi.cast("void *", native.context)
        self._bindings[index] = binding
        self._requests[index] = request
        lib.nnb_server_bind(self._server, index, entry)

    def release(self, slot: int) -> None:
        """Drop every binding that used `slot`."""
        for index in [i for i, b in self._bindings.items() if slot in b.slots]:
            self._remove(index)

    def clear(self) -> None:
        """Drop all bindings, and with them the memory that their executions hold."""
        for index in list(self._bindings):
            self._remove(index)

    def _remove(self, index: int) -> None:
        binding = self._bindings.pop(index, None)
        if binding is None:
            return
        lib.nnb_server_bind(self._server, index, ffi.new("struct nnb_binding *"))
        del self._requests[index]
        binding.execution.close()
