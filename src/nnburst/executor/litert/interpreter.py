"""Runs networks by the wheel's `Interpreter`, with each argument copied in and out.

The Interpreter is used if libLiteRt.so cannot be, for whole graphs whose extents a run finds out, and for
external delegates: other vendors' libraries that run operators of a graph on a device (TFLite's delegate
ABI).
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

import msgspec

from nnburst.executor.base import NativeCall
from nnburst.executor.graph.tensor import Array
from nnburst.executor.graph.whole_graph import GraphTensor
from nnburst.executor.litert.network import Network
from nnburst.hal import late_numpy as np
from nnburst.hal import model
from nnburst.hal.errors import DeviceUnavailable, GeneralFailure, InvalidArgument
from nnburst.hal.types import OutputShape
from nnburst.tracing.slices import Layer, Phase, trace

log = logging.getLogger("nnburst.executor")

_said = threading.Event()

# -- delegates -------------------------------------------------------------------------------------

_CREATE: Final = "tflite_plugin_create_delegate"
_DESTROY: Final = "tflite_plugin_destroy_delegate"


class ExternalDelegate(msgspec.Struct, frozen=True):
    """A library that runs operators of a graph on a device.

    Attributes:
        library: its path, or its name if the loader is to look for it.
        options: options that the library is opened with.
    """

    library: str
    options: Mapping[str, str]

    @property
    def name(self) -> str:
        """The file's name."""
        return self.library.rpartition("/")[2]

    def check(self) -> None:
        """Load the library, to find errors early; this does not open a device.

        Raises:
            DeviceUnavailable: it cannot be loaded, or is not an external delegate.
        """
        import ctypes  # a driver without a delegate starts without it

        try:
            found = ctypes.CDLL(self.library)
        except OSError as error:
            raise DeviceUnavailable(
                f"delegate {self.library!r} cannot be loaded: {error}"
            ) from error
        for function in (_CREATE, _DESTROY):
            if not hasattr(found, function):
                raise DeviceUnavailable(
                    f"delegate {self.library!r} has no {function}, expected an external delegate of TFLite's"
                )


def _interpreter(content: bytes, threads: int, delegate: ExternalDelegate | None) -> Any:  # noqa: ANN401
    """An interpreter with memory for its tensors; each has a delegate of its own, which it keeps."""
    module = import_module("ai_edge_litert.interpreter")
    with quiet_once():
        plugged = None
        if delegate is not None:
            plugged = [module.load_delegate(delegate.library, dict(delegate.options))]
        made = module.Interpreter(
            model_content=content, num_threads=threads, experimental_delegates=plugged
        )
        made.allocate_tensors()
    if delegate is not None:
        _report_cost(made, delegate)
    return made


def _report_cost(interpreter: Any, delegate: ExternalDelegate) -> None:  # noqa: ANN401
    """Log the time that copying arguments takes here and not with libLiteRt.so."""
    given = [
        (d["index"], np.zeros(d["shape"], d["dtype"])) for d in interpreter.get_input_details()
    ]
    taken = [d["index"] for d in interpreter.get_output_details()]
    rounds = []
    for _ in range(3):
        began = time.perf_counter_ns()
        for index, zeros in given:
            interpreter.set_tensor(index, zeros)
        copied = sum(zeros.nbytes for _, zeros in given)
        copied += sum(interpreter.get_tensor(index).nbytes for index in taken)
        rounds.append(time.perf_counter_ns() - began)
    log.warning(
        "delegate %s: the Interpreter runs it and copies each argument: %d bytes, %.0f µs a run",
        delegate.name,
        copied,
        min(rounds) / 1000,
    )


# -- networks of core operations -------------------------------------------------------------------


@contextmanager
def quiet_once() -> Iterator[None]:
    """Silence stderr while a process makes its first interpreter, which ignores settings and writes there."""
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
    """An interpreter behind a lock, since two threads in one interpreter give wrong results without an error.

    `invoke` releases Python's lock.
    """

    def __init__(
        self,
        network: Network,
        threads: int,
        title: str = "litert",
        delegate: ExternalDelegate | None = None,
    ) -> None:
        """Build the interpreter and allocate its tensors.

        Args:
            network: the network to compute.
            threads: number of threads that compute.
            title: name of its runs in a trace.
            delegate: library that runs the operators that it supports.

        Raises:
            GeneralFailure: the engine refuses the network.
        """
        self._network = network
        self._title = title
        self._lock = threading.Lock()
        try:
            self._interpreter: Any = _interpreter(bytes(network.content), threads, delegate)
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
        """Run once; the reason if it fails, else ""."""
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
        """Run once; the reason if it fails, else ""."""
        return self._engine.run(self._inputs, self._outputs)

    def close(self) -> None:
        """Drop the views."""
        self._inputs, self._outputs = [], []


def _typed(memory: memoryview, kind: Any, dimensions: tuple[int, ...]) -> Array:  # noqa: ANN401
    dtype = model.DTYPES[kind]
    found = np.frombuffer(memory, np.uint8)
    if found.ctypes.data % dtype.itemsize:
        raise GeneralFailure(f"an argument is not aligned to {dtype.itemsize} bytes")
    return found.view(dtype).reshape(dimensions)


# -- whole graphs ----------------------------------------------------------------------------------


class GraphInterpreter:
    """An interpreter of a whole graph, whose arguments may have other extents in each run.

    As with `InterpreterEngine`, threads take turns. A request with the interpreter's present extents costs
    nothing more; another one resizes it, which prepares and compiles nothing again.

    Attributes:
        output_extents: for inputs of the file's extents; an extent that only a run finds out is the file's.
    """

    def __init__(
        self,
        content: bytes,
        inputs: Sequence[GraphTensor],
        outputs: Sequence[GraphTensor],
        threads: int,
        delegate: ExternalDelegate | None = None,
    ) -> None:
        """Build the interpreter and allocate its tensors.

        Args:
            content: a file that was checked.
            inputs: inputs of its main subgraph, with their extents.
            outputs: outputs of its main subgraph, likewise.
            threads: number of threads that compute.
            delegate: library that runs the operators that it supports.

        Raises:
            InvalidArgument: the engine refuses the graph.
        """
        self._lock = threading.Lock()
        try:
            self._interpreter: Any = _interpreter(content, threads, delegate)
            given, taken = (
                self._interpreter.get_input_details(),
                self._interpreter.get_output_details(),
            )
        except (RuntimeError, ValueError, TypeError) as error:
            raise InvalidArgument(f"LiteRT refuses the graph: {error}") from error
        self._inputs = [_place("input", *each) for each in zip(inputs, given, strict=True)]
        #: Extents of the inputs that memory is allocated for; None after a failed attempt.
        self._extents: tuple[tuple[int, ...], ...] | None = tuple(
            tuple(int(extent) for extent in each["shape"]) for each in given
        )
        self._outputs = [_place("output", *each) for each in zip(outputs, taken, strict=True)]
        self.output_extents = tuple(
            tuple(int(extent) for extent in each["shape"]) for each in taken
        )

    def bind(self, inputs: Sequence[memoryview], outputs: Sequence[memoryview | None]) -> GraphCall:
        """Bind memory: exactly the bytes of each input, and the room for each output, however large."""
        return GraphCall(self, inputs, outputs)

    def run(
        self, inputs: Sequence[memoryview], extents: tuple[tuple[int, ...], ...]
    ) -> list[Array] | str:
        """Run once on inputs of these extents; copies of the outputs, or the reason if it fails."""
        with trace(Layer.CPU, Phase.COMPUTATION, "litert: whole graph"), self._lock:
            try:
                if extents != self._extents:
                    self._resize(extents)
                for (index, tensor), memory, shape in zip(
                    self._inputs, inputs, extents, strict=True
                ):
                    # TRUST: copied here; the engine reads its own copy alone
                    self._interpreter.set_tensor(index, _values(tensor, memory).reshape(shape))
                self._interpreter.invoke()
                return [self._copy_of(index) for index, _ in self._outputs]
            except (RuntimeError, ValueError, MemoryError) as error:
                return str(error) or type(error).__name__

    def _copy_of(self, index: int) -> Array:
        """A copy of an output. The engine has none of a tensor without elements."""
        try:
            return np.asarray(self._interpreter.get_tensor(index))
        except ValueError:
            for details in self._interpreter.get_output_details():
                if details["index"] == index and 0 in details["shape"]:
                    return np.zeros(details["shape"], details["dtype"])
            raise

    def _resize(self, extents: tuple[tuple[int, ...], ...]) -> None:
        self._extents = None
        for (index, _), shape in zip(self._inputs, extents, strict=True):
            self._interpreter.resize_tensor_input(index, shape)
        self._interpreter.allocate_tensors()
        self._extents = extents


class GraphCall:
    """A request bound to an interpreter of a whole graph.

    Attributes:
        extents: extents of the inputs; to be set before a run.
        shapes: after a run, the shape of each output, and whether there was room for it.
    """

    native: NativeCall | None = None

    def __init__(
        self,
        engine: GraphInterpreter,
        inputs: Sequence[memoryview],
        outputs: Sequence[memoryview | None],
    ) -> None:
        """Keep views of the arguments."""
        self.extents: tuple[tuple[int, ...], ...] = ()
        self.shapes: tuple[OutputShape, ...] = ()
        self._engine = engine
        self._inputs = list(inputs)
        self._outputs = list(outputs)

    def run(self) -> str:
        """Run once and copy the outputs that there is room for; the reason if it fails, else ""."""
        found = self._engine.run(self._inputs, self.extents)
        if isinstance(found, str):
            return found
        pairs = zip(found, self._outputs, strict=True)
        self.shapes = tuple(take(values, room) for values, room in pairs)
        return ""

    def close(self) -> None:
        """Drop the views."""
        self._inputs, self._outputs = [], []


def _place(side: str, tensor: GraphTensor, details: Any) -> tuple[int, GraphTensor]:  # noqa: ANN401
    """The engine's number of a tensor, and the tensor, whose element type is checked."""
    wanted = np.dtype(np.bool_) if tensor.element.name == "bool" else tensor.element.dtype
    if np.dtype(details["dtype"]) != wanted:
        raise InvalidArgument(f"LiteRT has {details['dtype']} as {side} {tensor.name!r}")
    return int(details["index"]), tensor


def _values(tensor: GraphTensor, memory: memoryview) -> Array:
    values: Array = np.frombuffer(memory, tensor.element.dtype)
    if tensor.element.name == "bool":
        values = values != 0
    return values


def take(values: Array, room: memoryview | None) -> OutputShape:
    """Copy an output into a request's memory, if it fits; its shape, and whether it did."""
    fits = room is not None and room.nbytes >= values.nbytes
    if room is not None and fits:
        found = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        np.copyto(np.frombuffer(room, np.uint8, values.nbytes), found)
    return OutputShape(tuple(values.shape) or (1,), fits)
