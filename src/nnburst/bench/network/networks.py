"""One network through a driver process, beside LiteRT and onnxruntime in this process, in turns.

All of them compute on the same core: the driver's. What runs in this process moves there for its blocks,
since two cores of a virtual machine may have neighbours of different appetite.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nnburst._native import ffi, lib
from nnburst.bench.contestants import Contestant, Looped, Samples
from nnburst.bench.drivers import adding_model, pinned
from nnburst.bench.network.onnx_export import export
from nnburst.client.burst.bound_request import BoundRequest
from nnburst.client.device import Device
from nnburst.executor.base import Bytes
from nnburst.executor.graph.tensor import TensorType
from nnburst.executor.litert import native
from nnburst.executor.litert.network import Network, survey
from nnburst.hal.enums import OperandType
from nnburst.hal.errors import GeneralFailure, NnburstError
from nnburst.hal.model import Model
from nnburst.importer.load import is_onnx, load

Array = npt.NDArray[Any]

_FLOAT: Final[np.dtype[Any]] = np.dtype(np.float32)
#: Element types of what onnxruntime takes, by the names that it gives them.
_ORT_TYPES: Final[dict[str, np.dtype[Any]]] = {
    "tensor(float)": _FLOAT,
    "tensor(float16)": np.dtype(np.float16),
    "tensor(double)": np.dtype(np.float64),
    "tensor(int64)": np.dtype(np.int64),
    "tensor(int32)": np.dtype(np.int32),
    "tensor(uint8)": np.dtype(np.uint8),
    "tensor(int8)": np.dtype(np.int8),
    "tensor(bool)": np.dtype(np.bool_),
}

#: What calls take before a block begins to count, in nanoseconds, and how many there are.
_WARM_UP_NS: Final = 1_000_000
_WARM_UP: Final = (2, 100)
ONE_ADD: Final = "one ADD"


@dataclass(frozen=True)
class Subject:
    """A network to be measured.

    What `nnburst.load` returns can be prepared, and so can this.

    Attributes:
        name: for people.
        model: as NNAPI sees it.
        pools: of the model.
        content: the .tflite file that the engine runs in this process; of an .onnx file what it is lowered
            to.
        lowered: the .tflite file that the driver's engine runs.
        onnx: the .onnx file, if it came as one.
        onnx_inputs: names of its inputs, in the model's order.
        constants: values of its inputs that are the same in every execution.
    """

    name: str
    model: Model
    pools: Sequence[Bytes]
    content: bytes
    lowered: Network
    onnx: bytes = b""
    onnx_inputs: Sequence[str] = ()
    constants: Mapping[str, npt.ArrayLike] = field(default_factory=dict)

    @classmethod
    def of_file(cls, path: Path, **options: Any) -> Subject:  # noqa: ANN401 - those of `load`
        """The network of a .tflite or .onnx file, with options of `nnburst.load` for an .onnx one.

        Raises:
            NnburstError: it cannot be imported, or some of it is not run by the engine.
        """
        content = path.read_bytes()
        imported = load(path, **options)
        lowered = _lower(path.stem, imported.model, imported.pools)
        if not is_onnx(content):
            return cls(path.stem, imported.model, imported.pools, content, lowered)
        return cls(
            path.stem,
            imported.model,
            imported.pools,
            bytes(lowered.content),
            lowered,
            content,
            imported.input_names,
            options.get("constants") or {},
        )

    @classmethod
    def one_add(cls) -> Subject:
        """The sum of four float32 elements and themselves."""
        model = adding_model(1, 1)
        lowered = _lower(ONE_ADD, model, ())
        return cls(ONE_ADD, model, (), bytes(lowered.content), lowered)


def _lower(name: str, model: Model, pools: Sequence[Bytes]) -> Network:
    network = survey(model, list(pools)).network
    if network is None:
        raise GeneralFailure(f"{name}: the engine runs only a part of it, expected all")
    return network


@dataclass
class Lineup:
    """The contestants on one network.

    Attributes:
        burst: through the driver.
        litert: the file by LiteRT's C library in this process, from C.
        lowered: likewise what the driver's engine runs.
        onnxruntime: `run` of the network as ONNX; None without the packages or a translation.
        differences: from the burst's output: the largest one of each contestant, in steps or as floats.
        remarks: why a contestant is missing.
    """

    burst: Contestant
    litert: Contestant
    lowered: Contestant
    onnxruntime: Contestant | None = None
    differences: dict[str, float] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    @property
    def contestants(self) -> list[Contestant]:
        """Those that are there."""
        all_ = (self.burst, self.litert, self.lowered, self.onnxruntime)
        return [contestant for contestant in all_ if contestant is not None]


class InProcess:
    """A bound request of an engine's that a loop in C runs on one core."""

    def __init__(
        self,
        name: str,
        loop: Callable[[Any, int, Any], int],
        call: Any,  # noqa: ANN401 - a cffi struct
        core: int,
        warm_up: int,
        *,
        keep: object,
    ) -> None:
        """Have `loop` run `call` on `core`, `warm_up` times before each block.

        Args:
            name: of the case.
            loop: a function of csrc/bench.h.
            call: what it runs.
            core: where.
            warm_up: runs before each block that do not count.
            keep: what owns `call`.
        """
        self.name = name
        self._loop = loop
        self._call = call
        self._core = core
        self._warm_up = warm_up
        self._keep = keep

    def block(self, count: int) -> float:
        """See `Contestant`."""
        return self._run(count, ffi.NULL) / count

    def samples(self, count: int) -> Samples:
        """See `Contestant`."""
        found = np.zeros(count, np.uint64)
        self._run(count, ffi.from_buffer("uint64_t[]", found))
        return found

    def _run(self, count: int, samples: object) -> int:
        with pinned(self._core):
            self._loop(self._call, self._warm_up, ffi.NULL)
            total = int(self._loop(self._call, count, samples))
        if total == 0:
            raise GeneralFailure(f"{self.name}: the engine failed")
        return total


def litert_in_c(name: str, binding: native.NativeBinding, core: int, warm_up: int) -> InProcess:
    """A bound request of LiteRT's that a loop in C runs on `core`."""
    call = ffi.cast("struct nnb_litert_call *", binding.native.context)
    return InProcess(name, lib.nnb_bench_litert, call, core, warm_up, keep=binding)


class OnCore:
    """A case that runs on another core than the rest of this process."""

    def __init__(self, case: Looped, core: int) -> None:
        """Run `case` on `core`."""
        self.name = case.name
        self._case = case
        self._core = core

    def block(self, count: int) -> float:
        """See `Contestant`."""
        with pinned(self._core):
            return self._case.block(count)

    def samples(self, count: int) -> Samples:
        """See `Contestant`."""
        with pinned(self._core):
            return self._case.samples(count)


@contextmanager
def lineup(
    subject: Subject, device: Device, core: int, random: np.random.Generator
) -> Iterator[Lineup]:
    """Everything that runs `subject`, on one random input.

    Args:
        subject: the network.
        device: a driver of the litert executor on `core`.
        core: where to compute.
        random: of the input.

    Raises:
        NnburstError: the driver or the engine refuses the network.
    """
    with ExitStack() as stack:
        prepared = stack.enter_context(device.prepare(subject))
        bound = stack.enter_context(prepared.open_burst()).bind()
        for array in bound.inputs:
            array[...] = random_values(array, random)
        bound.run()
        warm_up = warm_up_of(bound)
        file, file_out = in_process(subject.model, subject.content, bound)
        same, same_out = in_process(subject.model, bytes(subject.lowered.content), bound)
        found = Lineup(
            Looped(f"{subject.name}: burst", bound.run, warm_up),
            litert_in_c(f"{subject.name}: litert", file, core, warm_up),
            litert_in_c(f"{subject.name}: litert, as lowered", same, core, warm_up),
        )
        found.differences = {
            "litert": _difference(bound, file_out),
            "litert, as lowered": _difference(bound, same_out),
        }
        _add_onnxruntime(found, subject, bound, core, warm_up)
        yield found


def warm_up_of(bound: BoundRequest) -> int:
    """How often to run it before a block begins to count."""
    fewest, most = _WARM_UP
    trial = Looped("", bound.run, 1).block(1)
    return max(fewest, min(most, int(_WARM_UP_NS / trial)))


def random_values(array: Array, random: np.random.Generator) -> Array:
    """Values of an array's type and shape: normally distributed, or any integers."""
    if array.dtype.kind == "f":
        return random.standard_normal(array.shape).astype(array.dtype)
    limits = np.iinfo(array.dtype)
    drawn: Array = random.integers(limits.min, limits.max, array.shape, array.dtype, endpoint=True)
    return drawn


def in_process(
    model: Model, content: bytes, bound: BoundRequest
) -> tuple[native.NativeBinding, list[Bytes]]:
    """A file bound in this process to copies of the burst's arrays, run once; and its outputs.

    Args:
        model: what the burst runs.
        content: a .tflite file with the same inputs and outputs.
        bound: the burst's request.

    Raises:
        GeneralFailure: the library cannot be used, or refuses the file.
    """
    if not native.available():
        raise GeneralFailure("libLiteRt.so cannot be used here")
    graph = model.main
    types = [
        TensorType(OperandType(o.type), o.dimensions, o.scale, o.zero_point)
        for o in (graph.operands[i] for i in (*graph.input_indexes, *graph.output_indexes))
    ]
    inputs, outputs = types[: len(bound.inputs)], types[len(bound.inputs) :]
    network = Network(content, tuple(inputs), tuple(outputs), frozenset(), frozenset())
    given = [aligned(array) for array in bound.inputs]
    taken = [aligned(np.zeros_like(array)) for array in bound.outputs]
    binding = native.NativeEngine(network, 1).bind([x.data for x in given], [x.data for x in taken])
    said = binding.run()
    if said:
        raise GeneralFailure(f"LiteRT: {said}")
    return binding, taken


def aligned(array: Array) -> Bytes:
    """A copy as bytes, as the engine takes them where they lie, with room behind."""
    alignment = int(lib.NNB_LITERT_ALIGNMENT)
    room = np.zeros(array.nbytes + 2 * alignment + 4096, np.uint8)
    start = -room.ctypes.data % alignment
    copy = room[start : start + array.nbytes]
    copy[...] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return copy


def _difference(bound: BoundRequest, outputs: Sequence[Array]) -> float:
    """The largest difference between the burst's outputs and those of another one."""
    pairs = zip(bound.outputs, outputs, strict=True)
    return max(
        float(np.max(np.abs(ours - theirs.view(ours.dtype).reshape(ours.shape).astype(np.float64))))
        for ours, theirs in pairs
    )


def _add_onnxruntime(
    found: Lineup, subject: Subject, bound: BoundRequest, core: int, warm_up: int
) -> None:
    """`run` on one thread, as its users call it: arrays in, new arrays out."""
    for package in ("onnxruntime",) if subject.onnx else ("onnx", "onnxruntime"):
        if importlib.util.find_spec(package) is None:
            found.remarks.append(f"{package} is not installed: pip install nnburst[peers]")
            return
    try:
        content = subject.onnx or export(subject.model, list(subject.pools))
    except NnburstError as error:
        found.remarks.append(f"{subject.name}: {error}")
        return
    session = onnx_session(content)
    feed = _feed(session, subject, bound)
    found.differences["onnxruntime"] = _difference(bound, session.run(None, feed))
    case = Looped(f"{subject.name}: onnxruntime", partial(session.run, None, feed), warm_up)
    found.onnxruntime = OnCore(case, core)


def _feed(session: Any, subject: Subject, bound: BoundRequest) -> dict[str, Array]:  # noqa: ANN401
    """The burst's inputs by their names, in the types that the file has."""
    if not subject.onnx:
        return {f"i{number}": array.copy() for number, array in enumerate(bound.inputs)}
    types = onnx_input_types(session)
    given: dict[str, npt.ArrayLike] = dict(zip(subject.onnx_inputs, bound.inputs, strict=True))
    return {
        name: np.array(value, types[name]) for name, value in {**given, **subject.constants}.items()
    }


def onnx_input_types(session: Any) -> dict[str, np.dtype[Any]]:  # noqa: ANN401 - it has no types
    """What each input of a session takes, by its name."""
    return {info.name: _ORT_TYPES.get(info.type, _FLOAT) for info in session.get_inputs()}


def onnx_session(content: bytes) -> Any:  # noqa: ANN401 - it has no types
    """An onnxruntime session on the CPU with every optimisation, on the caller's thread."""
    onnxruntime = import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    providers = ["CPUExecutionProvider"]
    return onnxruntime.InferenceSession(content, options, providers=providers)
