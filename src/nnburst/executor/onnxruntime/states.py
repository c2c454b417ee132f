"""States of a whole graph that stay in the engine's memory: which there are, and how each is written.

An operator that writes over what it has read gets one place for both: its kernels look whether past and
present are the same memory. For any other a state has two places by turns, or one that the engine makes anew
for each run, if its extents change.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from nnburst._native import ffi, lib
from nnburst.executor.onnxruntime.native import Border, GraphBinding, Session
from nnburst.formats.onnx_model import NodeProto, OnnxFile, nodes_of
from nnburst.hal.errors import InvalidArgument, ResourceExhausted
from nnburst.hal.whole_graph import BY_NUMBER, GraphState

#: Slots of one prepared model.
MAX_SLOTS: Final = 1024
#: Bytes of one state, far beyond any machine's memory.
_MOST_BYTES: Final = 1 << 44

IN_PLACE: Final = int(lib.NNB_ONNX_IN_PLACE)
IN_TURNS: Final = int(lib.NNB_ONNX_IN_TURNS)
GROWING: Final = int(lib.NNB_ONNX_GROWING)

#: Operators that may write over what they read: inputs by number of the output that is written there.
_WRITING_OVER: Final = {
    ("", "TensorScatter"): {0: 0},
    ("com.microsoft", "GroupQueryAttention"): {1: 3, 2: 4},
}


class _Pair(NamedTuple):
    """A state as the session has it."""

    input: int
    output: int
    border: Border
    extents: tuple[int, ...]
    kind: int


class ResidentStates:
    """The states of a session, by slot. Thread-safe.

    Attributes:
        inputs: numbers of the session's inputs that are states.
        outputs: numbers of its outputs that are.
        kinds: how each state is written, by name of its input.
    """

    def __init__(self, session: Session, file: OnnxFile, states: Sequence[GraphState]) -> None:
        """Find out how each is written; no slot is open.

        Args:
            session: stays open as long as this.
            file: its graph.
            states: as the client has them.

        Raises:
            InvalidArgument: one is no input and output of the graph that fit each other.
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
        """Have a binding run with the states of the slot that its word names, memory of the client's."""
        lib.nnb_onnx_use_states(binding.call, self._handle, ffi.cast("uint8_t *", word.ctypes.data))
        binding.keep((self, word))

    def address(self, slot: int, name: str, *, written: bool) -> int:
        """Where a state lies that the next run of a slot reads, or where that run writes it."""
        at = list(self.kinds).index(name)
        return int(lib.nnb_onnx_state_address(self._handle, slot, at, written))


def _pair(session: Session, file: OnnxFile, state: GraphState) -> _Pair:
    inputs = [border.name for border in session.inputs]
    outputs = [border.name for border in session.outputs]
    for side, name, names in (("input", state.input, inputs), ("output", state.output, outputs)):
        if name not in names:
            raise InvalidArgument(f"states: {name!r} is not an {side} of the graph, it has {names}")
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
    if _is_written_over(file, state):
        kind = IN_PLACE
    else:
        kind = IN_TURNS if after.extents == state.extents else GROWING
    return _Pair(
        inputs.index(state.input), outputs.index(state.output), before, state.extents, kind
    )


def _is_written_over(file: OnnxFile, state: GraphState) -> bool:
    """Whether the state is read only by an operator that may write its output over it."""
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
