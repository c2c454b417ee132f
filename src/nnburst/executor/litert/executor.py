"""Prepares models for a driver by LiteRT."""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from nnburst.executor.base import (
    DEFAULT_OPTIONS,
    Argument,
    Bytes,
    Cached,
    Executor,
    FallbackExecutor,
    Octets,
    Prepared,
    PrepareOptions,
    memory_file,
)
from nnburst.executor.graph.tensor import TensorType
from nnburst.executor.graph.whole_graph import WholeGraph, graph_prefix, take_graph, unpack
from nnburst.executor.litert import cache, native
from nnburst.executor.litert.cache import PackedWeights, from_files, to_files
from nnburst.executor.litert.engines import (
    MAX_ENGINES,
    Engine,
    Engines,
    LiteRtExecution,
    room_for,
)
from nnburst.executor.litert.interpreter import ExternalDelegate, InterpreterEngine
from nnburst.executor.litert.network import Network, survey
from nnburst.executor.litert.split import SplitPart, SplitPrepared, cut
from nnburst.hal.enums import DeviceType, operation_name
from nnburst.hal.environment import LITERT_THREADS
from nnburst.hal.errors import DeviceUnavailable, GeneralFailure, InvalidArgument
from nnburst.hal.extensions import Extension
from nnburst.hal.model import Model
from nnburst.hal.types import NumberOfCacheFiles, OutputShape
from nnburst.hal.whole_graph import TFLITE, described

# -- executor --------------------------------------------------------------------------------------


log = logging.getLogger("nnburst.executor")


class LiteRtPrepared(Prepared):
    """A compiled model. `bind` may be called from several threads at once."""

    def __init__(
        self,
        model: Model,
        network: Network,
        num_threads: int,
        weights: PackedWeights | None = None,
        delegate: ExternalDelegate | None = None,
    ) -> None:
        """Compile the network once, for libLiteRt.so if that works and there is no delegate.

        Args:
            model: the model that is computed.
            network: the network that the model was lowered to.
            num_threads: number of threads that compute.
            weights: weights of the network, packed by another process; owned. Only libLiteRt.so uses them.
            delegate: library that runs the operators that it supports, in one interpreter for all threads.
        """
        self.num_threads = num_threads
        self._model = model
        self._network = network
        self._weights = weights
        self._delegate = delegate
        self._engines = Engines(self._engine, MAX_ENGINES if delegate is None else 1)

    def bind(self, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> LiteRtExecution:
        """Bind memory; see `nnburst.executor.base.Prepared`."""
        network = self._network
        if len(inputs) != len(network.inputs) or len(outputs) != len(network.outputs):
            raise InvalidArgument(
                f"validation:R1: {len(inputs)} inputs and {len(outputs)} outputs given, the model has"
                f" {len(network.inputs)} and {len(network.outputs)}"
            )
        given = [_input(a, t) for a, t in zip(inputs, network.inputs, strict=True)]
        taken = [
            room_for(a, t.dimensions, t.byte_size)
            for a, t in zip(outputs, network.outputs, strict=True)
        ]
        shapes = tuple(
            OutputShape(meta.dimensions, room is not None)
            for room, meta in zip(taken, network.outputs, strict=True)
        )
        binding, release = self._engines.bind(given, taken)
        return LiteRtExecution(binding, shapes, release)

    def to_cache(self) -> Cached:
        """The lowered network."""
        return cache.pack(self._model, [cache.cut_constants(self._model, self._network)])

    def close(self) -> None:
        """Free the engines."""
        self._engines.close()
        if self._weights is not None:
            self._weights.close()

    def _engine(self) -> Engine:
        title = _title(self._model)
        if self._delegate is not None or not native.available():
            return InterpreterEngine(self._network, self.num_threads, title, self._delegate)
        weights = -1 if self._weights is None else self._weights.fd
        return native.NativeEngine(self._network, self.num_threads, title, weights)


class LiteRtExecutor(Executor):
    """Runs all operations that another executor supports, by LiteRT on the CPU if possible. Thread-safe.

    The engine runs what can be lowered: operands of float32, int32, bool and 8 bit, extents known when
    the model is prepared, parameters that steer an operation constant. The other executor runs the
    rest: IF and WHILE, recurrent operations, those around regions of interest, float16.

    The service may name an external delegate (`--delegate`), which gets every graph that the engine gets and
    runs the operators that it supports; no client can set its options.

    DEVIATES: a part that the engine is running cannot be stopped at its deadline.

    DEVIATES: NNAPI's CPU implementation limits ±infinity to the largest float32 where an operation has an
    activation, and takes NaN for the lower bound of RELU; the engine keeps both (docs/operations.md).
    """

    name = "litert"
    cache_files = NumberOfCacheFiles(1, 1)  # one for lowered networks, one for constants
    capabilities_file: Path | None = Path(__file__).with_name("capabilities.json")

    def __init__(self, rest: FallbackExecutor, options: Mapping[str, str]) -> None:
        """Read NNBURST_LITERT_THREADS (1 by default): threads of each engine unless `prepare` gets a number.

        Args:
            rest: executor of what cannot be lowered; this executor supports the operations that `rest`
                supports.
            options: `delegate`, the path of a library; all others are options for that library.

        Raises:
            DeviceUnavailable: `ai-edge-litert` is not installed, or the delegate cannot be loaded.
            InvalidArgument: the variable is not a number of threads, or there are options without a delegate.
        """
        if importlib.util.find_spec("ai_edge_litert") is None:
            raise DeviceUnavailable(
                "executor litert needs the package ai-edge-litert: pip install 'nnburst[litert]'"
            )
        wanted = LITERT_THREADS.read()
        self._threads = min(wanted, len(os.sched_getaffinity(0)))
        self._rest = rest
        self.engine_version = f"{native.PACKAGE} {native.package_version()}"
        self._delegate = _delegate(options)
        if self._delegate is None:
            native.available()  # the trial runs while the driver starts, not while a model is prepared
            return
        self._delegate.check()
        self.engine_version += f" with delegate {self._delegate.name}"
        self.device_type = DeviceType.OTHER
        self.capabilities_file = None  # the shipped file was measured on a CPU

    @property
    def extensions(self) -> tuple[Extension, ...]:
        """The extensions of the other executor, which runs them, and that for whole .tflite graphs."""
        return (*self._rest.extensions, described(TFLITE))

    def supported(self, model: Model) -> list[bool]:
        """Whether each operation of the main subgraph can be run; False for any doubt."""
        if graph_prefix(model, TFLITE) is not None:
            return [True]
        return self._rest.supported(model)

    def prepare(
        self, model: Model, pools: Sequence[Bytes], options: PrepareOptions = DEFAULT_OPTIONS
    ) -> Prepared:
        """Prepare a validated model; see `nnburst.executor.base.Executor`.

        Preference and priority make no difference: there is one way to compute. Each engine has
        `options.num_threads` threads, the calling one included; they sleep while there is nothing to do.
        """
        threads = options.num_threads or self._threads
        graph = take_graph(model, pools, TFLITE)
        if graph is not None:
            return self._whole(model, graph, threads)

        def compute(whole: Model) -> Prepared:
            return self._rest.prepare(whole, pools)

        found = survey(model, pools)
        if found.network is not None:
            return self._by_engine(found.network, model, compute, threads)
        if not any(found.lowered[n] for n in found.static - found.weights):
            return compute(model)

        def prepare(part: SplitPart) -> Prepared:
            network = survey(part.model, pools).network if part.lowered else None
            if network is None:
                return compute(part.model)
            return self._by_engine(network, part.model, compute, threads)

        parts = [(part, prepare(part)) for part in cut(model, found)]
        return SplitPrepared(model, found.types, parts)

    def prepare_from_cache(self, cached: Cached, options: PrepareOptions) -> Prepared:
        """Prepare a cached model: the engine compiles its lowered network again, the quicker part."""
        if not cached.program:
            return self._rest.prepare_from_cache(cached, options)
        if graph_prefix(cached.model, TFLITE) is not None:
            threads = options.num_threads or self._threads
            return self._whole(cached.model, unpack(cached.program), threads)
        program, constants = cache.unpack(cached)
        threads = options.num_threads or self._threads

        def prepare(part: cache.CachedPart, values: Octets) -> Prepared:
            if part.network is not None:
                network = cache.put_back(part.network, values)
                return LiteRtPrepared(part.model, network, threads, delegate=self._delegate)
            kept = Cached(part.model, constants=values)
            return self._rest.prepare_from_cache(kept, options)

        prepared = [prepare(*both) for both in zip(program.parts, constants, strict=True)]
        if program.types is None:
            return prepared[0]
        parts = [SplitPart(p.model, p.network is not None, p.static) for p in program.parts]
        return SplitPrepared(cached.model, program.types, list(zip(parts, prepared, strict=True)))

    def pack(
        self, model: Model, pools: Sequence[Bytes], options: PrepareOptions
    ) -> tuple[int, ...]:
        """Pack weights for several processes, if the engine runs the whole model; see `PackingExecutor`."""
        if graph_prefix(model, TFLITE) is not None or not self._is_native():
            return ()
        network = survey(model, pools).network
        if network is None:
            return ()
        weights = PackedWeights(memory_file("weights"))
        engine = native.NativeEngine(
            network, options.num_threads or self._threads, packed_weights=weights.fd
        )
        engine.close()
        if os.fstat(weights.fd).st_size == 0:
            return ()  # no kernel of the network packs weights
        files = to_files(network, weights.fd)
        weights.fd = -1
        return files

    def prepare_packed(
        self, model: Model, files: Sequence[int], options: PrepareOptions
    ) -> Prepared:
        """Prepare a model with weights that another process has packed; see `PackingExecutor`."""
        if not self._is_native():
            raise GeneralFailure("only libLiteRt.so takes packed weights")
        network, weights = from_files(files)
        return LiteRtPrepared(model, network, options.num_threads or self._threads, weights)

    def _is_native(self) -> bool:
        return self._delegate is None and native.available()

    def _whole(self, model: Model, graph: WholeGraph, threads: int) -> Prepared:
        from nnburst.executor.litert.whole_graph import (
            TflitePrepared,  # importing this takes time, and few models are whole graphs
        )

        return TflitePrepared(model, graph, threads, self._delegate)

    def _by_engine(
        self,
        network: Network,
        model: Model,
        otherwise: Callable[[Model], Prepared],
        num_threads: int,
    ) -> Prepared:
        try:
            return LiteRtPrepared(model, network, num_threads, delegate=self._delegate)
        except GeneralFailure as error:
            log.warning("another executor runs what LiteRT refuses: %s", error)
            return otherwise(model)


def _delegate(options: Mapping[str, str]) -> ExternalDelegate | None:
    """The delegate that the service names, with the remaining options; None if it names none."""
    own = dict(options)
    library = own.pop("delegate", "")
    if library:
        return ExternalDelegate(library, own)
    for key in own:
        raise InvalidArgument(f"option: {key!r}, but executor litert has no delegate to take it")
    return None


def _title(model: Model) -> str:
    """The name of a part's run in a trace."""
    operations = [operation_name(o.type) for o in model.main.operations]
    ends = operations[0] if len(operations) == 1 else f"{operations[0]} to {operations[-1]}"
    return f"litert: {ends} ({len(operations)})"


def _input(argument: Argument, meta: TensorType) -> memoryview:
    if argument.memory is None:
        raise GeneralFailure("an input of the model is omitted")
    if argument.dimensions != meta.dimensions:
        raise InvalidArgument(f"an input has extents {argument.dimensions}, not {meta.dimensions}")
    size = meta.byte_size
    if argument.memory.nbytes < size:
        raise InvalidArgument(
            f"validation:R11: an input of {size} bytes has only {argument.memory.nbytes}"
        )
    return argument.memory[:size]
