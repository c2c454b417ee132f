"""The fallback route: the wheel's `Interpreter`, with each argument copied in and out."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from nnburst.executor.base import NativeCall
from nnburst.executor.graph.tensor import Array
from nnburst.executor.litert.network import Network
from nnburst.hal import operand_types
from nnburst.hal.errors import GeneralFailure
from nnburst.hal.imports import late_numpy as np
from nnburst.tracing.slices import Layer, Phase, trace

_said = threading.Event()


@contextmanager
def quiet_once() -> Iterator[None]:
    """The first interpreter of a process writes to stderr, whatever its settings; not so in here."""
    if _said.is_set():
        yield
        return
    _said.set()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


class InterpreterEngine:
    """An interpreter behind a lock: two threads in one give silently wrong results.

    `invoke` lets go of Python's lock.
    """

    def __init__(self, network: Network, threads: int, title: str = "litert") -> None:
        """Build and allocate.

        Args:
            network: what is computed.
            threads: that compute.
            title: of its runs in a trace.

        Raises:
            GeneralFailure: the engine refuses the network.
        """
        self._network = network
        self._title = title
        self._lock = threading.Lock()
        try:
            with quiet_once():
                self._interpreter: Any = import_module("ai_edge_litert.interpreter").Interpreter(
                    model_content=bytes(network.content), num_threads=threads
                )
                self._interpreter.allocate_tensors()
        except (RuntimeError, ValueError) as error:
            raise GeneralFailure(f"LiteRT refuses the network: {error}") from error
        self._inputs = [d["index"] for d in self._interpreter.get_input_details()]
        self._outputs = [d["index"] for d in self._interpreter.get_output_details()]

    def bind(
        self, inputs: Sequence[memoryview], outputs: Sequence[memoryview | None]
    ) -> InterpreterCall:
        """Bind memory: exactly the bytes of each argument; None for an output that is not taken."""
        network = self._network
        return InterpreterCall(
            self,
            [_typed(b, t.type, t.dimensions) for b, t in zip(inputs, network.inputs, strict=True)],
            [
                None if b is None else _typed(b, t.type, t.dimensions)
                for b, t in zip(outputs, network.outputs, strict=True)
            ],
        )

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array | None]) -> str:
        """Run once; why it failed, or ""."""
        with trace(Layer.CPU, Phase.COMPUTATION, self._title), self._lock:
            try:
                for index, array in zip(self._inputs, inputs, strict=True):
                    self._interpreter.set_tensor(index, array)
                self._interpreter.invoke()
            except (RuntimeError, ValueError) as error:
                return str(error)
            for index, room in zip(self._outputs, outputs, strict=True):
                if room is not None:
                    np.copyto(room, self._interpreter.get_tensor(index).view(room.dtype))
        return ""


class InterpreterCall:
    """A request bound to an interpreter."""

    native: NativeCall | None = None

    def __init__(
        self, engine: InterpreterEngine, inputs: list[Array], outputs: list[Array | None]
    ) -> None:
        """Keep views of the arguments."""
        self._engine = engine
        self._inputs = inputs
        self._outputs = outputs

    def run(self) -> str:
        """Run once; why it failed, or ""."""
        return self._engine.run(self._inputs, self._outputs)

    def close(self) -> None:
        """Drop the views."""
        self._inputs, self._outputs = [], []


def _typed(memory: memoryview, kind: Any, dimensions: tuple[int, ...]) -> Array:  # noqa: ANN401
    dtype = operand_types.DTYPES[kind]
    found = np.frombuffer(memory, np.uint8)
    if found.ctypes.data % dtype.itemsize:
        raise GeneralFailure(f"an argument is not aligned to {dtype.itemsize} bytes")
    return found.view(dtype).reshape(dimensions)
