"""The `onnxruntime` executor as a driver loads it."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from nnburst.executor.base import (
    DEFAULT_OPTIONS,
    Argument,
    Bytes,
    Execution,
    Executor,
    NativeCall,
    Outcome,
    Prepared,
    PrepareOptions,
)
from nnburst.executor.caching import Cached, FallbackExecutor, without_constants
from nnburst.executor.onnxruntime.checks import (
    check_border,
    check_content,
    file_operands,
    graph_operation,
)
from nnburst.executor.onnxruntime.extension import DESCRIPTION
from nnburst.executor.onnxruntime.graph import CONSTANTS, WrittenGraph
from nnburst.executor.onnxruntime.native import (
    Border,
    GraphBinding,
    Room,
    Session,
    is_short_of_memory,
    library,
)
from nnburst.executor.onnxruntime.network import lower, survey
from nnburst.hal.configs import NumberOfCacheFiles
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.environment import ONNXRUNTIME_PROVIDER, ONNXRUNTIME_THREADS
from nnburst.hal.errors import DeviceUnavailable, GeneralFailure, InvalidArgument
from nnburst.hal.extensions import Extension
from nnburst.hal.extensions.whole_graph import BY_NUMBER, NAME, GraphParams
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS
from nnburst.hal.model import Model
from nnburst.hal.timing import OutputShape

log = logging.getLogger("nnburst.executor")

_CPU: Final = "CPU"


class GraphExecution(Execution):
    """A request bound to a session. One thread runs it at a time."""

    def __init__(
        self,
        binding: GraphBinding | None,
        outputs: Sequence[tuple[Border, Argument]],
        shapes: tuple[OutputShape, ...] | None,
        turn: threading.Lock | None,
    ) -> None:
        """Own a binding.

        Args:
            binding: of the request; None if an output has too little room.
            outputs: what the session reports of each, and the request's memory.
            shapes: of all outputs; None if only a run finds them out.
            turn: is held while the engine runs, if it runs one request at a time.
        """
        self._binding = binding
        self._outputs = outputs
        self._shapes = shapes
        self._turn = turn
        self._closed = False

    @property
    def native(self) -> NativeCall | None:
        """The C function that runs it; None if only Python can."""
        if self._binding is None or self._shapes is None or self._turn is not None:
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
        failure, is_late = self._timed(self._binding, deadline_ns)
        if is_late:
            return Outcome(ErrorStatus.MISSED_DEADLINE_PERSISTENT, (), "the deadline has passed")
        if failure:
            short = is_short_of_memory(failure)
            status = (
                ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT if short else ErrorStatus.GENERAL_FAILURE
            )
            return Outcome(status, (), f"onnxruntime: {failure}")
        if self._shapes is not None:
            return Outcome(ErrorStatus.NONE, self._shapes)
        shapes = tuple(self._taken(self._binding, at) for at in range(len(self._outputs)))
        if all(shape.is_sufficient for shape in shapes):
            return Outcome(ErrorStatus.NONE, shapes)
        return _insufficient(shapes)

    def _timed(self, binding: GraphBinding, deadline_ns: int | None) -> tuple[str, bool]:
        """Run with the engine's turn, if there are turns; why it failed, and whether it was too late."""
        left = math.inf
        if deadline_ns is not None:
            left = (deadline_ns - time.clock_gettime_ns(time.CLOCK_BOOTTIME)) / 1e9
        if left <= 0 or (
            self._turn and not self._turn.acquire(timeout=-1 if left == math.inf else left)
        ):
            return "", True
        try:
            if left == math.inf:
                return binding.run(), False
            late = threading.Event()

            def end() -> None:
                late.set()
                binding.cancel(stop=True)

            timer = threading.Timer(left, end)
            timer.daemon = True
            timer.start()
            failure = binding.run()
            timer.cancel()
            timer.join()
            binding.cancel(stop=False)
            return failure, bool(failure) and late.is_set()
        finally:
            if self._turn:
                self._turn.release()

    def _taken(self, binding: GraphBinding, at: int) -> OutputShape:
        """Copy an output that the run found the extents of into the request's memory."""
        border, argument = self._outputs[at]
        found, extents = binding.result(at, BY_NUMBER[border.element].dtype.itemsize)
        fits = argument.buffer is not None and argument.buffer.size >= found.size
        if argument.buffer is not None and fits:
            np.copyto(argument.buffer[: found.size], found)
        return OutputShape(extents or (1,), fits)

    def close(self) -> None:
        """Let go of the request's memory."""
        self._closed = True
        binding, self._binding = self._binding, None
        if binding is not None:
            binding.close()


def _insufficient(shapes: tuple[OutputShape, ...]) -> Outcome:
    message = "an output buffer is too small for what is computed"
    return Outcome(ErrorStatus.OUTPUT_INSUFFICIENT_SIZE, shapes, message)


class SessionPrepared(Prepared):
    """A session. `bind` may be called from several threads at once.

    Attributes:
        of_rank_0: what an output of rank 0 reports as its dimensions.
    """

    of_rank_0: tuple[int, ...] = (1,)

    def __init__(self, session: Session, num_threads: int, provider: str) -> None:
        """Own a session.

        Args:
            session: what computes.
            num_threads: that compute.
            provider: that executes it; the CPU unless given.
        """
        self.num_threads = num_threads
        self._session = session
        self._turn = threading.Lock() if provider else None

    def bind(self, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> GraphExecution:
        """Bind memory; see `nnburst.executor.base.Prepared`."""
        session = self._session
        given = [_input(a, b) for a, b in zip(inputs, session.inputs, strict=True)]
        rooms = [_output(a, b) for a, b in zip(outputs, session.outputs, strict=True)]
        shapes = None
        if all(min(border.extents, default=1) >= 0 for border in session.outputs):
            shapes = tuple(
                OutputShape(border.extents or self.of_rank_0, room.memory is not None)
                for border, room in zip(session.outputs, rooms, strict=True)
            )
        pairs = list(zip(session.outputs, outputs, strict=True))
        if shapes is not None and not all(shape.is_sufficient for shape in shapes):
            return GraphExecution(None, pairs, shapes, self._turn)
        if shapes is None:
            rooms = [Room(None, room.element, room.extents, apart=False) for room in rooms]
        return GraphExecution(session.bind(given, rooms), pairs, shapes, self._turn)

    def close(self) -> None:
        """Let go of the session, which is freed with the last request that is bound to it."""
        del self._session


class GraphPrepared(SessionPrepared):
    """A whole graph of a client's."""

    def __init__(
        self, model: Model, prefix: int, graph: _Graph, num_threads: int, provider: str
    ) -> None:
        """Make the session and compare it with what the client declares.

        Args:
            model: the client's.
            prefix: of the extension in it.
            graph: its bytes, which were checked.
            num_threads: that compute.
            provider: that executes it; the CPU unless given.
        """
        session = Session(graph.content, graph.files, num_threads, provider)
        super().__init__(session, num_threads, provider)
        self._model, self._graph = model, graph
        main, params = model.main, graph.params
        sides = (
            ("input", params.inputs, session.inputs, main.input_indexes),
            ("output", params.outputs, session.outputs, main.output_indexes),
        )
        for side, names, borders, indexes in sides:
            if names != tuple(border.name for border in borders) or len(names) != len(indexes):
                raise InvalidArgument(
                    f"the graph has the {side}s {[border.name for border in borders]},"
                    f" the model declares {list(names)}"
                )
            for border, index in zip(borders, indexes, strict=True):
                extents = border.extents if border.element else None
                what = f"{side} {border.name!r}"
                check_border(what, main.operands[index], prefix, border.element, extents)

    def to_cache(self) -> Cached:
        """The graph's bytes: the engine optimises them again."""
        return Cached(self._model, msgspec.msgpack.encode(self._graph))


class NetworkPrepared(SessionPrepared):
    """A model of core operations, lowered."""

    of_rank_0 = ()

    def __init__(
        self, model: Model, written: WrittenGraph, num_threads: int, provider: str
    ) -> None:
        """Make the session.

        Args:
            model: what is computed.
            written: how.
            num_threads: that compute.
            provider: that executes it; the CPU unless given.
        """
        files = {CONSTANTS: written.constants} if written.constants else {}
        super().__init__(
            Session(written.content, files, num_threads, provider), num_threads, provider
        )
        self._model, self._written = model, written

    def to_cache(self) -> Cached:
        """The graph, and its real constants apart: nothing is steered by those."""
        written = self._written
        return Cached(without_constants(self._model), written.content, written.constants)


class _Graph(msgspec.Struct, frozen=True, array_like=True):
    """A graph as its client gave it, copied and checked.

    Attributes:
        params: its border and the names of other files.
        content: the file.
        files: others, by name.
    """

    params: GraphParams
    content: bytes
    files: dict[str, bytes]


_decode: Final = msgspec.msgpack.Decoder(_Graph).decode


def _graph_of(model: Model, prefix: int, pools: Sequence[Bytes]) -> _Graph:
    params, operands = file_operands(model, prefix)
    parts = []
    for operand in operands:
        at = operand.location
        pool = pools[at.pool_index]
        # TRUST: copied once, since the client may change the pool; everything is read from the copy
        parts.append(pool[at.offset : at.offset + at.length].tobytes())
    files = dict(zip(params.files, parts[1:], strict=True))
    check_content(parts[0], files.keys())
    return _Graph(params, parts[0], files)


def _is_plain(element: int) -> bool:
    """Whether elements are only values: no index, no shape, no condition, which a peer must not change."""
    return BY_NUMBER[element].name in ("float", "float16", "double", "bfloat16")


def _extents(argument: Argument, border: Border) -> tuple[int, ...]:
    if not border.extents and math.prod(argument.dimensions) == 1:
        return ()
    return argument.dimensions


def _input(argument: Argument, border: Border) -> Room:
    if argument.buffer is None:
        raise GeneralFailure(f"input {border.name!r} is omitted")
    extents = _extents(argument, border)
    fits = len(extents) == len(border.extents) and all(
        want in (-1, have) for want, have in zip(border.extents, extents, strict=True)
    )
    if not fits:
        raise InvalidArgument(
            f"input {border.name!r} has extents {argument.dimensions}, the graph {border.extents}"
        )
    size = math.prod(extents) * BY_NUMBER[border.element].dtype.itemsize
    if argument.buffer.size < size:
        raise InvalidArgument(
            f"validation:R11: an input of {size} bytes has only {argument.buffer.size}"
        )
    return Room(argument.buffer[:size], border.element, extents, not _is_plain(border.element))


def _output(argument: Argument, border: Border) -> Room:
    """Room for an output; without memory if there is too little, or its extents are open."""
    wanted = border.extents or (1,)
    if len(argument.dimensions) == len(wanted) and any(
        0 not in (have, max(want, 0)) and have != want
        for want, have in zip(wanted, argument.dimensions, strict=True)
    ):
        raise GeneralFailure(f"output {border.name!r} is {wanted}, not {argument.dimensions}")
    apart = not _is_plain(border.element)
    if min(border.extents, default=1) < 0:
        return Room(None, border.element, border.extents, apart)
    size = math.prod(border.extents) * BY_NUMBER[border.element].dtype.itemsize
    if argument.buffer is None or argument.buffer.size < size:
        return Room(None, border.element, border.extents, apart)
    return Room(argument.buffer[:size], border.element, border.extents, apart)


class OnnxRuntimeExecutor(Executor):
    """Whole ONNX graphs (dev.nnburst.onnx) and core operations by onnxruntime. Thread-safe.

    The engine runs operations that can be lowered (`operations/`): operands of float32, int32 and bool,
    extents known when the model is prepared, parameters that steer an operation constant. Others are not
    supported, quantised ones among them; the framework gives those to another driver.

    The service chooses the provider that executes them, by NNBURST_ONNXRUNTIME_PROVIDER or
    `nnburst serve --provider`; options of the engine come from no client.
    """

    name = "onnxruntime"
    cache_files = NumberOfCacheFiles(1, 1)  # one for the graph, one for constants
    capabilities_file = Path(__file__).with_name("capabilities.json")

    def __init__(self, rest: FallbackExecutor) -> None:
        """Open the library, so that a worker does not have to.

        Args:
            rest: runs a model if the engine turns out to refuse it.

        Raises:
            DeviceUnavailable: it is not installed, or has no such provider.
        """
        found = library()
        self._provider = ONNXRUNTIME_PROVIDER.read()
        if self._provider not in found.providers:
            raise DeviceUnavailable(
                f"onnxruntime {found.version} has no provider {self._provider!r},"
                f" it has {', '.join(found.providers)}"
            )
        self.engine_version = f"onnxruntime {found.version} {self._provider}"
        self._threads = ONNXRUNTIME_THREADS.read()
        self._rest = rest

    @property
    def extensions(self) -> tuple[Extension, ...]:
        """Its own."""
        return (DESCRIPTION,)

    def supported(self, model: Model) -> list[bool]:
        """Whether each operation of the main subgraph can be run; False for any doubt."""
        if graph_operation(model) is not None:
            return [True]
        return list(survey(model).lowered)

    def prepare(
        self, model: Model, pools: Sequence[Bytes], options: PrepareOptions = DEFAULT_OPTIONS
    ) -> Prepared:
        """Prepare a validated model; see `nnburst.executor.base.Executor`."""
        prefix = graph_operation(model)
        if prefix is not None:
            return self._prepared(model, prefix, _graph_of(model, prefix, pools), options)
        if any(entry.name == NAME for entry in model.extension_name_to_prefix):
            raise InvalidArgument(f"a model with {NAME} must be that one operation alone")
        written = lower(model, pools)
        if written is None:
            return self._rest.prepare(model, pools, options)
        try:
            return self._lowered(model, written, options)
        except InvalidArgument as error:
            log.warning("another executor runs what onnxruntime refuses: %s", error)
            return self._rest.prepare(model, pools, options)

    def prepare_from_cache(self, cached: Cached, options: PrepareOptions) -> Prepared:
        """Prepare what was kept; the driver has seen to it that the bytes are those that were checked."""
        prefix = graph_operation(cached.model)
        if prefix is None:
            if not cached.program:
                return self._rest.prepare_from_cache(cached, options)
            written = WrittenGraph(cached.program, bytearray(cached.constants))
            return self._lowered(cached.model, written, options)
        try:
            graph = _decode(cached.program)
        except (msgspec.MsgspecError, ValueError) as error:
            raise GeneralFailure(f"a malformed program: {error}") from error
        return self._prepared(cached.model, prefix, graph, options)

    def _lowered(self, model: Model, written: WrittenGraph, options: PrepareOptions) -> Prepared:
        provider = "" if self._provider == _CPU else self._provider
        return NetworkPrepared(model, written, options.num_threads or self._threads, provider)

    def _prepared(
        self, model: Model, prefix: int, graph: _Graph, options: PrepareOptions
    ) -> GraphPrepared:
        provider = "" if self._provider == _CPU else self._provider
        threads = options.num_threads or self._threads
        return GraphPrepared(model, prefix, graph, threads, provider)
