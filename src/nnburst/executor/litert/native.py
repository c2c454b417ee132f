"""Runs networks through libLiteRt.so without copies, and remembers which library passed its trial run.

A library that has passed is not tried again before the next boot. A trial is a process that is forked from a
driver while it imports; the fork and the pages which both then copy take 4 ms of each start. So a passed
trial is recorded beside Python's compiled files, with all that the result depends on: both libraries, the
boot, and the loader's settings. A failure is never recorded. The record is trusted like compiled files: the
same users can write both.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import logging
import math
import os
import sys
import threading
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from nnburst import _native
from nnburst._native import ffi, lib
from nnburst.executor.base import NativeCall, Octets
from nnburst.executor.c_structs import run_native, string_of
from nnburst.executor.graph.tensor import Tensor, TensorType
from nnburst.executor.graph.whole_graph import Apart
from nnburst.executor.litert.graph import GraphWriter
from nnburst.executor.litert.network import Network
from nnburst.hal.enums import ErrorStatus, OperandType
from nnburst.hal.environment import LITERT_ROUTE
from nnburst.hal.errors import GeneralFailure
from nnburst.hal.whole_graph import Element
from nnburst.tracing.recording import name_number
from nnburst.tracing.slices import Layer, Phase

# -- trials that passed ----------------------------------------------------------------------------


_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
#: Environment variables that change which libraries a loader opens.
_LOADER: Final = ("LD_LIBRARY_PATH", "LD_PRELOAD", "LD_BIND_NOW")


def facts(*files: str) -> str:
    """All that the result of a trial with `files` depends on, as text; empty if it cannot be read."""
    try:
        boot = _BOOT.read_text()
        return "\n".join([boot, *map(_about, files), *map(_variable, _LOADER)])
    except OSError:
        return ""


def _about(path: str) -> str:
    found = os.stat(path)  # noqa: PTH116 - of a text, as it is noted
    times = found.st_mtime_ns, found.st_ctime_ns
    return f"{path} {found.st_dev} {found.st_ino} {found.st_size} {times}"


def _variable(name: str) -> str:
    return f"{name}={os.environ.get(name, '')!r}"


def has_passed(now: str) -> bool:
    """Whether a trial with the facts `now` has passed."""
    with contextlib.suppress(OSError, ValueError):
        return bool(now) and place().read_text() == now
    return False


def note(now: str) -> None:
    """Record that a trial with the facts `now` has passed, unless Python may not write compiled files."""
    if sys.dont_write_bytecode or not now:
        return
    with contextlib.suppress(OSError):
        temporary = place().with_suffix(f".{os.getpid()}")
        temporary.write_text(now)
        temporary.replace(place())


def place() -> Path:
    """Path of the file that records a passed trial."""
    cached = __spec__.cached if __spec__ is not None else None
    return Path(cached or __file__).with_suffix(".txt")


# -- native ----------------------------------------------------------------------------------------


log = logging.getLogger("nnburst.executor")

PACKAGE: Final = "ai-edge-litert"
#: Minor versions that csrc/litert.c was tested with; the library's declarations have changed between
#: versions.
_MINORS: Final = ("2.1.", "2.2.", "2.3.")
_RUN: Final = int(ffi.cast("uintptr_t", ffi.addressof(lib, "nnb_litert_run")))

_T = OperandType
#: The library's number of each element type. BOOL8 inputs are fed as bytes, see network.py.
_ELEMENT_TYPES: Final = {
    _T.TENSOR_FLOAT32: 1,
    _T.FLOAT32: 1,
    _T.TENSOR_INT32: 2,
    _T.INT32: 2,
    _T.TENSOR_QUANT8_ASYMM: 3,
    _T.TENSOR_BOOL8: 6,
    _T.TENSOR_QUANT8_ASYMM_SIGNED: 9,
    _T.TENSOR_QUANT8_SYMM: 9,
    _T.TENSOR_QUANT8_SYMM_PER_CHANNEL: 9,
}
_BYTE: Final = 3
#: The library's number of each element type of .tflite files that inputs and outputs of graphs may have.
_GRAPH_ELEMENT_TYPES: Final = {
    "FLOAT32": 1,
    "INT32": 2,
    "UINT8": 3,
    "INT64": 4,
    "BOOL": 6,
    "INT16": 7,
    "INT8": 9,
    "FLOAT16": 10,
    "FLOAT64": 11,
    "UINT64": 13,
    "UINT32": 16,
    "UINT16": 17,
}
_opening: Final = threading.Lock()


@functools.cache
def available() -> bool:
    """Whether this process can use the library: its version is supported, and a trial run was correct.

    The trial runs in a child process, so that a library with other functions cannot harm this process. It
    runs once for each library and boot. Set NNBURST_LITERT_ROUTE=interpreter to do without the library.
    """
    if LITERT_ROUTE.read() == "interpreter":
        return False
    with _opening:
        why = _missing() or _failed_trial() or _failed_open()
    if why:
        log.warning("libLiteRt.so is not used, the slower Interpreter is: %s", why)
    return not why


@functools.cache
def package_version() -> str:
    """The wheel's version; "unknown" if its metadata are missing."""
    library = _library()
    folder = library.parent.parent if library is not None else Path()
    start, end = f"{PACKAGE.replace('-', '_')}-", ".dist-info"
    inside = os.listdir(folder) if library is not None else []  # noqa: PTH208 - glob takes a millisecond
    named = [name for name in inside if name.startswith(start) and name.endswith(end)]
    if len(named) == 1:  # read from the wheel's folder name, which saves 10 ms of every start
        return named[0].removesuffix(end).rpartition("-")[2]
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(PACKAGE)
    except PackageNotFoundError:
        return "unknown"


def _library() -> Path | None:
    spec = importlib.util.find_spec("ai_edge_litert")
    folders = spec.submodule_search_locations if spec is not None else None
    path = Path(folders[0]) / "libLiteRt.so" if folders else None
    return path if path is not None and path.is_file() else None


def _missing() -> str:
    if _library() is None:
        return "the library is not there"
    found = package_version()
    tried = ", ".join(f"{minor}x" for minor in _MINORS)
    return "" if found.startswith(_MINORS) else f"{PACKAGE} is {found}, expected one of {tried}"


def _failed_open() -> str:
    content, _ = _trial_network()
    status = int(lib.nnb_litert_open(str(_library()).encode(), content, len(content)))
    return "" if status == lib.NNB_LITERT_OK else f"opening it ended with status {status}"


class _Trial:
    """A trial run in a child process, which starts with this object and does not block this process.

    The trial is skipped if one has passed before (`has_passed`).
    """

    def __init__(self, library: Path) -> None:
        self._begun_by = os.getpid()
        self._facts = facts(str(library), _native.__file__)
        passed = has_passed(self._facts)
        self._failure = "" if passed else None
        self._child = None if passed else self._begin(library)

    @staticmethod
    def _begin(library: Path) -> int:
        content, shape = _trial_network()
        given, found, expected = _aligned(1, -2, 3, -4), _aligned(0, 0, 0, 0), _aligned(0, 7, 0, 23)
        return int(
            lib.nnb_litert_trial_begin(
                str(library).encode(),
                ffi.from_buffer("uint8_t[]", content),
                len(content),
                _arguments([given], _slots([shape], frozenset(), is_input=True)),
                _arguments([found], _slots([shape], frozenset(), is_input=False)),
                ffi.from_buffer("uint8_t[]", expected),
            )
        )

    @property
    def counts_here(self) -> bool:
        """Whether the trial counts in this process: this one began it, or was forked after it had passed."""
        return self._begun_by == os.getpid() or self._failure == ""

    def failure(self) -> str:
        """Wait for the end; the reason why the library cannot be used, or "" if it can."""
        if self._failure is None:
            assert self._child is not None
            status = lib.nnb_litert_trial_end_unlocked(self._child)
            ok = status == lib.NNB_LITERT_OK
            self._failure = "" if ok else f"its trial run ended with status {status}"
            if ok:
                note(self._facts)
        return self._failure


#: Trials of this process, by library file.
_trials: Final[dict[tuple[object, ...], _Trial]] = {}


def begin_trial() -> Callable[[], object]:
    """Begin the trial before `available` needs its result, in this process or in those that it forks later.

    Returns:
        A function that waits for the end of the trial, if one was begun.
    """
    if LITERT_ROUTE.read() == "interpreter" or _missing():
        return lambda: None
    with _opening:
        return _trial().failure


def _trial() -> _Trial:
    """The trial of the library that is installed now."""
    library = _library()
    if library is None:
        raise GeneralFailure("the library went away while it was about to be tried")
    about = library.stat()
    key = (library, about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns)
    if key not in _trials or not _trials[key].counts_here:
        _trials[key] = _Trial(library)
    return _trials[key]


def _failed_trial() -> str:
    return _trial().failure()


def _trial_network() -> tuple[bytes, TensorType]:
    """The network max(0, x · w + b) with small integers, exact in any order of summation."""
    graph = GraphWriter()
    vector, matrix = TensorType(_T.TENSOR_FLOAT32, (1, 4)), TensorType(_T.TENSOR_FLOAT32, (4, 4))
    x = graph.tensor(vector)
    weights = (-1, 0, 0, 0, 1, 0, 2, 0, 0, 1, 0, 1, 0, -4, 5, 0)
    w = graph.stored(Tensor.of_numbers(matrix, weights))
    b = graph.stored(Tensor.of_numbers(TensorType(_T.TENSOR_FLOAT32, (4,)), (0, 0, 1, 0)))
    options = {"fusedActivationFunction": 1}
    y = graph.operator("FULLY_CONNECTED", [x, w, b], [vector], "FullyConnected", **options)
    return graph.finish([x], y), vector


def _aligned(*numbers: float) -> memoryview:
    """Float32 numbers as bytes that are aligned as the library needs them."""
    alignment = int(lib.NNB_LITERT_ALIGNMENT)
    packed = array("f", numbers).tobytes()
    room = memoryview(bytearray(len(packed) + 2 * alignment))
    start = -int(ffi.cast("uintptr_t", ffi.from_buffer(room))) % alignment
    copy = room[start : start + len(packed)]
    copy[:] = packed
    return copy


class Slot(NamedTuple):
    """An input or output, described for the library.

    Attributes:
        element_type: the library's number of the element type.
        dimensions: the tensor's dimensions.
        size: number of bytes.
        apart: whether the engine works on the memory itself or on a copy.
    """

    element_type: int
    dimensions: tuple[int, ...]
    size: int
    apart: Apart


class EngineProgram(NamedTuple):
    """The file that an engine runs, and its arguments.

    Attributes:
        content: the .tflite file.
        inputs: inputs of the file's main subgraph.
        outputs: outputs of the file's main subgraph.
    """

    content: Octets | memoryview
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]

    @classmethod
    def of(cls, network: Network) -> EngineProgram:
        """The program of a lowered network."""
        return cls(
            network.content,
            _slots(network.inputs, network.private_inputs, is_input=True),
            _slots(network.outputs, network.private_outputs, is_input=False),
        )


def graph_slot(element: Element, dimensions: tuple[int, ...], apart: Apart) -> Slot | None:
    """A slot of a whole graph; None if the library does not support its element type or rank."""
    kind = _GRAPH_ELEMENT_TYPES.get(element.tflite)
    if kind is None or len(dimensions) > lib.NNB_LITERT_MAX_RANK:
        return None
    return Slot(kind, dimensions, math.prod(dimensions) * element.size, apart)


def _slots(
    types: Sequence[TensorType], apart: frozenset[int], *, is_input: bool
) -> tuple[Slot, ...]:
    def slot(at: int, meta: TensorType) -> Slot:
        fed_as_bytes = is_input and meta.type is _T.TENSOR_BOOL8
        kind = _BYTE if fed_as_bytes else _ELEMENT_TYPES[meta.type]
        where = Apart.COPIED if at in apart else Apart.IN_ITS_PLACE
        return Slot(kind, meta.dimensions, meta.byte_size, where)

    return tuple(slot(at, meta) for at, meta in enumerate(types))


def _arguments(memory: Sequence[memoryview | None], slots: Sequence[Slot]) -> Any:  # noqa: ANN401
    made = ffi.new("struct nnb_litert_argument[]", max(len(slots), 1))
    for at, (buffer, slot) in enumerate(zip(memory, slots, strict=True)):
        argument = made[at]
        argument.memory = ffi.NULL if buffer is None else ffi.from_buffer("uint8_t *", buffer)
        argument.bytes = slot.size
        argument.element_type = slot.element_type
        argument.apart = slot.apart
        argument.rank = len(slot.dimensions)
        argument.dimensions[0 : len(slot.dimensions)] = list(slot.dimensions)
    return made


class NativeEngine:
    """A compiled network. Its requests may run on several threads: they take turns."""

    def __init__(
        self,
        network: Network | EngineProgram,
        threads: int,
        title: str = "litert",
        packed_weights: int = -1,
    ) -> None:
        """Compile a network.

        Args:
            network: the network to compute.
            threads: number of threads that compute.
            title: name of its runs in a trace.
            packed_weights: descriptor of a file with weights in the engine's own form, made by an engine of
                the same network; the engine fills an empty file; -1 if the engine packs its weights in memory
                of its own.

        Raises:
            GeneralFailure: the library refuses the network.
        """
        program = network if isinstance(network, EngineProgram) else EngineProgram.of(network)
        self._program = program
        self._title = title
        self._content = ffi.from_buffer("uint8_t[]", program.content)
        message = ffi.new("char[]", int(lib.NNB_LITERT_MESSAGE_BYTES))
        engine = lib.nnb_litert_engine_new_unlocked(
            self._content, len(program.content), threads, packed_weights, message
        )
        if engine == ffi.NULL:
            raise GeneralFailure(f"LiteRT refuses the network: {string_of(message).strip()}")
        self.handle = ffi.gc(engine, lib.nnb_litert_engine_free)

    def close(self) -> None:
        """Free the engine if no request is bound to it; otherwise the last request frees it."""
        ffi.release(self.handle)

    def output_extents(self) -> list[tuple[int, ...]]:
        """Extents of the outputs of a network whose extents are all known before a run.

        Raises:
            GeneralFailure: the library reports none.
        """
        slots = self._program.outputs
        found = ffi.new("struct nnb_litert_argument[]", max(len(slots), 1))
        if lib.nnb_litert_output_layouts(self.handle, found, len(slots)) != lib.NNB_LITERT_OK:
            raise GeneralFailure("LiteRT reports no extents of the outputs")
        return [
            tuple(int(found[at].dimensions[axis]) for axis in range(found[at].rank))
            for at in range(len(slots))
        ]

    def bind(
        self, inputs: Sequence[memoryview], outputs: Sequence[memoryview | None]
    ) -> NativeBinding:
        """Bind memory: exactly the bytes of each argument; None for an output that is not taken.

        Raises:
            GeneralFailure: the library refuses an argument.
        """
        program = self._program
        call = lib.nnb_litert_bind(
            self.handle,
            _arguments(inputs, program.inputs),
            len(inputs),
            _arguments(outputs, program.outputs),
            len(outputs),
        )
        if call == ffi.NULL:
            raise GeneralFailure("LiteRT refuses an argument, or memory is short")
        name = name_number(Layer.CPU, Phase.COMPUTATION, self._title)
        if name:
            lib.nnb_litert_set_trace_name(call, name)
        return NativeBinding(self, ffi.gc(call, lib.nnb_litert_call_free), (*inputs, *outputs))


class NativeBinding:
    """A request bound to an engine.

    Attributes:
        native: the call by which the burst loop runs the request.
        copied_bytes: bytes that each run copies: arguments that are not aligned to 64 bytes, and those that
            must not change during the run.
    """

    def __init__(
        self,
        engine: NativeEngine,
        call: Any,  # noqa: ANN401 - a cffi struct nnb_litert_call *
        memory: Sequence[memoryview | None],
    ) -> None:
        """Own `call`; keep the engine and the memory alive."""
        self._call = call  # freed before the engine is
        self._kept: tuple[object, ...] = (engine, memory)
        self.native = NativeCall(_RUN, int(ffi.cast("uintptr_t", call)))
        self.copied_bytes = int(lib.nnb_litert_copied_bytes(call))

    def run(self) -> str:
        """Run once, without Python's lock; the reason if it fails, else ""."""
        outcome = run_native(self.native)
        return "" if outcome.status == ErrorStatus.NONE else outcome.message or "the engine failed"

    def close(self) -> None:
        """Free the binding and release the memory."""
        ffi.release(self._call)
        self._kept = ()
