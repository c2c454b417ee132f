"""Runs graphs by libonnxruntime.so through csrc/onnxruntime.c: sessions, bound requests, and resident states.

A state of a whole graph stays in the engine's memory. An operator that writes over what it has read gets one
place for both: its kernels look whether past and present are the same memory. For any other a state has two
places by turns, or one that the engine makes anew for each run, if its extents change.

Another engine that reads ONNX has functions of the same forms (csrc/openvino.c): its sessions and bindings
are those of this module.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from nnburst._native import ffi, lib
from nnburst.executor.base import Bytes, NativeCall, Octets, Outcome
from nnburst.executor.c_structs import run_native, string_of
from nnburst.executor.graph.whole_graph import MAX_SLOTS, Apart
from nnburst.formats.onnx_model import NodeProto, OnnxFile, nodes_of
from nnburst.hal.enums import DeviceType
from nnburst.hal.errors import (
    DeviceUnavailable,
    GeneralFailure,
    InvalidArgument,
    NnburstError,
    ResourceExhausted,
)
from nnburst.hal.whole_graph import BY_NUMBER, GraphState

_opening: Final = threading.Lock()
#: Environment variable by which the engine reads options from a graph's metadata, which a client wrote.
_OPTIONS_FROM_GRAPHS: Final = "ORT_LOAD_CONFIG_FROM_MODEL"
_PROBLEMS: Final = {
    lib.NNB_ONNX_NO_LIBRARY: "cannot be opened",
    lib.NNB_ONNX_NO_SYMBOL: "is not onnxruntime's",
    lib.NNB_ONNX_TOO_OLD: "is older than 1.18",
    lib.NNB_ONNX_FAILED: "does not start",
}


@dataclass(frozen=True, slots=True)
class Library:
    """The engine's library.

    Attributes:
        version: the library's version.
        providers: names of the library's execution providers, without "ExecutionProvider".
    """

    version: str
    providers: tuple[str, ...]

    @property
    def normalizes(self) -> bool:
        """Whether LayerNormalization on the CPU is as exact as the operations that it stands for.

        Before 1.30 it squares numbers before it subtracts their mean, and is off by 10 for a mean of 1,000.
        """
        major, minor = self.version.split(".")[:2]
        return (int(major), int(minor)) >= (1, 30)


@functools.cache
def library() -> Library:
    """Open the library for this process.

    Raises:
        DeviceUnavailable: the library is not installed, or too old.
    """
    spec = importlib.util.find_spec("onnxruntime")
    folders = spec.submodule_search_locations if spec is not None else None
    found = sorted(Path(folders[0], "capi").glob("libonnxruntime.so.*")) if folders else []
    if not found:
        raise DeviceUnavailable(
            "executor onnxruntime needs the package onnxruntime: pip install 'nnburst[onnxruntime]'"
        )
    os.environ.pop(_OPTIONS_FROM_GRAPHS, None)
    version = ffi.new("char[]", int(lib.NNB_ONNX_NAME_BYTES))
    providers = ffi.new("char[]", int(lib.NNB_ONNX_MESSAGE_BYTES))
    with _opening:
        status = int(lib.nnb_onnx_open(os.fsencode(found[-1]), version, providers))
    if status != lib.NNB_ONNX_OK:
        raise DeviceUnavailable(f"{found[-1].name} {_PROBLEMS[status]}")
    names = text(providers).split(",")
    return Library(text(version), tuple(name.removesuffix("ExecutionProvider") for name in names))


@dataclass(frozen=True, slots=True)
class Border:
    """An input or output of a session.

    Attributes:
        name: the tensor's name in the graph.
        element: ONNX's number of the element type; 0 if the value is not a tensor.
        extents: -1 stands for an open one.
        has_rank: whether the rank is known; if it is not, `extents` is empty.
    """

    name: str
    element: int
    extents: tuple[int, ...]
    has_rank: bool = True

    @property
    def is_open(self) -> bool:
        """Whether a run finds out an output's extents: the engine does not hold a file to an extent of 0."""
        return not self.has_rank or min(self.extents, default=1) < 1


@dataclass(frozen=True, slots=True)
class Room:
    """The memory of one argument.

    Attributes:
        memory: exactly the argument's bytes, or room for an output whose extents the run finds out; None for
            no room.
        element: ONNX's number of the element type.
        extents: extents of the tensor in the graph.
        apart: whether the engine works on the memory itself or on a copy.
        is_found: whether the run finds the extents out.
        is_state: whether this is a state that the engine keeps, not an argument of the request.
        bytes: bytes from the beginning of the memory on that an output of other extents may have; 0 if its
            extents must be these.
    """

    memory: Bytes | None
    element: int
    extents: tuple[int, ...]
    apart: Apart
    is_found: bool = False
    is_state: bool = False
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Provider:
    """An execution provider other than the CPU's.

    Attributes:
        name: the name in the library's list, or the one that a plugin's devices report.
        options: options that the provider is opened with.
    """

    name: str
    options: Mapping[str, str]


@functools.cache
def plug(path: str, name: str) -> DeviceType:
    """Register a plugin's library for this process: sessions that name the provider run on its first device.

    Returns:
        The kind of that device.

    Raises:
        DeviceUnavailable: the library cannot be loaded, or has no device of this provider.
    """
    version = library().version
    hardware, message = ffi.new("uint32_t *"), ffi.new("char[]", int(lib.NNB_ONNX_MESSAGE_BYTES))
    with _opening:
        status = lib.nnb_onnx_plug(os.fsencode(path), name.encode(), hardware, message)
    if status != lib.NNB_ONNX_OK:
        raise DeviceUnavailable(
            f"onnxruntime {version} has no provider {name!r} by the library {path!r}: {text(message)}"
        )
    kinds = {lib.NNB_ONNX_GPU: DeviceType.GPU, lib.NNB_ONNX_NPU: DeviceType.ACCELERATOR}
    return kinds.get(int(hardware[0]), DeviceType.OTHER)


class EngineFunctions(NamedTuple):
    """The C functions of an engine that runs ONNX graphs; see csrc/onnxruntime.h.

    Attributes:
        name: the engine's name, for messages.
        count: returns the number of inputs or outputs.
        describe: describes an input or output.
        bind: binds a request to memory.
        call_free: frees a request that `bind` made.
        run: address of the function that runs a bound request.
        stop: makes a run end early.
        copied_bytes: returns the number of bytes that each run copies.
    """

    name: str
    count: Callable[..., int]
    describe: Callable[..., int]
    bind: Callable[..., Any]
    call_free: Callable[..., None]
    run: int
    stop: Callable[..., None]
    copied_bytes: Callable[..., int]


_ENGINE: Final = EngineFunctions(
    "onnxruntime",
    lib.nnb_onnx_count,
    lib.nnb_onnx_describe,
    lib.nnb_onnx_bind,
    lib.nnb_onnx_call_free,
    int(ffi.cast("uintptr_t", ffi.addressof(lib, "nnb_onnx_run"))),
    lib.nnb_onnx_stop,
    lib.nnb_onnx_copied_bytes,
)


class EngineSession:
    """A graph that an engine has loaded. On the CPU its bindings may run on several threads at once.

    Attributes:
        handle: the engine's struct, freed with this object.
        engine: functions of the engine that runs the graph.
        inputs: the graph's inputs.
        outputs: the graph's outputs.
    """

    def __init__(self, handle: Any, engine: EngineFunctions, kept: Sequence[object] = ()) -> None:  # noqa: ANN401
        """Own `handle`, a cffi pointer that frees itself; keep `kept` alive, which the engine may read.

        Raises:
            InvalidArgument: an input or output cannot be described.
        """
        self.handle = handle
        self.engine = engine
        self._kept = kept
        self.inputs = self._borders(0)
        self.outputs = self._borders(1)

    def _borders(self, outputs: int) -> tuple[Border, ...]:
        found = []
        for at in range(int(self.engine.count(self.handle, outputs))):
            border = ffi.gc(ffi.new("struct nnb_onnx_border *"), lib.nnb_onnx_border_free)
            if self.engine.describe(self.handle, outputs, at, border) != 0:
                raise InvalidArgument(
                    f"{'output' if outputs else 'input'} {at} has too many axes, or cannot be described"
                )
            extents = tuple(int(border.dimensions[axis]) for axis in range(border.rank))
            found.append(Border(string_of(border.name), int(border.element), extents))
        return tuple(found)

    def bind(self, inputs: Sequence[Room], outputs: Sequence[Room]) -> GraphBinding:
        """Bind memory, which the binding keeps alive.

        Raises:
            GeneralFailure: the engine refuses an argument.
        """
        message = ffi.new("char[]", int(lib.NNB_ONNX_MESSAGE_BYTES))
        call = self.engine.bind(self.handle, _arguments(inputs), _arguments(outputs), message)
        if call == ffi.NULL:
            raise GeneralFailure(f"{self.engine.name} refuses an argument: {text(message)}")
        return GraphBinding(self, ffi.gc(call, self.engine.call_free), (*inputs, *outputs))


class Session(EngineSession):
    """A graph that onnxruntime runs."""

    def __init__(
        self,
        content: bytes,
        files: Mapping[str, Octets],
        threads: int,
        provider: Provider | None = None,
        disabled: Sequence[str] = (),
    ) -> None:
        """Load a graph that was checked (`executor.py`).

        Args:
            content: bytes of the graph's file.
            files: other files that the graph names.
            threads: number of threads that compute.
            provider: execution provider that runs the graph; the CPU by default.
            disabled: passes of the engine's optimiser that are left out.

        Raises:
            InvalidArgument: the engine refuses the graph.
            DeviceUnavailable: the provider is refused.
            ResourceExhausted: memory is short.
        """
        library()
        message = ffi.new("char[]", int(lib.NNB_ONNX_MESSAGE_BYTES))
        external = ffi.new("struct nnb_onnx_external[]", max(len(files), 1))
        kept: list[Any] = []
        for at, (name, values) in enumerate(files.items()):
            named, memory = ffi.new("char[]", os.fsencode(name)), ffi.from_buffer("char[]", values)
            kept += [named, memory]
            external[at].name, external[at].memory = named, memory
            external[at].bytes = len(values)
        given = ffi.NULL
        if provider is not None:
            given = _provider(provider, kept)
        found = lib.nnb_onnx_session_new_unlocked(
            ffi.from_buffer("uint8_t[]", content),
            len(content),
            threads,
            external,
            len(files),
            given,
            ";".join(disabled).encode(),
            message,
        )
        if found == ffi.NULL:
            raise _refusal(text(message), provider)
        # The engine may read the bytes of the other files where they lie.
        super().__init__(ffi.gc(found, lib.nnb_onnx_session_free), _ENGINE, kept)


class GraphBinding:
    """A request bound to a session. One thread runs it at a time; any thread may stop it.

    Attributes:
        engine: functions of the engine that runs the request.
        native: the call by which the burst loop runs the request.
        copied_bytes: number of bytes that each run copies.
    """

    def __init__(self, session: EngineSession, call: Any, rooms: Sequence[Room]) -> None:  # noqa: ANN401
        """Own `call`, a cffi pointer that frees itself; keep the session and the memory alive."""
        self.call = call
        self.engine: Final = session.engine
        self._kept: tuple[object, ...] = (session, rooms)
        execution = int(ffi.cast("uintptr_t", call))
        self.native = NativeCall(self.engine.run, execution, reports_shapes=True)
        self.copied_bytes = int(self.engine.copied_bytes(call))

    def run(self, deadline_ns: int | None = None) -> Outcome:
        """Run once, without Python's lock; shapes are reported if a run finds them out.

        Args:
            deadline_ns: moment on CLOCK_BOOTTIME at which the caller calls `cancel`; None if it does not.
        """
        return run_native(self.native, deadline_ns)

    def keep(self, kept: object) -> None:
        """Keep another object alive as long as the binding."""
        self._kept = (*self._kept, kept)

    def cancel(self, stop: bool) -> None:
        """Make the present run end soon and later ones at once; `stop=False` takes that back."""
        self.engine.stop(self.call, stop)

    def close(self) -> None:
        """Free the binding and release the memory."""
        ffi.release(self.call)
        self._kept = ()


def _arguments(rooms: Sequence[Room]) -> Any:  # noqa: ANN401 - a cffi struct nnb_onnx_argument[]
    made = ffi.new("struct nnb_onnx_argument[]", max(len(rooms), 1))
    for at, room in enumerate(rooms):
        argument = made[at]
        if room.memory is not None:
            argument.memory = ffi.cast("uint8_t *", room.memory.ctypes.data)
            argument.bytes = room.memory.nbytes
            argument.room = room.memory.nbytes if room.is_found else room.bytes
        argument.element = room.element
        argument.element_bytes = BY_NUMBER[room.element].size
        argument.place = (
            lib.NNB_ONNX_STATE
            if room.is_state
            else lib.NNB_ONNX_ROOM
            if room.is_found
            else lib.NNB_ONNX_WHOLE
        )
        argument.apart = room.apart
        argument.rank = len(room.extents)
        argument.dimensions[0 : len(room.extents)] = list(room.extents)
    return made


def _provider(provider: Provider, kept: list[Any]) -> Any:  # noqa: ANN401 - a cffi struct
    """The provider as a C struct; the memory that it points to is added to `kept`."""
    made = ffi.new("struct nnb_onnx_provider *")
    texts = [
        [ffi.new("char[]", word.encode()) for word in words]
        for words in ([provider.name], provider.options.keys(), provider.options.values())
    ]
    keys, values = (ffi.new("char *[]", [*words, ffi.NULL]) for words in texts[1:])
    made.name, made.keys, made.values = texts[0][0], keys, values
    made.option_count = len(provider.options)
    kept += [texts, keys, values]
    return made


def _refusal(message: str, provider: Provider | None) -> NnburstError:
    if is_short_of_memory(message):
        return ResourceExhausted(f"onnxruntime: {message}")
    if provider is not None and provider.name in message:
        return DeviceUnavailable(f"onnxruntime refuses the provider {provider.name}: {message}")
    return InvalidArgument(f"onnxruntime {library().version} refuses the graph: {message}")


def is_short_of_memory(message: str) -> bool:
    """Whether an error message of the engine means that memory is short."""
    return "bad_alloc" in message or "allocate memory" in message or "out of memory" in message


def text(message: Any) -> str:  # noqa: ANN401 - a cffi char[]
    """The text that C wrote, without white space around it."""
    return string_of(message).strip()


#: The most bytes that one state may have, far beyond any machine's memory.
_MOST_BYTES: Final = 1 << 44

IN_PLACE: Final = int(lib.NNB_ONNX_IN_PLACE)
IN_TURNS: Final = int(lib.NNB_ONNX_IN_TURNS)
GROWING: Final = int(lib.NNB_ONNX_GROWING)

#: Operators that may write an output over an input: the input's number by that of the output.
_WRITING_OVER: Final = {
    ("", "TensorScatter"): {0: 0},
    ("com.microsoft", "GroupQueryAttention"): {1: 3, 2: 4},
}


class _Pair(NamedTuple):
    """The input and output of a session that are one state."""

    input: int
    output: int
    border: Border
    extents: tuple[int, ...]
    kind: int


class ResidentStates:
    """The states of a session, by slot. Thread-safe.

    Attributes:
        inputs: numbers of the session's inputs that are states.
        outputs: numbers of the session's outputs that are states.
        kinds: the way in which each state is written, by the name of its input.
    """

    def __init__(self, session: Session, file: OnnxFile, states: Sequence[GraphState]) -> None:
        """Find out how each state is written, and begin without open slots.

        Args:
            session: kept open as long as this object.
            file: the session's graph.
            states: the states that the client declares.

        Raises:
            InvalidArgument: a state does not name an input and an output of the graph that fit each other.
            ResourceExhausted: memory is short.
        """
        self._session = session
        pairs = [_pair(session, file, state) for state in states]
        self.inputs = frozenset(pair.input for pair in pairs)
        self.outputs = frozenset(pair.output for pair in pairs)
        if len(self.inputs) != len(pairs) or len(self.outputs) != len(pairs):
            raise InvalidArgument("states: an input or output is named twice")
        self.kinds = {pair.border.name: pair.kind for pair in pairs}
        described = ffi.new("struct nnb_onnx_state[]", len(pairs))
        for state, pair in zip(described, pairs, strict=True):
            state.input, state.output, state.kind = pair.input, pair.output, pair.kind
            state.element = pair.border.element
            state.element_bytes = BY_NUMBER[pair.border.element].size
            state.rank = len(pair.extents)
            state.dimensions[0 : len(pair.extents)] = list(pair.extents)
        made = lib.nnb_onnx_states_new(session.handle, described, len(pairs), MAX_SLOTS)
        if made == ffi.NULL:
            raise ResourceExhausted("memory is short for the states of a graph")
        self._handle: Any = ffi.gc(made, lib.nnb_onnx_states_free)

    def use(self, binding: GraphBinding, word: Any) -> None:  # noqa: ANN401 - a uint8 array
        """Make a binding use the states of the slot whose name the client writes to `word`, shared memory."""
        lib.nnb_onnx_use_states(binding.call, self._handle, ffi.cast("uint8_t *", word.ctypes.data))
        binding.keep((self, word))

    def address(self, slot: int, name: str, *, written: bool) -> int:
        """The address at which the next run of a slot reads a state, or writes it."""
        at = list(self.kinds).index(name)
        return int(lib.nnb_onnx_state_address(self._handle, slot, at, written))


def _pair(session: Session, file: OnnxFile, state: GraphState) -> _Pair:
    inputs = [border.name for border in session.inputs]
    outputs = [border.name for border in session.outputs]
    for side, name, names in (("input", state.input, inputs), ("output", state.output, outputs)):
        if name not in names:
            raise InvalidArgument(f"states: {name!r} is not an {side} of the graph, it has {names}")
    for side, name, others in (("output", state.input, outputs), ("input", state.output, inputs)):
        if name in others:  # the engine writes no such output, and its value is the input itself
            raise InvalidArgument(
                f"states: {name!r} is an {side} of the graph, too; expected an Identity between"
            )
    if outputs.count(state.output) > 1:
        raise InvalidArgument(
            f"states: {state.output!r} is {outputs.count(state.output)} outputs of the graph, expected one"
        )
    before = session.inputs[inputs.index(state.input)]
    after = session.outputs[outputs.index(state.output)]
    what = f"states: {state.input!r}"
    if before.element != after.element or before.element not in BY_NUMBER:
        raise InvalidArgument(f"{what} and {state.output!r} are of different types")
    fits = len(state.extents) == len(before.extents) and all(
        have in (want, -1) for have, want in zip(before.extents, state.extents, strict=True)
    )
    if not fits or min(state.extents, default=0) < 0:
        raise InvalidArgument(f"{what} is {list(before.extents)}, not {list(state.extents)}")
    if math.prod(state.extents) * BY_NUMBER[before.element].size > _MOST_BYTES:
        raise InvalidArgument(f"{what} of {list(state.extents)} is larger than any memory")
    # Nothing can be written over a state without elements: it grows.
    if 0 not in state.extents and _is_written_over(file, state):
        kind = IN_PLACE
    else:
        kind = IN_TURNS if after.extents == state.extents else GROWING
    return _Pair(
        inputs.index(state.input), outputs.index(state.output), before, state.extents, kind
    )


def _is_written_over(file: OnnxFile, state: GraphState) -> bool:
    """Whether only one operator reads the state, and may write its output over it."""
    reading = [node for node in nodes_of(file) if state.input in node.inputs]
    if len(reading) != 1 or reading[0] not in file.graph.nodes:
        return False
    (node,) = reading
    pairs = _WRITING_OVER.get((_domain(node), node.op_type), {})
    return any(
        out < len(node.outputs)
        and node.outputs[out] == state.output
        and node.inputs.count(state.input) == 1
        and node.inputs[into] == state.input
        for out, into in pairs.items()
        if into < len(node.inputs)
    )


def _domain(node: NodeProto) -> str:
    return "" if node.domain == "ai.onnx" else node.domain
