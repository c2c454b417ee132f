"""Runs core operations, lowered to ONNX graphs, by OpenVINO's C library (csrc/openvino.c).

OpenVINO reads ONNX, so this executor uses the lowerings, sessions and bindings of the onnxruntime executor
(ADR 57).
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import mmap
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from nnburst._native import ffi, lib
from nnburst.executor.base import (
    DEFAULT_OPTIONS,
    Bytes,
    Cached,
    Executor,
    FallbackExecutor,
    Octets,
    Prepared,
    PrepareOptions,
    without_constants,
)
from nnburst.executor.graph.operation import Node
from nnburst.executor.graph.tensor import TensorType
from nnburst.executor.graph.translation import require
from nnburst.executor.graph.windows import is_nchw, nhwc_extents, read_window
from nnburst.executor.onnxruntime.executor import SessionPrepared
from nnburst.executor.onnxruntime.graph import OnnxGraph
from nnburst.executor.onnxruntime.lowering import OnnxLowering
from nnburst.executor.onnxruntime.native import (
    EngineFunctions,
    EngineSession,
    is_short_of_memory,
    text,
)
from nnburst.executor.onnxruntime.network import lower, survey
from nnburst.executor.operations.reduction import axes_of
from nnburst.hal.enums import DeviceType, OperandType, OperationType
from nnburst.hal.environment import OPENVINO_DEVICE, OPENVINO_PROFILE, OPENVINO_THREADS, Variable
from nnburst.hal.errors import DeviceUnavailable, GeneralFailure, InvalidArgument, ResourceExhausted
from nnburst.hal.model import Model
from nnburst.hal.types import NumberOfCacheFiles
from nnburst.hal.utils import processor_features

log = logging.getLogger("nnburst.executor")

_opening: Final = threading.Lock()
_CPU: Final = "CPU"
#: The most bytes of a cached compiled network, as many as a cache file may have.
_MOST_COMPILED: Final = 1 << 30
#: Keys of `--option`, and the environment variables that give their defaults.
_OPTIONS: Final[dict[str, Variable[Any]]] = {
    "device": OPENVINO_DEVICE,
    "threads": OPENVINO_THREADS,
    "profile": OPENVINO_PROFILE,
}
#: Operations that the engine computes wrongly: its LRN sums another window than the graph's, and its TopK
#: takes equal elements in an order that depends on the machine.
_WRONG: Final = frozenset({OperationType.LOCAL_RESPONSE_NORMALIZATION, OperationType.TOPK_V2})
#: Operations that the engine computes wrongly if that many of their first inputs are constant. It leaves out
#: an ABS of a constant that it has computed, and takes the slopes of a PRELU of a constant for its input. The
#: others it runs once, instead of folding them; a later operation, such as the sum with a bias, may overwrite
#: that result, so that each run starts from the one before.
_WRONG_FOR_CONSTANTS: Final[dict[int, int]] = {
    OperationType.ABS: 1,
    OperationType.AVERAGE_POOL_2D: 1,
    OperationType.CONV_2D: 2,
    OperationType.DEPTHWISE_CONV_2D: 2,
    OperationType.ELU: 1,
    OperationType.GROUPED_CONV_2D: 2,
    OperationType.L2_POOL_2D: 1,
    OperationType.PRELU: 1,
    OperationType.TRANSPOSE_CONV_2D: 2,
}
#: Largest extent of an image that is resized: the engine computes coordinates in float32, which are too far
#: off beyond it.
_MOST_RESIZED: Final = 512
_RESIZED: Final = (OperationType.RESIZE_BILINEAR, OperationType.RESIZE_NEAREST_NEIGHBOR)
#: Indices among the inputs: the engine gives zeros for elements that do not exist, where the execution must
#: fail. Those of constants are known.
_INDICES: Final[dict[int, str]] = {
    OperationType.GATHER: "indices",
    OperationType.EMBEDDING_LOOKUP: "lookups",
}
_CONVOLUTIONS: Final = (
    OperationType.CONV_2D,
    OperationType.DEPTHWISE_CONV_2D,
    OperationType.GROUPED_CONV_2D,
)
_ENGINE: Final = EngineFunctions(
    "OpenVINO",
    lib.nnb_openvino_count,
    lib.nnb_openvino_describe,
    lib.nnb_openvino_bind,
    lib.nnb_openvino_call_free,
    int(ffi.cast("uintptr_t", ffi.addressof(lib, "nnb_openvino_run"))),
    lib.nnb_openvino_stop,
    lib.nnb_openvino_copied_bytes,
)


@functools.cache
def library() -> str:
    """Open the library for this process; its version.

    Raises:
        DeviceUnavailable: the library is not installed, or is not OpenVINO 2025.4 or later.
    """
    spec = importlib.util.find_spec("openvino")
    folders = spec.submodule_search_locations if spec is not None else None
    found = sorted(Path(folders[0], "libs").glob("libopenvino_c.so*")) if folders else []
    if not found:
        raise DeviceUnavailable(
            "executor openvino needs the package openvino: pip install 'nnburst[openvino]'"
        )
    version = ffi.new("char[]", int(lib.NNB_ONNX_NAME_BYTES))
    message = ffi.new("char[]", int(lib.NNB_ONNX_MESSAGE_BYTES))
    content = _smallest_graph()
    with _opening:
        status = lib.nnb_openvino_open(
            os.fsencode(found[-1]),
            ffi.from_buffer("uint8_t[]", content),
            len(content),
            version,
            message,
        )
    if status != lib.NNB_OPENVINO_OK:
        raise DeviceUnavailable(f"{found[-1].name} cannot be used: {text(message)}")
    return text(version)


def _smallest_graph() -> bytes:
    graph = OnnxGraph()
    x = graph.input(TensorType(OperandType.TENSOR_FLOAT32, (1,)))
    return graph.finish([x]).content


def _device_name(device: str) -> str:
    """The full name of a device.

    Raises:
        DeviceUnavailable: there is no such device.
    """
    name = ffi.new("char[]", int(lib.NNB_ONNX_NAME_BYTES))
    message = ffi.new("char[]", int(lib.NNB_ONNX_MESSAGE_BYTES))
    if lib.nnb_openvino_device(device.encode(), name, message) != lib.NNB_OPENVINO_OK:
        raise DeviceUnavailable(f"OpenVINO {library()} has no device {device!r}: {text(message)}")
    return text(name)


class OpenVinoNetwork(EngineSession):
    """A graph that OpenVINO runs."""

    def __init__(
        self,
        content: Octets,
        device: str,
        threads: int,
        *,
        profile: bool = False,
        is_compiled: bool = False,
    ) -> None:
        """Compile a graph that was written here, or load a compiled network.

        Args:
            content: bytes of the graph's file, or from `compiled`; not needed afterwards.
            device: name of the device that runs the graph.
            threads: number of threads that compute, on the CPU.
            profile: whether each node's time is measured.
            is_compiled: whether `content` is a compiled network, which the engine does not check.

        Raises:
            InvalidArgument: the engine refuses the graph.
            ResourceExhausted: memory is short.
        """
        library()
        given = _properties(device, threads, profile)
        kept = [(ffi.new("char[]", k.encode()), ffi.new("char[]", v.encode())) for k, v in given]
        properties = ffi.new("struct nnb_openvino_property[]", len(kept))
        for made, (key, value) in zip(properties, kept, strict=True):
            made.key, made.value = key, value
        message = ffi.new("char[]", int(lib.NNB_ONNX_MESSAGE_BYTES))
        make = lib.nnb_openvino_network_new_unlocked
        if is_compiled:
            make = lib.nnb_openvino_network_import_unlocked
        found = make(
            ffi.from_buffer("uint8_t[]", content),
            len(content),
            device.encode(),
            properties,
            len(kept),
            profile,
            message,
        )
        if found == ffi.NULL:
            if is_short_of_memory(text(message)):
                raise ResourceExhausted(f"OpenVINO: {text(message)}")
            raise InvalidArgument(f"OpenVINO {library()} refuses the graph: {text(message)}")
        super().__init__(ffi.gc(found, lib.nnb_openvino_network_free), _ENGINE)

    def compiled(self) -> bytes:
        """The compiled network, which only this version on this device and processor can load.

        Raises:
            GeneralFailure: the device cannot write it, or it is too long for a cache file.
            OSError: memory is short.
        """
        fd = os.memfd_create("compiled", os.MFD_CLOEXEC)
        try:
            message = ffi.new("char[]", int(lib.NNB_ONNX_MESSAGE_BYTES))
            # The C library writes to a path only. A worker may open its own memory by this one.
            path = f"/proc/self/fd/{fd}".encode()
            if lib.nnb_openvino_export_unlocked(self.handle, path, message) != lib.NNB_OPENVINO_OK:
                raise GeneralFailure(f"OpenVINO does not write the network: {text(message)}")
            size = os.fstat(fd).st_size
            if not 0 < size <= _MOST_COMPILED:
                raise GeneralFailure(
                    f"OpenVINO writes {size} bytes of a network, expected 1 to {_MOST_COMPILED}"
                )
            with mmap.mmap(fd, size, prot=mmap.PROT_READ) as written:
                return written[:]
        finally:
            os.close(fd)


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    """A compiled network as stored in `Cached.program`.

    Attributes:
        made_for: see `_made_for`.
        compiled: see `OpenVinoNetwork.compiled`.
    """

    made_for: str
    compiled: bytes


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Kept).decode


def _made_for(device: str, threads: int, profile: bool) -> str:
    """All that the result of compiling a graph depends on, apart from the graph."""
    given = _properties(device, threads, profile)
    processor = processor_features().decode(errors="replace")
    return f"OpenVINO {library()} for {device}, {_device_name(device)}: {given} {processor}"


class OpenVinoPrepared(SessionPrepared):
    """A model of core operations that OpenVINO runs."""

    of_rank_0 = ()

    def __init__(
        self, model: Model, network: OpenVinoNetwork, device: str, threads: int, *, profile: bool
    ) -> None:
        """Own the network of a model; the other arguments are those that it was made with."""
        super().__init__(network, threads, takes_turns=device != _CPU)
        self._model = without_constants(model)
        self._network = network
        self._device, self._profile = device, profile

    @property
    def output_extents(self) -> tuple[tuple[int, ...], ...]:
        """Extents of each output, as the engine has compiled the graph."""
        return tuple(border.extents for border in self._network.outputs)

    def to_cache(self) -> Cached:
        """The compiled network, with all that it depends on. The graph is not needed again."""
        made_for = _made_for(self._device, self.num_threads, self._profile)
        return Cached(self._model, _encode(_Kept(made_for, self._network.compiled())))

    def close(self) -> None:
        """Release the network, which is freed with the last request that is bound to it."""
        super().close()
        del self._network


def _properties(device: str, threads: int, profile: bool) -> list[tuple[str, str]]:
    """The properties to compile a network with, only those that the device's plugin accepts."""
    given = [("PERF_COUNT", "YES" if profile else "NO")]
    if device.startswith((_CPU, "GPU")):
        # By default the engine computes in bfloat16 or float16 on processors that have these types.
        given += [("INFERENCE_PRECISION_HINT", "f32"), ("NUM_STREAMS", "1")]
    if device.startswith(_CPU):
        given += [("INFERENCE_NUM_THREADS", str(threads)), ("ENABLE_CPU_PINNING", "NO")]
    return given


def _device_type(device: str) -> DeviceType:
    kinds = {_CPU: DeviceType.CPU, "GPU": DeviceType.GPU, "NPU": DeviceType.ACCELERATOR}
    return kinds.get(device.partition(".")[0], DeviceType.OTHER)


def _check(op: OnnxLowering) -> None:
    """Refuse an operation that the engine computes wrongly."""
    node = op.node
    require(node.type not in _WRONG, "wrong results of the engine")
    if node.type in _INDICES:
        require(op.is_constant(_INDICES[node.type]), "indices that come with requests")
    elif node.type in _RESIZED:
        for image in (node.tensor("input").shape, op.result().dimensions):
            _, height, width, _ = nhwc_extents(image, is_nchw(node))
            require(max(height, width) <= _MOST_RESIZED, f"an image of {height} x {width}")
    elif node.type in _CONVOLUTIONS:
        _check_convolution(node)
    elif node.type is OperationType.ABS:
        # It overwrites a vector that was concatenated, even one that is an output or has other readers.
        require(len(node.tensor("input").shape) > 1, "absolute values of a vector")
    elif node.type is OperationType.MEAN:
        # If a pooling gives the images, all runs but the first sum the padding behind the channels, too.
        shape, axes = node.tensor("input").shape, axes_of(node)
        is_of_pixels = len(shape) == 4 and len(axes) == 3 and 0 in axes
        require(not is_of_pixels or shape[0] == 1, "a mean over all pixels of several images")


def _check_convolution(node: Node) -> None:
    """Refuse a convolution of one channel to one column: the engine's stride may be that of the rows."""
    _, height, width, _ = node.tensor("filter").shape
    window = read_window(node, height, width)
    is_column = window.width.output == 1 and window.height.output > 1
    require(
        not (window.channels == 1 and is_column and window.width.stride > 1),
        f"one column of a channel, with a horizontal stride of {window.width.stride}",
    )


def _check_outputs(prepared: OpenVinoPrepared, expected: tuple[tuple[int, ...], ...]) -> None:
    """Refuse a network of which the engine has compiled an output with another rank, as it sometimes does."""
    found = prepared.output_extents
    if found != expected:
        prepared.close()
        raise InvalidArgument(f"OpenVINO has compiled outputs of {found}, expected {expected}")


def _option(key: str, options: Mapping[str, str]) -> Any:  # noqa: ANN401 - as the variable has it
    variable = _OPTIONS[key]
    return variable.read({variable.name: options[key]} if key in options else None)


def _is_right_for_constants(model: Model) -> bool:
    """Whether the engine computes every operation of constants in the main subgraph rightly, in each run."""
    varying = set(model.main.input_indexes)
    for operation in model.main.operations:
        count = _WRONG_FOR_CONSTANTS.get(operation.type, 0)
        if count and varying.isdisjoint(operation.inputs[:count]):
            return False
        if not varying.isdisjoint(operation.inputs):
            varying.update(operation.outputs)
    return True


class OpenVinoExecutor(Executor):
    """Runs core operations by OpenVINO. Thread-safe.

    The engine runs what the onnxruntime executor lowers, apart from operations that it computes wrongly. The
    service chooses the device, by `--option device=GPU` or NNBURST_OPENVINO_DEVICE.

    Time on the device is not available unless the service asks for profiles: then it is the sum of the nodes'
    times, in whole microseconds, by the engine's clock.

    DEVIATES: as the onnxruntime executor, for NaN and infinity with an activation (docs/operations.md).
    """

    name = "openvino"
    cache_files = NumberOfCacheFiles(1, 1)  # one for what is compiled, one for constants of `rest`

    def __init__(self, rest: FallbackExecutor, options: Mapping[str, str]) -> None:
        """Open the library and the device's plugin, so that a worker does not have to. No thread is started.

        Args:
            rest: executor that runs a model if the engine refuses it.
            options: values for `device`, `threads` and `profile`, which go before the environment's.

        Raises:
            DeviceUnavailable: OpenVINO is not installed, or has no such device.
            InvalidArgument: an option is unknown, or its value breaks its rule.
        """
        for key in options.keys() - _OPTIONS.keys():
            raise InvalidArgument(
                f"option: {key!r} is not one of executor openvino's, expected {', '.join(_OPTIONS)}"
            )
        self._device: str = _option("device", options)
        self._threads: int = _option("threads", options)
        self._profile: bool = _option("profile", options)
        version = library()
        self.engine_version = f"OpenVINO {version} {self._device}: {_device_name(self._device)}"
        self.device_type = _device_type(self._device)
        self._rest = rest

    def supported(self, model: Model) -> list[bool]:
        """Whether each operation of the main subgraph can be run; False for any doubt."""
        return list(survey(model, reals=True, check=_check).lowered)

    def prepare(
        self, model: Model, pools: Sequence[Bytes], options: PrepareOptions = DEFAULT_OPTIONS
    ) -> Prepared:
        """Prepare a validated model; see `nnburst.executor.base.Executor`."""
        written = None
        if _is_right_for_constants(model):
            written = lower(model, pools, by_cpu=False, whole=True, reals=True, check=_check)
        if written is None:
            return self._rest.prepare(model, pools, options)
        try:
            prepared = self._own(model, written.content, options)
            _check_outputs(prepared, written.output_extents)
        except InvalidArgument as error:
            log.warning("another executor runs what OpenVINO refuses: %s", error)
            return self._rest.prepare(model, pools, options)
        return prepared

    def prepare_from_cache(self, cached: Cached, options: PrepareOptions) -> Prepared:
        """Load a cached compiled network; the driver has verified that its bytes are unchanged.

        Raises:
            GeneralFailure: it was compiled for other conditions, or the engine refuses it.
        """
        if not cached.program:
            return self._rest.prepare_from_cache(cached, options)
        try:
            kept = _decode(cached.program)
        except (msgspec.MsgspecError, ValueError) as error:
            raise GeneralFailure(f"malformed program: {error}") from error
        threads = options.num_threads or self._threads
        if kept.made_for != _made_for(self._device, threads, self._profile):
            raise GeneralFailure(
                "the network was compiled for another version, device, processor or options"
            )
        try:
            return self._own(cached.model, kept.compiled, options, is_compiled=True)
        except InvalidArgument as error:
            raise GeneralFailure(f"a compiled network: {error}") from error

    def _own(
        self, model: Model, content: bytes, options: PrepareOptions, *, is_compiled: bool = False
    ) -> OpenVinoPrepared:
        threads = options.num_threads or self._threads
        network = OpenVinoNetwork(
            content, self._device, threads, profile=self._profile, is_compiled=is_compiled
        )
        if len(network.inputs) != len(model.main.input_indexes):
            raise InvalidArgument("OpenVINO leaves out an input of the graph that nothing reads")
        return OpenVinoPrepared(model, network, self._device, threads, profile=self._profile)
