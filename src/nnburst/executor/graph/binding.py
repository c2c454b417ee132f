"""Binds the steps of a model to memory, with checks and shape rules, so that they can run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from nnburst.executor.graph.memory import Block, in_order, plan
from nnburst.executor.graph.operation import Binding, Node, OperationFailed, Run, named
from nnburst.executor.graph.plan import Graph, Step
from nnburst.executor.graph.tensor import Array, Tensor, TensorType, read_only
from nnburst.hal import late_numpy as np
from nnburst.hal.enums import OperandType
from nnburst.hal.limits import UINT32_MAX

_WIDER: Final = {
    OperandType.TENSOR_FLOAT16: OperandType.TENSOR_FLOAT32,
    OperandType.FLOAT16: OperandType.FLOAT32,
}


def infer(
    step: Step,
    inputs: Sequence[Tensor | TensorType | None],
    declared: Sequence[TensorType],
    exact: Sequence[bool],
) -> list[TensorType]:
    """Infer the types of a step's outputs, and merge them with the declared ones.

    Args:
        step: an operation with a shape rule.
        inputs: its inputs; types are enough for those that are not CONTROL.
        declared: its output operands as declared.
        exact: whether each output's quantisation must equal the declared one (subgraph outputs).

    Raises:
        OperationFailed: the operation cannot compute these operands.
    """
    rule = step.definition.shape
    assert rule is not None
    check_operands(step, inputs)
    seen = [_for_shape_rule(step, at, x) for at, x in enumerate(inputs)]
    node = Node(step.type, step.match, seen, (), _widened(step, declared))
    with named(step.type):
        computed = rule(node)
    return [
        merge(step, want, found, strict)
        for want, found, strict in zip(declared, computed, exact, strict=True)
    ]


def bind(
    step: Step,
    inputs: Sequence[Tensor | None],
    outputs: Sequence[Tensor],
    declared: Sequence[TensorType],
    binding: Binding,
) -> Run:
    """Bind a step with a shape rule to its operands; float16 is converted before and after the kernel."""
    before: list[Run] = []
    after: list[Run] = []
    ins = [_widen_input(step, at, x, binding, before) for at, x in enumerate(inputs)]
    outs = [_widen_output(step, x, binding, after) for x in outputs]
    node = Node(step.type, step.match, ins, outs, _widened(step, declared), binding)
    with named(step.type):
        run: Run = step.definition.kernel(node)
    return in_order([*before, run, *after])


def compute(
    step: Step,
    inputs: Sequence[Tensor | None],
    declared: Sequence[TensorType],
    exact: Sequence[bool],
    binding: Binding,
) -> list[Tensor]:
    """Run a step whose output shapes depend on data.

    The arrays belong to the kernel: they may lie in scratch memory or be an input's. Copy them at once.
    """
    check_operands(step, inputs)
    before: list[Run] = []
    ins = [_widen_input(step, at, x, binding, before) for at, x in enumerate(inputs)]
    for convert in before:
        convert()
    node = Node(step.type, step.match, ins, (), _widened(step, declared), binding)
    outputs = []
    with named(step.type):
        computed = step.definition.kernel(node)
    for want, strict, found in zip(declared, exact, computed, strict=True):
        made = (
            found
            if isinstance(found, Tensor)
            else Tensor(_with_dimensions(want, found.shape), found)
        )
        meta = merge(step, want, made.meta, strict)
        outputs.append(Tensor(meta, made.array))
    return outputs


def check_operands(step: Step, inputs: Sequence[Tensor | TensorType | None]) -> None:
    """Refuse omitted operands that are not optional, and empty tensors that the operation does not accept.

    Raises:
        OperationFailed: with the status that the operation's definition gives.
    """
    status = step.definition.omitted_status
    for slot, given in zip(step.match.inputs, inputs, strict=True):
        if given is None:
            if not slot.nullable:
                raise OperationFailed(
                    f"{step.type.name}: operand '{slot.name}' is omitted", status=status
                )
            continue
        meta = given.meta if isinstance(given, Tensor) else given
        if 0 in meta.dimensions and not step.definition.zero_sized:
            raise OperationFailed(
                f"{step.type.name}: operand '{slot.name}' is empty"
                f" (dimensions {list(meta.dimensions)})",
                status=status,
            )


def merge(step: Step, declared: TensorType, computed: TensorType, exact: bool) -> TensorType:
    """The type of an output: the computed one, which must not contradict the declared one.

    NNAPI: OperationsUtils.cpp setInfoAndAllocateIfNeeded, combineDimensions.

    Raises:
        OperationFailed: ranks, extents, types or (if `exact`) quantisation differ.
    """
    dimensions = tuple(int(d) for d in computed.dimensions)
    kind = declared.type if _wider(declared.type) == computed.type else computed.type
    found = TensorType(kind, dimensions, computed.scale, computed.zero_point, computed.extra_params)
    name = step.type.name
    if kind != declared.type:
        raise OperationFailed(f"{name}: computes {kind.name}, declared is {declared.type.name}")
    _check_dimensions(name, declared, dimensions)
    if exact and _quantisation(found) != _quantisation(declared):
        raise OperationFailed(
            f"{name}: computes scale {found.scale} and zero point {found.zero_point},"
            f" declared are {declared.scale} and {declared.zero_point}"
        )
    return found


def _check_dimensions(name: str, declared: TensorType, dimensions: tuple[int, ...]) -> None:
    wanted = declared.dimensions
    known = bool(wanted) or declared.is_scalar
    fits = not known or (
        len(wanted) == len(dimensions)
        and all(w in (0, d) for w, d in zip(wanted, dimensions, strict=True))
    )
    if not fits:
        raise OperationFailed(
            f"{name}: computes dimensions {list(dimensions)}, declared are {list(wanted)}"
        )
    if min(dimensions, default=0) < 0:
        raise OperationFailed(f"{name}: computes a negative extent: {list(dimensions)}")
    if math.prod(dimensions) * declared.element_bytes > UINT32_MAX:
        raise OperationFailed(f"{name}: output of {list(dimensions)} exceeds 2**32 - 1 bytes")


def _quantisation(meta: TensorType) -> tuple[object, ...]:
    return meta.scale, meta.zero_point, meta.extra_params


def _wider(kind: OperandType) -> OperandType:
    return _WIDER.get(kind, kind)


def _widened(step: Step, declared: Sequence[TensorType]) -> list[TensorType]:
    return [meta if step.definition.half else _widen_type(meta) for meta in declared]


def _widen_type(meta: TensorType) -> TensorType:
    if meta.type not in _WIDER:
        return meta
    return TensorType(
        _wider(meta.type), meta.dimensions, meta.scale, meta.zero_point, meta.extra_params
    )


def _with_dimensions(meta: TensorType, dimensions: Sequence[int]) -> TensorType:
    return TensorType(meta.type, tuple(dimensions), meta.scale, meta.zero_point, meta.extra_params)


def _for_shape_rule(step: Step, at: int, given: Tensor | TensorType | None) -> Tensor | None:
    if given is None:
        return None
    meta = given.meta if isinstance(given, Tensor) else given
    seen = meta if step.definition.half else _widen_type(meta)
    if at in step.controls:
        assert isinstance(given, Tensor)  # its value is known before shapes are inferred
        if seen is meta:
            return given
        return Tensor(seen, given.array.astype(seen.dtype, copy=False))
    return Tensor.of_unknown(seen)  # a shape rule must not look at data


def _widen_input(
    step: Step, at: int, given: Tensor | None, binding: Binding, before: list[Run]
) -> Tensor | None:
    if given is None or step.definition.half or given.type not in _WIDER:
        return given
    narrow = given.array
    if at in step.constants:
        key = ("float32", at)
        if key not in step.cache:
            step.cache.setdefault(key, read_only(narrow.astype(np.float32)))
        return Tensor(_widen_type(given.meta), step.cache[key])
    wide = binding.scratch(narrow.shape, np.dtype(np.float32))
    if at in step.controls:
        np.copyto(wide, narrow)  # the kernel reads it while it binds
    before.append(lambda: np.copyto(wide, narrow))
    return Tensor(_widen_type(given.meta), read_only(wide))


def _widen_output(step: Step, given: Tensor, binding: Binding, after: list[Run]) -> Tensor:
    if step.definition.half or given.type not in _WIDER:
        return given
    narrow: Array = given.array
    wide = binding.scratch(narrow.shape, np.dtype(np.float32))
    after.append(lambda: np.copyto(narrow, wide, casting="same_kind"))
    return Tensor(_widen_type(given.meta), wide)


class Layout(msgspec.Struct, frozen=True):
    """The static part of a graph for one set of input shapes. Immutable; bindings share it.

    Attributes:
        steps: numbers of the steps whose operands' shapes and CONTROL values are all known.
        types: type of each operand that they write.
        offsets: place in the arena of each temporary that they write.
        arena_bytes: size of the arena.
    """

    steps: frozenset[int]
    types: Mapping[int, TensorType]
    offsets: Mapping[int, int]
    arena_bytes: int


def lay_out(
    graph: Graph,
    inputs: Mapping[int, TensorType | None],
    outputs: Mapping[int, TensorType],
) -> Layout:
    """Infer shapes as far as they do not depend on run-time values, and plan the arena.

    Args:
        graph: the main graph.
        inputs: type of each of its inputs by operand index; None if it is omitted.
        outputs: each of its outputs as declared by model and request together.

    Raises:
        OperationFailed: an operation cannot compute these shapes.
    """
    known: dict[int, Tensor | TensorType | None] = {**graph.constants, **inputs}
    known.update(dict.fromkeys(_without_value(graph, known)))
    types: dict[int, TensorType] = {}
    steps = []
    for number, step in enumerate(graph.steps):
        if not _is_static(step, known):
            continue
        declared = [outputs.get(i, graph.declared[i]) for i in step.outputs]
        exact = [i in outputs for i in step.outputs]
        found = infer(step, [known[i] for i in step.inputs], declared, exact)
        steps.append(number)
        types.update(zip(step.outputs, found, strict=True))
        known.update(zip(step.outputs, found, strict=True))
    offsets, total = _place(graph, steps, types, outputs)
    return Layout(frozenset(steps), types, offsets, total)


def _without_value(graph: Graph, known: Mapping[int, object]) -> list[int]:
    written = {i for step in graph.steps for i in step.outputs}
    return [i for i in graph.last_read if i not in known and i not in written]


def _is_static(step: Step, known: Mapping[int, object]) -> bool:
    if step.definition.shape is None or not all(i in known for i in step.inputs):
        return False
    return all(at in step.constants or known[step.inputs[at]] is None for at in step.controls)


def _place(
    graph: Graph,
    steps: list[int],
    types: Mapping[int, TensorType],
    outputs: Mapping[int, TensorType],
) -> tuple[dict[int, int], int]:
    indexes = []
    blocks = []
    for number in steps:
        for index in graph.steps[number].outputs:
            if index not in outputs:
                meta = types[index]
                size = meta.byte_size
                indexes.append(index)
                blocks.append(Block(size, number, graph.last_read.get(index, number)))
    offsets, total = plan(blocks)
    return dict(zip(indexes, offsets, strict=True)), total
