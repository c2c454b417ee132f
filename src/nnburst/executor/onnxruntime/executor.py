"""The onnxruntime executor as a driver loads it, with its extension for whole ONNX graphs.

onnxruntime opens files that graph bytes name, reads options that they carry, and takes some names for
addresses of memory, and a worker may read files that its client may not. So our own reader reads a client's
graph first, which takes only what every reader of protobuf takes alike: nothing twice, no training graph.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from nnburst.executor.base import (
    DEFAULT_OPTIONS,
    Argument,
    Bytes,
    Cached,
    Execution,
    Executor,
    FallbackExecutor,
    NativeCall,
    Outcome,
    Prepared,
    PrepareOptions,
    without_constants,
)
from nnburst.executor.graph.whole_graph import (
    SLOT_BYTES,
    Apart,
    GraphTensor,
    WholeGraph,
    check_declared,
    graph_prefix,
    take_graph,
    unpack,
)
from nnburst.executor.onnxruntime.graph import CONSTANTS, WrittenGraph
from nnburst.executor.onnxruntime.native import (
    Border,
    EngineSession,
    GraphBinding,
    Provider,
    ResidentStates,
    Room,
    Session,
    is_short_of_memory,
    library,
    plug,
)
from nnburst.executor.onnxruntime.network import lower, survey
from nnburst.formats.onnx_model import OnnxFile, nodes_of, read_model, tensors_of
from nnburst.formats.onnx_tensor import file_name
from nnburst.hal.enums import DeviceType, ErrorStatus
from nnburst.hal.environment import ONNXRUNTIME_PROVIDER, ONNXRUNTIME_THREADS
from nnburst.hal.errors import DeviceUnavailable, GeneralFailure, InvalidArgument
from nnburst.hal.extensions import Extension
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS
from nnburst.hal.model import Model
from nnburst.hal.types import NumberOfCacheFiles, OutputShape, changes_dimensions
from nnburst.hal.whole_graph import BY_NUMBER, ONNX, GraphState, described

# -- files that a graph may name -------------------------------------------------------------------
#: Identifier of the engine's own format, whose offsets the engine does not check.
_OWN_FORMAT: Final = b"ORTM"
#: Operators that name files of compiled parts.
_NAMING_FILES: Final = frozenset({"EPContext"})


def check_content(content: bytes, files: Collection[str]) -> OnnxFile:
    """Read a client's graph, and check that it names only files that came with it.

    Args:
        content: bytes of the graph, a private copy.
        files: names of the other files whose bytes came along.

    Raises:
        InvalidArgument: the graph is not an ONNX file, or names another file.
    """
    if content[4:8] == _OWN_FORMAT:
        raise InvalidArgument("the graph is of onnxruntime's own format, expected ONNX")
    file = read_model(content)
    given = {file_name(name) for name in files}
    for where, tensor in tensors_of(file):
        location = tensor.external.get("location", "")
        if tensor.is_external and file_name(location) not in given:
            raise InvalidArgument(
                f"tensor {tensor.name!r} of {where} names the file {location!r}, which was not given"
            )
        if tensor.external and not tensor.is_external:
            raise InvalidArgument(
                f"tensor {tensor.name!r} of {where} names a file and has values, expected one of the two"
            )
    for node in nodes_of(file):
        if node.op_type in _NAMING_FILES:
            raise InvalidArgument(
                f"node {node.name!r} is a {node.op_type}, which may open files and is not run"
            )
    return file


# -- executor --------------------------------------------------------------------------------------


log = logging.getLogger("nnburst.executor")

_CPU: Final = "CPU"
#: Left out for lowered graphs, whose axes are in the order that moves the least already. It has a Resize read
#: its image in another order, even one that the kernel refuses: then the session fails, or each of its runs.
_DISABLED: Final = ("TransposeOptimizer_CPUExecutionProvider",)


class GraphExecution(Execution):
    """A request bound to a session. One thread runs it at a time."""

    def __init__(
        self,
        binding: GraphBinding | None,
        shapes: tuple[OutputShape, ...] | None,
        turn: threading.Lock | None,
        note: Callable[[Sequence[OutputShape]], None],
    ) -> None:
        """Own a binding.

        Args:
            binding: binding of the request; None if an output has too little room.
            shapes: shapes of all outputs; None if only a run finds them out.
            turn: lock that is held during a run, if the engine runs one request at a time; else None.
            note: called with the shapes that a run has found out.
        """
        self._binding = binding
        self._shapes = shapes
        self._turn = turn
        self._note = note
        self._closed = False

    @property
    def finds_shapes(self) -> bool:  # type: ignore[override]
        """Whether only a run finds out the shapes of the outputs; see `Execution`."""
        return self._shapes is None

    @property
    def native(self) -> NativeCall | None:
        """The call that runs the request without Python; None if only `run` can."""
        if self._binding is None or self._turn is not None:
            return None
        return msgspec.structs.replace(self._binding.native, output_shapes=self._shapes)

    def run(
        self,
        deadline_ns: int | None = None,
        loop_timeout_ns: int = DEFAULT_LOOP_TIMEOUT_NS,  # noqa: ARG002 - loops end with the deadline
    ) -> Outcome:
        """Execute once; see `nnburst.executor.base.Execution`. A run ends soon after its deadline."""
        if self._closed:
            return Outcome(ErrorStatus.INVALID_ARGUMENT, (), "the execution was closed")
        if self._binding is None:
            assert self._shapes is not None
            return _insufficient(self._shapes)
        outcome = self._timed(self._binding, deadline_ns)
        if outcome is None:
            return Outcome(ErrorStatus.MISSED_DEADLINE_PERSISTENT, (), "the deadline has passed")
        if outcome.output_shapes:
            self._shapes = None
            self._note(outcome.output_shapes)
        if outcome.status == ErrorStatus.NONE:
            shapes = outcome.output_shapes or self._shapes or ()
            return msgspec.structs.replace(outcome, output_shapes=shapes)
        if outcome.status == ErrorStatus.OUTPUT_INSUFFICIENT_SIZE:
            return _insufficient(outcome.output_shapes)
        short = is_short_of_memory(outcome.message)
        status = ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT if short else outcome.status
        engine = self._binding.engine.name
        return Outcome(status, (), f"{engine}: {outcome.message or 'the engine failed'}")

    def _timed(self, binding: GraphBinding, deadline_ns: int | None) -> Outcome | None:
        """Run, after waiting for the engine if it runs one request at a time; None if the deadline passed."""
        left = math.inf
        if deadline_ns is not None:
            left = (deadline_ns - time.clock_gettime_ns(time.CLOCK_BOOTTIME)) / 1e9
        if left <= 0 or (
            self._turn and not self._turn.acquire(timeout=-1 if left == math.inf else left)
        ):
            return None
        try:
            if left == math.inf:
                return binding.run()
            late = threading.Event()

            def end() -> None:
                late.set()
                binding.cancel(stop=True)

            timer = threading.Timer(left, end)
            timer.daemon = True
            timer.start()
            outcome = binding.run(deadline_ns)
            timer.cancel()
            timer.join()
            binding.cancel(stop=False)
            failed = outcome.status not in (
                ErrorStatus.NONE,
                ErrorStatus.OUTPUT_INSUFFICIENT_SIZE,
            )
            return None if failed and late.is_set() else outcome
        finally:
            if self._turn:
                self._turn.release()

    def close(self) -> None:
        """Release the request's memory."""
        self._closed = True
        binding, self._binding = self._binding, None
        if binding is not None:
            binding.close()


def _insufficient(shapes: tuple[OutputShape, ...]) -> Outcome:
    message = "an output buffer is too small for what is computed"
    return Outcome(ErrorStatus.OUTPUT_INSUFFICIENT_SIZE, shapes, message)


class SessionPrepared(Prepared):
    """A prepared model that a session computes. `bind` may be called from several threads at once.

    Attributes:
        of_rank_0: dimensions that an output of rank 0 reports.
        extents_hold: whether outputs must have the extents that the model declares.
    """

    of_rank_0: tuple[int, ...] = (1,)
    extents_hold: bool = True

    def __init__(self, session: EngineSession, num_threads: int, *, takes_turns: bool) -> None:
        """Own a session.

        Args:
            session: the session that computes.
            num_threads: number of threads that compute.
            takes_turns: whether the session executes one request at a time, as on devices other than the CPU.
        """
        self.num_threads = num_threads
        self._session = session
        self._states: ResidentStates | None = None
        self._wrong: set[int] = set()
        self._turn = threading.Lock() if takes_turns else None

    def bind(self, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> GraphExecution:
        """Bind memory; see `nnburst.executor.base.Prepared`."""
        session, states = self._session, self._states
        slot = inputs[-1] if states else None
        given = _with_states(
            inputs[:-1] if states else inputs,
            session.inputs,
            states.inputs if states else None,
            _input,
        )
        output = partial(_output, extents_hold=self.extents_hold)
        rooms = _with_states(outputs, session.outputs, states.outputs if states else None, output)
        mine = [
            (border, room)
            for border, room in zip(session.outputs, rooms, strict=True)
            if not room.is_state
        ]
        shapes = None
        if not any(border.is_open for border, _ in mine):
            shapes = tuple(
                OutputShape(border.extents or self.of_rank_0, not room.is_found)
                for border, room in mine
            )
        wanted = tuple(argument.dimensions for argument in outputs)
        note = partial(self._note, wanted)
        if shapes is not None and not all(shape.is_sufficient for shape in shapes):
            return GraphExecution(None, shapes, self._turn, note)
        binding = session.bind(given, rooms)
        if states is not None and slot is not None:
            states.use(binding, _slot_word(slot))
        return GraphExecution(binding, shapes, self._turn, note)

    def _note(self, wanted: Sequence[tuple[int, ...]], found: Sequence[OutputShape]) -> None:
        """Leave an output open from now on if a run has found other extents than the request declares."""
        states = self._states.outputs if self._states else frozenset()
        numbers = [at for at in range(len(self._session.outputs)) if at not in states]
        for at, declared, shape in zip(numbers, wanted, found, strict=True):
            border = self._session.outputs[at]
            if not changes_dimensions(declared, shape.dimensions) or at in self._wrong:
                continue
            self._wrong.add(at)
            log.warning(
                "output %r is declared as %s and computed as %s: each run reports its shape from now on",
                border.name,
                list(declared),
                list(shape.dimensions),
            )
            opened = replace(border, has_rank=False)
            self._session.outputs = tuple(
                opened if each is border else each for each in self._session.outputs
            )

    def close(self) -> None:
        """Release the session, which is freed with the last request that is bound to it."""
        del self._session


class GraphPrepared(SessionPrepared):
    """A prepared model that is a whole ONNX graph of a client."""

    def __init__(
        self, model: Model, graph: WholeGraph, num_threads: int, provider: Provider | None
    ) -> None:
        """Make the session, and compare it with the client's declarations.

        Args:
            model: the client's model.
            graph: the model's graph, whose bytes were checked.
            num_threads: number of threads that compute.
            provider: execution provider that runs the graph; the CPU if None.
        """
        if graph.params.keeps:
            raise InvalidArgument(
                f"{ONNX}: a file has no states of its own, expected names of some"
            )
        session = Session(graph.content, graph.files, num_threads, provider)
        _mark_open_ranks(session, graph.content)
        super().__init__(session, num_threads, takes_turns=provider is not None)
        self._model, self._graph = model, graph
        states = graph.params.states
        if states:
            self._states = ResidentStates(session, read_model(graph.content), states)
        inputs = [_known("input", b) for b in session.inputs if b.name not in _inputs_of(states)]
        outputs = [
            _known("output", b) for b in session.outputs if b.name not in _outputs_of(states)
        ]
        self.extents_hold = graph.params.extents_hold
        if not self.extents_hold:
            outputs = [each._replace(extents=None) for each in outputs]
        check_declared(model, graph, inputs, outputs)
        self._open_contradicted(model)

    def _open_contradicted(self, model: Model) -> None:
        """Leave outputs open whose extents, by the engine, are not those that the file declares."""
        main, staying = model.main, self._states.outputs if self._states else frozenset()
        given = iter(main.output_indexes)
        self._session.outputs = tuple(
            border if at in staying else _opened(border, main.operands[next(given)].dimensions)
            for at, border in enumerate(self._session.outputs)
        )

    def to_cache(self) -> Cached:
        """The graph's bytes: the engine optimises them again."""
        return Cached(self._model, self._graph.pack())


class NetworkPrepared(SessionPrepared):
    """A prepared model of core operations, which were lowered to ONNX."""

    of_rank_0 = ()

    def __init__(
        self,
        model: Model,
        written: WrittenGraph,
        session: EngineSession,
        num_threads: int,
        *,
        takes_turns: bool,
    ) -> None:
        """Own the session of a graph.

        Args:
            model: the model that is computed.
            written: the graph that the model was lowered to.
            session: the session of that graph.
            num_threads: number of threads that compute.
            takes_turns: see `SessionPrepared`.
        """
        super().__init__(session, num_threads, takes_turns=takes_turns)
        self._model, self._written = model, written

    def to_cache(self) -> Cached:
        """The graph, and apart from it large real constants, none of which steers an operation."""
        written = self._written
        return Cached(without_constants(self._model), written.content, written.constants)


def _inputs_of(states: Sequence[GraphState]) -> set[str]:
    return {state.input for state in states}


def _outputs_of(states: Sequence[GraphState]) -> set[str]:
    return {state.output for state in states}


def _with_states(
    arguments: Sequence[Argument],
    borders: Sequence[Border],
    states: frozenset[int] | None,
    room_of: Callable[[Argument, Border], Room],
) -> list[Room]:
    """Memory of each argument of the session; none for states."""
    numbers = [at for at in range(len(borders)) if at not in (states or ())]
    rooms = [
        Room(None, border.element, (), Apart.IN_ITS_PLACE, is_state=True) for border in borders
    ]
    for at, argument in zip(numbers, arguments, strict=True):
        rooms[at] = room_of(argument, borders[at])
    return rooms


def _slot_word(argument: Argument) -> Bytes:
    if argument.buffer is None or argument.buffer.size < SLOT_BYTES:
        raise InvalidArgument("the input that names a slot has too few bytes")
    return argument.buffer[:SLOT_BYTES]


def _mark_open_ranks(session: Session, content: bytes) -> None:
    """Mark inputs and outputs whose rank the file leaves open; the engine describes them as of rank 0."""
    if all(border.extents for border in (*session.inputs, *session.outputs)):
        return
    graph = read_model(content).graph
    # If a file declares a wrong rank, the engine reports none.
    open_ones = {info.name for info in (*graph.inputs, *graph.outputs) if info.shape != ()}
    session.inputs, session.outputs = (
        tuple(
            replace(border, has_rank=bool(border.extents) or border.name not in open_ones)
            for border in borders
        )
        for borders in (session.inputs, session.outputs)
    )


def _opened(border: Border, declared: tuple[int, ...]) -> Border:
    """An output's border; an open one if its extents contradict what the model declares."""
    known = border.extents or (1,)
    if border.is_open or not changes_dimensions(declared, known):
        return border
    return replace(border, has_rank=False)


def _known(side: str, border: Border) -> GraphTensor:
    element = BY_NUMBER.get(border.element)
    if element is None:
        raise InvalidArgument(
            f"{side} {border.name!r} is of ONNX's type {border.element}, which {ONNX} does not take"
        )
    return GraphTensor(border.name, element, border.extents if border.has_rank else None)


def _extents(argument: Argument, border: Border) -> tuple[int, ...]:
    if border.has_rank and not border.extents and math.prod(argument.dimensions) == 1:
        return ()
    return argument.dimensions


def _input(argument: Argument, border: Border) -> Room:
    if argument.buffer is None:
        raise GeneralFailure(f"input {border.name!r} is omitted")
    extents = _extents(argument, border)
    fits = len(extents) == len(border.extents) and all(
        want in (-1, have) for want, have in zip(border.extents, extents, strict=True)
    )
    if border.has_rank and not fits:
        raise InvalidArgument(
            f"input {border.name!r} has extents {argument.dimensions}, the graph {border.extents}"
        )
    size = math.prod(extents) * BY_NUMBER[border.element].size
    if argument.buffer.size < size:
        raise InvalidArgument(
            f"validation:R11: an input of {size} bytes has only {argument.buffer.size}"
        )
    return Room(
        argument.buffer[:size], border.element, extents, Apart.of_input(BY_NUMBER[border.element])
    )


def _output(argument: Argument, border: Border, *, extents_hold: bool) -> Room:
    """Room for an output: the bytes that it needs; the whole buffer if its extents are open or do not fit."""
    found = Room(argument.buffer, border.element, (), Apart.IN_ITS_PLACE, is_found=True)
    wanted = border.extents or (1,)
    if (
        border.has_rank
        and len(argument.dimensions) == len(wanted)
        and any(
            0 not in (have, max(want, 0)) and have != want
            for want, have in zip(wanted, argument.dimensions, strict=True)
        )
    ):
        raise GeneralFailure(f"output {border.name!r} is {wanted}, not {argument.dimensions}")
    if border.is_open:
        return found
    size = math.prod(border.extents) * BY_NUMBER[border.element].size
    if argument.buffer is None or argument.buffer.size < size:
        return found
    apart = Apart.of_output(BY_NUMBER[border.element])
    memory, room = argument.buffer[:size], 0 if extents_hold else argument.buffer.size
    return Room(memory, border.element, border.extents, apart, bytes=room)


#: Kinds of hardware that onnxruntime's providers compute on; those that are not listed count as CPUs.
_DEVICE_TYPES: Final = {
    **dict.fromkeys(("CUDA", "Tensorrt", "NvTensorRTRTX", "ROCM", "MIGraphX"), DeviceType.GPU),
    **dict.fromkeys(("Dml", "WebGpu", "Js"), DeviceType.GPU),
    **dict.fromkeys(
        ("QNN", "VitisAI", "CoreML", "RKNPU", "CANN", "VSINPU"), DeviceType.ACCELERATOR
    ),
    **dict.fromkeys(("OpenVINO", "Nnapi", "TVM", "Azure"), DeviceType.OTHER),
}


class OnnxRuntimeExecutor(Executor):
    """Whole ONNX graphs (dev.nnburst.onnx) and core operations by onnxruntime. Thread-safe.

    The engine runs operations that can be lowered (`operations/`): operands of float32, int32 and bool,
    extents known when the model is prepared, parameters that steer an operation constant. Others are not
    supported, quantised ones among them; the framework gives those to another driver.

    The service chooses the provider that executes them, by NNBURST_ONNXRUNTIME_PROVIDER or
    `nnburst serve --provider`, and the library of a provider that is a plugin; options come from no client.

    DEVIATES: NNAPI's CPU implementation limits ±infinity to the largest float32 where an operation has an
    activation, and takes NaN for the lower bound of RELU; the engine keeps both (docs/operations.md).
    """

    name = "onnxruntime"
    cache_files = NumberOfCacheFiles(1, 1)  # one for the graph, one for constants

    def __init__(self, rest: FallbackExecutor, options: Mapping[str, str]) -> None:
        """Open the library, so that a worker does not have to.

        Args:
            rest: executor that runs a model if the engine refuses it.
            options: `provider`, a provider's name, which goes before the environment's; `provider_library`,
                the path of a plugin that has this provider; all others are options that the provider is
                opened with.

        Raises:
            DeviceUnavailable: onnxruntime is not installed, or does not have the provider.
            InvalidArgument: options are for the CPU, or a plugin is named without a provider.
        """
        found = library()
        own = dict(options)
        plugin = own.pop("provider_library", "")
        name = own.pop("provider", "") or ONNXRUNTIME_PROVIDER.read()
        if name == _CPU and (plugin or own):
            which = "provider_library" if plugin else next(iter(own))
            raise InvalidArgument(f"option: {which!r} without a provider, expected provider=NAME")
        if plugin:
            self.device_type = plug(plugin, name)
        elif name not in found.providers:
            raise DeviceUnavailable(
                f"onnxruntime {found.version} has no provider {name!r},"
                f" it has {', '.join(found.providers)}"
            )
        else:
            self.device_type = _DEVICE_TYPES.get(name, DeviceType.CPU)
        self._provider = None if name == _CPU else Provider(name, own)
        self.engine_version = f"onnxruntime {found.version} {name}"
        if self._provider is None:  # the shipped file was measured on a CPU
            self.capabilities_file = Path(__file__).with_name("capabilities.json")
        self._threads = ONNXRUNTIME_THREADS.read()
        self._rest = rest

    @property
    def extensions(self) -> tuple[Extension, ...]:
        """The extension for whole ONNX graphs."""
        return (described(ONNX),)

    def supported(self, model: Model) -> list[bool]:
        """Whether each operation of the main subgraph can be run; False for any doubt."""
        if graph_prefix(model, ONNX) is not None:
            return [True]
        return list(survey(model).lowered)

    def prepare(
        self, model: Model, pools: Sequence[Bytes], options: PrepareOptions = DEFAULT_OPTIONS
    ) -> Prepared:
        """Prepare a validated model; see `nnburst.executor.base.Executor`."""
        graph = take_graph(model, pools, ONNX)
        if graph is not None:
            check_content(graph.content, graph.files.keys())
            return self._prepared(model, graph, options)
        by_cpu = self._provider is None
        normalizes = by_cpu and library().normalizes
        written = lower(model, pools, by_cpu=by_cpu, normalizes=normalizes)
        if written is None:
            return self._rest.prepare(model, pools, options)
        try:
            return self._lowered(model, written, options)
        except InvalidArgument as error:
            log.warning("another executor runs what onnxruntime refuses: %s", error)
            return self._rest.prepare(model, pools, options)

    def prepare_from_cache(self, cached: Cached, options: PrepareOptions) -> Prepared:
        """Prepare a cached model again; the driver has verified that its bytes are unchanged."""
        if graph_prefix(cached.model, ONNX) is None:
            if not cached.program:
                return self._rest.prepare_from_cache(cached, options)
            written = WrittenGraph(cached.program, bytearray(cached.constants))
            return self._lowered(cached.model, written, options)
        return self._prepared(cached.model, unpack(cached.program), options)

    def _lowered(self, model: Model, written: WrittenGraph, options: PrepareOptions) -> Prepared:
        threads = options.num_threads or self._threads
        files = {CONSTANTS: written.constants} if written.constants else {}
        session = Session(written.content, files, threads, self._provider, _DISABLED)
        turns = self._provider is not None
        return NetworkPrepared(model, written, session, threads, takes_turns=turns)

    def _prepared(self, model: Model, graph: WholeGraph, options: PrepareOptions) -> GraphPrepared:
        threads = options.num_threads or self._threads
        return GraphPrepared(model, graph, threads, self._provider)
