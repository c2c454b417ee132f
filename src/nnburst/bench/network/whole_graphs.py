"""An ONNX file as one operation through a driver process, beside onnxruntime in this process.

What the burst adds is measured against onnxruntime's C library on bound buffers, called from C. Both
compute on the driver's core with one thread, in turn, in blocks that begin with runs that do not count: two
sessions on one core put each other's weights out of its caches, and the first runs of a block pay for that,
not for a burst.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from nnburst._native import ffi, lib
from nnburst.bench.contestants import Contestant, Looped
from nnburst.bench.network.networks import InProcess, aligned, onnx_input_types, warm_up_of
from nnburst.client.device import Device
from nnburst.executor.onnxruntime.native import Border, GraphBinding, Room, Session
from nnburst.hal.errors import GeneralFailure, InvalidArgument
from nnburst.hal.extensions.whole_graph import BY_NUMBER
from nnburst.importer.load import load

Array = npt.NDArray[Any]
Shape = Sequence[int]


class InProcessGraph:
    """onnxruntime in this process: one thread, everything else as the executor has it.

    Attributes:
        names: of its inputs, in order.
    """

    def __init__(self, content: bytes) -> None:
        """Make a session by its own Python interface.

        Raises:
            InvalidArgument: it refuses the graph.
        """
        ort = import_module("onnxruntime")
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 4
        try:
            self._session = ort.InferenceSession(content, options, ["CPUExecutionProvider"])
        except Exception as error:  # its errors have nothing else in common
            raise InvalidArgument(f"onnxruntime refuses the graph: {error}") from error
        self._inputs = self._session.get_inputs()
        self.names = [str(info.name) for info in self._inputs]

    def run(self, values: Sequence[Array]) -> list[Array]:
        """All outputs."""
        given = dict(zip(self.names, values, strict=True))
        return [np.asarray(array) for array in self._session.run(None, given)]

    def values(
        self,
        random: np.random.Generator,
        shapes: Mapping[str, Shape],
        constants: Mapping[str, npt.ArrayLike],
    ) -> list[Array]:
        """Values of all inputs, in order: between -1 and 1, or bytes.

        Args:
            random: where they come from.
            shapes: of inputs that the file leaves open; 1 for each extent that is not given.
            constants: values of inputs that are not random.
        """
        types = onnx_input_types(self._session)
        made = []
        for info in self._inputs:
            if info.name in constants:
                made.append(np.array(constants[info.name], types[info.name]))
                continue
            known = [extent if isinstance(extent, int) else 1 for extent in info.shape]
            shape = tuple(shapes.get(info.name, known))
            if types[info.name].kind == "f":
                made.append(random.uniform(-1, 1, shape).astype(types[info.name]))
            else:
                highest = min(256, np.iinfo(types[info.name]).max)
                made.append(random.integers(0, highest, shape).astype(types[info.name]))
        return made


@dataclass(frozen=True)
class GraphLineup:
    """The contestants on one graph.

    Attributes:
        burst: through the driver.
        bound: onnxruntime's C library in this process, on bound buffers, from C.
        different: whether some output of theirs differs in a bit.
    """

    burst: Contestant
    bound: Contestant
    different: bool


@contextmanager
def graph_lineup(
    content: bytes, engine: InProcessGraph, device: Device, core: int, values: Sequence[Array]
) -> Iterator[GraphLineup]:
    """Burst and engine on one graph and one input.

    Args:
        content: the .onnx file.
        engine: the same.
        device: a driver of the onnxruntime executor on `core`.
        core: where to compute.
        values: of all inputs; their extents are the graph's from then on.

    Raises:
        NnburstError: the driver or the engine refuses the graph.
    """
    expected = engine.run(values)
    shapes = {n: v.shape for n, v in zip(engine.names, values, strict=True) if v.shape}
    fixed = load(content, as_graph=True, shapes=shapes)
    with ExitStack() as stack:
        prepared = stack.enter_context(device.prepare(fixed))
        burst = stack.enter_context(prepared.open_burst())
        bound = burst.bind(output_bytes=[array.nbytes for array in expected])
        for room, value in zip(bound.inputs, values, strict=True):
            room[...] = value.reshape(room.shape)
        found = bound.run()
        warm_up = warm_up_of(bound)
        same = fixed.pools[0].tobytes()  # the same file on both sides
        floor = bind_in_process(same, values, [array.shape for array in expected])
        yield GraphLineup(
            Looped("graph", bound.run, warm_up),
            graph_in_c("bound", floor, core, warm_up),
            any(
                np.asarray(ours).tobytes() != theirs.tobytes()
                for ours, theirs in zip(found.outputs, expected, strict=True)
            ),
        )


def graph_in_c(name: str, binding: GraphBinding, core: int, warm_up: int) -> InProcess:
    """A bound request of onnxruntime's that a loop in C runs on `core`."""
    call = ffi.cast("struct nnb_onnx_call *", binding.native.context)
    return InProcess(name, lib.nnb_bench_onnx, call, core, warm_up, keep=binding)


def bind_in_process(
    content: bytes, values: Sequence[Array], shapes: Sequence[Shape]
) -> GraphBinding:
    """The engine in this process by its C library, on memory that stays; it has run once.

    Args:
        content: the .onnx file.
        values: of all inputs.
        shapes: of all outputs.

    Raises:
        InvalidArgument: the engine refuses the graph.
        GeneralFailure: or fails to run it, such as one that declares another rank than it computes.
    """
    session = Session(content, {}, 1)
    if len(session.inputs) != len(values):
        raise InvalidArgument(f"{len(values)} values, the graph has {len(session.inputs)} inputs")
    given = [_room(v, b, v.shape) for v, b in zip(values, session.inputs, strict=True)]
    results = [
        _room(np.zeros(shape, BY_NUMBER[border.element].dtype), border, shape)
        for shape, border in zip(shapes, session.outputs, strict=True)
    ]
    binding = session.bind(given, results)
    failure = binding.run()
    if failure:
        raise GeneralFailure(f"the engine in process: {failure}")
    return binding


def _room(array: Array, border: Border, shape: Shape) -> Room:
    return Room(aligned(array), border.element, tuple(shape), apart=False)
